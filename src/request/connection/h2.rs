//! The life of a client's HTTP/2 connection: preface, then streams side by side, each an exchange of its own, then GOAWAY.
//!
//! Frames, compression and flow control are the multiplexer's. Here are the bounds in time: of the preface, of a head that does
//! not end, of idleness, of the end. Memory for what clients send is bounded by the windows, and for what they don't read by
//! what a connection holds back.

mod stream;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_lc_rs::rand;

pub use self::stream::{Carrier, H2Stream};
use self::stream::{Incoming, Inlet};
use crate::base::h2_reset::H2Reset;
use crate::base::time::Timestamp;
use crate::pure::config::Limits;
use crate::pure::h2::hpack::FieldBlock;
use crate::pure::h2::multiplexer::{Multiplexer, OwnSettings, Role};
use crate::pure::h2::request::{IncomingHead, push_request};
use crate::pure::websocket::key_of;
use crate::request::connection::{Connection, DRAIN_GRACE, PanicCounter, before_requests, linger};
use crate::request::deadlines::Deadline;
use crate::request::exchange;
use crate::request::listener::Listener;
use crate::request::proxy_header::Caller;
use crate::request::stream::ClientStream;
use crate::request::worker::{ConnectionTicket, Worker};
use crate::transport::h2::{Driver, Handle};

/// What a stream's client may send before it is read, in bytes.
const STREAM_WINDOW: u32 = 128 * 1024;
/// The same of all streams of a connection together.
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// What a field costs beside its bytes in the size of a list (RFC 9113 6.5.2).
const FIELD_OVERHEAD: usize = 32;
/// How long the end of a connection may take to be told.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection that turns out to speak HTTP/2.
pub(super) struct Arrival {
    pub(super) stream: ClientStream,
    pub(super) worker: Rc<Worker>,
    pub(super) listener: Arc<Listener>,
    pub(super) caller: Caller,
    pub(super) ticket: ConnectionTicket,
}

/// Serves a connection to its end. It is the future of a connection that may idle: what is large or soon over is boxed.
pub(super) async fn serve(arrival: Arrival) {
    let (mut life, has_begun) = Box::pin(greet(arrival)).await;
    if has_begun {
        poll_fn(|context| life.poll(context)).await;
    }
    if let Some(fault) = life.driver.look(Multiplexer::fault) {
        life.worker.shared.say_h2_broken(fault, has_begun, life.caller.peer, &life.listener);
    }
    let Life { driver, deadline, worker, .. } = *life;
    // With the frames gone nobody else holds the connection.
    let mut stream = driver.into_below();
    Box::pin(linger(&mut stream, &deadline, &worker)).await;
}

/// The connection, and whether its client has sent the preface.
async fn greet(arrival: Arrival) -> (Box<Life>, bool) {
    let Arrival { stream, worker, listener, caller, ticket } = arrival;
    let carrier = Carrier {
        tls: stream.tls_version(),
        server_name: stream.server_name().map(Rc::from),
        local: stream.local_address(),
        demand: stream.demand(),
        identity: stream.identity().map(Arc::clone),
        session: stream.session_identity(),
        ticket: Rc::new(ticket),
    };
    let deadline = carrier.ticket.deadline();
    let mut life = Box::new(Life {
        driver: Driver::new(stream, settings(&listener.config.limits)),
        open: Rc::new(Open { count: Cell::new(0), ended: Cell::new(worker.now()) }),
        worker: Rc::clone(&worker),
        is_over_limit: carrier.ticket.is_over_limit(),
        listener,
        caller,
        carrier,
        deadline: Rc::clone(&deadline),
        requests: 0,
        ending: None,
    });
    let has_begun = before_requests(&worker, &deadline, |context| life.poll_preface(context)).await == Some(true);
    life.open.ended.set(worker.now());
    deadline.set(worker.now() + life.listener.config.limits.idle_timeout);
    (life, has_begun)
}

fn settings(limits: &Limits) -> OwnSettings {
    let allowed = limits.head_max.as_usize().saturating_add(FIELD_OVERHEAD * limits.fields_max as usize);
    OwnSettings {
        role: Role::Server,
        stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        streams_max: limits.streams_max,
        // What is larger is followed, and not kept.
        list_max: allowed.saturating_mul(2),
    }
}

/// The streams that are open.
#[derive(Debug)]
struct Open {
    count: Cell<u32>,
    /// When the last one ended.
    ended: Cell<Timestamp>,
}

/// A stream while it is open.
struct OpenStream {
    open: Rc<Open>,
    worker: Rc<Worker>,
}

impl OpenStream {
    fn new(open: &Rc<Open>, worker: &Rc<Worker>) -> Self {
        open.count.set(open.count.get() + 1);
        Self { open: Rc::clone(open), worker: Rc::clone(worker) }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.open.count.set(self.open.count.get() - 1);
        self.open.ended.set(self.worker.now());
    }
}

/// Why a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// What is in flight is finished.
    Graceful,
    /// At once: what is to be told is told.
    AtOnce,
}

struct Life {
    driver: Driver<ClientStream>,
    open: Rc<Open>,
    worker: Rc<Worker>,
    listener: Arc<Listener>,
    caller: Caller,
    carrier: Carrier,
    deadline: Rc<Deadline>,
    requests: u32,
    is_over_limit: bool,
    ending: Option<Ending>,
}

impl Life {
    /// Waits for the preface. False: none will come.
    fn poll_preface(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let is_over = self.driver.poll(context).is_ready();
        match self.driver.look(Multiplexer::has_preface) {
            true => Poll::Ready(true),
            false if is_over => Poll::Ready(false),
            false => Poll::Pending,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let is_over = self.driver.poll(context).is_ready();
            self.count_refused();
            while let Some(handle) = self.driver.next_opened() {
                self.begin(handle);
            }
            if is_over || self.poll_bounds(context).is_ready() {
                return Poll::Ready(());
            }
            if !self.has_news() {
                return Poll::Pending;
            }
        }
    }

    fn count_refused(&self) {
        let refused = self.driver.with(Multiplexer::take_refused);
        if refused > 0 {
            self.worker.shared.say_streams_refused(refused, self.caller.peer, &self.listener);
        }
    }

    /// Tells the client to end, where it is time to. True: what is to be told is still to be sent.
    fn has_news(&mut self) -> bool {
        if self.driver.look(|multiplexer| multiplexer.fault().is_some()) {
            // It has been told already.
            if self.ending != Some(Ending::AtOnce) {
                self.ending = Some(Ending::AtOnce);
                self.deadline.set(self.worker.now() + FAREWELL);
            }
            return false;
        }
        let max = self.listener.config.limits.requests_per_connection_max;
        let is_time = self.worker.is_draining()
            || max.is_some_and(|max| self.requests >= max)
            || (self.is_over_limit && self.requests > 0);
        if !is_time || self.ending.is_some() {
            return false;
        }
        self.end_gracefully();
        true
    }

    fn end_gracefully(&mut self) {
        self.ending = Some(Ending::Graceful);
        self.driver.with(Multiplexer::end_gracefully);
        self.deadline.set(self.worker.now() + DRAIN_GRACE);
    }

    fn end_at_once(&mut self, code: H2Reset) {
        self.ending = Some(Ending::AtOnce);
        self.driver.with(|multiplexer| multiplexer.end_at_once(code));
        self.deadline.set(self.worker.now() + FAREWELL);
    }

    /// Ready where the time of something is up and there is nobody to wait for any more.
    fn poll_bounds(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let now = self.worker.now();
        let limits = &self.listener.config.limits;
        let (header_timeout, idle_timeout) = (limits.header_timeout, limits.idle_timeout);
        // Once it is over, the deadline has been told: to set it again would put it off.
        if self.ending.is_none()
            && let Some(head_until) = self.open_head().map(|since| since + header_timeout)
            && head_until > now
        {
            self.deadline.set(head_until);
        }
        while self.deadline.poll_expired(context) {
            let idle_until = self.open.ended.get() + idle_timeout;
            match self.ending {
                Some(Ending::AtOnce) => return Poll::Ready(()),
                Some(Ending::Graceful) if self.worker.is_stopping() => return Poll::Ready(()),
                Some(Ending::Graceful) if self.open.count.get() > 0 => self.deadline.set(now + DRAIN_GRACE),
                // The exchanges are over, and what they have said last may still be on its way out.
                Some(Ending::Graceful) => match self.driver.blocked_since() {
                    Some(since) if since + idle_timeout > now => self.deadline.set(now + DRAIN_GRACE),
                    None if self.open.ended.get() + DRAIN_GRACE > now => {
                        self.deadline.set(self.open.ended.get() + DRAIN_GRACE);
                    }
                    Some(_) | None => return Poll::Ready(()),
                },
                None if self.open_head().is_some_and(|since| since + header_timeout <= now) => {
                    self.end_at_once(H2Reset::ENHANCE_YOUR_CALM);
                    context.waker().wake_by_ref();
                }
                None if self.open.count.get() > 0 => self.deadline.set(now + idle_timeout),
                None if idle_until <= now => {
                    self.end_gracefully();
                    context.waker().wake_by_ref();
                }
                None => self.deadline.set(idle_until),
            }
        }
        Poll::Pending
    }

    fn open_head(&self) -> Option<Timestamp> {
        self.driver.look(Multiplexer::open_head)
    }

    /// Starts the exchange of a request.
    fn begin(&mut self, handle: Handle) {
        let max = self.listener.config.limits.requests_per_connection_max;
        if max.is_some_and(|max| self.requests >= max) {
            // It was not looked at, and may be sent again elsewhere (RFC 9113 8.7).
            return handle.reset(H2Reset::REFUSED_STREAM);
        }
        let Some(fields) = handle.take_head() else { return };
        self.requests = self.requests.saturating_add(1);
        let stream = H2Stream::new(incoming(handle, &fields), self.carrier.clone());
        let stream = ClientStream::H2(Box::new(stream));
        let open = OpenStream::new(&self.open, &self.worker);
        let (worker, listener) = (Rc::clone(&self.worker), Arc::clone(&self.listener));
        let mut connection = Connection::of_stream(stream, worker, listener, self.caller, self.is_over_limit);
        let guard = PanicCounter::new(&self.worker);
        tokio::task::spawn_local(async move {
            let _open = open;
            // Whatever becomes of a connection then, a stream that has not ended is cut off with the end of it.
            Box::pin(exchange::serve(&mut connection)).await;
            guard.is_done.set(true);
        });
    }
}

/// A request in HTTP/1.1.
fn incoming(handle: Handle, fields: &FieldBlock) -> Incoming {
    let described = IncomingHead::of(fields);
    let has_body = !handle.is_received();
    let mut head = Vec::with_capacity(512);
    let written = push_request(&mut head, &described, has_body, websocket_key);
    let inlet = if described.is_to_tunnel() {
        Inlet::Tunnel
    } else if !has_body {
        Inlet::Over
    } else if described.has_length() {
        Inlet::Plain
    } else {
        Inlet::Chunked
    };
    let is_held = inlet == Inlet::Plain && described.says_empty();
    Incoming { handle, head: written.map(|()| head), is_held, inlet, is_head_request: described.is_to_head() }
}

/// 16 random bytes (RFC 6455 4.1). Without any, the server gets a key that is no secret, which the protocol bears: it is
/// there to tell a server that means it from one that does not.
fn websocket_key() -> String {
    let mut bits = [0; 16];
    let _ = rand::fill(&mut bits);
    key_of(bits)
}

//! The life of a client's HTTP/2 connection: preface, then streams side by side, each an exchange of its own, then GOAWAY.
//!
//! Frames, compression and flow control are the `h2` crate's. Ours are the bounds: of the preface, of a head that does not
//! end, of idleness, of streams at once, of what a client may send that costs it nothing. Memory for what clients send is
//! bounded by the windows, and for what they don't read by the bytes that a stream may hold back.

mod stream;
mod watch;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_lc_rs::rand;
use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::{Method, Request};

pub use self::stream::{Carrier, H2Stream};
use self::stream::{Incoming, Inlet};
use self::watch::{Watch, Watched};
use crate::base::time::Timestamp;
use crate::pure::config::Limits;
use crate::pure::h1::request::RequestHeadError;
use crate::pure::h2::frames::Fault;
use crate::pure::h2::request::{IncomingHead, push_request};
use crate::pure::websocket::key_of;
use crate::request::connection::{Connection, DRAIN_GRACE, PanicCounter, before_requests, linger};
use crate::request::deadlines::Deadline;
use crate::request::exchange;
use crate::request::listener::Listener;
use crate::request::proxy_header::Caller;
use crate::request::stream::ClientStream;
use crate::request::worker::{ConnectionTicket, Worker};

/// What a stream's client may send before it is read, in bytes.
const STREAM_WINDOW: u32 = 128 * 1024;
/// The same of all streams of a connection together.
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// What a stream holds back of an answer that its client does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// What small DATA frames that were not read yet may cost, by the `h2` crate's count: 256 bytes less their size for each. A
/// burst of sixteen thousand messages is borne.
const FRAME_BUDGET: usize = 4 * 1024 * 1024;
/// Resets that are remembered, so that frames on their way are known to be late and not wrong.
const RESETS_REMEMBERED: usize = 64;
/// How long.
const RESET_MEMORY: Duration = Duration::from_secs(5);
/// Streams that a client has given up before we have even looked at them.
const PENDING_RESETS: usize = 32;
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
    let Begun { watch, worker, deadline, life } = Box::pin(greet(arrival)).await;
    if let Some(mut life) = life {
        poll_fn(|context| life.poll(context)).await;
    }
    // With the frames gone nobody else holds the connection.
    if let Some(watch) = Rc::into_inner(watch) {
        let mut stream = watch.into_stream();
        Box::pin(linger(&mut stream, &deadline, &worker)).await;
    }
}

/// A connection that has sent its preface, and been sent ours, or not.
struct Begun {
    watch: Rc<Watch>,
    worker: Rc<Worker>,
    deadline: Rc<Deadline>,
    life: Option<Box<Life>>,
}

async fn greet(arrival: Arrival) -> Begun {
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
    let watch = Watch::new(stream, worker.now());
    let deadline = carrier.ticket.deadline();
    let mut shaking = pin!(settings(&listener.config.limits).handshake(Watched(Rc::clone(&watch))));
    let shaken = before_requests(&worker, &deadline, |context| shaking.as_mut().poll(context)).await;
    let life = shaken.and_then(Result::ok).map(|frames| {
        deadline.set(worker.now() + listener.config.limits.idle_timeout);
        Box::new(Life {
            frames,
            watch: Rc::clone(&watch),
            open: Rc::new(Open { count: Cell::new(0), ended: Cell::new(worker.now()) }),
            worker: Rc::clone(&worker),
            is_over_limit: carrier.ticket.is_over_limit(),
            listener,
            caller,
            carrier,
            deadline: Rc::clone(&deadline),
            requests: 0,
            ending: None,
        })
    });
    Begun { watch, worker, deadline, life }
}

fn settings(limits: &Limits) -> server::Builder {
    let mut settings = server::Builder::new();
    let allowed = limits.head_max.as_usize().saturating_add(FIELD_OVERHEAD * limits.fields_max as usize);
    // What is somewhat larger gets an answer of ours and a line in the log; the crate refuses what is far larger.
    let list = allowed.saturating_mul(2);
    settings
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(list).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER)
        .data_frame_budget(FRAME_BUDGET)
        .max_concurrent_reset_streams(RESETS_REMEMBERED)
        .reset_stream_duration(RESET_MEMORY)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .enable_connect_protocol();
    settings
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
    frames: server::Connection<Watched, Bytes>,
    watch: Rc<Watch>,
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
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.frames.poll_accept(context) {
                Poll::Ready(Some(Ok((request, respond)))) => self.begin(request, respond),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending if self.poll_bounds(context).is_ready() => return Poll::Ready(()),
                Poll::Pending if self.has_news() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Tells the client to end, where it is time to. True: what is to be told is still to be sent.
    fn has_news(&mut self) -> bool {
        let max = self.listener.config.limits.requests_per_connection_max;
        let fault = self.watch.fault();
        let wanted = if fault.is_some() {
            Some(Ending::AtOnce)
        } else if self.worker.is_draining()
            || max.is_some_and(|max| self.requests >= max)
            || (self.is_over_limit && self.requests > 0)
        {
            Some(Ending::Graceful)
        } else {
            None
        };
        match (wanted, self.ending) {
            (Some(Ending::AtOnce), None | Some(Ending::Graceful)) => self.end_at_once(match fault {
                Some(Fault::Protocol) => Reason::PROTOCOL_ERROR,
                Some(Fault::FrameSize) => Reason::FRAME_SIZE_ERROR,
                Some(Fault::Compression) => Reason::COMPRESSION_ERROR,
                Some(Fault::StreamClosed) => Reason::STREAM_CLOSED,
                Some(Fault::FlowControl) => Reason::FLOW_CONTROL_ERROR,
                Some(Fault::Flood) | None => Reason::ENHANCE_YOUR_CALM,
            }),
            (Some(Ending::Graceful), None) => self.end_gracefully(),
            _ => return false,
        }
        true
    }

    fn end_gracefully(&mut self) {
        self.ending = Some(Ending::Graceful);
        self.frames.graceful_shutdown();
        self.deadline.set(self.worker.now() + DRAIN_GRACE);
    }

    fn end_at_once(&mut self, reason: Reason) {
        self.ending = Some(Ending::AtOnce);
        self.frames.abrupt_shutdown(reason);
        self.deadline.set(self.worker.now() + FAREWELL);
    }

    /// Ready where the time of something is up and there is nobody to wait for any more.
    fn poll_bounds(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let now = self.worker.now();
        let limits = &self.listener.config.limits;
        let (header_timeout, idle_timeout) = (limits.header_timeout, limits.idle_timeout);
        // Once it is over, the deadline has been told: to set it again would put it off.
        if self.ending.is_none()
            && let Some(head_until) = self.watch.open_head().map(|since| since + header_timeout)
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
                Some(Ending::Graceful) => match self.watch.blocked_since() {
                    Some(since) if since + idle_timeout > now => self.deadline.set(now + DRAIN_GRACE),
                    None if self.open.ended.get() + DRAIN_GRACE > now => {
                        self.deadline.set(self.open.ended.get() + DRAIN_GRACE);
                    }
                    Some(_) | None => return Poll::Ready(()),
                },
                None if self.watch.open_head().is_some_and(|since| since + header_timeout <= now) => {
                    self.end_at_once(Reason::ENHANCE_YOUR_CALM);
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

    /// Starts the exchange of a request.
    fn begin(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let max = self.listener.config.limits.requests_per_connection_max;
        if max.is_some_and(|max| self.requests >= max) {
            // It was not looked at, and may be sent again elsewhere (RFC 9113 8.7).
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        }
        self.requests = self.requests.saturating_add(1);
        let malformed = Rc::clone(self.watch.malformed());
        let mut incoming = incoming(request, respond);
        if malformed.has(incoming.body.stream_id().as_u32()) {
            incoming.head = Err(RequestHeadError::RequestLine);
        }
        let stream = H2Stream::new(incoming, self.carrier.clone(), malformed);
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
fn incoming(request: Request<RecvStream>, respond: SendResponse<Bytes>) -> Incoming {
    let (parts, body) = request.into_parts();
    let protocol = parts.extensions.get::<h2::ext::Protocol>();
    let has_body = !body.is_end_stream();
    let mut head = Vec::with_capacity(512);
    let described = IncomingHead {
        method: &parts.method,
        uri: &parts.uri,
        fields: &parts.headers,
        protocol: protocol.map(h2::ext::Protocol::as_str),
        has_body,
    };
    let key = if protocol.is_some() { websocket_key() } else { String::new() };
    let pushed = push_request(&mut head, &described, &key);
    let inlet = if protocol.is_some() {
        Inlet::Tunnel
    } else if !has_body {
        Inlet::Over
    } else if let Some(length) = parts.headers.get(http::header::CONTENT_LENGTH) {
        // Where it is no number, the head is refused.
        Inlet::Plain(length.to_str().ok().and_then(|length| length.parse().ok()).unwrap_or(u64::MAX))
    } else {
        Inlet::Chunked
    };
    let is_head_request = parts.method == Method::HEAD;
    Incoming { head: pushed.map(|()| head), inlet, body, respond, is_head_request }
}

/// 16 random bytes (RFC 6455 4.1). Without any, the server gets a key that is no secret, which the protocol bears: it is
/// there to tell a server that means it from one that does not.
fn websocket_key() -> String {
    let mut bits = [0; 16];
    let _ = rand::fill(&mut bits);
    key_of(bits)
}

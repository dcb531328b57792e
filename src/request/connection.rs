//! The life of a client's connection: handshake, then exchanges with pauses in between, then the end.
//!
//! While it waits for a request it owns no buffer and no exchange: its future is small, and stays so by a test.

mod h2;

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;

pub use self::h2::{Carrier, H2Stream};
use crate::base::time::Timestamp;
use crate::pure::config::Protocols;
use crate::pure::h1::request::RequestHead;
use crate::pure::proxy_protocol::{Endpoints, Source};
use crate::pure::rule::Cidr;
use crate::request::account;
use crate::request::deadlines::Deadline;
use crate::request::exchange;
use crate::request::listener::Listener;
use crate::request::proxy_header::{self, Caller};
use crate::request::stream::{ClientStream, Stream as _};
use crate::request::upstream::Owner;
use crate::request::worker::{ConnectionTicket, Worker};

/// How long, and for how many bytes, a connection that we end is read on, so that the client gets our last answer and not
/// a reset (RFC 9112 9.6).
const LINGER: (Duration, usize) = (Duration::from_secs(2), 1024 * 1024);

/// How long a connection that came just before a drain may still take for its handshake, and for its first request.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    /// The bytes.
    pub stream: ClientStream,
    /// Whose thread it lives on.
    pub worker: Rc<Worker>,
    /// Where it came in.
    pub listener: Arc<Listener>,
    /// The other end; behind a proxy that speaks the PROXY protocol, the client that it names.
    pub peer: SocketAddr,
    /// Whether it is known who the other end is; not where a proxy relays a client that it does not name.
    pub is_peer_named: bool,
    /// When its present wait ends.
    pub deadline: Rc<Deadline>,
    /// Requests begun on it.
    pub requests: u32,
    /// Whether the client has more connections than it may: its first request is answered with 429.
    pub is_over_limit: bool,
    /// How much of the pause before the next request is over.
    pub paused: Duration,
    /// When the wait for the next request ends, whatever is waited for meanwhile.
    idle_until: Timestamp,
    /// Whether the last wait has begun of a connection whose first request did not come before the worker drains.
    has_grace: bool,
    /// Its entry in the worker's list, which leaves with it.
    pub ticket: ConnectionTicket,
}

/// What becomes of a connection after its exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It waits for another request.
    Idle,
    /// Nothing of a request had come: it goes on waiting, no longer than before.
    Nothing,
    /// It ends; all that the client sent has been read.
    Close,
    /// It ends, and the client may still be sending.
    Linger,
    /// It ends without a word, so that what was cut short does not look complete.
    Drop,
    /// It ends by a reset, where nothing else shows that what was sent is cut short.
    Abort,
}

impl Connection {
    /// One that has come, and of which nothing has been read.
    fn new(worker: &Rc<Worker>, listener: &Arc<Listener>, stream: ClientStream, peer: SocketAddr) -> Self {
        let ticket = worker.register(peer.ip(), listener);
        Self {
            stream,
            deadline: ticket.deadline(),
            idle_until: worker.now() + listener.config.limits.header_timeout,
            worker: Rc::clone(worker),
            listener: Arc::clone(listener),
            peer,
            is_peer_named: true,
            requests: 0,
            is_over_limit: ticket.is_over_limit(),
            paused: Duration::ZERO,
            has_grace: false,
            ticket,
        }
    }

    /// Whether anything comes before the first request of HTTP/1.1.
    fn needs_preparation(&self) -> bool {
        let config = &self.listener.config;
        config.proxy_protocol || config.protocols.http2 || self.wants_tls()
    }

    /// Whether it is to begin with a handshake.
    fn wants_tls(&self) -> bool {
        self.listener.tls.is_some() && matches!(self.stream, ClientStream::Plain(_))
    }

    /// Where its requests come from.
    pub fn source(&self) -> account::Source<'_> {
        account::Source {
            worker: &self.worker,
            listener: &self.listener,
            peer: self.peer,
            tls: self.stream.tls_version(),
            identity: self.stream.identity().map(AsRef::as_ref),
            is_http2: self.is_stream(),
        }
    }

    /// A stream of an HTTP/2 connection, which serves one request.
    fn of_stream(
        stream: ClientStream,
        worker: Rc<Worker>,
        listener: Arc<Listener>,
        caller: Caller,
        is_over_limit: bool,
    ) -> Self {
        let ticket = worker.register_stream();
        Self {
            stream,
            deadline: ticket.deadline(),
            idle_until: worker.now(),
            worker,
            listener,
            peer: caller.peer,
            is_peer_named: caller.is_named,
            requests: 0,
            is_over_limit,
            paused: Duration::ZERO,
            has_grace: false,
            ticket,
        }
    }

    /// Whether this is a stream of an HTTP/2 connection.
    pub const fn is_stream(&self) -> bool {
        matches!(self.stream, ClientStream::H2(_))
    }

    /// Whether the connection may be kept after the request of this head. A stream's upload always goes on to its end.
    pub fn may_keep(&self, head: &RequestHead) -> bool {
        if self.is_stream() {
            return true;
        }
        let max = self.listener.config.limits.requests_per_connection_max;
        head.keep_alive && max.is_none_or(|max| self.requests < max) && !self.worker.is_draining()
    }

    /// Whose forwarding fields are believed. Nobody's, where the proxy in front relays a client that it does not name: the
    /// fields may be that client's.
    pub fn trusted_proxies(&self) -> &[Cidr] {
        if self.is_peer_named { &self.listener.config.trusted_proxies } else { &[] }
    }

    /// What a server is told of the client by a PROXY header.
    pub fn proxy_source(&self) -> Source {
        match self.stream.local_address() {
            Some(called) if self.is_peer_named => Source::Client(Endpoints { client: self.peer, called }),
            Some(_) | None => Source::Unnamed,
        }
    }

    /// The mark of connections to servers that are for this client's connection alone.
    pub fn owner(&self) -> Owner {
        match &self.stream {
            ClientStream::H2(stream) => stream.carrier().ticket.owner(),
            ClientStream::Plain(_) | ClientStream::Unix(_) | ClientStream::Tls(_) => self.ticket.owner(),
        }
    }

    /// Begins the pause between two requests.
    fn begin_pause(&mut self) {
        let over = std::mem::take(&mut self.paused);
        self.idle_until = self.worker.now() + self.listener.config.limits.idle_timeout.saturating_sub(over);
    }
}

/// Starts the life of a connection that has come as `stream`, without TLS yet.
pub fn spawn(worker: &Rc<Worker>, listener: &Arc<Listener>, stream: ClientStream, peer: SocketAddr) {
    tokio::task::spawn_local(life(worker, listener, stream, peer));
}

/// A connection's life.
pub(in crate::request) fn life(
    worker: &Rc<Worker>,
    listener: &Arc<Listener>,
    stream: ClientStream,
    peer: SocketAddr,
) -> impl Future<Output = ()> + use<> {
    // It lives in this one variable: another that held it across a wait would be room in every idle connection.
    let mut connection = Connection::new(worker, listener, stream, peer);
    async move {
        let guard = PanicCounter::new(&connection.worker);
        if connection.needs_preparation() {
            match Box::pin(prepare(connection)).await {
                Some(Prepared::Http1(prepared)) => connection = *prepared,
                Some(Prepared::Http2(served)) => {
                    served.await;
                    return guard.is_done.set(true);
                }
                None => return guard.is_done.set(true),
            }
        }
        live(&mut connection).await;
        guard.is_done.set(true);
    }
}

/// Counts a connection, or a stream of one, whose task ended by a panic.
struct PanicCounter {
    worker: Rc<Worker>,
    is_done: Cell<bool>,
}

impl PanicCounter {
    fn new(worker: &Rc<Worker>) -> Self {
        Self { worker: Rc::clone(worker), is_done: Cell::new(false) }
    }
}

impl Drop for PanicCounter {
    fn drop(&mut self) {
        if !self.is_done.get() && std::thread::panicking() {
            self.worker.shared.counters.panics.add(1);
        }
    }
}

/// Waits for a step that comes before the first request, until the deadline, and no longer than [`DRAIN_GRACE`] once the
/// worker drains. `None`: the time is up.
pub(in crate::request) async fn before_requests<T>(
    worker: &Worker,
    deadline: &Rc<Deadline>,
    mut step: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let mut has_grace = false;
    poll_fn(|context| match step(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => {
            if worker.is_draining() && !has_grace {
                has_grace = true;
                deadline.set(worker.now() + DRAIN_GRACE);
            }
            if deadline.poll_expired(context) { Poll::Ready(None) } else { Poll::Pending }
        }
    })
    .await
}

async fn handshake(
    worker: &Rc<Worker>,
    listener: &Listener,
    deadline: &Rc<Deadline>,
    stream: TcpStream,
    peer: SocketAddr,
) -> Option<ClientStream> {
    let mut accept = std::pin::pin!(listener.tls.as_ref()?.accept(stream));
    let done = before_requests(worker, deadline, |context| accept.as_mut().poll(context)).await;
    match done {
        Some(Ok(stream)) => {
            worker.shared.handshakes.add(1);
            Some(ClientStream::Tls(Box::new(stream)))
        }
        Some(Err(error)) => {
            worker.shared.say_handshake_failed(&error, peer, listener);
            None
        }
        None => {
            worker.shared.say_handshake_failed(&io::ErrorKind::TimedOut.into(), peer, listener);
            None
        }
    }
}

/// A connection whose first request may come. Both are boxed: what is handed over here is room in every idle connection.
enum Prepared {
    Http1(Box<Connection>),
    /// The rest of its life.
    Http2(Pin<Box<dyn Future<Output = ()>>>),
}

/// What comes before the first request: who the client is, TLS, and which protocol is spoken. `None`: it has ended.
async fn prepare(mut connection: Connection) -> Option<Prepared> {
    connection.deadline.set(connection.idle_until);
    if connection.listener.config.proxy_protocol {
        let Connection { worker, listener, deadline, stream, peer, ticket, .. } = &mut connection;
        let caller = proxy_header::receive(worker, listener, deadline, stream, *peer, ticket).await?;
        connection.peer = caller.peer;
        connection.is_peer_named = caller.is_named;
        connection.is_over_limit = connection.ticket.is_over_limit();
    }
    if connection.wants_tls() {
        let ClientStream::Plain(stream) = connection.stream else { return None };
        let stream = match stream.into_watched() {
            Ok(stream) => stream,
            Err(error) => {
                connection.worker.shared.say_accept_error(&error, &connection.listener);
                return None;
            }
        };
        let (worker, listener) = (&connection.worker, &connection.listener);
        connection.stream = handshake(worker, listener, &connection.deadline, stream, connection.peer).await?;
    }
    let spoken = connection.listener.config.protocols;
    let is_http2 = is_http2(&connection.worker, &mut connection.stream, &spoken, &connection.deadline).await?;
    if is_http2 {
        let Connection { stream, worker, listener, peer, is_peer_named, ticket, .. } = connection;
        let caller = Caller { peer, is_named: is_peer_named };
        return Some(Prepared::Http2(Box::pin(h2::serve(h2::Arrival { stream, worker, listener, caller, ticket }))));
    }
    spoken.http1.then(|| Prepared::Http1(Box::new(connection)))
}

async fn live(connection: &mut Connection) {
    let next = loop {
        // The request of a connection that has just come is most likely there already.
        let is_fresh = connection.requests == 0 && !connection.stream.is_watched();
        let is_tried = is_fresh && connection.worker.buffers.is_plentiful();
        if !is_tried && !wait_for_request(connection).await {
            break Next::Close;
        }
        match Box::pin(exchange::serve(connection)).await {
            Next::Idle => connection.begin_pause(),
            Next::Nothing if connection.worker.now() < connection.idle_until => {}
            Next::Nothing => break Next::Close,
            end => break end,
        }
    };
    if let Some(error) = connection.stream.loss() {
        connection.worker.shared.say_accept_error(&error, &connection.listener);
    }
    match next {
        // Without TLS there is nothing to say: to let go of the socket ends it.
        Next::Idle | Next::Nothing | Next::Close if !matches!(connection.stream, ClientStream::Tls(_)) => {}
        Next::Idle | Next::Nothing | Next::Close => {
            close(&mut connection.stream, &connection.deadline, &connection.worker).await;
        }
        Next::Linger => {
            Box::pin(linger(&mut connection.stream, &connection.deadline, &connection.worker)).await;
        }
        Next::Drop => {}
        Next::Abort => {
            if let Some(socket) = connection.stream.socket() {
                let _ = socket.set_linger(Some(Duration::ZERO));
            }
        }
    }
}

/// Waits until there is something to read. False: the time is up, or the worker drains.
async fn wait_for_request(connection: &mut Connection) -> bool {
    // What came between may have set another.
    connection.deadline.set(connection.idle_until);
    poll_fn(|context| {
        // What has arrived before a drain is still answered.
        if connection.stream.poll_readable(context).is_ready() {
            return Poll::Ready(true);
        }
        if connection.worker.is_draining() {
            // The runtime may not have seen yet what has arrived; then it soon will.
            if connection.requests > 0 && !has_arrived(&connection.stream) {
                return Poll::Ready(false);
            }
            if connection.requests == 0 && !connection.has_grace {
                connection.has_grace = true;
                connection.idle_until = connection.worker.now() + DRAIN_GRACE;
                connection.deadline.set(connection.idle_until);
            }
        }
        if connection.deadline.poll_expired(context) { Poll::Ready(false) } else { Poll::Pending }
    })
    .await
}

/// Whether the system has bytes of that connection that were not read.
fn has_arrived(stream: &ClientStream) -> bool {
    let peek = |socket: socket2::SockRef<'_>| socket.peek(&mut [std::mem::MaybeUninit::uninit()]);
    matches!(stream.socket().map(peek), Some(Ok(1..)))
}

/// Whether the client speaks HTTP/2: over TLS it was agreed on, without it the first bytes tell, where both are spoken.
/// `None`: they did not come in time.
async fn is_http2(
    worker: &Worker,
    stream: &mut ClientStream,
    spoken: &Protocols,
    deadline: &Rc<Deadline>,
) -> Option<bool> {
    match stream {
        ClientStream::Tls(stream) => Some(stream.is_http2()),
        ClientStream::Plain(_) | ClientStream::Unix(_) if spoken.http1 && spoken.http2 => {
            before_requests(worker, deadline, |context| poll_preface(stream, context)).await
        }
        ClientStream::Plain(_) | ClientStream::Unix(_) => Some(spoken.http2),
        ClientStream::H2(_) => Some(false),
    }
}

/// Whether a connection begins like the preface of HTTP/2 (RFC 9113 3.4), whose first letters are no method of HTTP/1.1.
/// Nothing is taken of it.
fn poll_preface(stream: &mut ClientStream, context: &mut Context<'_>) -> Poll<bool> {
    const BEGINNING: &[u8] = b"PRI";
    let mut seen = [0; BEGINNING.len()];
    while stream.poll_socket_readable(context).is_ready() {
        // What is too short to tell counts as nothing: only more of it is news.
        let is_nothing = |seen: &[u8]| !seen.is_empty() && seen.len() < BEGINNING.len() && BEGINNING.starts_with(seen);
        match stream.try_peek_socket(&mut seen, is_nothing) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) => return Poll::Ready(seen == BEGINNING),
            Err(_) => return Poll::Ready(false),
        }
    }
    Poll::Pending
}

/// Ends our side.
async fn close(stream: &mut ClientStream, deadline: &Rc<Deadline>, worker: &Worker) {
    deadline.set(worker.now() + LINGER.0);
    poll_fn(|context| {
        if deadline.poll_expired(context) {
            return Poll::Ready(());
        }
        stream.poll_shutdown(context).map(|_| ())
    })
    .await;
}

/// Ends our side and reads on for a while.
async fn linger(stream: &mut ClientStream, deadline: &Rc<Deadline>, worker: &Worker) {
    close(stream, deadline, worker).await;
    deadline.set(worker.now() + LINGER.0);
    let mut left = LINGER.1;
    let mut waste = [0u8; 4096];
    loop {
        let is_readable = poll_fn(|context| {
            if left > 0 && stream.poll_socket_readable(context).is_ready() {
                return Poll::Ready(true);
            }
            // With the bytes spent, the client's end is still waited for: to close on unread bytes would reset.
            if deadline.poll_expired(context) { Poll::Ready(false) } else { Poll::Pending }
        })
        .await;
        if !is_readable {
            return;
        }
        match stream.try_read_socket(&mut waste) {
            Ok(0) => return,
            Ok(count) => left = left.saturating_sub(count),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

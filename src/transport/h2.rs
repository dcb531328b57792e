//! A connection to a server that speaks HTTP/2 (RFC 9113), shared by many streams of one thread.
//!
//! It counts as made when the server's SETTINGS have come: only then its limits are known, and that it speaks HTTP/2 at
//! all. A task of its own moves its frames and ends with it. A stream's window is [`STREAM_WINDOW`], and that of the whole
//! connection is large enough for [`STREAMS_MAX`] of them: one that nobody reads never stalls another. It refuses to choose
//! among connections, and to know what streams carry.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use crate::base::time::{self, Timestamp};
use crate::transport::dial::{DialError, Dialled};
use crate::transport::tls::ServerTlsStream;

/// How much of an answer a server may send before we have taken any of it: the most that a request in flight holds.
pub const STREAM_WINDOW: u32 = 128 * 1024;
/// The most streams on a connection; a server may allow less.
pub const STREAMS_MAX: usize = 128;
/// What small DATA frames that nobody has read yet may cost, by the `h2` crate's count: 256 bytes less their size for each.
/// Those of one client that does not read must not end a connection for all: half a million of them are borne.
const FRAME_BUDGET: usize = 128 * 1024 * 1024;
/// How long a connection that is let go may take to say so.
const FAREWELL: Duration = Duration::from_secs(1);
/// The most of a request's body that waits in its stream for the server to take it.
const SEND_BUFFER: usize = 64 * 1024;
/// The largest list of fields that an answer may have, by RFC 9113's count.
const FIELDS_MAX: u32 = 64 * 1024;
/// A connection on which nothing was heard for so long after a stream was opened gets no further ones until something is: it
/// may be dead, and whether its server is, a new connection tells. (A PING would tell as well, but gRPC servers end the
/// connections of those who ask often.)
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// What a connection's bytes pass through.
pub trait Below: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Whether the system holds something, or the end, that was not read.
    fn has_arrived(&self) -> bool;
}

impl Below for Dialled {
    fn has_arrived(&self) -> bool {
        let seen = self.socket().peek(&mut [std::mem::MaybeUninit::uninit()]);
        !matches!(seen, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl Below for ServerTlsStream {
    fn has_arrived(&self) -> bool {
        self.below().has_arrived()
    }
}

/// The stream below, shared with those who want to know what has arrived on it.
struct Socket {
    below: RefCell<Box<dyn Below>>,
    heard: Cell<Timestamp>,
}

/// The connection's own hold on what is below it.
struct Wire(Rc<Socket>);

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut *self.0.below.borrow_mut()).poll_read(context, buffer);
        if read.is_ready() {
            self.0.heard.set(time::now());
        }
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.below.borrow_mut()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.below.borrow_mut()).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.below.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.below.borrow_mut()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.below.borrow_mut()).poll_shutdown(context)
    }
}

/// A connection.
pub struct Link {
    sender: RefCell<SendRequest<Bytes>>,
    socket: Rc<Socket>,
    open: Cell<usize>,
    /// When the first stream was opened since the server was last heard of.
    unheard_since: Cell<Timestamp>,
    idle_since: Cell<Timestamp>,
    is_over: Rc<Cell<bool>>,
    /// Held as long as somebody may open a stream, or has one.
    _hold: oneshot::Sender<()>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("open", &self.open).field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl Link {
    /// A connection over `below`. `ended` is called when it has ended, whoever ended it. There is no bound in time.
    ///
    /// # Errors
    /// [`DialError::NotHttp2`] where the server ends it, or sends something else, before its SETTINGS.
    pub async fn open(below: impl Below, ended: impl FnOnce() + 'static) -> Result<Self, DialError> {
        let socket = Rc::new(Socket { below: RefCell::new(Box::new(below)), heard: Cell::new(time::now()) });
        let handshake = builder().handshake::<_, Bytes>(Wire(Rc::clone(&socket)));
        let (sender, mut connection) = handshake.await.map_err(|_| DialError::NotHttp2)?;
        poll_fn(|context| match Pin::new(&mut connection).poll(context) {
            Poll::Ready(_) => Poll::Ready(Err(DialError::NotHttp2)),
            // Before the SETTINGS no stream may be opened at all.
            Poll::Pending if sender.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let is_over = Rc::<Cell<bool>>::default();
        let (hold, released) = oneshot::channel();
        let over = Over { is_over: Rc::clone(&is_over), ended: Some(ended) };
        tokio::task::spawn_local(drive(connection, released, over));
        Ok(Self {
            sender: RefCell::new(sender),
            socket,
            open: Cell::default(),
            unheard_since: Cell::default(),
            idle_since: Cell::new(time::now()),
            is_over,
            _hold: hold,
        })
    }

    /// Whether it will never take a stream again: it has ended, or the server has said GOAWAY.
    pub fn is_spent(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.is_over.get() || matches!(self.sender.borrow_mut().poll_ready(&mut context), Poll::Ready(Err(_)))
    }

    /// Whether a stream may be opened now: there is room, and no doubt that the server is there.
    pub fn has_room(&self, now: Timestamp) -> bool {
        let unheard_since = self.unheard_since.get();
        let is_doubtful = unheard_since > self.socket.heard.get() && now.since(unheard_since) > SILENCE_MAX;
        !is_doubtful && self.open.get() < self.streams_max()
    }

    /// How many streams it may have now.
    pub fn streams_max(&self) -> usize {
        self.sender.borrow().current_max_send_streams().min(STREAMS_MAX)
    }

    /// How many places are taken.
    pub const fn streams(&self) -> usize {
        self.open.get()
    }

    /// Since when it has had no stream.
    pub const fn idle_since(&self) -> Timestamp {
        self.idle_since.get()
    }

    /// Takes a place for a stream; [`Self::leave`] gives it back.
    pub fn enter(&self) {
        self.open.set(self.open.get() + 1);
        if self.unheard_since.get() <= self.socket.heard.get() {
            self.unheard_since.set(time::now());
        }
    }

    /// Gives a place back.
    pub fn leave(&self, now: Timestamp) {
        self.open.set(self.open.get().saturating_sub(1));
        self.idle_since.set(now);
    }

    /// Whether something has arrived that the connection has not looked at yet: its end, it may be.
    pub fn has_unread(&self) -> bool {
        self.socket.below.borrow().has_arrived()
    }

    /// Whether the server takes an extended CONNECT (RFC 8441 3).
    pub fn takes_extended_connect(&self) -> bool {
        self.sender.borrow().is_extended_connect_protocol_enabled()
    }

    /// Opens a stream; `is_whole`: no body follows.
    ///
    /// # Errors
    /// Where nothing of the request was sent.
    pub fn send(&self, request: Request<()>, is_whole: bool) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        // A copy waits for nobody: how many streams there are is bounded by whoever takes the places.
        let mut sender = self.sender.borrow().clone();
        sender.send_request(request, is_whole)
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW * STREAMS_MAX as u32)
        .max_header_list_size(FIELDS_MAX)
        .max_send_buffer_size(SEND_BUFFER)
        .data_frame_budget(FRAME_BUDGET)
        .initial_max_send_streams(0)
        // A server that gets many answers wrong over days must not take the good ones on the connection with it.
        .max_local_error_reset_streams(None);
    builder
}

/// Tells the end of a connection, also where its task is aborted.
struct Over<F: FnOnce()> {
    is_over: Rc<Cell<bool>>,
    ended: Option<F>,
}

impl<F: FnOnce()> Drop for Over<F> {
    fn drop(&mut self) {
        self.is_over.set(true);
        if let Some(ended) = self.ended.take() {
            ended();
        }
    }
}

async fn drive(mut connection: Connection<Wire, Bytes>, released: oneshot::Receiver<()>, over: Over<impl FnOnce()>) {
    // Why it ended, its streams have been told.
    tokio::select! {
        _ended = &mut connection => {}
        // A server that takes nothing could keep it for ever.
        _released = released => {
            let _ = tokio::time::timeout(FAREWELL, connection).await;
        }
    }
    drop(over);
}

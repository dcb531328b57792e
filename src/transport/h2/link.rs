//! A connection to a server that speaks HTTP/2 (RFC 9113), shared by many streams of one thread.
//!
//! It counts as made when the server's SETTINGS have come: only then its limits are known, and that it speaks HTTP/2 at
//! all. A task of its own moves its frames and ends with it. A stream's window is [`STREAM_WINDOW`], and that of the whole
//! connection is large enough for [`STREAMS_MAX`] of them: one that nobody reads never stalls another. It refuses to choose
//! among connections, and to know what streams carry.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::sync::oneshot;
use tokio_util::io::poll_read_buf;

use super::{Below, Driver, Handle, Shared};
use crate::base::h2_reset::H2Reset;
use crate::base::time::{self, Timestamp};
use crate::pure::h2::multiplexer::{Multiplexer, OwnSettings, Role, StreamEnd};
use crate::transport::dial::{DialError, Dialled};
use crate::transport::socket::{self, poll_read_behind};
use crate::transport::tls::ServerTlsStream;

/// How much of an answer a server may send before we have taken any of it: the most that a request in flight holds.
pub const STREAM_WINDOW: u32 = 128 * 1024;
/// The most streams on a connection; a server may allow less.
pub const STREAMS_MAX: usize = 128;
/// How long a connection that is let go may take to say so.
const FAREWELL: Duration = Duration::from_secs(1);
/// The largest list of fields that an answer may have, by RFC 9113's count.
const LIST_MAX: usize = 64 * 1024;
/// A connection on which nothing was heard for so long after a stream was opened gets no further ones until something is: it
/// may be dead, and whether its server is, a new connection tells. (A PING would tell as well, but gRPC servers end the
/// connections of those who ask often.)
const SILENCE_MAX: Duration = Duration::from_secs(2);

const SETTINGS: OwnSettings = OwnSettings {
    role: Role::Client,
    stream_window: STREAM_WINDOW,
    connection_window: STREAM_WINDOW * STREAMS_MAX as u32,
    streams_max: 0,
    list_max: LIST_MAX,
};

/// The stream below, shared with those who want to know what has arrived on it.
type Socket = Rc<RefCell<Box<dyn Below>>>;

impl Below for Socket {
    fn poll_fill(&mut self, context: &mut Context<'_>, memory: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        self.borrow_mut().poll_fill(context, memory)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.borrow_mut().poll_write(context, bytes)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.borrow_mut().poll_flush(context)
    }

    fn has_arrived(&self) -> bool {
        self.borrow().has_arrived()
    }
}

impl Below for Dialled {
    fn poll_fill(&mut self, context: &mut Context<'_>, memory: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => poll_read_behind(stream, context, memory, false),
            Self::Unix(stream) => poll_read_behind(stream, context, memory, false),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(self), context, bytes)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(self), context)
    }

    fn has_arrived(&self) -> bool {
        socket::has_arrived(&self.socket())
    }
}

impl Below for ServerTlsStream {
    fn poll_fill(&mut self, context: &mut Context<'_>, memory: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        poll_read_buf(Pin::new(self), context, memory)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(self), context, bytes)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(self), context)
    }

    fn has_arrived(&self) -> bool {
        self.below().has_arrived()
    }
}

/// A connection.
pub struct Link {
    shared: Rc<Shared>,
    socket: Socket,
    places: Cell<usize>,
    /// When the first stream was opened since the server was last heard of.
    unheard_since: Cell<Timestamp>,
    idle_since: Cell<Timestamp>,
    /// Held as long as somebody may open a stream, or has one.
    _hold: oneshot::Sender<()>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("places", &self.places).finish_non_exhaustive()
    }
}

impl Link {
    /// A connection over `below`. `ended` is called when it has ended, whoever ended it. There is no bound in time.
    ///
    /// # Errors
    /// [`DialError::NotHttp2`] where the server sends something else than its SETTINGS, [`DialError::ClosedEarly`] where it ends
    /// the connection before them, and [`DialError::Handshake`] where it says in TLS why.
    pub async fn open(below: impl Below + 'static, ended: impl FnOnce() + 'static) -> Result<Self, DialError> {
        let socket: Socket = Rc::new(RefCell::new(Box::new(below)));
        let mut driver = Driver::new(Rc::clone(&socket), SETTINGS);
        poll_fn(|context| match driver.poll(context) {
            Poll::Ready(()) if driver.look(|multiplexer| multiplexer.fault().is_some()) => {
                Poll::Ready(Err(DialError::NotHttp2))
            }
            Poll::Ready(()) => Poll::Ready(Err(why_closed(driver.take_error()))),
            // Before the SETTINGS no stream may be opened at all.
            Poll::Pending if driver.look(|multiplexer| multiplexer.fault().is_some()) => {
                Poll::Ready(Err(DialError::NotHttp2))
            }
            Poll::Pending if driver.look(Multiplexer::has_settings) => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let shared = Rc::clone(&*driver.shared);
        let (hold, released) = oneshot::channel();
        let over = Over { ended: Some(ended) };
        tokio::task::spawn_local(drive(driver, released, over));
        Ok(Self {
            shared,
            socket,
            places: Cell::default(),
            unheard_since: Cell::default(),
            idle_since: Cell::new(time::now()),
            _hold: hold,
        })
    }

    /// Whether it will never take a stream again: it has ended, or the server has said GOAWAY.
    pub fn is_spent(&self) -> bool {
        self.shared.multiplexer.borrow().is_spent()
    }

    /// Whether a stream may be opened now: there is room, and no doubt that the server is there.
    pub fn has_room(&self, now: Timestamp) -> bool {
        let unheard_since = self.unheard_since.get();
        let is_doubtful = unheard_since > self.shared.heard.get() && now.since(unheard_since) > SILENCE_MAX;
        !is_doubtful && self.places.get() < self.streams_max()
    }

    /// How many streams it may have now.
    pub fn streams_max(&self) -> usize {
        self.shared.multiplexer.borrow().streams_max().min(STREAMS_MAX)
    }

    /// How many places are taken.
    pub const fn streams(&self) -> usize {
        self.places.get()
    }

    /// Since when it has had no stream.
    pub const fn idle_since(&self) -> Timestamp {
        self.idle_since.get()
    }

    /// Takes a place for a stream; [`Self::leave`] gives it back.
    pub fn enter(&self) {
        self.places.set(self.places.get() + 1);
        if self.unheard_since.get() <= self.shared.heard.get() {
            self.unheard_since.set(time::now());
        }
    }

    /// Gives a place back.
    pub fn leave(&self, now: Timestamp) {
        self.places.set(self.places.get().saturating_sub(1));
        self.idle_since.set(now);
        // Of one that was soon given up the server may have nothing to say.
        if self.places.get() == 0 && now.since(self.unheard_since.get()) <= SILENCE_MAX {
            self.unheard_since.set(Timestamp::ZERO);
        }
    }

    /// Whether something has arrived that the connection has not looked at yet: its end, it may be.
    pub fn has_unread(&self) -> bool {
        self.socket.has_arrived()
    }

    /// Whether the server takes an extended CONNECT (RFC 8441 3).
    pub fn takes_extended_connect(&self) -> bool {
        self.shared.multiplexer.borrow().takes_extended_connect()
    }

    /// Opens a stream, on which nothing is sent yet.
    ///
    /// # Errors
    /// [`StreamEnd::Refused`] where the connection takes none.
    pub fn open_stream(&self) -> Result<Handle, StreamEnd> {
        let key = self.shared.multiplexer.borrow_mut().open()?;
        Ok(Handle { shared: Rc::clone(&self.shared), key })
    }
}

/// Why there was an end before the server said anything: TLS may have told, since a certificate of ours is judged only when the
/// handshake is over for us (RFC 8446 4.4.4).
fn why_closed(error: Option<io::Error>) -> DialError {
    match error {
        Some(error) if error.kind() == io::ErrorKind::InvalidData => DialError::Handshake(error),
        Some(_) | None => DialError::ClosedEarly,
    }
}

/// Tells the end of a connection, also where its task is aborted.
struct Over<F: FnOnce()> {
    ended: Option<F>,
}

impl<F: FnOnce()> Drop for Over<F> {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.take() {
            ended();
        }
    }
}

async fn drive(mut driver: Driver<Socket>, mut released: oneshot::Receiver<()>, over: Over<impl FnOnce()>) {
    let is_released = poll_fn(|context| {
        if driver.poll(context).is_ready() {
            return Poll::Ready(false);
        }
        Pin::new(&mut released).poll(context).map(|_closed| true)
    })
    .await;
    if is_released {
        driver.with(|multiplexer| multiplexer.end_at_once(H2Reset::NO_ERROR));
        // A server that takes nothing could keep it for ever.
        let _ = tokio::time::timeout(FAREWELL, poll_fn(|context| driver.poll(context))).await;
    }
    // It is over before anybody is told.
    drop(driver);
    drop(over);
}

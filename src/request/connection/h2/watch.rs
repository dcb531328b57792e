//! The bytes of an HTTP/2 connection on their way to the `h2` crate, and what they show that the crate does not tell: a
//! head that does not end, and a flood of frames that cost their sender nothing.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::base::time::Timestamp;
use crate::pure::h2::flood::FloodGuard;
use crate::pure::h2::frames::FrameReader;
use crate::request::clock;
use crate::request::stream::ClientStream;

/// What the connection's life knows of its bytes.
#[derive(Debug)]
pub(super) struct Watch {
    stream: RefCell<ClientStream>,
    frames: RefCell<FrameReader>,
    flood: RefCell<FloodGuard>,
    is_flooded: Cell<bool>,
    open_head: Cell<Option<Timestamp>>,
}

impl Watch {
    pub(super) fn new(stream: ClientStream, now: Timestamp) -> Rc<Self> {
        Rc::new(Self {
            stream: RefCell::new(stream),
            frames: RefCell::default(),
            flood: RefCell::new(FloodGuard::new(now)),
            is_flooded: Cell::new(false),
            open_head: Cell::new(None),
        })
    }

    /// Whether the client sends more of what costs it nothing than is borne.
    pub(super) fn is_flooded(&self) -> bool {
        self.is_flooded.get()
    }

    /// Since when a head is coming.
    pub(super) fn open_head(&self) -> Option<Timestamp> {
        self.open_head.get()
    }

    fn with_stream<T>(&self, use_stream: impl FnOnce(&mut ClientStream) -> T) -> T {
        use_stream(&mut self.stream.borrow_mut())
    }

    /// The connection, when all frames are gone.
    pub(super) fn into_stream(self) -> ClientStream {
        self.stream.into_inner()
    }

    fn note(&self, bytes: &[u8]) {
        let now = clock::now();
        let mut frames = self.frames.borrow_mut();
        let mut flood = self.flood.borrow_mut();
        frames.read(bytes, |frame| {
            // A new head starts the clock anew; a part more of the same does not.
            if !flood.note(frame, now) {
                self.is_flooded.set(true);
            }
            if frame.kind == crate::pure::h2::frames::FrameKind::Headers {
                self.open_head.set(None);
            }
        });
        self.open_head.set(if frames.is_head_open() { Some(self.open_head.get().unwrap_or(now)) } else { None });
    }
}

/// What the `h2` crate reads from and writes to.
#[derive(Debug)]
pub(super) struct Watched(pub(super) Rc<Watch>);

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let watch = &self.0;
        if watch.is_flooded() {
            // Nothing more is read of it: it is told so, and goes.
            return Poll::Pending;
        }
        let before = out.filled().len();
        let polled = watch.with_stream(|stream| stream.poll_read(context, out));
        if polled.is_ready()
            && let Some(bytes) = out.filled().get(before..)
        {
            watch.note(bytes);
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.with_stream(|stream| crate::request::stream::Stream::poll_write(stream, context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.with_stream(|stream| crate::request::stream::Stream::poll_flush(stream, context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection's life ends it, and reads on for a while.
        Poll::Ready(Ok(()))
    }
}

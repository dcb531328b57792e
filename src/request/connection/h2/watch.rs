//! The bytes of an HTTP/2 connection on their way to the `h2` crate, and what they show that the crate does not tell: a
//! head that does not end, heads and trailers that it takes for well formed, and a flood of frames that cost their sender
//! nothing. What ends the connection does not reach the crate.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::base::time::Timestamp;
use crate::pure::h2::fields::{FieldReader, Verdict};
use crate::pure::h2::flood::FloodGuard;
use crate::pure::h2::frames::{Fault, FrameKind, FrameReader, Seen};
use crate::pure::h2::order::OrderGuard;
use crate::request::clock;
use crate::request::stream::{ClientStream, Stream as _};

/// Malformed streams that are remembered at the same time.
const MALFORMED_MAX: usize = 32;

/// The streams whose head or trailers are malformed, and which therefore must not reach a server or not look complete to
/// one (RFC 9113 8.1.1).
#[derive(Debug, Default)]
pub(super) struct Malformed(RefCell<Vec<u32>>);

impl Malformed {
    /// False: there is no room for more.
    fn add(&self, stream: u32) -> bool {
        let mut streams = self.0.borrow_mut();
        let has_room = streams.len() < MALFORMED_MAX;
        if has_room {
            streams.push(stream);
        }
        has_room
    }

    /// Whether that stream is one of them.
    pub(super) fn has(&self, stream: u32) -> bool {
        self.0.borrow().contains(&stream)
    }

    /// Forgets a stream that has ended.
    pub(super) fn forget(&self, stream: u32) {
        self.0.borrow_mut().retain(|other| *other != stream);
    }
}

/// Those who look at the bytes on their way to the crate.
#[derive(Debug)]
struct Inspection {
    frames: FrameReader,
    fields: FieldReader,
    order: OrderGuard,
    flood: FloodGuard,
}

/// What the connection's life knows of its bytes.
#[derive(Debug)]
pub(super) struct Watch {
    stream: RefCell<ClientStream>,
    inspection: RefCell<Inspection>,
    malformed: Rc<Malformed>,
    fault: Cell<Option<Fault>>,
    open_head: Cell<Option<Timestamp>>,
    blocked: Cell<Option<Timestamp>>,
}

impl Watch {
    pub(super) fn new(stream: ClientStream, now: Timestamp) -> Rc<Self> {
        Rc::new(Self {
            stream: RefCell::new(stream),
            inspection: RefCell::new(Inspection {
                frames: FrameReader::default(),
                fields: FieldReader::default(),
                order: OrderGuard::default(),
                flood: FloodGuard::new(now),
            }),
            malformed: Rc::default(),
            fault: Cell::new(None),
            open_head: Cell::new(None),
            blocked: Cell::new(None),
        })
    }

    /// Why the client has to go.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.get()
    }

    /// The streams that are malformed.
    pub(super) fn malformed(&self) -> &Rc<Malformed> {
        &self.malformed
    }

    /// Since when the client takes nothing of what is to be written.
    pub(super) fn blocked_since(&self) -> Option<Timestamp> {
        self.blocked.get()
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

    /// Takes note of what was read, and gives back how much of it may pass.
    fn note(&self, bytes: &[u8]) -> usize {
        let now = clock::now();
        let Inspection { frames, fields, order, flood } = &mut *self.inspection.borrow_mut();
        let passed = frames.read(bytes, |seen| {
            let fault = match seen {
                Seen::Frame(frame) => {
                    fields.begin(frame);
                    // A new head starts the clock anew; a part more of the same does not.
                    if frame.kind == FrameKind::Headers {
                        self.open_head.set(None);
                    }
                    if !flood.note(frame, now) {
                        Some(Fault::Flood)
                    } else if !frame.has_possible_length() {
                        Some(Fault::FrameSize)
                    } else {
                        order.note(frame)
                    }
                }
                Seen::SettingsPayload(payload) => order.read_settings(payload),
                Seen::HeadPayload(payload) => match fields.read(payload) {
                    Verdict::Fine => None,
                    Verdict::Malformed(stream) if self.malformed.add(stream) => None,
                    Verdict::Malformed(_) => Some(Fault::Flood),
                    Verdict::Broken(fault) => Some(fault),
                },
            };
            self.fault.set(fault);
            fault.is_none()
        });
        self.open_head.set(if frames.is_head_open() { Some(self.open_head.get().unwrap_or(now)) } else { None });
        passed
    }
}

/// What the `h2` crate reads from and writes to.
#[derive(Debug)]
pub(super) struct Watched(pub(super) Rc<Watch>);

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let watch = &self.0;
        if watch.fault().is_some() {
            // Nothing more is read of it: it is told so, and goes.
            return Poll::Pending;
        }
        let before = out.filled().len();
        let polled = watch.with_stream(|stream| stream.poll_read(context, out));
        if polled.is_ready()
            && let Some(bytes) = out.filled().get(before..)
            && !bytes.is_empty()
        {
            let passed = watch.note(bytes);
            out.set_filled(before + passed);
            if passed == 0 {
                // Nothing is left of it, which would look like the connection's end.
                return Poll::Pending;
            }
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
        let written = self.0.with_stream(|stream| stream.poll_write(context, slices));
        let blocked = self.0.blocked.get().unwrap_or_else(clock::now);
        self.0.blocked.set(written.is_pending().then_some(blocked));
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.with_stream(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection's life ends it, and reads on for a while.
        Poll::Ready(Ok(()))
    }
}

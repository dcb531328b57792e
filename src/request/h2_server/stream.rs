//! One request's stream to a server, as a connection of HTTP/1.1: the exchange writes the request's bytes and reads the
//! answer's. Dropping it gives the place back and, where it had not ended, cancels the stream.

use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use crate::base::h2_reset::H2Reset;
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::{HeadLimits, Parsed, RequestHead, parse_request_head};
use crate::pure::h2::server_request::{Tunnel, push_server_request};
use crate::pure::websocket;
use crate::request::buffers::Buffer;
use crate::request::h2_body::io_error;
use crate::request::h2_server::answer::{Answer, Expected};
use crate::request::h2_server::upload::Upload;
use crate::request::h2_server::{Fault, Place};
use crate::transport::h2::Handle;

/// What is written of a head at once, beyond which it is looked at: the most that is copied of a body that comes with it.
const PIECE: usize = 16 * 1024;
/// A head comes from our own writer, and has been judged against the limits before it was written.
const HEAD: HeadLimits = HeadLimits { bytes: usize::MAX, fields: usize::MAX };

/// Fields that most heads have no more of.
const USUAL_FIELDS: usize = 16;

/// A request's stream.
#[derive(Debug)]
pub struct H2ServerStream {
    request: Request,
    answer: Answer,
    fault: Option<Fault>,
    is_tls: bool,
    /// The stream, from the first byte of the head on.
    handle: Option<Handle>,
    // Behind what uses the connection: it is free only when they have let go.
    place: Place,
}

#[derive(Debug)]
enum Request {
    /// So much of its head has come.
    Head { kept: Vec<u8>, head: Box<RequestHead> },
    /// Its body is on its way, or over.
    Sent(Upload),
    /// Nothing more is taken.
    Over,
}

impl H2ServerStream {
    /// A stream that takes that place, on a connection with TLS or without.
    pub fn new(place: Place, is_tls: bool) -> Self {
        let mut head = Box::<RequestHead>::default();
        head.fields.reserve(USUAL_FIELDS);
        let request = Request::Head { kept: Vec::new(), head };
        Self { request, answer: Answer::default(), fault: None, is_tls, handle: None, place }
    }

    /// Writes what it can of the slices.
    ///
    /// # Errors
    /// Where the stream takes nothing more; [`Self::poll_fill`] says why.
    pub fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match &mut self.request {
            Request::Head { kept, .. } => {
                let handle = match &self.handle {
                    Some(handle) => handle,
                    None => match self.place.link().open_stream() {
                        Ok(handle) => self.handle.insert(handle),
                        Err(end) => return Poll::Ready(Err(self.give_up(end.into()))),
                    },
                };
                ready!(handle.poll_room_for_head(context));
                let mut bytes: Cow<'_, [u8]> = Cow::Owned(std::mem::take(kept));
                let taken = match slices {
                    // Most heads come whole, and need not be kept.
                    [only] if bytes.is_empty() && only.len() <= PIECE => {
                        bytes = Cow::Borrowed(&**only);
                        only.len()
                    }
                    _ => take_pieces(bytes.to_mut(), slices),
                };
                match (self.try_send(context, &bytes), &mut self.request) {
                    (Ok(false), Request::Head { kept, .. }) => *kept = bytes.into_owned(),
                    (Ok(_), _) => {}
                    (Err(fault), _) => return Poll::Ready(Err(self.give_up(fault))),
                }
                Poll::Ready(Ok(taken))
            }
            Request::Sent(upload) => match &self.handle {
                Some(handle) => upload.poll_write(context, handle, slices),
                None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            },
            Request::Over => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Nothing more is taken.
    fn give_up(&mut self, fault: Fault) -> io::Error {
        self.fault = Some(fault);
        self.request = Request::Over;
        io::ErrorKind::BrokenPipe.into()
    }

    /// Sends the head, where it has come whole. False: it has not.
    fn try_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Result<bool, Fault> {
        let Request::Head { head, .. } = &mut self.request else { return Ok(true) };
        match parse_request_head(bytes, HEAD, head) {
            Ok(Parsed::Partial) => return Ok(false),
            Ok(Parsed::Complete) => {}
            Err(_) => return Err(Fault::Unmappable),
        }
        let link = self.place.link();
        let tunnel = Tunnel::of(head, bytes);
        if tunnel.is_some() && !link.takes_extended_connect() {
            return Err(Fault::NoExtendedConnect);
        }
        let length = if tunnel.is_some() { BodyLength::UntilClose } else { head.body };
        let Some(handle) = &self.handle else { return Err(Fault::Broken) };
        handle.send_head(length == BodyLength::None, |encoder, out| {
            push_server_request(encoder, out, (head, bytes), tunnel.as_ref(), self.is_tls);
        })?;
        self.answer.begin(match tunnel {
            None => Expected::Answer { is_to_head: head.method.of(bytes) == b"HEAD" },
            Some(Tunnel { protocol, key }) => {
                let key = key.filter(|_| protocol == "websocket");
                Expected::Switch { protocol, accept: key.map(|key| websocket::accept_value(&key)) }
            }
        });
        let mut upload = Upload::new(length);
        // What does not go now stays with it.
        let _ = upload.begin(context, handle, bytes.get(head.length..).unwrap_or_default());
        self.request = Request::Sent(upload);
        Ok(true)
    }

    /// Sends what is kept back.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.request {
            Request::Sent(upload) => match &self.handle {
                Some(handle) => upload.poll_drain(context, handle),
                None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            },
            Request::Head { .. } => Poll::Ready(Ok(())),
            Request::Over => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Ends our side of a tunnel.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Request::Sent(upload) = &mut self.request {
            upload.end();
        }
        self.poll_flush(context)
    }

    /// Reads of the answer what there is and has room. `Ok(0)`: it has ended.
    ///
    /// # Errors
    /// An error that carries a [`Fault`].
    pub fn poll_fill(&mut self, context: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        if let Some(fault) = self.fault {
            return Poll::Ready(Err(fault.into()));
        }
        // The exchange writes before it reads.
        let Some(handle) = &self.handle else { return Poll::Pending };
        let count = ready!(self.answer.poll_read(context, handle, buffer.room())).map_err(io::Error::from)?;
        buffer.filled(count);
        Poll::Ready(Ok(count))
    }

    /// Whether the final head has come, given or not.
    pub const fn has_head(&self) -> bool {
        self.answer.has_head()
    }

    /// Whether the answer did not say its length, and its head in HTTP/1.1 does.
    pub const fn is_length_ours(&self) -> bool {
        self.answer.is_length_ours()
    }

    /// Waits until the server lets go of a request that has not gone to its end.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        match &self.handle {
            Some(handle) => handle.poll_end(context).map(io_error),
            None => Poll::Pending,
        }
    }

    /// Cancels the request with this code, where it has not ended.
    pub fn reset(&self, code: H2Reset) {
        if let Some(handle) = &self.handle {
            handle.reset(code);
        }
    }

    /// Waits until there is something to read, or the end.
    ///
    /// # Errors
    /// None: they are read.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.handle {
            _ if self.fault.is_some() => Poll::Ready(Ok(())),
            Some(handle) => self.answer.poll_readable(context, handle).map(Ok),
            None => Poll::Pending,
        }
    }
}

/// Puts the slices, up to [`PIECE`], behind those of `bytes`, and says how much that was.
fn take_pieces(bytes: &mut Vec<u8>, slices: &[IoSlice<'_>]) -> usize {
    let before = bytes.len();
    for slice in slices {
        let room = PIECE - (bytes.len() - before);
        bytes.extend_from_slice(slice.get(..room).unwrap_or(slice));
    }
    bytes.len() - before
}

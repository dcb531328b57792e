//! One request's stream to a server, as a connection of HTTP/1.1: the exchange writes the request's bytes and reads the
//! answer's. Dropping it gives the place back and, where it had not ended, cancels the stream.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::{HeadLimits, Parsed, RequestHead, parse_request_head};
use crate::pure::h2::server_request::{ServerRequest, server_request};
use crate::pure::websocket;
use crate::request::buffers::Buffer;
use crate::request::h2_server::answer::{Answer, Expected};
use crate::request::h2_server::upload::Upload;
use crate::request::h2_server::{Fault, Place};

/// What is written of a head at once, beyond which it is looked at: the most that is copied of a body that comes with it.
const PIECE: usize = 16 * 1024;
/// A head comes from our own writer, and has been judged against the limits before it was written.
const HEAD: HeadLimits = HeadLimits { bytes: usize::MAX, fields: usize::MAX };

/// A request's stream.
#[derive(Debug)]
pub struct H2ServerStream {
    request: Request,
    answer: Answer,
    fault: Option<Fault>,
    is_tls: bool,
    // Behind what uses the connection: it is free only when they have let go.
    place: Place,
}

#[derive(Debug)]
enum Request {
    /// So much of its head has come.
    Head { bytes: Vec<u8>, head: Box<RequestHead> },
    /// Its body is on its way, or over.
    Sent(Upload),
    /// Nothing more is taken.
    Over,
}

impl H2ServerStream {
    /// A stream that takes that place, on a connection with TLS or without.
    pub fn new(place: Place, is_tls: bool) -> Self {
        let request = Request::Head { bytes: Vec::new(), head: Box::default() };
        Self { request, answer: Answer::default(), fault: None, is_tls, place }
    }

    /// Writes what it can of the slices.
    ///
    /// # Errors
    /// Where the stream takes nothing more; [`Self::poll_fill`] says why.
    pub fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match &mut self.request {
            Request::Head { bytes, .. } => {
                let before = bytes.len();
                for slice in slices {
                    let taken = bytes.len() - before;
                    let room = PIECE - taken;
                    bytes.extend_from_slice(slice.get(..room).unwrap_or(slice));
                }
                let taken = bytes.len() - before;
                if let Err(fault) = self.try_send(context) {
                    self.fault = Some(fault);
                    self.request = Request::Over;
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                Poll::Ready(Ok(taken))
            }
            Request::Sent(upload) => upload.poll_write(context, slices),
            Request::Over => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Opens the stream, where the head has come whole.
    fn try_send(&mut self, context: &mut Context<'_>) -> Result<(), Fault> {
        let Request::Head { bytes, head } = &mut self.request else { return Ok(()) };
        match parse_request_head(bytes, HEAD, head) {
            Ok(Parsed::Partial) => return Ok(()),
            Ok(Parsed::Complete) => {}
            Err(_) => return Err(Fault::Unmappable),
        }
        let link = self.place.link();
        let ServerRequest { mut request, tunnel } =
            server_request(head, bytes, self.is_tls).map_err(|_| Fault::Unmappable)?;
        let is_to_head = request.method() == http::Method::HEAD;
        let length = match tunnel {
            Some(_) => BodyLength::UntilClose,
            None => head.body,
        };
        let expected = match tunnel {
            None => Expected::Answer { is_to_head },
            Some(tunnel) if link.takes_extended_connect() => {
                request.extensions_mut().insert(h2::ext::Protocol::from(tunnel.protocol.as_str()));
                let is_websocket = tunnel.protocol.eq_ignore_ascii_case("websocket");
                let accept = tunnel.key.filter(|_| is_websocket).map(|key| websocket::accept_value(&key));
                Expected::Switch { protocol: tunnel.protocol, accept }
            }
            Some(_) => return Err(Fault::NoExtendedConnect),
        };
        let (answer, body) =
            link.send(request, length == BodyLength::None).map_err(|error| Fault::of_unsent(&error))?;
        self.answer.begin(answer, expected);
        let rest = match &mut self.request {
            Request::Head { bytes, head } => bytes.split_off(head.length),
            Request::Sent(_) | Request::Over => Vec::new(),
        };
        let mut upload = Upload::new(body, length);
        // What does not go now stays with it.
        let _ = upload.take(context, rest);
        self.request = Request::Sent(upload);
        Ok(())
    }

    /// Sends what is kept back.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.request {
            Request::Sent(upload) => upload.poll_drain(context),
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
        let count = self.answer.poll_read(context, buffer.room()).map_err(io::Error::from);
        let count = ready!(count)?;
        buffer.filled(count);
        Poll::Ready(Ok(count))
    }

    /// Waits until there is something to read, or the end.
    ///
    /// # Errors
    /// None: they are read.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fault.is_some() { Poll::Ready(Ok(())) } else { self.answer.poll_readable(context).map(Ok) }
    }
}

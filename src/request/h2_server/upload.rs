//! A request's body on its way to a server: HTTP/1.1 framing comes off, DATA frames and trailers go out as flow control
//! allows. One piece at most waits here, and nothing is taken before it has gone.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll, ready};

use crate::pure::h1::body::{BodyDecoder, BodyLength};
use crate::request::h2_body::{io_error, send_end};
use crate::transport::h2::Handle;

/// The most that is taken at once.
const PIECE: usize = 32 * 1024;

/// A body on its way.
#[derive(Debug)]
pub struct Upload {
    decoder: BodyDecoder,
    /// What has been taken, and where in it lies what has not been sent.
    piece: Vec<u8>,
    data: Range<usize>,
    is_ended: bool,
    has_sent_end: bool,
}

impl Upload {
    /// The body of a request whose head has gone. [`BodyLength::UntilClose`]: a tunnel, which [`Self::end`] ends.
    pub fn new(length: BodyLength) -> Self {
        let has_sent_end = length == BodyLength::None;
        let decoder = BodyDecoder::new(length);
        Self { decoder, piece: Vec::new(), data: 0..0, is_ended: has_sent_end, has_sent_end }
    }

    /// Takes what it can of the slices.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        stream: &Handle,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(context, stream))?;
        self.piece.clear();
        for slice in slices {
            let room = PIECE - self.piece.len();
            self.piece.extend_from_slice(slice.get(..room).unwrap_or(slice));
        }
        let count = self.piece.len();
        self.send(context, stream)?;
        Poll::Ready(Ok(count))
    }

    /// Takes the first piece of the body, which came with the head, and sends of it what goes now.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn begin(&mut self, context: &mut Context<'_>, stream: &Handle, piece: &[u8]) -> io::Result<()> {
        self.piece.extend_from_slice(piece);
        self.send(context, stream)
    }

    /// Takes the framing off the piece, and sends of it what goes now.
    fn send(&mut self, context: &mut Context<'_>, stream: &Handle) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let decoded = self.decoder.decode(&mut self.piece).map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.data = decoded.data;
        self.is_ended |= decoded.is_complete;
        // What does not go now goes later.
        match self.poll_drain(context, stream) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// The body of a tunnel ends.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn poll_drain(&mut self, context: &mut Context<'_>, stream: &Handle) -> Poll<io::Result<()>> {
        while !self.data.is_empty() {
            let count = ready!(stream.poll_room(context, self.data.len())).map_err(io_error)?;
            let piece = self.piece.get(self.data.clone()).unwrap_or_default();
            let is_last = self.is_ended && count == self.data.len() && self.decoder.trailers().is_empty();
            stream.send_data([piece], count, is_last).map_err(io_error)?;
            self.data.start += count;
            self.has_sent_end |= is_last;
        }
        if self.is_ended && !self.has_sent_end {
            self.has_sent_end = true;
            send_end(stream, self.decoder.trailers())?;
        }
        Poll::Ready(Ok(()))
    }
}

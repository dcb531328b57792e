//! A request's body on its way to a server: HTTP/1.1 framing comes off, DATA frames and trailers go out as flow control
//! allows. One piece at most waits here, and nothing is taken before it has gone.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::SendStream;

use crate::pure::h1::body::{BodyDecoder, BodyLength};
use crate::request::h2_body::{io_error, poll_room, send_end};

/// The most that is taken at once.
const PIECE: usize = 32 * 1024;

/// A body on its way.
#[derive(Debug)]
pub struct Upload {
    stream: SendStream<Bytes>,
    decoder: BodyDecoder,
    /// What has been taken and not been sent.
    data: Bytes,
    is_ended: bool,
    has_sent_end: bool,
}

fn broken() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl Upload {
    /// The body of a request whose head has gone. [`BodyLength::UntilClose`]: a tunnel, which [`Self::end`] ends.
    pub fn new(stream: SendStream<Bytes>, length: BodyLength) -> Self {
        let has_sent_end = length == BodyLength::None;
        let decoder = BodyDecoder::new(length);
        Self { stream, decoder, data: Bytes::new(), is_ended: has_sent_end, has_sent_end }
    }

    /// Takes what it can of the slices.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(context))?;
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut piece = Vec::with_capacity(total.min(PIECE));
        for slice in slices {
            let room = PIECE - piece.len();
            piece.extend_from_slice(slice.get(..room).unwrap_or(slice));
        }
        let count = piece.len();
        self.take(context, piece)?;
        Poll::Ready(Ok(count))
    }

    /// Takes a piece with its framing, and sends of it what goes now.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn take(&mut self, context: &mut Context<'_>, piece: Vec<u8>) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        let mut piece = BytesMut::from(Bytes::from(piece));
        let decoded = self.decoder.decode(&mut piece).map_err(|_| broken())?;
        piece.truncate(decoded.data.end);
        self.data = piece.split_off(decoded.data.start).freeze();
        self.is_ended |= decoded.is_complete;
        // What does not go now goes later.
        match self.poll_drain(context) {
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
    pub fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.data.is_empty() {
            let count = ready!(poll_room(&mut self.stream, context, self.data.len()))?;
            let piece = self.data.split_to(count);
            let is_last = self.is_ended && self.data.is_empty() && self.decoder.trailers().is_empty();
            self.stream.send_data(piece, is_last).map_err(io_error)?;
            self.has_sent_end |= is_last;
        }
        if self.is_ended && !self.has_sent_end {
            self.has_sent_end = true;
            send_end(&mut self.stream, self.decoder.trailers())?;
        }
        Poll::Ready(Ok(()))
    }
}

//! One direction of an exchange: bytes are read into a buffer, freed of their framing in place, framed anew where the other
//! side speaks differently, and written. Nothing more is read before all that was read is written: that is the
//! backpressure, and the bound on memory.
//!
//! It refuses to know what the bytes mean, which side is to blame and how long to wait: the exchange does.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::pure::feedback::orca::Form;
use crate::pure::forwarding::push_trailers_left;
use crate::pure::h1::body::{BodyDecoder, BodyError, BodyLength, push_chunk_line};
use crate::pure::rule::Rule;
use crate::request::buffers::Buffer;
use crate::request::exchange::scratch::SPARE;
use crate::request::stream::Stream;

/// Data up to this size is copied behind what stands before it: one write of one run is cheaper than a gathered one.
const COPY_MAX: usize = 4096;

/// Why a direction ended before its body did.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The sending side broke.
    #[error("reading failed: {0}")]
    Read(#[source] io::Error),
    /// The sending side ended in the middle of the body.
    #[error("the body was cut short")]
    Truncated,
    /// The sending side broke its own framing.
    #[error(transparent)]
    Framing(#[from] BodyError),
    /// The receiving side broke.
    #[error("writing failed: {0}")]
    Write(#[source] io::Error),
    /// More data than the limit allows.
    #[error("the body is larger than its limit")]
    TooLarge,
}

/// Bytes on their way out: a prefix, a part of the buffer, a suffix.
#[derive(Debug, Default)]
struct Outgoing {
    prefix: Vec<u8>,
    data: Range<usize>,
    suffix: Vec<u8>,
    /// How much of prefix, data and suffix together is written.
    written: usize,
    /// What leaves the buffer when all is written.
    consumes: usize,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.prefix.is_empty() && self.data.is_empty() && self.suffix.is_empty() && self.consumes == 0
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        to: &mut impl Stream,
        buffer: &mut Buffer,
        moved: &mut bool,
        is_last: bool,
    ) -> Poll<io::Result<()>> {
        if self.is_empty() {
            return Poll::Ready(Ok(()));
        }
        #[cfg(test)]
        crate::request::tests::faults::step();
        if self.data.is_empty() && self.suffix.is_empty() && self.consumes == 0 {
            // A head, or a head and a small body: the usual case.
            while self.written < self.prefix.len() {
                let rest = self.prefix.get(self.written..).unwrap_or(&[]);
                let slices = [IoSlice::new(rest)];
                let written =
                    if is_last { to.poll_write_last(context, &slices) } else { to.poll_write(context, &slices) };
                match ready!(written)? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => self.written += count,
                }
                *moved = true;
            }
            self.prefix.clear();
            self.written = 0;
            return Poll::Ready(Ok(()));
        }
        let total = self.prefix.len() + self.data.len() + self.suffix.len();
        while self.written < total {
            let data = buffer.bytes().get(self.data.clone()).unwrap_or(&[]);
            let mut skip = self.written;
            let parts = [self.prefix.as_slice(), data, self.suffix.as_slice()].map(|part| {
                let from = skip.min(part.len());
                skip -= from;
                part.get(from..).unwrap_or(&[])
            });
            let result = match parts {
                [only, [], []] | [[], only, []] | [[], [], only] => to.poll_write(context, &[IoSlice::new(only)]),
                [first, second, third] => {
                    to.poll_write(context, &[IoSlice::new(first), IoSlice::new(second), IoSlice::new(third)])
                }
            };
            match ready!(result)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
            *moved = true;
        }
        buffer.consume(self.consumes);
        self.clear();
        Poll::Ready(Ok(()))
    }

    fn clear(&mut self) {
        self.prefix.clear();
        self.suffix.clear();
        self.data = 0..0;
        self.written = 0;
        self.consumes = 0;
    }
}

/// What a direction is waiting for when it can't go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: it is done, or has not begun.
    #[default]
    Nothing,
    /// Bytes from the sending side.
    Sender,
    /// Room at the receiving side.
    Receiver,
}

/// How a body leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// As it is: its head says its length, or the end of the connection is its end.
    #[default]
    Bare,
    /// In chunks.
    Chunked,
    /// As it is, to a side that is told where the message ends.
    Message,
}

/// Which trailers are passed on.
#[derive(Debug, Default)]
enum Trailers {
    #[default]
    All,
    /// Those that this rule does not take away.
    ByRule(Arc<Rule>),
    /// Those that do not tell of a server's load.
    AllButLoad,
}

impl Trailers {
    fn push(&self, out: &mut Vec<u8>, lines: &[u8]) {
        match self {
            Self::All => out.extend_from_slice(lines),
            Self::ByRule(rule) => push_trailers_left(out, lines, rule),
            Self::AllButLoad => {
                for line in lines.split_inclusive(|byte| *byte == b'\n') {
                    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
                    if Form::of(name).is_none() {
                        out.extend_from_slice(line);
                    }
                }
            }
        }
    }
}

/// One direction.
#[derive(Debug)]
pub struct Flow {
    decoder: BodyDecoder,
    length: BodyLength,
    outlet: Framing,
    trailers: Trailers,
    /// Whether the receiving side has been told where the message ends, where it has to be.
    is_end_told: bool,
    is_ended: bool,
    /// Whether the receiving side's connection is ended at once behind it.
    is_followed_by_end: bool,
    /// Whether a layer below keeps nothing of it back.
    is_flushed: bool,
    outgoing: Outgoing,
    /// Data bytes let through.
    passed: u64,
    limit: u64,
    /// Whether bytes moved since [`Self::take_moved`].
    moved: bool,
    /// Whether bytes came since [`Self::take_read`].
    has_read: bool,
    wait: Wait,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            decoder: BodyDecoder::new(BodyLength::None),
            length: BodyLength::None,
            outlet: Framing::Bare,
            trailers: Trailers::All,
            is_end_told: false,
            is_ended: true,
            is_followed_by_end: false,
            is_flushed: true,
            outgoing: Outgoing::default(),
            passed: 0,
            limit: u64::MAX,
            moved: false,
            has_read: false,
            wait: Wait::Nothing,
        }
    }
}

impl Flow {
    /// Starts over, for a body of that length, let through up to `limit` bytes. What is put into [`Self::head`] goes first.
    #[inline(always)]
    pub fn start(&mut self, length: BodyLength, outlet: Framing, limit: u64) {
        self.decoder = BodyDecoder::new(length);
        self.length = length;
        self.outlet = outlet;
        self.trailers = Trailers::All;
        self.is_end_told = false;
        self.is_ended = length == BodyLength::None;
        self.is_followed_by_end = false;
        self.is_flushed = false;
        self.passed = 0;
        self.limit = limit;
        self.wait = Wait::Nothing;
        self.moved = false;
        self.has_read = false;
    }

    /// Has that rule take trailers of a request away.
    pub fn bar_trailers(&mut self, rule: Option<&Arc<Rule>>) {
        self.trailers = rule.map_or(Trailers::All, |rule| Trailers::ByRule(Arc::clone(rule)));
    }

    /// The connection that it goes to is ended as soon as it has gone: what is small goes in one packet with that end.
    pub fn end_connection(&mut self) {
        self.is_followed_by_end = true;
    }

    /// Keeps those trailers back in which a server tells of its load.
    pub fn hide_load(&mut self) {
        self.trailers = Trailers::AllButLoad;
    }

    /// The trailers that came.
    pub fn trailers(&self) -> &[u8] {
        self.decoder.trailers()
    }

    /// Forgets everything on its way and keeps the memory, unless it is large.
    pub fn reset(&mut self) {
        self.start(BodyLength::None, Framing::Bare, u64::MAX);
        self.outgoing.clear();
        self.outgoing.prefix.shrink_to(SPARE);
    }

    /// Gives up what is on its way out, and takes what lies of it in the buffer out of there: what follows is not the body's.
    pub fn give_up(&mut self, buffer: &mut Buffer) {
        buffer.consume(self.outgoing.consumes);
        self.outgoing.clear();
    }

    /// Goes back to the start of what was sent: `head`, then what was `kept` of the body, then what is still to come.
    pub fn rewind(&mut self, buffer: &mut Buffer, head: &[u8], kept: &[u8]) {
        self.give_up(buffer);
        self.outgoing.prefix.extend_from_slice(head);
        self.outgoing.prefix.extend_from_slice(kept);
        self.is_flushed = false;
        self.moved = false;
    }

    /// Where bytes go that are sent before the body, whole: a head. Nothing of the body may have been staged.
    pub fn head(&mut self) -> &mut Vec<u8> {
        &mut self.outgoing.prefix
    }

    /// How many bytes of what is on its way out are written.
    pub fn written(&self) -> usize {
        self.outgoing.written
    }

    /// Whether the whole body has been read, framed and written.
    pub fn is_done(&self) -> bool {
        self.is_ended && self.is_flushed && self.outgoing.is_empty()
    }

    /// How many bytes of the body are still to come, as far as is known.
    fn expected(&self) -> u64 {
        match self.length {
            BodyLength::Length(length) => length.saturating_sub(self.passed),
            BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => 0,
        }
    }

    /// Whether nothing is on its way out.
    pub fn is_empty(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Whether the body has been read to its end.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether there was a body and it has been read to its end.
    pub fn has_ended_well(&self) -> bool {
        self.is_ended && self.length != BodyLength::None
    }

    /// Data bytes let through so far.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// What it waited for when it last could not go on.
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// Whether bytes moved since that was last taken note of.
    pub fn has_moved(&self) -> bool {
        self.moved
    }

    /// Whether bytes moved since this was last asked.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Whether bytes came from the sending side since this was last asked.
    pub fn take_read(&mut self) -> bool {
        std::mem::take(&mut self.has_read)
    }

    /// Puts what the buffer holds on its way. `keep` sees the framed bytes, for a repetition.
    fn stage(&mut self, buffer: &mut Buffer, keep: &mut impl FnMut(&[u8])) -> Result<(), FlowError> {
        let decoded = self.decoder.decode(buffer.bytes_mut())?;
        self.passed += decoded.data.len() as u64;
        if self.passed > self.limit {
            return Err(FlowError::TooLarge);
        }
        let outgoing = &mut self.outgoing;
        let framing_at = outgoing.prefix.len();
        if self.outlet == Framing::Chunked && !decoded.data.is_empty() {
            push_chunk_line(&mut outgoing.prefix, decoded.data.len());
            outgoing.suffix.extend_from_slice(b"\r\n");
        }
        let data = buffer.bytes().get(decoded.data.clone()).unwrap_or(&[]);
        keep(outgoing.prefix.get(framing_at..).unwrap_or(&[]));
        keep(data);
        if decoded.is_complete {
            self.end();
        }
        let outgoing = &mut self.outgoing;
        keep(&outgoing.suffix);
        if data.len() <= COPY_MAX {
            outgoing.prefix.extend_from_slice(data);
            outgoing.prefix.append(&mut outgoing.suffix);
            buffer.consume(decoded.consumed);
        } else {
            outgoing.data = decoded.data;
            outgoing.consumes = decoded.consumed;
        }
        Ok(())
    }

    fn end(&mut self) {
        self.is_ended = true;
        if self.outlet == Framing::Chunked {
            let suffix = &mut self.outgoing.suffix;
            suffix.extend_from_slice(b"0\r\n");
            self.trailers.push(suffix, self.decoder.trailers());
            suffix.extend_from_slice(b"\r\n");
        }
    }

    /// Puts what the buffer already holds of the body on its way, so that it leaves in one write with the head.
    ///
    /// # Errors
    /// [`FlowError::Framing`] and [`FlowError::TooLarge`].
    pub fn stage_early(&mut self, buffer: &mut Buffer, keep: &mut impl FnMut(&[u8])) -> Result<(), FlowError> {
        if self.is_ended || buffer.is_empty() {
            return Ok(());
        }
        self.stage(buffer, keep)
    }

    /// Writes what is on its way, without reading more.
    ///
    /// # Errors
    /// [`FlowError::Write`].
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        to: &mut impl Stream,
        buffer: &mut Buffer,
    ) -> Poll<Result<(), FlowError>> {
        self.wait = Wait::Receiver;
        ready!(self.outgoing.poll_send(context, to, buffer, &mut self.moved, false)).map_err(FlowError::Write)?;
        ready!(to.poll_flush(context)).map_err(FlowError::Write)?;
        self.wait = Wait::Nothing;
        Poll::Ready(Ok(()))
    }

    /// Moves the body until it is done or can't go on.
    ///
    /// # Errors
    /// [`FlowError`]; what was read before is written, what makes the body look complete is not.
    pub fn poll_move(
        &mut self,
        context: &mut Context<'_>,
        from: &mut impl Stream,
        buffer: &mut Buffer,
        to: &mut impl Stream,
        keep: &mut impl FnMut(&[u8]),
    ) -> Poll<Result<(), FlowError>> {
        loop {
            self.wait = Wait::Receiver;
            let is_last = self.is_ended && self.is_followed_by_end;
            ready!(self.outgoing.poll_send(context, to, buffer, &mut self.moved, is_last)).map_err(FlowError::Write)?;
            if self.is_ended {
                if self.outlet == Framing::Message && !self.is_end_told {
                    self.is_end_told = true;
                    let trailers = self.decoder.trailers();
                    let ended = match &self.trailers {
                        Trailers::All => to.end_message(trailers),
                        some => {
                            let mut left = Vec::with_capacity(trailers.len());
                            some.push(&mut left, trailers);
                            to.end_message(&left)
                        }
                    };
                    ended.map_err(FlowError::Write)?;
                }
                ready!(to.poll_flush(context)).map_err(FlowError::Write)?;
                self.is_flushed = true;
                self.wait = Wait::Nothing;
                return Poll::Ready(Ok(()));
            }
            if !buffer.is_empty() {
                self.stage(buffer, keep)?;
                continue;
            }
            buffer.grow_if_busy(self.expected());
            match from.poll_fill(context, buffer) {
                Poll::Ready(Ok(0)) if self.length == BodyLength::UntilClose => self.end(),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(FlowError::Truncated)),
                Poll::Ready(Ok(_)) => (self.moved, self.has_read) = (true, true),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::Read(error))),
                Poll::Pending => {
                    buffer.shrink_if_slow();
                    ready!(to.poll_flush(context)).map_err(FlowError::Write)?;
                    self.wait = Wait::Sender;
                    return Poll::Pending;
                }
            }
        }
    }
}

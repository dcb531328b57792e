//! How long a message body is (RFC 9112 6.3), and the chunked coding (RFC 9112 7.1).
//!
//! Data is handed on where it lies; chunk framing is taken out and never passed on, extensions with it. It refuses sizes
//! that another parser could read differently, and framing without end: extensions have at most 4 KiB a line and 16 KiB
//! a body, trailers 8 KiB.

mod trailers;

use std::ops::Range;

use crate::pure::h1::body::trailers::Trailers;
pub use crate::pure::h1::body::trailers::may_trail;

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body.
    #[default]
    None,
    /// So many bytes, above zero.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// The end of the connection; answers only.
    UntilClose,
}

/// What [`BodyDecoder::decode`] found at the front of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Where the body's data now lies in the buffer: one run, moved together where chunk framing lay between.
    pub data: Range<usize>,
    /// How many bytes of the buffer were used up, framing and data. Bytes of an unfinished chunk line are used up too:
    /// the decoder remembers where it is.
    pub consumed: usize,
    /// Whether the body is complete. Bytes beyond `consumed` belong to the next message.
    pub is_complete: bool,
}

/// A body that breaks its own framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BodyError {
    #[error("malformed chunk size")]
    ChunkSize,
    #[error("malformed or too long chunk extension")]
    ChunkExtension,
    #[error("a chunk does not end in CRLF")]
    ChunkEnd,
    #[error("malformed trailer section")]
    Trailer,
    #[error("trailer section too large")]
    TrailerTooLarge,
}

/// Takes the framing off one body, in whatever pieces it comes.
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of data still to come: of the body, or of the chunk whose size has been read, digit by digit.
    remaining: u64,
    /// In [`State::Size`] the digits read, behind it the bytes of this line's extension.
    line: u16,
    /// Bytes of extensions in the whole body.
    extensions: u16,
    /// Only where trailers came.
    trailers: Option<Box<Trailers>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Complete,
    Length,
    UntilClose,
    /// Among the digits of a chunk size.
    Size,
    /// In white space behind them, which only an extension may follow.
    SizeSpace,
    Extension,
    /// Behind the CR of a chunk line.
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a line of the trailer section.
    TrailerStart,
    Trailer,
    TrailerLf,
    /// Behind the CR of the empty line.
    EndLf,
    /// The framing was broken; nothing that comes can mend it.
    Broken(BodyError),
}

const SIZE_DIGITS_MAX: u16 = 16;
const LINE_EXTENSION_MAX: u16 = 4 * 1024;
const EXTENSIONS_MAX: u16 = 16 * 1024;

impl BodyDecoder {
    /// A decoder for a body of that length. [`BodyLength::UntilClose`] is never complete by itself.
    pub const fn new(length: BodyLength) -> Self {
        let (state, remaining) = match length {
            BodyLength::None | BodyLength::Length(0) => (State::Complete, 0),
            BodyLength::Length(bytes) => (State::Length, bytes),
            BodyLength::Chunked => (State::Size, 0),
            BodyLength::UntilClose => (State::UntilClose, 0),
        };
        Self { state, remaining, line: 0, extensions: 0, trailers: None }
    }

    /// Decodes the front of `buffer`, in place: one pass, as far as the bytes go.
    ///
    /// # Errors
    /// [`BodyError`] where the framing is broken, and ever after; the body must then not look complete to the other side.
    pub fn decode(&mut self, buffer: &mut [u8]) -> Result<Decoded, BodyError> {
        let (data, consumed) = match self.state {
            State::Complete => (0..0, 0),
            State::Broken(error) => return Err(error),
            State::UntilClose => (0..buffer.len(), buffer.len()),
            State::Length => {
                let length = self.take(buffer.len(), State::Complete);
                (0..length, length)
            }
            State::Size
            | State::SizeSpace
            | State::Extension
            | State::SizeLf
            | State::Data
            | State::DataCr
            | State::DataLf
            | State::TrailerStart
            | State::Trailer
            | State::TrailerLf
            | State::EndLf => self.decode_chunked(buffer).inspect_err(|error| self.state = State::Broken(*error))?,
        };
        Ok(Decoded { data, consumed, is_complete: self.is_complete() })
    }

    /// Whether the body is complete (from the start for [`BodyLength::None`]).
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// The trailer lines that may be passed on, each `Name: value CRLF` as sent, without the empty line; empty where there
    /// were none. Fields for framing, routing, authentication and the connection are left out (RFC 9110 6.5.1).
    pub fn trailers(&self) -> &[u8] {
        self.trailers.as_deref().map_or(&[], Trailers::lines)
    }

    /// Takes up to `available` bytes of data, and goes on to `next` behind the last.
    fn take(&mut self, available: usize, next: State) -> usize {
        let length = usize::try_from(self.remaining).map_or(available, |remaining| remaining.min(available));
        self.remaining -= length as u64;
        if self.remaining == 0 {
            self.state = next;
        }
        length
    }

    fn decode_chunked(&mut self, buffer: &mut [u8]) -> Result<(Range<usize>, usize), BodyError> {
        let mut data = 0..0;
        let mut position = 0;
        while self.state != State::Complete {
            if self.state == State::Data {
                let length = self.take(buffer.len() - position, State::DataCr);
                if data.is_empty() {
                    data = position..position + length;
                } else {
                    buffer.copy_within(position..position + length, data.end);
                    data.end += length;
                }
                position += length;
            }
            let Some(byte) = buffer.get(position) else { break };
            self.state = self.step(*byte)?;
            position += 1;
        }
        Ok((data, position))
    }

    /// The state behind one byte of framing.
    fn step(&mut self, byte: u8) -> Result<State, BodyError> {
        match (self.state, byte) {
            (State::Size, _) => self.step_size(byte),
            (State::Extension, b'\r') => Ok(State::SizeLf),
            (State::SizeSpace | State::Extension, _) => self.step_extension(byte),
            (State::SizeLf, b'\n') if self.remaining == 0 => Ok(State::TrailerStart),
            (State::SizeLf, b'\n') => Ok(State::Data),
            (State::SizeLf, _) => Err(BodyError::ChunkSize),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => {
                self.line = 0;
                Ok(State::Size)
            }
            (State::DataCr | State::DataLf, _) => Err(BodyError::ChunkEnd),
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::Trailer, b'\r') => Ok(State::TrailerLf),
            (State::TrailerStart | State::Trailer, _) => {
                self.trailers.get_or_insert_default().push(byte)?;
                Ok(State::Trailer)
            }
            (State::TrailerLf, b'\n') => {
                self.trailers.get_or_insert_default().end_line()?;
                Ok(State::TrailerStart)
            }
            (State::EndLf, b'\n') => Ok(State::Complete),
            (State::TrailerLf | State::EndLf, _) => Err(BodyError::Trailer),
            // No framing is read in these.
            (State::Complete | State::Length | State::UntilClose | State::Data | State::Broken(_), _) => Ok(self.state),
        }
    }

    fn step_size(&mut self, byte: u8) -> Result<State, BodyError> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ if self.line == 0 => return Err(BodyError::ChunkSize),
            b'\r' => return Ok(State::SizeLf),
            b';' | b' ' | b'\t' => {
                self.line = 0;
                return self.step_extension(byte);
            }
            _ => return Err(BodyError::ChunkSize),
        };
        if self.line == SIZE_DIGITS_MAX {
            return Err(BodyError::ChunkSize);
        }
        self.line += 1;
        self.remaining = self.remaining << 4 | u64::from(digit);
        Ok(State::Size)
    }

    fn step_extension(&mut self, byte: u8) -> Result<State, BodyError> {
        if self.line == LINE_EXTENSION_MAX || self.extensions == EXTENSIONS_MAX {
            return Err(BodyError::ChunkExtension);
        }
        self.line += 1;
        self.extensions += 1;
        match byte {
            b' ' | b'\t' if self.state != State::Extension => Ok(State::SizeSpace),
            b';' if self.state != State::Extension => Ok(State::Extension),
            _ if self.state != State::Extension => Err(BodyError::ChunkSize),
            0..=0x1F | 0x7F if byte != b'\t' => Err(BodyError::ChunkExtension),
            _ => Ok(State::Extension),
        }
    }
}

/// Appends the line that opens a chunk of `length` bytes: hex digits and CRLF.
pub fn push_chunk_line(out: &mut Vec<u8>, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - (length | 1).leading_zeros()).div_ceil(4);
    for index in (0..digits).rev() {
        out.extend(DIGITS.get(length >> (4 * index) & 0xF));
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;

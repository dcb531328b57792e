//! Response heads (RFC 9112 4 to 6), with the rules by which the request decides the body (RFC 9112 6.3).
//!
//! As strict as with requests, since a client reads what a server made up. Both lengths at once, a coding beside chunked,
//! and a coding from an HTTP/1.0 server are refused; a length that is repeated and the same is passed on once. Whether a 101
//! was asked for is not decided here.

use crate::pure::h1::body::BodyLength;
use crate::pure::h1::facts::{Facts, Refusal, Window, read_fields};
use crate::pure::h1::line::{LineError, Lines, span};
use crate::pure::h1::request::{HeadLimits, Parsed, Version, read_version};
use crate::pure::head::{Field, Known, Span};

/// A response head as offsets into the buffer it was parsed from. Reused from response to response.
#[derive(Debug, Default)]
pub struct ResponseHead {
    /// The version.
    pub version: Version,
    /// 100..=999.
    pub status: u16,
    /// The reason phrase as sent, maybe empty.
    pub reason: Span,
    /// The field lines.
    pub fields: Vec<Field>,
    /// How the body ends; [`BodyLength::None`] for 1xx, 204, 304 and answers to HEAD.
    pub body: BodyLength,
    /// Whether the server keeps the connection.
    pub keep_alive: bool,
    /// The value of Upgrade where Connection names it, else empty.
    pub upgrade: Span,
    /// Bytes of the head.
    pub length: usize,
    reading: Reading,
}

impl ResponseHead {
    /// Forgets a head that came in part and is given up, so that the next parse begins anew. After a complete or refused
    /// head that happens by itself.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }
}

/// How far a head has been read, between one call and the next.
#[derive(Debug, Default)]
struct Reading {
    stage: Stage,
    lines: Lines,
    facts: Facts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing is kept from before.
    #[default]
    Idle,
    StatusLine,
    Fields,
}

/// Why a response head is refused; the client gets 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ResponseHeadError {
    #[error("malformed status line")]
    StatusLine,
    #[error("malformed field line")]
    Field,
    #[error("a line ends in a bare LF or holds a bare CR")]
    LineEnd,
    #[error("ambiguous message length")]
    Framing,
    #[error("transfer coding not supported")]
    TransferCoding,
    #[error("response head too large")]
    TooLarge,
}

impl From<Refusal> for ResponseHeadError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::LineEnd => Self::LineEnd,
            Refusal::Field => Self::Field,
            Refusal::Framing => Self::Framing,
            Refusal::TransferCoding => Self::TransferCoding,
            Refusal::TooLarge => Self::TooLarge,
        }
    }
}

/// Parses the front of `buffer`, an answer to a request that was HEAD or not, into `head`.
///
/// Where the answer is [`Parsed::Partial`], the next call gets the same bytes and more behind them, from the same start;
/// only the new ones are read then. A head that is given up half-way needs [`ResponseHead::clear`].
///
/// A repeated Content-Length that says the same is marked hop-by-hop, so that one is passed on.
///
/// # Errors
/// [`ResponseHeadError`] as soon as the bytes can't become an unambiguous head.
#[inline(always)]
pub fn parse_response_head(
    buffer: &[u8],
    limits: HeadLimits,
    to_head_request: bool,
    head: &mut ResponseHead,
) -> Result<Parsed, ResponseHeadError> {
    let result = read_head(buffer, limits, to_head_request, head);
    if result != Ok(Parsed::Partial) {
        head.reading.stage = Stage::Idle;
    }
    result
}

#[inline(always)]
fn read_head(
    buffer: &[u8],
    limits: HeadLimits,
    to_head_request: bool,
    head: &mut ResponseHead,
) -> Result<Parsed, ResponseHeadError> {
    if head.reading.stage == Stage::Idle {
        head.clear();
        head.reading.stage = Stage::StatusLine;
    }
    let window = Window::new(buffer, 0, limits.bytes);
    if head.reading.stage == Stage::StatusLine && !read_status_line(window, head)? {
        return Ok(Parsed::Partial);
    }
    let Reading { lines, facts, .. } = &mut head.reading;
    let note = |field: &mut Field| {
        let value = || field.value.of(buffer);
        match field.known {
            Known::Connection => facts.add_connection(value())?,
            Known::ContentLength => field.hop_by_hop = facts.add_content_length(value())?,
            Known::TransferEncoding => facts.add_transfer_encoding(value())?,
            Known::Upgrade => facts.add_upgrade(field.value),
            // The others say nothing about the message itself.
            _ => {}
        }
        Ok::<_, ResponseHeadError>(())
    };
    if !read_fields(window, limits.fields, lines, &mut head.fields, note)? {
        return Ok(Parsed::Partial);
    }
    head.length = head.reading.lines.start;
    judge(buffer, to_head_request, head)?;
    Ok(Parsed::Complete)
}

/// Reads the status line (RFC 9112 4): version, three digits, a reason that may be missing with the space before it.
/// `false` if it has not come whole.
fn read_status_line(window: Window<'_>, head: &mut ResponseHead) -> Result<bool, ResponseHeadError> {
    // What is no HTTP at all is told at once, not when its line ends.
    let is_alike = match window.bytes.first_chunk() {
        Some(front) => *front == *b"HTTP/",
        None => b"HTTP/".starts_with(window.bytes),
    };
    if !is_alike {
        return Err(ResponseHeadError::StatusLine);
    }
    let end = match head.reading.lines.end(window.bytes) {
        Ok(Some(end)) => end,
        Ok(None) if window.is_full => return Err(ResponseHeadError::TooLarge),
        Ok(None) => return Ok(false),
        Err(LineError::End) => return Err(ResponseHeadError::LineEnd),
        Err(LineError::Control) => return Err(ResponseHeadError::StatusLine),
    };
    head.reading.lines.advance(end);
    head.reading.stage = Stage::Fields;

    let line = window.bytes.get(..end).unwrap_or_default();
    let (version, rest) = line.split_at_checked(8).ok_or(ResponseHeadError::StatusLine)?;
    head.version = read_version(version).flatten().ok_or(ResponseHeadError::StatusLine)?;
    let [b' ', hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', units @ b'0'..=b'9', reason @ ..] = rest else {
        return Err(ResponseHeadError::StatusLine);
    };
    let digit = |byte: &u8| u16::from(byte - b'0');
    head.status = digit(hundreds) * 100 + digit(tens) * 10 + digit(units);
    head.reason = match reason {
        [] => span(end, end),
        [b' ', reason @ ..] => span(end - reason.len(), end),
        [..] => return Err(ResponseHeadError::StatusLine),
    };
    Ok(true)
}

/// Judges a head that has come whole, and sums up what its fields say.
fn judge(buffer: &[u8], to_head_request: bool, head: &mut ResponseHead) -> Result<(), ResponseHeadError> {
    let facts = &head.reading.facts;
    head.keep_alive = facts.keep_alive(head.version);
    head.upgrade = facts.upgrade(head.version);
    head.body = match (facts.is_chunked, facts.content_length) {
        // One of the two is a lie; which one can't be known (RFC 9112 6.3).
        (true, Some(_)) => return Err(ResponseHeadError::Framing),
        (true, None) if head.version == Version::Http10 => return Err(ResponseHeadError::Framing),
        (true, None) => BodyLength::Chunked,
        (false, Some(0)) => BodyLength::None,
        (false, Some(length)) => BodyLength::Length(length),
        (false, None) => BodyLength::UntilClose,
    };
    let never_has_content = head.status < 200 || head.status == 204;
    if never_has_content {
        // A length is not allowed here (RFC 9110 8.6), and a server that means it will send what nobody waits for.
        head.keep_alive &= matches!(head.body, BodyLength::None | BodyLength::UntilClose);
        for field in head.fields.iter_mut().filter(|field| field.known == Known::ContentLength) {
            field.hop_by_hop = true;
        }
    }
    if never_has_content || head.status == 304 || to_head_request {
        head.body = BodyLength::None;
    }
    head.keep_alive &= head.body != BodyLength::UntilClose;
    facts.mark_named(buffer, &mut head.fields);
    Ok(())
}

#[cfg(test)]
mod tests;

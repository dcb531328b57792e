//! Request heads (RFC 9112 2 to 6): parsed, judged and classified in one pass.
//!
//! What can be read in two ways is refused, not repaired. Where the RFCs leave a choice: HTTP/1.2 to 1.9 are spoken as 1.1;
//! an empty Host is for absolute and asterisk targets only; a second Content-Length is refused even if it says the same; of
//! several Upgrade lines none counts; Expect is not passed on for HTTP/1.0. What an answer to a refusal looks like, and
//! whether a path is a good one, is not decided here.

use std::ops::Range;

use crate::pure::h1::authority::{Host, find_host};
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::facts::{Facts, Refusal, Window, read_fields};
use crate::pure::h1::line::{LineError, Lines, elements, span, token_length};
use crate::pure::h1::scan::find;
use crate::pure::h1::target::{Target, is_target_end, parse_target, plain_path_end};
use crate::pure::head::{Field, Known, Span};

/// How large a head may be.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes from the first of the start line to the last of the empty line.
    pub bytes: usize,
    /// Field lines.
    pub fields: usize,
}

/// Minor versions of HTTP/1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Version {
    Http10,
    #[default]
    Http11,
}

/// The form of a request target (RFC 9112 3.2). CONNECT's authority form is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetForm {
    /// A path and maybe a query.
    Origin,
    /// `http://authority/path`: the authority replaces Host.
    Absolute,
    /// `*`, for OPTIONS alone.
    Asterisk,
}

/// A request head as offsets into the buffer it was parsed from. Reused from request to request.
#[derive(Debug, Default)]
pub struct RequestHead {
    /// The method, a token, case kept.
    pub method: Span,
    /// The whole target as sent.
    pub target: Span,
    /// Which form it has; `None` before the first parse.
    pub form: Option<TargetForm>,
    /// The authority: of an absolute target, else the Host field's value; empty where there is none (HTTP/1.0, or `*` with an
    /// empty Host).
    pub authority: Span,
    /// The host of that authority: no port, not the one trailing dot; an IPv6 address with its brackets.
    pub host: Span,
    /// Whether that host is there, is ASCII and has no upper case: it is what rules compare as it is.
    pub is_host_plain: bool,
    /// Path and query as sent, beginning with `/` (or `*`). Where an absolute target has no path, the span is empty or begins
    /// with `?`: `/` is meant, and for OPTIONS without a query `*` (RFC 9112 3.2.4).
    pub path_and_query: Span,
    /// Of that, what is before the first `?`; empty where an absolute target has no path.
    pub path: Span,
    /// Whether the path is known to be ASCII, normal (RFC 3986 6.2.2) and unambiguous under the strictest policy. Where it
    /// is not known, the path may be all that as well.
    pub is_path_plain: bool,
    /// The version.
    pub version: Version,
    /// The field lines.
    pub fields: Vec<Field>,
    /// How the body ends.
    pub body: BodyLength,
    /// Whether the client wants to keep the connection (RFC 9112 9.3).
    pub keep_alive: bool,
    /// Whether `Expect: 100-continue` is there.
    pub expects_continue: bool,
    /// Whether the client takes trailers (`TE: trailers`).
    pub takes_trailers: bool,
    /// The value of Upgrade where Connection names it (HTTP/1.1 only), else empty.
    pub upgrade: Span,
    /// Bytes of the head, empty lines before it included.
    pub length: usize,
    reading: Reading,
}

impl RequestHead {
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
    empty_lines: u8,
    lines: Lines,
    facts: Facts,
    /// The value of Host, and its host.
    host: Option<(Span, Host)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing is kept from before.
    #[default]
    Idle,
    /// Empty lines may come.
    Before,
    RequestLine,
    Fields,
}

/// Whether a head has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// It has; the head's `length` says how many bytes it took.
    Complete,
    /// More bytes are needed; what is there is not wrong so far.
    Partial,
}

/// Why a request head is refused. [`RequestHeadError::status`] says with which answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RequestHeadError {
    #[error("malformed request line")]
    RequestLine,
    #[error("HTTP version not supported")]
    Version,
    #[error("malformed field line")]
    Field,
    #[error("a line ends in a bare LF or holds a bare CR")]
    LineEnd,
    #[error("missing or repeated Host field")]
    Host,
    #[error("malformed Host or authority")]
    Authority,
    #[error("ambiguous message length")]
    Framing,
    #[error("transfer coding not supported")]
    TransferCoding,
    #[error("expectation not supported")]
    Expectation,
    #[error("method not supported here")]
    Method,
    #[error("request target too long")]
    TargetTooLong,
    #[error("request head too large")]
    TooLarge,
}

impl RequestHeadError {
    /// The status of the answer: 400, 414, 417, 431, 501 or 505. CONNECT gets 501: no resource here has it.
    pub const fn status(self) -> u16 {
        match self {
            Self::RequestLine | Self::Field | Self::LineEnd | Self::Host | Self::Authority | Self::Framing => 400,
            Self::TargetTooLong => 414,
            Self::Expectation => 417,
            Self::TooLarge => 431,
            Self::TransferCoding | Self::Method => 501,
            Self::Version => 505,
        }
    }
}

impl From<Refusal> for RequestHeadError {
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

/// Empty lines that are skipped before a request line (RFC 9112 2.2 asks for one at least).
const EMPTY_LINES_MAX: u8 = 4;

/// The longest method that is read. Those in use have at most 17 letters.
const METHOD_MAX: usize = 32;

/// Parses the front of `buffer` into `head`.
///
/// Where the answer is [`Parsed::Partial`], the next call gets the same bytes and more behind them, from the same start;
/// only the new ones are read then. A head that is given up half-way needs [`RequestHead::clear`].
///
/// # Errors
/// [`RequestHeadError`] as soon as the bytes can't become an unambiguous head.
pub fn parse_request_head(
    buffer: &[u8],
    limits: HeadLimits,
    head: &mut RequestHead,
) -> Result<Parsed, RequestHeadError> {
    let result = read_head(buffer, limits, head);
    if result != Ok(Parsed::Partial) {
        head.reading.stage = Stage::Idle;
    }
    result
}

fn read_head(buffer: &[u8], limits: HeadLimits, head: &mut RequestHead) -> Result<Parsed, RequestHeadError> {
    if head.reading.stage == Stage::Idle {
        head.clear();
        head.reading.stage = Stage::Before;
    }
    if head.reading.stage == Stage::Before && !skip_empty_lines(buffer, &mut head.reading)? {
        return Ok(Parsed::Partial);
    }
    let first_line = 2 * usize::from(head.reading.empty_lines);
    let window = Window::new(buffer, first_line, limits.bytes);
    if head.reading.stage == Stage::RequestLine && !read_request_line(window, head)? {
        return Ok(Parsed::Partial);
    }
    let RequestHead { reading, fields, expects_continue, takes_trailers, .. } = head;
    let Reading { lines, facts, host, .. } = reading;
    let note = |field: &mut Field| {
        let value = || field.value.of(buffer);
        match field.known {
            Known::Connection => facts.add_connection(value())?,
            Known::ContentLength if facts.add_content_length(value())? => return Err(RequestHeadError::Framing),
            Known::Expect => *expects_continue |= expects_continue_only(value())?,
            Known::Host => {
                if host.is_some() {
                    return Err(RequestHeadError::Host);
                }
                let found = if field.value.is_empty() {
                    Host::default()
                } else {
                    find_host(buffer, field.value).ok_or(RequestHeadError::Authority)?
                };
                *host = Some((field.value, found));
            }
            Known::Te => *takes_trailers |= elements(value()).any(|coding| coding.eq_ignore_ascii_case(b"trailers")),
            Known::TransferEncoding => facts.add_transfer_encoding(value())?,
            Known::Upgrade => facts.add_upgrade(field.value),
            // The others say nothing about the message itself.
            _ => {}
        }
        Ok(())
    };
    if !read_fields(window, limits.fields, lines, fields, note)? {
        return Ok(Parsed::Partial);
    }
    head.length = head.reading.lines.start;
    judge(buffer, head)?;
    Ok(Parsed::Complete)
}

/// Whether all expectations of an Expect line are the only one there is (RFC 9110 10.1.1).
fn expects_continue_only(value: &[u8]) -> Result<bool, RequestHeadError> {
    let mut is_any = false;
    for expectation in elements(value) {
        if !expectation.eq_ignore_ascii_case(b"100-continue") {
            return Err(RequestHeadError::Expectation);
        }
        is_any = true;
    }
    Ok(is_any)
}

/// Skips empty lines; `true` once something else begins.
fn skip_empty_lines(buffer: &[u8], reading: &mut Reading) -> Result<bool, RequestHeadError> {
    loop {
        match buffer.get(reading.lines.start..) {
            None | Some([] | [b'\r']) => return Ok(false),
            Some([b'\r', b'\n', ..]) if reading.empty_lines < EMPTY_LINES_MAX => {
                reading.empty_lines += 1;
                reading.lines.advance(reading.lines.start);
            }
            Some([b'\r', b'\n', ..]) => return Err(RequestHeadError::RequestLine),
            Some([b'\r' | b'\n', ..]) => return Err(RequestHeadError::LineEnd),
            Some([..]) => {
                reading.stage = Stage::RequestLine;
                return Ok(true);
            }
        }
    }
}

/// Reads the request line: exactly three words (RFC 9112 3). `false` if it has not come whole.
fn read_request_line(window: Window<'_>, head: &mut RequestHead) -> Result<bool, RequestHeadError> {
    let incomplete = if window.is_full { Err(RequestHeadError::TargetTooLong) } else { Ok(false) };
    let lines = &mut head.reading.lines;
    let start = lines.start;
    let from_start = window.bytes.get(start..).unwrap_or_default();
    // The method is judged first and as far as it has come: what is no HTTP at all shows there.
    let method_length = match from_start.first_chunk() {
        Some(front) if *front == *b"GET " => 3,
        _ => token_length(from_start.get(..=METHOD_MAX).unwrap_or(from_start)),
    };
    match from_start.get(method_length) {
        None => return incomplete,
        Some(_) if method_length > METHOD_MAX => return Err(RequestHeadError::Method),
        Some(b' ') if method_length > 0 => {}
        Some(_) => return Err(RequestHeadError::RequestLine),
    }
    let method_end = start + method_length;
    let end = match lines.end(window.bytes) {
        Ok(Some(end)) => end,
        Ok(None) => return incomplete,
        Err(LineError::End) => return Err(RequestHeadError::LineEnd),
        Err(LineError::Control) => return Err(RequestHeadError::RequestLine),
    };
    lines.advance(end);
    head.reading.stage = Stage::Fields;

    let target_start = method_end + 1;
    let plain_path_end = plain_path_end(window.bytes, target_start);
    let target_end = match plain_path_end {
        Some(path_end) if window.bytes.get(path_end) == Some(&b' ') => path_end,
        path_end => find(window.bytes, path_end.unwrap_or(target_start), is_target_end),
    };
    let Some([b' ', version @ ..]) = window.bytes.get(target_end..end) else {
        return Err(RequestHeadError::RequestLine);
    };
    head.version = read_version(version).ok_or(RequestHeadError::RequestLine)?.ok_or(RequestHeadError::Version)?;
    head.method = span(start, method_end);
    head.target = span(target_start, target_end);
    let method = head.method.of(window.bytes);
    if method == b"CONNECT" {
        return Err(RequestHeadError::Method);
    }
    let Target { form, authority, path_and_query } = parse_target(head.target.of(window.bytes), method == b"OPTIONS")?;
    let within = |range: Range<usize>| span(target_start + range.start, target_start + range.end);
    head.form = Some(form);
    head.path_and_query = within(path_and_query);
    match plain_path_end {
        Some(path_end) if form == TargetForm::Origin => {
            head.path = span(target_start, path_end);
            head.is_path_plain = true;
        }
        _ => note_parts(window.bytes, within(authority), head),
    }
    Ok(true)
}

/// Notes authority and path of a target that is not a plain path.
#[cold]
fn note_parts(buffer: &[u8], authority: Span, head: &mut RequestHead) {
    // Where there is none is the same wherever the bytes were cut.
    head.authority = if authority.is_empty() { Span::default() } else { authority };
    if let Some(host) = find_host(buffer, authority) {
        head.host = host.name;
        head.is_host_plain = host.is_plain;
    }
    let Span { start, end } = head.path_and_query;
    let path_end = find(buffer, start as usize, |byte| byte == b'?').min(end as usize);
    head.path = span(start as usize, path_end);
}

/// Reads `HTTP/1.1` and its like (RFC 9112 2.3): `None` where it is no version at all, `Some(None)` where it is none that
/// is spoken here. Minor versions above 1 are spoken as 1.1 (RFC 9110 2.5).
#[inline]
pub(super) fn read_version(version: &[u8]) -> Option<Option<Version>> {
    // What nearly all say, in one word.
    if version.as_array().is_some_and(|version| *version == *b"HTTP/1.1") {
        return Some(Some(Version::Http11));
    }
    read_rare_version(version)
}

#[cold]
const fn read_rare_version(version: &[u8]) -> Option<Option<Version>> {
    match version {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'] => Some(Some(Version::Http10)),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9'] => Some(Some(Version::Http11)),
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => Some(None),
        _ => None,
    }
}

/// Judges a head that has come whole, and sums up what its fields say.
fn judge(buffer: &[u8], head: &mut RequestHead) -> Result<(), RequestHeadError> {
    let facts = &head.reading.facts;
    match head.reading.host {
        None if head.version == Version::Http11 => return Err(RequestHeadError::Host),
        None => {}
        Some((value, _)) if head.form == Some(TargetForm::Origin) && value.is_empty() => {
            return Err(RequestHeadError::Authority);
        }
        Some(_) if head.form == Some(TargetForm::Absolute) => {}
        Some((value, host)) => {
            head.authority = value;
            head.host = host.name;
            head.is_host_plain = host.is_plain;
        }
    }
    head.body = match (facts.is_chunked, facts.content_length) {
        (true, Some(_)) => return Err(RequestHeadError::Framing),
        // HTTP/1.0 has no transfer codings: whoever sends one may be read as having no body (RFC 9112 6.1).
        (true, None) if head.version == Version::Http10 => return Err(RequestHeadError::Framing),
        (true, None) => BodyLength::Chunked,
        (false, Some(length)) if length > 0 => BodyLength::Length(length),
        (false, _) => BodyLength::None,
    };
    head.keep_alive = facts.keep_alive(head.version);
    head.upgrade = facts.upgrade(head.version);
    facts.mark_named(buffer, &mut head.fields);
    if head.version == Version::Http10 {
        // To be ignored then (RFC 9110 10.1.1), so not passed on either.
        head.expects_continue = false;
        head.takes_trailers = false;
        for field in head.fields.iter_mut().filter(|field| field.known == Known::Expect) {
            field.hop_by_hop = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

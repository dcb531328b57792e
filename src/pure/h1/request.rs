//! Request heads (RFC 9112 2 to 6): parsed, judged and classified in one pass.

use crate::pure::h1::body::BodyLength;
use crate::pure::head::{Field, Span};

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
    /// The authority: of an absolute target, else the Host field's value; empty where there is none (HTTP/1.0 only).
    pub authority: Span,
    /// Path and query as sent, beginning with `/` (or `*`). An absolute target without a path has an empty span: `/` is
    /// meant.
    pub path_and_query: Span,
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
    /// The status of the answer: 400, 405, 414, 417, 431, 501 or 505.
    pub const fn status(self) -> u16 {
        400
    }
}

/// Parses the front of `buffer` into `head`.
///
/// # Errors
/// [`RequestHeadError`] as soon as the bytes can't become an unambiguous head.
pub fn parse_request_head(
    _buffer: &[u8],
    _limits: HeadLimits,
    _head: &mut RequestHead,
) -> Result<Parsed, RequestHeadError> {
    Ok(Parsed::Partial)
}

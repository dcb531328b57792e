//! Response heads (RFC 9112 4 to 6), with the rules by which the request decides the body (RFC 9112 6.3).

use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::{HeadLimits, Parsed, Version};
use crate::pure::head::{Field, Span};

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

/// Parses the front of `buffer`, an answer to a request that was HEAD or not, into `head`.
///
/// # Errors
/// [`ResponseHeadError`] as soon as the bytes can't become an unambiguous head.
pub fn parse_response_head(
    _buffer: &[u8],
    _limits: HeadLimits,
    _to_head_request: bool,
    _head: &mut ResponseHead,
) -> Result<Parsed, ResponseHeadError> {
    Ok(Parsed::Partial)
}

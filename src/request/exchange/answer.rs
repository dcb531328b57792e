//! Pointsman's own answers: refusals, redirects, what a rule says, what went wrong upstream.

use std::io::Write as _;

use crate::pure::forwarding::{ClientConnection, push_connection};
use crate::pure::h1::encode::push_decimal;

/// An answer of our own.
#[derive(Clone, Copy, Debug)]
pub struct OwnAnswer<'a> {
    /// The status.
    pub status: u16,
    /// Where a redirect leads.
    pub location: Option<&'a [u8]>,
    /// The body; where it is empty, the status says itself in words.
    pub body: &'a str,
    /// Lines that a rule adds.
    pub added: &'a [u8],
    /// Whether the body stays away: an answer to HEAD.
    pub is_to_head: bool,
    /// What becomes of the connection.
    pub connection: ClientConnection<'a>,
    /// The time as HTTP writes it (RFC 9110 5.6.7).
    pub date: &'a str,
}

/// Appends the whole answer, and gives back how many bytes of it are its content.
pub fn push(out: &mut Vec<u8>, answer: &OwnAnswer<'_>) -> u64 {
    let reason = reason_phrase(answer.status);
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(out, u64::from(answer.status));
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\nDate: ");
    out.extend_from_slice(answer.date.as_bytes());
    out.extend_from_slice(b"\r\n");
    if let Some(location) = answer.location {
        out.extend_from_slice(b"Location: ");
        out.extend_from_slice(location);
        out.extend_from_slice(b"\r\n");
    }
    // 204 and 304 have no body, and 204 no length (RFC 9110 8.6).
    let has_body = !matches!(answer.status, 204 | 304);
    let words;
    let body = if answer.body.is_empty() {
        words = format!("{} {reason}\n", answer.status);
        &words
    } else {
        answer.body
    };
    if has_body {
        out.extend_from_slice(b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: ");
        push_decimal(out, body.len() as u64);
        out.extend_from_slice(b"\r\n");
    }
    if answer.status == 429 || answer.status == 503 {
        let _ = write!(out, "Retry-After: 1\r\n");
    }
    out.extend_from_slice(answer.added);
    push_connection(out, answer.connection);
    out.extend_from_slice(b"\r\n");
    if !has_body || answer.is_to_head {
        return 0;
    }
    out.extend_from_slice(body.as_bytes());
    body.len() as u64
}

/// The registered reason phrase of a status, or nothing.
fn reason_phrase(status: u16) -> &'static str {
    http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("")
}

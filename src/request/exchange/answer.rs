//! Pointsman's own answers: refusals, redirects, what a rule says, what went wrong upstream.

use crate::pure::forwarding::{ClientConnection, FieldEdits, push_connection};
use crate::pure::h1::encode::{push_all, push_decimal};

/// An answer of our own.
#[derive(Clone, Copy, Debug)]
pub struct OwnAnswer<'a> {
    /// The status.
    pub status: u16,
    /// Where a redirect leads.
    pub location: Option<&'a [u8]>,
    /// The body; where it is empty, the status says itself in words.
    pub body: &'a str,
    /// What a rule changes of its fields. The framing is ours.
    pub edits: &'a FieldEdits,
    /// Whether it refuses, unasked by a rule: then it says when to come again.
    pub is_refusal: bool,
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
    out.extend_from_slice(b"\r\n");
    let mut push_field = |name: &[u8], value: &[u8]| {
        if !answer.edits.removes(name) {
            push_all(out, [name, b": ", value, b"\r\n"]);
        }
    };
    push_field(b"Date", answer.date.as_bytes());
    if let Some(location) = answer.location {
        push_field(b"Location", location);
    }
    if answer.is_refusal && matches!(answer.status, 429 | 503) {
        push_field(b"Retry-After", b"1");
    }
    // 204, 205 and 304 have no body, and 204 no length either (RFC 9110 8.6); that of 205 is nothing (RFC 9110 15.3.6).
    let has_body = !matches!(answer.status, 204 | 205 | 304);
    let words;
    let body = if answer.body.is_empty() {
        words = format!("{} {reason}\n", answer.status);
        &words
    } else {
        answer.body
    };
    if has_body {
        push_field(b"Content-Type", b"text/plain; charset=utf-8");
        out.extend_from_slice(b"Content-Length: ");
        push_decimal(out, body.len() as u64);
        out.extend_from_slice(b"\r\n");
    } else if answer.status == 205 {
        out.extend_from_slice(b"Content-Length: 0\r\n");
    }
    out.extend_from_slice(answer.edits.added());
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

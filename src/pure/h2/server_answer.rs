//! A server's HTTP/2 answer as HTTP/1.1: heads, interim heads and trailers (RFC 9113 8.3.2, 8.1).
//!
//! A Content-Length is kept, an answer without one is chunked, and one that is known to be empty says so. An answer that
//! announces trailers is chunked in any case: they have no other place in HTTP/1.1. What concerns one connection alone has
//! no place in HTTP/2 and is left out. It refuses answers whose length is ambiguous, fields that could be read as others, and a
//! 101.

use http::StatusCode;

use crate::pure::h1::encode::{push_all, push_decimal, push_field, push_status_line};
use crate::pure::h1::request::Version;
use crate::pure::h2::field_rules::{Malformed, is_field};
use crate::pure::h2::hpack::FieldBlock;
use crate::pure::head::Known;

/// How the body of an answer is framed in HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// There is none.
    None,
    /// As it is: its length is said.
    Length,
    /// In chunks.
    Chunked,
}

/// The body of an answer whose head has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// How it is framed in HTTP/1.1.
    pub framing: AnswerBody,
    /// How many bytes of data come, where the head says so and some may come.
    pub length: Option<u64>,
    /// Whether the answer does not say its length, and the head in HTTP/1.1 does.
    pub is_length_ours: bool,
}

/// What the answer answers, and what is known of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the request is a HEAD.
    pub is_to_head: bool,
    /// Whether the stream has ended with the head.
    pub is_ended: bool,
}

/// The status that a head says.
///
/// # Errors
/// [`Malformed`] where it says none, or another pseudo-header field, or what is no field.
pub fn status_of(fields: &FieldBlock) -> Result<u16, Malformed> {
    let mut all = fields.fields();
    let Some((b":status", [a @ b'1'..=b'9', b, c])) = all.next() else { return Err(Malformed) };
    if fields.is_too_large() || !b.is_ascii_digit() || !c.is_ascii_digit() || !all.all(is_field) {
        return Err(Malformed);
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok(digit(a) * 100 + digit(b) * 10 + digit(c))
}

/// Appends the head of a final answer, whose status that is.
///
/// # Errors
/// [`Malformed`] where the length is ambiguous, or the status is no final one.
pub fn push_head(
    out: &mut Vec<u8>,
    status: u16,
    fields: &FieldBlock,
    circumstances: Circumstances,
) -> Result<Body, Malformed> {
    if status < 200 {
        return Err(Malformed);
    }
    let length = content_length(fields)?;
    let never_has_content = matches!(status, 204 | 304) || circumstances.is_to_head;
    let framing = match length {
        _ if never_has_content || circumstances.is_ended => AnswerBody::None,
        Some(_) if !announces_trailers(fields) => AnswerBody::Length,
        Some(_) | None => AnswerBody::Chunked,
    };
    let is_known_empty = circumstances.is_ended && !never_has_content;
    push_status(out, status);
    push_fields(out, fields);
    match framing {
        AnswerBody::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        AnswerBody::None | AnswerBody::Length => {
            // A 204 has no length (RFC 9110 8.6).
            let length = length.filter(|_| status != 204).or(is_known_empty.then_some(0));
            if let Some(length) = length {
                out.extend_from_slice(b"content-length: ");
                push_decimal(out, length);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
    out.extend_from_slice(b"\r\n");
    let is_length_ours = is_known_empty && length.is_none();
    Ok(Body { framing, length: length.filter(|_| !never_has_content), is_length_ours })
}

/// Appends the head of an interim answer, whose status that is.
///
/// # Errors
/// [`Malformed`] where it is none, or a 101, which HTTP/2 does not have (RFC 9113 8.6).
pub fn push_interim(out: &mut Vec<u8>, status: u16, fields: &FieldBlock) -> Result<(), Malformed> {
    if status >= 200 || status == 101 {
        return Err(Malformed);
    }
    push_status(out, status);
    push_fields(out, fields);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends the head of the 101 that a tunnel begins with: the fields of the server's 2xx, the protocol, and where a
/// WebSocket's key asks for it, its answer.
pub fn push_switch(out: &mut Vec<u8>, fields: &FieldBlock, protocol: &str, accept: Option<&str>) {
    push_status(out, 101);
    // What the server may say of it is nothing that the client's key asked for.
    for (name, value) in fields.fields().filter(|(name, _)| stays(name) && *name != b"sec-websocket-accept") {
        push_field(out, name, value);
    }
    push_all(out, [b"Connection: Upgrade\r\nUpgrade: ", protocol.as_bytes(), b"\r\n"]);
    if let Some(accept) = accept {
        push_all(out, [b"Sec-WebSocket-Accept: ", accept.as_bytes(), b"\r\n"]);
    }
    out.extend_from_slice(b"\r\n");
}

fn push_status(out: &mut Vec<u8>, status: u16) {
    let known = StatusCode::from_u16(status).ok();
    let reason = known.and_then(|status| status.canonical_reason()).unwrap_or_default();
    push_status_line(out, Version::Http11, status, reason.as_bytes());
}

/// All fields but those that frame the message or belong to one connection.
fn push_fields(out: &mut Vec<u8>, fields: &FieldBlock) {
    for (name, value) in fields.fields().filter(|(name, _)| stays(name)) {
        push_field(out, name, value);
    }
}

fn stays(name: &[u8]) -> bool {
    let known = Known::of(name);
    known != Known::ContentLength && !known.is_hop_by_hop() && name.first() != Some(&b':')
}

fn announces_trailers(fields: &FieldBlock) -> bool {
    fields.fields().any(|(name, _)| name == b"trailer")
}

/// The one length that the answer says; `None` where it says none.
fn content_length(fields: &FieldBlock) -> Result<Option<u64>, Malformed> {
    let mut lengths = fields.fields().filter(|(name, _)| *name == b"content-length").map(|(_, value)| decimal(value));
    let Some(first) = lengths.next() else { return Ok(None) };
    let first = first?;
    for other in lengths {
        if other? != first {
            return Err(Malformed);
        }
    }
    Ok(Some(first))
}

fn decimal(value: &[u8]) -> Result<u64, Malformed> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    str::from_utf8(value).ok().and_then(|digits| digits.parse().ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests;

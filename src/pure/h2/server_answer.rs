//! A server's HTTP/2 answer as HTTP/1.1: heads, interim heads and trailers (RFC 9113 8.3.2, 8.1).
//!
//! A Content-Length is kept, an answer without one is chunked, and one that is known to be empty says so. An answer that
//! announces trailers is chunked in any case: they have no other place in HTTP/1.1. What concerns one connection alone has
//! no place in HTTP/2 and is left out. It refuses answers whose length is ambiguous, and a 101.

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, SEC_WEBSOCKET_ACCEPT, TRAILER};
use http::{HeaderValue, StatusCode};

use crate::pure::h1::encode::{push_all, push_decimal, push_field, push_status_line};
use crate::pure::h1::request::Version;
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

/// What the answer answers, and what is known of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the request is a HEAD.
    pub is_to_head: bool,
    /// Whether the stream has ended with the head.
    pub is_ended: bool,
}

/// An answer that HTTP/1.1 can't carry unambiguously.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is malformed")]
pub struct Malformed;

/// Appends the head of a final answer.
///
/// # Errors
/// [`Malformed`] where the length is ambiguous, or the status is no final one.
pub fn push_head(
    out: &mut Vec<u8>,
    status: StatusCode,
    fields: &HeaderMap,
    circumstances: Circumstances,
) -> Result<AnswerBody, Malformed> {
    if status.is_informational() {
        return Err(Malformed);
    }
    let length = content_length(fields)?;
    let never_has_content = matches!(status.as_u16(), 204 | 304) || circumstances.is_to_head;
    let body = match length {
        _ if never_has_content || circumstances.is_ended => AnswerBody::None,
        Some(_) if !fields.contains_key(TRAILER) => AnswerBody::Length,
        Some(_) | None => AnswerBody::Chunked,
    };
    push_status(out, status);
    push_fields(out, fields);
    match body {
        AnswerBody::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        AnswerBody::None | AnswerBody::Length => {
            let is_known_empty = circumstances.is_ended && !never_has_content;
            // A 204 has no length (RFC 9110 8.6).
            let length = length.filter(|_| status != StatusCode::NO_CONTENT).or(is_known_empty.then_some(0));
            if let Some(length) = length {
                out.extend_from_slice(b"content-length: ");
                push_decimal(out, length);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(body)
}

/// Appends the head of an interim answer.
///
/// # Errors
/// [`Malformed`] where it is none, or a 101, which HTTP/2 does not have (RFC 9113 8.6).
pub fn push_interim(out: &mut Vec<u8>, status: StatusCode, fields: &HeaderMap) -> Result<(), Malformed> {
    if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Malformed);
    }
    push_status(out, status);
    push_fields(out, fields);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends the head of the 101 that a tunnel begins with: the fields of the server's 2xx, the protocol, and where a
/// WebSocket's key asks for it, its answer.
pub fn push_switch(out: &mut Vec<u8>, fields: &HeaderMap, protocol: &str, accept: Option<&str>) {
    push_status(out, StatusCode::SWITCHING_PROTOCOLS);
    // What the server may say of it is nothing that the client's key asked for.
    for (name, value) in fields.iter().filter(|(name, _)| stays(name) && *name != SEC_WEBSOCKET_ACCEPT) {
        push_field(out, name.as_str().as_bytes(), value.as_bytes());
    }
    push_all(out, [b"Connection: Upgrade\r\nUpgrade: ", protocol.as_bytes(), b"\r\n"]);
    if let Some(accept) = accept {
        push_all(out, [b"Sec-WebSocket-Accept: ", accept.as_bytes(), b"\r\n"]);
    }
    out.extend_from_slice(b"\r\n");
}

fn push_status(out: &mut Vec<u8>, status: StatusCode) {
    let reason = status.canonical_reason().unwrap_or_default();
    push_status_line(out, Version::Http11, status.as_u16(), reason.as_bytes());
}

/// All fields but those that frame the message or belong to one connection.
fn push_fields(out: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        if stays(name) {
            push_field(out, name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

fn stays(name: &HeaderName) -> bool {
    let known = Known::of(name.as_str().as_bytes());
    known != Known::ContentLength && !known.is_hop_by_hop()
}

/// The one length that the answer says; `None` where it says none.
fn content_length(fields: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut lengths = fields.get_all(CONTENT_LENGTH).iter().map(decimal);
    let Some(first) = lengths.next() else { return Ok(None) };
    let first = first?;
    for other in lengths {
        if other? != first {
            return Err(Malformed);
        }
    }
    Ok(Some(first))
}

fn decimal(value: &HeaderValue) -> Result<u64, Malformed> {
    let text = value.to_str().map_err(|_| Malformed)?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Malformed);
    }
    text.parse().map_err(|_| Malformed)
}

#[cfg(test)]
mod tests;

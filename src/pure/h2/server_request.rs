//! An HTTP/1.1 request head, as servers get it, as the head of an HTTP/2 request (RFC 9113 8.3, RFC 8441).
//!
//! Host becomes `:authority`, names become lower case, and what concerns one connection alone stays behind; of TE only
//! `trailers` goes on. An upgrade becomes an extended CONNECT. Bytes that may not stand in a target are escaped. It refuses to
//! judge the head, which comes from our own writer, and to know whether the server takes an extended CONNECT.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::pure::h1::request::RequestHead;
use crate::pure::h2::hpack::Encoder;
use crate::pure::head::Known;

/// An upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The protocol, as Upgrade named it; `websocket` in lower case.
    pub protocol: String,
    /// The client's `Sec-WebSocket-Key`, which HTTP/2 does not know (RFC 8441 5).
    pub key: Option<Vec<u8>>,
}

impl Tunnel {
    /// The upgrade that `head` asks for, which was parsed from `bytes`; `None`: it asks for none.
    pub fn of(head: &RequestHead, bytes: &[u8]) -> Option<Self> {
        let token = head.upgrade.of(bytes);
        if token.is_empty() {
            return None;
        }
        // Its registered name; what compares it need not fold the case (RFC 8441 4).
        let is_websocket = token.eq_ignore_ascii_case(b"websocket");
        let protocol = if is_websocket { "websocket".to_owned() } else { String::from_utf8_lossy(token).into_owned() };
        let key = head.fields.iter().find(|field| is_websocket_key(field.name.of(bytes)));
        Some(Self { protocol, key: key.map(|field| field.value.of(bytes).to_vec()) })
    }
}

/// Appends the head of the request of `head`, which was parsed from `bytes`; `is_tls` says how the server is reached.
pub fn push_server_request(
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    (head, bytes): (&RequestHead, &[u8]),
    tunnel: Option<&Tunnel>,
    is_tls: bool,
) {
    let method = if tunnel.is_some() { b"CONNECT" } else { head.method.of(bytes) };
    encoder.push(out, b":method", method);
    encoder.push(out, b":scheme", if is_tls { b"https" } else { b"http" });
    let authority = head.authority.of(bytes);
    if !authority.is_empty() {
        encoder.push(out, b":authority", authority);
    }
    encoder.push(out, b":path", &target_of(head, bytes));
    if let Some(tunnel) = tunnel {
        encoder.push(out, b":protocol", tunnel.protocol.as_bytes());
    }
    for field in &head.fields {
        let name = field.name.of(bytes);
        let stays_behind =
            field.hop_by_hop || field.known == Known::Host || (tunnel.is_some() && is_websocket_key(name));
        if !stays_behind {
            encoder.push(out, name, field.value.of(bytes));
        }
    }
    if head.takes_trailers {
        encoder.push(out, b"te", b"trailers");
    }
}

fn is_websocket_key(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"sec-websocket-key")
}

fn target_of<'b>(head: &RequestHead, bytes: &'b [u8]) -> Cow<'b, [u8]> {
    match head.path_and_query.of(bytes) {
        // An absolute target without a path; for OPTIONS `*` is meant (RFC 9113 8.3.1).
        [] if head.method.of(bytes) == b"OPTIONS" => Cow::Borrowed(b"*"),
        [] => Cow::Borrowed(b"/"),
        target @ [b'?', ..] => Cow::Owned([b"/", &*escaped(target)].concat()),
        target => escaped(target),
    }
}

/// The target with every byte escaped that may not stand in one, nor does in practice (RFC 3986 3.3, 3.4).
fn escaped(target: &[u8]) -> Cow<'_, [u8]> {
    let is_odd = |byte: &u8| matches!(byte, 0..=b' ' | b'"' | b'#' | b'<' | b'>' | 0x7F..);
    if !target.iter().any(is_odd) {
        return Cow::Borrowed(target);
    }
    let mut text = String::with_capacity(target.len() + 16);
    for byte in target {
        if is_odd(byte) {
            let _ = write!(text, "%{byte:02X}");
        } else {
            text.push(char::from(*byte));
        }
    }
    Cow::Owned(text.into_bytes())
}

#[cfg(test)]
mod tests;

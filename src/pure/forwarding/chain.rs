//! What a trusted proxy says in `X-Forwarded-*`, told in `Forwarded` (RFC 7239), and the other way round, so that a server
//! reads the same from both.
//!
//! It tells all of a list or nothing: a list with an element that is no address would be another list without it.

use std::net::IpAddr;

use super::{AddressText, push_element};
use crate::pure::config::is_token;
use crate::pure::h1::authority::parse_authority;
use crate::pure::h1::encode::push_all;
use crate::pure::head::{Fields, Known};
use crate::pure::trust::parse_node;

/// What one hop says of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop<'a> {
    /// Whom it came from.
    pub(super) peer: &'a AddressText,
    /// The host that was asked for; may be empty.
    pub(super) host: &'a [u8],
    /// The scheme; may be empty.
    pub(super) proto: &'a [u8],
}

/// Appends the `Forwarded` line that says what `X-Forwarded-For`, `-Host` and `-Proto` do, with `ours` behind it: scheme
/// and host belong to the first element. `None` where it can't be said; then `out` has to be cut.
pub(super) fn push_forwarded(out: &mut Vec<u8>, fields: Fields<'_>, ours: Hop<'_>) -> Option<()> {
    let mut proto = match first_of(fields, Known::XForwardedProto) {
        Some(word) => std::str::from_utf8(word).is_ok_and(is_token).then_some(word)?,
        None => b"",
    };
    let mut host = match first_of(fields, Known::XForwardedHost) {
        Some(host) => parse_authority(host).map(|_| host)?,
        None => b"",
    };
    out.extend_from_slice(b"Forwarded: ");
    for element in fields.known(Known::XForwardedFor).flat_map(|line| line.split(|byte| *byte == b',')) {
        let element = element.trim_ascii();
        if element.is_empty() {
            continue;
        }
        let peer = address_of(element)?;
        push_element(out, &Hop { peer: &AddressText::of(peer), host, proto });
        out.extend_from_slice(b", ");
        (host, proto) = (b"", b"");
    }
    // Where no address came before, ours is the first.
    let or_ours = |first, ours| if <[u8]>::is_empty(first) { ours } else { first };
    push_element(out, &Hop { peer: ours.peer, host: or_ours(host, ours.host), proto: or_ours(proto, ours.proto) });
    out.extend_from_slice(b"\r\n");
    Some(())
}

/// Appends the `X-Forwarded-For` line that names the nodes of `Forwarded`, with `peer` behind them. `None` where one of
/// them is no address; then `out` has to be cut.
pub(super) fn push_for_list(out: &mut Vec<u8>, fields: Fields<'_>, peer: &AddressText) -> Option<()> {
    out.extend_from_slice(b"X-Forwarded-For: ");
    for line in fields.known(Known::Forwarded) {
        // Escapes are not undone here.
        if line.contains(&b'\\') || !is_whole(line) {
            return None;
        }
        for element in split_unquoted(line, b',').filter(|element| !element.trim_ascii().is_empty()) {
            let node = AddressText::of(address_of(parameter(element, b"for")?)?);
            push_all(out, [node.bytes(), b", "]);
        }
    }
    push_all(out, [peer.bytes(), b"\r\n"]);
    Some(())
}

/// Whether every quote of a line is closed.
pub(super) fn is_whole(line: &[u8]) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for byte in line {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    !is_quoted
}

/// The scheme and the host that the first element of `Forwarded` names; each empty where it names none.
pub(super) fn first_claims(fields: Fields<'_>) -> (&[u8], &[u8]) {
    let mut elements = fields.known(Known::Forwarded).flat_map(|line| split_unquoted(line, b','));
    let Some(first) = elements.find(|element| !element.trim_ascii().is_empty()) else { return (b"", b"") };
    let proto = parameter(first, b"proto").filter(|word| std::str::from_utf8(word).is_ok_and(is_token));
    let host = parameter(first, b"host").filter(|host| parse_authority(host).is_some());
    (proto.unwrap_or_default(), host.unwrap_or_default())
}

/// The first element of the fields of that kind.
fn first_of(fields: Fields<'_>, known: Known) -> Option<&[u8]> {
    let mut elements = fields.known(known).flat_map(|line| line.split(|byte| *byte == b','));
    elements.next().map(<[u8]>::trim_ascii)
}

fn address_of(node: &[u8]) -> Option<IpAddr> {
    parse_node(node)
}

/// The value of a parameter of one element, without its quotes.
fn parameter<'e>(element: &'e [u8], name: &[u8]) -> Option<&'e [u8]> {
    split_unquoted(element, b';').find_map(|pair| {
        let (found, value) = pair.split_at_checked(pair.iter().position(|byte| *byte == b'=')?)?;
        let value = value.strip_prefix(b"=")?.trim_ascii();
        let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        found.trim_ascii().eq_ignore_ascii_case(name).then(|| inner.unwrap_or(value))
    })
}

/// The pieces between separators that stand in no quotes.
fn split_unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    text.split(move |byte| {
        is_quoted ^= *byte == b'"';
        *byte == separator && !is_quoted
    })
}

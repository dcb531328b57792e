//! Authorities: host and port, as in Host and in absolute targets (RFC 3986 3.2, RFC 9110 7.2).
//!
//! Names that DNS and certificates can hold, IPv4 addresses, and IPv6 addresses in brackets pass. The rest of what RFC 3986
//! would allow in a name (percent escapes, `,`, `;`, `=` and the like), user information and zones are refused: other
//! parsers read them differently, and nobody needs them.

use std::net::Ipv6Addr;

use crate::pure::h1::line::span;
use crate::pure::h1::scan::find_noting;
use crate::pure::head::Span;

/// An authority in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'b> {
    /// The host as sent; an IPv6 address with its brackets. Never empty.
    pub host: &'b [u8],
    /// The port, `None` where none was said (also in `host:`).
    pub port: Option<u16>,
}

/// Reads `host`, `host:` or `host:port`; `None` where it is neither.
pub fn parse_authority(bytes: &[u8]) -> Option<Authority<'_>> {
    let (host_length, _) = host_length(bytes, bytes, 0)?;
    let (host, rest) = bytes.split_at_checked(host_length)?;
    let port = match rest {
        _ if host.is_empty() => return None,
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(parse_port(digits)?),
        [..] => return None,
    };
    Some(Authority { host, port })
}

/// The host of an authority as rules compare it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Host {
    /// Without port and one trailing dot; an IPv6 address with its brackets.
    pub name: Span,
    /// Whether it has no upper case.
    pub is_plain: bool,
}

/// Judges the authority that lies there in `buffer`, like [`parse_authority`], and tells where its host is. No byte of a
/// host follows it.
#[inline(always)]
pub(super) fn find_host(buffer: &[u8], authority: Span) -> Option<Host> {
    let bytes = authority.of(buffer);
    let start = authority.start as usize;
    let (length, is_plain) = host_length(bytes, buffer, start)?;
    let (host, rest) = bytes.split_at_checked(length)?;
    let last = host.last()?;
    match rest {
        [] | [b':'] => {}
        [b':', digits @ ..] => _ = parse_port(digits)?,
        [..] => return None,
    }
    Some(Host { name: span(start, start + length - usize::from(*last == b'.')), is_plain })
}

/// How long the host at the front of an authority is, and whether it has no upper case. The authority lies in `buffer` at
/// `start`.
#[inline(always)]
fn host_length(authority: &[u8], buffer: &[u8], start: usize) -> Option<(usize, bool)> {
    if let [b'[', rest @ ..] = authority {
        return bracketed_length(rest);
    }
    let (end, has_upper) = find_noting(buffer, start, |byte| !is_host_byte(byte), is_upper);
    Some((end - start, !has_upper))
}

#[cold]
fn bracketed_length(behind_bracket: &[u8]) -> Option<(usize, bool)> {
    let length = behind_bracket.iter().position(|byte| *byte == b']')?;
    let address = str::from_utf8(behind_bracket.get(..length)?).ok()?;
    address.parse::<Ipv6Addr>().ok()?;
    Some((length + 2, !address.bytes().any(is_upper)))
}

const fn is_upper(byte: u8) -> bool {
    byte.wrapping_sub(b'A') < 26
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0_u16, |port, digit| {
        let digit = digit.wrapping_sub(b'0');
        let port = u32::from(port) * 10 + u32::from(digit);
        if digit < 10 { u16::try_from(port).ok() } else { None }
    })
}

/// Letters, digits, and the marks that names have.
const fn is_host_byte(byte: u8) -> bool {
    ((byte | 0x20).wrapping_sub(b'a') < 26)
        | (byte.wrapping_sub(b'0') < 10)
        | (byte == b'-')
        | (byte == b'.')
        | (byte == b'_')
        | (byte == b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        for (input, host, port) in [
            ("a.test", "a.test", None),
            ("a.test:", "a.test", None),
            ("a.test:8080", "a.test", Some(8080)),
            ("a:00080", "a", Some(80)),
            ("1.2.3.4:0", "1.2.3.4", Some(0)),
            ("[::1]", "[::1]", None),
            ("[2001:db8::1]:65535", "[2001:db8::1]", Some(65_535)),
            ("a-name-of-more-than-sixteen-bytes.test:1", "a-name-of-more-than-sixteen-bytes.test", Some(1)),
        ] {
            let expected = Authority { host: host.as_bytes(), port };
            assert_eq!(parse_authority(input.as_bytes()), Some(expected), "{input}");
        }
        for input in
            ["", ":", ":1", "[]", "[", "]", "[::1", "[::1]1", "[1.2.3.4]", "a:b", "a:65536", "a:99999999999", "a@b"]
        {
            assert_eq!(parse_authority(input.as_bytes()), None, "{input}");
        }
    }
}

//! Authorities: host and port, as in Host and in absolute targets (RFC 3986 3.2, RFC 9110 7.2).
//!
//! Names that DNS and certificates can hold, IPv4 addresses, and IPv6 addresses in brackets pass. The rest of what RFC 3986
//! would allow in a name (percent escapes, `,`, `;`, `=` and the like), user information and zones are refused: other
//! parsers read them differently, and nobody needs them.

use std::net::Ipv6Addr;

use crate::pure::h1::scan::find;

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
    let host_length = match bytes {
        [b'[', rest @ ..] => {
            let length = rest.iter().position(|byte| *byte == b']')?;
            let address = str::from_utf8(rest.get(..length)?).ok()?;
            address.parse::<Ipv6Addr>().ok()?;
            length + 2
        }
        _ => find(bytes, 0, |byte| !is_host_byte(byte)),
    };
    let (host, rest) = bytes.split_at_checked(host_length)?;
    let port = match rest {
        _ if host.is_empty() => return None,
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(parse_port(digits)?),
        [..] => return None,
    };
    Some(Authority { host, port })
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0_u16, |port, digit| {
        let digit = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        port.checked_mul(10)?.checked_add(digit)
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

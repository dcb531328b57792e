//! Who a client is: the peer, or what trusted proxies say of it.

use std::net::{IpAddr, SocketAddr};

use crate::pure::head::{Fields, Known};
use crate::pure::rule::Cidr;

/// Whether `address` is one of the trusted.
pub fn is_trusted(address: IpAddr, trusted: &[Cidr]) -> bool {
    trusted.iter().any(|range| range.contains(address))
}

/// The client's address: the rightmost that is not a trusted proxy's in X-Forwarded-For, or where there is none in
/// Forwarded, behind a trusted peer; else the peer. Ports and brackets are stripped. An element that is no address ends the
/// search: what stands left of it can't be believed.
pub fn client_address(peer: IpAddr, trusted: &[Cidr], fields: Fields<'_>) -> IpAddr {
    let peer = peer.to_canonical();
    if trusted.is_empty() || !is_trusted(peer, trusted) {
        return peer;
    }
    let has_list = fields.list.iter().any(|field| field.known == Known::XForwardedFor);
    let known = if has_list { Known::XForwardedFor } else { Known::Forwarded };
    let mut client = peer;
    for field in fields.list.iter().rev().filter(|field| field.known == known) {
        for element in field.value.of(fields.bytes).rsplit(|byte| *byte == b',') {
            let Some(text) = std::str::from_utf8(element).ok().map(str::trim) else { return client };
            if text.is_empty() {
                continue;
            }
            let node = if has_list { Some(text) } else { for_parameter(text) };
            let Some(address) = node.and_then(parse_node) else { return client };
            client = address;
            if !is_trusted(client, trusted) {
                return client;
            }
        }
    }
    client
}

/// The node of a `for=` parameter in one Forwarded element (RFC 7239 4).
fn for_parameter(element: &str) -> Option<&str> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then(|| value.trim().trim_matches('"'))
    })
}

/// The address of a node: with or without brackets and port, IPv4 in IPv6 unwrapped.
pub(super) fn parse_node(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip().to_canonical());
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    inner.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::head::{Field, Span};

    fn cidr(text: &str) -> Cidr {
        let (address, prefix) = text.split_once('/').unwrap();
        Cidr { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
    }

    fn client(peer: &str, lines: &[(Known, &str)]) -> String {
        let trusted = [cidr("10.0.0.0/8"), cidr("fd00::/8")];
        let mut bytes = Vec::new();
        let list: Vec<Field> = lines
            .iter()
            .map(|(known, value)| {
                let start = u32::try_from(bytes.len()).unwrap();
                bytes.extend_from_slice(value.as_bytes());
                let value = Span { start, end: u32::try_from(bytes.len()).unwrap() };
                Field { name: Span::default(), value, known: *known, hop_by_hop: false }
            })
            .collect();
        client_address(peer.parse().unwrap(), &trusted, Fields { bytes: &bytes, list: &list }).to_string()
    }

    #[test]
    fn a_stranger_is_its_own_client_whatever_it_says() {
        assert_eq!(client("192.0.2.1", &[(Known::XForwardedFor, "1.1.1.1")]), "192.0.2.1");
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_client() {
        use Known::{Forwarded, XForwardedFor};
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[(XForwardedFor, "9.9.9.9, 1.1.1.1, 10.0.0.2")]), "1.1.1.1");
        assert_eq!(client("10.0.0.1", &[(XForwardedFor, "9.9.9.9"), (XForwardedFor, "1.1.1.1")]), "1.1.1.1");
        assert_eq!(client("10.0.0.1", &[(XForwardedFor, "1.1.1.1:4711, 10.0.0.2:80")]), "1.1.1.1");
        assert_eq!(client("fd00::1", &[(XForwardedFor, "[2001:db8::1]:4711")]), "2001:db8::1");
        assert_eq!(client("::ffff:10.0.0.1", &[(XForwardedFor, "[2001:db8::1]")]), "2001:db8::1");
        assert_eq!(
            client("10.0.0.1", &[(Forwarded, "for=1.1.1.1, For=\"[2001:db8::1]:80\";proto=http")]),
            "2001:db8::1"
        );
        assert_eq!(client("10.0.0.1", &[(XForwardedFor, "10.0.0.3, 10.0.0.2")]), "10.0.0.3");
    }

    #[test]
    fn what_stands_left_of_nonsense_is_not_believed() {
        assert_eq!(client("10.0.0.1", &[(Known::XForwardedFor, "1.1.1.1, unknown, 10.0.0.2")]), "10.0.0.2");
        assert_eq!(client("10.0.0.1", &[(Known::Forwarded, "for=1.1.1.1, for=_hidden")]), "10.0.0.1");
    }

    #[test]
    fn ranges_hold_what_their_prefix_says() {
        assert!(cidr("0.0.0.0/0").contains("8.8.8.8".parse().unwrap()));
        assert!(cidr("192.0.2.128/25").contains("192.0.2.200".parse().unwrap()));
        assert!(!cidr("192.0.2.128/25").contains("192.0.2.1".parse().unwrap()));
        assert!(cidr("::/0").contains("2001:db8::1".parse().unwrap()));
        assert!(!cidr("::/0").contains("8.8.8.8".parse().unwrap()));
    }
}

//! Who a client is: the peer, or what trusted proxies say of it.

use std::net::{IpAddr, SocketAddr};

use crate::pure::head::{Fields, Known};
use crate::pure::rule::Cidr;
use crate::pure::rule::parts::split_unquoted;

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
    if has_list { last_listed(peer, trusted, fields) } else { last_forwarded(peer, trusted, fields) }
}

/// From the right of X-Forwarded-For, where the first look mostly is the last.
fn last_listed(peer: IpAddr, trusted: &[Cidr], fields: Fields<'_>) -> IpAddr {
    let mut client = peer;
    for line in lines(fields, Known::XForwardedFor).rev() {
        for element in line.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty()) {
            let Some(address) = parse_node(element) else { return client };
            client = address;
            if !is_trusted(client, trusted) {
                return client;
            }
        }
    }
    client
}

/// From the left of Forwarded, for where a quoted string begins can't be told from the right. What ends the search from
/// the right undoes here what was found before.
fn last_forwarded(peer: IpAddr, trusted: &[Cidr], fields: Fields<'_>) -> IpAddr {
    let mut client = None;
    for line in lines(fields, Known::Forwarded) {
        for element in split_unquoted(line, b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty()) {
            client = match for_parameter(element).and_then(parse_node) {
                None => None,
                Some(address) if is_trusted(address, trusted) => client.or(Some(address)),
                Some(address) => Some(address),
            };
        }
    }
    client.unwrap_or(peer)
}

fn lines(fields: Fields<'_>, known: Known) -> impl DoubleEndedIterator<Item = &[u8]> {
    fields.list.iter().filter(move |field| field.known == known).map(move |field| field.value.of(fields.bytes))
}

/// The node of a `for=` parameter in one Forwarded element (RFC 7239 4); `None` too where a quote is not closed, or stands
/// within a value: who wrote what of such an element is not known.
fn for_parameter(element: &[u8]) -> Option<&[u8]> {
    let mut node = None;
    for pair in split_unquoted(element, b';').map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty()) {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair.get(..at)?, unquoted(pair.get(at + 1..)?)?);
        if node.is_none() && name.eq_ignore_ascii_case(b"for") {
            node = Some(value);
        }
    }
    node
}

/// What a value says that is a quoted string as a whole, its escapes left as they are, or has no quote at all.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    let Some(rest) = value.strip_prefix(b"\"") else {
        return (!value.contains(&b'"')).then_some(value);
    };
    let mut is_escaped = false;
    let end = rest.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    })?;
    (end + 1 == rest.len()).then(|| rest.get(..end))?
}

/// The address of a node: with or without brackets and port, IPv4 in IPv6 unwrapped.
pub(super) fn parse_node(node: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(node).ok()?;
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
    fn an_address_within_a_quoted_string_is_nobodys() {
        let forwarded = |value: &str| client("10.0.0.1", &[(Known::Forwarded, value)]);
        assert_eq!(forwarded("for=1.2.3.4;host=\"x, for=127.0.0.1\""), "1.2.3.4");
        assert_eq!(forwarded("host=\"x;for=127.0.0.1;\";for=\"1.2.3.4:80\""), "1.2.3.4");
        assert_eq!(forwarded("for=1.2.3.4;host=\"x\\\", for=127.0.0.1\""), "1.2.3.4");
        assert_eq!(forwarded("for=9.9.9.9, for=1.2.3.4;host=\"x, y\", for=10.0.0.2"), "1.2.3.4");
    }

    #[test]
    fn a_broken_quote_ends_the_search() {
        let forwarded = |value: &str| client("10.0.0.1", &[(Known::Forwarded, value)]);
        assert_eq!(forwarded("for=127.0.0.1, for=1.2.3.4;host=\"x"), "10.0.0.1");
        assert_eq!(forwarded("for=\"x, for=127.0.0.1\", for=10.0.0.2"), "10.0.0.2");
        assert_eq!(forwarded("for=127.0.0.1\""), "10.0.0.1");
        assert_eq!(forwarded("for=\"127.0.0.1\"x"), "10.0.0.1");
        assert_eq!(forwarded("for=127.0.0.1;host=a\"b\""), "10.0.0.1");
        let lines = [
            (Known::Forwarded, "for=127.0.0.1"),
            (Known::Forwarded, "for=\"1.2.3.4"),
            (Known::Forwarded, "for=10.0.0.3"),
        ];
        assert_eq!(client("10.0.0.1", &lines), "10.0.0.3");
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

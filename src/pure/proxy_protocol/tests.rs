//! Headers from the specification and around its edges; what is written is read again; pieces make no difference.

use proptest::prelude::*;

use super::*;

fn complete(bytes: &[u8]) -> Source {
    match parse(bytes) {
        Ok(Parsed::Complete(header)) => {
            assert_eq!(header.length, bytes.len(), "{bytes:?}");
            header.source
        }
        other => panic!("{other:?} of {bytes:?}"),
    }
}

fn client(client: &str, called: &str) -> Source {
    Source::Client(Endpoints { client: client.parse().unwrap(), called: called.parse().unwrap() })
}

/// A header of version 2 with this command and family, its length put in.
fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &length, block].concat()
}

#[test]
fn lines_of_version_1_are_read() {
    let line = b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n";
    assert_eq!(complete(line), client("192.168.0.1:56324", "192.168.0.11:443"));
    let line = b"PROXY TCP6 2001:db8::1 ::ffff:1.2.3.4 0 65535\r\n";
    assert_eq!(complete(line), client("[2001:db8::1]:0", "[::ffff:1.2.3.4]:65535"));
    let longest = [b"PROXY UNKNOWN ".as_slice(), &[b'f'; 91], b"\r\n"].concat();
    for line in [b"PROXY UNKNOWN\r\n".as_slice(), b"PROXY UNKNOWN  what ever\r\n", &longest] {
        assert_eq!(complete(line), Source::Unnamed);
    }
}

#[test]
fn lines_that_break_version_1_are_refused() {
    for line in [
        "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\r\n",
        "PROXY TCP4  192.168.0.1 192.168.0.11 56324 443\r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443 \r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 56324\r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443 1\r\n",
        "PROXY TCP4 192.168.0.01 192.168.0.11 56324 443\r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 056324 443\r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 +1 443\r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 65536 443\r\n",
        "PROXY TCP4 ::1 192.168.0.11 1 443\r\n",
        "PROXY TCP6 192.168.0.1 192.168.0.11 1 443\r\n",
        "PROXY TCP6 fe80::1%1 ::1 1 443\r\n",
        "PROXY tcp4 192.168.0.1 192.168.0.11 1 443\r\n",
        "PROXY UDP4 192.168.0.1 192.168.0.11 1 443\r\n",
        "PROXY UNKNOWN\n",
        "PROXY UNKNOWN a\rb\r\n",
        "PROXY  UNKNOWN\r\n",
        "PROXY \r\n",
        "PROXY \n",
    ] {
        assert_eq!(parse(line.as_bytes()), Err(HeaderError::Line), "{line:?}");
    }
    let long = [b"PROXY UNKNOWN ".as_slice(), &[b'f'; 92], b"\r\n"].concat();
    assert_eq!(parse(&long), Err(HeaderError::TooLong));
}

#[test]
fn what_begins_otherwise_is_refused_with_its_first_wrong_byte() {
    for bytes in ["GET / HTTP/1.1\r\n", "P ", "PROXYTCP4", "proxy", "\r\n\r\n\0\r\nQUIT\r", "\r\n\r\r", "\x16\x03\x01"]
    {
        assert_eq!(parse(bytes.as_bytes()), Err(HeaderError::Missing), "{bytes:?}");
    }
    for bytes in ["", "P", "PROXY", "PROXY ", "\r", "\r\n\r\n\0\r\nQUIT\n"] {
        assert_eq!(parse(bytes.as_bytes()), Ok(Parsed::Partial), "{bytes:?}");
    }
}

#[test]
fn headers_of_version_2_are_read() {
    let v4 = [1, 2, 3, 4, 127, 0, 0, 1, 0x12, 0x34, 0, 80];
    let mut v6 = [0; 36];
    (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 3, 4);
    for transport in [1, 2] {
        assert_eq!(complete(&binary(0x21, 0x10 | transport, &v4)), client("1.2.3.4:4660", "127.0.0.1:80"));
        assert_eq!(complete(&binary(0x21, 0x20 | transport, &v6)), client("[::1]:3", "[::2]:4"));
        assert_eq!(complete(&binary(0x21, 0x30 | transport, &[b'/'; 216])), Source::Unnamed);
    }
    // Fields behind the addresses are passed over, whatever they say of themselves.
    let more = [v4.as_slice(), &[4, 0xFF, 0xFF, 1, 2, 3]].concat();
    assert_eq!(complete(&binary(0x21, 0x11, &more)), client("1.2.3.4:4660", "127.0.0.1:80"));
    for family in [0x00, 0x01, 0x10, 0x20, 0x30] {
        assert_eq!(complete(&binary(0x21, family, &v4)), Source::Unnamed);
        assert_eq!(complete(&binary(0x21, family, &[])), Source::Unnamed);
    }
    // Who speaks for himself may put anything there (section 2.2).
    for family in [0x00, 0x11, 0x31, 0xFF] {
        assert_eq!(complete(&binary(0x20, family, &[])), Source::Proxy);
        assert_eq!(complete(&binary(0x20, family, &v6)), Source::Proxy);
    }
    assert_eq!(complete(&binary(0x20, 0, &vec![0; HEADER_MAX - FIXED])), Source::Proxy);
}

#[test]
fn headers_that_break_version_2_are_refused() {
    for (command, family, length, error) in [
        (0x11, 0x11, 12, HeaderError::Command),
        (0x22, 0x11, 12, HeaderError::Command),
        (0x31, 0x11, 12, HeaderError::Command),
        (0x21, 0x13, 12, HeaderError::Family),
        (0x21, 0x41, 12, HeaderError::Family),
        (0x21, 0x11, 11, HeaderError::Addresses),
        (0x21, 0x21, 35, HeaderError::Addresses),
        (0x21, 0x31, 215, HeaderError::Addresses),
        (0x21, 0x11, HEADER_MAX - FIXED + 1, HeaderError::TooLong),
        (0x20, 0x00, 0xFFFF, HeaderError::TooLong),
    ] {
        let header = binary(command, family, &vec![0; length]);
        assert_eq!(parse(&header), Err(error), "{command:x} {family:x} {length}");
    }
}

#[test]
fn headers_are_written_as_others_read_them() {
    let written = |version, source| {
        let mut out = Vec::new();
        push(&mut out, version, source);
        out
    };
    let named = client("192.0.2.1:4660", "[::ffff:127.0.0.1]:80");
    assert_eq!(written(Version::V1, named), b"PROXY TCP4 192.0.2.1 127.0.0.1 4660 80\r\n");
    let expected = binary(0x21, 0x11, &[192, 0, 2, 1, 127, 0, 0, 1, 0x12, 0x34, 0, 80]);
    assert_eq!(written(Version::V2, named), expected);
    let mixed = client("192.0.2.1:1", "[2001:db8::1]:2");
    assert_eq!(written(Version::V1, mixed), b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n");
    assert_eq!(written(Version::V2, Source::Proxy), binary(0x20, 0, &[]));
    assert_eq!(written(Version::V2, Source::Unnamed), binary(0x21, 0, &[]));
    assert_eq!(written(Version::V1, Source::Unnamed), b"PROXY UNKNOWN\r\n");
    let widest =
        client("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0]:65535", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
    assert_eq!(written(Version::V1, widest).len(), 104);
}

fn address() -> impl Strategy<Value = SocketAddr> {
    let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
    let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
    let mapped = any::<[u8; 4]>().prop_map(|octets| IpAddr::V6(Ipv4Addr::from(octets).to_ipv6_mapped()));
    (prop_oneof![v4, v6, mapped], any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn source() -> impl Strategy<Value = Source> {
    let named = (address(), address()).prop_map(|(client, called)| Source::Client(Endpoints { client, called }));
    prop_oneof![1 => Just(Source::Proxy), 1 => Just(Source::Unnamed), 8 => named]
}

/// Bytes that look like a header for a while.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    let version = prop_oneof![Just(Version::V1), Just(Version::V2)];
    let header = (version, source()).prop_map(|(version, source)| {
        let mut out = Vec::new();
        push(&mut out, version, source);
        out
    });
    let change = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (header, change, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(mut header, change, rest)| {
        if let Some((at, byte)) = change {
            let at = at.index(header.len());
            header[at] = byte;
        }
        header.extend(rest);
        header
    })
}

/// The same addresses, which may have become IPv4 or IPv6 on their way.
fn canonical(source: Source) -> Source {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    match source {
        Source::Client(ends) => Source::Client(Endpoints { client: plain(ends.client), called: plain(ends.called) }),
        other => other,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(source in source(), is_v1: bool) {
        let mut out = b"before".to_vec();
        push(&mut out, if is_v1 { Version::V1 } else { Version::V2 }, source);
        let expected = if is_v1 && source == Source::Proxy { Source::Unnamed } else { source };
        prop_assert_eq!(canonical(complete(&out[6..])), canonical(expected));
    }

    #[test]
    fn pieces_make_no_difference(bytes in prop_oneof![likely(), prop::collection::vec(any::<u8>(), 0..60)]) {
        let whole = parse(&bytes);
        let mut first = Ok(Parsed::Partial);
        for end in 0..=bytes.len() {
            let now = parse(&bytes[..end]);
            if first != Ok(Parsed::Partial) {
                prop_assert_eq!(now, first, "what has been told once stays so");
            }
            if let Ok(Parsed::Complete(header)) = now {
                prop_assert!(header.length <= end && header.length <= HEADER_MAX);
            }
            first = now;
        }
        prop_assert_eq!(first, whole);
        prop_assert!(bytes.len() < HEADER_MAX || whole != Ok(Parsed::Partial));
    }
}

//! Heads of every kind that our own parser lets through, held against what it found in them.

use proptest::prelude::*;

use super::*;
use crate::pure::h1::request::{HeadLimits, Parsed, parse_request_head};
use crate::pure::h2::hpack::{Decoder, FieldBlock};

const LIMITS: HeadLimits = HeadLimits { bytes: 1 << 20, fields: 1000 };

fn parse(bytes: &[u8]) -> Option<RequestHead> {
    let mut head = RequestHead::default();
    (parse_request_head(bytes, LIMITS, &mut head) == Ok(Parsed::Complete)).then_some(head)
}

/// The fields of a request, and its upgrade.
#[derive(Debug)]
struct Mapped {
    fields: Vec<(String, Vec<u8>)>,
    tunnel: Option<Tunnel>,
}

impl Mapped {
    fn of(head: &RequestHead, bytes: &[u8], is_tls: bool) -> Self {
        let tunnel = Tunnel::of(head, bytes);
        let (mut out, mut block) = (Vec::new(), FieldBlock::default());
        push_server_request(&mut Encoder::default(), &mut out, (head, bytes), tunnel.as_ref(), is_tls);
        Decoder::default().decode(&out, 1 << 20, &mut block).unwrap();
        let fields = block.fields().map(|(name, value)| (String::from_utf8(name.to_vec()).unwrap(), value.to_vec()));
        Self { fields: fields.collect(), tunnel }
    }

    /// The one field of that name.
    fn get(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.fields.iter().filter(|(other, _)| other == name);
        let value = values.next();
        assert_eq!(values.next(), None, "{name}");
        value.map(|(_, value)| value.as_slice())
    }
}

fn mapped(text: &str) -> Mapped {
    let head = parse(text.as_bytes()).unwrap();
    Mapped::of(&head, text.as_bytes(), false)
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits: Vec<u8> = bytes.by_ref().take(2).collect();
            out.push(u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            out.push(byte);
        }
    }
    out
}

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Some(head) = parse(bytes) else { return Ok(()) };
    let mapped = Mapped::of(&head, bytes, false);
    prop_assert_eq!(mapped.get(":authority").unwrap_or_default(), head.authority.of(bytes));
    prop_assert_eq!(mapped.tunnel.is_some(), !head.upgrade.is_empty());
    let method = if mapped.tunnel.is_some() { b"CONNECT" } else { head.method.of(bytes) };
    prop_assert_eq!(mapped.get(":method"), Some(method));
    let is_graphic = |byte: &u8| (b'!'..=b'~').contains(byte);
    prop_assert!(mapped.get(":path").is_some_and(|path| !path.is_empty() && path.iter().all(is_graphic)));
    let mut expected: Vec<(String, Vec<u8>)> = head
        .fields
        .iter()
        .filter(|field| !field.hop_by_hop && field.known != Known::Host)
        .map(|field| {
            (String::from_utf8(field.name.of(bytes).to_ascii_lowercase()).unwrap(), field.value.of(bytes).to_vec())
        })
        .filter(|(name, _)| mapped.tunnel.is_none() || name != "sec-websocket-key")
        .collect();
    if head.takes_trailers {
        expected.push(("te".to_owned(), b"trailers".to_vec()));
    }
    expected.sort();
    let mut said = mapped.fields.clone();
    said.retain(|(name, _)| !name.starts_with(':'));
    said.sort();
    prop_assert_eq!(said, expected);
    for forbidden in ["connection", "host", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection"] {
        prop_assert_eq!(mapped.get(forbidden), None);
    }
    Ok(())
}

fn line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        "[A-Za-z!#$%&'*+.^_`|~0-9-]{1,10}",
        Just("Connection".to_owned()),
        Just("Upgrade".to_owned()),
        Just("TE".to_owned()),
        Just("Cookie".to_owned()),
        Just("Keep-Alive".to_owned()),
        Just("Sec-WebSocket-Key".to_owned()),
        Just("Transfer-Encoding".to_owned()),
        Just("Content-Length".to_owned()),
    ];
    let value = prop_oneof![
        "[ -~\u{a1}-\u{ff}\t]{0,20}",
        Just("upgrade, te, X".to_owned()),
        Just("websocket".to_owned()),
        Just("trailers".to_owned()),
        Just("chunked".to_owned()),
        "[0-9]{1,3}",
    ];
    (name, value).prop_map(|(name, value)| format!("{name}: {value}\r\n"))
}

proptest! {
    #[test]
    fn every_head_that_our_parser_lets_through_says_the_same_in_http_2(
        method in prop_oneof![Just("GET".to_owned()), Just("OPTIONS".to_owned()), "[A-Z!#$%&'*+.^_`|~a-z0-9-]{1,9}"],
        target in prop_oneof![Just("*".to_owned()), "/[!-~]{0,30}", "/[!-~\u{80}-\u{ffff}]{0,30}", "http://a.test[/?]?[!-~]{0,9}"],
        host in prop_oneof![Just("a.test".to_owned()), Just("A.test.:81".to_owned()), Just("[::1]:8".to_owned()), Just(String::new()), "[a-zA-Z0-9._~-]{1,20}:?"],
        lines in prop::collection::vec(line(), 0..8),
    ) {
        check(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{}\r\n", lines.concat()).as_bytes())?;
    }

    #[test]
    fn no_bytes_bring_it_down(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut whole = b"GET /".to_vec();
        bytes.retain(|byte| !matches!(byte, b'\r' | b'\n' | b' '));
        whole.append(&mut bytes);
        whole.extend_from_slice(b" HTTP/1.1\r\nHost: a\r\n\r\n");
        check(&whole)?;
    }
}

#[test]
fn targets_come_as_they_are_where_they_are_printable_and_else_escaped() {
    for (target, expected) in [
        ("/a/b;c=1?x=[y]&z=%2f", "/a/b;c=1?x=[y]&z=%2f"),
        ("/a<b>c", "/a%3Cb%3Ec"),
        ("/a|b\\c^d`e", "/a|b\\c^d`e"),
        ("*", "*"),
    ] {
        let method = if target == "*" { "OPTIONS" } else { "GET" };
        let mapped = mapped(&format!("{method} {target} HTTP/1.1\r\nHost: a.test:81\r\n\r\n"));
        assert_eq!(mapped.get(":path").map(unescaped_bytes), Some(unescaped(expected)), "{target}");
        assert_eq!(mapped.get(":scheme"), Some(&b"http"[..]));
    }
    let bytes = b"GET /\xFF\xFE?\xC3\xBC HTTP/1.1\r\nHost: a\r\n\r\n";
    let mapped = Mapped::of(&parse(bytes).unwrap(), bytes, true);
    assert_eq!(mapped.get(":path"), Some(&b"/%FF%FE?%C3%BC"[..]));
    assert_eq!(mapped.get(":scheme"), Some(&b"https"[..]));
}

fn unescaped_bytes(path: &[u8]) -> Vec<u8> {
    unescaped(str::from_utf8(path).unwrap())
}

#[test]
fn a_target_without_a_path_gets_one() {
    for (target, expected) in [("http://a.test", "/"), ("http://a.test?x=1", "/?x=1")] {
        let mapped = mapped(&format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        assert_eq!(mapped.get(":path"), Some(expected.as_bytes()));
    }
    let asked_for_all = mapped("OPTIONS http://a.test HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(asked_for_all.get(":path"), Some(&b"*"[..]));
}

#[test]
fn an_upgrade_becomes_an_extended_connect_without_its_key() {
    let mapped = mapped(
        "GET /chat HTTP/1.1\r\nHost: a.test\r\nSec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\n\
         Connection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n",
    );
    assert_eq!(mapped.tunnel, Some(Tunnel { protocol: "websocket".to_owned(), key: Some(b"abc".to_vec()) }));
    let fields: Vec<_> =
        mapped.fields.iter().map(|(name, value)| (name.as_str(), str::from_utf8(value).unwrap())).collect();
    let wanted = [
        (":method", "CONNECT"),
        (":scheme", "http"),
        (":authority", "a.test"),
        (":path", "/chat"),
        (":protocol", "websocket"),
        ("sec-websocket-version", "13"),
    ];
    assert_eq!(fields, wanted);
}

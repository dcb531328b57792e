//! Heads of every kind that our own parser lets through, held against what it found in them.

use proptest::prelude::*;

use super::*;
use crate::pure::h1::request::{HeadLimits, Parsed, parse_request_head};

const LIMITS: HeadLimits = HeadLimits { bytes: 1 << 20, fields: 1000 };

fn parse(bytes: &[u8]) -> Option<RequestHead> {
    let mut head = RequestHead::default();
    (parse_request_head(bytes, LIMITS, &mut head) == Ok(Parsed::Complete)).then_some(head)
}

fn mapped(text: &str) -> ServerRequest {
    let head = parse(text.as_bytes()).unwrap();
    server_request(&head, text.as_bytes(), false).unwrap()
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
    let Ok(ServerRequest { request, tunnel }) = server_request(&head, bytes, false) else {
        prop_assert!(head.path_and_query.len() > 65_000 / 3, "only what is too long can't be said");
        return Ok(());
    };
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes()).unwrap_or_default();
    prop_assert_eq!(authority, head.authority.of(bytes));
    prop_assert_eq!(tunnel.is_some(), !head.upgrade.is_empty());
    if tunnel.is_none() {
        prop_assert_eq!(request.method().as_str().as_bytes(), head.method.of(bytes));
    }
    let mut expected: Vec<(String, Vec<u8>)> = head
        .fields
        .iter()
        .filter(|field| !field.hop_by_hop && field.known != Known::Host)
        .map(|field| {
            (String::from_utf8(field.name.of(bytes).to_ascii_lowercase()).unwrap(), field.value.of(bytes).to_vec())
        })
        .filter(|(name, _)| tunnel.is_none() || name != "sec-websocket-key")
        .collect();
    if head.takes_trailers {
        expected.push(("te".to_owned(), b"trailers".to_vec()));
    }
    expected.sort();
    let mut said: Vec<_> =
        request.headers().iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    said.sort();
    prop_assert_eq!(said, expected);
    for forbidden in ["connection", "host", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection"] {
        prop_assert!(!request.headers().contains_key(forbidden));
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
fn targets_come_as_they_are_where_they_are_uris_and_else_escaped() {
    for (target, expected) in [
        ("/a/b;c=1?x=[y]&z=%2f", "/a/b;c=1?x=[y]&z=%2f"),
        ("/a<b>c", "/a%3Cb%3Ec"),
        ("/a|b\\c^d`e", "/a|b\\c^d`e"),
        ("*", "*"),
    ] {
        let method = if target == "*" { "OPTIONS" } else { "GET" };
        let request = mapped(&format!("{method} {target} HTTP/1.1\r\nHost: a.test:81\r\n\r\n")).request;
        let path = request.uri().path_and_query().unwrap().as_str();
        assert_eq!(unescaped(path), unescaped(expected), "{path}");
        assert_eq!(request.uri().scheme_str(), Some("http"));
        assert_eq!(request.version(), Version::HTTP_2);
    }
    let bytes = b"GET /\xFF\xFE?\xC3\xBC HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = server_request(&parse(bytes).unwrap(), bytes, true).unwrap().request;
    assert_eq!(request.uri().to_string(), "https://a/%FF%FE?%C3%BC");
}

#[test]
fn a_target_beyond_what_a_uri_may_be_is_refused() {
    let text = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(70_000));
    let head = parse(text.as_bytes()).unwrap();
    assert_eq!(server_request(&head, text.as_bytes(), false).unwrap_err(), Unmappable);
}

#[test]
fn an_upgrade_becomes_an_extended_connect_without_its_key() {
    let ServerRequest { request, tunnel } = mapped(
        "GET /chat HTTP/1.1\r\nHost: a.test\r\nSec-WebSocket-Key: abc\r\nSec-WebSocket-Version: 13\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    assert_eq!(request.method(), Method::CONNECT);
    assert_eq!(request.uri().to_string(), "http://a.test/chat");
    assert_eq!(tunnel, Some(Tunnel { protocol: "websocket".to_owned(), key: Some(b"abc".to_vec()) }));
    assert_eq!(request.headers().len(), 1);
}

#[test]
fn what_is_secret_is_never_indexed() {
    let request =
        mapped("GET / HTTP/1.1\r\nHost: a\r\nCookie: a=b\r\nAuthorization: Basic x\r\nAccept: */*\r\n\r\n").request;
    let is_sensitive = |name: &str| request.headers()[name].is_sensitive();
    assert!(is_sensitive("cookie") && is_sensitive("authorization") && !is_sensitive("accept"));
}

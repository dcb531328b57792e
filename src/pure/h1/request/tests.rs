//! Request heads: what is refused, with which status, and what the accepted ones say. Each case is also fed in every two
//! pieces and byte by byte.

use proptest::prelude::*;

use super::*;
use crate::pure::config::AmbiguousPaths;
use crate::pure::rule::path::{normalize_host, read_path, split_query};

const LIMITS: HeadLimits = HeadLimits { bytes: 4096, fields: 16 };

/// What an accepted head says, in one line: method, form, authority, path, version, body, and what else is set; behind a
/// minus the fields that are not passed on.
fn summary(buffer: &[u8], head: &RequestHead) -> String {
    let text = |span: Span| String::from_utf8_lossy(span.of(buffer)).into_owned();
    let mut out = format!(
        "{} {:?} {} {} {:?} {:?}",
        text(head.method),
        head.form.unwrap(),
        text(head.authority),
        text(head.path_and_query),
        head.version,
        head.body
    );
    for (is_set, word) in [
        (head.keep_alive, " keep"),
        (head.expects_continue, " continue"),
        (head.takes_trailers, " trailers"),
        (!head.upgrade.is_empty(), &*format!(" upgrade={}", text(head.upgrade))),
    ] {
        if is_set {
            out += word;
        }
    }
    for field in head.fields.iter().filter(|field| field.hop_by_hop) {
        out += &format!(" -{}", text(field.name));
    }
    out
}

/// Feeds the first `ends[0]` bytes, then the first `ends[1]` and so on, as a connection would.
fn parse_in_pieces(
    input: &[u8],
    limits: HeadLimits,
    ends: impl IntoIterator<Item = usize>,
) -> Result<Option<String>, RequestHeadError> {
    let mut head = RequestHead::default();
    for end in ends {
        if parse_request_head(&input[..end], limits, &mut head)? == Parsed::Complete {
            return Ok(Some(summary(input, &head)));
        }
    }
    Ok(None)
}

fn check_within(input: &[u8], limits: HeadLimits, expected: Result<Option<&str>, RequestHeadError>) {
    let expected = expected.map(|summary| summary.map(str::to_owned));
    let shown = String::from_utf8_lossy(&input[..input.len().min(200)]).into_owned();
    assert_eq!(parse_in_pieces(input, limits, [input.len()]), expected, "whole: {shown:?}");
    if input.len() > 2048 {
        return;
    }
    for split in 0..input.len() {
        assert_eq!(parse_in_pieces(input, limits, [split, input.len()]), expected, "split at {split}: {shown:?}");
    }
    assert_eq!(parse_in_pieces(input, limits, 0..=input.len()), expected, "byte by byte: {shown:?}");
}

fn check(input: impl AsRef<[u8]>, expected: Result<&str, RequestHeadError>) {
    check_within(input.as_ref(), LIMITS, expected.map(Some));
}

/// A GET with these field lines behind Host.
fn with_fields(fields: impl AsRef<[u8]>) -> Vec<u8> {
    [b"GET / HTTP/1.1\r\nHost: kit.test\r\n", fields.as_ref(), b"\r\n"].concat()
}

fn with_line(line: impl AsRef<[u8]>) -> Vec<u8> {
    [line.as_ref(), b"\r\nHost: kit.test\r\n\r\n"].concat()
}

fn with_host(host: impl AsRef<[u8]>) -> Vec<u8> {
    [b"GET / HTTP/1.1\r\nHost: ", host.as_ref(), b"\r\n\r\n"].concat()
}

const PLAIN: &str = "GET Origin kit.test / Http11 None keep";

#[test]
fn a_plain_request_is_read() {
    check(with_fields(""), Ok(PLAIN));
    check(with_fields("X-A:b\r\nX-B:  c d \t\r\nX-C:\r\nX-D: \t \r\n"), Ok(PLAIN));
    check(with_fields("X-A: caf\u{e9}\r\n"), Ok(PLAIN));
    check(with_line("get /x HTTP/1.1"), Ok("get Origin kit.test /x Http11 None keep"));
    check(with_line("GET-IT!#$ /x HTTP/1.1"), Ok("GET-IT!#$ Origin kit.test /x Http11 None keep"));
    check("GET / HTTP/1.0\r\n\r\n", Ok("GET Origin  / Http10 None"));
    check(with_line("GET / HTTP/1.0"), Ok("GET Origin kit.test / Http10 None"));
}

#[test]
fn values_are_trimmed_and_names_keep_their_case() {
    let input = with_fields("x-LONG: \t a b\t \r\nEmpty:   \r\n");
    let mut head = RequestHead::default();
    assert_eq!(parse_request_head(&input, LIMITS, &mut head), Ok(Parsed::Complete));
    let lines: Vec<_> = head.fields.iter().map(|field| (field.name.of(&input), field.value.of(&input))).collect();
    let expected: [(&[u8], &[u8]); 3] = [(b"Host", b"kit.test"), (b"x-LONG", b"a b"), (b"Empty", b"")];
    assert_eq!(lines, expected);
    assert_eq!(head.length, input.len());
}

#[test]
fn what_follows_a_head_is_not_looked_at() {
    let one = with_fields("");
    let both = [&one[..], b"\0\0garbage"].concat();
    check(&both, Ok(PLAIN));
    let mut head = RequestHead::default();
    assert_eq!(parse_request_head(&both, LIMITS, &mut head), Ok(Parsed::Complete));
    assert_eq!(head.length, one.len());
}

#[test]
fn empty_lines_before_a_request_are_skipped_but_not_without_end() {
    check([b"\r\n", &with_fields("")[..]].concat(), Ok(PLAIN));
    check([b"\r\n\r\n\r\n\r\n", &with_fields("")[..]].concat(), Ok(PLAIN));
    check([b"\r\n\r\n\r\n\r\n\r\n", &with_fields("")[..]].concat(), Err(RequestHeadError::RequestLine));
    check([b"\n", &with_fields("")[..]].concat(), Err(RequestHeadError::LineEnd));
    check([b"\r\r\n", &with_fields("")[..]].concat(), Err(RequestHeadError::LineEnd));
    check([b"\r\n ", &with_fields("")[..]].concat(), Err(RequestHeadError::RequestLine));
}

#[test]
fn request_lines_are_three_words() {
    for line in [
        "GET /",
        "GET",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET / HTTP/1.1\t",
        " GET / HTTP/1.1",
        "GET\t/\tHTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /a\tb HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET # HTTP/1.1",
        "GET HTTP/1.1",
        "GET  HTTP/1.1",
        "GET / http/1.1",
        "GET / Http/1.1",
        "GET / HTTP/1.",
        "GET / HTTP/11",
        "GET / HTTP/1.10",
        "GET / HTTP/1.1.1",
        "GET / HTTP /1.1",
        "GET / HTTPS/1.1",
        "GET / 1.1",
        "GET /\0 HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET /\u{1} HTTP/1.1",
        "GE(T / HTTP/1.1",
        "GE\u{e9}T / HTTP/1.1",
        "GET: / HTTP/1.1",
        "\0GET / HTTP/1.1",
        "\"GET\" / HTTP/1.1",
        "G\0ET / HTTP/1.1",
    ] {
        check(with_line(line), Err(RequestHeadError::RequestLine));
    }
    check(with_line("GET /\rX HTTP/1.1"), Err(RequestHeadError::LineEnd));
    check("GET / HTTP/1.1\nHost: kit.test\n\n", Err(RequestHeadError::LineEnd));
    check("GET / HTTP/1.1\nHost: kit.test\r\n\r\n", Err(RequestHeadError::LineEnd));
    check("GET /\n", Err(RequestHeadError::LineEnd));
}

#[test]
fn other_versions_are_refused_as_such() {
    for version in ["0.9", "2.0", "3.0", "9.9", "0.0"] {
        check(with_line(format!("GET / HTTP/{version}")), Err(RequestHeadError::Version));
    }
    check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Err(RequestHeadError::Version));
    check(with_line("GET / HTTP/1.2"), Ok(PLAIN));
    assert_eq!(RequestHeadError::Version.status(), 505);
}

#[test]
fn what_is_no_http_is_refused_at_its_first_bytes() {
    let mut head = RequestHead::default();
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    assert_eq!(parse_request_head(&hello[..1], LIMITS, &mut head), Err(RequestHeadError::RequestLine));
    for input in
        [&b"{\"a\": 1}"[..], b"GET /\0", b"GET\r", b"a\xff", b"\x80", b"GET / HTTP/1.1\r\n ", b"GET / HTTP/1.1\r\n:"]
    {
        let mut whole = input.to_vec();
        let result = parse_request_head(input, LIMITS, &mut head);
        whole.extend_from_slice(b"x\r\n\r\n");
        let in_the_end = parse_request_head(&whole, LIMITS, &mut RequestHead::default());
        assert!(in_the_end.is_err(), "{input:?}");
        if !input.contains(&b'\n') {
            assert_eq!(result, in_the_end, "{input:?}");
        }
        head.clear();
    }
}

#[test]
fn methods_that_are_not_spoken_are_refused() {
    check(with_line("CONNECT kit.test:443 HTTP/1.1"), Err(RequestHeadError::Method));
    check(with_line("CONNECT / HTTP/1.1"), Err(RequestHeadError::Method));
    check(with_line([&[b'A'; 33][..], b" / HTTP/1.1"].concat()), Err(RequestHeadError::Method));
    let longest = "A".repeat(32);
    check(with_line(format!("{longest} / HTTP/1.1")), Ok(&format!("{longest} Origin kit.test / Http11 None keep")));
    assert_eq!(RequestHeadError::Method.status(), 501);
}

#[test]
fn paths_pass_as_they_are() {
    for path in [
        "/a/../b/./c",
        "/%7euser/%7Euser",
        "/a/%2e%2e/b",
        "/a;v=1/b;c",
        "/q?a=b?c/d&e=f+g%20h%00&",
        "/caf\u{e9}",
        "/!$&'()*+,=:@~-._",
        "//double//",
        "/%zz%",
        "/\\\"<>^`{|}[]",
    ] {
        check(with_line(format!("GET {path} HTTP/1.1")), Ok(&format!("GET Origin kit.test {path} Http11 None keep")));
    }
    let input = with_line(b"GET /caf\xe9 HTTP/1.1");
    let mut head = RequestHead::default();
    assert_eq!(parse_request_head(&input, LIMITS, &mut head), Ok(Parsed::Complete));
    assert_eq!(head.path_and_query.of(&input), b"/caf\xe9");
}

#[test]
fn an_absolute_target_says_the_authority() {
    for (target, authority, path) in [
        ("http://good.test/x?y", "good.test", "/x?y"),
        ("HTTPS://good.test:8443/x", "good.test:8443", "/x"),
        ("http://[::1]:80/", "[::1]:80", "/"),
        ("http://good.test", "good.test", ""),
        ("http://good.test?x", "good.test", "?x"),
        ("http://good.test:80?/x?", "good.test:80", "?/x?"),
    ] {
        check(
            with_line(format!("GET {target} HTTP/1.1")),
            Ok(&format!("GET Absolute {authority} {path} Http11 None keep")),
        );
    }
    check("GET http://good.test/ HTTP/1.0\r\n\r\n", Ok("GET Absolute good.test / Http10 None"));
    check("GET http://good.test/ HTTP/1.1\r\nHost:\r\n\r\n", Ok("GET Absolute good.test / Http11 None keep"));
    check("GET http://good.test/ HTTP/1.1\r\n\r\n", Err(RequestHeadError::Host));
    for target in [
        "http://u@good.test/",
        "http://u@good.test?x",
        "http:///x",
        "http://?x",
        "http://a b/",
        "http://a,b/",
        "http://:80/",
    ] {
        let error = if target.contains(' ') { RequestHeadError::RequestLine } else { RequestHeadError::Authority };
        check(with_line(format!("GET {target} HTTP/1.1")), Err(error));
    }
    for target in ["ftp://good.test/", "http:/good.test", "http:good.test", "://good.test/", "good.test:80", "http:?x"]
    {
        check(with_line(format!("GET {target} HTTP/1.1")), Err(RequestHeadError::RequestLine));
    }
}

#[test]
fn an_asterisk_is_for_options_alone() {
    check(with_line("OPTIONS * HTTP/1.1"), Ok("OPTIONS Asterisk kit.test * Http11 None keep"));
    check("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", Ok("OPTIONS Asterisk  * Http11 None keep"));
    for line in ["GET * HTTP/1.1", "options * HTTP/1.1", "OPTIONS ** HTTP/1.1", "OPTIONS *x HTTP/1.1"] {
        check(with_line(line), Err(RequestHeadError::RequestLine));
    }
}

#[test]
fn there_is_one_host() {
    check("GET / HTTP/1.1\r\n\r\n", Err(RequestHeadError::Host));
    check(with_fields("Host: kit.test\r\n"), Err(RequestHeadError::Host));
    check(with_fields("host: evil.test\r\n"), Err(RequestHeadError::Host));
    check("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", Err(RequestHeadError::Host));
    check("GET / HTTP/1.1\r\nHost:\r\n\r\n", Err(RequestHeadError::Authority));
    check("GET / HTTP/1.0\r\nHost: \r\n\r\n", Err(RequestHeadError::Authority));
    for host in
        ["a.test", "a.test:80", "a.test:", "1.2.3.4:8080", "[::1]", "[2001:db8::1]:443", "A_b-c~d.test.", "localhost"]
    {
        check(with_host(host), Ok(&format!("GET Origin {host} / Http11 None keep")));
    }
    for host in [
        "a b.test",
        "a.test/evil",
        "a.test, evil.test",
        "a,b",
        "u@a.test",
        "a.test:80:80",
        "a.test:8x",
        "a.test:-1",
        "a.test:65536",
        "a.test: 80",
        ":80",
        "[::1",
        "::1",
        "[::1]x",
        "[::1]]",
        "[]",
        "[v1.a]",
        "[fe80::1%25eth0]",
        "[::1:",
        "a\\b",
        "a?b",
        "a#b",
        "http://a.test",
        "a%00b",
        "caf\u{e9}.test",
        "a;b",
        "a=b",
        "\"a\"",
        "a\tb",
        "*",
    ] {
        check(with_host(host), Err(RequestHeadError::Authority));
    }
    check(with_host("a\0b"), Err(RequestHeadError::Field));
}

#[test]
fn field_lines_are_a_token_a_colon_and_text() {
    for line in [
        "X-A : b",
        "X-A\t: b",
        ": b",
        "X-A",
        " X-A: b",
        "X(A): b",
        "X-\u{e9}A: b",
        "X A: b",
        "X-A: a\0b",
        "X-A: a\u{1}b",
        "X-A: a\u{7f}b",
        "X\0A: b",
        "X-A\0: b",
        "\"X\": b",
        "X[a]: b",
        "{}: b",
        "Content-Length : 0",
        "Transfer-Encoding\t: x",
    ] {
        check(with_fields(format!("{line}\r\n")), Err(RequestHeadError::Field));
    }
    check(with_fields("X-A: a\r\n b\r\n"), Err(RequestHeadError::Field));
    check(with_fields("X-A: a\r\n\tb\r\n"), Err(RequestHeadError::Field));
    check(with_fields("X-A: a\r\n \r\n"), Err(RequestHeadError::Field));
    check("GET / HTTP/1.1\r\n\tContent-Length: 3\r\nHost: a\r\n\r\n", Err(RequestHeadError::Field));
    for lines in
        ["X-A: a\rX-B: b\r\n", "X-A: a\nX-B: b\r\n", "X-A: a\r\r\n", "\rXX: y\r\n", "X-A: \r b\r\n", "X-A\n: b\r\n"]
    {
        check(with_fields(lines), Err(RequestHeadError::LineEnd));
    }
    check("GET / HTTP/1.1\r\nHost: a\r\n\n", Err(RequestHeadError::LineEnd));
    check("GET / HTTP/1.1\r\nHost: a\n\r\n", Err(RequestHeadError::LineEnd));
    check("GET / HTTP/1.1\r\nHost: a\r\n\rXX: y\r\n\r\n", Err(RequestHeadError::LineEnd));
    check(with_fields("X_Forwarded_For: 9.9.9.9\r\n"), Ok(PLAIN));
}

#[test]
fn the_body_has_one_length() {
    check(with_fields("Content-Length: 5\r\n"), Ok("GET Origin kit.test / Http11 Length(5) keep"));
    check(with_fields("Content-Length: 005\r\n"), Ok("GET Origin kit.test / Http11 Length(5) keep"));
    check(with_fields("Content-Length: 0\r\n"), Ok(PLAIN));
    check(
        with_fields("Content-Length: 18446744073709551615\r\n"),
        Ok("GET Origin kit.test / Http11 Length(18446744073709551615) keep"),
    );
    check(
        with_fields("transfer-encoding: CHUNKED\r\n"),
        Ok("GET Origin kit.test / Http11 Chunked keep -transfer-encoding"),
    );
    for length in [
        "",
        "-1",
        "+5",
        "0x5",
        "5z",
        "z5",
        "5 6",
        "5,5",
        "5, 5",
        "5, 6",
        ",5",
        "5.0",
        "5e3",
        "1_0",
        "\u{a0}5",
        "\"5\"",
        "18446744073709551616",
        "99999999999999999999999",
    ] {
        check(with_fields(format!("Content-Length: {length}\r\n")), Err(RequestHeadError::Framing));
    }
    check(with_fields("Content-Length: 5\r\nContent-Length: 6\r\n"), Err(RequestHeadError::Framing));
    check(with_fields("Content-Length: 5\r\ncontent-length: 5\r\n"), Err(RequestHeadError::Framing));
    check(with_fields("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n"), Err(RequestHeadError::Framing));
    check(with_fields("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"), Err(RequestHeadError::Framing));
}

#[test]
fn chunked_is_the_only_transfer_coding_and_comes_once() {
    for coding in [
        "xchunked",
        "\"chunked\"",
        "\u{a0}chunked",
        "cow",
        ",chunked",
        "chunked,",
        "chunked, chunked",
        "gzip, chunked",
        "chunked, identity",
        "identity",
        "chunked;q=1",
        "chunke",
        "chunked\u{e9}",
        "chun ked",
    ] {
        check(with_fields(format!("Transfer-Encoding: {coding}\r\n")), Err(RequestHeadError::TransferCoding));
    }
    check(with_fields("Transfer-Encoding:\r\n"), Err(RequestHeadError::Framing));
    check(with_fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), Err(RequestHeadError::Framing));
    check(with_fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n"), Err(RequestHeadError::Framing));
    check(
        with_fields("Transfer-Encoding: cow\r\nTransfer-Encoding: chunked\r\n"),
        Err(RequestHeadError::TransferCoding),
    );
    check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Err(RequestHeadError::Framing));
    check(
        "POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n",
        Ok("POST Origin  / Http10 Length(2) keep -Connection"),
    );
}

#[test]
fn expectations() {
    for value in ["100-continue", "100-Continue", "100-continue, 100-continue"] {
        check(
            with_fields(format!("Expect: {value}\r\nContent-Length: 5\r\n")),
            Ok("GET Origin kit.test / Http11 Length(5) keep continue"),
        );
    }
    check(with_fields("Expect:\r\n"), Ok(PLAIN));
    for value in ["200-ok", "100-continue, x", "100-continue=1", "100 -continue", "\"100-continue\""] {
        check(with_fields(format!("Expect: {value}\r\n")), Err(RequestHeadError::Expectation));
    }
    assert_eq!(RequestHeadError::Expectation.status(), 417);
    check("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", Ok("GET Origin  / Http10 None -Expect"));
}

#[test]
fn connection_says_what_goes_no_further() {
    check(with_fields("Connection: close\r\n"), Ok("GET Origin kit.test / Http11 None -Connection"));
    check(with_fields("Connection: , Close ,\r\n"), Ok("GET Origin kit.test / Http11 None -Connection"));
    check(
        with_fields("Connection: keep-alive\r\nConnection: close\r\n"),
        Ok("GET Origin kit.test / Http11 None -Connection -Connection"),
    );
    check(
        with_fields("Connection: keep-alive, X-Secret\r\nX-Secret: 1\r\nX-Keep: 2\r\n"),
        Ok("GET Origin kit.test / Http11 None keep -Connection -X-Secret"),
    );
    check(
        with_fields("x-secret: 1\r\nCookie: a\r\nConnection: X-SECRET\r\nconnection:cookie\r\n"),
        Ok("GET Origin kit.test / Http11 None keep -x-secret -Cookie -Connection -connection"),
    );
    check(
        with_fields("Keep-Alive: timeout=9\r\nProxy-Connection: x\r\nHTTP2-Settings: AA\r\nUpgrade: h2c\r\n"),
        Ok("GET Origin kit.test / Http11 None keep -Keep-Alive -Proxy-Connection -HTTP2-Settings -Upgrade"),
    );
    check("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Ok("GET Origin  / Http10 None keep -Connection"));
    check("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", Ok("GET Origin  / Http10 None -Connection"));
}

#[test]
fn connection_can_not_remove_what_others_rely_on() {
    for name in [
        "Host",
        "Content-Length",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "Forwarded",
        "Via",
        "X-Request-Id",
    ] {
        let line = match name {
            "Host" => String::new(),
            "Content-Length" => "Content-Length: 0\r\n".to_owned(),
            _ => format!("{name}: x\r\n"),
        };
        check(
            with_fields(format!("Connection: {}\r\n{line}", name.to_ascii_lowercase())),
            Ok("GET Origin kit.test / Http11 None keep -Connection"),
        );
    }
}

#[test]
fn connection_options_are_bounded() {
    let options = |count: usize| with_fields(format!("Connection: {}\r\n", vec!["x-a"; count].join(",")));
    check(options(64), Ok("GET Origin kit.test / Http11 None keep -Connection"));
    check(options(65), Err(RequestHeadError::TooLarge));
    check(with_fields("Connection: a\r\n".repeat(15)).as_slice(), Ok(&format!("{PLAIN}{}", " -Connection".repeat(15))));
}

#[test]
fn upgrade_counts_where_connection_names_it() {
    check(with_fields("Upgrade: websocket\r\n"), Ok("GET Origin kit.test / Http11 None keep -Upgrade"));
    check(
        with_fields("Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"),
        Ok("GET Origin kit.test / Http11 None keep upgrade=websocket -Upgrade -Connection"),
    );
    check(
        with_fields("Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n"),
        Ok("GET Origin kit.test / Http11 None keep -Connection -Upgrade -Upgrade"),
    );
    check(
        "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        Ok("GET Origin  / Http10 None -Connection -Upgrade"),
    );
}

#[test]
fn te_says_whether_trailers_are_taken() {
    check(
        with_fields("TE: gzip;q=0.5, Trailers\r\nConnection: TE\r\n"),
        Ok("GET Origin kit.test / Http11 None keep trailers -TE -Connection"),
    );
    check(with_fields("TE: gzip\r\n"), Ok("GET Origin kit.test / Http11 None keep -TE"));
    check("GET / HTTP/1.0\r\nTE: trailers\r\n\r\n", Ok("GET Origin  / Http10 None -TE"));
}

#[test]
fn heads_are_limited() {
    let head = with_fields("X-A: b\r\n");
    let limits = |bytes| HeadLimits { bytes, fields: 2 };
    check_within(&head, limits(head.len()), Ok(Some(PLAIN)));
    check_within(&[b"\r\n", &head[..]].concat(), limits(head.len()), Ok(Some(PLAIN)));
    check_within(&head, limits(head.len() - 1), Err(RequestHeadError::TooLarge));
    check_within(&head, limits(17), Err(RequestHeadError::TooLarge));
    check_within(&head, limits(16), Err(RequestHeadError::TooLarge));
    check_within(&head, limits(15), Err(RequestHeadError::TargetTooLong));
    check_within(&head, limits(2), Err(RequestHeadError::TargetTooLong));
    check_within(&with_fields("A: b\r\nC: d\r\n"), limits(4096), Err(RequestHeadError::TooLarge));

    let long = |count| "a".repeat(count);
    check(with_line(format!("GET /{} HTTP/1.1", long(8192))), Err(RequestHeadError::TargetTooLong));
    check(with_fields(format!("X-Big: {}\r\n", long(8192))), Err(RequestHeadError::TooLarge));
    check(with_fields("a:b\r\n".repeat(200)), Err(RequestHeadError::TooLarge));
    let unlimited = HeadLimits { bytes: usize::MAX, fields: usize::MAX };
    check_within(&with_fields("a:b\r\n".repeat(2000)), unlimited, Ok(Some(PLAIN)));
    assert_eq!((RequestHeadError::TargetTooLong.status(), RequestHeadError::TooLarge.status()), (414, 431));
}

#[test]
fn an_unfinished_head_is_awaited() {
    let head = with_fields("X-A: b\r\n");
    for end in 0..head.len() {
        check_within(&head[..end], LIMITS, Ok(None));
    }
}

#[test]
fn a_head_is_reused() {
    let mut head = RequestHead::default();
    let first = with_fields("Connection: close\r\nContent-Length: 5\r\nExpect: 100-continue\r\n");
    assert_eq!(parse_request_head(&first, LIMITS, &mut head), Ok(Parsed::Complete));
    let second = with_fields("X-A: b\r\n");
    assert_eq!(parse_request_head(&second, LIMITS, &mut head), Ok(Parsed::Complete));
    assert_eq!(summary(&second, &head), PLAIN);
    assert_eq!(parse_request_head(b"GET / HTTP/1.1\r\nX", LIMITS, &mut head), Ok(Parsed::Partial));
    head.clear();
    assert_eq!(parse_request_head(&second, LIMITS, &mut head), Ok(Parsed::Complete));
    assert_eq!(summary(&second, &head), PLAIN);
    assert!(parse_request_head(b"GET / HTTP/1.1\r\n\0", LIMITS, &mut head).is_err());
    assert_eq!(parse_request_head(&second, LIMITS, &mut head), Ok(Parsed::Complete));
    assert_eq!(summary(&second, &head), PLAIN);
}

/// What a head says of its host and path is what the long way round says.
fn check_parts(input: &[u8]) {
    let shown = String::from_utf8_lossy(input);
    let mut head = RequestHead::default();
    if parse_request_head(input, LIMITS, &mut head) != Ok(Parsed::Complete) {
        return;
    }
    let host = normalize_host(head.authority.of(input));
    assert!(head.host.of(input).eq_ignore_ascii_case(host.as_bytes()), "{shown}");
    assert_eq!(head.is_host_plain, head.host.of(input) == host.as_bytes() && !head.authority.is_empty(), "{shown}");
    let (path, query) = split_query(head.path_and_query.of(input));
    assert_eq!(head.path.of(input), path, "{shown}");
    let query_span = Span { start: head.path.end, end: head.path_and_query.end };
    assert_eq!(query_span.of(input).get(1..), query, "{shown}");
    if head.is_path_plain {
        for policy in [AmbiguousPaths::Reject, AmbiguousPaths::RejectUnsafe, AmbiguousPaths::Allow] {
            assert_eq!(read_path(path, policy, &mut String::new()).map(str::as_bytes), Ok(path), "{shown}");
        }
    }
}

#[test]
fn host_and_path_are_told_with_the_head() {
    for host in ["a.test", "A.test", "a.tesT:80", "a.test.", "a.test..:", ".", "[::1]", "[::A]:80", "1.2.3.4:8080", ""]
    {
        check_parts(&with_host(host));
        check_parts(format!("GET /a HTTP/1.1\r\nHost: \t {host} \r\nX-A: B\r\n\r\n").as_bytes());
        for end in ["", "/", "?", "?q=/..?", "/p?q=/..?"] {
            check_parts(&with_line(format!("GET http://{host}{end} HTTP/1.1")));
        }
    }
    let is_plain = |target: &str| {
        let input = with_line(format!("GET {target} HTTP/1.1"));
        check_parts(&input);
        let mut head = RequestHead::default();
        assert_eq!(parse_request_head(&input, LIMITS, &mut head), Ok(Parsed::Complete), "{target}");
        head.is_path_plain
    };
    for target in ["/", "/128", "/a/b_c-d.e/", "/a?", "/a?b=//../%2F", "/a-path/of-more/than-sixteen/bytes.html?x"] {
        assert!(is_plain(target), "{target}");
    }
    for target in
        ["//", "/.", "/a/../b", "/a/.b", "/a%2Fb", "/\u{e9}", "/a\\b", "/fifteen-letters//", "/sixteen-letters//b"]
    {
        assert!(!is_plain(target), "{target}");
    }
    check_parts(&with_line("OPTIONS * HTTP/1.1"));
    check_parts(b"GET / HTTP/1.0\r\n\r\n");
}

/// Lines that heads are put together from: what browsers send, and what attackers do.
const LINES: [&str; 30] = [
    "GET / HTTP/1.1\r\n",
    "POST /a?b HTTP/1.0\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "GET http://a.test/ HTTP/1.1\r\n",
    "CONNECT a:1 HTTP/1.1\r\n",
    "GET / HTTP/3.0\r\n",
    "GET /\r\n",
    "Host: a.test\r\n",
    "Host: b c\r\n",
    "Host:\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: +5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive, upgrade, x-a\r\n",
    "Upgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
    "TE: trailers\r\n",
    "X-A: b\r\n",
    "X-A : b\r\n",
    " folded\r\n",
    "A: \u{e9}\t\r\n",
    "\r\n",
    "\n",
    "\r",
    "\0",
    "garbage",
    ": x\r\n",
];

proptest! {
    #[test]
    fn host_and_path_are_told_right(
        host in "[A-Za-z0-9._~-]{1,24}(:[0-9]{0,5})?",
        target in "(http://[A-Za-z.]{1,20}(:[0-9]{0,3})?)?/[a-zA-Z0-9/._~%?;-]{0,40}",
    ) {
        check_parts(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        check_parts(format!("GET {target} HTTP/1.1\r\nHost: {host}\t\r\nX-A: abcdefghijklmnop\r\n\r\n").as_bytes());
    }

    /// Whatever comes, and however it is cut, the answer is the same as for the whole.
    #[test]
    fn pieces_make_no_difference(
        lines in prop::collection::vec(prop::sample::select(&LINES[..]), 0..12),
        starts_well in any::<bool>(),
        most in 1_usize..200,
        ends in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let start = if starts_well { "GET / HTTP/1.1\r\nHost: a.test\r\n" } else { "" };
        let input = (start.to_owned() + &lines.concat()).into_bytes();
        let limits = HeadLimits { bytes: most, fields: 6 };
        let mut ends: Vec<_> = ends.iter().map(|end| end.index(input.len() + 1)).chain([input.len()]).collect();
        ends.sort_unstable();
        prop_assert_eq!(parse_in_pieces(&input, limits, ends), parse_in_pieces(&input, limits, [input.len()]));
    }
}

/// Cut before its end, a line is too short to be looked at in blocks, and its path is judged another way.
#[test]
fn a_request_without_a_host_has_none_at_the_same_place_however_it_is_cut() {
    let text = b"QUERY /ab HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    let limits = HeadLimits { bytes: 65_536, fields: 128 };
    let parsed = |cut: usize| {
        let mut head = RequestHead::default();
        let first = parse_request_head(&text[..cut], limits, &mut head);
        if first == Ok(Parsed::Partial) {
            assert_eq!(parse_request_head(text, limits, &mut head), Ok(Parsed::Complete));
        }
        head.authority
    };
    for cut in 0..=text.len() {
        assert_eq!(parsed(cut), Span::default(), "cut at {cut}");
    }
}

//! Response heads: what is refused, and how the body of what is accepted ends. Each case is also fed in every two pieces
//! and byte by byte.

use super::*;

const LIMITS: HeadLimits = HeadLimits { bytes: 4096, fields: 16 };

/// What an accepted head says: version, status, reason, body, and what else is set; behind a minus the fields that are not
/// passed on.
fn summary(buffer: &[u8], head: &ResponseHead) -> String {
    let text = |span: Span| String::from_utf8_lossy(span.of(buffer)).into_owned();
    let mut out = format!("{:?} {} '{}' {:?}", head.version, head.status, text(head.reason), head.body);
    if head.keep_alive {
        out += " keep";
    }
    if !head.upgrade.is_empty() {
        out += &format!(" upgrade={}", text(head.upgrade));
    }
    for field in head.fields.iter().filter(|field| field.hop_by_hop) {
        out += &format!(" -{}", text(field.name));
    }
    out
}

fn parse_in_pieces(
    input: &[u8],
    to_head_request: bool,
    ends: impl IntoIterator<Item = usize>,
) -> Result<Option<String>, ResponseHeadError> {
    let mut head = ResponseHead::default();
    for end in ends {
        if parse_response_head(&input[..end], LIMITS, to_head_request, &mut head)? == Parsed::Complete {
            return Ok(Some(summary(input, &head)));
        }
    }
    Ok(None)
}

fn check_answer(input: &[u8], to_head_request: bool, expected: Result<&str, ResponseHeadError>) {
    let expected = expected.map(|summary| Some(summary.to_owned()));
    let shown = String::from_utf8_lossy(&input[..input.len().min(200)]).into_owned();
    assert_eq!(parse_in_pieces(input, to_head_request, [input.len()]), expected, "whole: {shown:?}");
    if input.len() > 2048 {
        return;
    }
    for split in 0..input.len() {
        let in_two = parse_in_pieces(input, to_head_request, [split, input.len()]);
        assert_eq!(in_two, expected, "split at {split}: {shown:?}");
    }
    assert_eq!(parse_in_pieces(input, to_head_request, 0..=input.len()), expected, "byte by byte: {shown:?}");
}

fn check(input: impl AsRef<[u8]>, expected: Result<&str, ResponseHeadError>) {
    check_answer(input.as_ref(), false, expected);
}

/// A 200 with these field lines.
fn with_fields(fields: impl AsRef<[u8]>) -> Vec<u8> {
    with_status("200 OK", fields)
}

fn with_status(status: &str, fields: impl AsRef<[u8]>) -> Vec<u8> {
    [b"HTTP/1.1 ", status.as_bytes(), b"\r\n", fields.as_ref(), b"\r\n"].concat()
}

#[test]
fn a_status_line_is_a_version_a_status_and_maybe_a_reason() {
    let fields = "Content-Length: 2\r\n";
    check(with_status("200 OK", fields), Ok("Http11 200 'OK' Length(2) keep"));
    check(with_status("299 ", fields), Ok("Http11 299 '' Length(2) keep"));
    check(with_status("299", fields), Ok("Http11 299 '' Length(2) keep"));
    check(with_status("999 So  it\tis ", fields), Ok("Http11 999 'So  it\tis ' Length(2) keep"));
    check(with_status("404 Pas trouv\u{e9}", fields), Ok("Http11 404 'Pas trouv\u{e9}' Length(2) keep"));
    check("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", Ok("Http10 200 'OK' Length(2)"));
    for status in ["", "20", "2000", "099 X", "000", "20x", "2OO OK", "-20", " 200 OK", "200\tOK", "+200", "200OK"] {
        check(with_status(status, fields), Err(ResponseHeadError::StatusLine));
    }
    for line in [
        "SSH-2.0-OpenSSH_9",
        "HTTP/2.0 200 OK",
        "HTTP/0.9 200 OK",
        "http/1.1 200 OK",
        "HTTP/1.1",
        "HTTP/1.1200 OK",
        "ICY 200 OK",
        "",
        "HTTP/1.1 200 O\0K",
        "\0",
        "HTTP/11 200 OK",
    ] {
        check(format!("{line}\r\n\r\n"), Err(ResponseHeadError::StatusLine));
    }
    check("HTTP/1.1 200 OK\nA: b\n\n", Err(ResponseHeadError::LineEnd));
    check("HTTP/1.1 200 O\rK\r\n\r\n", Err(ResponseHeadError::LineEnd));
    check("\r\nHTTP/1.1 200 OK\r\n\r\n", Err(ResponseHeadError::StatusLine));
}

#[test]
fn garbage_is_told_at_its_first_bytes() {
    let mut head = ResponseHead::default();
    for input in [&b"S"[..], b"HTTQ", b"\x15\x03", b"HTTP/1.1 200 O\0"] {
        assert_eq!(parse_response_head(input, LIMITS, false, &mut head), Err(ResponseHeadError::StatusLine));
    }
}

#[test]
fn field_lines_are_as_strict_as_in_requests() {
    for line in
        ["X-A : b", ": b", "X-A", " X-A: b", "X(A): b", "X-A: a\0b", "X-A: a\r\n b", "X-A: a\r\n\tb", "X-A: \u{7f}"]
    {
        check(with_fields(format!("{line}\r\n")), Err(ResponseHeadError::Field));
    }
    for lines in ["X-A: a\rX-B: b\r\n", "X-A: a\nX-B: b\r\n", "\n", "\rX: y\r\n"] {
        check(with_fields(lines), Err(ResponseHeadError::LineEnd));
    }
    check(with_fields(format!("X-Big: {}\r\n", "a".repeat(8192))), Err(ResponseHeadError::TooLarge));
    check(with_fields("a:b\r\n".repeat(17)), Err(ResponseHeadError::TooLarge));
    check(format!("HTTP/1.1 200 {}", "a".repeat(8192)), Err(ResponseHeadError::TooLarge));
}

#[test]
fn the_body_ends_in_one_way() {
    check(with_fields(""), Ok("Http11 200 'OK' UntilClose"));
    check(with_fields("Content-Length: 0\r\n"), Ok("Http11 200 'OK' None keep"));
    check(with_fields("Content-Length: 7\r\n"), Ok("Http11 200 'OK' Length(7) keep"));
    check(with_fields("Transfer-Encoding: Chunked\r\n"), Ok("Http11 200 'OK' Chunked keep -Transfer-Encoding"));
    check("HTTP/1.0 200 OK\r\n\r\n", Ok("Http10 200 'OK' UntilClose"));
    check(
        with_fields("Content-Length: 7\r\nContent-Length: 07\r\ncontent-length: 7\r\n"),
        Ok("Http11 200 'OK' Length(7) keep -Content-Length -content-length"),
    );
    for lines in [
        "Content-Length: 7\r\nContent-Length: 8\r\n",
        "Content-Length: 7, 7\r\n",
        "Content-Length: -7\r\n",
        "Content-Length: 7x\r\n",
        "Content-Length:\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n",
    ] {
        check(with_fields(lines), Err(ResponseHeadError::Framing));
    }
    for coding in ["gzip, chunked", "chunked, gzip", "identity", "xchunked", "gzip"] {
        check(with_fields(format!("Transfer-Encoding: {coding}\r\n")), Err(ResponseHeadError::TransferCoding));
    }
    check("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Err(ResponseHeadError::Framing));
}

#[test]
fn some_answers_never_have_a_body() {
    check(with_status("304 Not Modified", "Content-Length: 999\r\n"), Ok("Http11 304 'Not Modified' None keep"));
    check(with_status("304 Not Modified", ""), Ok("Http11 304 'Not Modified' None keep"));
    check(with_status("204 No Content", ""), Ok("Http11 204 'No Content' None keep"));
    check(with_status("204 X", "Content-Length: 0\r\n"), Ok("Http11 204 'X' None keep -Content-Length"));
    check(with_status("204 X", "Content-Length: 5\r\n"), Ok("Http11 204 'X' None -Content-Length"));
    check(with_status("204 X", "Transfer-Encoding: chunked\r\n"), Ok("Http11 204 'X' None -Transfer-Encoding"));
    check(with_status("100 Continue", ""), Ok("Http11 100 'Continue' None keep"));
    check(with_status("103 Early Hints", "Link: </a>\r\n"), Ok("Http11 103 'Early Hints' None keep"));
    for (fields, expected) in [
        ("", "Http11 200 'OK' None keep"),
        ("Content-Length: 999\r\n", "Http11 200 'OK' None keep"),
        ("Transfer-Encoding: chunked\r\n", "Http11 200 'OK' None keep -Transfer-Encoding"),
    ] {
        check_answer(&with_fields(fields), true, Ok(expected));
    }
}

#[test]
fn connection_says_what_goes_no_further() {
    check(
        with_fields(
            "Connection: keep-alive, X-Up\r\nX-Up: 1\r\nKeep-Alive: timeout=77\r\nProxy-Connection: x\r\nX-Ok: 1\r\nContent-Length: 0\r\n",
        ),
        Ok("Http11 200 'OK' None keep -Connection -X-Up -Keep-Alive -Proxy-Connection"),
    );
    check(
        with_fields("Connection: close, content-length\r\nContent-Length: 2\r\n"),
        Ok("Http11 200 'OK' Length(2) -Connection"),
    );
    check(
        "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\n",
        Ok("Http10 200 'OK' Length(2) keep -Connection"),
    );
    check(
        with_status("101 Switching Protocols", "Upgrade: websocket\r\nConnection: Upgrade\r\n"),
        Ok("Http11 101 'Switching Protocols' None keep upgrade=websocket -Upgrade -Connection"),
    );
}

#[test]
fn interim_answers_and_the_final_one_are_read_one_after_the_other() {
    let both = [with_status("100 Continue", ""), with_fields("Content-Length: 3\r\n")].concat();
    let mut head = ResponseHead::default();
    assert_eq!(parse_response_head(&both, LIMITS, false, &mut head), Ok(Parsed::Complete));
    assert_eq!(head.status, 100);
    let rest = &both[head.length..];
    assert_eq!(parse_response_head(rest, LIMITS, false, &mut head), Ok(Parsed::Complete));
    assert_eq!(summary(rest, &head), "Http11 200 'OK' Length(3) keep");
    assert_eq!(head.length, rest.len());
}

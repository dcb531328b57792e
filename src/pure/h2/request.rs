//! A client's HTTP/2 request head as an HTTP/1.1 head (RFC 9113 8.3, RFC 8441).
//!
//! What is written goes through the parser of HTTP/1.1 heads, which judges it like any other: characters, authority, one
//! Host, lengths. Here is judged only what HTTP/1.1 could not show any more.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};

use crate::pure::h1::encode::push_all;
use crate::pure::h1::request::RequestHeadError;
use crate::pure::head::is_token_byte;

/// A head as it came.
#[derive(Clone, Copy, Debug)]
pub struct IncomingHead<'a> {
    /// `:method`.
    pub method: &'a Method,
    /// `:scheme`, `:authority` and `:path`.
    pub uri: &'a Uri,
    /// The fields.
    pub fields: &'a HeaderMap,
    /// `:protocol` of an extended CONNECT.
    pub protocol: Option<&'a str>,
    /// Whether data or trailers follow.
    pub has_body: bool,
}

/// Fields that HTTP/2 has no use for (RFC 9113 8.2.2), in lower case.
const CONNECTION_FIELDS: [HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, HeaderName::from_static("keep-alive")];

/// Appends that head in HTTP/1.1. A body without Content-Length is announced as chunked. An extended CONNECT becomes the
/// GET with Upgrade that means the same; `websocket_key` is the key it names (RFC 6455 4.1), for an HTTP/2 client sends none.
///
/// # Errors
/// [`RequestHeadError`] where the head would say something else in HTTP/1.1, or nothing; `out` is to be thrown away then.
pub fn push_request(out: &mut Vec<u8>, head: &IncomingHead<'_>, websocket_key: &str) -> Result<(), RequestHeadError> {
    let is_connect = head.method == Method::CONNECT;
    let protocol = match (is_connect, head.protocol) {
        (true, None) => return Err(RequestHeadError::Method),
        (false, Some(_)) => return Err(RequestHeadError::RequestLine),
        // It would be a list in HTTP/1.1, or more than a field.
        (true, Some(protocol)) if !is_protocol(protocol) => return Err(RequestHeadError::RequestLine),
        (_, protocol) => protocol,
    };
    if head.uri.scheme_str().is_some_and(str::is_empty) {
        return Err(RequestHeadError::RequestLine);
    }
    let method = if is_connect { "GET" } else { head.method.as_str() };
    let target = head.uri.path_and_query().ok_or(RequestHeadError::RequestLine)?.as_str();
    let host = host_of(head)?;
    push_all(out, [method.as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1\r\nhost: ", host, b"\r\n"]);
    push_fields(out, head, protocol.is_some())?;
    match protocol {
        Some(protocol) => push_upgrade(out, protocol, websocket_key),
        None if head.has_body && !head.fields.contains_key(header::CONTENT_LENGTH) => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        None => {}
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Whether it is a name, with or without a version (RFC 9110 7.8).
fn is_protocol(text: &str) -> bool {
    let is_token = |part: &str| !part.is_empty() && part.bytes().all(is_token_byte);
    match text.split_once('/') {
        Some((name, version)) => is_token(name) && is_token(version),
        None => is_token(text),
    }
}

/// The one authority: `:authority`, else Host. Where both are there they must be the same (RFC 9113 8.3.1).
fn host_of<'a>(head: &IncomingHead<'a>) -> Result<&'a [u8], RequestHeadError> {
    let mut hosts = head.fields.get_all(header::HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    match (authority, host, another) {
        (_, _, Some(_)) | (None, None, _) => Err(RequestHeadError::Host),
        (Some(authority), Some(host), _) if !authority.eq_ignore_ascii_case(host.as_bytes()) => {
            Err(RequestHeadError::Host)
        }
        (Some(authority), _, _) => Ok(authority),
        (None, Some(host), _) => Ok(host.as_bytes()),
    }
}

fn push_fields(out: &mut Vec<u8>, head: &IncomingHead<'_>, is_upgrade: bool) -> Result<(), RequestHeadError> {
    let mut has_cookie = false;
    for (name, value) in head.fields {
        if CONNECTION_FIELDS.contains(name) || has_space_around(value) {
            // HTTP/1.1 would take the space away, HTTP/2 forbids it (RFC 9113 8.2.1).
            return Err(RequestHeadError::Field);
        } else if name == header::COOKIE {
            // Sent in crumbs for the sake of compression, and one field in HTTP/1.1 (RFC 9113 8.2.3).
            if !has_cookie {
                has_cookie = true;
                push_cookie(out, head.fields);
            }
        } else if is_left_out(name, is_upgrade) {
            continue;
        } else {
            push_all(out, [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
    }
    Ok(())
}

fn has_space_around(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.as_bytes().first()) || is_space(value.as_bytes().last())
}

/// Host has been written. An upgrade has no body and a key of ours.
fn is_left_out(name: &HeaderName, is_upgrade: bool) -> bool {
    name == header::HOST || (is_upgrade && (name == header::SEC_WEBSOCKET_KEY || name == header::CONTENT_LENGTH))
}

fn push_cookie(out: &mut Vec<u8>, fields: &HeaderMap) {
    out.extend_from_slice(b"cookie: ");
    let mut before: &[u8] = b"";
    for crumb in fields.get_all(header::COOKIE).iter().filter(|crumb| !crumb.is_empty()) {
        push_all(out, [before, crumb.as_bytes()]);
        before = b"; ";
    }
    out.extend_from_slice(b"\r\n");
}

fn push_upgrade(out: &mut Vec<u8>, protocol: &str, websocket_key: &str) {
    push_all(out, [b"connection: upgrade\r\nupgrade: ", protocol.as_bytes(), b"\r\n"]);
    if protocol.eq_ignore_ascii_case("websocket") {
        push_all(out, [b"sec-websocket-key: ", websocket_key.as_bytes(), b"\r\n"]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pure::h1::body::BodyLength;
    use crate::pure::h1::request::{HeadLimits, Parsed, RequestHead, parse_request_head};
    use crate::pure::head::Fields;

    fn written(uri: &str, fields: &[(&str, &str)], has_body: bool) -> Result<String, RequestHeadError> {
        write(&Method::POST, uri, fields, None, has_body)
    }

    fn write(
        method: &Method,
        uri: &str,
        fields: &[(&str, &str)],
        protocol: Option<&str>,
        has_body: bool,
    ) -> Result<String, RequestHeadError> {
        let uri: Uri = uri.parse().unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let mut out = Vec::new();
        let head = IncomingHead { method, uri: &uri, fields: &map, protocol, has_body };
        push_request(&mut out, &head, "a2V5").map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn cookie_crumbs_become_one_field_and_the_authority_becomes_host() {
        let fields = [("cookie", "a=1"), ("x-y", "z"), ("cookie", "b=2"), ("te", "trailers")];
        assert_eq!(
            written("https://a.test:8/p?q", &fields, true).unwrap(),
            "POST /p?q HTTP/1.1\r\nhost: a.test:8\r\ncookie: a=1; b=2\r\nx-y: z\r\nte: trailers\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        let with_length = written("https://a.test/", &[("content-length", "3")], true).unwrap();
        assert_eq!(with_length, "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 3\r\n\r\n");
    }

    #[test]
    fn an_extended_connect_becomes_an_upgrade() {
        let fields = [("sec-websocket-version", "13"), ("sec-websocket-key", "theirs")];
        assert_eq!(
            write(&Method::CONNECT, "https://a.test/chat", &fields, Some("websocket"), true).unwrap(),
            "GET /chat HTTP/1.1\r\nhost: a.test\r\nsec-websocket-version: 13\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-key: a2V5\r\n\r\n"
        );
        let plain = write(&Method::CONNECT, "a.test:443", &[], None, true);
        assert_eq!(plain, Err(RequestHeadError::Method));
        let odd = write(&Method::GET, "https://a.test/", &[], Some("websocket"), false);
        assert_eq!(odd, Err(RequestHeadError::RequestLine));
    }

    #[test]
    fn a_protocol_that_is_more_than_a_name_writes_no_lines_of_its_own() {
        let odd =
            ["websocket\r\nx: y", "a\r\n\r\nGET / HTTP/1.1", "websocket, h2c", "", " websocket", "a\nb", "a/", "a:b"];
        for protocol in odd {
            let written = write(&Method::CONNECT, "https://a.test/", &[], Some(protocol), true);
            assert_eq!(written, Err(RequestHeadError::RequestLine), "{protocol:?}");
        }
        assert!(write(&Method::CONNECT, "https://a.test/", &[], Some("foo/1.0"), true).is_ok());
    }

    #[test]
    fn a_host_beside_another_authority_is_refused() {
        assert!(written("https://a.test/", &[("host", "A.test")], false).is_ok());
        for hosts in [&[("host", "b.test")][..], &[("host", "a.test"), ("host", "a.test")]] {
            assert_eq!(written("https://a.test/", hosts, false), Err(RequestHeadError::Host));
        }
        assert_eq!(written("/", &[], false), Err(RequestHeadError::Host));
        assert!(written("/", &[("host", "a.test")], false).unwrap().contains("\r\nhost: a.test\r\n"));
    }

    #[test]
    fn fields_of_connections_are_refused() {
        for name in ["connection", "transfer-encoding", "upgrade", "keep-alive"] {
            assert_eq!(written("https://a.test/", &[(name, "close")], true), Err(RequestHeadError::Field), "{name}");
        }
    }

    #[test]
    fn space_around_a_value_is_refused() {
        for value in [" a", "a ", "\ta", "a\t"] {
            for name in ["x", "cookie"] {
                let fields = [("cookie", "a=1"), (name, value)];
                assert_eq!(written("https://a.test/", &fields, false), Err(RequestHeadError::Field), "{value:?}");
            }
        }
    }

    proptest! {
        /// What the parser makes of a head is what came.
        #[test]
        fn a_head_that_is_written_is_read_as_it_came(
            path in "/[a-z0-9/?=&%]{0,30}",
            fields in proptest::collection::vec(("x-[a-z0-9-]{1,12}", "[!-~]([ -~\u{80}-\u{ff}]{0,20}[!-~])?"), 0..8),
            has_body: bool,
        ) {
            let uri: Uri = format!("https://a.test{path}").parse().unwrap();
            let mut map = HeaderMap::new();
            for (name, value) in &fields {
                let latin: Vec<u8> = value.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap()).collect();
                map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), latin.as_slice().try_into().unwrap());
            }
            let mut out = Vec::new();
            let incoming = IncomingHead { method: &Method::PUT, uri: &uri, fields: &map, protocol: None, has_body };
            push_request(&mut out, &incoming, "").unwrap();
            let mut head = RequestHead::default();
            let limits = HeadLimits { bytes: 65_536, fields: 128 };
            prop_assert_eq!(parse_request_head(&out, limits, &mut head), Ok(Parsed::Complete));
            prop_assert_eq!(head.length, out.len());
            prop_assert_eq!(head.target.of(&out), path.as_bytes());
            prop_assert_eq!(head.host.of(&out), b"a.test");
            prop_assert_eq!(head.body, if has_body { BodyLength::Chunked } else { BodyLength::None });
            for name in map.keys() {
                let read: Vec<_> = Fields { bytes: &out, list: &head.fields }.named(name.as_str()).collect();
                let came: Vec<_> = map.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
                prop_assert_eq!(read, came);
            }
        }
    }
}

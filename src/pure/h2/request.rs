//! A client's HTTP/2 request head as an HTTP/1.1 head (RFC 9113 8.3, RFC 8441).
//!
//! What is written goes through the parser of HTTP/1.1 heads, which judges it like any other: authority, one Host, lengths. Here
//! is judged what HTTP/1.1 could not show any more, or would read as something else.

use crate::pure::h1::encode::push_all;
use crate::pure::h1::request::RequestHeadError;
use crate::pure::h2::field_rules::{is_name, is_value};
use crate::pure::h2::hpack::FieldBlock;
use crate::pure::head::is_token_byte;

/// A head as it came, one pass over its fields.
#[derive(Clone, Copy, Debug)]
pub struct IncomingHead<'a> {
    fields: &'a FieldBlock,
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    fault: Option<RequestHeadError>,
}

/// Fields that HTTP/2 has no use for (RFC 9113 8.2.2).
const CONNECTION_FIELDS: [&[u8]; 5] =
    [b"connection", b"transfer-encoding", b"upgrade", b"keep-alive", b"proxy-connection"];

impl<'a> IncomingHead<'a> {
    /// Looks through a head.
    pub fn of(fields: &'a FieldBlock) -> Self {
        let mut head = Self {
            fields,
            method: None,
            scheme: None,
            authority: None,
            path: None,
            protocol: None,
            host: None,
            length: None,
            fault: fields.is_too_large().then_some(RequestHeadError::TooLarge),
        };
        let mut has_fields = false;
        for (name, value) in fields.fields() {
            let taken = if name.first() == Some(&b':') {
                if has_fields { Err(RequestHeadError::RequestLine) } else { head.take_pseudo(name, value) }
            } else {
                has_fields = true;
                head.take_field(name, value)
            };
            if let Err(fault) = taken {
                head.fault.get_or_insert(fault);
            }
        }
        head
    }

    /// Whether it is a HEAD.
    pub fn is_to_head(&self) -> bool {
        self.method == Some(b"HEAD")
    }

    /// Whether it asks for a tunnel: an extended CONNECT (RFC 8441 4).
    pub const fn is_to_tunnel(&self) -> bool {
        self.protocol.is_some()
    }

    /// Whether it says a Content-Length.
    pub const fn has_length(&self) -> bool {
        self.length.is_some()
    }

    /// Whether it says that there is no data.
    pub fn says_empty(&self) -> bool {
        self.length.is_some_and(|length| !length.is_empty() && length.iter().all(|byte| *byte == b'0'))
    }

    fn take_pseudo(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), RequestHeadError> {
        let place = match name {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            b":protocol" => &mut self.protocol,
            _ => return Err(RequestHeadError::RequestLine),
        };
        if place.replace(value).is_some() { Err(RequestHeadError::RequestLine) } else { Ok(()) }
    }

    fn take_field(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), RequestHeadError> {
        // HTTP/1.1 would take space around a value away, HTTP/2 forbids it (RFC 9113 8.2.1).
        let is_fine = is_name(name) && is_value(value) && !has_space_around(value);
        if !is_fine || CONNECTION_FIELDS.contains(&name) {
            return Err(RequestHeadError::Field);
        }
        match name {
            b"host" if self.host.replace(value).is_some() => return Err(RequestHeadError::Host),
            // Nothing else of it goes beyond a connection (RFC 9113 8.2.2).
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => return Err(RequestHeadError::Field),
            b"content-length" => self.length = Some(value),
            _ => {}
        }
        Ok(())
    }
}

/// Appends that head in HTTP/1.1; `has_body`: data or trailers follow. A body without Content-Length is announced as chunked. An
/// extended CONNECT becomes the GET with Upgrade that means the same; `websocket_key` makes the key it names (RFC 6455 4.1), for
/// an HTTP/2 client sends none.
///
/// # Errors
/// [`RequestHeadError`] where the head would say something else in HTTP/1.1, or nothing; `out` is to be thrown away then.
pub fn push_request(
    out: &mut Vec<u8>,
    head: &IncomingHead<'_>,
    has_body: bool,
    websocket_key: impl FnOnce() -> String,
) -> Result<(), RequestHeadError> {
    if let Some(fault) = head.fault {
        return Err(fault);
    }
    let method = head.method.filter(|method| is_token(method)).ok_or(RequestHeadError::RequestLine)?;
    let is_connect = method == b"CONNECT";
    match (is_connect, head.protocol) {
        (true, None) => return Err(RequestHeadError::Method),
        (false, Some(_)) => return Err(RequestHeadError::RequestLine),
        // It would be a list in HTTP/1.1, or more than a field.
        (true, Some(protocol)) if !is_protocol(protocol) => return Err(RequestHeadError::RequestLine),
        _ => {}
    }
    if !head.scheme.is_some_and(is_scheme) {
        return Err(RequestHeadError::RequestLine);
    }
    let method = if is_connect { b"GET" } else { method };
    let target = head.path.filter(|path| is_target(path)).ok_or(RequestHeadError::RequestLine)?;
    push_all(out, [method, b" ", target, b" HTTP/1.1\r\nhost: ", host_of(head)?, b"\r\n"]);
    push_fields(out, head);
    match head.protocol {
        Some(protocol) => push_upgrade(out, protocol, websocket_key),
        None if has_body && !head.has_length() => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        None => {}
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().copied().all(is_token_byte)
}

/// Whether it is a name, with or without a version (RFC 9110 7.8).
fn is_protocol(text: &[u8]) -> bool {
    match text.iter().position(|byte| *byte == b'/') {
        Some(slash) => {
            let (name, version) = text.split_at(slash);
            is_token(name) && version.get(1..).is_some_and(is_token)
        }
        None => is_token(text),
    }
}

/// RFC 3986 3.1.
fn is_scheme(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_alphabetic)
        && text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Whether it is a path with or without a query, or `*` (RFC 9113 8.3.1), and nothing that ends a target.
fn is_target(path: &[u8]) -> bool {
    let begins_well = path.first() == Some(&b'/') || path == b"*";
    begins_well && !path.iter().any(|byte| matches!(byte, 0..=b' ' | b'#' | 0x7F))
}

/// The one authority: `:authority`, else Host. Where both are there they must be the same (RFC 9113 8.3.1).
fn host_of<'a>(head: &IncomingHead<'a>) -> Result<&'a [u8], RequestHeadError> {
    match (head.authority, head.host) {
        (None, None) => Err(RequestHeadError::Host),
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => Err(RequestHeadError::Host),
        (Some(authority), _) if is_value(authority) && !has_space_around(authority) => Ok(authority),
        (Some(_), _) => Err(RequestHeadError::Authority),
        (None, Some(host)) => Ok(host),
    }
}

fn push_fields(out: &mut Vec<u8>, head: &IncomingHead<'_>) {
    let is_upgrade = head.protocol.is_some();
    let mut has_cookie = false;
    for (name, value) in head.fields.fields() {
        match name {
            [b':', ..] | b"host" => {}
            // An upgrade has no body and a key of ours.
            b"sec-websocket-key" | b"content-length" if is_upgrade => {}
            b"cookie" if has_cookie => {}
            b"cookie" => {
                // Sent in crumbs for the sake of compression, and one field in HTTP/1.1 (RFC 9113 8.2.3).
                has_cookie = true;
                push_cookie(out, head.fields);
            }
            _ => push_all(out, [name, b": ", value, b"\r\n"]),
        }
    }
}

fn has_space_around(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.first()) || is_space(value.last())
}

fn push_cookie(out: &mut Vec<u8>, fields: &FieldBlock) {
    out.extend_from_slice(b"cookie: ");
    let mut before: &[u8] = b"";
    for (_, crumb) in fields.fields().filter(|(name, crumb)| *name == b"cookie" && !crumb.is_empty()) {
        push_all(out, [before, crumb]);
        before = b"; ";
    }
    out.extend_from_slice(b"\r\n");
}

fn push_upgrade(out: &mut Vec<u8>, protocol: &[u8], websocket_key: impl FnOnce() -> String) {
    push_all(out, [b"connection: upgrade\r\nupgrade: ", protocol, b"\r\n"]);
    if protocol.eq_ignore_ascii_case(b"websocket") {
        push_all(out, [b"sec-websocket-key: ", websocket_key().as_bytes(), b"\r\n"]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pure::h1::body::BodyLength;
    use crate::pure::h1::request::{HeadLimits, Parsed, RequestHead, parse_request_head};
    use crate::pure::head::Fields;

    type Field<'a> = (&'a str, &'a str);

    fn head_of(method: &str, authority: Option<&str>, path: &str, fields: &[Field<'_>]) -> FieldBlock {
        let mut block = FieldBlock::default();
        let pseudo =
            [(":method", Some(method)), (":scheme", Some("https")), (":authority", authority), (":path", Some(path))];
        for (name, value) in pseudo {
            if let Some(value) = value {
                block.push(name.as_bytes(), value.as_bytes());
            }
        }
        for (name, value) in fields {
            block.push(name.as_bytes(), value.as_bytes());
        }
        block
    }

    fn write(block: &FieldBlock, has_body: bool) -> Result<String, RequestHeadError> {
        let mut out = Vec::new();
        push_request(&mut out, &IncomingHead::of(block), has_body, || "a2V5".to_owned())
            .map(|()| String::from_utf8(out).unwrap())
    }

    fn written(
        authority: Option<&str>,
        path: &str,
        fields: &[Field<'_>],
        has_body: bool,
    ) -> Result<String, RequestHeadError> {
        write(&head_of("POST", authority, path, fields), has_body)
    }

    fn tunnel(protocol: &str, fields: &[Field<'_>]) -> Result<String, RequestHeadError> {
        let mut block = FieldBlock::default();
        block.push(b":protocol", protocol.as_bytes());
        for (name, value) in head_of("CONNECT", Some("a.test"), "/chat", fields).fields() {
            block.push(name, value);
        }
        write(&block, true)
    }

    #[test]
    fn cookie_crumbs_become_one_field_and_the_authority_becomes_host() {
        let fields = [("cookie", "a=1"), ("x-y", "z"), ("cookie", "b=2"), ("te", "trailers")];
        assert_eq!(
            written(Some("a.test:8"), "/p?q", &fields, true).unwrap(),
            "POST /p?q HTTP/1.1\r\nhost: a.test:8\r\ncookie: a=1; b=2\r\nx-y: z\r\nte: trailers\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        let with_length = written(Some("a.test"), "/", &[("content-length", "3")], true).unwrap();
        assert_eq!(with_length, "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 3\r\n\r\n");
    }

    #[test]
    fn an_extended_connect_becomes_an_upgrade() {
        let fields = [("sec-websocket-version", "13"), ("sec-websocket-key", "theirs"), ("content-length", "5")];
        assert_eq!(
            tunnel("websocket", &fields).unwrap(),
            "GET /chat HTTP/1.1\r\nhost: a.test\r\nsec-websocket-version: 13\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-key: a2V5\r\n\r\n"
        );
        assert_eq!(write(&head_of("CONNECT", Some("a.test:443"), "/", &[]), true), Err(RequestHeadError::Method));
        let mut odd = FieldBlock::default();
        odd.push(b":protocol", b"websocket");
        for (name, value) in head_of("GET", Some("a.test"), "/", &[]).fields() {
            odd.push(name, value);
        }
        assert_eq!(write(&odd, false), Err(RequestHeadError::RequestLine));
    }

    #[test]
    fn a_protocol_that_is_more_than_a_name_writes_no_lines_of_its_own() {
        let odd =
            ["websocket\r\nx: y", "a\r\n\r\nGET / HTTP/1.1", "websocket, h2c", "", " websocket", "a\nb", "a/", "a:b"];
        for protocol in odd {
            assert_eq!(tunnel(protocol, &[]), Err(RequestHeadError::RequestLine), "{protocol:?}");
        }
        assert!(tunnel("foo/1.0", &[]).is_ok());
    }

    #[test]
    fn a_host_beside_another_authority_is_refused() {
        assert!(written(Some("a.test"), "/", &[("host", "A.test")], false).is_ok());
        assert_eq!(written(Some("a.test "), "/", &[], false), Err(RequestHeadError::Authority));
        for hosts in [&[("host", "b.test")][..], &[("host", "a.test"), ("host", "a.test")]] {
            assert_eq!(written(Some("a.test"), "/", hosts, false), Err(RequestHeadError::Host));
        }
        assert_eq!(written(None, "/", &[], false), Err(RequestHeadError::Host));
        assert!(written(None, "/", &[("host", "a.test")], false).unwrap().contains("\r\nhost: a.test\r\n"));
    }

    #[test]
    fn fields_of_connections_are_refused() {
        for name in ["connection", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection"] {
            assert_eq!(written(Some("a.test"), "/", &[(name, "close")], true), Err(RequestHeadError::Field), "{name}");
        }
    }

    #[test]
    fn te_says_trailers_or_nothing() {
        assert!(written(Some("a.test"), "/", &[("te", "Trailers")], true).is_ok());
        for value in ["gzip", "trailers, gzip", ""] {
            assert_eq!(written(Some("a.test"), "/", &[("te", value)], true), Err(RequestHeadError::Field), "{value}");
        }
    }

    #[test]
    fn space_around_a_value_is_refused() {
        for value in [" a", "a ", "\ta", "a\t"] {
            for name in ["x", "cookie"] {
                let fields = [("cookie", "a=1"), (name, value)];
                assert_eq!(written(Some("a.test"), "/", &fields, false), Err(RequestHeadError::Field), "{value:?}");
            }
        }
    }

    #[test]
    fn targets_are_paths_and_nothing_that_ends_a_line_or_a_target() {
        for path in ["", "bad", "http://b.test/bad", "/a#f", "/a b", "/a\r\nx: y", "/a\0", "/\x7f"] {
            assert_eq!(written(Some("a.test"), path, &[], false), Err(RequestHeadError::RequestLine), "{path:?}");
        }
        for path in ["/", "/a?b", "*", "/\u{e4}"] {
            assert!(written(Some("a.test"), path, &[], false).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn pseudo_fields_come_once_and_first() {
        for odd in [":path", ":method", ":scheme", ":authority", ":status", ":foo"] {
            let mut twice = head_of("GET", Some("a.test"), "/", &[]);
            twice.push(odd.as_bytes(), b"/");
            assert_eq!(write(&twice, false), Err(RequestHeadError::RequestLine), "{odd}");
        }
        let mut late = FieldBlock::default();
        late.push(b"x", b"y");
        for (name, value) in head_of("GET", Some("a.test"), "/", &[]).fields() {
            late.push(name, value);
        }
        assert_eq!(write(&late, false), Err(RequestHeadError::RequestLine));
    }

    proptest! {
        /// What the parser makes of a head is what came.
        #[test]
        fn a_head_that_is_written_is_read_as_it_came(
            path in "/[a-z0-9/?=&%]{0,30}",
            fields in proptest::collection::vec(("x-[a-z0-9-]{1,12}", "[!-~]([ -~\u{80}-\u{ff}]{0,20}[!-~])?"), 0..8),
            has_body: bool,
        ) {
            let mut block = head_of("PUT", Some("a.test"), &path, &[]);
            let mut came = Vec::new();
            for (name, value) in &fields {
                let latin: Vec<u8> = value.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap()).collect();
                block.push(name.as_bytes(), &latin);
                came.push((name, latin));
            }
            let mut out = Vec::new();
            push_request(&mut out, &IncomingHead::of(&block), has_body, String::new).unwrap();
            let mut head = RequestHead::default();
            let limits = HeadLimits { bytes: 65_536, fields: 128 };
            prop_assert_eq!(parse_request_head(&out, limits, &mut head), Ok(Parsed::Complete));
            prop_assert_eq!(head.length, out.len());
            prop_assert_eq!(head.target.of(&out), path.as_bytes());
            prop_assert_eq!(head.host.of(&out), b"a.test");
            prop_assert_eq!(head.body, if has_body { BodyLength::Chunked } else { BodyLength::None });
            for (name, _) in &came {
                let read: Vec<_> = Fields { bytes: &out, list: &head.fields }.named(name).collect();
                let wanted: Vec<_> =
                    came.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_slice()).collect();
                prop_assert_eq!(read, wanted);
            }
        }

        /// Whatever comes, it is one request or none.
        #[test]
        fn nothing_that_is_written_reads_as_more_than_one_request(
            fields in proptest::collection::vec(
                (
                    prop::sample::select(vec![
                        ":method", ":scheme", ":authority", ":path", ":protocol", "host", "cookie", "content-length", "x",
                        "x: y\r\nz", "X",
                    ]),
                    prop::sample::select(vec![
                        "GET", "CONNECT", "https", "a.test", "/", "5", "a\r\nb: c", "a\r\n\r\nGET /", " ", "*", "websocket", "\0",
                    ]),
                ),
                0..8,
            ),
            has_body: bool,
        ) {
            let mut block = FieldBlock::default();
            for (name, value) in &fields {
                block.push(name.as_bytes(), value.as_bytes());
            }
            let mut out = Vec::new();
            if push_request(&mut out, &IncomingHead::of(&block), has_body, || "a2V5".to_owned()).is_ok() {
                let mut head = RequestHead::default();
                let limits = HeadLimits { bytes: 65_536, fields: 128 };
                if let Ok(parsed) = parse_request_head(&out, limits, &mut head) {
                    prop_assert_eq!(parsed, Parsed::Complete);
                    prop_assert_eq!(head.length, out.len());
                    prop_assert!(head.fields.len() <= fields.len() + 4);
                }
            }
        }
    }
}

//! An answer's HTTP/1.1 head as an HTTP/2 head (RFC 9113 8.3.2).
//!
//! Names go to lower case, the reason phrase goes, and with it every field that concerns one connection.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use crate::pure::h1::response::ResponseHead;
use crate::pure::head::{Known, Span};

/// The head of that answer, whose bytes these are; `None` where HTTP/2 can't say it. To an upgrade, the 200 that says the
/// same as a 101 is made (RFC 8441 5).
pub fn answer_head(head: &ResponseHead, bytes: &[u8]) -> Option<Response<()>> {
    let is_upgrade = head.status == 101;
    let shared = Bytes::copy_from_slice(bytes.get(..head.length)?);
    let mut fields = HeaderMap::with_capacity(head.fields.len());
    for field in &head.fields {
        if field.hop_by_hop || (is_upgrade && field.known == Known::ContentLength) {
            continue;
        }
        let name = HeaderName::from_bytes(field.name.of(bytes)).ok()?;
        if is_upgrade && name == http::header::SEC_WEBSOCKET_ACCEPT {
            continue;
        }
        fields.append(name, HeaderValue::from_maybe_shared(part(&shared, field.value)?).ok()?);
    }
    let mut answer = Response::new(());
    *answer.status_mut() = if is_upgrade { StatusCode::OK } else { StatusCode::from_u16(head.status).ok()? };
    *answer.headers_mut() = fields;
    Some(answer)
}

/// The bytes of a span, shared.
fn part(bytes: &Bytes, span: Span) -> Option<Bytes> {
    let range = span.start as usize..span.end as usize;
    (range.start <= range.end && range.end <= bytes.len()).then(|| bytes.slice(range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::h1::request::{HeadLimits, Parsed};
    use crate::pure::h1::response::parse_response_head;

    fn made(text: &str) -> Response<()> {
        let mut head = ResponseHead::default();
        let limits = HeadLimits { bytes: 65_536, fields: 128 };
        assert_eq!(parse_response_head(text.as_bytes(), limits, false, &mut head), Ok(Parsed::Complete));
        answer_head(&head, text.as_bytes()).unwrap()
    }

    #[test]
    fn fields_of_the_connection_stay_behind_and_names_are_in_lower_case() {
        let answer = made(
            "HTTP/1.1 299 Odd\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a\r\n\
             X-Y:  z \r\nSet-Cookie: b\r\nEmpty:\r\n\r\n",
        );
        assert_eq!(answer.status(), 299);
        let fields: Vec<_> = answer.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let wanted: [(&str, &[u8]); 4] = [("set-cookie", b"a"), ("set-cookie", b"b"), ("x-y", b"z"), ("empty", b"")];
        assert_eq!(fields, wanted);
    }

    #[test]
    fn a_switch_of_protocols_becomes_a_plain_success() {
        let answer = made(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\n",
        );
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers().len(), 1);
        assert_eq!(answer.headers()["sec-websocket-protocol"], "chat");
    }
}

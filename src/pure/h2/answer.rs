//! An answer's HTTP/1.1 head as an HTTP/2 head (RFC 9113 8.3.2).
//!
//! Names go to lower case, the reason phrase goes, and with it every field that concerns one connection.

use crate::pure::h1::response::ResponseHead;
use crate::pure::h2::hpack::Encoder;
use crate::pure::head::Known;

/// Appends the head of that answer, whose bytes these are, with its length or without. To an upgrade, the 200 that says the same as a 101 is made
/// (RFC 8441 5).
pub fn push_answer(encoder: &mut Encoder, out: &mut Vec<u8>, head: &ResponseHead, bytes: &[u8], says_length: bool) {
    let is_upgrade = head.status == 101;
    encoder.push_status(out, if is_upgrade { 200 } else { head.status });
    for field in &head.fields {
        let name = field.name.of(bytes);
        let is_left_out = match field.known {
            Known::ContentLength => is_upgrade || !says_length,
            _ => is_upgrade && name.eq_ignore_ascii_case(b"sec-websocket-accept"),
        };
        if !field.hop_by_hop && !is_left_out {
            encoder.push(out, name, field.value.of(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::h1::request::{HeadLimits, Parsed};
    use crate::pure::h1::response::parse_response_head;
    use crate::pure::h2::hpack::{Decoder, FieldBlock};

    fn made(text: &str, says_length: bool) -> Vec<(String, String)> {
        let mut head = ResponseHead::default();
        let limits = HeadLimits { bytes: 65_536, fields: 128 };
        assert_eq!(parse_response_head(text.as_bytes(), limits, false, &mut head), Ok(Parsed::Complete));
        let (mut out, mut fields) = (Vec::new(), FieldBlock::default());
        push_answer(&mut Encoder::default(), &mut out, &head, text.as_bytes(), says_length);
        Decoder::default().decode(&out, 65_536, &mut fields).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        fields.fields().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[track_caller]
    fn assert_made(text: &str, wanted: &[(&str, &str)]) {
        let made = made(text, true);
        let made: Vec<_> = made.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(made, wanted);
    }

    #[test]
    fn fields_of_the_connection_stay_behind_and_names_are_in_lower_case() {
        assert_made(
            "HTTP/1.1 299 Odd\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a\r\n\
             X-Y:  z \r\nSet-Cookie: b\r\nEmpty:\r\n\r\n",
            &[(":status", "299"), ("set-cookie", "a"), ("x-y", "z"), ("set-cookie", "b"), ("empty", "")],
        );
    }

    #[test]
    fn a_length_that_the_server_has_not_said_is_left_out() {
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nGrpc-Status: 5\r\n\r\n";
        assert_eq!(made(text, true).len(), 3);
        let fields = made(text, false);
        assert_eq!(fields, [(":status".to_owned(), "200".to_owned()), ("grpc-status".to_owned(), "5".to_owned())]);
    }

    #[test]
    fn a_switch_of_protocols_becomes_a_plain_success() {
        assert_made(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\
             Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\n",
            &[(":status", "200"), ("sec-websocket-protocol", "chat")],
        );
    }
}

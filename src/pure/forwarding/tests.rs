//! Heads as they are passed on, byte for byte.

use super::*;
use crate::pure::h1::request::{HeadLimits, Parsed, parse_request_head};

const LIMITS: HeadLimits = HeadLimits { bytes: 65_536, fields: 128 };

fn origin(peer: &str, is_trusted: bool, is_tls: bool) -> Origin {
    Origin {
        peer: format!("{peer}:4711").parse().unwrap(),
        local: "192.0.2.9:8080".parse().unwrap(),
        is_trusted,
        is_tls,
        via: true,
    }
}

fn forwarded(head: &str, origin: Origin) -> String {
    let mut parsed = RequestHead::default();
    assert_eq!(parse_request_head(head.as_bytes(), LIMITS, &mut parsed), Ok(Parsed::Complete));
    let mut out = Vec::new();
    let request = ForwardedRequest {
        head: &parsed,
        bytes: head.as_bytes(),
        target: None,
        origin,
        request_id: None,
        upgrade: None,
        edits: &FieldEdits::default(),
    };
    push_request_head(&mut out, &request);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_strangers_forwarding_fields_are_replaced_and_the_rest_stays_as_it_was() {
    let head = "GET /a?b HTTP/1.1\r\nHost: a.test:80\r\nx-FORWARDED-for: 9.9.9.9\r\nX-Odd:  b \r\nForwarded: for=1.1.1.1\r\n\
                Connection: close, X-Gone\r\nX-Gone: 1\r\nAccept: */*\r\n\r\n";
    assert_eq!(
        forwarded(head, origin("127.0.0.1", false, false)),
        "GET /a?b HTTP/1.1\r\nHost: a.test:80\r\nX-Odd:  b \r\nAccept: */*\r\nX-Forwarded-For: 127.0.0.1\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: a.test:80\r\nX-Forwarded-Port: 8080\r\n\
         Forwarded: for=127.0.0.1;host=\"a.test:80\";proto=http\r\nVia: 1.1 pointsman\r\n\r\n"
    );
}

#[test]
fn a_trusted_proxys_fields_are_appended_to() {
    let head = "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-For: 8.8.8.8\r\n\
                X-Forwarded-Proto: https\r\nForwarded: for=9.9.9.9\r\n\r\n";
    assert_eq!(
        forwarded(head, origin("[2001:db8::1]", true, false)),
        "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 9.9.9.9, 8.8.8.8, 2001:db8::1\r\n\
         X-Forwarded-Host: a.test\r\nX-Forwarded-Port: 8080\r\n\
         Forwarded: for=9.9.9.9, for=\"[2001:db8::1]\";host=\"a.test\";proto=http\r\nVia: 1.1 pointsman\r\n\r\n"
    );
}

/// A trusted peer that says nothing goes the general way and must get what a stranger gets by the usual one.
#[test]
fn the_usual_fields_are_those_of_the_general_way() {
    for address in ["0.0.0.0", "9.10.99.100", "255.255.255.255", "127.0.0.1"] {
        for is_tls in [false, true] {
            for via in [false, true] {
                for port in [1, 80, 443, 65_535] {
                    let mut asked = origin(address, false, is_tls);
                    asked.via = via;
                    asked.local.set_port(port);
                    let head = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
                    let general = Origin { is_trusted: true, ..asked };
                    assert_eq!(forwarded(head, asked), forwarded(head, general));
                }
            }
        }
    }
}

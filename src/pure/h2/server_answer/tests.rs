//! What is written is held against our own HTTP/1.1 parser and body decoder.

use proptest::prelude::*;

use super::*;
use crate::pure::h1::body::{BodyDecoder, BodyLength};
use crate::pure::h1::request::{HeadLimits, Parsed};
use crate::pure::h1::response::{ResponseHead, parse_response_head};
use crate::pure::h2::trailers::push_chunked_end;

const LIMITS: HeadLimits = HeadLimits { bytes: 1 << 20, fields: 1000 };

fn map(fields: &[(&str, &[u8])]) -> FieldBlock {
    let mut map = FieldBlock::default();
    for (name, value) in fields {
        map.push(name.as_bytes(), value);
    }
    map
}

/// Name and value of every field of a head that is refused by nobody.
fn read(bytes: &[u8], is_to_head: bool) -> (ResponseHead, Vec<(String, Vec<u8>)>) {
    let mut head = ResponseHead::default();
    assert_eq!(parse_response_head(bytes, LIMITS, is_to_head, &mut head), Ok(Parsed::Complete));
    assert_eq!(head.length, bytes.len());
    let list = head.fields.iter().map(|field| {
        let name = String::from_utf8(field.name.of(bytes).to_vec()).unwrap();
        (name, field.value.of(bytes).to_vec())
    });
    let list = list.collect();
    (head, list)
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z!#$%&'*+.^_`|~0-9-]{1,12}",
        Just("content-length".to_owned()),
        Just("connection".to_owned()),
        Just("transfer-encoding".to_owned()),
        Just("upgrade".to_owned()),
        Just("trailer".to_owned()),
        Just("set-cookie".to_owned()),
        Just("host".to_owned()),
    ]
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![8 => 0x20..=0x7E_u8, 1 => 0x80..=0xFF_u8, 1 => Just(b'\t')];
    prop_oneof![
        prop::collection::vec(byte, 0..20),
        "[0-9]{1,3}".prop_map(String::into_bytes),
        Just(b"close".to_vec()),
        Just(b"chunked".to_vec()),
    ]
}

fn trimmed(value: &[u8]) -> Vec<u8> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    value[start..end].to_vec()
}

proptest! {
    #[test]
    fn every_final_head_reads_as_it_was_said(
        status in 100..1000_u16,
        fields in prop::collection::vec((names(), values()), 0..8),
        is_to_head: bool,
        is_ended: bool,
    ) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let fields = map(&fields);
        let mut out = b"before".to_vec();
        let has_length = fields.fields().any(|(name, _)| name == b"content-length");
        let Ok(Body { framing: body, .. }) = push_head(&mut out, status, &fields, Circumstances { is_to_head, is_ended }) else {
            prop_assert!(status < 200 || has_length);
            return Ok(());
        };
        let (head, list) = read(&out[6..], is_to_head);
        prop_assert_eq!(head.status, status);
        prop_assert!(head.keep_alive && head.upgrade.is_empty());
        let expected: Vec<_> = fields
            .fields()
            .filter(|(name, _)| stays(name))
            .map(|(name, value)| (String::from_utf8(name.to_vec()).unwrap(), trimmed(value)))
            .collect();
        let said: Vec<_> = list.into_iter().filter(|(name, _)| name != "content-length" && name != "Transfer-Encoding").collect();
        prop_assert_eq!(said, expected);
        match body {
            AnswerBody::Chunked => prop_assert_eq!(head.body, BodyLength::Chunked),
            AnswerBody::Length => prop_assert!(matches!(head.body, BodyLength::Length(_) | BodyLength::None)),
            // A length that the stream has not brought is waited for in vain, and never taken for an end.
            AnswerBody::None => prop_assert!(head.body == BodyLength::None || is_ended && has_length),
        }
    }

    #[test]
    fn every_interim_head_reads_as_it_was_said(
        status in 100..300_u16,
        fields in prop::collection::vec((names(), values()), 0..8),
    ) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let fields = map(&fields);
        let mut out = Vec::new();
        let is_interim = push_interim(&mut out, status, &fields).is_ok();
        prop_assert_eq!(is_interim, status < 200 && status != 101);
        if is_interim {
            let (head, list) = read(&out, false);
            prop_assert_eq!((head.status, head.body), (status, BodyLength::None));
            prop_assert_eq!(list.len(), fields.fields().filter(|(name, _)| stays(name)).count());
        }
    }

    #[test]
    fn every_trailer_section_ends_a_chunked_body(fields in prop::collection::vec(("x-[a-z]{1,12}", values()), 0..8)) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let fields = map(&fields);
        let mut out = Vec::new();
        push_chunked_end(&mut out, Some(&fields));
        let mut decoder = BodyDecoder::new(BodyLength::Chunked);
        let decoded = decoder.decode(&mut out).unwrap();
        prop_assert!(decoded.is_complete && decoded.consumed == out.len() && decoded.data.is_empty());
        let lines = decoder.trailers().split(|byte| *byte == b'\n').count() - 1;
        prop_assert_eq!(lines, fields.count());
    }
}

fn body_of(status: u16, fields: &[(&str, &[u8])], is_to_head: bool, is_ended: bool) -> Option<(AnswerBody, String)> {
    let mut out = Vec::new();
    let body = push_head(&mut out, status, &map(fields), Circumstances { is_to_head, is_ended }).ok()?.framing;
    let (_, list) = read(&out, is_to_head);
    let framing = list.into_iter().filter(|(name, _)| ["content-length", "Transfer-Encoding"].contains(&name.as_str()));
    Some((body, framing.map(|(_, value)| String::from_utf8(value).unwrap()).collect()))
}

#[test]
fn bodies_are_framed_by_what_is_known_of_them() {
    let five: &[(&str, &[u8])] = &[("content-length", b"5")];
    let announced: &[(&str, &[u8])] = &[("content-length", b"5"), ("trailer", b"x-sum")];
    for (status, fields, is_to_head, is_ended, expected) in [
        (200, &[][..], false, false, (AnswerBody::Chunked, "chunked")),
        (200, &[], false, true, (AnswerBody::None, "0")),
        (200, &[], true, true, (AnswerBody::None, "")),
        (200, five, false, false, (AnswerBody::Length, "5")),
        (200, five, true, true, (AnswerBody::None, "5")),
        (200, announced, false, false, (AnswerBody::Chunked, "chunked")),
        (304, five, false, true, (AnswerBody::None, "5")),
        (304, &[], false, true, (AnswerBody::None, "")),
        (204, &[], false, true, (AnswerBody::None, "")),
        (204, &[("content-length", b"0")], false, true, (AnswerBody::None, "")),
    ] {
        let (body, framing) = body_of(status, fields, is_to_head, is_ended).unwrap();
        assert_eq!((body, framing.as_str()), expected, "{status} {fields:?}");
    }
    for length in ["", "x", "+1", "1, 1", "-1", "99999999999999999999"] {
        assert_eq!(body_of(200, &[("content-length", length.as_bytes())], false, false), None, "{length}");
    }
    assert_eq!(body_of(200, &[("content-length", b"1"), ("content-length", b"2")], false, false), None);
    let same = body_of(200, &[("content-length", b"1"), ("content-length", b"1")], false, false);
    assert_eq!(same, Some((AnswerBody::Length, "1".to_owned())));
}

#[test]
fn a_switch_answers_the_key_and_names_the_protocol() {
    let mut out = Vec::new();
    let fields =
        map(&[("sec-websocket-protocol", b"chat"), ("sec-websocket-accept", b"forged"), ("content-length", b"3")]);
    push_switch(&mut out, &fields, "websocket", Some("s3pP"));
    let (head, list) = read(&out, false);
    assert_eq!((head.status, head.upgrade.of(&out)), (101, &b"websocket"[..]));
    let names: Vec<_> = list.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let expected: [(&str, &[u8]); 4] = [
        ("sec-websocket-protocol", b"chat"),
        ("Connection", b"Upgrade"),
        ("Upgrade", b"websocket"),
        ("Sec-WebSocket-Accept", b"s3pP"),
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_head_has_one_status_first_and_nothing_but_fields_behind_it() {
    let status = |fields: &[(&str, &[u8])]| status_of(&map(fields));
    assert_eq!(status(&[(":status", b"204"), ("x-a", b"b")]), Ok(204));
    let odd: [&[(&str, &[u8])]; 9] = [
        &[],
        &[("x-a", b"b"), (":status", b"200")],
        &[(":status", b"20")],
        &[(":status", b"2000")],
        &[(":status", b"020")],
        &[(":status", b"2x0")],
        &[(":status", b"200"), (":status", b"200")],
        &[(":status", b"200"), ("X", b"y")],
        &[(":status", b"200"), ("x", b"y\r\nz: 1")],
    ];
    for fields in odd {
        assert_eq!(status(fields), Err(Malformed), "{fields:?}");
    }
}

//! What is written and read, against the examples of RFC 7541 Appendix C and against a decoder that does nothing fast.

mod naive;
mod properties;
mod vectors;

use std::collections::BTreeSet;

use super::*;

/// A block of these fields, written by an encoder that knows nothing yet.
fn encode(fields: &[(&str, &str)]) -> Vec<u8> {
    encode_next(&mut Encoder::default(), fields)
}

fn encode_next(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    for (name, value) in fields {
        encoder.push(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

fn decode_next(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, DecodeError> {
    let mut out = FieldBlock::default();
    decoder.decode(block, usize::MAX, &mut out)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Ok(out.fields().map(|(name, value)| (text(name), text(value))).collect())
}

fn is_error(block: &[u8]) -> bool {
    decode_next(&mut Decoder::default(), block).is_err()
}

/// A literal of four thousand bytes that goes into the table.
fn large_entry() -> Vec<u8> {
    let mut block = vec![0x40, 1, b'n', 0x7F, 0xA1, 0x1E];
    block.extend([b'v'; 0x7F + 0x21 + (0x1E << 7)]);
    block
}

#[test]
fn an_empty_block_has_no_fields() {
    assert_eq!(decode_next(&mut Decoder::default(), &[]), Ok(Vec::new()));
}

#[test]
fn indexes_that_there_are_not_are_errors() {
    assert!(is_error(&[0x80]), "index 0");
    assert!(is_error(&[0xBE]), "the dynamic table is empty");
    assert!(is_error(&[0x7F, 0x00, 0]), "as a name");
    assert!(is_error(&[0x0F, 0x2F, 0]), "as a name that passes");
    assert!(!is_error(&[0xBD]), "the last of the static table");
    assert!(!is_error(&[0x40, 1, b'a', 1, b'b', 0xBE]));
    assert!(is_error(&[0x40, 1, b'a', 1, b'b', 0xBF]));
}

#[test]
fn an_integer_has_at_most_four_bytes_behind_its_first() {
    assert!(!is_error(&[0x3F, 0xE0, 0x80, 0x80, 0x00]));
    assert!(is_error(&[0x3F, 0xE0, 0x80, 0x80, 0x80, 0x00]));
    assert!(is_error(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]));
    assert!(is_error(&[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), "the largest there is");
}

#[test]
fn a_representation_that_is_cut_off_is_an_error() {
    let whole = [0x40, 0x01, b'a', 0x84, 0xFF, 0xFF, 0xFF, 0xFF];
    assert!(is_error(&whole), "that is no code");
    let whole = [0x40, 0x01, b'a', 0x02, b'b', b'c'];
    assert!(!is_error(&whole));
    for length in 1..whole.len() {
        assert!(is_error(&whole[..length]), "{length} bytes");
    }
    assert!(is_error(&[0xFF, 0x80]));
    assert!(is_error(&[0x3F]));
}

#[test]
fn the_table_gets_a_size_only_before_the_first_field_and_only_what_we_allow() {
    assert!(!is_error(&[0x3F, 0xE1, 0x1F]), "4096");
    assert!(is_error(&[0x3F, 0xE2, 0x1F]), "4097");
    assert!(!is_error(&[0x20, 0x3F, 0xE1, 0x1F, 0x82]), "down and up");
    assert!(is_error(&[0x82, 0x20]));
    let mut decoder = Decoder::default();
    assert!(decode_next(&mut decoder, &[0x82]).is_ok());
    assert!(decode_next(&mut decoder, &[0x20]).is_ok(), "the next block begins anew");
}

#[test]
fn a_smaller_table_has_lost_its_oldest_entries() {
    let mut decoder = Decoder::default();
    assert!(decode_next(&mut decoder, &[0x40, 1, b'a', 1, b'1', 0x40, 1, b'b', 1, b'2']).is_ok());
    assert_eq!(decode_next(&mut decoder, &[0x3F, 34 - 31, 0xBE]).unwrap(), [("b".into(), "2".into())], "34 bytes");
    assert!(decode_next(&mut decoder, &[0xBF]).is_err());
    let mut decoder = Decoder::default();
    assert!(decode_next(&mut decoder, &[0x40, 1, b'a', 1, b'1']).is_ok());
    assert!(decode_next(&mut decoder, &[0x3F, 33 - 31, 0xBE]).is_err(), "33 bytes");
}

#[test]
fn padding_is_less_than_a_byte_of_ones() {
    let check = |coded: &[u8]| {
        let mut block = vec![0x00, 0x01, b'n', 0x80 | coded.len() as u8];
        block.extend(coded);
        decode_next(&mut Decoder::default(), &block).map(|fields| fields[0].1.clone())
    };
    assert_eq!(check(&[0b0001_1111]), Ok("a".into()));
    assert_eq!(check(&[]), Ok(String::new()));
    assert_eq!(check(&[0b0001_1110]), Err(DecodeError), "not all ones");
    assert_eq!(check(&[0b0001_1111, 0xFF]), Err(DecodeError), "eleven bits");
    assert_eq!(check(&[0xFF]), Err(DecodeError), "eight bits");
    assert_eq!(check(&[0b0101_0011, 0b1111_1000, 0xFF]), Err(DecodeError), "eight bits behind whole codes");
    assert_eq!(check(&[0xFF, 0xFF, 0xFF, 0xFF]), Err(DecodeError), "the end symbol");
    assert_eq!(check(&[0xFF, 0xFF, 0xFF, 0xFC, 0xFF, 0xFF]), Err(DecodeError), "the end symbol and more");
}

#[test]
fn fields_past_the_limit_are_left_out_and_the_table_stays_in_step() {
    let mut block = large_entry();
    block.extend([0xBE; 3]);
    block.extend([0x40, 1, b'a', 1, b'b', 0x82]);
    let size = field_size(1 + 4000);
    for (list_max, count) in [(size - 1, 0), (size, 1), (2 * size, 2), (2 * size + 200, 2), (4 * size + 34, 5)] {
        let mut decoder = Decoder::default();
        let mut out = FieldBlock::default();
        assert!(decoder.decode(&block, list_max, &mut out).is_ok());
        assert_eq!((out.count(), out.fields().count()), (count, count), "{list_max}");
        assert!(out.is_too_large());
        assert_eq!(decode_next(&mut decoder, &[0xBE]).unwrap(), [("a".into(), "b".into())]);
    }
    let mut out = FieldBlock::default();
    assert!(Decoder::default().decode(&block, 4 * size + 34 + 42, &mut out).is_ok());
    assert_eq!((out.count(), out.is_too_large()), (6, false), "the limit is the last that fits");
}

#[test]
fn fields_that_are_left_out_are_not_copied() {
    let mut block = large_entry();
    block.resize(block.len() + 100_000, 0xBE);
    let mut out = FieldBlock::default();
    assert!(Decoder::default().decode(&block, 10_000, &mut out).is_ok());
    assert_eq!((out.count(), out.is_too_large()), (2, true));
    assert!(out.memory() < 50_000, "{}", out.memory());
}

#[test]
fn after_an_error_no_field_is_there_in_parts() {
    let mut out = FieldBlock::default();
    assert!(Decoder::default().decode(&[0x82, 0x00, 1, b'n', 5, b'v'], 1000, &mut out).is_err());
    assert_eq!(out.fields().collect::<Vec<_>>(), [(&b":method"[..], &b"GET"[..])]);
    out.push(b"a", b"b");
    assert_eq!((out.count(), out.fields().count()), (2, 2));
}

#[test]
fn a_block_that_is_cleared_is_empty() {
    let mut out = FieldBlock::with_capacity(100);
    assert!(out.is_empty());
    assert!(Decoder::default().decode(&[0x82, 0x84], 60, &mut out).is_ok());
    assert!(!out.is_empty() && out.is_too_large());
    out.clear();
    assert_eq!(out, FieldBlock::default());
}

#[test]
fn what_the_static_table_has_is_one_byte() {
    let fields = [(":method", "GET"), (":path", "/"), (":scheme", "https"), ("Accept-Encoding", "gzip, deflate")];
    assert_eq!(encode(&fields), [0x82, 0x84, 0x87, 0x90]);
    for (status, byte) in [(200, 0x88), (204, 0x89), (206, 0x8A), (304, 0x8B), (400, 0x8C), (404, 0x8D), (500, 0x8E)] {
        let mut block = Vec::new();
        Encoder::default().push_status(&mut block, status);
        assert_eq!(block, [byte]);
    }
    for index in 1..=static_table::COUNT {
        let (name, value) = static_table::field(index).unwrap();
        let mut block = Vec::new();
        Encoder::default().push(&mut block, name, value);
        assert_eq!(block, [0x80 | index as u8]);
    }
}

#[test]
fn a_status_that_the_static_table_does_not_have_is_written_out() {
    let mut block = Vec::new();
    Encoder::default().push_status(&mut block, 302);
    assert_eq!(block, b"\x08\x03302");
}

#[test]
fn what_is_secret_is_marked_so_and_never_in_the_table() {
    for name in ["authorization", "Cookie", "set-cookie", "proxy-authorization"] {
        let mut encoder = Encoder::default();
        let first = encode_next(&mut encoder, &[(name, "secret=1")]);
        assert_eq!(first[0] & 0xF0, 0x10, "{name}");
        assert_eq!(encode_next(&mut encoder, &[(name, "secret=1")]), first);
    }
}

/// Names whose fields are mostly the same, in requests and in answers.
#[rustfmt::skip]
const SAME_NAMES: [&str; 36] = [
    ":authority", "User-Agent", "accept", "accept-encoding", "accept-language", "Content-Type", "te", "via",
    "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "grpc-encoding", "grpc-accept-encoding",
    "cache-control", "origin", "server", "Date", "vary", "content-encoding", "accept-ranges",
    "strict-transport-security", "alt-svc", "x-content-type-options", "x-frame-options", "referrer-policy",
    "content-security-policy", "access-control-allow-origin", "access-control-allow-credentials",
    "access-control-allow-headers", "access-control-allow-methods", "access-control-expose-headers",
    "access-control-max-age", "access-control-request-headers", "access-control-request-method", "Grpc-Status",
    "GRPC-ENCODING",
];

#[test]
fn what_is_mostly_the_same_is_one_byte_the_next_time() {
    for name in SAME_NAMES {
        let mut encoder = Encoder::default();
        assert!(encode_next(&mut encoder, &[(name, "some value")]).len() > 1);
        assert_eq!(encode_next(&mut encoder, &[(name, "some value")]), [0xBE], "{name}");
        let other = encode_next(&mut encoder, &[(name, "another value")]);
        assert!(other.len() < 14, "the name is not written again: {name}");
        assert_eq!(encode_next(&mut encoder, &[(name, "some value"), (name, "another value")]), [0xBF, 0xBE], "{name}");
    }
}

#[test]
fn what_is_mostly_different_never_comes_into_the_table() {
    for name in [":path", "age", "etag", "content-length", "location", "x-request-id"] {
        let mut encoder = Encoder::default();
        let first = encode_next(&mut encoder, &[(name, "some value")]);
        assert_eq!(first[0] & 0xF0, 0, "{name}");
        assert_eq!(encode_next(&mut encoder, &[(name, "some value")]), first);
    }
}

#[test]
fn a_value_larger_than_a_quarter_of_the_table_is_not_put_in() {
    for (length, form) in [(1024, 0x40), (1025, 0x00)] {
        let block = encode(&[("server", &"x".repeat(length))]);
        assert_eq!(block[0] & 0xC0, form, "{length}");
    }
}

#[test]
fn a_field_larger_than_the_table_does_not_empty_it() {
    for (size, form) in [(45, 0x40), (44, 0x00)] {
        let mut encoder = Encoder::default();
        encoder.set_table_max(size);
        encoder.begin(&mut Vec::new());
        assert_eq!(encode_next(&mut encoder, &[("via", "1234567890")])[0] & 0xC0, form, "{size}");
    }
}

#[test]
fn the_sizes_of_the_table_are_told_at_the_start_of_the_next_block() {
    let check = |sizes: &[u32], wanted: &[u8]| {
        let mut encoder = Encoder::default();
        sizes.iter().for_each(|size| encoder.set_table_max(*size));
        assert_eq!(encode_next(&mut encoder, &[]), wanted, "{sizes:?}");
        assert_eq!(encode_next(&mut encoder, &[]), [0_u8; 0], "once");
    };
    check(&[], &[]);
    check(&[4096], &[]);
    check(&[65_536], &[]);
    check(&[0], &[0x20]);
    check(&[100], &[0x3F, 69]);
    check(&[0, 4096], &[0x20, 0x3F, 0xE1, 0x1F]);
    check(&[0, 4096, 30, u32::MAX], &[0x20, 0x3F, 0xE1, 0x1F]);
    check(&[20, 30, 10, 25], &[0x2A, 0x39]);
}

#[test]
fn an_entry_that_has_been_pushed_out_is_written_again() {
    let mut encoder = Encoder::default();
    encoder.set_table_max(100);
    let fields = [("server", "one"), ("via", "two"), ("vary", "three")];
    let mut decoder = Decoder::default();
    for _ in 0..3 {
        let block = encode_next(&mut encoder, &fields);
        let read = decode_next(&mut decoder, &block).unwrap();
        assert_eq!(read, fields.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}

/// Entries are numbered modulo 2^16: after as many, the number of the first is another's.
#[test]
fn the_entry_of_another_name_that_has_the_number_of_one_that_is_gone_is_not_taken_for_it() {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let mut check = |name: &str, value: &str| {
        let block = encode_next(&mut encoder, &[(name, value)]);
        assert_eq!(decode_next(&mut decoder, &block).unwrap(), [(name.to_owned(), value.to_owned())]);
        block.len()
    };
    check("server", "0");
    for number in 1..=0x1_0000 {
        check("via", &number.to_string());
    }
    assert!(check("server", "65536") > 1);
    assert_eq!(check("via", "65536"), 1);
}

#[test]
fn every_name_that_is_known_is_found() {
    for index in 1..=static_table::COUNT {
        let (name, _) = static_table::field(index).unwrap();
        let slot = u32::from(names::known(name).unwrap().slot);
        assert_eq!(static_table::field(slot).unwrap().0, name);
        assert!(slot == 1 || static_table::field(slot - 1).unwrap().0 != name, "the first of the name");
    }
    let slots: BTreeSet<_> =
        SAME_NAMES.iter().map(|name| names::known(name.to_ascii_lowercase().as_bytes()).unwrap().slot).collect();
    assert_eq!(slots.len(), SAME_NAMES.len() - 1, "one is there twice");
    assert!(slots.last().is_some_and(|slot| usize::from(*slot) < names::SLOTS));
    assert_eq!(names::known(b"hosts"), None);
}

#[test]
fn names_are_written_in_lower_case() {
    assert_eq!(encode(&[("X-Foo", "Bar")]), b"\x00\x05x-foo\x03Bar");
    let long = "X".repeat(100);
    assert_eq!(encode(&[(&long, "")])[2..102], [b'x'; 100]);
}

//! Numbers, addresses and escaped bytes, appended to a buffer without allocating.
//!
//! In JSON a byte outside printable ASCII is written as the code point of the same number (`\u00e9` for E9): every line is
//! valid whatever came in, it has no control character in it, and the bytes can be told from it again. In the combined
//! format it is `\xE9`.

use std::io::Write as _;
use std::net::IpAddr;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Whether eight bytes are printable ASCII without `"` and `\`.
const fn is_plain_word(word: u64) -> bool {
    let above_tilde = word | word.wrapping_add(ONES);
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = word ^ (ONES * b'"' as u64);
    let quote = quote.wrapping_sub(ONES) & !quote;
    let backslash = word ^ (ONES * b'\\' as u64);
    let backslash = backslash.wrapping_sub(ONES) & !backslash;
    (above_tilde | below_space | quote | backslash) & HIGH == 0
}

const fn is_plain_byte(byte: u8) -> bool {
    (byte.wrapping_sub(b' ') <= b'~' - b' ') & (byte != b'"') & (byte != b'\\')
}

/// Whether sixteen bytes are printable ASCII without `"` and `\`: a form of it that becomes a few vector instructions.
const fn is_plain_block(block: &[u8; 16]) -> bool {
    let mut is_bad = false;
    let mut rest: &[u8] = block;
    while let Some((&byte, others)) = rest.split_first() {
        is_bad |= !is_plain_byte(byte);
        rest = others;
    }
    !is_bad
}

/// Whether all bytes can stand in a quoted text as they are. The last block or word overlaps the one before, so that
/// only texts shorter than half a word are looked at byte by byte.
#[inline]
fn is_plain(bytes: &[u8]) -> bool {
    if let Some(last) = bytes.last_chunk::<16>() {
        let (blocks, _) = bytes.as_chunks::<16>();
        is_plain_block(last) && blocks.iter().all(is_plain_block)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        is_plain_word(u64::from_le_bytes(*first)) && is_plain_word(u64::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        is_plain_word(u64::from(first) << 32 | u64::from(last))
    } else {
        bytes.iter().all(|byte| is_plain_byte(*byte))
    }
}

/// How bytes are written that can't stand in a quoted text as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// `\"`, `\\`, `\u00HH`.
    Json,
    /// `\"`, `\\`, `\xHH`.
    Combined,
}

/// Appends the first `max` bytes of `bytes`, escaped, and `...` where that is not all.
pub(crate) fn push_text(line: &mut Vec<u8>, bytes: &[u8], max: usize, escape: Escape) {
    let shown = bytes.get(..max).unwrap_or(bytes);
    if is_plain(shown) {
        line.extend_from_slice(shown);
    } else {
        push_escaped(line, shown, escape);
    }
    if shown.len() < bytes.len() {
        line.extend_from_slice(b"...");
    }
}

/// Appends the first `max` bytes of a name from a rule file as JSON: what is not ASCII stays, since it is well-formed.
pub(crate) fn push_name(line: &mut Vec<u8>, name: &str, max: usize) {
    if name.len() <= max && is_plain(name.as_bytes()) {
        line.extend_from_slice(name.as_bytes());
    } else {
        push_escaped_name(line, name.get(..name.floor_char_boundary(max)).unwrap_or(name));
    }
}

#[cold]
fn push_escaped_name(line: &mut Vec<u8>, name: &str) {
    for character in name.chars() {
        match u8::try_from(character) {
            Ok(byte) if byte.is_ascii() => push_escaped(line, &[byte], Escape::Json),
            _ => line.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cold]
fn push_escaped(line: &mut Vec<u8>, bytes: &[u8], escape: Escape) {
    for &byte in bytes {
        if is_plain_byte(byte) {
            line.push(byte);
        } else if matches!(byte, b'"' | b'\\') {
            line.extend_from_slice(&[b'\\', byte]);
        } else {
            // Writing to a Vec can't fail.
            let _ = match escape {
                Escape::Json => write!(line, "\\u{byte:04x}"),
                Escape::Combined => write!(line, "\\x{byte:02X}"),
            };
        }
    }
}

/// Two decimal digits of a number below 100.
#[inline]
const fn pair(number: u64) -> [u8; 2] {
    [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

/// Appends a number in decimal digits.
#[inline]
pub(crate) fn push_number(line: &mut Vec<u8>, number: u64) {
    match number {
        0..10 => line.push(b'0' + number as u8),
        10..100 => line.extend_from_slice(&pair(number)),
        100..1_000 => {
            let [tens, ones] = pair(number);
            line.extend_from_slice(&[b'0' + (number / 100) as u8, tens, ones]);
        }
        _ => push_large_number(line, number),
    }
}

fn push_large_number(line: &mut Vec<u8>, number: u64) {
    const PAIRS: usize = 10;
    let mut pairs = [[b'0'; 2]; PAIRS];
    let mut rest = number;
    let mut first = PAIRS;
    for (index, digits) in pairs.iter_mut().enumerate().rev() {
        *digits = pair(rest);
        rest /= 100;
        first = index;
        if rest == 0 {
            break;
        }
    }
    let digits = pairs.get(first..).unwrap_or_default().as_flattened();
    line.extend_from_slice(digits.strip_prefix(b"0").unwrap_or(digits));
}

/// Appends six digits of microseconds.
pub(crate) fn push_micros(line: &mut Vec<u8>, micros: u32) {
    let micros = u64::from(micros);
    let ([a, b], [c, d], [e, f]) = (pair(micros / 10_000), pair(micros / 100), pair(micros));
    line.extend_from_slice(&[a, b, c, d, e, f]);
}

/// Each octet in decimal digits with a dot behind it, and how many bytes that is.
const OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([0; 4], 0); 256];
    let mut rest: &mut [([u8; 4], u8)] = &mut octets;
    let mut octet = 0;
    while let Some((first, others)) = rest.split_first_mut() {
        let [tens, ones] = pair(octet);
        *first = match octet {
            0..10 => ([ones, b'.', 0, 0], 2),
            10..100 => ([tens, ones, b'.', 0], 3),
            _ => ([b'0' + (octet / 100) as u8, tens, ones, b'.'], 4),
        };
        octet += 1;
        rest = others;
    }
    octets
};

/// Appends an address in its usual form.
pub(crate) fn push_address(line: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            let mut text = [0; 16];
            let mut length = 0;
            for octet in address.octets() {
                #[expect(clippy::indexing_slicing, reason = "an octet is below 256, which the compiler sees")]
                let (digits, count) = &OCTETS[usize::from(octet)];
                // Each octet takes at most four bytes of the sixteen.
                if let Some(place) = text.get_mut(length..length + 4) {
                    place.copy_from_slice(digits);
                }
                length += usize::from(*count);
            }
            // The last dot goes.
            let end = line.len() + length - 1;
            line.extend_from_slice(&text);
            line.truncate(end);
        }
        IpAddr::V6(address) => {
            // Writing to a Vec can't fail.
            let _ = write!(line, "{address}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8], max: usize, escape: Escape) -> Vec<u8> {
        let mut line = Vec::new();
        push_text(&mut line, bytes, max, escape);
        line
    }

    #[test]
    fn every_byte_is_plain_or_not_in_every_place_of_a_word() {
        for byte in 0..=u8::MAX {
            for place in 0..8 {
                for other in [b'a', b' ', b'~', b'!', b'#', b'[', b']'] {
                    let mut word = [other; 8];
                    word[place] = byte;
                    let expected = (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
                    assert_eq!(
                        is_plain_word(u64::from_le_bytes(word)),
                        expected,
                        "{byte:#x} at {place} among {other:#x}"
                    );
                    assert_eq!(is_plain_byte(byte), expected);
                }
            }
        }
    }

    #[test]
    fn a_text_is_escaped_in_both_forms() {
        assert_eq!(text(b"a\"b\\c\n\x7f\xe9", 99, Escape::Json), br#"a\"b\\c\u000a\u007f\u00e9"#);
        assert_eq!(text(b"a\"b\\c\n\x7f\xe9", 99, Escape::Combined), br#"a\"b\\c\x0A\x7F\xE9"#);
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(text(b"abcdef", 6, Escape::Json), b"abcdef");
        assert_eq!(text(b"abcdefg", 6, Escape::Json), b"abcdef...");
    }

    #[test]
    fn a_name_keeps_its_letters_and_is_cut_between_two_of_them() {
        let name = |name, max| {
            let mut line = Vec::new();
            push_name(&mut line, name, max);
            String::from_utf8(line).unwrap()
        };
        assert_eq!(name("größe \"1\"\n", 99), "größe \\\"1\\\"\\u000a");
        assert_eq!(name("größe", 3), "gr");
        assert_eq!(name("plain", 3), "pla");
    }

    proptest! {
        #[test]
        fn a_text_is_plain_if_each_byte_is(
            length in 0..70_usize, odd in prop::option::of((0..70_usize, any::<u8>())),
        ) {
            let mut bytes = vec![b'a'; length];
            if let Some((place, byte)) = odd.filter(|(place, _)| *place < length) {
                bytes[place] = byte;
            }
            prop_assert_eq!(is_plain(&bytes), bytes.iter().all(|byte| is_plain_byte(*byte)));
        }

        #[test]
        fn json_gives_every_byte_back(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut json = vec![b'"'];
            push_text(&mut json, &bytes, usize::MAX, Escape::Json);
            json.push(b'"');
            let back: String = serde_json::from_slice(&json).unwrap();
            let back: Vec<u8> = back.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
            prop_assert_eq!(back, bytes);
        }

        #[test]
        fn combined_texts_have_no_raw_control_and_no_open_quote(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let text = text(&bytes, usize::MAX, Escape::Combined);
            prop_assert!(text.iter().all(|byte| (b' '..=b'~').contains(byte)));
            let mut rest = text.iter();
            while let Some(byte) = rest.next() {
                prop_assert_ne!(*byte, b'"');
                if *byte == b'\\' {
                    rest.next();
                }
            }
        }

        #[test]
        fn numbers_and_addresses_read_as_the_standard_library_writes_them(
            number in any::<u64>(), micros in 0..1_000_000_u32, v4 in any::<u32>(), v6 in any::<u128>(), shift in 0..64_u32,
        ) {
            let mut line = Vec::new();
            push_number(&mut line, number >> shift);
            line.push(b' ');
            push_micros(&mut line, micros);
            for address in [IpAddr::V4(v4.into()), IpAddr::V6(v6.into())] {
                line.push(b' ');
                push_address(&mut line, address);
            }
            let expected = format!("{} {micros:06} {} {}", number >> shift, IpAddr::V4(v4.into()), IpAddr::V6(v6.into()));
            prop_assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }
}

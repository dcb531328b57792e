//! The small pieces that messages are written from.
//!
//! They write what they are given: names, values and reasons come from the parsers, or from configuration that was
//! checked. Chunk lines are with the coding they belong to, in [`super::body`].

use crate::pure::h1::request::Version;

/// Appends a status line. Statuses are 100..=999; the reason may be empty.
pub fn push_status_line(out: &mut Vec<u8>, version: Version, status: u16, reason: &[u8]) {
    debug_assert!((100..=999).contains(&status), "three digits");
    let version: &[u8] = match version {
        Version::Http10 => b"HTTP/1.0 ",
        Version::Http11 => b"HTTP/1.1 ",
    };
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    let digits = [digit(100), digit(10), digit(1), b' '];
    push_all(out, [version, &digits, reason, b"\r\n"]);
}

/// Appends `name: value` and CRLF.
pub fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "a value is one line");
    push_all(out, [name, b": ", value, b"\r\n"]);
}

/// Appends a number in decimal digits.
pub fn push_decimal(out: &mut Vec<u8>, number: u64) {
    // Statuses and most lengths: without the general way's loop.
    if let 100..1000 = number {
        let digit = |unit: u64| b'0' + (number / unit % 10) as u8;
        out.extend_from_slice(&[digit(100), digit(10), digit(1)]);
        return;
    }
    let mut digits = [0_u8; 20];
    let mut rest = number;
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    let (_, written) = digits.split_at(digits.len() - used);
    out.extend_from_slice(written);
}

/// Appends the pieces, one behind the other. Inlined, so that what is constant among them is known.
#[inline(always)]
pub fn push_all<const N: usize>(out: &mut Vec<u8>, pieces: [&[u8]; N]) {
    out.reserve(pieces.iter().map(|piece| piece.len()).sum());
    for piece in pieces {
        out.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended() {
        let mut out = b"before ".to_vec();
        push_status_line(&mut out, Version::Http11, 404, b"Not Found");
        push_field(&mut out, b"Server", b"a b");
        push_field(&mut out, b"Empty", b"");
        push_status_line(&mut out, Version::Http10, 999, b"");
        assert_eq!(out, b"before HTTP/1.1 404 Not Found\r\nServer: a b\r\nEmpty: \r\nHTTP/1.0 999 \r\n");
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, 9_999_999_999, u64::MAX] {
            let mut out = Vec::new();
            push_decimal(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}

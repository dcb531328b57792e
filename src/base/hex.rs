//! Bytes as hexadecimal digits, and back. It refuses texts that have another length than is wanted.

/// Bytes in hexadecimal digits, in lower case.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    push_hex(bytes, false, &mut digits);
    digits
}

/// Appends bytes as hexadecimal digits.
pub fn push_hex(bytes: &[u8], is_upper: bool, out: &mut String) {
    let digits: &[u8; 16] = if is_upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    for byte in bytes {
        for digit in [byte >> 4, byte & 0xF] {
            out.extend(digits.get(usize::from(digit)).copied().map(char::from));
        }
    }
}

/// The bytes of so many hexadecimal digits, in lower case or upper; `None`: they are not.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let [high, low] = pair else { return None };
        let digit = |letter: &u8| char::from(*letter).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut upper = String::new();
        push_hex(&bytes, true, &mut upper);
        assert_eq!(upper.to_lowercase(), hex(&bytes));
        for text in [hex(&bytes), upper] {
            assert_eq!(from_hex::<256>(&text).unwrap()[..], bytes[..]);
        }
        assert_eq!(hex(&[0x0A, 0xF0]), "0af0");
        for text in ["", "0", "000", "0g", "é"] {
            assert_eq!(from_hex::<1>(text), None, "{text}");
        }
    }
}

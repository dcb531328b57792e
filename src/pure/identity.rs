//! Who a client has shown to be by its certificate, as text that may stand in a field, and the escaping that makes it so
//! (RFC 4514 section 2.4, and beyond it every byte that is not printable ASCII).
//!
//! It refuses to read certificates: it gets their parts.

use crate::base::hex::push_hex;

/// Who a client has shown to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate's subject as RFC 4514 writes it, the most specific part first: `CN=robot,O=Example`.
    pub subject: String,
    /// SHA-256 over the certificate, 64 hexadecimal digits in lower case.
    pub fingerprint: String,
}

/// Appends a value of a distinguished name, escaped.
pub fn push_name_value(value: &str, out: &mut String) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b'#' if at == 0 => out.push_str("\\#"),
            b' ' if at == 0 || at == last => out.push_str("\\ "),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                out.push('\\');
                push_hex(&[byte], true, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(value: &str) -> String {
        let mut out = String::new();
        push_name_value(value, &mut out);
        out
    }

    /// What an RFC 4514 parser makes of it.
    fn read_back(text: &str) -> Vec<u8> {
        let mut bytes = text.bytes();
        let mut value = Vec::new();
        while let Some(byte) = bytes.next() {
            if byte != b'\\' {
                value.push(byte);
                continue;
            }
            let next = bytes.next().unwrap();
            if next.is_ascii_hexdigit() {
                let pair = [next, bytes.next().unwrap()];
                value.push(u8::from_str_radix(std::str::from_utf8(&pair).unwrap(), 16).unwrap());
            } else {
                value.push(next);
            }
        }
        value
    }

    #[test]
    fn what_means_something_is_escaped() {
        for (value, expected) in [
            ("robot", "robot"),
            ("Sue, Grabbit and Runn", "Sue\\, Grabbit and Runn"),
            ("#1", "\\#1"),
            (" a b ", "\\ a b\\ "),
            (" ", "\\ "),
            ("a\r\nX-Evil: 1", "a\\0D\\0AX-Evil: 1"),
            ("Lučić", "Lu\\C4\\8Di\\C4\\87"),
            ("a=b\0", "a=b\\00"),
        ] {
            assert_eq!(escaped(value), expected);
        }
    }

    proptest! {
        #[test]
        fn it_is_printable_and_stands_for_the_same_value(value in any::<String>()) {
            let text = escaped(&value);
            prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
            prop_assert_eq!(text.trim_start(), &text);
            prop_assert_eq!(read_back(&text), value.as_bytes());
        }
    }
}

//! What a field of HTTP/2 may look like (RFC 9113 8.2), beyond which it could be read as another in HTTP/1.1.

use crate::pure::head::is_token_byte;

/// A message that breaks the rules of messages (RFC 9113 8.1.1), or that HTTP/1.1 can't carry unambiguously.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub struct Malformed;

/// Whether it may be the name of a field that is no pseudo-header field: a token without upper case.
pub(super) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| *byte == b'-' || byte.is_ascii_lowercase() || is_rare(*byte))
}

/// Bytes that may stand in a name and seldom do.
fn is_rare(byte: u8) -> bool {
    is_token_byte(byte) && !byte.is_ascii_uppercase()
}

/// Whether it may be a value.
pub(super) fn is_value(value: &[u8]) -> bool {
    !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

/// Whether a field may stand in a message.
pub(super) fn is_field((name, value): (&[u8], &[u8])) -> bool {
    is_name(name) && is_value(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens_without_upper_case_and_values_are_one_line() {
        for name in ["x", "x-a", "grpc-status", "0!#$%&'*+.^_`|~"] {
            assert!(is_name(name.as_bytes()), "{name}");
        }
        for name in ["", "X", "x:", ":path", "x a", "x\0", "x\n", "\u{e4}"] {
            assert!(!is_name(name.as_bytes()), "{name}");
        }
        assert!(is_value(b"") && is_value(b"a\t\xff b"));
        for value in ["a\0", "\r", "a\nb"] {
            assert!(!is_value(value.as_bytes()), "{value:?}");
        }
    }
}

//! The opening handshake of WebSocket over HTTP/1.1 (RFC 6455 4.2.2). It refuses to know frames.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// What the key is joined with before it is hashed (RFC 6455 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The value of `Sec-WebSocket-Accept` that answers a `Sec-WebSocket-Key`.
pub fn accept_value(key: &[u8]) -> String {
    base64(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()).as_ref())
}

/// The `Sec-WebSocket-Key` of these bits, which are to be random (RFC 6455 4.1).
pub fn key_of(bits: [u8; 16]) -> String {
    base64(&bits)
}

/// RFC 4648 section 4.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, index| bits << 8 | u32::from(group.get(index).copied().unwrap_or(0)));
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            let letter = ALPHABET.get(index as usize).copied().unwrap_or(b'=');
            text.push(if digit <= group.len() { letter.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_vectors_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xFB, 0xEF, 0xFF]), "++//");
    }

    #[test]
    fn the_accept_value_is_that_of_rfc_6455() {
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}

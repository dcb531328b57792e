//! The one thing that has to be known of a ClientHello before a connection is made for it: whether the client would rather
//! have ChaCha20 than AES (RFC 8446 section 4.1.2).
//!
//! It looks at the bytes that came first and refuses to wait for more: what it can't tell, it does not need to.

/// Suites that use AES-GCM, and those that use ChaCha20-Poly1305, in TLS 1.3 and with ephemeral ECDH in 1.2.
const AES: [u16; 6] = [0x1301, 0x1302, 0xC02B, 0xC02C, 0xC02F, 0xC030];
const CHACHA: [u16; 3] = [0x1303, 0xCCA8, 0xCCA9];

/// Whether the client that begins with these bytes prefers ChaCha20: it has no AES in hardware, then. `None` where that
/// can't be seen.
pub(super) fn prefers_chacha(bytes: &[u8]) -> Option<bool> {
    // Record head: type 22, version, length. Handshake head: type 1, length.
    let [22, _, _, _, _, 1, _, _, _, rest @ ..] = bytes else { return None };
    let (_, rest) = rest.split_at_checked(2 + 32)?;
    let (&session_length, rest) = rest.split_first()?;
    let (_, rest) = rest.split_at_checked(session_length.into())?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let suites = rest.get(..usize::from(u16::from_be_bytes(*length)))?;
    let mut known = suites.as_chunks::<2>().0.iter().map(|suite| u16::from_be_bytes(*suite));
    known.find_map(|suite| if CHACHA.contains(&suite) { Some(true) } else { AES.contains(&suite).then_some(false) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello(session: usize, suites: &[u16]) -> Vec<u8> {
        let mut bytes = vec![22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
        bytes.extend([7; 32]);
        bytes.push(session as u8);
        bytes.extend(vec![9; session]);
        bytes.extend((2 * suites.len() as u16).to_be_bytes());
        suites.iter().for_each(|suite| bytes.extend(suite.to_be_bytes()));
        bytes.extend([1, 0]);
        bytes
    }

    #[test]
    fn the_first_suite_that_is_one_or_the_other_tells() {
        for session in [0, 32] {
            assert_eq!(prefers_chacha(&hello(session, &[0x1302, 0x1303, 0x1301])), Some(false));
            assert_eq!(prefers_chacha(&hello(session, &[0x0A0A, 0x1303, 0x1301])), Some(true));
            assert_eq!(prefers_chacha(&hello(session, &[0x00FF, 0xCCA9, 0xC02B])), Some(true));
            assert_eq!(prefers_chacha(&hello(session, &[0xC030, 0xCCA8])), Some(false));
            assert_eq!(prefers_chacha(&hello(session, &[0x0035])), None);
        }
    }

    #[test]
    fn what_has_not_come_whole_tells_nothing() {
        let whole = hello(32, &[0x1303]);
        for cut in 0..whole.len() - 2 {
            assert_eq!(prefers_chacha(&whole[..cut]), None, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_upset_it(bytes in prop::collection::vec(any::<u8>(), 0..200), is_dressed in any::<bool>()) {
            let mut dressed = if is_dressed { vec![22, 3, 1, 0, 200, 1, 0, 0, 196] } else { Vec::new() };
            dressed.extend(bytes);
            prefers_chacha(&dressed);
        }
    }
}

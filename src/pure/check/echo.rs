//! Echo requests and their replies (RFC 792, RFC 4443 4): the bytes of both. A reply is known by the nonce that the request
//! carried, whatever the system makes of the identifier.

/// What tells one request from all others.
pub type Nonce = [u8; 16];

/// The version of IP that a message travels by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Type, code, checksum, identifier and sequence number.
const HEAD: usize = 8;

/// The longest message that is read: any reply to ours, with an IPv4 header before it.
pub const REPLY_MAX: usize = 60 + HEAD + size_of::<Nonce>();

/// An echo request. The checksum of IPv6, which takes in the addresses, is the system's to fill in.
pub fn request(family: Family, nonce: &Nonce) -> Vec<u8> {
    let kind = match family {
        Family::V4 => 8,
        Family::V6 => 128,
    };
    let [identifier_high, identifier_low, ..] = *nonce;
    let mut packet = vec![kind, 0, 0, 0, identifier_high, identifier_low, 0, 1];
    packet.extend_from_slice(nonce);
    if family == Family::V4 {
        let sum = checksum(&packet).to_be_bytes();
        packet.iter_mut().skip(2).zip(sum).for_each(|(byte, of_sum)| *byte = of_sum);
    }
    packet
}

/// Whether a message is the reply to the request with that nonce. What comes off a raw socket of IPv4 has the IP header before
/// it (raw(7)).
pub fn is_reply(packet: &[u8], family: Family, nonce: &Nonce) -> bool {
    let kind = match family {
        Family::V4 => 0,
        Family::V6 => 129,
    };
    let message = match (family, packet) {
        // The first half of a header's first byte is its version, 4; no reply begins so.
        (Family::V4, [first, ..]) if first >> 4 == 4 => packet.get(usize::from(first & 0x0f) * 4..).unwrap_or_default(),
        _ => packet,
    };
    matches!(message, [first, 0, ..] if *first == kind) && message.get(HEAD..) == Some(nonce)
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: Nonce = *b"0123456789abcdef";

    /// What a machine makes of a request.
    fn reply_to(request: &[u8], family: Family) -> Vec<u8> {
        let mut reply = request.to_vec();
        reply[0] = if family == Family::V4 { 0 } else { 129 };
        reply
    }

    #[test]
    fn a_request_of_ipv4_sums_up_to_nothing() {
        let request = request(Family::V4, &NONCE);
        assert_eq!(checksum(&request), 0);
        assert_eq!((request[0], request[1], request.len()), (8, 0, 24));
        // RFC 1071 section 3.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn a_reply_is_known_by_its_nonce_with_and_without_an_ip_header() {
        for family in [Family::V4, Family::V6] {
            let asked = request(family, &NONCE);
            let mut reply = reply_to(&asked, family);
            assert!(is_reply(&reply, family, &NONCE));
            assert!(!is_reply(&asked, family, &NONCE), "our own request, as a raw socket on the loopback sees it");
            assert!(!is_reply(&reply, family, b"0123456789abcdeF"));
            assert!(!is_reply(&reply[..23], family, &NONCE));
            reply[4] = !reply[4];
            assert!(is_reply(&reply, family, &NONCE), "the system may replace the identifier");
        }
        let mut raw = vec![0x46; 24];
        raw.extend_from_slice(&reply_to(&request(Family::V4, &NONCE), Family::V4));
        assert!(is_reply(&raw, Family::V4, &NONCE));
        assert!(raw.len() <= REPLY_MAX);
        for cut in 0..raw.len() {
            assert!(!is_reply(&raw[..cut], Family::V4, &NONCE));
        }
    }
}

//! Addresses as the text of fields, written once for all that name one; `std`'s formatting costs ten times as much for IPv4.

use std::io::Write as _;
use std::net::IpAddr;

/// The octets of an address in decimal digits, each with a dot behind it.
static OCTETS: [[u8; 4]; 256] = octets();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
const fn octets() -> [[u8; 4]; 256] {
    let mut all = [[b' '; 4]; 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [b'0' + (octet / 100) as u8, b'0' + (octet / 10 % 10) as u8, b'0' + (octet % 10) as u8];
        let mut from = if octet >= 100 {
            0
        } else if octet >= 10 {
            1
        } else {
            2
        };
        let mut at = 0;
        while from < 3 {
            all[octet][at] = digits[from];
            from += 1;
            at += 1;
        }
        all[octet][at] = b'.';
        octet += 1;
    }
    all
}

/// An address as text.
#[derive(Debug)]
pub(super) struct AddressText {
    text: [u8; 39],
    length: usize,
    /// Whether it is an IPv6 address.
    pub(super) is_v6: bool,
}

impl AddressText {
    pub(super) fn of(address: IpAddr) -> Self {
        let mut made = Self { text: [0; 39], length: 0, is_v6: false };
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let mut end = 0;
                for octet in v4.octets() {
                    let text = OCTETS.get(usize::from(octet)).unwrap_or(b"0.  ");
                    if let Some(place) = made.text.get_mut(end..end + text.len()) {
                        place.copy_from_slice(text);
                    }
                    end += 2 + usize::from(octet >= 10) + usize::from(octet >= 100);
                }
                // Without the last dot.
                made.length = end - 1;
            }
            IpAddr::V6(v6) => {
                made.is_v6 = true;
                let mut rest = made.text.as_mut_slice();
                // The longest IPv6 address has 39 characters.
                let _ = write!(rest, "{v6}");
                made.length = 39 - rest.len();
            }
        }
        made
    }

    /// The text.
    pub(super) fn bytes(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn addresses_read_as_std_writes_them() {
        let of = |address: IpAddr| String::from_utf8(AddressText::of(address).bytes().to_vec()).unwrap();
        for number in 0..=255u8 {
            for octets in [[number, 0, 9, 10], [99, number, 100, 255], [255, 255, 255, number]] {
                let address = IpAddr::from(Ipv4Addr::from(octets));
                assert_eq!(of(address), address.to_string());
            }
        }
        for text in ["::1", "2001:db8::17", "1111:2222:3333:4444:5555:6666:7777:8888"] {
            assert_eq!(of(text.parse().unwrap()), text);
        }
        assert_eq!(of("::ffff:10.1.2.3".parse().unwrap()), "10.1.2.3");
    }
}

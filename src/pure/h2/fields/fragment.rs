//! Whether a `:path` has a fragment, plain or in Huffman's code (RFC 7541 5.2), in whatever pieces it comes.
//!
//! The library that keeps requests cuts fragments off without a word. Of the code it knows the lengths alone, which the
//! order of its symbols makes easy. It refuses to decode: what is wrong with the code is the `h2` crate's to refuse.

/// The number sign in Huffman's code, and how many bits that is.
const NUMBER_SIGN: (u32, u32) = (0xffa, 12);

/// The lengths that codes have, and the last code of each (RFC 7541 Appendix B): in the order of lengths they count upwards.
const LAST_CODES: [(u32, u32); 21] = [
    (5, 0x9),
    (6, 0x2d),
    (7, 0x7b),
    (8, 0xfd),
    (10, 0x3fc),
    (11, 0x7fc),
    (12, 0xffb),
    (13, 0x1ffd),
    (14, 0x3ffd),
    (15, 0x7ffe),
    (19, 0x7_fff2),
    (20, 0xf_ffed),
    (21, 0x1f_ffe8),
    (22, 0x3f_ffeb),
    (23, 0x7f_fff4),
    (24, 0xff_fff5),
    (25, 0x1ff_ffef),
    (26, 0x3ff_ffee),
    (27, 0x7ff_fff0),
    (28, 0xfff_fffe),
    (30, 0x3fff_ffff),
];

/// A look through a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FragmentScan {
    is_huffman: bool,
    /// Bits that belong to no whole code yet, the last one lowest, and how many.
    bits: u64,
    count: u32,
}

impl FragmentScan {
    pub(super) const fn new(is_huffman: bool) -> Self {
        Self { is_huffman, bits: 0, count: 0 }
    }

    /// Whether a fragment begins in this piece.
    pub(super) fn has_begun(&mut self, piece: &[u8]) -> bool {
        if !self.is_huffman {
            return piece.contains(&b'#');
        }
        let mut has_begun = false;
        for byte in piece {
            self.bits = self.bits << 8 | u64::from(*byte);
            self.count += 8;
            while let Some((length, code)) = self.next_code() {
                self.count -= length;
                has_begun |= (code, length) == NUMBER_SIGN;
            }
        }
        has_begun
    }

    /// The length of the next code and the code, where it is whole.
    fn next_code(&self) -> Option<(u32, u32)> {
        // Ones in the place of what has not come make a code longer at most, so that it is not taken for whole.
        let ahead = u64::MAX >> self.count | self.bits.checked_shl(64 - self.count).unwrap_or(0);
        let ahead = u32::try_from(ahead >> 32).unwrap_or(u32::MAX);
        let (length, _) = LAST_CODES.iter().find(|(length, last)| ahead >> (32 - length) <= *last)?;
        (*length <= self.count).then_some((*length, ahead >> (32 - length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts and their codes, as another implementation writes them.
    const CODED: [(&str, &[u8]); 5] = [
        ("/a#b", &[0x60, 0x7f, 0xf5, 0x1f]),
        ("#", &[0xff, 0xaf]),
        ("/a?b=c&d", &[0x60, 0x7f, 0xe4, 0x70, 0x13, 0xe2, 0x4f]),
        (
            "/~$%{}\\|\u{e4}",
            &[
                0x63, 0xff, 0xbf, 0xf9, 0x57, 0xff, 0xf7, 0xff, 0xbf, 0xff, 0xc3, 0xfe, 0x7f, 0xff, 0x1f, 0xff, 0xf7,
                0x3f,
            ],
        ),
        ("/\u{e4}\\#", &[0x63, 0xff, 0xf8, 0xff, 0xff, 0xb9, 0xff, 0xfc, 0x3f, 0xeb]),
    ];

    #[test]
    fn a_fragment_is_seen_in_any_pieces() {
        for (text, coded) in CODED {
            for (is_huffman, bytes) in [(false, text.as_bytes()), (true, coded)] {
                for size in 1..=bytes.len() {
                    let mut scan = FragmentScan::new(is_huffman);
                    let has_begun = bytes.chunks(size).filter(|piece| scan.has_begun(piece)).count() > 0;
                    assert_eq!(has_begun, text.contains('#'), "{text} {is_huffman} in pieces of {size}");
                }
            }
        }
    }
}

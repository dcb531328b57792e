//! A decoder that does nothing fast: one bit at a time, a list as its table. What it says is what the RFC says, as
//! directly as possible; it shares nothing with the code that it judges but the static table.

use super::super::static_table;

pub(super) type Field = (Vec<u8>, Vec<u8>);

/// The code (RFC 7541 Appendix B): bits of a code, the first code of so many, and their symbols in order.
#[rustfmt::skip]
const CODE: [(u32, u32, &[u8]); 21] = [
    (5, 0x0, b"012aceiost"),
    (6, 0x14, b" %-./3456789=A_bdfghlmnpru"),
    (7, 0x5c, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, 0xf8, b"&*,;XZ"),
    (10, 0x3f8, b"!\"()?"),
    (11, 0x7fa, b"'+|"),
    (12, 0xffa, b"#>"),
    (13, 0x1ff8, b"\x00$@[]~"),
    (14, 0x3ffc, b"^}"),
    (15, 0x7ffc, b"<`{"),
    (19, 0x7fff0, b"\\\xc3\xd0"),
    (20, 0xfffe6, b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"),
    (21, 0x1fffdc, b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6"),
    (22, 0x3fffd2, b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9"),
    (23, 0x7fffd8, b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef"),
    (24, 0xffffea, b"\x09\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed"),
    (25, 0x1ffffec, b"\xc7\xcf\xea\xeb"),
    (26, 0x3ffffe0, b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff"),
    (27, 0x7ffffde, b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe"),
    (28, 0xfffffe2, b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9"),
    (30, 0x3ffffffc, b"\x0a\x0d\x16"),
];

#[derive(Default)]
pub(super) struct NaiveDecoder {
    /// The newest first.
    table: Vec<Field>,
    /// How much smaller than 4096 it may be.
    reduction: usize,
}

impl NaiveDecoder {
    /// All fields of a block; nothing where it is an error.
    pub(super) fn decode(&mut self, block: &[u8]) -> Option<Vec<Field>> {
        let mut bits = Bits { bytes: block, place: 0 };
        let mut fields = Vec::new();
        while bits.place < block.len() * 8 {
            if bits.next()? == 1 {
                let index = bits.integer(7)?;
                fields.push(self.field(index)?);
            } else if bits.next()? == 1 {
                let field = self.literal(&mut bits, 6)?;
                self.table.insert(0, field.clone());
                self.evict();
                fields.push(field);
            } else if bits.next()? == 1 {
                let size = bits.integer(5)?;
                if size > 4096 || !fields.is_empty() {
                    return None;
                }
                self.reduction = 4096 - size;
                self.evict();
            } else {
                bits.next()?;
                fields.push(self.literal(&mut bits, 4)?);
            }
        }
        Some(fields)
    }

    fn field(&self, index: usize) -> Option<Field> {
        match index {
            0 => None,
            1..=61 => static_table::field(index as u32).map(|(name, value)| (name.to_vec(), value.to_vec())),
            _ => self.table.get(index - 62).cloned(),
        }
    }

    fn literal(&self, bits: &mut Bits<'_>, prefix: u32) -> Option<Field> {
        let name = match bits.integer(prefix)? {
            0 => bits.string()?,
            index => self.field(index)?.0,
        };
        Some((name, bits.string()?))
    }

    /// An entry that is larger than the table pushes out all others and then itself.
    fn evict(&mut self) {
        let size = |table: &[Field]| table.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>();
        while size(&self.table) > 4096 - self.reduction {
            self.table.pop();
        }
    }
}

struct Bits<'a> {
    bytes: &'a [u8],
    /// In bits.
    place: usize,
}

impl Bits<'_> {
    fn next(&mut self) -> Option<u32> {
        let bit = self.bytes.get(self.place / 8)? >> (7 - self.place % 8) & 1;
        self.place += 1;
        Some(u32::from(bit))
    }

    fn integer(&mut self, prefix: u32) -> Option<usize> {
        let mut number = 0;
        for _ in 0..prefix {
            number = number * 2 + self.next()? as usize;
        }
        if number < (1 << prefix) - 1 {
            return Some(number);
        }
        for count in 0..4 {
            let goes_on = self.next()? == 1;
            let mut part = 0;
            for _ in 0..7 {
                part = part * 2 + self.next()? as usize;
            }
            number += part * 128_usize.pow(count);
            if !goes_on {
                return Some(number);
            }
        }
        None
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let is_huffman = self.next()? == 1;
        let length = self.integer(7)?;
        let start = self.place / 8;
        let string = self.bytes.get(start..start + length)?;
        self.place += length * 8;
        if is_huffman { huffman(string) } else { Some(string.to_vec()) }
    }
}

pub(super) fn huffman(coded: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Bits { bytes: coded, place: 0 };
    let mut plain = Vec::new();
    let (mut code, mut count) = (0_u32, 0_u32);
    while let Some(bit) = bits.next() {
        code = code * 2 + bit;
        count += 1;
        let run = CODE.iter().find(|(length, ..)| *length == count);
        let symbol = run.and_then(|(_, first, symbols)| symbols.get(code.checked_sub(*first)? as usize));
        if let Some(symbol) = symbol {
            plain.push(*symbol);
            (code, count) = (0, 0);
        } else if count == 30 {
            return None;
        }
    }
    (count < 8 && code == (1 << count) - 1).then_some(plain)
}

//! The wire format of Protocol Buffers (<https://protobuf.dev/programming-guides/encoding/>), as far as it takes to find a few fields
//! of a small message and to step over the others. It refuses groups, which nobody writes any more, and whatever is cut short.

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'m> {
    /// A number of one to ten bytes.
    Varint(u64),
    /// Eight bytes, such as a double.
    Fixed64([u8; 8]),
    /// A text, bytes, a message or a list.
    Bytes(&'m [u8]),
    /// Four bytes, such as a float.
    Fixed32([u8; 4]),
}

/// The rest breaks the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The fields of a message, in its order: each its number and what it holds. After [`Broken`] nothing comes.
#[derive(Clone, Debug)]
pub struct Fields<'m> {
    rest: &'m [u8],
}

impl<'m> Fields<'m> {
    /// Those of this message.
    pub const fn of(message: &'m [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Option<(u64, Value<'m>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.array()?),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(usize::try_from(length).ok()?)?)
            }
            5 => Value::Fixed32(self.array()?),
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.first_chunk().copied()
    }

    fn take(&mut self, count: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Result<(u64, Value<'m>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field.ok_or(Broken))
    }
}

/// Appends a number.
pub fn push_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_field_is_read() {
        let message = [0x18, 0xAC, 0x02, 0x22, 2, b'a', b'b', 0x55, 1, 2, 3, 4, 0x49, 1, 2, 3, 4, 5, 6, 7, 8];
        let fields: Vec<_> = Fields::of(&message).collect();
        let expected = [
            Ok((3, Value::Varint(300))),
            Ok((4, Value::Bytes(b"ab"))),
            Ok((10, Value::Fixed32([1, 2, 3, 4]))),
            Ok((9, Value::Fixed64([1, 2, 3, 4, 5, 6, 7, 8]))),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn what_is_cut_short_or_unknown_ends_a_message() {
        let endless = [255; 11];
        for message in [&[0x08][..], &[0x08, 0x80], &[0x09, 1, 2], &[0x12, 9, 1], &[0x0B], &[0x0F, 1], &endless] {
            assert_eq!(Fields::of(message).collect::<Vec<_>>(), [Err(Broken)], "{message:?}");
        }
        assert_eq!(Fields::of(&[]).next(), None);
    }

    proptest! {
        #[test]
        fn any_number_comes_back(number: u64) {
            let mut message = vec![0x08];
            push_varint(&mut message, number);
            prop_assert_eq!(Fields::of(&message).collect::<Vec<_>>(), [Ok((1, Value::Varint(number)))]);
        }

        #[test]
        fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let fields = Fields::of(&bytes).count();
            prop_assert!(fields <= bytes.len());
        }
    }
}

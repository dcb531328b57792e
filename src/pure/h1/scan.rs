//! Finds a byte by its class, sixteen bytes at a time: what every byte of a head goes through.
//!
//! Classes are plain predicates; the compiler makes vector instructions of them, as long as they have no branch (`|` and
//! `&` in place of `||` and `&&`) and no table.

/// Where the first byte of a class is, at `from` or behind it; the length of `bytes` where there is none.
#[inline]
pub(super) fn find(bytes: &[u8], from: usize, is_member: impl Fn(u8) -> bool) -> usize {
    let mut position = from.min(bytes.len());
    while let Some(block) = bytes.get(position..).and_then(|rest| rest.first_chunk()) {
        let marks = marks(block, &is_member);
        if marks != 0 {
            return position + marks.trailing_zeros() as usize;
        }
        position += BLOCK;
    }
    // Fewer than a block are left. The last whole block holds them at its end, if there is one.
    let marks = match bytes.last_chunk() {
        Some(block) => marks(block, &is_member) >> (position + BLOCK - bytes.len()),
        None => {
            let mut block = [0; BLOCK];
            let (part, _) = block.split_at_mut(bytes.len());
            part.copy_from_slice(bytes);
            (marks(&block, &is_member) & !(u32::MAX << bytes.len())) >> position
        }
    };
    if marks == 0 { bytes.len() } else { position + marks.trailing_zeros() as usize }
}

const BLOCK: usize = 16;

/// One bit for each byte of a block, the first one lowest: whether it is of the class.
#[inline]
fn marks(block: &[u8; BLOCK], is_member: impl Fn(u8) -> bool) -> u32 {
    top_bits(block.map(|byte| if is_member(byte) { 0xFF } else { 0 }))
}

/// The top bit of each byte.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline]
fn top_bits(bytes: [u8; BLOCK]) -> u32 {
    use std::arch::x86_64::{__m128i, _mm_movemask_epi8};
    // SAFETY: both are sixteen bytes without a value that is not allowed, and the target has the instruction.
    unsafe { _mm_movemask_epi8(std::mem::transmute::<[u8; BLOCK], __m128i>(bytes)) }.cast_unsigned()
}

/// The top bit of each byte.
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
#[inline]
fn top_bits(bytes: [u8; BLOCK]) -> u32 {
    bytes.iter().rev().fold(0, |bits, byte| bits << 1 | u32::from(byte >> 7))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place of the byte and of the start, in texts of every length up to three blocks.
    #[test]
    fn a_byte_is_found_wherever_it_is() {
        for length in 0..=3 * BLOCK {
            for from in 0..=length + 1 {
                for place in 0..=length {
                    let mut bytes = vec![b'a'; length];
                    for later in bytes.iter_mut().skip(place) {
                        *later = 0xFF;
                    }
                    let expected = place.max(from).min(length);
                    assert_eq!(find(&bytes, from, |byte| byte != b'a'), expected, "{place} from {from} in {length}");
                }
            }
        }
    }

    #[test]
    fn the_first_of_several_is_found() {
        assert_eq!(find(b"0123456789,123456,89", 0, |byte| byte == b','), 10);
        assert_eq!(find(b"0123456789,123456,89", 11, |byte| byte == b','), 17);
    }
}

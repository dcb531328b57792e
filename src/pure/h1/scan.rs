//! Finds bytes by their class, sixteen at a time: what every byte of a head goes through.
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

/// [`find`], and whether a byte before the one found is of a class that is worth a note. Most texts are shorter than a
/// block.
#[inline(always)]
pub(super) fn find_noting(
    bytes: &[u8],
    from: usize,
    is_member: impl Fn(u8) -> bool,
    is_noted: impl Fn(u8) -> bool,
) -> (usize, bool) {
    if let Some(block) = bytes.get(from..).and_then(|rest| rest.first_chunk()) {
        let members = marks(block, &is_member);
        if members != 0 {
            let is_any_noted = marks(block, is_noted) & below_first(members) != 0;
            return (from + members.trailing_zeros() as usize, is_any_noted);
        }
    }
    find_noting_far(bytes, from, is_member, is_noted)
}

#[cold]
fn find_noting_far(
    bytes: &[u8],
    from: usize,
    is_member: impl Fn(u8) -> bool,
    is_noted: impl Fn(u8) -> bool,
) -> (usize, bool) {
    let end = find(bytes, from, is_member);
    (end, bytes.get(from..end).is_some_and(|bytes| bytes.iter().any(|byte| is_noted(*byte))))
}

/// How many bytes at `from` and behind it are of a class, where fewer than a block are and others follow: the common case
/// of [`find`], told without a loop.
#[inline(always)]
pub(super) fn run_in_block(bytes: &[u8], from: usize, is_member: impl Fn(u8) -> bool) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let others = match rest.first_chunk() {
        Some(block) => marks(block, |byte| !is_member(byte)),
        None => marks(bytes.last_chunk()?, |byte| !is_member(byte)) >> (BLOCK - rest.len()),
    };
    (others != 0).then_some(others.trailing_zeros() as usize)
}

/// The bits below the lowest that is set; all where none is.
#[inline(always)]
pub(super) const fn below_first(marks: u32) -> u32 {
    (marks & marks.wrapping_neg()).wrapping_sub(1)
}

/// How many bytes [`wide_marks`] looks at: as many as the answer has bits.
pub(super) const WIDE: usize = 4 * BLOCK;

/// One bit for each of the last bytes from `from` on, fewer than [`WIDE`], the first one lowest: whether it is of the class.
#[inline(always)]
pub(super) fn last_marks(bytes: &[u8], from: usize, is_member: impl Fn(u8) -> bool) -> u64 {
    match bytes.get(from..) {
        None | Some([]) => 0,
        // The last wide block holds them at its end, if there is one.
        Some(rest) => match bytes.last_chunk() {
            Some(block) => wide_marks(block, is_member) >> (WIDE - rest.len()),
            None => marks_of_few(bytes, rest.len(), is_member),
        },
    }
}

/// [`last_marks`] for the last `length` bytes of less than a wide block.
#[inline(never)]
fn marks_of_few(bytes: &[u8], length: usize, is_member: impl Fn(u8) -> bool) -> u64 {
    let (blocks, part) = bytes.as_chunks();
    let of_blocks = (0..).step_by(BLOCK).zip(blocks).map(|(at, block)| u64::from(marks(block, &is_member)) << at);
    let of_part = match bytes.last_chunk() {
        _ if part.is_empty() => 0,
        Some(block) => marks(block, &is_member) >> (BLOCK - part.len()),
        None => {
            let mut block = [0; BLOCK];
            let (start, _) = block.split_at_mut(part.len());
            start.copy_from_slice(part);
            marks(&block, &is_member) & !(u32::MAX << part.len())
        }
    };
    let all = of_blocks.fold(0, |bits, of_block| bits | of_block) | u64::from(of_part) << (blocks.len() * BLOCK);
    all >> (bytes.len() - length)
}

/// One bit for each byte of a wide block, the first one lowest: whether it is of the class.
#[inline(always)]
pub(super) fn wide_marks(block: &[u8; WIDE], is_member: impl Fn(u8) -> bool) -> u64 {
    let (blocks, _) = block.as_chunks();
    blocks.iter().rev().fold(0, |bits, block| bits << BLOCK | u64::from(marks(block, &is_member)))
}

pub(super) const BLOCK: usize = 16;

/// One bit for each byte of a block, the first one lowest: whether it is of the class.
#[inline]
pub(super) fn marks(block: &[u8; BLOCK], is_member: impl Fn(u8) -> bool) -> u32 {
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
    fn each_mark_is_that_of_its_byte() {
        for length in 0..=2 * WIDE + 3 {
            let bytes: Vec<u8> = (0..length).map(|place| if place * place % 7 == 2 { 0xFF } else { 0 }).collect();
            for from in 0..=length + 1 {
                let rest = bytes.get(from..).unwrap_or_default();
                let check = |marks: u64| {
                    for place in 0..WIDE {
                        let expected = rest.get(place) == Some(&0xFF);
                        assert_eq!(marks >> place & 1 == 1, expected, "{place} from {from} in {length}");
                    }
                };
                match rest.first_chunk() {
                    Some(block) => check(wide_marks(block, |byte| byte == 0xFF)),
                    None => check(last_marks(&bytes, from, |byte| byte == 0xFF)),
                }
            }
        }
    }

    #[test]
    fn what_is_before_the_byte_found_is_noted() {
        for length in 0..=2 * BLOCK {
            for place in 0..=length {
                for noted in 0..=length {
                    let mut bytes = vec![b'a'; length];
                    bytes.extend_from_slice(b".aaA");
                    bytes[noted] = b'A';
                    bytes[place] = b'.';
                    let found = find_noting(&bytes, 0, |byte| byte == b'.', |byte| byte == b'A');
                    assert_eq!(found, (place, noted < place), "{place} and {noted} in {length}");
                    assert_eq!(find_noting(&bytes, place, |byte| byte == b'.', |byte| byte == b'A'), (place, false));
                    let run = run_in_block(&bytes, 0, |byte| byte != b'.');
                    assert!(run == Some(place) || run.is_none() && (place >= BLOCK || bytes.len() < BLOCK));
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

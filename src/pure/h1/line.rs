//! Lines: where they end, which bytes they may hold, and the field line (RFC 9112 2.2, 5; RFC 9110 5).
//!
//! A line is looked at only when it is whole, and no byte is searched twice for its end, so that a head costs the same in
//! one piece and byte by byte. It refuses what parsers are known to read differently: bare LF and CR, control bytes,
//! folded lines, white space around names. It knows nothing of what a field means.

use crate::pure::h1::scan::{WIDE, find, last_marks, run_in_block, wide_marks};
use crate::pure::head::{Field, Known, Span, is_token_byte};

/// Why bytes can't be a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineError {
    /// A bare LF or CR.
    End,
    /// A control byte.
    Control,
}

/// How far the lines of a head have been read: what lets reading go on where it stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lines {
    /// Where the line being read starts.
    pub start: usize,
    /// Everything before this has been looked at.
    searched: usize,
    /// Of the bytes looked at last, those from `first` on that may end the line or not be in it: one bit each, lowest first.
    marks: u64,
    first: usize,
}

impl Lines {
    /// The end of the line that is being read, its CRLF left out; `None` if it has not come whole. The line stays the
    /// one being read until [`Lines::advance`].
    #[inline(always)]
    pub fn end(&mut self, buffer: &[u8]) -> Result<Option<usize>, LineError> {
        if self.marks == 0 {
            self.look(buffer);
        }
        // Without a mark this is the place behind the bytes looked at, where the line may end as well.
        let end = self.first + self.marks.trailing_zeros() as usize;
        let is_crlf = buffer.get(end..).and_then(<[u8]>::first_chunk).is_some_and(|two| *two == *b"\r\n");
        if is_crlf { Ok(Some(end)) } else { self.unusual_end(buffer) }
    }

    /// Looks at the next bytes.
    #[inline(never)]
    fn look(&mut self, buffer: &[u8]) {
        self.first = self.searched.max(self.start);
        match buffer.get(self.first..).and_then(|rest| rest.first_chunk()) {
            Some(block) => {
                self.marks = wide_marks(block, may_end_line);
                self.searched = self.first + WIDE;
            }
            None => self.look_at_last(buffer),
        }
    }

    /// [`Lines::look`], where less than a wide block is left.
    #[inline(never)]
    fn look_at_last(&mut self, buffer: &[u8]) {
        self.marks = last_marks(buffer, self.first, may_end_line);
        self.searched = buffer.len();
    }

    /// [`Lines::end`], where the next mark is no CRLF or not among the bytes looked at last.
    #[inline(never)]
    fn unusual_end(&mut self, buffer: &[u8]) -> Result<Option<usize>, LineError> {
        loop {
            while self.marks == 0 {
                if self.searched >= buffer.len() {
                    return Ok(None);
                }
                self.look(buffer);
            }
            let end = self.first + self.marks.trailing_zeros() as usize;
            return match buffer.get(end..) {
                Some([b'\r', b'\n', ..]) => Ok(Some(end)),
                Some([b'\t', ..]) => {
                    self.marks &= self.marks - 1;
                    continue;
                }
                Some([] | [b'\r']) | None => Ok(None),
                Some([b'\r' | b'\n', ..]) => Err(LineError::End),
                Some([..]) => Err(LineError::Control),
            };
        }
    }

    /// Goes on to the line behind the one that ends at `end`, as [`Lines::end`] said or where nothing has been searched.
    #[inline(always)]
    pub const fn advance(&mut self, end: usize) {
        self.start = end + 2;
        // The marks of CR and LF; that of LF may not have been made.
        self.marks &= self.marks.wrapping_sub(1);
        self.marks &= self.marks.wrapping_sub(1);
    }
}

/// A span of a buffer. Heads are limited to what 32 bits can say before anything is measured.
#[expect(clippy::cast_possible_truncation, reason = "a head is never longer than HEAD_MAX")]
pub(super) const fn span(start: usize, end: usize) -> Span {
    Span { start: start as u32, end: end as u32 }
}

/// No head is longer than this, whatever the limits say: offsets are 32 bits.
pub(super) const HEAD_MAX: usize = i32::MAX as usize;

/// Reads the field line `buffer[start..end]`, behind which only a CR comes; `None` where it is not one.
#[inline(always)]
pub(super) fn parse_field(buffer: &[u8], start: usize, end: usize) -> Option<Field> {
    let line = buffer.get(start..end)?;
    // Nearly all names are letters and `-`, and shorter than a block; the others are worth the slow way.
    let letters = run_in_block(buffer, start, is_name_letter).filter(|letters| line.get(*letters) == Some(&b':'));
    let length = match letters {
        Some(letters) => letters,
        None => name_end(buffer, start, end) - start,
    };
    if length == 0 {
        return None;
    }
    let (name, rest) = line.split_at_checked(length)?;
    let value = match rest {
        // Whatever is above the space is no white space (RFC 9110 5.6.3).
        [b':', b' ', first, .., last] if *first > b' ' && *last > b' ' => span(start + length + 2, end),
        [b':', value @ ..] => trimmed(value, end),
        _ => return None,
    };
    let known = Known::of(name);
    Some(Field { name: span(start, start + length), value, known, hop_by_hop: known.is_hop_by_hop() })
}

/// Where the name at the front of the line `buffer[start..end]` ends.
#[inline(never)]
fn name_end(buffer: &[u8], start: usize, end: usize) -> usize {
    let letters = find(buffer, start, |byte| !is_name_letter(byte));
    match buffer.get(letters..end) {
        None | Some([] | [b':', ..]) => letters.min(end),
        Some(rest) => letters + token_length(rest),
    }
}

/// The span of a value that ends at `end`, without the white space around it.
fn trimmed(value: &[u8], end: usize) -> Span {
    let value = trim_start(value);
    let start = end - value.len();
    span(start, start + trim_end(value).len())
}

fn trim_start(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    value
}

fn trim_end(mut value: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

const fn is_name_letter(byte: u8) -> bool {
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte == b'-')
}

/// The elements of a comma-separated value (RFC 9110 5.6.1), empty ones left out. Quotes are not minded: no list that is
/// read here takes them.
pub(super) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(|element| trim_end(trim_start(element))).filter(|element| !element.is_empty())
}

/// How many bytes at the front are those of a token (RFC 9110 5.6.2).
pub(super) fn token_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(bytes.len())
}

/// All control bytes: those that end lines, those that may not be in one, and the tab, which is rare.
const fn may_end_line(byte: u8) -> bool {
    (byte < 0x20) | (byte == 0x7F)
}

/// Whether a byte may not stand inside a line: all control bytes but the tab.
pub(super) const fn is_control(byte: u8) -> bool {
    (byte < 0x20) & (byte != b'\t') | (byte == 0x7F)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_searched_twice_for_the_end_of_its_line() {
        let buffer = [b'a'; 100];
        let mut lines = Lines::default();
        for length in 0..=buffer.len() {
            assert_eq!(lines.end(&buffer[..length]), Ok(None));
            assert_eq!(lines.searched, length);
        }
    }

    /// Lines of every length, with tabs and without, however much comes with each call.
    #[test]
    fn lines_are_told_wherever_they_end() {
        for length in 0..3 * WIDE {
            for step in [1, 2, 3, 31, 63, 64, 65, 1000] {
                let line: Vec<u8> = (0..length).map(|place| if place * step % 5 == 3 { b'\t' } else { b'a' }).collect();
                let buffer = [&line, &b"\r\n"[..], &line, b"\r\n\r\nrest\0"].concat();
                let mut lines = Lines::default();
                let mut ends = Vec::new();
                let mut come = 0;
                while ends.len() < 3 {
                    match lines.end(&buffer[..come]) {
                        Ok(Some(end)) => {
                            ends.push(end);
                            lines.advance(end);
                        }
                        Ok(None) if come < buffer.len() => come = buffer.len().min(come + step),
                        other => panic!("{other:?} after {ends:?} with {come} bytes of lines of {length}"),
                    }
                }
                assert_eq!(ends, [length, 2 * length + 2, 2 * length + 4], "{length} by {step}");
            }
        }
    }

    #[test]
    fn lines_end_in_crlf_alone() {
        let check = |input: &[u8], expected| {
            assert_eq!(Lines::default().end(input), expected, "{:?}", String::from_utf8_lossy(input));
        };
        check(b"", Ok(None));
        check(b"ab", Ok(None));
        check(b"ab\r", Ok(None));
        check(b"ab\r\ncd", Ok(Some(2)));
        check(b"\r\n", Ok(Some(0)));
        check(b"a\tb\x80\xff\r\n", Ok(Some(5)));
        check(b"ab\n", Err(LineError::End));
        check(b"ab\rcd", Err(LineError::End));
        check(b"ab\r\r\n", Err(LineError::End));
        for control in (0..0x20).chain([0x7F]).filter(|byte| !b"\t\r\n".contains(byte)) {
            check(&[b'a', control, b'\r', b'\n'], Err(LineError::Control));
        }
    }

    #[test]
    fn tokens_are_what_the_rfc_says() {
        let allowed = b"!#$%&'*+-.^_`|~";
        for byte in 0..=255_u8 {
            let expected = byte.is_ascii_alphanumeric() || allowed.contains(&byte);
            assert_eq!(token_length(&[byte]) == 1, expected, "{byte:#x}");
        }
    }

    #[test]
    fn elements_are_split_at_commas_and_trimmed() {
        let list: Vec<_> = elements(b" a ,, \tb c\t,").collect();
        assert_eq!(list, [&b"a"[..], b"b c"]);
        assert_eq!(elements(b"").count() + elements(b" , ").count(), 0);
    }
}

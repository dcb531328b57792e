//! Lines: where they end, which bytes they may hold, and the field line (RFC 9112 2.2, 5; RFC 9110 5).
//!
//! A line is looked at only when it is whole, and no byte is searched twice for its end, so that a head costs the same in
//! one piece and byte by byte. It refuses what parsers are known to read differently: bare LF and CR, control bytes,
//! folded lines, white space around names. It knows nothing of what a field means.

use crate::pure::head::{Field, Known, Span};

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
    /// Everything before this is known to hold no end of that line, and nothing that may not be in one.
    pub searched: usize,
}

impl Lines {
    /// The end of the line that is being read, its CRLF left out; `None` if it has not come whole. The line stays the
    /// one being read until [`Lines::advance`].
    pub fn end(&mut self, buffer: &[u8]) -> Result<Option<usize>, LineError> {
        let from = self.searched.max(self.start);
        let end = from + text_length(buffer.get(from..).unwrap_or_default());
        self.searched = end;
        match buffer.get(end..) {
            Some([b'\r', b'\n', ..]) => Ok(Some(end)),
            Some([] | [b'\r']) | None => Ok(None),
            Some([b'\r' | b'\n', ..]) => Err(LineError::End),
            Some([..]) => Err(LineError::Control),
        }
    }

    /// Goes on to the line behind the one that ends at `end`.
    pub const fn advance(&mut self, end: usize) {
        self.start = end + 2;
        self.searched = self.start;
    }
}

/// A span of a buffer. Heads are limited to what 32 bits can say before anything is measured.
#[expect(clippy::cast_possible_truncation, reason = "a head is never longer than HEAD_MAX")]
pub(super) const fn span(start: usize, end: usize) -> Span {
    Span { start: start as u32, end: end as u32 }
}

/// No head is longer than this, whatever the limits say: offsets are 32 bits.
pub(super) const HEAD_MAX: usize = i32::MAX as usize;

/// Reads the field line `buffer[start..end]`; `None` where it is not one.
#[inline]
pub(super) fn parse_field(buffer: &[u8], start: usize, end: usize) -> Option<Field> {
    let line = buffer.get(start..end)?;
    let colon = token_length(line);
    let (name, value) = line.split_at_checked(colon)?;
    let [b':', value @ ..] = value else { return None };
    if name.is_empty() {
        return None;
    }
    let value_end = end - trailing_space(value);
    let value_start = (start + colon + 1 + leading_space(value)).min(value_end);
    let known = Known::of(name);
    Some(Field {
        name: span(start, start + colon),
        value: span(value_start, value_end),
        known,
        hop_by_hop: known.is_hop_by_hop(),
    })
}

fn leading_space(value: &[u8]) -> usize {
    value.iter().take_while(|byte| is_space(**byte)).count()
}

fn trailing_space(value: &[u8]) -> usize {
    value.iter().rev().take_while(|byte| is_space(**byte)).count()
}

/// The white space of fields (RFC 9110 5.6.3).
pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The elements of a comma-separated value (RFC 9110 5.6.1), empty ones left out. Quotes are not minded: no list that is
/// read here takes them.
pub(super) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(|element| element.trim_ascii()).filter(|element| !element.is_empty())
}

/// How many bytes at the front are those of a token (RFC 9110 5.6.2).
#[inline]
pub(super) fn token_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(bytes.len())
}

/// Whether a byte may stand in a token.
#[inline]
pub(super) fn is_token_byte(byte: u8) -> bool {
    TOKEN.get(usize::from(byte)).copied().unwrap_or(false)
}

static TOKEN: [bool; 256] = byte_set(b"!#$%&'*+-.^_`|~", true);

/// A table of the bytes given and, where said, ASCII letters and digits.
pub(super) const fn byte_set(bytes: &[u8], with_alphanumeric: bool) -> [bool; 256] {
    let mut table = [false; 256];
    let mut index = 0;
    while index < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let byte = index as u8;
        let mut is_member = with_alphanumeric && byte.is_ascii_alphanumeric();
        let mut rest = bytes;
        while let [first, others @ ..] = rest {
            is_member = is_member || *first == byte;
            rest = others;
        }
        #[expect(clippy::indexing_slicing, reason = "the loop's bound is the table's length")]
        {
            table[index] = is_member;
        }
        index += 1;
    }
    table
}

/// How many bytes at the front may stand inside a line: all but control bytes, of which only the tab may.
#[inline]
pub(super) fn text_length(bytes: &[u8]) -> usize {
    let (blocks, tail) = bytes.as_chunks::<16>();
    let mut length = 0;
    for block in blocks {
        // Without a branch inside, so that it becomes a handful of vector instructions.
        if block.iter().fold(false, |found, byte| found | is_control(*byte)) {
            return length + first_control(block);
        }
        length += 16;
    }
    length + first_control(tail)
}

const fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7F
}

fn first_control(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| is_control(*byte)).unwrap_or(bytes.len())
}

//! The fields of a head, in order, in one piece of memory.
//!
//! Each stands as the length of its name, the length of its value (four bytes each), the name, the value. It refuses to
//! look a field up: a head is gone through once, from the first field to the last.

use std::ops::Range;

/// Bytes of the two lengths before a field.
const LENGTHS: usize = 8;

/// Fields as they were decompressed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldBlock {
    bytes: Vec<u8>,
    count: usize,
    is_too_large: bool,
}

impl FieldBlock {
    /// An empty one with room for so many bytes, eight for each field beside its name and value.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), count: 0, is_too_large: false }
    }

    /// Puts a field behind the others. A name or value of 4 GiB has no place: it is left out.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        if self.push_lengths(name.len(), value.len()) {
            self.bytes.extend_from_slice(name);
            self.bytes.extend_from_slice(value);
        }
    }

    /// Names and values in order.
    pub fn fields(&self) -> Fields<'_> {
        Fields { bytes: &self.bytes }
    }

    /// How many fields there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes in use, of which [`Self::with_capacity`] makes room for so many.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes all fields out and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.is_too_large = false;
    }

    /// Whether fields were left out, because the list passed its limit.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Puts a field behind the others whose value stands behind its name.
    pub(super) fn push_joined(&mut self, bytes: &[u8], name_length: usize) {
        if self.push_lengths(name_length, bytes.len().saturating_sub(name_length)) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Whether there is a place for such a field.
    fn push_lengths(&mut self, name: usize, value: usize) -> bool {
        let Some(lengths) = lengths(name, value) else {
            self.is_too_large = true;
            return false;
        };
        self.bytes.extend_from_slice(&lengths);
        self.count += 1;
        true
    }

    /// Notes that fields are left out.
    pub(super) fn set_too_large(&mut self) {
        self.is_too_large = true;
    }

    /// Bytes that it has memory for.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Begins a field whose bytes are written by and by.
    pub(super) fn draft(&mut self) -> Draft<'_> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LENGTHS]);
        Draft { start, name_end: self.bytes.len(), block: self }
    }
}

/// A field that is being written: first its name, then its value.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    block: &'a mut FieldBlock,
    start: usize,
    name_end: usize,
}

impl Draft<'_> {
    /// Where the bytes go.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.block.bytes
    }

    /// The name is whole.
    pub(super) fn end_name(&mut self) {
        self.name_end = self.block.bytes.len();
    }

    /// The name.
    pub(super) fn name(&self) -> &[u8] {
        self.part(self.start + LENGTHS..self.name_end)
    }

    /// The value as far as it is there.
    pub(super) fn value(&self) -> &[u8] {
        self.part(self.name_end..self.block.bytes.len())
    }

    /// Makes it one of the fields.
    pub(super) fn keep(self) {
        let lengths = lengths(self.name().len(), self.value().len());
        let place = self.block.bytes.get_mut(self.start..).and_then(|field| field.first_chunk_mut());
        let (Some(lengths), Some(place)) = (lengths, place) else { return self.discard() };
        *place = lengths;
        self.block.count += 1;
    }

    /// Takes its bytes out again.
    pub(super) fn discard(self) {
        self.block.bytes.truncate(self.start);
    }

    fn part(&self, range: Range<usize>) -> &[u8] {
        self.block.bytes.get(range).unwrap_or_default()
    }
}

fn lengths(name: usize, value: usize) -> Option<[u8; LENGTHS]> {
    let (name, value) = (u32::try_from(name).ok()?, u32::try_from(value).ok()?);
    Some((u64::from(value) << 32 | u64::from(name)).to_le_bytes())
}

/// Goes through the fields of a block.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (lengths, rest) = self.bytes.split_first_chunk::<LENGTHS>()?;
        let lengths = u64::from_le_bytes(*lengths);
        let (name, rest) = rest.split_at_checked((lengths & 0xFFFF_FFFF) as usize)?;
        let (value, rest) = rest.split_at_checked((lengths >> 32) as usize)?;
        self.bytes = rest;
        Some((name, value))
    }
}

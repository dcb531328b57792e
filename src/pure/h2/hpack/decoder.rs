//! Reading compressed heads (RFC 7541 3, 6).
//!
//! The table is followed to the end of a block, or the block is an error, after which the connection can't go on: nothing
//! that comes later would mean what it says. A list of fields has a limit, past which fields are followed and not stored; one
//! that only names what is in a table costs no more there than a look, however large it is. It refuses indexes that there
//! are not, integers of more than four bytes behind their first, strings that end early, code that is not Huffman's, and a
//! size of the table that we have not allowed or that comes behind a field.

use super::block::FieldBlock;
use super::dynamic_table::{DynamicTable, Entry};
use super::{TABLE_SIZE_MAX, field_size, huffman, static_table};

/// A head that is not compressed by the rules, or not by the table that both sides have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the head can't be decompressed")]
pub struct DecodeError;

/// What the other side has told us to remember, on one connection.
#[derive(Debug, Default)]
pub struct Decoder {
    table: DynamicTable<()>,
}

impl Decoder {
    /// Decodes a whole block and puts its fields behind those in `out`.
    ///
    /// `list_max` bounds the bytes of names and values and 32 for each field (RFC 9113 6.5.2); from the field on that passes
    /// it, none is stored. After an error there may be some in `out`, but none in parts.
    pub fn decode(&mut self, block: &[u8], list_max: usize, out: &mut FieldBlock) -> Result<(), DecodeError> {
        let mut bytes = block;
        let mut room = Room { left: Some(list_max) };
        let mut has_fields = false;
        while let Some((first, rest)) = bytes.split_first() {
            bytes = rest;
            match first {
                0x80.. => {
                    let index = read_integer(*first, 0x7F, &mut bytes)?;
                    self.copy_entry(index, &mut room, out)?;
                }
                0x20..0x40 => {
                    let size = read_integer(*first, 0x1F, &mut bytes)? as usize;
                    if has_fields || size > TABLE_SIZE_MAX {
                        return Err(DecodeError);
                    }
                    self.table.set_size_max(size);
                    continue;
                }
                _ => {
                    let is_kept = *first >= 0x40;
                    let index = read_integer(*first, if is_kept { 0x3F } else { 0x0F }, &mut bytes)?;
                    self.read_literal(index, is_kept, &mut bytes, &mut room, out)?;
                }
            }
            has_fields = true;
        }
        if room.left.is_none() {
            out.set_too_large();
        }
        Ok(())
    }

    /// Copies the field of an index (RFC 7541 2.3.3), where it has a place.
    fn copy_entry(&self, index: u32, room: &mut Room, out: &mut FieldBlock) -> Result<(), DecodeError> {
        if let Some(entry) = self.entry(index)? {
            if room.take(entry.bytes.len()) {
                out.push_joined(entry.bytes, entry.name_length);
            }
            return Ok(());
        }
        let (name, value) = static_table::field(index).ok_or(DecodeError)?;
        if room.take(name.len() + value.len()) {
            out.push(name, value);
        }
        Ok(())
    }

    /// The name of an index.
    fn name(&self, index: u32) -> Result<&[u8], DecodeError> {
        match self.entry(index)? {
            Some(entry) => Ok(entry.name()),
            None => static_table::field(index).map(|(name, _)| name).ok_or(DecodeError),
        }
    }

    /// The dynamic table's entry; nothing where the index is of the static one.
    fn entry(&self, index: u32) -> Result<Option<Entry<'_, ()>>, DecodeError> {
        let Some(age) = index.checked_sub(static_table::COUNT + 1) else { return Ok(None) };
        self.table.get(age as usize).map(Some).ok_or(DecodeError)
    }

    /// Reads a field that is not in a table, but for its name, where `index` is not 0.
    fn read_literal(
        &mut self,
        index: u32,
        is_kept: bool,
        bytes: &mut &[u8],
        room: &mut Room,
        out: &mut FieldBlock,
    ) -> Result<(), DecodeError> {
        let is_wanted = is_kept || room.left.is_some();
        let mut draft = out.draft();
        let result = (|| {
            if index == 0 {
                read_string(bytes, is_wanted, draft.bytes())?;
            } else {
                let name = self.name(index)?;
                draft.bytes().extend_from_slice(if is_wanted { name } else { &[] });
            }
            draft.end_name();
            read_string(bytes, is_wanted, draft.bytes())
        })();
        if is_kept && result.is_ok() {
            self.table.insert(draft.name(), draft.value(), ());
        }
        if result.is_ok() && room.take(draft.name().len() + draft.value().len()) {
            draft.keep();
        } else {
            draft.discard();
        }
        result
    }
}

/// What a list may still take; nothing once a field did not fit.
struct Room {
    left: Option<usize>,
}

impl Room {
    /// Whether a field of so many bytes has a place in the list.
    fn take(&mut self, bytes: usize) -> bool {
        self.left = self.left.and_then(|left| left.checked_sub(field_size(bytes)));
        self.left.is_some()
    }
}

/// Reads an integer (RFC 7541 5.1) that begins in the bits of `mask`.
fn read_integer(first: u8, mask: u8, bytes: &mut &[u8]) -> Result<u32, DecodeError> {
    let mut number = u32::from(first & mask);
    if first & mask != mask {
        return Ok(number);
    }
    for shift in [0, 7, 14, 21] {
        let (byte, rest) = bytes.split_first().ok_or(DecodeError)?;
        *bytes = rest;
        number += u32::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(DecodeError)
}

/// Reads a string (RFC 7541 5.2) and puts it behind `out`, a plain one only where it is wanted.
fn read_string(bytes: &mut &[u8], is_wanted: bool, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let (first, rest) = bytes.split_first().ok_or(DecodeError)?;
    *bytes = rest;
    let length = read_integer(*first, 0x7F, bytes)? as usize;
    let (string, rest) = bytes.split_at_checked(length).ok_or(DecodeError)?;
    *bytes = rest;
    if first & 0x80 != 0 {
        return huffman::decode(string, out);
    }
    if is_wanted {
        out.extend_from_slice(string);
    }
    Ok(())
}

//! Writing compressed heads (RFC 7541 6): little work first, few bytes second.
//!
//! Fields that are mostly the same from one message to the next on a connection are put into the other side's table when they
//! first come and are one byte from then on; the static table's fields are one byte at once. What is secret is marked so that
//! nobody puts it into a table, here or further on (RFC 7541 7.1.3). All others are literals.
//!
//! Only what is put into the table is in Huffman's code, where that is shorter: it is written once. Of any other string the
//! code would save a quarter of the bytes for 18 instructions a byte (callgrind: 1143 of them for 60 bytes, and 52 for a copy;
//! 285 and 53 for 10), message after message.
//!
//! It refuses to use a table larger than the other side allows or than 4096 bytes, and to put in a value larger than a
//! quarter of it, which would push out much for little.

use super::dynamic_table::DynamicTable;
use super::names::{self, Habit, KnownName, LowerName, SLOTS};
use super::{TABLE_SIZE_MAX, field_size, huffman, static_table};

/// How many entries of one name are compared with a value.
const COMPARED_MAX: usize = 8;
/// How small a part of the table a value has to be.
const VALUE_PART: usize = 4;

/// What we have told the other side to remember, on one connection.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable<Link>,
    /// How many entries have been put in, which is the next one's number, modulo 2^16.
    inserted: u16,
    /// By slot, the number of the newest entry. It may long be gone, or be another's that got the same number later.
    newest: [u16; SLOTS],
    /// The smallest and the last size that the table is to have, where they have not been told yet.
    resize: Option<(usize, usize)>,
}

/// What is remembered of an entry.
#[derive(Clone, Copy, Debug)]
struct Link {
    slot: u8,
    /// The number of the entry of the same name before it, with the same reservations.
    previous: u16,
}

/// What a first byte says by its high bits, and which of the others begin an integer (RFC 7541 5, 6).
#[derive(Clone, Copy)]
struct Form {
    first: u8,
    mask: u8,
}

const INDEXED: Form = Form { first: 0x80, mask: 0x7F };
const KEPT: Form = Form { first: 0x40, mask: 0x3F };
const PASSING: Form = Form { first: 0, mask: 0x0F };
const SECRET: Form = Form { first: 0x10, mask: 0x0F };
const SIZE: Form = Form { first: 0x20, mask: 0x1F };
const HUFFMAN: Form = Form { first: 0x80, mask: 0x7F };
const PLAIN: Form = Form { first: 0, mask: 0x7F };

impl Default for Encoder {
    fn default() -> Self {
        Self { table: DynamicTable::default(), inserted: 0, newest: [0; SLOTS], resize: None }
    }
}

impl Encoder {
    /// What the other side allows (SETTINGS_HEADER_TABLE_SIZE). It is told at the start of the next block, in two steps where
    /// it went down and up again (RFC 7541 4.2).
    pub fn set_table_max(&mut self, max: u32) {
        let last = (max as usize).min(TABLE_SIZE_MAX);
        let (smallest, _) = self.resize.unwrap_or((self.table.size_max(), 0));
        self.resize = Some((smallest.min(last), last));
    }

    /// Begins a block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        let Some((smallest, last)) = self.resize.take() else { return };
        for size in [smallest, last] {
            if size != self.table.size_max() {
                self.table.set_size_max(size);
                push_integer(out, SIZE, size);
            }
        }
    }

    /// Writes the status of an answer.
    pub fn push_status(&mut self, out: &mut Vec<u8>, status: u16) {
        let digits = [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
        self.push_known(out, names::STATUS, b":status", &digits);
    }

    /// Writes a field or pseudo-header field; its name, which may have capitals, without them.
    pub fn push(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let lower = LowerName::of(name);
        if let Some(name) = lower.as_ref().map(LowerName::bytes)
            && let Some(known) = names::known(name)
        {
            return self.push_known(out, known, name, value);
        }
        out.push(PASSING.first);
        push_integer(out, PLAIN, name.len());
        out.extend(name.iter().map(u8::to_ascii_lowercase));
        push_plain(out, value);
    }

    fn push_known(&mut self, out: &mut Vec<u8>, known: KnownName, name: &[u8], value: &[u8]) {
        if let Some(index) = static_table::index(known.slot, value) {
            return push_integer(out, INDEXED, usize::from(index));
        }
        match known.habit {
            Habit::Kept => self.push_kept(out, known, name, value),
            Habit::Passing => push_literal(out, PASSING, known, name, value),
            Habit::Secret => push_literal(out, SECRET, known, name, value),
        }
    }

    /// Writes a field that is in the table or is to be there.
    fn push_kept(&mut self, out: &mut Vec<u8>, known: KnownName, name: &[u8], value: &[u8]) {
        let size_max = self.table.size_max();
        if value.len() > size_max / VALUE_PART || field_size(name.len() + value.len()) > size_max {
            return push_literal(out, PASSING, known, name, value);
        }
        let newest = self.newest.get(usize::from(known.slot)).copied().unwrap_or(0);
        let mut name_index = usize::from(known.static_index());
        let mut number = newest;
        for _ in 0..COMPARED_MAX {
            let age = usize::from(self.inserted.wrapping_sub(1).wrapping_sub(number));
            let Some(entry) = self.table.get(age).filter(|entry| entry.mark.slot == known.slot) else { break };
            let index = static_table::COUNT as usize + 1 + age;
            if entry.value() == value {
                return push_integer(out, INDEXED, index);
            }
            if name_index == 0 {
                name_index = index;
            }
            number = entry.mark.previous;
        }
        push_integer(out, KEPT, name_index);
        if name_index == 0 {
            push_shorter(out, name);
        }
        push_shorter(out, value);
        self.table.insert(name, value, Link { slot: known.slot, previous: newest });
        if let Some(place) = self.newest.get_mut(usize::from(known.slot)) {
            *place = self.inserted;
        }
        self.inserted = self.inserted.wrapping_add(1);
    }
}

/// Writes a field that is not put into the table.
fn push_literal(out: &mut Vec<u8>, form: Form, known: KnownName, name: &[u8], value: &[u8]) {
    push_integer(out, form, usize::from(known.static_index()));
    if known.static_index() == 0 {
        push_plain(out, name);
    }
    push_plain(out, value);
}

fn push_plain(out: &mut Vec<u8>, string: &[u8]) {
    push_integer(out, PLAIN, string.len());
    out.extend_from_slice(string);
}

/// Writes a string in Huffman's code where that is shorter.
fn push_shorter(out: &mut Vec<u8>, string: &[u8]) {
    let length = huffman::encoded_length(string);
    if length >= string.len() {
        return push_plain(out, string);
    }
    push_integer(out, HUFFMAN, length);
    huffman::encode(string, out);
}

/// Writes an integer (RFC 7541 5.1).
#[inline]
fn push_integer(out: &mut Vec<u8>, form: Form, number: usize) {
    match number.checked_sub(usize::from(form.mask)) {
        None => out.push(form.first | number as u8),
        Some(rest) => push_long_integer(out, form, rest),
    }
}

/// Writes one that does not fit into the first byte, of which `rest` is left then.
fn push_long_integer(out: &mut Vec<u8>, form: Form, mut rest: usize) {
    out.push(form.first | form.mask);
    while rest > 0x7F {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

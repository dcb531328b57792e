//! The names of HTTP/2 heads as they come by, as far as the `h2` crate is silent about what is wrong (RFC 9113 8, RFC 7541).
//!
//! The crate drops pseudo-header fields in trailers without a word, and the fragment of a `:path`, where RFC 9113 8.1 and
//! 8.3 want the message refused; and it calls every fault of compression one of the protocol. This reader walks the same
//! bytes. It decompresses nothing: strings are passed over by their length, and of the dynamic table it keeps three bits for
//! each entry. It refuses to judge anything else: what is wrong otherwise is the crate's to refuse.

mod fragment;

use self::fragment::FragmentScan;
use crate::pure::h2::frames::{Fault, FrameHeader, FrameKind};

/// The first index of the dynamic table (RFC 7541 2.3.3).
const DYNAMIC: u32 = 62;
/// The last index of the static table whose name begins with a colon (RFC 7541 Appendix A).
const STATIC_PSEUDO_MAX: u32 = 14;
/// The indexes of the static table whose name is `:path`.
const STATIC_PATHS: [u32; 2] = [4, 5];
/// The code of a colon in Huffman's coding (RFC 7541 Appendix B), which is of seven bits.
const HUFFMAN_COLON: u8 = 0b101_1100;
/// A name, plain and in that code.
const PATH: [&[u8]; 2] = [b":path", b"\xb9\x58\xd3\x3f"];
/// Bytes of an integer behind its prefix. The `h2` crate takes no more either.
const INTEGER_MAX: u8 = 4;
/// Bytes of a priority (RFC 9113 6.2).
const PRIORITY: u8 = 5;
/// The size of the dynamic table, which we never change, and the least that an entry takes of it (RFC 7541 4.1).
const TABLE_SIZE: u32 = 4096;
/// See [`TABLE_SIZE`].
const ENTRY_MIN: u32 = 32;

/// What a piece of a head shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to object to.
    Fine,
    /// That stream's head or trailers are malformed. It is told once for each.
    Malformed(u32),
    /// The connection can't go on.
    Broken(Fault),
}

/// Where in a block the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It begins a representation (RFC 7541 6).
    Representation,
    /// It goes on with an index or a size.
    Index,
    /// It begins the length of a name.
    NameLength,
    /// It goes on with it.
    NameLengthRest,
    /// It begins a name.
    NameStart,
    /// It is of a name.
    Name,
    /// It begins the length of a value.
    ValueLength,
    /// It goes on with it.
    ValueLengthRest,
    /// It is of a value.
    Value,
}

/// A representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// An entry of a table.
    Indexed,
    /// A literal which becomes an entry of the dynamic table.
    Kept,
    /// A literal which does not.
    Passing,
    /// The dynamic table's size.
    Size,
}

/// What is remembered of the dynamic table's entries: a bit for each, the newest one lowest. There is room for 128. Entries
/// that have been pushed out may still have theirs: the crate refuses their indexes.
#[derive(Clone, Copy, Debug, Default)]
struct Entries {
    /// Names that begin with a colon.
    pseudo: u128,
    /// Names that are `:path`.
    paths: u128,
    /// Values that are a path with a fragment.
    fragments: u128,
    /// How many there are at most.
    count: u32,
}

/// What is known of a field.
#[derive(Clone, Copy, Debug, Default)]
struct Name {
    is_pseudo: bool,
    is_path: bool,
}

/// Follows the HEADERS and CONTINUATION frames of a client.
#[derive(Clone, Debug)]
pub struct FieldReader {
    /// The highest stream that has had a head.
    newest: u32,
    /// The stream whose head or trailers come.
    stream: u32,
    is_trailers: bool,
    is_told: bool,
    broken: Option<Fault>,
    /// Whether the frame's next byte says how much padding there is.
    is_padding_due: bool,
    /// Bytes of the frame's priority that are still to come, and what has come of the stream it depends on.
    priority: u8,
    dependency: u32,
    /// Bytes of the block in this frame that are still to come, and whether the block ends with them.
    fragment: u32,
    is_last: bool,
    part: Part,
    form: Form,
    /// Whether the block has had a field, so that no size may come any more (RFC 7541 4.2).
    has_fields: bool,
    /// An integer, as far as it has come, or what is still to come of a string.
    number: u32,
    number_bytes: u8,
    is_huffman: bool,
    /// The name of the field, as far as it has come.
    name: Name,
    scan: FragmentScan,
    entries: Entries,
    /// How many entries the dynamic table may have.
    entries_max: u32,
}

impl Default for FieldReader {
    fn default() -> Self {
        Self {
            newest: 0,
            stream: 0,
            is_trailers: false,
            is_told: false,
            broken: None,
            is_padding_due: false,
            priority: 0,
            dependency: 0,
            fragment: 0,
            is_last: false,
            part: Part::Representation,
            form: Form::Indexed,
            has_fields: false,
            number: 0,
            number_bytes: 0,
            is_huffman: false,
            name: Name::default(),
            scan: FragmentScan::default(),
            entries: Entries::default(),
            entries_max: TABLE_SIZE / ENTRY_MIN,
        }
    }
}

impl FieldReader {
    /// Takes note of a frame's header. Of HEADERS and CONTINUATION the payload is to follow through [`Self::read`].
    pub fn begin(&mut self, frame: FrameHeader) {
        match frame.kind {
            FrameKind::Headers => {
                self.stream = frame.stream;
                self.is_trailers = frame.stream <= self.newest;
                self.newest = self.newest.max(frame.stream);
                self.is_told = false;
                self.is_padding_due = frame.is_padded();
                self.priority = if frame.has_priority() { PRIORITY } else { 0 };
                self.dependency = 0;
                self.part = Part::Representation;
                self.has_fields = false;
            }
            FrameKind::Continuation => (self.is_padding_due, self.priority) = (false, 0),
            _ => return,
        }
        self.fragment = frame.length;
        self.is_last = frame.ends_head();
    }

    /// Follows a piece of the payload.
    pub fn read(&mut self, payload: &[u8]) -> Verdict {
        let block = self.skip_prefix(payload);
        // What is behind the block is padding.
        let length = block.len().min(self.fragment as usize);
        self.fragment -= u32::try_from(length).unwrap_or(self.fragment);
        let is_malformed = self.walk(block.get(..length).unwrap_or_default());
        if length > 0 && self.fragment == 0 && self.is_last && self.part != Part::Representation {
            self.broken.get_or_insert(Fault::Compression);
        }
        if let Some(fault) = self.broken {
            Verdict::Broken(fault)
        } else if is_malformed && !self.is_told {
            self.is_told = true;
            Verdict::Malformed(self.stream)
        } else {
            Verdict::Fine
        }
    }

    /// Passes over what stands before the block.
    fn skip_prefix<'a>(&mut self, mut payload: &'a [u8]) -> &'a [u8] {
        while (self.is_padding_due || self.priority > 0)
            && let Some((first, rest)) = payload.split_first()
        {
            payload = rest;
            self.fragment = self.fragment.saturating_sub(1);
            if self.is_padding_due {
                self.is_padding_due = false;
                self.fragment = self.fragment.saturating_sub(u32::from(*first));
                continue;
            }
            self.priority -= 1;
            if self.priority > 0 {
                self.dependency = self.dependency << 8 | u32::from(*first);
            } else if self.dependency & 0x7FFF_FFFF == self.stream {
                // The crate resets such a stream without a look at its block, so that from then on its table and the client's
                // are not the same.
                self.broken.get_or_insert(Fault::Protocol);
            }
        }
        payload
    }

    /// Follows bytes of the block. Whether they show that it is malformed.
    fn walk(&mut self, mut bytes: &[u8]) -> bool {
        let mut is_malformed = false;
        while let Some((first, rest)) = bytes.split_first()
            && self.broken.is_none()
        {
            if let Part::Name | Part::Value = self.part {
                let (piece, rest) = bytes.split_at_checked(self.number as usize).unwrap_or((bytes, &[]));
                self.number -= u32::try_from(piece.len()).unwrap_or(self.number);
                is_malformed |= self.pass(piece);
                bytes = rest;
                continue;
            }
            bytes = rest;
            is_malformed |= self.take(*first);
        }
        is_malformed
    }

    /// Passes over a piece of a string, of which `self.number` bytes are still to come behind it.
    fn pass(&mut self, piece: &[u8]) -> bool {
        let is_over = self.number == 0;
        if self.part == Part::Name {
            self.compare_name(piece);
            if !is_over {
                return false;
            }
            self.part = Part::ValueLength;
            return self.end_name();
        }
        let has_fragment = self.name.is_path && self.scan.has_begun(piece);
        if has_fragment && self.form == Form::Kept {
            self.entries.fragments |= 1;
        }
        if is_over {
            self.part = Part::Representation;
        }
        has_fragment
    }

    /// Follows a byte that is not passed over. Whether it shows that the block is malformed.
    fn take(&mut self, byte: u8) -> bool {
        match self.part {
            Part::Representation => {
                let prefix;
                (self.form, prefix) = match byte {
                    0x80.. => (Form::Indexed, 0x7F),
                    0x40.. => (Form::Kept, 0x3F),
                    0x20.. => (Form::Size, 0x1F),
                    _ => (Form::Passing, 0x0F),
                };
                self.part = Part::Index;
                self.begin_number(byte, prefix) && self.end_index()
            }
            Part::Index => self.go_on(byte) && self.end_index(),
            Part::NameLength | Part::ValueLength => {
                self.is_huffman = byte & 0x80 != 0;
                self.part = if self.part == Part::NameLength { Part::NameLengthRest } else { Part::ValueLengthRest };
                self.begin_number(byte, 0x7F) && self.end_length()
            }
            Part::NameLengthRest | Part::ValueLengthRest => self.go_on(byte) && self.end_length(),
            Part::NameStart => {
                self.name.is_pseudo = if self.is_huffman { byte >> 1 == HUFFMAN_COLON } else { byte == b':' };
                self.number -= 1;
                self.part = Part::Name;
                self.pass(&[byte])
            }
            Part::Name | Part::Value => false,
        }
    }

    /// Begins an integer (RFC 7541 5.1). Whether it is whole.
    fn begin_number(&mut self, byte: u8, prefix: u8) -> bool {
        self.number = u32::from(byte & prefix);
        self.number_bytes = 0;
        byte & prefix != prefix
    }

    /// Goes on with an integer. Whether it is whole.
    fn go_on(&mut self, byte: u8) -> bool {
        if self.number_bytes == INTEGER_MAX {
            self.broken = Some(Fault::Compression);
            return false;
        }
        // Four times seven bits and a prefix fit.
        self.number += u32::from(byte & 0x7F) << (7 * self.number_bytes);
        self.number_bytes += 1;
        byte & 0x80 == 0
    }

    fn end_index(&mut self) -> bool {
        self.part = match (self.form, self.number) {
            (Form::Size | Form::Indexed, _) => Part::Representation,
            (_, 0) => Part::NameLength,
            _ => Part::ValueLength,
        };
        if self.form == Form::Size {
            self.resize();
            return false;
        }
        self.has_fields = true;
        if self.part == Part::NameLength {
            return false;
        }
        let Some(age) = self.number.checked_sub(DYNAMIC) else {
            if self.number == 0 {
                self.broken = Some(Fault::Compression);
            }
            self.name.is_pseudo = (1..=STATIC_PSEUDO_MAX).contains(&self.number);
            self.name.is_path = STATIC_PATHS.contains(&self.number);
            return self.end_name();
        };
        if age >= self.entries.count {
            self.broken = Some(Fault::Compression);
            return false;
        }
        let bit = |bits: u128| bits.checked_shr(age).unwrap_or(0) & 1 != 0;
        self.name = Name { is_pseudo: bit(self.entries.pseudo), is_path: bit(self.entries.paths) };
        let has_fragment = self.form == Form::Indexed && bit(self.entries.fragments);
        self.end_name() || has_fragment
    }

    /// The dynamic table gets another size (RFC 7541 4.3, 6.3).
    fn resize(&mut self) {
        if self.number > TABLE_SIZE || self.has_fields {
            self.broken = Some(Fault::Compression);
        }
        self.entries_max = self.number / ENTRY_MIN;
        self.entries.count = self.entries.count.min(self.entries_max);
    }

    fn end_length(&mut self) -> bool {
        match (self.part, self.number) {
            (Part::NameLengthRest, 0) => {
                self.name = Name::default();
                self.part = Part::ValueLength;
                return self.end_name();
            }
            (Part::NameLengthRest, length) => {
                self.name = Name { is_pseudo: false, is_path: length as usize == self.path().len() };
                self.part = Part::NameStart;
            }
            (_, 0) => self.part = Part::Representation,
            _ => {
                self.scan = FragmentScan::new(self.is_huffman);
                self.part = Part::Value;
            }
        }
        false
    }

    /// `:path` as the present name would say it.
    fn path(&self) -> &'static [u8] {
        let [plain, huffman] = PATH;
        if self.is_huffman { huffman } else { plain }
    }

    /// Goes on comparing a name as long as `:path` with that.
    fn compare_name(&mut self, piece: &[u8]) {
        if self.name.is_path {
            let rest = self.path().len().saturating_sub(self.number as usize + piece.len());
            self.name.is_path = self.path().get(rest..).is_some_and(|rest| rest.starts_with(piece));
        }
    }

    /// Takes note of a field's name, and of a literal's entry. Whether it has no place in this block.
    fn end_name(&mut self) -> bool {
        if self.form == Form::Kept {
            let Entries { pseudo, paths, fragments, count } = &mut self.entries;
            *pseudo = *pseudo << 1 | u128::from(self.name.is_pseudo);
            *paths = *paths << 1 | u128::from(self.name.is_path);
            *fragments <<= 1;
            *count = (*count + 1).min(self.entries_max);
        }
        self.name.is_pseudo && self.is_trailers
    }
}

#[cfg(test)]
mod tests;

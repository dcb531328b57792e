//! The fields that one side has told the other to remember (RFC 7541 2.3.2, 4), the newest first.
//!
//! Their bytes stand one behind the other in one piece of memory, which is made when the first comes: a field more is a copy
//! and mostly no allocation. What has been pushed out stays before the rest until it is half of all, and then the rest is
//! moved; so no byte is moved more than once for one that came. Sizes and evictions are the RFC's, to the byte.

use std::collections::VecDeque;

use super::{TABLE_SIZE_MAX, field_size};

/// Bytes of memory, when the first entry comes and at most: as many may be of what was pushed out as of the rest.
const MEMORY_MIN: usize = 512;
/// See [`MEMORY_MIN`].
const MEMORY_MAX: usize = 2 * TABLE_SIZE_MAX;
/// Entries for which there is room when the first comes.
const PLACES_MIN: usize = 16;

/// A table whose entries bear a mark of their owner's.
#[derive(Debug)]
pub(super) struct DynamicTable<M> {
    bytes: Vec<u8>,
    /// The oldest first.
    places: VecDeque<Place<M>>,
    size: usize,
    size_max: usize,
}

/// Where an entry's bytes are. None has more than the table.
#[derive(Clone, Copy, Debug)]
struct Place<M> {
    start: u16,
    end: u16,
    name_length: u16,
    mark: M,
}

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a, M> {
    /// The name and the value behind it.
    pub(super) bytes: &'a [u8],
    /// Bytes of the name.
    pub(super) name_length: usize,
    pub(super) mark: M,
}

impl<'a, M> Entry<'a, M> {
    /// The name.
    pub(super) fn name(&self) -> &'a [u8] {
        self.bytes.get(..self.name_length).unwrap_or_default()
    }

    /// The value.
    pub(super) fn value(&self) -> &'a [u8] {
        self.bytes.get(self.name_length..).unwrap_or_default()
    }
}

impl<M> Default for DynamicTable<M> {
    fn default() -> Self {
        Self { bytes: Vec::new(), places: VecDeque::new(), size: 0, size_max: TABLE_SIZE_MAX }
    }
}

impl<M: Copy> DynamicTable<M> {
    /// The entry of that age: the newest has 0.
    pub(super) fn get(&self, age: usize) -> Option<Entry<'_, M>> {
        let place = self.places.get(self.places.len().wrapping_sub(1).wrapping_sub(age))?;
        let (start, end) = (usize::from(place.start), usize::from(place.end));
        let bytes = self.bytes.get(start..end)?;
        Some(Entry { bytes, name_length: usize::from(place.name_length), mark: place.mark })
    }

    /// Puts an entry in, for which old ones go. One larger than the table empties it and is not put in (RFC 7541 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], mark: M) {
        let size = field_size(name.len() + value.len());
        let Some(rest) = self.size_max.checked_sub(size) else {
            self.shrink(0);
            return;
        };
        self.shrink(rest);
        self.make_room(name.len() + value.len());
        let (start, end) = (self.bytes.len(), self.bytes.len() + name.len() + value.len());
        let (Ok(start), Ok(end), Ok(name_length)) =
            (u16::try_from(start), u16::try_from(end), u16::try_from(name.len()))
        else {
            return;
        };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.size += size;
        self.places.push_back(Place { start, end, name_length, mark });
    }

    /// How large it may be.
    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Changes how large it may be (RFC 7541 4.3).
    pub(super) fn set_size_max(&mut self, size_max: usize) {
        self.size_max = size_max.min(TABLE_SIZE_MAX);
        self.shrink(self.size_max);
    }

    /// Takes the oldest entries out until the size is at most that.
    fn shrink(&mut self, size: usize) {
        while self.size > size
            && let Some(place) = self.places.pop_front()
        {
            self.size -= field_size(usize::from(place.end - place.start));
        }
    }

    /// Sees to it that there is room for so many bytes.
    fn make_room(&mut self, length: usize) {
        if self.bytes.len() + length <= self.bytes.capacity() {
            return;
        }
        let dead = self.places.front().map_or(self.bytes.len(), |place| usize::from(place.start));
        if dead * 2 >= self.bytes.len() {
            self.forget(dead);
        }
        let wanted = self.bytes.len() + length;
        if wanted > self.bytes.capacity() {
            let memory = (self.bytes.capacity() * 2).clamp(MEMORY_MIN, MEMORY_MAX).max(wanted);
            self.bytes.reserve_exact(memory - self.bytes.len());
            self.places.reserve(PLACES_MIN.saturating_sub(self.places.len()));
        }
    }

    /// Takes out the bytes before the oldest entry.
    fn forget(&mut self, dead: usize) {
        self.bytes.drain(..dead);
        let dead = u16::try_from(dead).unwrap_or(u16::MAX);
        for place in &mut self.places {
            place.start = place.start.saturating_sub(dead);
            place.end = place.end.saturating_sub(dead);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The names that are in it, the newest first.
    fn names(table: &DynamicTable<()>) -> Vec<&str> {
        (0..).map_while(|age| table.get(age)).map(|entry| std::str::from_utf8(entry.name()).unwrap()).collect()
    }

    #[test]
    fn the_oldest_entries_go_where_there_is_no_room_to_the_byte() {
        let mut table = DynamicTable::default();
        table.set_size_max(2 * 34 + 40);
        for name in ["a", "b", "c"] {
            table.insert(name.as_bytes(), b"-", ());
        }
        assert_eq!(names(&table), ["c", "b", "a"], "102 bytes");
        table.insert(b"d", b"123456", ());
        assert_eq!(names(&table), ["d", "c", "b"], "107 bytes");
        table.insert(b"e", b"12", ());
        assert_eq!(names(&table), ["e", "d", "c"], "108 bytes");
        table.insert(b"f", b"", ());
        assert_eq!(names(&table), ["f", "e", "d"], "107 bytes");
        table.insert(b"g", b"1", ());
        assert_eq!(names(&table), ["g", "f", "e"]);
        table.set_size_max(34 + 33);
        assert_eq!(names(&table), ["g", "f"]);
        table.set_size_max(34 + 32);
        assert_eq!(names(&table), ["g"]);
    }

    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::default();
        table.insert(b"a", b"", ());
        table.insert(b"b", &[b'v'; 4096 - 33], ());
        assert_eq!(names(&table), ["b"], "as large as the table");
        table.insert(b"c", &[b'v'; 4096 - 32], ());
        assert!(names(&table).is_empty());
    }

    #[test]
    fn a_table_that_was_never_used_has_no_memory() {
        let mut table = DynamicTable::<()>::default();
        table.set_size_max(0);
        table.insert(b"a", b"", ());
        assert_eq!((table.bytes.capacity(), table.places.capacity()), (0, 0));
    }

    proptest! {
        #[test]
        fn memory_is_at_most_twice_the_table(lengths in proptest::collection::vec(0_usize..4100, 1..60), part in 1_usize..40) {
            let mut table = DynamicTable::default();
            for length in lengths {
                table.insert(b"", &vec![b'v'; length / part], ());
                prop_assert!(table.bytes.capacity() <= MEMORY_MAX, "{}", table.bytes.capacity());
            }
        }
    }
}

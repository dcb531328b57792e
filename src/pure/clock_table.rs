//! A bounded table by 64-bit keys that makes room by CLOCK (Corbató 1968): entries asked for since the hand last passed stay.
//!
//! The keys are hashes: who fills it with what clients send hashes under a secret seed, so that nobody can choose keys that
//! share an entry. It refuses to grow beyond its bound, and to know the time: who asks says which values are spent, and those
//! go first.

use std::collections::HashMap;

use crate::pure::rule::hash::BuildKeyHasher;

/// A table of at most so many entries; an empty one has no memory.
#[derive(Debug)]
pub struct ClockTable<V> {
    /// The place of each key in `entries`.
    places: HashMap<u64, usize, BuildKeyHasher>,
    entries: Vec<Entry<V>>,
    capacity: usize,
    /// The next entry that may have to go.
    hand: usize,
    evictions: u64,
}

#[derive(Debug)]
struct Entry<V> {
    key: u64,
    value: V,
    was_used: bool,
}

/// How full a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Entries there are.
    pub entries: usize,
    /// Entries there can be.
    pub capacity: usize,
    /// Entries that made room for others so far.
    pub evictions: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.entries += other.entries;
        self.capacity += other.capacity;
        self.evictions += other.evictions;
    }
}

impl<V> ClockTable<V> {
    /// An empty table of at most `capacity` entries.
    pub fn new(capacity: usize) -> Self {
        Self { places: HashMap::default(), entries: Vec::new(), capacity, hand: 0, evictions: 0 }
    }

    /// The value of a key, which counts as asked for.
    pub fn touch(&mut self, key: u64) -> Option<&mut V> {
        let entry = self.entries.get_mut(*self.places.get(&key)?)?;
        entry.was_used = true;
        Some(&mut entry.value)
    }

    /// The value of a key, which does not count as asked for.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.entries.get_mut(*self.places.get(&key)?).map(|entry| &mut entry.value)
    }

    /// Sets the value of a key. Where there is no room left an entry goes, one whose value `is_spent` before one that was asked
    /// for.
    pub fn insert(&mut self, key: u64, value: V, is_spent: impl Fn(&V) -> bool) {
        if let Some(known) = self.get_mut(key) {
            *known = value;
            return;
        }
        let entry = Entry { key, value, was_used: false };
        if self.entries.len() < self.capacity {
            self.places.insert(key, self.entries.len());
            self.entries.push(entry);
            return;
        }
        let Some(place) = self.victim(is_spent) else { return };
        if let Some(old) = self.entries.get_mut(place) {
            let old = std::mem::replace(old, entry);
            self.places.remove(&old.key);
            self.places.insert(key, place);
            self.evictions += 1;
        }
    }

    /// Every key and its value.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.entries.iter().map(|entry| (entry.key, &entry.value))
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        Usage { entries: self.entries.len(), capacity: self.capacity, evictions: self.evictions }
    }

    /// The first entry from the hand on that is spent, or was not asked for since the hand last passed. Two rounds are enough:
    /// the first one takes every mark away.
    fn victim(&mut self, is_spent: impl Fn(&V) -> bool) -> Option<usize> {
        for _ in 0..2 * self.entries.len() {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.entries.len().max(1);
            let entry = self.entries.get_mut(place)?;
            if !std::mem::take(&mut entry.was_used) || is_spent(&entry.value) {
                return Some(place);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same in the plainest way: a list that is looked through.
    #[derive(Default)]
    struct Naive {
        list: Vec<(u64, u32, bool)>,
        hand: usize,
    }

    impl Naive {
        fn find(&mut self, key: u64) -> Option<&mut (u64, u32, bool)> {
            self.list.iter_mut().find(|(known, ..)| *known == key)
        }

        fn insert(&mut self, key: u64, value: u32, capacity: usize, is_spent: impl Fn(u32) -> bool) {
            if let Some(known) = self.find(key) {
                known.1 = value;
            } else if self.list.len() < capacity {
                self.list.push((key, value, false));
            } else if capacity > 0 {
                while self.list[self.hand].2 && !is_spent(self.list[self.hand].1) {
                    self.list[self.hand].2 = false;
                    self.hand = (self.hand + 1) % capacity;
                }
                self.list[self.hand] = (key, value, false);
                self.hand = (self.hand + 1) % capacity;
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_the_list_that_is_looked_through(
            capacity in 0_usize..12,
            steps in prop::collection::vec((0_u64..24, 0_u32..100, 0_u8..3), 0..400),
        ) {
            let (mut table, mut naive) = (ClockTable::new(capacity), Naive::default());
            let is_spent = |value: u32| value < 10;
            for (key, value, step) in steps {
                match step {
                    0 => {
                        table.insert(key, value, |value| is_spent(*value));
                        naive.insert(key, value, capacity, is_spent);
                    }
                    1 => prop_assert_eq!(table.get_mut(key).copied(), naive.find(key).map(|known| known.1)),
                    _ => {
                        let known = naive.find(key);
                        let expected = known.as_ref().map(|known| known.1);
                        if let Some(known) = known {
                            known.2 = true;
                        }
                        prop_assert_eq!(table.touch(key).copied(), expected);
                    }
                }
                prop_assert_eq!(table.usage().entries, naive.list.len());
                prop_assert!(table.usage().entries <= capacity && table.places.len() == table.entries.len());
            }
        }
    }
}

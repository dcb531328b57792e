//! A bounded table from hashes of keys to what is known of each key, shared by threads.
//!
//! It lies in shards, each behind a lock that is held for one look-up and never across a wait. When a shard is full, the
//! CLOCK algorithm (Corbató 1968) makes room: entries asked for since the hand last passed stay. Two keys of one 64-bit hash
//! share an entry, so it is for what may be wrong once in a lifetime. It refuses to grow beyond its capacity.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pure::rule::hash::BuildKeyHasher;

/// Locks that the entries are spread over: as many as the upper six bits of a hash tell apart.
const SHARDS: usize = 64;

/// A table of `V`s.
#[derive(Debug)]
pub struct KeyTable<V> {
    shards: Box<[Mutex<Shard<V>>]>,
}

#[derive(Debug)]
struct Shard<V> {
    /// The slot of each key.
    slots: HashMap<u64, usize, BuildKeyHasher>,
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

impl<V: Default> KeyTable<V> {
    /// An empty table of at most `capacity` entries, rounded up to a multiple of 64.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.div_ceil(SHARDS).max(1);
        let shard = |_| {
            let (slots, entries) = (HashMap::default(), Vec::new());
            Mutex::new(Shard { slots, entries, capacity, hand: 0, evictions: 0 })
        };
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    /// Looks at the entry of `key`, or at a new one, under its lock; `None` only where there is no such shard.
    pub fn with<R>(&self, key: u64, look: impl FnOnce(&mut V) -> R) -> Option<R> {
        let mut shard = self.shard(key)?;
        let slot = shard.slot_of(key);
        let entry = shard.entries.get_mut(slot)?;
        Some(look(&mut entry.value))
    }

    /// Looks at the entry of `key` where there is one.
    pub fn look<R>(&self, key: u64, look: impl FnOnce(&V) -> R) -> Option<R> {
        let shard = self.shard(key)?;
        let slot = shard.slots.get(&key).copied()?;
        shard.entries.get(slot).map(|entry| look(&entry.value))
    }

    /// Shows every entry, a shard at a time.
    pub fn for_each(&self, mut show: impl FnMut(u64, &V)) {
        for shard in &self.shards {
            lock(shard).entries.iter().for_each(|entry| show(entry.key, &entry.value));
        }
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for shard in &self.shards {
            let shard = lock(shard);
            usage.entries += shard.entries.len();
            usage.capacity += shard.capacity;
            usage.evictions += shard.evictions;
        }
        usage
    }

    fn shard(&self, key: u64) -> Option<MutexGuard<'_, Shard<V>>> {
        self.shards.get((key >> 58) as usize).map(lock)
    }
}

/// A thread that panicked in here has left a usable shard: each step leaves it whole.
fn lock<V>(shard: &Mutex<Shard<V>>) -> MutexGuard<'_, Shard<V>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<V: Default> Shard<V> {
    /// The slot of the key's entry, which is made where there is none.
    fn slot_of(&mut self, key: u64) -> usize {
        if let Some(slot) = self.slots.get(&key).copied() {
            if let Some(entry) = self.entries.get_mut(slot) {
                entry.was_used = true;
            }
            return slot;
        }
        let entry = Entry { key, value: V::default(), was_used: false };
        if self.entries.len() < self.capacity {
            let slot = self.entries.len();
            self.entries.push(entry);
            self.slots.insert(key, slot);
            return slot;
        }
        let slot = self.victim();
        if let Some(old) = self.entries.get_mut(slot) {
            self.slots.remove(&old.key);
            *old = entry;
            self.evictions += 1;
        }
        self.slots.insert(key, slot);
        slot
    }

    /// The entry that has to go: the first that was not asked for since the hand last passed.
    fn victim(&mut self) -> usize {
        loop {
            let slot = if self.hand < self.entries.len() { self.hand } else { 0 };
            self.hand = slot + 1;
            match self.entries.get_mut(slot) {
                Some(entry) if entry.was_used => entry.was_used = false,
                Some(_) | None => return slot,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a map that forgets nothing: what is there is right, and there is never too much.
        #[test]
        fn what_is_there_is_right_and_there_is_never_too_much(keys in prop::collection::vec(0u64..200, 1..600)) {
            let table: KeyTable<u32> = KeyTable::new(64);
            let mut all: HashMap<u64, u32> = HashMap::new();
            for (number, key) in (1u32..).zip(&keys) {
                // All in one shard.
                table.with(*key, |value| *value = number).unwrap();
                all.insert(*key, number);
                for (key, value) in &all {
                    prop_assert!(table.look(*key, |found| *found).is_none_or(|found| found == *value));
                }
                prop_assert_eq!(table.look(*key, |found| *found), Some(number));
            }
            prop_assert!(table.usage().entries <= 1);
        }
    }

    #[test]
    fn what_is_asked_for_stays() {
        let table: KeyTable<bool> = KeyTable::new(64 * 4);
        for key in 0..1_000 {
            table.with(7_000, |known| *known = true).unwrap();
            table.with(key, |_| ()).unwrap();
        }
        assert_eq!(table.look(7_000, |known| *known), Some(true));
        assert_eq!(table.usage(), Usage { entries: 4, capacity: 256, evictions: 997 });
    }

    #[test]
    fn threads_share_it() {
        let table: KeyTable<u64> = KeyTable::new(1 << 12);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for key in 0..10_000u64 {
                        table.with(key << 55, |count| *count += 1);
                    }
                });
            }
        });
        let mut sum = 0;
        table.for_each(|_, count| sum += count);
        assert!(sum <= 40_000 && sum > 0);
    }
}

//! A bounded table from hashes of keys to what is known of each key, shared by threads.
//!
//! It lies in shards, each a [`ClockTable`] behind a lock that is held for one look-up and never across a wait. Two keys of one
//! 64-bit hash share an entry, so it is for what may be wrong once in a lifetime. It refuses to grow beyond its capacity, and to
//! hash: the upper bits of a key say which lock guards it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pure::clock_table::ClockTable;
pub use crate::pure::clock_table::Usage;

/// Locks that the entries are spread over: as many as the upper six bits of a hash tell apart.
const SHARDS: usize = 64;

/// A table of `V`s.
#[derive(Debug)]
pub struct KeyTable<V> {
    shards: Box<[Mutex<ClockTable<V>>]>,
}

impl<V> KeyTable<V> {
    /// An empty table of at most `capacity` entries, rounded up to a multiple of 64.
    pub fn new(capacity: usize) -> Self {
        let shard = |_| Mutex::new(ClockTable::new(capacity.div_ceil(SHARDS)));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    /// Works on the part of the table that `key` belongs to, under its lock; `None` only where there is no such shard.
    pub fn part<R>(&self, key: u64, work: impl FnOnce(&mut ClockTable<V>) -> R) -> Option<R> {
        self.shards.get((key >> 58) as usize).map(|shard| work(&mut lock(shard)))
    }

    /// Works on the entry of `key` under its lock, or on a new one, which is kept only where something comes of it: what leads
    /// to nothing must not drive out what others need.
    pub fn with<R>(&self, key: u64, work: impl FnOnce(&mut V) -> Option<R>) -> Option<R>
    where
        V: Default,
    {
        let result = self.part(key, |table| {
            if let Some(known) = table.touch(key) {
                return work(known);
            }
            let mut new = V::default();
            let result = work(&mut new);
            if result.is_some() {
                table.insert(key, new, |_| false);
            }
            result
        });
        result.flatten()
    }

    /// Looks at the entry of `key` where there is one.
    pub fn look<R>(&self, key: u64, look: impl FnOnce(&V) -> R) -> Option<R> {
        self.part(key, |table| table.get_mut(key).map(|value| look(value))).flatten()
    }

    /// Shows every entry, a shard at a time.
    pub fn for_each(&self, mut show: impl FnMut(u64, &V)) {
        for shard in &self.shards {
            lock(shard).iter().for_each(|(key, value)| show(key, value));
        }
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for shard in &self.shards {
            usage += lock(shard).usage();
        }
        usage
    }
}

/// A thread that panicked in here has left a usable shard: each step leaves it whole.
fn lock<V>(shard: &Mutex<ClockTable<V>>) -> MutexGuard<'_, ClockTable<V>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

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
                table.with(*key, |value| {
                    *value = number;
                    Some(())
                }).unwrap();
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
            table
                .with(7_000, |known| {
                    *known = true;
                    Some(())
                })
                .unwrap();
            table.with(key, |_| Some(())).unwrap();
        }
        assert_eq!(table.look(7_000, |known| *known), Some(true));
        assert_eq!(table.usage(), Usage { entries: 4, capacity: 256, evictions: 997 });
    }

    #[test]
    fn what_leads_to_nothing_drives_nothing_out() {
        let table: KeyTable<bool> = KeyTable::new(64);
        table
            .with(1, |known| {
                *known = true;
                Some(())
            })
            .unwrap();
        assert_eq!((2..1_000).find_map(|key| table.with(key, |_| None::<()>)), None);
        assert_eq!(table.look(1, |known| *known), Some(true));
        assert_eq!(table.usage().entries, 1);
    }

    #[test]
    fn threads_share_it() {
        let table: KeyTable<u64> = KeyTable::new(1 << 12);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for key in 0..10_000u64 {
                        table.with(key << 55, |count| {
                            *count += 1;
                            Some(())
                        });
                    }
                });
            }
        });
        let mut sum = 0;
        table.for_each(|_, count| sum += count);
        assert!(sum <= 40_000 && sum > 0);
    }
}

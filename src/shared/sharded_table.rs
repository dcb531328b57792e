//! A bounded table that all workers share: [`ClockTable`]s, each behind a lock that is held for one look and never across an
//! await.
//!
//! It refuses to hash: keys come hashed, and their upper bits say which lock guards them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pure::clock_table::{ClockTable, Usage};

/// Locks that the entries are spread over: as many as the upper six bits of a hash tell apart.
pub const SHARDS: usize = 64;

/// The table.
#[derive(Debug)]
pub struct ShardedTable<V> {
    shards: Box<[Mutex<ClockTable<V>>]>,
}

impl<V> ShardedTable<V> {
    /// An empty table of at most `capacity` entries, rounded up to a multiple of [`SHARDS`].
    pub fn new(capacity: usize) -> Self {
        let shard = |_| Mutex::new(ClockTable::new(capacity.div_ceil(SHARDS)));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    /// Looks at the part of the table that `key` belongs to. `None`: there is none, which can't be.
    pub fn with<R>(&self, key: u64, look: impl FnOnce(&mut ClockTable<V>) -> R) -> Option<R> {
        self.shards.get((key >> 58) as usize).map(|shard| look(&mut lock(shard)))
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

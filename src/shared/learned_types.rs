//! The media types that paths last answered with: what `media-type` falls back on for a path that says nothing of its type.
//!
//! A bounded table, hash-keyed and in shards, each behind a lock that is held for one look-up and never across an await.
//! When a shard is full, the CLOCK algorithm (Corbató 1968) makes room: entries asked for since the hand last passed stay.
//! It is an aid for choosing, not a truth: two paths with one 64-bit hash would share an entry. It refuses types that are no
//! plain `type/subtype`, and longer ones than [`TYPE_MAX`].

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pure::rule::hash::{BuildKeyHasher, hash};
use crate::pure::rule::media::media_type_of_field;

/// Entries of a table, where nothing else is asked for: about 8 MiB when it is full.
pub const ENTRIES_DEFAULT: usize = 65_536;

/// Bytes of the longest media type that is remembered.
pub const TYPE_MAX: usize = 127;

/// Locks that the entries are spread over: as many as the upper six bits of a hash tell apart.
const SHARDS: usize = 64;

/// What hosts and paths last answered with.
#[derive(Debug)]
pub struct LearnedTypes {
    shards: Box<[Mutex<Shard>]>,
    /// Secret, so that nobody can choose paths that share an entry.
    seed: u64,
}

#[derive(Debug)]
struct Shard {
    /// The slot of each key.
    slots: HashMap<u64, usize, BuildKeyHasher>,
    entries: Vec<Entry>,
    capacity: usize,
    /// The next entry that may have to go.
    hand: usize,
    evictions: u64,
}

#[derive(Debug)]
struct Entry {
    key: u64,
    media_type: Box<str>,
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

impl LearnedTypes {
    /// An empty table of at most `capacity` entries, rounded up to a multiple of 64. `seed` is random.
    pub fn new(capacity: usize, seed: u64) -> Self {
        let capacity = capacity.div_ceil(SHARDS);
        let shard = |_| {
            let (slots, entries) = (HashMap::default(), Vec::new());
            Mutex::new(Shard { slots, entries, capacity, hand: 0, evictions: 0 })
        };
        Self { shards: (0..SHARDS).map(shard).collect(), seed }
    }

    /// Remembers that `path`, normalized, on `host` answered with this Content-Type. Parameters and case do not count.
    pub fn learn(&self, host: &str, path: &str, content_type: &[u8]) {
        let mut lower = [0; TYPE_MAX];
        let Some(media_type) = plain_type(content_type, &mut lower) else { return };
        let key = self.key(host, path);
        if let Some(mut shard) = self.shard(key) {
            shard.learn(key, media_type);
        }
    }

    /// Writes what `path` on `host` last answered with into `out`, and says whether that is known. `out` is cleared first.
    pub fn recall(&self, host: &str, path: &str, out: &mut String) -> bool {
        out.clear();
        let key = self.key(host, path);
        let Some(mut shard) = self.shard(key) else { return false };
        let Some(slot) = shard.slots.get(&key).copied() else { return false };
        let Some(entry) = shard.entries.get_mut(slot) else { return false };
        entry.was_used = true;
        out.push_str(&entry.media_type);
        true
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

    fn key(&self, host: &str, path: &str) -> u64 {
        hash(path.as_bytes(), hash(host.as_bytes(), self.seed))
    }

    fn shard(&self, key: u64) -> Option<MutexGuard<'_, Shard>> {
        self.shards.get((key >> 58) as usize).map(lock)
    }
}

/// A thread that panicked in here has left a usable shard: each step leaves it whole.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn learn(&mut self, key: u64, media_type: &str) {
        if let Some(entry) = self.slots.get(&key).and_then(|slot| self.entries.get_mut(*slot)) {
            if *entry.media_type != *media_type {
                entry.media_type = media_type.into();
            }
            return;
        }
        let entry = Entry { key, media_type: media_type.into(), was_used: false };
        if self.entries.len() < self.capacity {
            self.slots.insert(key, self.entries.len());
            self.entries.push(entry);
            return;
        }
        let Some(slot) = self.victim() else { return };
        if let Some(old) = self.entries.get_mut(slot) {
            let old = std::mem::replace(old, entry);
            self.slots.remove(&old.key);
            self.slots.insert(key, slot);
            self.evictions += 1;
        }
    }

    /// The first entry from the hand on that was not used since the hand last passed. Two rounds are enough: the first one
    /// takes every mark away.
    fn victim(&mut self) -> Option<usize> {
        for _ in 0..2 * self.entries.len() {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.entries.len().max(1);
            let entry = self.entries.get_mut(slot)?;
            if !std::mem::take(&mut entry.was_used) {
                return Some(slot);
            }
        }
        None
    }
}

/// `type/subtype` in lower case, without parameters.
fn plain_type<'b>(content_type: &[u8], buffer: &'b mut [u8; TYPE_MAX]) -> Option<&'b str> {
    let text = media_type_of_field(content_type)?;
    let lower = buffer.get_mut(..text.len())?;
    lower.copy_from_slice(text.as_bytes());
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recalled(types: &LearnedTypes, host: &str, path: &str) -> Option<String> {
        let mut out = "old".to_owned();
        types.recall(host, path, &mut out).then_some(out)
    }

    #[test]
    fn the_last_answer_counts_for_its_host_and_path() {
        let types = LearnedTypes::new(ENTRIES_DEFAULT, 1);
        types.learn("a.test", "/x", b"Image/PNG ; q=1");
        assert_eq!(recalled(&types, "a.test", "/x").as_deref(), Some("image/png"));
        assert_eq!(recalled(&types, "a.test", "/y"), None);
        assert_eq!(recalled(&types, "b.test", "/x"), None);
        assert_eq!(recalled(&types, "a.test/", "x"), None);
        types.learn("a.test", "/x", b"text/html");
        assert_eq!(recalled(&types, "a.test", "/x").as_deref(), Some("text/html"));
        assert_eq!(types.usage().entries, 1);
    }

    #[test]
    fn what_is_no_media_type_is_not_remembered() {
        let types = LearnedTypes::new(ENTRIES_DEFAULT, 1);
        let long = format!("a/{}", "b".repeat(126));
        for bad in ["", "text", "text/", "/html", "a/b/c", "a b/c", "a,b/c", "image/*", "text/\u{e9}", &long] {
            types.learn("a.test", "/x", bad.as_bytes());
            assert_eq!(recalled(&types, "a.test", "/x"), None, "{bad}");
        }
        types.learn("a.test", "/x", format!("a/{}", "b".repeat(125)).as_bytes());
        assert!(recalled(&types, "a.test", "/x").is_some());
    }

    #[test]
    fn a_full_table_stays_at_its_bound_and_keeps_what_is_used() {
        let types = LearnedTypes::new(1024, 7);
        for number in 0..100_000 {
            types.learn("a.test", "/kept", b"text/css");
            assert_eq!(recalled(&types, "a.test", "/kept").as_deref(), Some("text/css"), "after {number}");
            types.learn("a.test", &format!("/{number}"), b"text/html");
        }
        let usage = types.usage();
        assert_eq!((usage.entries, usage.capacity), (1024, 1024));
        assert_eq!(usage.evictions, 100_001 - 1024);
    }

    #[test]
    fn threads_share_it() {
        let types = LearnedTypes::new(256, 7);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let types = &types;
                scope.spawn(move || {
                    for number in 0..5_000 {
                        let path = format!("/{}", (number * 7 + thread) % 600);
                        types.learn("a.test", &path, path.replace('/', "a/").as_bytes());
                        if let Some(found) = recalled(types, "a.test", &path) {
                            assert_eq!(found, path.replace('/', "a/"));
                        }
                    }
                });
            }
        });
        let usage = types.usage();
        assert!(usage.entries <= usage.capacity);
    }

    #[test]
    fn a_table_for_nothing_remembers_nothing() {
        let types = LearnedTypes::new(0, 7);
        types.learn("a.test", "/x", b"text/html");
        assert_eq!(recalled(&types, "a.test", "/x"), None);
    }
}

//! Which keys are asked for most, and what share of all requests each of them is: a decaying sketch of 1 024 keys.
//!
//! Space-Saving (A. Metwally, D. Agrawal, A. El Abbadi, Efficient computation of frequent and top-k elements in data streams,
//! 2005) in sets of eight: a key competes with those of its set only, so a look-up is short. A count that was taken over from
//! another key is known to be too large by at most that much, and is not counted: a share is never too high. Counts are halved
//! every ten seconds. Each set is behind a lock of its own; a request that finds it taken is not counted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::time::Timestamp;

/// Sets; with [`WAYS`], 1 024 keys.
const SETS: usize = 128;
const WAYS: usize = 8;

/// Nanoseconds after which counts are halved.
const EPOCH: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    key: u64,
    count: u32,
    /// How much of the count may be another key's.
    error: u32,
}

#[derive(Debug, Default)]
struct Set {
    epoch: u64,
    ways: [Counted; WAYS],
}

/// The sketch.
#[derive(Debug, Default)]
pub(super) struct Heat {
    sets: Box<[Mutex<Set>]>,
    /// The requests of this epoch, and half of those before, and so on.
    total: AtomicU64,
    epoch: AtomicU64,
}

/// How hot a key is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Its requests.
    pub(super) count: u64,
    /// Those of all keys.
    pub(super) total: u64,
}

impl Heat {
    pub(super) fn new() -> Self {
        Self { sets: (0..SETS).map(|_| Mutex::default()).collect(), total: AtomicU64::new(0), epoch: AtomicU64::new(0) }
    }

    /// Counts a request for `key`, and returns what share of all it is known to have.
    pub(super) fn count(&self, key: u64, now: Timestamp) -> Share {
        let epoch = now.as_nanos() / EPOCH;
        let total = self.count_total(epoch);
        let Some(set) = self.sets.get((key >> 57) as usize) else { return Share::default() };
        let Ok(mut set) = set.try_lock() else { return Share::default() };
        let passed = epoch.saturating_sub(set.epoch).min(31) as u32;
        if passed > 0 {
            for way in &mut set.ways {
                (way.count, way.error) = (way.count >> passed, way.error >> passed);
            }
            set.epoch = epoch;
        }
        let known = set.ways.iter().position(|way| way.key == key && way.count > 0);
        let place = known.or_else(|| (0..WAYS).min_by_key(|place| set.ways.get(*place).map_or(0, |way| way.count)));
        let Some(way) = place.and_then(|place| set.ways.get_mut(place)) else { return Share::default() };
        if known.is_none() {
            *way = Counted { key, count: way.count, error: way.count };
        }
        way.count = way.count.saturating_add(1);
        Share { count: u64::from(way.count - way.error), total }
    }

    /// The hottest keys with their shares of all requests, the hottest first.
    pub(super) fn hottest(&self, most: usize) -> Vec<(u64, f64)> {
        let total = self.total.load(Ordering::Relaxed).max(1) as f64;
        let epoch = self.epoch.load(Ordering::Relaxed);
        let mut all: Vec<(u64, u32)> = Vec::new();
        for set in &self.sets {
            let Ok(set) = set.lock() else { continue };
            // A set is halved when it is next counted in.
            let passed = epoch.saturating_sub(set.epoch).min(31);
            let counts = set.ways.iter().map(|way| (way.key, (way.count - way.error) >> passed));
            all.extend(counts.filter(|(_, count)| *count > 0));
        }
        all.sort_unstable_by_key(|(key, count)| (std::cmp::Reverse(*count), *key));
        all.truncate(most);
        all.into_iter().map(|(key, count)| (key, f64::from(count) / total)).collect()
    }

    fn count_total(&self, epoch: u64) -> u64 {
        let before = self.epoch.load(Ordering::Relaxed);
        if epoch > before && self.epoch.compare_exchange(before, epoch, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let total = self.total.load(Ordering::Relaxed);
            self.total.store(total >> (epoch - before).min(63), Ordering::Relaxed);
        }
        self.total.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::rng::Rng;
    use crate::pure::rule::hash::hash;

    #[test]
    fn a_hot_key_is_known_by_its_share_and_a_cold_one_is_never_hot() {
        let heat = Heat::new();
        let mut rng = Rng::new(1);
        let (mut hot, mut coldest) = (Share::default(), 0.0_f64);
        for number in 0..50_000u64 {
            // Ten requests in a hundred for one key, the others for 20 000 keys.
            let is_hot = rng.below(100) < 10;
            let key = if is_hot { 7 } else { 100 + rng.below(20_000) };
            let now = Timestamp::ZERO + Duration::from_micros(number * 100);
            let share = heat.count(hash(&key.to_le_bytes(), 0), now);
            if is_hot {
                hot = share;
            } else if number > 10_000 {
                coldest = coldest.max(share.count as f64 / share.total as f64);
            }
        }
        let share = hot.count as f64 / hot.total as f64;
        assert!((0.08..0.11).contains(&share), "{hot:?}");
        assert!(coldest < 0.01, "{coldest}");
    }

    #[test]
    fn it_forgets() {
        let heat = Heat::new();
        for _ in 0..1_000 {
            heat.count(1, Timestamp::ZERO);
        }
        let later = Timestamp::ZERO + Duration::from_secs(45);
        assert_eq!(heat.count(1, later), Share { count: 63, total: 63 });
        heat.count(1 << 60, later + Duration::from_secs(30));
        // Of the 63, seven are left, and nobody has more than all.
        assert_eq!(heat.hottest(2), [(1, 7.0 / 8.0), (1 << 60, 1.0 / 8.0)]);
    }
}

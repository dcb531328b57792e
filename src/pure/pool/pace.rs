//! How fast a server answers, as far as its pool's scheduler asks: how long it takes, how much it finishes while it has
//! anything to do.
//!
//! All workers write it. Two that write at once lose one of the two samples, which averages bear; nobody ever waits. It
//! refuses to judge: schedulers compare.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use crate::base::time::Timestamp;

/// How quickly the capacity forgets: so old a second counts for 1/e.
const CAPACITY_MEMORY: Duration = Duration::from_secs(5);

/// How quickly a peak of the latency is forgotten.
const LATENCY_MEMORY: Duration = Duration::from_secs(10);

/// The weight of a new sample in the average of what one request takes alone: a sixteenth.
const SERVICE_SHIFT: u32 = 4;

/// The fractions of a capacity: it is in 1/256 of an answer a second.
const CAPACITY_UNITS: f64 = 256.0;

/// What is measured of one server. Padded to a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Pace {
    busy_since: AtomicU64,
    latency: AtomicU64,
    latency_at: AtomicU64,
    service: AtomicU64,
    capacity: AtomicU32,
    work: Mutex<Work>,
}

/// What was finished, and how long there was anything to do, both fading.
#[derive(Debug, Default)]
struct Work {
    at: Timestamp,
    busy_until: Timestamp,
    answers: f64,
    busy: f64,
}

impl Pace {
    /// A request is given to the server, which then has `active` in flight, itself among them.
    pub fn begins(&self, now: Timestamp, active: u32) {
        if active <= 1 {
            self.busy_since.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// The answer to a request has begun after `latency`.
    pub fn answers(&self, now: Timestamp, latency: Duration, active: u32) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let alone = nanos / u64::from(active.max(1));
        let before = self.service.load(Ordering::Relaxed);
        let after = if before == 0 { alone } else { before - (before >> SERVICE_SHIFT) + (alone >> SERVICE_SHIFT) };
        self.service.store(after.max(1), Ordering::Relaxed);
        let faded = self.faded_latency(now);
        // A peak counts at once.
        let latency = if nanos > faded { nanos } else { faded - (faded - nanos) / 8 };
        self.latency.store(latency, Ordering::Relaxed);
        self.latency_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// A request is over.
    pub fn ends(&self, now: Timestamp, has_answered: bool) {
        let mut work = match self.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(work)) => work.into_inner(),
            // Another worker writes: its sample stands for this one.
            Err(TryLockError::WouldBlock) => return,
        };
        let busy_since = Timestamp::from_nanos(self.busy_since.load(Ordering::Relaxed));
        let from = work.busy_until.max(busy_since);
        let busy = now.since(from).as_secs_f64();
        let fade = (-now.since(work.at).as_secs_f64() / CAPACITY_MEMORY.as_secs_f64()).exp();
        work.answers = work.answers * fade + f64::from(u8::from(has_answered));
        work.busy = work.busy * fade + busy;
        (work.at, work.busy_until) = (now, now);
        // Below a millisecond of work nothing is known.
        if work.busy > 1e-3 {
            let capacity = (work.answers / work.busy * CAPACITY_UNITS).clamp(1.0, f64::from(u32::MAX));
            self.capacity.store(capacity as u32, Ordering::Relaxed);
        }
    }

    /// The answers that it finishes in a second in which it has anything to do, in 1/256; 0: not known.
    pub fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// The same as a number of answers a second; `None`: not known.
    pub fn answers_per_second(&self) -> Option<f64> {
        let capacity = self.capacity();
        (capacity > 0).then(|| f64::from(capacity) / CAPACITY_UNITS)
    }

    /// What an answer takes for each request in flight, in nanoseconds; 0: not known.
    pub fn service_nanos(&self) -> u64 {
        self.service.load(Ordering::Relaxed)
    }

    /// How long answers take, an average that jumps to peaks and forgets them as new answers come.
    pub fn peak_latency(&self) -> Duration {
        Duration::from_nanos(self.latency.load(Ordering::Relaxed))
    }

    fn faded_latency(&self, now: Timestamp) -> u64 {
        let latency = self.latency.load(Ordering::Relaxed);
        let at = Timestamp::from_nanos(self.latency_at.load(Ordering::Relaxed));
        let fade = (-now.since(at).as_secs_f64() / LATENCY_MEMORY.as_secs_f64()).exp();
        (latency as f64 * fade) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn capacity_is_what_is_finished_while_there_is_work() {
        let pace = Pace::default();
        assert_eq!(pace.capacity(), 0);
        // Ten milliseconds each, one after the other, with as long a rest between: 100 in a busy second.
        for number in 0..500 {
            pace.begins(at(number * 20), 1);
            pace.ends(at(number * 20 + 10), true);
        }
        let capacity = f64::from(pace.capacity()) / CAPACITY_UNITS;
        assert!((capacity - 100.0).abs() < 1.0, "{capacity}");
        // Two at a time, each twice as long: the same work.
        for number in 500..1_000 {
            pace.begins(at(number * 40), 1);
            pace.begins(at(number * 40), 2);
            pace.ends(at(number * 40 + 20), true);
            pace.ends(at(number * 40 + 20), true);
        }
        let capacity = f64::from(pace.capacity()) / CAPACITY_UNITS;
        assert!((capacity - 100.0).abs() < 1.0, "{capacity}");
    }

    #[test]
    fn a_peak_counts_at_once_and_fades() {
        let pace = Pace::default();
        pace.answers(at(0), Duration::from_millis(1), 1);
        pace.answers(at(1), Duration::from_millis(500), 1);
        assert_eq!(pace.peak_latency(), Duration::from_millis(500));
        for number in 2..100 {
            pace.answers(at(number), Duration::from_millis(1), 1);
        }
        assert!(pace.peak_latency() < Duration::from_millis(2));
    }

    #[test]
    fn what_one_request_takes_does_not_grow_with_the_queue() {
        let pace = Pace::default();
        for active in 1..100 {
            pace.answers(at(0), Duration::from_millis(10) * active, active);
        }
        assert_eq!(pace.service_nanos() / 1_000_000, 10);
    }
}

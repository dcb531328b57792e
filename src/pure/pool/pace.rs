//! How fast a server answers, as far as its pool's scheduler asks: how long it takes, how much it finishes while it has
//! anything to do.
//!
//! All workers write it. Of two that write an average at once one is lost, which the average bears; nobody ever waits. It
//! refuses to judge: schedulers compare.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use crate::base::time::Timestamp;

/// How quickly the capacity forgets: so old a second counts for 1/e.
const CAPACITY_MEMORY: Duration = Duration::from_secs(20);

/// So long after a sample the next is taken, unless the server falls idle.
const SAMPLE_MIN: Duration = Duration::from_millis(1);

/// The longest time that one request can make a server busy in the count: an answer of an hour says little of its capacity.
const SAMPLE_MAX: Duration = Duration::from_secs(15);

/// So long a capacity holds without an answer. A server that gets nothing, because little was seen of it, is tried again then.
const CAPACITY_HOLDS: Duration = Duration::from_secs(60);

/// After so long without an answer the latency counts for half.
const LATENCY_HALVES: Duration = Duration::from_secs(7);

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
    /// Answers that were finished and are not in `work` yet.
    finished: AtomicU32,
    /// Whether it has something to do, as far as the last who looked knew.
    is_busy: AtomicBool,
    measured_at: AtomicU64,
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
    /// A request is given to the server.
    pub fn begins(&self, now: Timestamp) {
        // Whatever others count at this moment, one of them sees that it was idle.
        if !self.is_busy.load(Ordering::Relaxed) && !self.is_busy.swap(true, Ordering::Relaxed) {
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

    /// A request is over, after which `left` are in flight.
    pub fn ends(&self, now: Timestamp, is_finished: bool, left: u32) {
        self.finished.fetch_add(u32::from(is_finished), Ordering::Relaxed);
        if left == 0 {
            self.is_busy.store(false, Ordering::Relaxed);
        }
        let mut work = match self.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(work)) => work.into_inner(),
            // Another worker writes; the next brings what this one has counted.
            Err(TryLockError::WouldBlock) => return,
        };
        // What comes close behind another is counted with the next: nothing is lost but gaps shorter than that.
        if now.since(work.at) < SAMPLE_MIN && left > 0 {
            return;
        }
        let busy_since = Timestamp::from_nanos(self.busy_since.load(Ordering::Relaxed));
        let from = work.busy_until.max(busy_since);
        let busy = now.since(from).min(SAMPLE_MAX).as_secs_f64();
        let fade = (-now.since(work.at).as_secs_f64() / CAPACITY_MEMORY.as_secs_f64()).exp();
        work.answers = work.answers * fade + f64::from(self.finished.swap(0, Ordering::Relaxed));
        work.busy = work.busy * fade + busy;
        (work.at, work.busy_until) = (now, now);
        // Below a millisecond of work nothing is known.
        if work.busy > 1e-3 {
            let capacity = (work.answers / work.busy * CAPACITY_UNITS).clamp(1.0, f64::from(u32::MAX));
            self.capacity.store(capacity as u32, Ordering::Relaxed);
            self.measured_at.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Whether it has something to do, as far as is known.
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    /// The answers that it finishes in a second in which it has anything to do, in 1/256; 0: not known, or not any more.
    pub fn capacity(&self, now: Timestamp) -> u32 {
        let measured_at = Timestamp::from_nanos(self.measured_at.load(Ordering::Relaxed));
        if now.since(measured_at) > CAPACITY_HOLDS { 0 } else { self.capacity.load(Ordering::Relaxed) }
    }

    /// The same as a number of answers a second; `None`: not known.
    pub fn answers_per_second(&self, now: Timestamp) -> Option<f64> {
        let capacity = self.capacity(now);
        (capacity > 0).then(|| f64::from(capacity) / CAPACITY_UNITS)
    }

    /// What an answer takes for each request in flight, in nanoseconds; 0: not known.
    pub fn service_nanos(&self) -> u64 {
        self.service.load(Ordering::Relaxed)
    }

    /// How long answers take, an average that jumps to peaks and forgets them as new answers come, and with time.
    pub fn peak_latency(&self, now: Timestamp) -> Duration {
        Duration::from_nanos(self.faded_latency(now))
    }

    fn faded_latency(&self, now: Timestamp) -> u64 {
        let at = Timestamp::from_nanos(self.latency_at.load(Ordering::Relaxed));
        let halvings = now.since(at).as_secs() / LATENCY_HALVES.as_secs();
        self.latency.load(Ordering::Relaxed) >> halvings.min(63)
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
        assert_eq!(pace.capacity(at(0)), 0);
        // Ten milliseconds each, one after the other, with as long a rest between: 100 in a busy second.
        for number in 0..500 {
            pace.begins(at(number * 20));
            pace.ends(at(number * 20 + 10), true, 0);
        }
        let capacity = f64::from(pace.capacity(at(10_000))) / CAPACITY_UNITS;
        assert!((capacity - 100.0).abs() < 1.0, "{capacity}");
        // Two at a time, each twice as long: the same work.
        for number in 500..1_000 {
            pace.begins(at(number * 40));
            pace.begins(at(number * 40));
            pace.ends(at(number * 40 + 20), true, 1);
            pace.ends(at(number * 40 + 20), true, 0);
        }
        let capacity = f64::from(pace.capacity(at(40_000))) / CAPACITY_UNITS;
        assert!((capacity - 100.0).abs() < 1.0, "{capacity}");
    }

    #[test]
    fn a_server_that_was_idle_for_an_hour_has_not_lost_its_capacity() {
        let pace = Pace::default();
        for number in 0..500 {
            pace.begins(at(number * 20));
            pace.ends(at(number * 20 + 10), true, 0);
        }
        let hour = 3_600_000;
        assert_eq!(pace.capacity(at(hour)), 0, "it is not known any more");
        // Two workers at once, each of which counts two in flight.
        pace.begins(at(hour));
        pace.begins(at(hour));
        pace.ends(at(hour + 10), true, 1);
        pace.ends(at(hour + 20), true, 0);
        let capacity = f64::from(pace.capacity(at(hour + 20))) / CAPACITY_UNITS;
        assert!((capacity - 100.0).abs() < 1.0, "{capacity}");
    }

    #[test]
    fn a_peak_counts_at_once_and_fades() {
        let pace = Pace::default();
        pace.answers(at(0), Duration::from_millis(1), 1);
        pace.answers(at(1), Duration::from_millis(500), 1);
        assert_eq!(pace.peak_latency(at(1)), Duration::from_millis(500));
        for number in 2..100 {
            pace.answers(at(number), Duration::from_millis(1), 1);
        }
        assert!(pace.peak_latency(at(60_000)) < Duration::from_micros(10), "it is forgotten also where nobody asks");
        assert!(pace.peak_latency(at(100)) < Duration::from_millis(2));
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

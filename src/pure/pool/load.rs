//! What all workers write of one server: requests in flight and failures in a row, which every choice reads, when it was heard
//! last, how long its answers take, added up for whoever asks, and its run queue and its pace, for schedulers that ask.
//! Atomics, relaxed where nobody waits for them. It refuses to keep any further statistics: [`crate::shared::counters`] has them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::pace::Pace;
use super::run_queue::RunQueue;
use crate::base::time::Timestamp;

/// One timeout, in the word of failures in a row; below it connects that failed are counted.
const TIMEOUT: u64 = 1 << 32;

/// What a choice asks of one server's present, over all workers: its requests in flight, and whether it fails.
/// Padded to a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Load {
    active: AtomicU32,
    counter: AtomicU32,
    /// Those of them that the server need not answer now.
    excused: AtomicU32,
    /// Connects that failed, and in the upper half requests that were not answered in time, since something worked.
    failures: AtomicU64,
    answering: AtomicU64,
    /// When it sent the last byte, by the clock of whoever got it.
    heard: AtomicU64,
    /// How long its run queue is, where its pool's scheduler asks.
    pub run_queue: RunQueue,
    /// How fast it answers, where its pool's scheduler asks.
    pub pace: Pace,
}

impl Load {
    /// Requests in flight now.
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// Sets the requests in flight.
    #[cfg(test)]
    pub fn set_active(&self, requests: u32) {
        self.active.store(requests, Ordering::Relaxed);
    }

    /// The push-detection paper's counter: how long it has said nothing, where its pool goes by that. Elsewhere 0.
    pub fn counter(&self) -> u32 {
        self.counter.load(Ordering::Relaxed)
    }

    /// Sets that counter. Only control does.
    pub fn set_counter(&self, ticks: u32) {
        if self.counter() != ticks {
            self.counter.store(ticks, Ordering::Relaxed);
        }
    }

    /// Adds the latency of an answer.
    pub fn add_latency(&self, latency: Duration) {
        self.answering.fetch_add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The latencies of all answers so far, added up.
    pub fn latency(&self) -> Duration {
        Duration::from_nanos(self.answering.load(Ordering::Relaxed))
    }

    /// Connects that failed since the last good one.
    pub fn connect_failures_in_a_row(&self) -> u32 {
        self.failures.load(Ordering::Relaxed) as u32
    }

    /// The same, and the requests that were not answered in time since the last answer.
    pub fn failures_in_a_row(&self) -> u32 {
        let failures = self.failures.load(Ordering::Relaxed);
        (failures as u32).saturating_add((failures / TIMEOUT) as u32)
    }

    /// Counts a connect that failed.
    pub fn count_connect_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was not answered in time. Only an answer ends a row of those: a server that takes connections and
    /// is silent does not work.
    pub fn count_timeout(&self) {
        self.failures.fetch_add(TIMEOUT, Ordering::Relaxed);
    }

    /// A connection was made: connect failures are no longer in a row.
    pub fn forget_connect_failures(&self) {
        if self.connect_failures_in_a_row() != 0 {
            self.failures.fetch_and(!(TIMEOUT - 1), Ordering::Relaxed);
        }
    }

    /// Nothing is in a row any more.
    pub fn forget_failures(&self) {
        // Read first: what nobody writes stays in every core's cache.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// The server has sent something.
    pub fn hear(&self, now: Timestamp) {
        self.heard.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When the server was heard last.
    pub fn heard(&self) -> Timestamp {
        Timestamp::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    /// A request in flight is one that the server need not answer now: its client is still sending it, or the answer has begun.
    pub fn excuse(&self) {
        self.excused.fetch_add(1, Ordering::Relaxed);
    }

    /// The same request waits for the server, or is over. Only who excused it may call it.
    pub fn unexcuse(&self) {
        self.excused.fetch_sub(1, Ordering::Relaxed);
    }

    /// Requests that the server has and that nothing but its answer is wanted for.
    pub fn outstanding(&self) -> u32 {
        // Two counts that are read one after the other: what ended between them must not make it huge.
        let excused = self.excused.load(Ordering::Relaxed);
        self.active().saturating_sub(excused)
    }

    /// Takes a place, unless `max` are taken. Several workers can't overrun it.
    pub fn try_reserve(&self, max: Option<u32>) -> bool {
        let Some(max) = max else {
            self.active.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        self.active
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |active| (active < max).then_some(active + 1))
            .is_ok()
    }

    /// Gives a place back. Only who reserved one may call it.
    ///
    /// In one order with a queue's count of those who wait: who gives back and sees nobody wait is seen by whoever begins to.
    pub fn release(&self) {
        self.active.fetch_sub(1, Ordering::SeqCst);
    }
}

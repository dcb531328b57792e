//! What all workers write of one server: requests in flight and connects that fail, which every choice reads, how long its
//! answers take, added up for whoever asks, and its run queue and its pace, for schedulers that ask. Atomics, relaxed where nobody waits for them. It
//! refuses to keep any further statistics: [`crate::shared::counters`] has them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::pace::Pace;
use super::run_queue::RunQueue;

/// What a choice asks of one server's present, over all workers: its requests in flight, and whether connects to it fail.
/// Padded to a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Load {
    active: AtomicU32,
    connect_failures: AtomicU32,
    answering: AtomicU64,
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
        self.connect_failures.load(Ordering::Relaxed)
    }

    /// Counts a connect that failed.
    pub fn count_connect_failure(&self) {
        self.connect_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was made, or an answer came: connect failures are no longer in a row.
    pub fn forget_connect_failures(&self) {
        // Read first: what nobody writes stays in every core's cache.
        if self.connect_failures_in_a_row() != 0 {
            self.connect_failures.store(0, Ordering::Relaxed);
        }
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

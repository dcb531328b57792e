//! The retry budget of a pool: repetitions must not double the load of servers that are failing.
//!
//! The exact rule: let R be the requests noted, and S the repetitions granted, in the current second of the process's
//! clock and the nine before it. A repetition is granted iff S < max(10, ⌊R / 5⌋). Requests count once each, however often
//! they are sent.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::time::Timestamp;

/// The seconds that are looked back on, the current one included.
const SECONDS: u64 = 10;

/// What is always granted within [`SECONDS`].
const ALWAYS: u64 = 10;

/// One repetition for so many requests.
const REQUESTS_PER_RETRY: u64 = 5;

/// Each thread notes requests in one of so many windows, so that workers do not contend for a cache line.
const SHARDS: usize = 8;

/// A ring of counts by second. Each word holds the second in its upper half and the count in its lower.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Window {
    seconds: [AtomicU64; SECONDS as usize],
}

impl Window {
    fn word(&self, second: u64) -> Option<&AtomicU64> {
        self.seconds.get(usize::try_from(second % SECONDS).unwrap_or(0))
    }

    /// Counts one more in this second.
    fn add(&self, second: u64) {
        let Some(word) = self.word(second) else { return };
        let mut seen = word.load(Ordering::Relaxed);
        // A thread that comes late counts into the later second.
        while seen >> 32 < second {
            match word.compare_exchange_weak(seen, (second << 32) + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
        word.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of this second and the nine before.
    fn sum(&self, second: u64) -> u64 {
        self.seconds.iter().map(|word| count_within(word.load(Ordering::Relaxed), second)).sum()
    }
}

fn count_within(word: u64, second: u64) -> u64 {
    if second.saturating_sub(word >> 32) < SECONDS { word & u64::from(u32::MAX) } else { 0 }
}

/// How many of a pool's requests may be sent again.
#[derive(Debug, Default)]
pub struct RetryBudget {
    requests: [Window; SHARDS],
    retries: Window,
}

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = Cell::new(NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS);
}

impl RetryBudget {
    /// Notes a request of the pool, once, when it is first given to a server.
    pub fn note_request(&self, now: Timestamp) {
        if let Some(window) = self.requests.get(SHARD.get()) {
            window.add(second_of(now));
        }
    }

    /// Takes one repetition from the budget; false: it is spent.
    pub fn try_spend_retry(&self, now: Timestamp) -> bool {
        let second = second_of(now);
        let requests: u64 = self.requests.iter().map(|window| window.sum(second)).sum();
        let granted = (requests / REQUESTS_PER_RETRY).max(ALWAYS);
        let Some(word) = self.retries.word(second) else { return false };
        loop {
            let seen = word.load(Ordering::Relaxed);
            if self.retries.sum(second) >= granted {
                return false;
            }
            let next = if seen >> 32 < second { (second << 32) + 1 } else { seen + 1 };
            // Who lost a race counts again, so that several workers can't overrun the budget together.
            if word.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
    }
}

/// Whole seconds of the process's clock; 32 bits last 136 years.
fn second_of(now: Timestamp) -> u64 {
    (now.as_nanos() / 1_000_000_000) & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn ten_are_always_granted_and_a_fifth_of_the_requests() {
        let budget = RetryBudget::default();
        assert_eq!((0..30).filter(|_| budget.try_spend_retry(at(100))).count(), 10);
        for second in 100..110 {
            for _ in 0..10 {
                budget.note_request(at(second));
            }
        }
        // 100 requests in the last ten seconds: 20, of which 10 are spent.
        assert_eq!((0..30).filter(|_| budget.try_spend_retry(at(109))).count(), 10);
        // The first ten repetitions and ten requests are out of the window: 18 for 90, 10 spent.
        assert_eq!((0..30).filter(|_| budget.try_spend_retry(at(110))).count(), 8);
        assert_eq!((0..30).filter(|_| budget.try_spend_retry(at(500))).count(), 10);
    }

    #[test]
    fn several_threads_together_get_no_more() {
        let budget = RetryBudget::default();
        let granted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..250 {
                        budget.note_request(at(7));
                    }
                });
            }
        });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        granted.fetch_add(usize::from(budget.try_spend_retry(at(7))), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(granted.into_inner(), 200);
    }

    proptest! {
        /// Against a list of everything that happened.
        #[test]
        fn the_rule_holds_at_every_moment(steps in prop::collection::vec((0u64..4, 0u32..40, 0u32..20), 1..60)) {
            let budget = RetryBudget::default();
            let (mut requests, mut retries) = (VecDeque::new(), VecDeque::new());
            let mut second = 0;
            for (pause, arrivals, failures) in steps {
                second += pause;
                for _ in 0..arrivals {
                    budget.note_request(at(second));
                    requests.push_back(second);
                }
                for list in [&mut requests, &mut retries] {
                    list.retain(|past| past + SECONDS > second);
                }
                for _ in 0..failures {
                    let expected = retries.len() < (requests.len() / 5).max(10);
                    prop_assert_eq!(budget.try_spend_retry(at(second)), expected);
                    if expected {
                        retries.push_back(second);
                    }
                }
            }
        }
    }
}

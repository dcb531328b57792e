//! How long a server's answers take, as counts by their size: enough to say in which time it gives 99 of 100.
//!
//! Workers count, one relaxed addition each, and control reads, and halves the counts when there are many, so that old answers
//! weigh less and less. A step is a quarter of a power of two: a quantile is at most a quarter too large, never too small. It
//! refuses to be a clock: whoever counts has measured.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Four for each power of two, from 65 µs to 137 s; what is longer counts as that.
const STEPS: usize = 80;

/// The unit of the steps, in nanoseconds by power of two: 65 536.
const UNIT: u32 = 16;

/// With fewer answers than so many a quantile says nothing.
const ANSWERS_MIN: u64 = 20;

/// With more than so many they are halved.
const ANSWERS_MAX: u64 = 4096;

/// The counts of one server.
#[derive(Debug)]
#[repr(align(64))]
pub struct Latencies {
    steps: [AtomicU32; STEPS],
}

impl Default for Latencies {
    fn default() -> Self {
        Self { steps: [const { AtomicU32::new(0) }; STEPS] }
    }
}

impl Latencies {
    /// Counts an answer that took so many nanoseconds.
    pub fn add(&self, nanos: u64) {
        let units = nanos >> UNIT;
        let step = if units < 4 {
            units as usize
        } else {
            // The position of the highest bit, at least 2, and the two bits below it.
            let power = units.ilog2();
            (power as usize - 1) * 4 + (units >> (power - 2) & 3) as usize
        };
        if let Some(count) = self.steps.get(step.min(STEPS - 1)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The time in which 99 of 100 answers come, and no less than the true one; `None`: too few have come. Fades what it has
    /// read. One thread alone may call it.
    pub fn p99(&self) -> Option<Duration> {
        let counts: [u64; STEPS] =
            std::array::from_fn(|step| self.steps.get(step).map_or(0, |count| count.load(Ordering::Relaxed).into()));
        let total: u64 = counts.iter().sum();
        if total > ANSWERS_MAX {
            for (count, seen) in self.steps.iter().zip(counts) {
                // What is counted meanwhile stays.
                count.fetch_sub(u32::try_from(seen / 2).unwrap_or(0), Ordering::Relaxed);
            }
        }
        if total < ANSWERS_MIN {
            return None;
        }
        let mut slower = total;
        let step = counts.iter().position(|count| {
            slower -= count;
            slower * 100 <= total
        })?;
        Some(Duration::from_nanos(bound(step)))
    }
}

/// What no answer of that step exceeds, in nanoseconds.
fn bound(step: usize) -> u64 {
    let step = step as u64;
    let units = if step < 4 { step + 1 } else { (5 + step % 4) << (step / 4 - 1) };
    units << UNIT
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_answers_say_nothing() {
        let latencies = Latencies::default();
        (1..ANSWERS_MIN).for_each(|_| latencies.add(1_000_000));
        assert_eq!(latencies.p99(), None);
        latencies.add(1_000_000);
        let p99 = latencies.p99().unwrap();
        assert!(p99 >= Duration::from_millis(1) && p99 < Duration::from_micros(1_300), "{p99:?}");
    }

    #[test]
    fn old_answers_are_forgotten_as_new_ones_come() {
        let latencies = Latencies::default();
        (0..4_000).for_each(|_| latencies.add(2_000_000_000));
        assert!(latencies.p99().unwrap() > Duration::from_secs(2));
        for _ in 0..20 {
            (0..4_000).for_each(|_| latencies.add(1_000_000));
            latencies.p99();
        }
        assert!(latencies.p99().unwrap() < Duration::from_millis(2));
    }

    #[test]
    fn the_longest_have_a_place_too() {
        let latencies = Latencies::default();
        (0..100).for_each(|_| latencies.add(u64::MAX));
        assert!(latencies.p99().unwrap() > Duration::from_secs(100));
    }

    proptest! {
        /// Against a sorted list.
        #[test]
        fn it_is_the_true_one_or_at_most_a_quarter_more(
            answers in prop::collection::vec(prop_oneof![0u64..1_000_000, 0u64..100_000_000_000], 20..300),
        ) {
            let latencies = Latencies::default();
            answers.iter().for_each(|nanos| latencies.add(*nanos));
            let mut sorted = answers;
            sorted.sort_unstable();
            // The least of which at most a hundredth are beyond.
            let true_one = sorted[sorted.len() - 1 - sorted.len() / 100];
            let found = u64::try_from(latencies.p99().unwrap().as_nanos()).unwrap();
            prop_assert!(found > true_one, "{found} is less than {true_one}");
            prop_assert!(found <= true_one + true_one / 4 + 65_536, "{found} is far more than {true_one}");
        }
    }
}

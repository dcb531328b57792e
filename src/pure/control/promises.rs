//! An agent's promises: when its next report is due, how long it has been late, and how much that is to be doubted.
//!
//! Lateness is counted in promises, never in raw time. The doubt is the accrual detector's φ = −log10 P(later than this)
//! (N. Hayashibara et al., The φ accrual failure detector, 2004), over reports' delays in units of their promises, with a
//! spread of no less than [`SPREAD_MIN`], so that an agent that was punctual for an hour is not doubted for one lost datagram.

use std::time::Duration;

use super::TICK;
use crate::base::time::Timestamp;

/// So many promises in a row that are not kept make a server Suspect.
pub const MISSED_MAX: u32 = 3;

/// So much doubt makes it Suspect.
pub const DOUBT: f64 = 3.0;

/// So much doubt is a witness of its death.
pub const DOUBT_OF_LIFE: f64 = 8.0;

/// The least spread of delays, in promises: 3 promises late is a doubt of 3.
pub const SPREAD_MIN: f64 = 0.65;

/// What no report is blamed for: our own tick.
const GRACE: Duration = TICK;

/// How much of the past an average keeps with each report.
const KEEPS: f64 = 0.95;

/// The shortest promise that is believed.
const PROMISE_MIN: Duration = Duration::from_millis(50);

/// The longest.
const PROMISE_MAX: Duration = Duration::from_secs(60);

/// When an agent was heard last, and what it promised then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promises {
    heard: Timestamp,
    promised: Duration,
    mean: f64,
    variance: f64,
}

impl Promises {
    /// The first report has come.
    pub(super) fn new(now: Timestamp, promised: Duration) -> Self {
        let promised = promised.clamp(PROMISE_MIN, PROMISE_MAX);
        Self { heard: now, promised, mean: 1.0, variance: 0.0 }
    }

    /// A report has come.
    pub(super) fn kept(&mut self, now: Timestamp, promised: Duration) {
        let delay = now.since(self.heard).as_secs_f64() / self.promised.as_secs_f64();
        // One that was sent at once, before its time, says nothing of the way; nor does the end of a long silence.
        if (0.5..10.0).contains(&delay) {
            let off = delay - self.mean;
            self.mean += (1.0 - KEEPS) * off;
            self.variance = KEEPS * (self.variance + (1.0 - KEEPS) * off * off);
        }
        (self.heard, self.promised) = (now, promised.clamp(PROMISE_MIN, PROMISE_MAX));
    }

    /// When it was heard last.
    pub(super) const fn heard(&self) -> Timestamp {
        self.heard
    }

    /// What was our own delay is not the agent's.
    pub(super) fn forgive(&mut self, delay: Duration) {
        self.heard = self.heard + delay;
    }

    /// How late it is, in promises; 1 is when the next report was due.
    fn lateness(&self, now: Timestamp, stretch: f64) -> f64 {
        let waited = now.since(self.heard).saturating_sub(GRACE);
        waited.as_secs_f64() / self.promised.as_secs_f64() / stretch.max(1.0)
    }

    /// How many promises it has missed.
    pub(super) fn missed(&self, now: Timestamp, stretch: f64) -> u32 {
        self.lateness(now, stretch) as u32
    }

    /// φ: the doubt that it still speaks, where 1 stands for a chance of 1 in 10 that it does, 2 for 1 in 100.
    pub(super) fn doubt(&self, now: Timestamp, stretch: f64) -> f64 {
        let spread = self.variance.sqrt().max(SPREAD_MIN);
        let deviation = (self.lateness(now, stretch) - self.mean) / spread;
        -tail(deviation).max(1e-300).log10()
    }
}

/// The chance that a normal variable is above `deviation` of its spreads: the logistic approximation (S. R. Bowling et al.,
/// 2009), good to 14 hundred-thousandths.
fn tail(deviation: f64) -> f64 {
    1.0 / (1.0 + (deviation * (1.5976 + 0.070_566 * deviation * deviation)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    fn at(millis: f64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs_f64(millis / 1_000.0)
    }

    const PROMISED: Duration = Duration::from_millis(100);

    #[test]
    fn promises_are_counted_and_not_time() {
        for promised in [PROMISED, PROMISED * 5, PROMISED * 10] {
            let promises = Promises::new(at(0.0), promised);
            let late = |parts: f64| promised.as_secs_f64() * 1_000.0 * parts + 50.0;
            for (parts, missed) in [(0.9, 0), (1.1, 1), (2.9, 2), (3.1, 3), (9.1, 9)] {
                assert_eq!(promises.missed(at(late(parts)), 1.0), missed, "{promised:?}");
            }
            assert_eq!(promises.missed(at(late(3.1)), 4.0), 0, "stretched");
        }
    }

    #[test]
    fn doubt_grows_with_silence_and_crosses_its_marks_at_three_and_five_promises() {
        let promises = Promises::new(at(0.0), PROMISED);
        let doubts: Vec<f64> = (0..60).map(|tenth| promises.doubt(at(50.0 + f64::from(tenth) * 10.0), 1.0)).collect();
        assert!(doubts.is_sorted());
        let crosses = |mark: f64| doubts.iter().position(|doubt| *doubt >= mark).unwrap();
        assert!((28..=32).contains(&crosses(DOUBT)), "{}", crosses(DOUBT));
        assert!((42..=50).contains(&crosses(DOUBT_OF_LIFE)), "{}", crosses(DOUBT_OF_LIFE));
    }

    /// One datagram of a hundred lost, 20 ms of jitter: an hour without a doubt.
    #[test]
    fn a_lossy_way_raises_no_doubt_in_an_hour() {
        for seed in 0..16 {
            let mut rng = Rng::new(seed);
            let mut promises = Promises::new(at(0.0), PROMISED);
            let (mut arrives, mut highest) = (0.0, 0u32);
            for number in 1..36_000 {
                if rng.below(100) == 0 {
                    continue;
                }
                let next = (f64::from(number) * 100.0 + rng.unit() * 20.0f64).max(arrives);
                highest = highest.max(promises.missed(at(next), 1.0));
                assert!(promises.doubt(at(next), 1.0) < DOUBT_OF_LIFE, "seed {seed}");
                promises.kept(at(next), PROMISED);
                arrives = next;
            }
            assert!(highest < MISSED_MAX + 1, "seed {seed}: {highest} missed");
        }
    }

    #[test]
    fn our_own_delay_is_not_counted() {
        let mut promises = Promises::new(at(0.0), PROMISED);
        promises.forgive(Duration::from_secs(2));
        assert_eq!(promises.missed(at(2_060.0), 1.0), 0);
    }
}

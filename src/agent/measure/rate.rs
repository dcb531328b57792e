//! How fast a counter rises: over the last second or what is known of it. It refuses to go below zero: a counter that begins
//! anew has not run backwards.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::Timestamp;

/// How far back a rate looks.
const SPAN: Duration = Duration::from_secs(1);
/// Readings closer to each other than this are one.
const APART: Duration = Duration::from_millis(80);

/// The readings of a counter in the last second.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    readings: VecDeque<(Timestamp, f64)>,
}

impl Rate {
    /// Takes a reading, and gives the rise a second; `None`: it is the first.
    pub fn add(&mut self, now: Timestamp, count: f64) -> Option<f64> {
        while self.readings.len() > 1 && self.readings.get(1).is_some_and(|(at, _)| now.since(*at) >= SPAN) {
            self.readings.pop_front();
        }
        let rate =
            self.readings.front().map(|(at, first)| (count - first).max(0.0) / now.since(*at).as_secs_f64().max(1e-3));
        if self.readings.back().is_none_or(|(at, _)| now.since(*at) >= APART) {
            self.readings.push_back((now, count));
        }
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_rate_is_that_of_the_last_second() {
        let mut rate = Rate::default();
        assert_eq!(rate.add(at(0), 100.0), None);
        assert_eq!(rate.add(at(500), 150.0), Some(100.0));
        for step in 6..60 {
            rate.add(at(100 * step), 150.0);
        }
        assert_eq!(rate.add(at(6000), 150.0), Some(0.0), "what was before is forgotten");
        assert_eq!(rate.add(at(6500), 10.0), Some(0.0), "a counter that began anew");
        assert!(rate.readings.len() <= 14);
    }
}

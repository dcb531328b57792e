//! Slow start: the share of a server that is back rises from a tenth to the whole, in steps.
//!
//! It refuses to say whether the server is well: a failure ends the climb, and [`super::watch`] knows what one is.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::pool::Share;

/// In so many steps a share rises: each is a change of the snapshot.
pub const STEPS: u16 = 20;

/// What a server begins with, in hundredths of its share: enough to show whether it is well, little enough to warm it up.
pub const FIRST: u16 = 10;

/// A server that climbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Climb {
    began: Timestamp,
    step: u16,
    /// Whether it was dead before: then one failure will do.
    pub(super) is_from_down: bool,
}

impl Climb {
    pub(super) const fn new(began: Timestamp, is_from_down: bool) -> Self {
        Self { began, step: 0, is_from_down }
    }

    /// Goes to the step of that time, in a climb that takes so long; none goes back.
    pub(super) fn go_on(&mut self, now: Timestamp, takes: Duration) {
        let elapsed = now.since(self.began).as_nanos();
        let step = elapsed.saturating_mul(u128::from(STEPS)).checked_div(takes.as_nanos());
        let step = step.and_then(|step| u16::try_from(step).ok()).unwrap_or(STEPS).min(STEPS);
        self.step = self.step.max(step);
    }

    /// Whether the top is reached.
    pub(super) const fn is_over(self) -> bool {
        self.step >= STEPS
    }

    /// The share now of one that is `whole` at the top.
    pub(super) const fn share(self, whole: Share) -> Share {
        let hundred = 100 * STEPS;
        whole.part(FIRST * STEPS + (100 - FIRST) * self.step, hundred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKES: Duration = Duration::from_secs(10);

    fn share_after(millis: u64, weight: u16) -> Share {
        let mut climb = Climb::new(Timestamp::ZERO, false);
        climb.go_on(Timestamp::ZERO + Duration::from_millis(millis), TAKES);
        climb.share(Share::of(weight))
    }

    #[test]
    fn a_share_rises_from_a_tenth_to_the_whole_in_even_steps() {
        let hundred = |millis| share_after(millis, 100).units() * 100 / Share::of(100).units();
        assert_eq!([0, 499, 500, 5_000, 9_999, 10_000, 99_000].map(hundred), [10, 10, 14, 55, 95, 100, 100]);
        let all: Vec<_> = (0..=20).map(|step| share_after(step * 500, 20)).collect();
        assert!(all.is_sorted());
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 21);
    }

    #[test]
    fn a_climbing_share_is_never_nothing_unless_the_whole_is() {
        assert_eq!(share_after(0, 1), Share::from_units(25));
        assert_eq!(share_after(0, u16::MAX), Share::from_units(65_535 * 256 / 10));
        assert!(share_after(5_000, 0).is_zero());
    }

    #[test]
    fn a_climb_without_length_is_over_at_once_and_none_goes_back() {
        let mut climb = Climb::new(Timestamp::ZERO, false);
        climb.go_on(Timestamp::ZERO + Duration::from_secs(5), TAKES);
        let half = climb.share(Share::of(100));
        climb.go_on(Timestamp::ZERO + Duration::from_secs(6), TAKES * 10);
        assert_eq!(climb.share(Share::of(100)), half);
        assert!(!climb.is_over());
        climb.go_on(Timestamp::ZERO, Duration::ZERO);
        assert!(climb.is_over());
    }
}

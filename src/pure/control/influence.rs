//! What reports make of one server's share: where it is to go, how fast it may, and when it goes to and fro too much.
//!
//! A share that turns by more than a fifth more than six times in a minute oscillates: its gain is halved, so that it goes
//! only a part of each way. The formulas are [`crate::pure::feedback::weights`]'s.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::feedback::weights::Rating;
use crate::pure::pool::Share;

/// The most turns in [`TURNS_WITHIN`].
pub const TURNS_MAX: usize = 6;

/// In what time turns are counted.
pub const TURNS_WITHIN: Duration = Duration::from_secs(60);

/// A turn is one of more than this part of the unit.
const TURN: f64 = 0.2;

/// A change below this part of the unit is not worth a snapshot.
const WORTH: f64 = 0.05;

/// The least gain.
const GAIN_MIN: f64 = 1.0 / 16.0;

/// After so long without oscillating the gain doubles again.
const GAIN_RESTORED: Duration = Duration::from_secs(300);

/// What reports make of a server's share.
#[derive(Debug)]
pub(super) struct Influence {
    share: Option<Share>,
    rating: Option<Rating>,
    gain: f64,
    gain_since: Timestamp,
    /// Where the share turned last, and whether it has risen since.
    turned_at: f64,
    is_rising: Option<bool>,
    turns: VecDeque<Timestamp>,
}

impl Default for Influence {
    fn default() -> Self {
        Self {
            share: None,
            rating: None,
            gain: 1.0,
            gain_since: Timestamp::ZERO,
            turned_at: 0.0,
            is_rising: None,
            turns: VecDeque::new(),
        }
    }
}

/// What a share is measured by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The configured share.
    pub(super) whole: Share,
    /// What reports lead to at most: the configured share, or in the paper's way a weight of 100.
    pub(super) unit: Share,
}

/// What came of a new target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moved {
    /// The share before and now, where it has changed.
    pub(super) shares: Option<(Share, Share)>,
    /// The gain, where it was halved just now.
    pub(super) gain_halved: Option<f64>,
}

impl Influence {
    /// The share that reports have led to; `None`: they say nothing.
    pub(super) const fn share(&self) -> Option<Share> {
        self.share
    }

    /// What the share came from.
    pub(super) const fn rating(&self) -> Option<Rating> {
        self.rating
    }

    /// The part of each way that is gone.
    pub(super) const fn gain(&self) -> f64 {
        self.gain
    }

    /// Reports want that share; `None`: they want nothing any more.
    pub(super) fn follow(
        &mut self,
        now: Timestamp,
        Scale { whole, unit }: Scale,
        target: Option<Share>,
        rating: Option<Rating>,
    ) -> Moved {
        self.rating = rating;
        let old = self.share.unwrap_or(whole);
        let Some(target) = target else {
            self.share = None;
            return Moved { shares: (old != whole).then_some((old, whole)), gain_halved: None };
        };
        let (from, to) = (f64::from(old.units()), f64::from(target.units()));
        let unit = f64::from(unit.units().max(1));
        let is_worth = (to - from).abs() >= WORTH * unit || (target.is_zero() != old.is_zero());
        if !is_worth {
            self.share = Some(old);
            return Moved::default();
        }
        let next = if target.is_zero() { 0.0 } else { (from + self.gain * (to - from)).round().max(1.0) };
        let next = Share::from_units(next as u32);
        self.share = Some(next);
        let gain_halved = self.watch_turns(now, f64::from(next.units()), from, unit);
        Moved { shares: (next != old).then_some((old, next)), gain_halved }
    }

    /// Notes a turn, and halves the gain where there are too many.
    fn watch_turns(&mut self, now: Timestamp, next: f64, from: f64, unit: f64) -> Option<f64> {
        let is_rising = next > from;
        if self.is_rising != Some(is_rising) {
            if self.is_rising.is_some() && (from - self.turned_at).abs() > TURN * unit {
                self.turns.push_back(now);
            }
            (self.is_rising, self.turned_at) = (Some(is_rising), from);
        }
        while self.turns.front().is_some_and(|at| now.since(*at) > TURNS_WITHIN) {
            self.turns.pop_front();
        }
        if self.turns.len() > TURNS_MAX {
            self.turns.clear();
            self.gain = (self.gain / 2.0).max(GAIN_MIN);
            self.gain_since = now;
            return Some(self.gain);
        }
        if self.gain < 1.0 && now.since(self.gain_since) > GAIN_RESTORED {
            self.gain = (self.gain * 2.0).min(1.0);
            self.gain_since = now;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Share = Share::of(100);
    const SCALE: Scale = Scale { whole: WHOLE, unit: WHOLE };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn small_changes_are_not_worth_it_and_nothing_is_left_behind() {
        let mut influence = Influence::default();
        assert_eq!(influence.follow(at(0), SCALE, Some(Share::of(97)), None), Moved::default());
        let moved = influence.follow(at(0), SCALE, Some(Share::of(90)), None);
        assert_eq!(moved.shares, Some((WHOLE, Share::of(90))));
        assert_eq!(influence.follow(at(1), SCALE, Some(Share::ZERO), None).shares, Some((Share::of(90), Share::ZERO)));
        assert_eq!(influence.follow(at(1), SCALE, None, None).shares, Some((Share::ZERO, WHOLE)));
        assert_eq!(influence.share(), None);
    }

    #[test]
    fn a_share_that_goes_to_and_fro_loses_half_its_gain_and_gets_it_back_in_time() {
        let mut influence = Influence::default();
        let mut halved = Vec::new();
        for second in 0..20 {
            let target = if second % 2 == 0 { 40 } else { 90 };
            let moved = influence.follow(at(second), SCALE, Some(Share::of(target)), None);
            halved.extend(moved.gain_halved);
        }
        assert_eq!(halved.first(), Some(&0.5));
        assert!(influence.gain() < 1.0);
        let slow = Share::of(50);
        let before = influence.share().unwrap();
        influence.follow(at(30), SCALE, Some(slow), None);
        let after = influence.share().unwrap();
        assert!(after != slow && after.units().abs_diff(slow.units()) < before.units().abs_diff(slow.units()));
        for step in 1..8 {
            let target = if step % 2 == 0 { 40 } else { 90 };
            influence.follow(at(30 + step * 400), SCALE, Some(Share::of(target)), None);
        }
        assert_eq!(influence.gain(), 1.0);
    }

    #[test]
    fn seven_slow_turns_are_no_oscillation() {
        let mut influence = Influence::default();
        for step in 0..40 {
            let target = if step % 2 == 0 { 40 } else { 90 };
            let moved = influence.follow(at(step * 11), SCALE, Some(Share::of(target)), None);
            assert_eq!(moved.gain_halved, None);
        }
    }
}

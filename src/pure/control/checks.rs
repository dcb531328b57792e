//! The checks of one server: when the next is due, and what the last ones said.

use std::time::Duration;

use super::evidence::Sign;
use super::{CheckFailure, CheckId};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::check::CheckTimes;

/// The least time between the beginnings of two checks of a server that is not well.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Up to a tenth of the interval is added to it, so that the checks of many servers do not fall together.
pub const CHECK_JITTER: Duration = Duration::from_millis(25);

/// A check whose result has not come this long after its timeout is lost: it counts as not run.
pub const CHECK_LOST_AFTER: Duration = Duration::from_secs(1);

/// A server's checks.
#[derive(Debug)]
pub(super) struct Checks {
    due: Timestamp,
    began: Timestamp,
    pub(super) running: Option<CheckId>,
    pub(super) passed_in_a_row: u32,
    /// Checks in a row that failed, whatever they failed by.
    pub(super) failed_in_a_row: u32,
    /// Whether one of them was refused: nobody listens there.
    pub(super) is_refused: bool,
    /// Whether one of them was refused or found no way: that is no overload.
    pub(super) has_no_way: bool,
    /// What the last one that failed said, until one passes.
    pub(super) last: Option<Sign>,
}

impl Checks {
    /// The first comes at once, or nearly.
    pub(super) fn begin(now: Timestamp, rng: &mut Rng) -> Self {
        Self::begin_at(now + CHECK_JITTER.mul_f64(rng.unit()))
    }

    const fn begin_at(due: Timestamp) -> Self {
        Self {
            due,
            began: due,
            running: None,
            passed_in_a_row: 0,
            failed_in_a_row: 0,
            is_refused: false,
            has_no_way: false,
            last: None,
        }
    }

    /// Those of a server that is well: the first comes some time within the interval.
    pub(super) fn begin_within(now: Timestamp, every: Duration, rng: &mut Rng) -> Self {
        Self::begin_at(now + every.mul_f64(rng.unit()))
    }

    /// Since when one is due; `None`: none is.
    pub(super) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        (self.running.is_none() && self.due <= now).then_some(self.due)
    }

    /// One begins; the next follows in `interval` or a little more.
    pub(super) fn begun(&mut self, now: Timestamp, id: CheckId, interval: Duration, rng: &mut Rng) {
        (self.running, self.began) = (Some(id), now);
        self.due = now + interval + (interval / 10).mul_f64(rng.unit());
    }

    pub(super) fn passed(&mut self) {
        self.passed_in_a_row = self.passed_in_a_row.saturating_add(1);
        (self.failed_in_a_row, self.is_refused, self.has_no_way, self.last) = (0, false, false, None);
    }

    /// One has failed. Our own want of means is no word on the server.
    pub(super) fn failed(&mut self, why: CheckFailure) {
        if why == CheckFailure::NotRun {
            return;
        }
        self.passed_in_a_row = 0;
        // Where something is wrong it is looked at more closely.
        self.due = self.due.min(self.began + CHECK_INTERVAL);
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        self.is_refused |= matches!(why, CheckFailure::Refused | CheckFailure::Absent);
        self.has_no_way |= self.is_refused || why == CheckFailure::Unreachable;
        self.last = Some(Sign::CheckFailed(why));
    }

    /// Whether so many have failed in a row as the configuration says.
    pub(super) const fn have_fallen(&self, times: &CheckTimes) -> bool {
        self.failed_in_a_row >= times.fall
    }
}

//! `fb-wlc`: the shortest expected delay by what a server is seen to do, (active + 1) / capacity, for pools whose work is
//! computing. A server's capacity is the answers that it finishes in a second in which it has anything to do, over the last
//! twenty seconds or so ([`crate::pure::pool::Pace`]).
//!
//! Idle servers that are about as fast as the fastest take turns: what was seen is never so exact that one of them deserves all.
//!
//! What was seen is looked at once in a millisecond, not for every choice.
//!
//! As long as one of the servers has not been seen to work, the configured weights count instead: a number of answers can't
//! be compared with a weight. A share that is below the configured weight, by slow start or by feedback, scales what was seen.

use std::time::Duration;

use super::least_loaded::Measure;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView, Share};

/// So long what was seen is taken for what is: nothing beside the seconds over which it was seen.
const HOLDS: Duration = Duration::from_millis(1);

/// By the work in flight for what was seen of each server.
#[derive(Debug)]
pub(super) struct SeenCapacity {
    is_known: bool,
    /// The highest capacity, as [`Measure::capacity`] has it; 0 where it is not known.
    highest: u32,
    now: Timestamp,
}

impl Measure for SeenCapacity {
    const NAME: &'static str = "fb-wlc";
    const AIM: &'static str = "the shortest expected delay by what it was seen to do";

    fn of(view: &PoolView<'_>, now: Timestamp, among: impl Iterator<Item = usize>) -> Self {
        let mut measure = Self { is_known: true, highest: 0, now };
        for candidate in among.filter_map(|index| view.candidates.get(index)).filter(|it| view.stands(it)) {
            if candidate.load.pace.capacity(now) == 0 {
                return Self { is_known: false, highest: 0, now };
            }
            measure.highest = measure.highest.max(measure.capacity(candidate));
        }
        measure
    }

    fn is_dated(&self, now: Timestamp) -> bool {
        u128::from(now.as_nanos().abs_diff(self.now.as_nanos())) >= HOLDS.as_nanos()
    }

    fn settles(&self, candidate: &Candidate, capacity: u32) -> bool {
        self.is_known && candidate.load.active() == 0 && capacity * 2 > self.highest
    }

    fn aim(&self) -> &'static str {
        if self.is_known {
            Self::AIM
        } else {
            "the shortest expected delay by weight: not every server was seen to work yet"
        }
    }

    fn load(&self, candidate: &Candidate) -> u64 {
        u64::from(candidate.load.active()) + 1
    }

    fn capacity(&self, candidate: &Candidate) -> u32 {
        let share = candidate.share.units();
        if !self.is_known {
            return share;
        }
        let whole = u64::from(Share::of(candidate.server.weight).units());
        match candidate.load.pace.capacity(self.now) {
            // In steps of a sixteenth of an answer a second: 24 bits reach a million.
            seen @ 1.. if whole > 0 => u32::try_from(u64::from(seen) / 16 * u64::from(share) / whole)
                .unwrap_or(u32::MAX)
                .clamp(1, (1 << 24) - 1),
            _ => share,
        }
    }
}

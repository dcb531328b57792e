//! `wrr mode="ipvs"`: the kernel's walk. Weights 4, 3, 2 give A A B A B C A B C.
//!
//! A level falls from the largest weight to 0 in steps of the greatest common divisor; each round over the servers takes
//! those whose weight reaches the level. Source: IPVS `ip_vs_wrr`. Unlike the kernel, a round in which nobody could be
//! taken is followed by the level of the largest eligible weight, so that no walk goes on for thousands of empty rounds;
//! the order is the same.

use std::cell::RefCell;

use super::standing::Standing;
use super::{Phase, Pick, Scheduler, describe};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::PoolView;
use crate::pure::trace::Trace;

/// Weighted round robin in the kernel's order.
#[derive(Debug)]
pub(super) struct IpvsWalk {
    phase: Phase,
    walk: RefCell<Walk>,
}

#[derive(Debug, Default)]
struct Walk {
    standing: Standing,
    /// The position to look at next in this round.
    next: usize,
    /// The weight that this round asks for, in units of a share; 0 before the first round.
    level: u32,
    /// By how much the level falls.
    step: u32,
    /// Whether this round has taken somebody, or began in the middle.
    has_taken: bool,
    is_started: bool,
}

impl IpvsWalk {
    pub(super) fn new(phase: Phase) -> Self {
        Self { phase, walk: RefCell::default() }
    }
}

impl Scheduler for IpvsWalk {
    fn pick(&self, view: &PoolView<'_>, _: Option<u64>, _: Timestamp, _: &mut Rng, trace: &mut Trace) -> Pick {
        let mut walk = self.walk.borrow_mut();
        walk.refresh(view, self.phase);
        let Some(index) = walk.go_on(view) else { return Pick::NoneEligible };
        trace.note("scheduler", || format!("wrr (ipvs): {} is next in turn", describe(view, index)));
        Pick::Server(index)
    }
}

impl Walk {
    fn refresh(&mut self, view: &PoolView<'_>, phase: Phase) {
        if self.standing.refresh(view) {
            self.step = self.standing.common_divisor();
            // Keep the level on the new ladder, so that the round goes on where it is.
            self.level = self.level.min(self.standing.largest()).next_multiple_of(self.step);
            if self.level == 0 {
                self.level = self.standing.largest();
            }
        }
        if !self.is_started {
            self.is_started = true;
            let rungs = u64::from(self.standing.largest() / self.step);
            let count = view.candidates.len() as u64;
            let start = phase.below(rungs * count);
            // Position 0 of the topmost round is where the kernel starts.
            if let (Some(rung), Some(next)) = (start.checked_div(count), start.checked_rem(count)) {
                self.level = self.standing.largest() - u32::try_from(rung).unwrap_or(0) * self.step;
                self.next = usize::try_from(next).unwrap_or(0);
            }
            self.has_taken = true;
        }
    }

    fn go_on(&mut self, view: &PoolView<'_>) -> Option<usize> {
        // The rest of this round, an empty round, one at the level of the largest eligible weight.
        for _ in 0..4 {
            let (shares, level) = (self.standing.shares(), self.level.max(1));
            let rest = shares.iter().enumerate().skip(self.next);
            if let Some(index) = rest
                .filter(|(_, share)| **share >= level)
                .map(|(index, _)| index)
                .find(|index| view.is_eligible(*index))
            {
                self.next = index + 1;
                self.has_taken = true;
                return Some(index);
            }
            self.next_round(view)?;
        }
        // Only where the view changes under its generation.
        (0..view.candidates.len()).find(|index| view.is_eligible(*index))
    }

    /// Begins the next round; `None` where nobody at all is eligible.
    fn next_round(&mut self, view: &PoolView<'_>) -> Option<()> {
        let reachable = if self.has_taken { self.standing.largest() } else { self.largest_eligible(view)? };
        self.level = match self.level.saturating_sub(self.step) {
            0 => reachable,
            lower => lower.min(reachable),
        };
        self.next = 0;
        self.has_taken = false;
        Some(())
    }

    fn largest_eligible(&self, view: &PoolView<'_>) -> Option<u32> {
        (0..view.candidates.len())
            .filter(|index| view.is_eligible(*index))
            .map(|index| self.standing.share(index).max(self.step))
            .max()
    }
}

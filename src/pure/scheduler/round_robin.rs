//! `rr`: the next eligible server after the last pick, whatever its weight. Source: IPVS `ip_vs_rr`.

use std::cell::Cell;

use super::{Phase, Pick, Scheduler, describe};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::PoolView;
use crate::pure::trace::Trace;

/// Round robin.
#[derive(Debug)]
pub(super) struct RoundRobin {
    phase: Phase,
    /// The position to look at first; `None` before the first pick.
    next: Cell<Option<usize>>,
}

impl RoundRobin {
    pub(super) const fn new(phase: Phase) -> Self {
        Self { phase, next: Cell::new(None) }
    }
}

impl Scheduler for RoundRobin {
    fn pick(&self, view: &PoolView<'_>, _: Option<u64>, _: Timestamp, _: &mut Rng, trace: &mut Trace) -> Pick {
        let count = view.candidates.len();
        let from = self.next.get().unwrap_or_else(|| phase_position(self.phase, count));
        let Some(index) = next_eligible(view, from) else { return Pick::NoneEligible };
        self.next.set(Some(index + 1));
        trace.note("scheduler", || format!("rr: {} is next in turn", describe(view, index)));
        Pick::Server(index)
    }
}

/// A position in `0..count` to begin at.
pub(super) fn phase_position(phase: Phase, count: usize) -> usize {
    usize::try_from(phase.below(count as u64)).unwrap_or(0)
}

/// The first eligible candidate at `from` or behind it, and around the end.
pub(super) fn next_eligible(view: &PoolView<'_>, from: usize) -> Option<usize> {
    let count = view.candidates.len();
    let from = if from < count { from } else { 0 };
    (from..count).chain(0..from).find(|index| view.is_eligible(*index))
}

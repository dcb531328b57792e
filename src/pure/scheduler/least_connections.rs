//! `wlc`: the server with the least load for its weight, load = 256 · active + inactive. Source: IPVS `ip_vs_wlc`.
//!
//! Loads are compared without division: a is less loaded than b iff load_a · w_b < load_b · w_a, in 128 bits. Among equals
//! turns are taken, or with `ties="first"` the first in file order wins, as in the kernel. Above 64 servers a scan would
//! cost too much: two servers are drawn in proportion to their weights and the less loaded of them gets the request
//! (M. Mitzenmacher, The power of two choices in randomized load balancing, 2001).

use std::cell::RefCell;

use super::alias::Alias;
use super::round_robin::phase_position;
use super::standing::Standing;
use super::{Phase, Pick, Scheduler, describe};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView, Ties};
use crate::pure::trace::Trace;

/// The largest pool that is scanned.
pub(super) const SCAN_MAX: usize = 64;

/// How often a draw that is not eligible is repeated before all servers are looked at.
const DRAWS_MAX: usize = 16;

/// Weighted least connections.
#[derive(Debug)]
pub(super) struct LeastConnections {
    ties: Ties,
    phase: Phase,
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Where a scan begins, so that equals take turns; `None` before the first.
    next: Option<usize>,
    standing: Standing,
    alias: Alias,
}

impl LeastConnections {
    pub(super) fn new(ties: Ties, phase: Phase) -> Self {
        Self { ties, phase, inner: RefCell::default() }
    }

    fn scan(&self, inner: &mut Inner, view: &PoolView<'_>, trace: &mut Trace) -> Option<usize> {
        let count = view.candidates.len();
        let from = match self.ties {
            Ties::First => 0,
            Ties::Rotate => inner.next.unwrap_or_else(|| phase_position(self.phase, count)) % count.max(1),
        };
        let index = least_loaded(view, (from..count).chain(0..from))?;
        inner.next = Some(index + 1);
        trace.note("scheduler", || format!("wlc: {} has the least load for its weight", describe(view, index)));
        Some(index)
    }

    fn two_choices(&self, inner: &mut Inner, view: &PoolView<'_>, rng: &mut Rng, trace: &mut Trace) -> Option<usize> {
        if inner.standing.refresh(view) {
            inner.alias = Alias::new(inner.standing.shares());
        }
        let mut drawn = (0..DRAWS_MAX).filter_map(|_| inner.alias.draw(rng)).filter(|index| view.is_eligible(*index));
        let (Some(one), Some(other)) = (drawn.next(), drawn.next()) else {
            return self.scan(inner, view, trace);
        };
        let pair = match self.ties {
            Ties::Rotate => [one, other],
            Ties::First => [one.min(other), one.max(other)],
        };
        let index = least_loaded(view, pair.into_iter())?;
        trace.note("scheduler", || {
            let passed = if index == one { other } else { one };
            format!(
                "wlc: of two drawn, {} has less load for its weight than {}",
                describe(view, index),
                describe(view, passed)
            )
        });
        Some(index)
    }
}

impl Scheduler for LeastConnections {
    fn pick(&self, view: &PoolView<'_>, _: Option<u64>, _: Timestamp, rng: &mut Rng, trace: &mut Trace) -> Pick {
        let mut inner = self.inner.borrow_mut();
        if view.candidates.len() <= SCAN_MAX {
            self.scan(&mut inner, view, trace).into()
        } else {
            self.two_choices(&mut inner, view, rng, trace).into()
        }
    }
}

/// The kernel's measure of a server's load, 256 · active + inactive. Its inactive connections are those that end; ours are
/// idle, cost a server next to nothing and are counted as none.
fn load_of(candidate: &Candidate) -> u64 {
    256 * u64::from(candidate.load.active())
}

/// The eligible candidate with the least load for its share, the first of equals in the order given.
fn least_loaded(view: &PoolView<'_>, order: impl Iterator<Item = usize>) -> Option<usize> {
    let mut best: Option<(usize, u64, u64)> = None;
    for index in order {
        let Some(candidate) = view.candidates.get(index) else { continue };
        if !view.is_eligible(index) {
            continue;
        }
        let (load, share) = (load_of(candidate), u64::from(candidate.share.units()));
        let is_better = best.is_none_or(|(_, best_load, best_share)| {
            u128::from(load) * u128::from(best_share) < u128::from(best_load) * u128::from(share)
        });
        if is_better {
            best = Some((index, load, share));
        }
    }
    best.map(|(index, _, _)| index)
}

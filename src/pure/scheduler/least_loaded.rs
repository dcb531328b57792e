//! The least loaded of all: the frame of the schedulers that count, `wlc`, `lc`, `sed`, `nq` and `fb-wlc`, each of which says
//! what it takes for a server's load and for its capacity.
//!
//! Loads are compared without division: a is less loaded than b iff load_a · capacity_b < load_b · capacity_a, in 128 bits.
//! Among equals turns are taken, or with `ties="first"` the first in file order wins, as in the kernel. Above 64 servers a
//! scan would cost too much: two servers are drawn in proportion to their weights and the less loaded of them gets the
//! request (M. Mitzenmacher, The power of two choices in randomized load balancing, 2001).

use std::cell::RefCell;
use std::marker::PhantomData;

use super::alias::Alias;
use super::round_robin::phase_position;
use super::standing::Standing;
use super::two_choices::tell_drawn;
use super::{Phase, Pick, Scheduler, describe};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView, Ties};
use crate::pure::trace::Trace;

/// The largest pool that is scanned.
pub(super) const SCAN_MAX: usize = 64;

/// How often a draw that is not eligible is repeated before all servers are looked at.
const DRAWS_MAX: usize = 16;

/// What a scheduler takes for load and capacity.
pub(super) trait Measure: std::fmt::Debug {
    /// The scheduler's name.
    const NAME: &'static str;
    /// What it looks for, in words.
    const AIM: &'static str;

    /// A view's own way to measure; made once for each pick.
    fn of(view: &PoolView<'_>) -> Self;

    /// What it looks for in this view.
    fn aim(&self) -> &'static str {
        Self::AIM
    }

    /// The load of a candidate, in any unit.
    fn load(&self, candidate: &Candidate) -> u64;

    /// What a candidate can bear, in any unit; never 0 for one that is eligible.
    fn capacity(&self, candidate: &Candidate) -> u64 {
        u64::from(candidate.share.units())
    }

    /// Whether a candidate is taken at once, without looking at those behind it.
    fn settles(&self, _: &Candidate) -> bool {
        false
    }
}

/// A scheduler that takes the least loaded.
#[derive(Debug)]
pub(super) struct LeastLoaded<M> {
    ties: Ties,
    phase: Phase,
    inner: RefCell<Inner>,
    measure: PhantomData<M>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Where a scan begins, so that equals take turns; `None` before the first.
    next: Option<usize>,
    standing: Standing,
    alias: Alias,
}

impl<M: Measure> LeastLoaded<M> {
    pub(super) fn new(ties: Ties, phase: Phase) -> Self {
        Self { ties, phase, inner: RefCell::default(), measure: PhantomData }
    }

    fn scan(&self, inner: &mut Inner, view: &PoolView<'_>, trace: &mut Trace) -> Option<usize> {
        let count = view.candidates.len();
        let from = match self.ties {
            Ties::First => 0,
            Ties::Rotate => inner.next.unwrap_or_else(|| phase_position(self.phase, count)) % count.max(1),
        };
        let measure = M::of(view);
        let index = least(view, &measure, (from..count).chain(0..from))?;
        inner.next = Some(index + 1);
        trace.note("scheduler", || format!("{}: {} has {}", M::NAME, describe(view, index), measure.aim()));
        Some(index)
    }

    fn two_choices(&self, inner: &mut Inner, view: &PoolView<'_>, rng: &mut Rng, trace: &mut Trace) -> Option<usize> {
        let Some((one, other)) = draw_two(&mut inner.standing, &mut inner.alias, view, rng) else {
            return self.scan(inner, view, trace);
        };
        let pair = match self.ties {
            Ties::Rotate => [one, other],
            Ties::First => [one.min(other), one.max(other)],
        };
        let measure = M::of(view);
        let index = least(view, &measure, pair.into_iter())?;
        trace.note("scheduler", || tell_drawn(view, (one, other), index, M::NAME, measure.aim()));
        Some(index)
    }
}

impl<M: Measure> Scheduler for LeastLoaded<M> {
    fn pick(&self, view: &PoolView<'_>, _: Option<u64>, _: Timestamp, rng: &mut Rng, trace: &mut Trace) -> Pick {
        let mut inner = self.inner.borrow_mut();
        if view.candidates.len() <= SCAN_MAX {
            self.scan(&mut inner, view, trace).into()
        } else {
            self.two_choices(&mut inner, view, rng, trace).into()
        }
    }
}

/// Two eligible candidates, drawn in proportion to their shares; `None` where such are too few to be found by drawing.
pub(super) fn draw_two(
    standing: &mut Standing,
    alias: &mut Alias,
    view: &PoolView<'_>,
    rng: &mut Rng,
) -> Option<(usize, usize)> {
    if standing.refresh(view) {
        *alias = Alias::new(standing.shares());
    }
    let mut drawn = (0..DRAWS_MAX).filter_map(|_| alias.draw(rng)).filter(|index| view.is_eligible(*index));
    Some((drawn.next()?, drawn.next()?))
}

/// The eligible candidate with the least load for its capacity, the first of equals in the order given.
pub(super) fn least(view: &PoolView<'_>, measure: &impl Measure, order: impl Iterator<Item = usize>) -> Option<usize> {
    let mut best: Option<(usize, u64, u64)> = None;
    for index in order {
        let Some(candidate) = view.candidates.get(index) else { continue };
        if !view.is_eligible(index) {
            continue;
        }
        if measure.settles(candidate) {
            return Some(index);
        }
        let (load, capacity) = (measure.load(candidate), measure.capacity(candidate));
        let is_better = best.is_none_or(|(_, best_load, best_capacity)| {
            u128::from(load) * u128::from(best_capacity) < u128::from(best_load) * u128::from(capacity)
        });
        if is_better {
            best = Some((index, load, capacity));
        }
    }
    best.map(|(index, _, _)| index)
}

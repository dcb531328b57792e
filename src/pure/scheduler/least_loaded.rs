//! The least loaded of all: the frame of the schedulers that count, `wlc`, `lc`, `sed`, `nq` and `fb-wlc`, each of which says
//! what it takes for a server's load and for its capacity.
//!
//! Loads are compared without division: a is less loaded than b iff load_a · capacity_b < load_b · capacity_a.
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

    /// The way to measure those of a view that are compared; made once for each pick.
    fn of(view: &PoolView<'_>, now: Timestamp, among: impl Iterator<Item = usize>) -> Self;

    /// What it looks for in this view.
    fn aim(&self) -> &'static str {
        Self::AIM
    }

    /// The load of a candidate, in any unit, in 40 bits.
    fn load(&self, candidate: &Candidate) -> u64;

    /// What a candidate can bear, in any unit and in 24 bits; never 0 for one that is eligible.
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

    fn scan(&self, inner: &mut Inner, view: &PoolView<'_>, now: Timestamp, trace: &mut Trace) -> Option<usize> {
        let count = view.candidates.len();
        let from = match self.ties {
            Ties::First => 0,
            Ties::Rotate => inner.next.unwrap_or_else(|| phase_position(self.phase, count)) % count.max(1),
        };
        let measure = M::of(view, now, 0..count);
        inner.standing.refresh(view);
        let index = least_standing(view, inner.standing.shares(), &measure, from)?;
        inner.next = Some(index + 1);
        trace.note("scheduler", || format!("{}: {} has {}", M::NAME, describe(view, index), measure.aim()));
        Some(index)
    }

    fn two_choices(
        &self,
        inner: &mut Inner,
        view: &PoolView<'_>,
        now: Timestamp,
        rng: &mut Rng,
        trace: &mut Trace,
    ) -> Option<usize> {
        let Some((one, other)) = draw_two(&mut inner.standing, &mut inner.alias, view, rng) else {
            return self.scan(inner, view, now, trace);
        };
        let pair = match self.ties {
            Ties::Rotate => [one, other],
            Ties::First => [one.min(other), one.max(other)],
        };
        let measure = M::of(view, now, pair.into_iter());
        let index = least(view, &measure, pair.into_iter())?;
        trace.note("scheduler", || tell_drawn(view, (one, other), index, M::NAME, measure.aim()));
        Some(index)
    }
}

impl<M: Measure> Scheduler for LeastLoaded<M> {
    fn pick(&self, view: &PoolView<'_>, _: Option<u64>, now: Timestamp, rng: &mut Rng, trace: &mut Trace) -> Pick {
        let mut inner = self.inner.borrow_mut();
        if view.candidates.len() <= SCAN_MAX {
            self.scan(&mut inner, view, now, trace).into()
        } else {
            self.two_choices(&mut inner, view, now, rng, trace).into()
        }
    }
}

/// Two different eligible candidates, drawn in proportion to their shares; `None` where such are too few to be found by drawing.
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
    let first = drawn.next()?;
    Some((first, drawn.find(|index| *index != first)?))
}

/// The least loaded so far.
#[derive(Clone, Copy, Debug, Default)]
struct Least {
    index: Option<usize>,
    load: u64,
    capacity: u64,
    counter: u32,
}

impl Least {
    fn look(&mut self, index: usize, candidate: &Candidate, measure: &impl Measure) {
        let (load, capacity) = (measure.load(candidate), measure.capacity(candidate));
        // Of 40 bits and of 24, the product has no more than 64.
        let (here, best) = (load.saturating_mul(self.capacity), self.load.saturating_mul(capacity));
        // Among equals the one that reported last, where the paper's counter runs.
        if self.index.is_none() || here < best || here == best && candidate.load.counter() < self.counter {
            *self = Self { index: Some(index), load, capacity, counter: candidate.load.counter() };
        }
    }
}

/// The same as [`least`] of all candidates from `from` on and around the end, by shares that say already who stands.
fn least_standing(view: &PoolView<'_>, shares: &[u32], measure: &impl Measure, from: usize) -> Option<usize> {
    let mut best = Least::default();
    let is_first_try = view.tried.is_empty() && !view.only_well;
    for range in [from..view.candidates.len(), 0..from] {
        let start = range.start;
        let part = view.candidates.get(range.clone()).unwrap_or_default();
        for ((offset, candidate), share) in part.iter().enumerate().zip(shares.get(range).unwrap_or_default()) {
            let may = *share != 0 && if is_first_try { !candidate.is_full() } else { view.may_get(candidate) };
            if !may {
                continue;
            }
            if measure.settles(candidate) {
                return Some(start + offset);
            }
            best.look(start + offset, candidate, measure);
        }
    }
    best.index
}

/// The eligible candidate with the least load for its capacity, the first of equals in the order given.
pub(super) fn least(view: &PoolView<'_>, measure: &impl Measure, order: impl Iterator<Item = usize>) -> Option<usize> {
    let mut best = Least::default();
    for index in order {
        let Some(candidate) = view.candidates.get(index).filter(|candidate| view.may_get(candidate)) else { continue };
        if measure.settles(candidate) {
            return Some(index);
        }
        best.look(index, candidate, measure);
    }
    best.index
}

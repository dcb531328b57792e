//! The least loaded of all: the frame of the schedulers that count, `wlc`, `lc`, `sed`, `nq` and `fb-wlc`, each of which says
//! what it takes for a server's load and for its capacity.
//!
//! Loads are compared without division: a is less loaded than b iff load_a · capacity_b < load_b · capacity_a.
//! Among equals turns are taken, or with `ties="first"` the first in file order wins, as in the kernel. Above 64 servers a
//! scan would cost too much: two servers are drawn in proportion to their weights and the less loaded of them gets the
//! request (M. Mitzenmacher, The power of two choices in randomized load balancing, 2001).
//!
//! A scan reads of each server its load alone: capacities move slowly, and are kept side by side until they are dated.

use std::cell::RefCell;

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
    fn capacity(&self, candidate: &Candidate) -> u32 {
        candidate.share.units()
    }

    /// Whether capacities may be others by now, although the view's generation is the same.
    fn is_dated(&self, _: Timestamp) -> bool {
        false
    }

    /// Whether a candidate of this capacity is taken at once, without looking at those behind it.
    fn settles(&self, _: &Candidate, _capacity: u32) -> bool {
        false
    }
}

/// A scheduler that takes the least loaded.
#[derive(Debug)]
pub(super) struct LeastLoaded<M> {
    ties: Ties,
    phase: Phase,
    inner: RefCell<Inner<M>>,
}

#[derive(Debug)]
struct Inner<M> {
    /// Where a scan begins, so that equals take turns; `None` before the first.
    next: Option<usize>,
    standing: Standing,
    alias: Alias,
    measured: Option<Measured<M>>,
}

/// A measure of all candidates, and what it takes for the capacity of each; 0 for those that do not stand.
#[derive(Debug)]
struct Measured<M> {
    measure: M,
    capacities: Vec<u32>,
    /// That of who stands.
    version: u64,
}

impl<M: Measure> LeastLoaded<M> {
    pub(super) fn new(ties: Ties, phase: Phase) -> Self {
        let inner = Inner { next: None, standing: Standing::default(), alias: Alias::default(), measured: None };
        Self { ties, phase, inner: RefCell::new(inner) }
    }

    fn scan(&self, inner: &mut Inner<M>, view: &PoolView<'_>, now: Timestamp, trace: &mut Trace) -> Option<usize> {
        let count = view.candidates.len();
        let from = match self.ties {
            Ties::First => 0,
            Ties::Rotate => inner.next.unwrap_or_else(|| phase_position(self.phase, count)) % count.max(1),
        };
        let measured = inner.measured(view, now)?;
        let index = least_standing(view, measured, from)?;
        trace.note("scheduler", || format!("{}: {} has {}", M::NAME, describe(view, index), measured.measure.aim()));
        inner.next = Some(index + 1);
        Some(index)
    }

    fn two_choices(
        &self,
        inner: &mut Inner<M>,
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

impl<M: Measure> Inner<M> {
    /// How all candidates are measured now: as before, where nothing has changed since. Never `None`.
    fn measured(&mut self, view: &PoolView<'_>, now: Timestamp) -> Option<&Measured<M>> {
        self.standing.refresh(view);
        let version = self.standing.version();
        let holds = |kept: &Measured<M>| kept.version == version && !kept.measure.is_dated(now);
        if !self.measured.as_ref().is_some_and(holds) {
            let room = self.measured.take().map(|dated| dated.capacities).unwrap_or_default();
            self.measured = Some(Measured::of(view, now, &self.standing, room));
        }
        self.measured.as_ref()
    }
}

impl<M: Measure> Measured<M> {
    /// Measures all candidates; what `room` held is forgotten.
    fn of(view: &PoolView<'_>, now: Timestamp, standing: &Standing, room: Vec<u32>) -> Self {
        let measure = M::of(view, now, 0..view.candidates.len());
        let mut capacities = room;
        capacities.clear();
        let all = view.candidates.iter().zip(standing.shares());
        capacities.extend(all.map(|(candidate, share)| if *share == 0 { 0 } else { measure.capacity(candidate) }));
        Self { measure, capacities, version: standing.version() }
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
    fn look(&mut self, index: usize, candidate: &Candidate, load: u64, capacity: u32) {
        let capacity = u64::from(capacity);
        // Of 40 bits and of 24, the product has no more than 64.
        let (here, best) = (load.saturating_mul(self.capacity), self.load.saturating_mul(capacity));
        // Among equals the one that reported last, where the paper's counter runs.
        if self.index.is_none() || here < best || here == best && candidate.load.counter() < self.counter {
            *self = Self { index: Some(index), load, capacity, counter: candidate.load.counter() };
        }
    }
}

/// The same as [`least`] of all candidates from `from` on and around the end, by capacities that say already who stands.
fn least_standing<M: Measure>(view: &PoolView<'_>, measured: &Measured<M>, from: usize) -> Option<usize> {
    let Measured { measure, capacities, .. } = measured;
    let mut best = Least::default();
    let is_first_try = view.tried.is_empty() && !view.only_well;
    for range in [from..view.candidates.len(), 0..from] {
        let start = range.start;
        let part = view.candidates.get(range.clone()).unwrap_or_default();
        for ((offset, candidate), capacity) in part.iter().enumerate().zip(capacities.get(range).unwrap_or_default()) {
            let may = *capacity != 0 && if is_first_try { !candidate.is_full() } else { view.may_get(candidate) };
            if !may {
                continue;
            }
            if measure.settles(candidate, *capacity) {
                return Some(start + offset);
            }
            best.look(start + offset, candidate, measure.load(candidate), *capacity);
        }
    }
    best.index
}

/// The eligible candidate with the least load for its capacity, the first of equals in the order given.
pub(super) fn least(view: &PoolView<'_>, measure: &impl Measure, order: impl Iterator<Item = usize>) -> Option<usize> {
    let mut best = Least::default();
    for index in order {
        let Some(candidate) = view.candidates.get(index).filter(|candidate| view.may_get(candidate)) else { continue };
        let capacity = measure.capacity(candidate);
        if measure.settles(candidate, capacity) {
            return Some(index);
        }
        best.look(index, candidate, measure.load(candidate), capacity);
    }
    best.index
}

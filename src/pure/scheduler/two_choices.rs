//! `p2c` and `peak-ewma`: two servers are drawn in proportion to their weights, and the better of them gets the request.
//!
//! `p2c` takes (active + 1) / weight for worse; `peak-ewma` multiplies that by how long the server takes to answer, an average
//! that jumps to a peak at once and forgets it slowly. Sources: M. Mitzenmacher, The power of two choices in randomized load
//! balancing, 2001; Twitter Finagle, Aperture load balancers.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::alias::Alias;
use super::least_loaded::{Measure, draw_two, least};
use super::standing::Standing;
use super::{Pick, Scheduler, describe};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView};
use crate::pure::trace::Trace;

/// A scheduler that draws two.
#[derive(Debug)]
pub(super) struct TwoChoices<M> {
    inner: RefCell<(Standing, Alias)>,
    measure: PhantomData<M>,
}

impl<M> TwoChoices<M> {
    pub(super) fn new() -> Self {
        Self { inner: RefCell::default(), measure: PhantomData }
    }
}

impl<M: Measure> Scheduler for TwoChoices<M> {
    fn pick(&self, view: &PoolView<'_>, _: Option<u64>, now: Timestamp, rng: &mut Rng, trace: &mut Trace) -> Pick {
        let (standing, alias) = &mut *self.inner.borrow_mut();
        let Some((one, other)) = draw_two(standing, alias, view, rng) else {
            // Too few are left to be drawn.
            let picked = least(view, &M::of(view, now, 0..view.candidates.len()), 0..view.candidates.len());
            if let Some(index) = picked {
                trace.note("scheduler", || {
                    format!("{}: too few are left to draw two of: {} has {}", M::NAME, describe(view, index), M::AIM)
                });
            }
            return picked.into();
        };
        let picked = least(view, &M::of(view, now, [one, other].into_iter()), [one, other].into_iter());
        if let Some(index) = picked {
            trace.note("scheduler", || tell_drawn(view, (one, other), index, M::NAME, M::AIM));
        }
        picked.into()
    }
}

/// Of two that were drawn, one has what was looked for.
pub(super) fn tell_drawn(view: &PoolView<'_>, drawn: (usize, usize), taken: usize, name: &str, aim: &str) -> String {
    let (one, other) = (describe(view, drawn.0), describe(view, drawn.1));
    let taken = view.candidates.get(taken).map_or("", |candidate| &candidate.server.id.server);
    format!("{name}: {one} and {other} are drawn by weight, and {taken} has {aim}")
}

/// By requests in flight for the weight.
#[derive(Debug)]
pub(super) struct InFlight;

impl Measure for InFlight {
    const NAME: &'static str = "p2c";
    const AIM: &'static str = "the least load for its weight";

    fn of(_: &PoolView<'_>, _: Timestamp, _: impl Iterator<Item = usize>) -> Self {
        Self
    }

    fn load(&self, candidate: &Candidate) -> u64 {
        u64::from(candidate.load.active()) + 1
    }
}

/// By requests in flight and how long each takes.
#[derive(Debug)]
pub(super) struct PeakEwma {
    now: Timestamp,
}

impl Measure for PeakEwma {
    const NAME: &'static str = "peak-ewma";
    const AIM: &'static str = "the shortest wait by what it was seen to take";

    fn of(_: &PoolView<'_>, now: Timestamp, _: impl Iterator<Item = usize>) -> Self {
        Self { now }
    }

    fn load(&self, candidate: &Candidate) -> u64 {
        let micros = candidate.load.pace.peak_latency(self.now).as_micros();
        // A server that has not answered yet is tried as if it were quick.
        let wait =
            u64::try_from(micros).unwrap_or(u64::MAX).max(1).saturating_mul(u64::from(candidate.load.active()) + 1);
        wait.min((1 << 40) - 1)
    }
}

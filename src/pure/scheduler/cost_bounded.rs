//! `cbr`, cost-bounded rendezvous: keys stay where their cache is, hot ones at several servers, and a request leaves its home
//! only where waiting there would cost more than the miss elsewhere.
//!
//! - A key that is not known has no locality to lose: it goes to the server at which it waits least, of equals to the one
//!   that scores highest for it, and has its home there.
//! - A key that is ⌈share · servers / ½⌉ times as hot as a server should bear alone has as many homes; it loses one only when
//!   it has cooled to half of that. The share comes from a sketch that forgets ([`super::heat`]).
//! - Homes are chosen by requests in flight for the weight: what one request takes differs by its misses, which would make the
//!   server that has just lost its cache look slow. A wait is (in flight + 1) · what one request takes.
//! - A request leaves its homes for another server only if that has fewer than half as many requests in flight, the wait saved
//!   is more than twice what a miss costs, and no more than 5 % of the pool's requests have left theirs.
//! - A home that may not get requests keeps its keys for its return; meanwhile each goes to the one server that scores highest.
//!
//! What a miss costs is measured where servers say whether an answer came out of their cache, else it is `miss-cost`.

use std::sync::Arc;
use std::time::Duration;

use super::describe;
use super::heat::Share;
use super::keyed::{Asked, ByKey, takes_key};
use super::memory::{HOMES_MAX, Home, Memory};
use super::rendezvous::{highest, tell_order};
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView};
use crate::pure::rendezvous::Wait;
use crate::pure::trace::Trace;

/// The percentage of requests that may leave their homes.
const SPILL_PERCENT: u32 = 5;

/// The requests that a sketch has to have seen before it makes a key hot.
const SAMPLE_MIN: u64 = 200;

/// Cost-bounded rendezvous.
#[derive(Debug)]
pub(super) struct CostBounded {
    pub(super) memory: Arc<Memory>,
    /// What a miss costs, where it can't be measured.
    pub(super) miss_cost: Duration,
    /// How many servers a new key may choose among; several nodes that do not talk agree by fewer.
    pub(super) choices: usize,
}

impl ByKey for CostBounded {
    fn pick(&self, view: &PoolView<'_>, asked: Asked, now: Timestamp, trace: &mut Trace) -> Option<usize> {
        let Asked { key, share } = asked;
        self.memory.spill.earn(SPILL_PERCENT);
        let fitting = |index: usize| takes_key(view, index, key);
        self.memory.homes.as_ref()?.with(key, |home| {
            if home.count() == 0 {
                let index = self.place(view, key)?;
                tell_order(trace, "cbr", view, self.memory.names(), key);
                trace.note("scheduler", || {
                    let taken = describe(view, index);
                    format!("cbr: the key has no home yet: {taken} has the least load for its weight, and of equals the highest score")
                });
                home.set(index, now);
                return Some(index);
            }
            self.follow_heat(home, view, key, share, now);
            let at_home = cheapest(view, home.servers().filter(|index| fitting(*index)));
            let Some(index) = at_home.or_else(|| highest(view, self.memory.names(), key, fitting)) else { return None };
            trace.note("scheduler", || match at_home {
                Some(_) if home.count() == 1 => format!("cbr: the key's home is {}", describe(view, index)),
                Some(_) => format!("cbr: of the key's {} homes {} is taken", home.count(), describe(view, index)),
                None => format!("cbr: no home of the key may get it: {} stands in, by score", describe(view, index)),
            });
            Some(self.spill(view, key, index, trace).unwrap_or(index))
        })?
    }
}

impl CostBounded {
    /// Where a key that is not known goes.
    fn place(&self, view: &PoolView<'_>, key: u64) -> Option<usize> {
        let fitting = (0..view.candidates.len()).filter(|index| takes_key(view, *index, key));
        if self.choices >= view.candidates.len() {
            return self.cheapest_and_highest(view, key, fitting);
        }
        let mut first: Vec<usize> = fitting.collect();
        let wait = |index: usize| self.wait(view, key, index);
        first.sort_by(|one, other| match (wait(*one), wait(*other)) {
            (Some(one), Some(other)) if one.is_shorter(other) => std::cmp::Ordering::Less,
            (Some(one), Some(other)) if other.is_shorter(one) => std::cmp::Ordering::Greater,
            _ => std::cmp::Ordering::Equal,
        });
        cheapest(view, first.into_iter().take(self.choices.max(1)))
    }

    fn wait(&self, view: &PoolView<'_>, key: u64, index: usize) -> Option<Wait> {
        let (name, candidate) = (self.memory.names().get(index)?, view.candidates.get(index)?);
        Some(Wait::of(key, *name, candidate.server.weight))
    }

    /// The one that costs least; of equals, the one that scores highest.
    fn cheapest_and_highest(&self, view: &PoolView<'_>, key: u64, among: impl Iterator<Item = usize>) -> Option<usize> {
        let mut best: Option<(usize, Cost)> = None;
        for index in among {
            let Some(cost) = view.candidates.get(index).map(Cost::of) else { continue };
            let is_better = best.is_none_or(|(held, least)| match cost.compare(least) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Greater => false,
                std::cmp::Ordering::Equal => match (self.wait(view, key, index), self.wait(view, key, held)) {
                    (Some(wait), Some(held)) => wait.is_shorter(held),
                    _ => false,
                },
            });
            if is_better {
                best = Some((index, cost));
            }
        }
        best.map(|(index, _)| index)
    }

    /// Gives a key as many homes as its share of the requests asks for.
    fn follow_heat(&self, home: &mut Home, view: &PoolView<'_>, key: u64, share: Share, now: Timestamp) {
        if share.total < SAMPLE_MIN {
            return;
        }
        let standing = view.candidates.iter().filter(|candidate| view.stands(candidate)).count() as u64;
        // share / θ of a server's fair part, θ = ½, rounded up.
        let wanted = |count: u64| (2 * count * standing).div_ceil(share.total).clamp(1, HOMES_MAX as u64) as usize;
        if wanted(share.count) > home.count() {
            let free = |index: &usize| takes_key(view, *index, key) && !home.holds(*index);
            let added = self.cheapest_and_highest(view, key, (0..view.candidates.len()).filter(free));
            if let Some(index) = added {
                home.add(index, now);
            }
        } else if home.count() > 1 && wanted(2 * share.count) < home.count() {
            let last = home.servers().reduce(|worst, index| {
                match (self.wait(view, key, worst), self.wait(view, key, index)) {
                    (Some(one), Some(other)) if one.is_shorter(other) => index,
                    _ => worst,
                }
            });
            if let Some(index) = last {
                home.drop_server(index, now);
            }
        }
    }

    /// Another server, where waiting at this one costs more than a miss there.
    fn spill(&self, view: &PoolView<'_>, key: u64, home: usize, trace: &mut Trace) -> Option<usize> {
        let at_home = view.candidates.get(home)?;
        if at_home.load.active() < 2 {
            return None;
        }
        let idler = |index: &usize| {
            let active = view.candidates.get(*index).map_or(u32::MAX, |candidate| candidate.load.active());
            active < at_home.load.active() / 2 && takes_key(view, *index, key)
        };
        let other = cheapest(view, (0..view.candidates.len()).filter(idler))?;
        let saved = wait_nanos(at_home).saturating_sub(wait_nanos(view.candidates.get(other)?));
        let miss = self.memory.costs.penalty().unwrap_or(self.miss_cost);
        let is_worth_it = u128::from(saved) > 2 * miss.as_nanos();
        if !is_worth_it || !self.memory.spill.spend() {
            return None;
        }
        trace.note("scheduler", || {
            let saved = Duration::from_nanos(saved);
            format!("cbr: waiting there would cost {saved:?} more than at {}, which gets it", describe(view, other))
        });
        Some(other)
    }
}

/// The load that a request finds at a server for its share, to be compared with others.
#[derive(Clone, Copy, Debug)]
struct Cost {
    work: u64,
    share: u64,
}

impl Cost {
    fn of(candidate: &Candidate) -> Self {
        Self { work: u64::from(candidate.load.active()) + 1, share: u64::from(candidate.share.units()) }
    }

    fn compare(self, other: Self) -> std::cmp::Ordering {
        (u128::from(self.work) * u128::from(other.share)).cmp(&(u128::from(other.work) * u128::from(self.share)))
    }
}

/// What a request waits at a server, in nanoseconds; 0 where the server has not answered yet.
fn wait_nanos(candidate: &Candidate) -> u64 {
    candidate.load.pace.service_nanos().saturating_mul(u64::from(candidate.load.active()) + 1)
}

/// The first of those at which a request waits least.
fn cheapest(view: &PoolView<'_>, among: impl Iterator<Item = usize>) -> Option<usize> {
    let mut best: Option<(usize, Cost)> = None;
    for index in among {
        let Some(candidate) = view.candidates.get(index).filter(|_| view.is_eligible(index)) else { continue };
        let cost = Cost::of(candidate);
        if best.is_none_or(|(_, least)| cost.compare(least).is_lt()) {
            best = Some((index, cost));
        }
    }
    best.map(|(index, _)| index)
}

//! `cbr`, cost-bounded rendezvous: keys stay where their cache is, hot ones at several servers, and a request leaves its home
//! only where waiting there would cost more than the miss elsewhere.
//!
//! - A key that is not known has no locality to lose: it goes to the server at which it waits least, of equals to the one
//!   that scores highest for it, and has its home there.
//! - A key that is ⌈share · servers / ½⌉ times as hot as a server should bear alone has as many homes; it loses one only when
//!   it has cooled to half of that, and its homes have been the same for 30 s. The share comes from a sketch that forgets
//!   ([`super::heat`]), and of a few requests no share is told.
//! - Homes are chosen by requests in flight for the weight: what one request takes differs by its misses, which would make the
//!   server that has just lost its cache look slow. A wait is (in flight + 1) · what one request takes.
//! - A request leaves its homes for another server only if that has fewer than half as many requests in flight, the wait saved
//!   is more than twice what a miss costs, and no more than 5 % of the pool's requests have left theirs. That server is a home
//!   of the key from then on: the miss is paid once, and not for every request that waits too long.
//! - A home that may not get requests keeps its keys for its return; meanwhile each goes to the one server that scores highest.
//!
//! What a miss costs is measured where servers say whether an answer came out of their cache, else it is `miss-cost`.

use std::sync::Arc;
use std::time::Duration;

use super::describe;
use super::heat::Share;
use super::keyed::{Asked, ByKey, drawn, takes_key};
use super::least_loaded::SCAN_MAX;
use super::memory::{HOMES_MAX, Home, Memory};
use super::rendezvous::{by_score, highest, tell_order};
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView};
use crate::pure::trace::Trace;

/// The percentage of requests that may leave their homes.
const SPILL_PERCENT: u32 = 5;

/// So many requests of the last while make a key worth a place in another cache: what leaves its home seldom is a miss there
/// each time, and relieves nobody. In a large pool a key would be hot by its first request.
const WARM: u64 = 8;

/// So long a key's homes have to have been the same before it loses one.
const SETTLED: Duration = Duration::from_secs(30);

/// Among so many servers a new key chooses in a large pool.
const DRAWS: usize = 8;

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
                self.tell_new(trace, view, key, index);
                home.set(index, now);
                return Some(index);
            }
            self.follow_heat(home, view, key, share, now);
            let at_home = cheapest(view, home.servers().filter(|index| fitting(*index)));
            let index = at_home.or_else(|| self.stand_in(view, key))?;
            trace.note("scheduler", || match at_home {
                Some(_) if home.count() == 1 => format!("cbr: the key's home is {}", describe(view, index)),
                Some(_) => format!("cbr: of the key's {} homes {} is taken", home.count(), describe(view, index)),
                None => format!("cbr: no home of the key may get it: {} stands in for this key", describe(view, index)),
            });
            let is_warm = share.count >= WARM || share.total < SAMPLE_MIN;
            let other = if is_warm { self.spill(view, key, index, trace) } else { None };
            let Some(other) = other else { return Some(index) };
            if at_home.is_some() {
                home.add(other, now);
            }
            Some(other)
        })
    }
}

impl CostBounded {
    fn tell_new(&self, trace: &mut Trace, view: &PoolView<'_>, key: u64, taken: usize) {
        let count = view.candidates.len();
        let is_small = count <= SCAN_MAX;
        if is_small {
            tell_order(trace, "cbr", view, &self.memory, key);
        }
        trace.note("scheduler", || {
            let among = match (is_small, self.choices) {
                (true, choices) if choices < count => format!(" of the first {choices}"),
                (true, _) => ", and of equals the highest score".to_owned(),
                (false, _) => " of those drawn for this key".to_owned(),
            };
            format!("cbr: the key has no home yet: {} has the least load for its weight{among}", describe(view, taken))
        });
    }

    /// Who serves a key whose homes are out: always the same.
    fn stand_in(&self, view: &PoolView<'_>, key: u64) -> Option<usize> {
        let fitting = |index: &usize| takes_key(view, *index, key);
        let of_all = || highest(&self.memory, key, |index| fitting(&index));
        first_choice(&self.memory, view, key, fitting).or_else(of_all)
    }

    /// Where a key that is not known goes.
    fn place(&self, view: &PoolView<'_>, key: u64) -> Option<usize> {
        let fitting = (0..view.candidates.len()).filter(|index| takes_key(view, *index, key));
        if view.candidates.len() > SCAN_MAX {
            let drawn = drawn(view, key).take(self.choices.min(DRAWS)).filter(|index| takes_key(view, *index, key));
            return cheapest(view, drawn).or_else(|| cheapest(view, fitting));
        }
        if self.choices >= view.candidates.len() {
            return self.cheapest_and_highest(view, key, fitting);
        }
        let by_score = by_score(&self.memory, key, |index| takes_key(view, index, key));
        cheapest(view, by_score.take(self.choices.max(1)))
    }

    /// The one that costs least; of equals, the one that scores highest.
    fn cheapest_and_highest(&self, view: &PoolView<'_>, key: u64, among: impl Iterator<Item = usize>) -> Option<usize> {
        let mut best: Option<(usize, Cost)> = None;
        for index in among {
            let Some(cost) = view.candidates.get(index).map(Cost::of) else { continue };
            let is_better = best.is_none_or(|(held, least)| match cost.compare(least) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Greater => false,
                std::cmp::Ordering::Equal => match (self.memory.wait(key, index), self.memory.wait(key, held)) {
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
        // Most keys are too cold for that, however many servers there are.
        if home.count() == 1 && 2 * share.count * view.candidates.len() as u64 <= share.total {
            return;
        }
        // In a large pool a few that are out make no difference, and to count them would cost more than the choice.
        let count = view.candidates.len();
        let stands = |candidate: &&Candidate| view.stands(candidate);
        let standing = if count > SCAN_MAX { count } else { view.candidates.iter().filter(stands).count() } as u64;
        // share / θ of a server's fair part, θ = ½, rounded up.
        let wanted = |count: u64| (2 * count * standing).div_ceil(share.total).clamp(1, HOMES_MAX as u64) as usize;
        if share.count >= WARM && wanted(share.count) > home.count() {
            if let Some(index) = self.another_home(home, view, key) {
                home.add(index, now);
            }
        } else if home.count() > 1 && now.since(home.changed) >= SETTLED && wanted(2 * share.count) < home.count() {
            let last = home.servers().reduce(|worst, index| {
                match (self.memory.wait(key, worst), self.memory.wait(key, index)) {
                    (Some(one), Some(other)) if one.is_shorter(other) => index,
                    _ => worst,
                }
            });
            if let Some(index) = last {
                home.drop_server(index, now);
            }
        }
    }

    /// A further home for a hot key.
    fn another_home(&self, home: &Home, view: &PoolView<'_>, key: u64) -> Option<usize> {
        let free = |index: &usize| takes_key(view, *index, key) && !home.holds(*index);
        if view.candidates.len() > SCAN_MAX {
            // Where none of them is free, there may be at the key's next request.
            return cheapest(view, drawn(view, key).filter(free).take(DRAWS));
        }
        self.cheapest_and_highest(view, key, (0..view.candidates.len()).filter(free))
    }

    /// Another server, where waiting at this one costs more than a miss there.
    fn spill(&self, view: &PoolView<'_>, key: u64, home: usize, trace: &mut Trace) -> Option<usize> {
        let at_home = view.candidates.get(home)?;
        let miss = self.memory.costs.penalty().unwrap_or(self.miss_cost).as_nanos();
        if at_home.load.active() < 2 || u128::from(wait_nanos(at_home)) <= 2 * miss {
            return None;
        }
        let idler = |index: &usize| {
            let active = view.candidates.get(*index).map_or(u32::MAX, |candidate| candidate.load.active());
            2 * u64::from(active) < u64::from(at_home.load.active()) && takes_key(view, *index, key)
        };
        let other = first_choice(&self.memory, view, key, idler)?;
        let saved = wait_nanos(at_home).saturating_sub(wait_nanos(view.candidates.get(other)?));
        let is_worth_it = u128::from(saved) > 2 * miss;
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

/// Of the candidates that suit, the one that scores highest for the key; in a large pool of some of them.
fn first_choice(memory: &Memory, view: &PoolView<'_>, key: u64, suits: impl Fn(&usize) -> bool) -> Option<usize> {
    if view.candidates.len() > SCAN_MAX {
        drawn(view, key).find(suits)
    } else {
        highest(memory, key, |index| suits(&index))
    }
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

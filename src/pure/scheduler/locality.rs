//! `lblc` and `lblcr`: a key stays where it was, for its cache's sake, until that server is overloaded and another is half
//! idle. Source: IPVS `ip_vs_lblc`, `ip_vs_lblcr`; V. Pai et al., Locality-aware request distribution, 1998.
//!
//! `lblc` gives a key one server and moves it. `lblcr` gives it a set of servers, of which the least loaded is taken: on
//! overload the set grows, and one that has not changed for a while loses its most loaded member.
//!
//! Overload: more requests in flight than the weight, while another that may get the request has fewer than half of its own.
//! The homes of keys are shared by all workers and bounded; a key is looked up and moved under one short lock, so two
//! workers never give a new key to two servers.

use std::sync::Arc;
use std::time::Duration;

use super::describe;
use super::keyed::{Asked, ByKey, is_passed_over, looked_at, objection, takes_key};
use super::least_connections::WeightedConnections;
use super::least_loaded::{Measure as _, SCAN_MAX, least};
use super::memory::{Home, Memory};
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView};
use crate::pure::trace::Trace;

/// `lblc`.
#[derive(Debug)]
pub(super) struct Locality(pub(super) Arc<Memory>);

impl ByKey for Locality {
    fn pick(&self, view: &PoolView<'_>, asked: Asked, now: Timestamp, trace: &mut Trace) -> Option<usize> {
        let key = asked.key;
        self.0.homes.as_ref()?.with(key, |home| {
            let held = home.servers().next();
            if let Some(index) = held.filter(|index| takes_key(view, *index, key)) {
                if !should_leave(view, index, key) {
                    trace.note("scheduler", || format!("lblc: the key's server is {}", describe(view, index)));
                    return Some(index);
                }
                tell_overload(trace, "lblc", view, index);
            } else {
                tell_homeless(trace, "lblc", view, held);
            }
            let index = least_of_all(view, key)?;
            trace.note("scheduler", || {
                format!("lblc: {} has the least load for its weight and gets the key", describe(view, index))
            });
            // One request that was there before, and is sent again, does not move the key for all others.
            if !held.is_some_and(|held| is_passed_over(view, held, key)) {
                home.set(index, now);
            }
            Some(index)
        })
    }
}

/// `lblcr`.
#[derive(Debug)]
pub(super) struct Replicated {
    pub(super) memory: Arc<Memory>,
    /// How long a set of several stays as it is before it shrinks.
    pub(super) shrink_after: Duration,
}

impl ByKey for Replicated {
    fn pick(&self, view: &PoolView<'_>, asked: Asked, now: Timestamp, trace: &mut Trace) -> Option<usize> {
        let key = asked.key;
        self.memory.homes.as_ref()?.with(key, |home| {
            let held = least(view, &WeightedConnections, home.servers().filter(|index| takes_key(view, *index, key)));
            if let Some(index) = held {
                self.shrink(home, view, now);
                if !should_leave(view, index, key) {
                    trace.note("scheduler", || match home.count() {
                        0 | 1 => format!("lblcr: the key's server is {}", describe(view, index)),
                        count => format!("lblcr: of the key's {count} servers {} is taken", describe(view, index)),
                    });
                    return Some(index);
                }
                tell_overload(trace, "lblcr", view, index);
            } else {
                tell_homeless(trace, "lblcr", view, home.servers().next());
            }
            let index = least_of_all(view, key)?;
            trace.note("scheduler", || {
                let taken = describe(view, index);
                format!("lblcr: {taken} has the least load for its weight and is added to the key's servers")
            });
            if !home.servers().any(|held| is_passed_over(view, held, key)) {
                home.add(index, now);
            }
            Some(index)
        })
    }
}

impl Replicated {
    /// Drops the most loaded of several servers, once they have been the same for long.
    fn shrink(&self, home: &mut Home, view: &PoolView<'_>, now: Timestamp) {
        if home.count() < 2 || now.since(home.changed) < self.shrink_after {
            return;
        }
        if let Some(index) = most_loaded(view, home) {
            home.drop_server(index, now);
        }
    }
}

fn tell_overload(trace: &mut Trace, name: &str, view: &PoolView<'_>, index: usize) {
    trace.note("scheduler", || {
        format!(
            "{name}: the key's server {} has more in flight than its weight, another is half idle",
            describe(view, index)
        )
    });
}

/// Tells why none of the key's servers may get it; `held` is the first of them.
fn tell_homeless(trace: &mut Trace, name: &str, view: &PoolView<'_>, held: Option<usize>) {
    trace.note("scheduler", || match held {
        None => format!("{name}: the key has no server yet"),
        Some(index) => {
            format!("{name}: the key's server {} may not get it: {}", describe(view, index), objection(view, index))
        }
    });
}

/// The most loaded for its weight; one that is no longer there or has no share goes first.
fn most_loaded(view: &PoolView<'_>, home: &Home) -> Option<usize> {
    home.servers().reduce(|worst, index| match (view.candidates.get(worst), view.candidates.get(index)) {
        (None, _) => worst,
        (_, None) => index,
        (Some(one), Some(other)) => {
            let (measure, capacity) =
                (WeightedConnections, |candidate: &Candidate| u128::from(candidate.share.units()));
            let (one_load, other_load) = (u128::from(measure.load(one)), u128::from(measure.load(other)));
            if other_load * capacity(one) > one_load * capacity(other) { index } else { worst }
        }
    })
}

/// The least loaded; among equals the key says which, or the first in the file would get all that comes while nothing is busy.
fn least_of_all(view: &PoolView<'_>, key: u64) -> Option<usize> {
    let count = view.candidates.len();
    let fitting = |index: &usize| takes_key(view, *index, key);
    if count > SCAN_MAX
        && let Some(index) = least(view, &WeightedConnections, looked_at(view, key).filter(fitting))
    {
        return Some(index);
    }
    let from = (key % count.max(1) as u64) as usize;
    least(view, &WeightedConnections, (from..count).chain(0..from).filter(fitting))
}

/// Whether a key should leave a server: it has more in flight than its weight, and an eligible one has less than half of its.
fn should_leave(view: &PoolView<'_>, index: usize, key: u64) -> bool {
    let over = |candidate: &Candidate| 256 * u64::from(candidate.load.active()) > u64::from(candidate.share.units());
    let half_idle =
        |candidate: &Candidate| 512 * u64::from(candidate.load.active()) < u64::from(candidate.share.units());
    view.candidates.get(index).is_some_and(over)
        && looked_at(view, key)
            .any(|other| view.is_eligible(other) && view.candidates.get(other).is_some_and(half_idle))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The servers that a memory has for a key.
    pub(in crate::pure::scheduler) fn servers_of(memory: &Memory, key: u64) -> Vec<usize> {
        let homes = memory.homes.as_ref().unwrap();
        homes.look(key, |home| home.servers().collect()).unwrap_or_default()
    }
}

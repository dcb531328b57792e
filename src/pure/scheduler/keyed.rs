//! The frame of the schedulers that go by a key: what happens where the content gives no answer.
//!
//! A request without a key, or whose key leads to a server that may not get it, goes by the pool's fallback, a scheduler that
//! counts. `fallback="none"` is the kernel's way: a key that leads to such a server leads nowhere. It refuses to leave a
//! request without a key to nobody: that the kernel knows no such packet is no reason to answer it with an error.

use std::sync::Arc;

use super::heat::Share;
use super::least_loaded::SCAN_MAX;
use super::memory::Memory;
use super::{Pick, Scheduler, describe};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{self, Candidate, PoolView, State, Tried};
use crate::pure::rule::hash::mix;
use crate::pure::trace::Trace;

/// What a request asks of a scheduler that goes by key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The hash of its key.
    pub(super) key: u64,
    /// What share of all requests the key is.
    pub(super) share: Share,
}

/// A way to choose by key.
pub(super) trait ByKey: std::fmt::Debug {
    /// Chooses an eligible candidate for a key; `None`: the key gives no answer.
    fn pick(&self, view: &PoolView<'_>, asked: Asked, now: Timestamp, trace: &mut Trace) -> Option<usize>;
}

/// A scheduler that goes by key where it can.
#[derive(Debug)]
pub(super) struct Keyed<K> {
    /// The scheduler's name.
    pub(super) name: &'static str,
    pub(super) by_key: K,
    pub(super) memory: Arc<Memory>,
    pub(super) fallback: Box<dyn Scheduler>,
    /// The fallback's name.
    pub(super) fallback_name: &'static str,
    /// Whether a key that gives no answer leads nowhere.
    pub(super) is_strict: bool,
}

impl<K: ByKey> Scheduler for Keyed<K> {
    fn pick(&self, view: &PoolView<'_>, key: Option<u64>, now: Timestamp, rng: &mut Rng, trace: &mut Trace) -> Pick {
        let Self { name, fallback_name, .. } = self;
        let Some(hash) = key else {
            trace.note("scheduler", || format!("{name}: the request has no key, so {fallback_name} decides"));
            return self.fallback.pick(view, None, now, rng, trace);
        };
        let asked = Asked { key: hash, share: self.memory.heat.count(hash, now) };
        if let Some(index) = self.by_key.pick(view, asked, now, trace) {
            return Pick::Server(index);
        }
        if self.is_strict {
            trace.note("scheduler", || format!("{name}: the key gives no answer, and the fallback is \"none\""));
            return Pick::NoneEligible;
        }
        trace.note("scheduler", || format!("{name}: the key gives no answer, so the fallback {fallback_name} decides"));
        self.fallback.pick(view, key, now, rng, trace)
    }
}

/// Whether a candidate may get the requests of a key: it is eligible, and where its share is still rising, the key is among
/// those that it has already. A key that it has once, it keeps as its share rises.
pub(super) fn takes_key(view: &PoolView<'_>, index: usize, key: u64) -> bool {
    view.is_eligible(index) && view.candidates.get(index).is_some_and(|candidate| has_risen_to(candidate, key))
}

/// Whether a candidate would get a key's requests, and only this one request passes it over: it was there before, or wants one
/// that is known to be well. That is no reason to move the key.
pub(super) fn is_passed_over(view: &PoolView<'_>, index: usize, key: u64) -> bool {
    let unhindered = PoolView { only_well: false, tried: &Tried::NONE, ..*view };
    !view.is_eligible(index) && takes_key(&unhindered, index, key)
}

/// Positions by the key, for pools in which a look at all would cost too much.
pub(super) fn drawn(view: &PoolView<'_>, key: u64) -> impl Iterator<Item = usize> + use<> {
    let count = view.candidates.len() as u64;
    (1..=SCAN_MAX as u64).map(move |step| {
        let place = u128::from(mix(key ^ step, 0xe703_7ed1_a0b4_28db)) * u128::from(count);
        (place >> 64) as usize
    })
}

/// All positions, or in a large pool some by the key.
pub(super) fn looked_at(view: &PoolView<'_>, key: u64) -> impl Iterator<Item = usize> + use<> {
    let is_large = view.candidates.len() > SCAN_MAX;
    let all = if is_large { 0..0 } else { 0..view.candidates.len() };
    let some = is_large.then(|| drawn(view, key));
    all.chain(some.into_iter().flatten())
}

fn has_risen_to(candidate: &Candidate, key: u64) -> bool {
    if candidate.state != State::Recovering {
        return true;
    }
    let whole = u64::from(pool::Share::of(candidate.server.weight).units());
    // Of all keys, so many in 2³² as it has of its whole share.
    let point = mix(key ^ u64::from(candidate.slot.0), 0xd6e8_feb8_6659_fd93) >> 32;
    point * whole < u64::from(candidate.share.units()) << 32
}

/// Tells of a candidate that a key led to.
pub(super) fn tell_home(trace: &mut Trace, name: &str, view: &PoolView<'_>, index: usize, is_taken: bool) {
    trace.note("scheduler", || {
        let home = describe(view, index);
        match is_taken {
            true => format!("{name}: the key belongs to {home}, which gets it"),
            false => format!("{name}: the key belongs to {home}, which may not get it: {}", objection(view, index)),
        }
    });
}

/// Why a candidate may not get the requests of a key.
pub(super) fn objection(view: &PoolView<'_>, index: usize) -> String {
    let why = view.candidates.get(index).and_then(|candidate| view.objection(candidate));
    why.map_or_else(|| "it is recovering, and this key is not among its share yet".to_owned(), |why| why.to_string())
}

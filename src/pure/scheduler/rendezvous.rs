//! `rendezvous`: of all eligible servers the one that scores highest for the key, weighted. A server that goes moves its own
//! keys only, and spreads them over all others. Sources: D. Thaler, C. Ravishankar, Using name-based mappings to increase hit
//! rates, 1998; C. Schindelhauer, G. Schomaker, Weighted distributed hash tables, 2005.

use std::sync::Arc;

use super::describe;
use super::keyed::{Asked, ByKey, takes_key};
use super::memory::Memory;
use crate::base::time::Timestamp;
use crate::pure::pool::PoolView;
use crate::pure::rendezvous::Wait;
use crate::pure::trace::Trace;

/// Weighted rendezvous.
#[derive(Debug)]
pub(super) struct Rendezvous(pub(super) Arc<Memory>);

impl ByKey for Rendezvous {
    fn pick(&self, view: &PoolView<'_>, asked: Asked, _: Timestamp, trace: &mut Trace) -> Option<usize> {
        let key = asked.key;
        let index = highest(&self.0, key, |index| takes_key(view, index, key))?;
        tell_order(trace, "rendezvous", view, &self.0, key);
        trace.note("scheduler", || format!("rendezvous: {} is the first that may get it", describe(view, index)));
        Some(index)
    }
}

/// How many are asked one by one before all are.
const QUICK_MAX: usize = 4;

/// Of the candidates that `suits`, the one that scores highest for `key`; the first of equals. The weights are the configured
/// ones: a share that moves must not move keys.
pub(super) fn highest(memory: &Memory, key: u64, suits: impl Fn(usize) -> bool) -> Option<usize> {
    // Most often one of the first few does, and no other is asked.
    if let Some(index) = memory.lineup.in_order(key).take(QUICK_MAX).find(|index| suits(*index)) {
        return Some(index);
    }
    let mut best: Option<(usize, Wait)> = None;
    for (index, wait) in memory.waits(key).enumerate() {
        if best.is_none_or(|(_, best)| wait.is_shorter(best)) && suits(index) {
            best = Some((index, if memory.is_weighted { wait.to_beat() } else { wait }));
        }
    }
    best.map(|(index, _)| index)
}

/// The most servers that an order tells of.
const TOLD_MAX: usize = 8;

/// The candidates that suit, the one that scores highest for the key first. Each is looked for when it is asked for: a few are
/// wanted, and waits, which are compared in steps, are no order that could be sorted by.
pub(super) fn by_score(memory: &Memory, key: u64, suits: impl Fn(usize) -> bool) -> impl Iterator<Item = usize> {
    let mut passed = Vec::new();
    std::iter::from_fn(move || {
        let next = highest(memory, key, |index| !passed.contains(&index) && suits(index))?;
        passed.push(next);
        Some(next)
    })
}

/// Tells in which order the servers score for a key.
pub(super) fn tell_order(trace: &mut Trace, name: &str, view: &PoolView<'_>, memory: &Memory, key: u64) {
    trace.note("scheduler", || {
        let name_of = |index: usize| Some(&*view.candidates.get(index)?.server.id.server);
        let first: Vec<&str> = by_score(memory, key, |_| true).take(TOLD_MAX).filter_map(name_of).collect();
        let more = view.candidates.len().saturating_sub(TOLD_MAX);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{name}: by score for this key: {}{rest}", first.join(", "))
    });
}

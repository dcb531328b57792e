//! `rendezvous`: of all eligible servers the one that scores highest for the key, weighted. A server that goes moves its own
//! keys only, and spreads them over all others. Sources: D. Thaler, C. Ravishankar, Using name-based mappings to increase hit
//! rates, 1998; C. Schindelhauer, G. Schomaker, Weighted distributed hash tables, 2005.

use std::sync::Arc;

use super::keyed::{Asked, ByKey, takes_key, tell_home};
use super::memory::Memory;
use crate::base::time::Timestamp;
use crate::pure::pool::PoolView;
use crate::pure::rendezvous::Wait;
use crate::pure::trace::Trace;

/// Weighted rendezvous.
#[derive(Debug)]
pub(super) struct Rendezvous(pub(super) Arc<Memory>);

impl ByKey for Rendezvous {
    const NAME: &'static str = "rendezvous";

    fn pick(&self, view: &PoolView<'_>, asked: Asked, _: Timestamp, trace: &mut Trace) -> Option<usize> {
        let key = asked.key;
        let index = highest(&self.0, key, |index| takes_key(view, index, key))?;
        tell_home(trace, Self::NAME, view, index, true);
        Some(index)
    }
}

/// Of the candidates that `suits`, the one that scores highest for `key`; the first of equals. The weights are the configured
/// ones: a share that moves must not move keys.
pub(super) fn highest(memory: &Memory, key: u64, suits: impl Fn(usize) -> bool) -> Option<usize> {
    let mut best: Option<(usize, Wait)> = None;
    for (index, wait) in memory.waits(key).enumerate() {
        if best.is_none_or(|(_, best)| wait.is_shorter(best)) && suits(index) {
            best = Some((index, if memory.is_weighted { wait.to_beat() } else { wait }));
        }
    }
    best.map(|(index, _)| index)
}

//! `ch-bl`: consistent hashing with bounded loads. A key's server is its table's, unless that has more than `bound` times its
//! share of all requests in flight; then the next for the key. Source: V. Mirrokni, M. Thorup, M. Zadimoghaddam, Consistent
//! hashing with bounded loads, 2018.
//!
//! A floor keeps locality where few requests are in flight: below it, a server is never over its bound.

use std::sync::Arc;

use super::describe;
use super::keyed::{Asked, ByKey, looked_at, objection, takes_key};
use super::memory::Memory;
use crate::base::time::Timestamp;
use crate::pure::pool::PoolView;
use crate::pure::rule::hash::mix;
use crate::pure::trace::Trace;

/// So many requests in flight are never too many for a server, whatever its weight.
const FLOOR: u64 = 4;

/// How many further entries of the table are tried for a key.
const STEPS_MAX: u64 = 64;

/// Consistent hashing with bounded loads.
#[derive(Debug)]
pub(super) struct Bounded {
    pub(super) memory: Arc<Memory>,
    /// The bound in percent of the mean; above 100.
    pub(super) percent: u32,
}

impl ByKey for Bounded {
    fn pick(&self, view: &PoolView<'_>, asked: Asked, _: Timestamp, trace: &mut Trace) -> Option<usize> {
        let key = asked.key;
        let home = self.memory.table.find(key)?;
        let mut bound = None;
        let mut step_key = key;
        let mut index = home;
        for step in 0..=STEPS_MAX {
            if takes_key(view, index, key) && self.has_room(view, index, key, &mut bound) {
                trace.note("scheduler", || {
                    let (first, taken) = (describe(view, home), describe(view, index));
                    if step == 0 {
                        return format!("ch-bl: the key belongs to {first}, which is within its bound and gets it");
                    }
                    let why = if takes_key(view, home, key) {
                        "it is over its bound".to_owned()
                    } else {
                        objection(view, home)
                    };
                    format!("ch-bl: the key belongs to {first}: {why}; {taken} is the next for the key and gets it")
                });
                return Some(index);
            }
            step_key = mix(step_key ^ step, 0xa076_1d64_78bd_642f);
            index = self.memory.table.find(step_key)?;
        }
        trace.note("scheduler", || "ch-bl: of the key's servers each is over its bound or may not get it".to_owned());
        None
    }
}

impl Bounded {
    /// Whether a candidate is under its bound; the sums over all are made once for a pick, and only above the floor.
    fn has_room(&self, view: &PoolView<'_>, index: usize, key: u64, sums: &mut Option<(u64, u64, u64)>) -> bool {
        let Some(candidate) = view.candidates.get(index) else { return false };
        let active = u64::from(candidate.load.active());
        if active < FLOOR {
            return true;
        }
        let (all_active, all_shares, count) = *sums.get_or_insert_with(|| {
            // In a large pool those that are looked at stand for all: it is a part of the whole that counts.
            let candidates = looked_at(view, key).filter_map(|index| view.candidates.get(index));
            let standing = candidates.filter(|candidate| view.stands(candidate));
            standing.fold((1, 0, 0), |(active, shares, count), candidate| {
                let (load, share) = (u64::from(candidate.load.active()), u64::from(candidate.share.units()));
                (active + load, shares + share, count + 1)
            })
        });
        let share = u64::from(candidate.share.units());
        // (active + 1) · shares ≤ max(bound · all, floor · count) · share, in percent.
        let bound = (all_active * u64::from(self.percent)).max(100 * FLOOR * count);
        u128::from((active + 1) * 100) * u128::from(all_shares) <= u128::from(bound) * u128::from(share)
    }
}

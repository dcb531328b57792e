//! `fo` and `ovf`: the server of the highest weight; `ovf` as long as it has no more requests in flight than its weight says,
//! then the next. Source: IPVS `ip_vs_fo`, `ip_vs_ovf`.
//!
//! Of equals the first in file order is taken, as in the kernel.

use super::{Pick, Scheduler, describe};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView};
use crate::pure::trace::Trace;

/// The eligible candidate of the highest share that `suits`, the first of equals.
fn highest(view: &PoolView<'_>, suits: impl Fn(&Candidate) -> bool) -> Option<usize> {
    let mut best: Option<(usize, u32)> = None;
    for (index, candidate) in view.candidates.iter().enumerate() {
        let share = candidate.share.units();
        if best.is_none_or(|(_, highest)| share > highest) && view.is_eligible(index) && suits(candidate) {
            best = Some((index, share));
        }
    }
    best.map(|(index, _)| index)
}

/// `fo`.
#[derive(Debug)]
pub(super) struct Failover;

impl Scheduler for Failover {
    fn pick(&self, view: &PoolView<'_>, _: Option<u64>, _: Timestamp, _: &mut Rng, trace: &mut Trace) -> Pick {
        let picked = highest(view, |_| true);
        if let Some(index) = picked {
            trace.note("scheduler", || format!("fo: {} has the highest weight", describe(view, index)));
        }
        picked.into()
    }
}

/// `ovf`; where all are over their weights, the fallback decides.
#[derive(Debug)]
pub(super) struct Overflow {
    /// `None`: then nobody gets the request, as in the kernel.
    pub(super) fallback: Option<Box<dyn Scheduler>>,
}

impl Scheduler for Overflow {
    fn pick(&self, view: &PoolView<'_>, key: Option<u64>, now: Timestamp, rng: &mut Rng, trace: &mut Trace) -> Pick {
        let has_room =
            |candidate: &Candidate| 256 * u64::from(candidate.load.active()) <= u64::from(candidate.share.units());
        if let Some(index) = highest(view, has_room) {
            trace.note("scheduler", || {
                format!("ovf: {} has the highest weight of those that are not over it", describe(view, index))
            });
            return Pick::Server(index);
        }
        trace.note("scheduler", || "ovf: every server has more in flight than its weight".to_owned());
        self.fallback.as_ref().map_or(Pick::NoneEligible, |fallback| fallback.pick(view, key, now, rng, trace))
    }
}

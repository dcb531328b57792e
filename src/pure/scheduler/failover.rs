//! `fo` and `ovf`: the server of the highest weight; `ovf` as long as it has no more requests in flight than its weight says,
//! then the next. Source: IPVS `ip_vs_fo`, `ip_vs_ovf`.
//!
//! Of equals the first in file order is taken, as in the kernel.

use std::cell::RefCell;

use super::standing::Standing;
use super::{Pick, Scheduler, describe};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView};
use crate::pure::trace::Trace;

/// The candidates by their shares, the highest first, of equals in file order; made anew when a share changes.
#[derive(Debug, Default)]
pub(super) struct ByWeight {
    standing: Standing,
    order: Vec<usize>,
}

impl ByWeight {
    /// The eligible candidate of the highest share that `suits`.
    fn highest(&mut self, view: &PoolView<'_>, suits: impl Fn(&Candidate) -> bool) -> Option<usize> {
        if self.standing.refresh(view) {
            let standing = &self.standing;
            self.order = (0..view.candidates.len()).filter(|index| standing.share(*index) > 0).collect();
            self.order.sort_by_key(|index| std::cmp::Reverse(standing.share(*index)));
        }
        let is_it = |index: &usize| view.is_eligible(*index) && view.candidates.get(*index).is_some_and(&suits);
        self.order.iter().copied().find(is_it)
    }
}

/// `fo`.
#[derive(Debug, Default)]
pub(super) struct Failover(RefCell<ByWeight>);

impl Scheduler for Failover {
    fn pick(&self, view: &PoolView<'_>, _: Option<u64>, _: Timestamp, _: &mut Rng, trace: &mut Trace) -> Pick {
        let picked = self.0.borrow_mut().highest(view, |_| true);
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
    pub(super) by_weight: RefCell<ByWeight>,
}

impl Scheduler for Overflow {
    fn pick(&self, view: &PoolView<'_>, key: Option<u64>, now: Timestamp, rng: &mut Rng, trace: &mut Trace) -> Pick {
        let has_room =
            |candidate: &Candidate| 256 * u64::from(candidate.load.active()) <= u64::from(candidate.share.units());
        let picked = self.by_weight.borrow_mut().highest(view, has_room);
        if let Some(index) = picked {
            trace.note("scheduler", || {
                format!("ovf: {} has the highest weight of those that are not over it", describe(view, index))
            });
            return Pick::Server(index);
        }
        trace.note("scheduler", || "ovf: every server has more in flight than its weight".to_owned());
        self.fallback.as_ref().map_or(Pick::NoneEligible, |fallback| fallback.pick(view, key, now, rng, trace))
    }
}

//! `sed` and `nq`: the shortest expected delay, (active + 1) / weight; `nq` gives an idle server the request at once, however
//! slow it is. Source: IPVS `ip_vs_sed`, `ip_vs_nq`.

use super::least_loaded::Measure;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView};

fn delay_of(candidate: &Candidate) -> u64 {
    u64::from(candidate.load.active()) + 1
}

/// By the delay that a request would see.
#[derive(Debug)]
pub(super) struct ExpectedDelay;

impl Measure for ExpectedDelay {
    const NAME: &'static str = "sed";
    const AIM: &'static str = "the shortest expected delay";

    fn of(_: &PoolView<'_>, _: Timestamp, _: impl Iterator<Item = usize>) -> Self {
        Self
    }

    fn load(&self, candidate: &Candidate) -> u64 {
        delay_of(candidate)
    }
}

/// The same, but never behind another request where a server is idle.
#[derive(Debug)]
pub(super) struct NeverQueue;

impl Measure for NeverQueue {
    const NAME: &'static str = "nq";
    const AIM: &'static str = "nothing to do, or the shortest expected delay";

    fn of(_: &PoolView<'_>, _: Timestamp, _: impl Iterator<Item = usize>) -> Self {
        Self
    }

    fn load(&self, candidate: &Candidate) -> u64 {
        delay_of(candidate)
    }

    fn settles(&self, candidate: &Candidate, _: u32) -> bool {
        candidate.load.active() == 0
    }
}

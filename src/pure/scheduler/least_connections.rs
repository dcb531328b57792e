//! `lc` and `wlc`: the least requests in flight, as they are and for the weight. Source: IPVS `ip_vs_lc`, `ip_vs_wlc`.
//!
//! The kernel's load is 256 · active + inactive. Its inactive connections are those that end; ours are idle, cost a server
//! next to nothing and are counted as none.

use super::least_loaded::Measure;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView};

fn load_of(candidate: &Candidate) -> u64 {
    256 * u64::from(candidate.load.active())
}

/// By requests in flight.
#[derive(Debug)]
pub(super) struct Connections;

impl Measure for Connections {
    const NAME: &'static str = "lc";
    const AIM: &'static str = "the fewest requests in flight";

    fn of(_: &PoolView<'_>, _: Timestamp, _: impl Iterator<Item = usize>) -> Self {
        Self
    }

    fn load(&self, candidate: &Candidate) -> u64 {
        load_of(candidate)
    }

    fn capacity(&self, _: &Candidate) -> u32 {
        1
    }
}

/// By requests in flight for the weight.
#[derive(Debug)]
pub(super) struct WeightedConnections;

impl Measure for WeightedConnections {
    const NAME: &'static str = "wlc";
    const AIM: &'static str = "the least load for its weight";

    fn of(_: &PoolView<'_>, _: Timestamp, _: impl Iterator<Item = usize>) -> Self {
        Self
    }

    fn load(&self, candidate: &Candidate) -> u64 {
        load_of(candidate)
    }
}

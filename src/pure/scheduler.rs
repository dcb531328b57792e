//! Schedulers: who of a pool's servers gets a request. One file each; all pure, seeded, and the same in `explain`.
//!
//! The rule that all keep: a pick is eligible in the view at hand, and where any candidate is eligible there is a pick.
//! What an instance remembers between picks is its own, so every worker has one for itself; it starts at a random place
//! of its order, so that the workers together do not fall on the same servers. It refuses to be shared by threads.

use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView, SchedulerConfig, WrrMode};
use crate::pure::trace::Trace;

mod alias;
mod ipvs_walk;
mod least_connections;
mod race;
mod round_robin;
mod smooth;
mod standing;

/// What a scheduler answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The candidate with this position in the view.
    Server(usize),
    /// No candidate is eligible.
    NoneEligible,
}

impl From<Option<usize>> for Pick {
    fn from(index: Option<usize>) -> Self {
        index.map_or(Self::NoneEligible, Self::Server)
    }
}

/// A way to choose. State that moves with each choice lies behind `&self`, per worker or shared as the algorithm needs.
pub trait Scheduler {
    /// Chooses an eligible candidate of `view` for a request whose key hashed to `key`.
    ///
    /// All views given to one instance show the same servers in the same order; their states, shares and loads may differ.
    fn pick(&self, view: &PoolView<'_>, key: Option<u64>, now: Timestamp, rng: &mut Rng, trace: &mut Trace) -> Pick;
}

/// Where in its order a scheduler begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// At the beginning: what `explain` and the golden sequences use.
    Start,
    /// Somewhere, by this seed: what workers use.
    Seeded(u64),
}

impl Phase {
    /// A number in `0..bound` to begin at.
    fn below(self, bound: u64) -> u64 {
        match self {
            Self::Start => 0,
            Self::Seeded(seed) => Rng::new(seed).below(bound),
        }
    }
}

/// A new instance of the configured scheduler.
pub fn build(config: &SchedulerConfig, phase: Phase) -> Box<dyn Scheduler> {
    match config {
        SchedulerConfig::RoundRobin => Box::new(round_robin::RoundRobin::new(phase)),
        SchedulerConfig::WeightedRoundRobin(WrrMode::Smooth) => Box::new(smooth::Smooth::new(phase)),
        SchedulerConfig::WeightedRoundRobin(WrrMode::Ipvs) => Box::new(ipvs_walk::IpvsWalk::new(phase)),
        SchedulerConfig::WeightedLeastConnections(ties) => {
            Box::new(least_connections::LeastConnections::new(*ties, phase))
        }
    }
}

/// How a candidate is called in a trace.
fn describe(view: &PoolView<'_>, index: usize) -> String {
    view.candidates.get(index).map_or_else(String::new, |candidate: &Candidate| {
        format!("{} ({} in flight, weight {})", candidate.server.id.server, candidate.load.active(), candidate.share)
    })
}

#[cfg(test)]
mod tests;

//! Schedulers: who of a pool's servers gets a request. One file each; all pure, seeded, and the same in `explain`.
//!
//! The rule that all keep: a pick is eligible in the view at hand, and where any candidate is eligible there is a pick.
//! What an instance remembers between picks is its own, so every worker has one for itself; it starts at a random place
//! of its order, so that the workers together do not fall on the same servers. What has to hold over all workers, the homes
//! of keys above all, lies in a [`Memory`] that the instances of a pool share. An instance refuses to be shared by threads.

use std::cell::RefCell;
use std::sync::Arc;

use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, Fallback, Method, PoolView, Reports, SchedulerConfig, Ties, WrrMode};
use crate::pure::trace::Trace;

mod alias;
mod bounded;
mod capacity;
mod cost_bounded;
mod expected_delay;
mod failover;
mod hashed;
mod heat;
mod ipvs_walk;
mod keyed;
mod least_connections;
mod least_loaded;
mod locality;
mod maglev;
mod memory;
mod race;
mod rendezvous;
mod round_robin;
mod run_queue;
mod smooth;
mod standing;
mod two_choices;

pub use memory::{Memory, MissCosts, Moved};

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
pub trait Scheduler: std::fmt::Debug {
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

/// A new instance of the configured scheduler over what all workers remember together.
pub fn build(config: &SchedulerConfig, memory: &Arc<Memory>, phase: Phase) -> Box<dyn Scheduler> {
    let memory = || Arc::clone(memory);
    match &config.method {
        Method::Overflow => {
            Box::new(failover::Overflow { fallback: fallback(config, phase), by_weight: RefCell::default() })
        }
        Method::DestinationHash(_) | Method::SourceHash(_) | Method::Maglev => {
            let name = config.method.name();
            keyed(hashed::Hashed { name, memory: memory() }, config, memory(), phase)
        }
        Method::Rendezvous => keyed(rendezvous::Rendezvous(memory()), config, memory(), phase),
        Method::BoundedHash { percent } => {
            keyed(bounded::Bounded { memory: memory(), percent: *percent }, config, memory(), phase)
        }
        Method::Locality { .. } => keyed(locality::Locality(memory()), config, memory(), phase),
        Method::ReplicatedLocality { shrink_after, .. } => {
            keyed(locality::Replicated { memory: memory(), shrink_after: *shrink_after }, config, memory(), phase)
        }
        Method::CostBounded { miss_cost, choices, .. } => {
            let choices = choices.map_or(usize::MAX, |choices| choices as usize);
            keyed(
                cost_bounded::CostBounded { memory: memory(), miss_cost: *miss_cost, choices },
                config,
                memory(),
                phase,
            )
        }
        method => plain(method, phase),
    }
}

/// A scheduler that needs no key. One that does is never asked for here; it would be answered by the default.
fn plain(method: &Method, phase: Phase) -> Box<dyn Scheduler> {
    use least_connections::{Connections, WeightedConnections};
    use least_loaded::LeastLoaded;
    match method {
        Method::RoundRobin => Box::new(round_robin::RoundRobin::new(phase)),
        Method::WeightedRoundRobin(WrrMode::Ipvs) => Box::new(ipvs_walk::IpvsWalk::new(phase)),
        Method::LeastConnections(ties) => Box::new(LeastLoaded::<Connections>::new(*ties, phase)),
        Method::WeightedLeastConnections(ties) => Box::new(LeastLoaded::<WeightedConnections>::new(*ties, phase)),
        Method::ExpectedDelay(ties) => Box::new(LeastLoaded::<expected_delay::ExpectedDelay>::new(*ties, phase)),
        Method::NeverQueue(ties) => Box::new(LeastLoaded::<expected_delay::NeverQueue>::new(*ties, phase)),
        Method::SeenCapacity(ties) => Box::new(LeastLoaded::<capacity::SeenCapacity>::new(*ties, phase)),
        Method::ShortestRunQueue(Reports::Push) => Box::new(LeastLoaded::<run_queue::Pushed>::new(Ties::Rotate, phase)),
        Method::ShortestRunQueue(Reports::Pull) => Box::new(LeastLoaded::<run_queue::Pulled>::new(Ties::Rotate, phase)),
        Method::TwoChoices => Box::new(two_choices::TwoChoices::<two_choices::InFlight>::new()),
        Method::PeakEwma => Box::new(two_choices::TwoChoices::<two_choices::PeakEwma>::new()),
        Method::Failover => Box::new(failover::Failover::default()),
        _ => Box::new(smooth::Smooth::new(phase)),
    }
}

fn fallback(config: &SchedulerConfig, phase: Phase) -> Option<Box<dyn Scheduler>> {
    match &config.fallback {
        Fallback::None => None,
        Fallback::By(method) => Some(plain(method, phase)),
    }
}

fn keyed<K: keyed::ByKey + 'static>(
    by_key: K,
    config: &SchedulerConfig,
    memory: Arc<Memory>,
    phase: Phase,
) -> Box<dyn Scheduler> {
    let (fallback, is_strict) = match &config.fallback {
        Fallback::None => (&Method::WeightedLeastConnections(Ties::Rotate), true),
        Fallback::By(method) => (method, false),
    };
    let (name, fallback_name) = (config.method.name(), fallback.name());
    Box::new(keyed::Keyed { name, by_key, memory, fallback: plain(fallback, phase), fallback_name, is_strict })
}

/// How a candidate is called in a trace.
fn describe(view: &PoolView<'_>, index: usize) -> String {
    view.candidates.get(index).map_or_else(String::new, |candidate: &Candidate| {
        format!("{} ({} in flight, weight {})", candidate.server.id.server, candidate.load.active(), candidate.share)
    })
}

#[cfg(test)]
mod tests;

//! Schedulers: who of a pool's servers gets a request. One file each; all pure, seeded, and the same in `explain`.

use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::PoolView;
use crate::pure::trace::Trace;

/// What a scheduler answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The candidate with this position in the view.
    Server(usize),
    /// No candidate is eligible.
    NoneEligible,
}

/// A way to choose. State that moves with each choice lies behind `&self`, per worker or shared as the algorithm needs.
pub trait Scheduler {
    /// Chooses an eligible candidate of `view` for a request whose key hashed to `key`.
    fn pick(&self, view: &PoolView<'_>, key: Option<u64>, now: Timestamp, rng: &mut Rng, trace: &mut Trace) -> Pick;
}

//! Placeholder until merge.
use crate::base::id::PoolIndex;
use crate::base::rng::Rng;
use crate::pure::rule::captures::Captures;
use crate::pure::rule::{KeySource, RequestView};
use crate::pure::trace::Trace;
/// hash
pub fn hash_key(_source: &KeySource, _view: &RequestView<'_>, _captures: &Captures) -> Option<u64> {
    None
}
/// arm
pub fn choose_arm(arms: &[(PoolIndex, u32)], _hash: Option<u64>, _rng: &mut Rng, _t: &mut Trace) -> Option<PoolIndex> {
    arms.first().map(|arm| arm.0)
}

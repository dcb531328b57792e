//! `dh`, `sh` and `mh`: the server that a table has for the key. Source: IPVS `ip_vs_dh`, `ip_vs_sh`, `ip_vs_mh`.
//!
//! The tables are made from the configured weights (`dh`: without them), so a server that is quiesced or lost moves its own
//! keys and no others, and those come back with it. With `mode="ipvs"`, `dh` and `sh` deal 256 buckets over the servers in
//! file order, as the kernel does.

use std::sync::Arc;

use super::keyed::{Asked, ByKey, takes_key, tell_home};
use super::memory::Memory;
use crate::base::time::Timestamp;
use crate::pure::pool::PoolView;
use crate::pure::trace::Trace;

/// By the table of a pool.
#[derive(Debug)]
pub(super) struct Hashed {
    /// The scheduler's name.
    pub(super) name: &'static str,
    pub(super) memory: Arc<Memory>,
}

impl ByKey for Hashed {
    fn pick(&self, view: &PoolView<'_>, asked: Asked, _: Timestamp, trace: &mut Trace) -> Option<usize> {
        let key = asked.key;
        let index = self.memory.table.find(key)?;
        let is_taken = takes_key(view, index, key);
        tell_home(trace, self.name, view, index, is_taken);
        is_taken.then_some(index)
    }
}

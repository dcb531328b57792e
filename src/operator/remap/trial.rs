//! The servers of keys before and after a change, by the schedulers' own code: every server is up and idle.
//!
//! A scheduler that gives new keys to the least loaded would give all of them to one idle server. There, a key that comes to a
//! server for the first time leaves a request in flight, so that keys spread as they do in life.

use std::sync::Arc;

use super::Item;
use crate::base::id::PoolIndex;
use crate::base::time::Timestamp;
use crate::operator::rehearsal::Rehearsal;
use crate::pure::pool::{Load, Method, Tried};
use crate::pure::trace::Trace;
use crate::shared::choose::{Ask, Place, Schedulers};
use crate::shared::counters::ProcessCounters;
use crate::shared::snapshot::{Snapshot, SnapshotStore};

/// The server of a key by its name; none where the key has no server.
pub(super) type Named = Option<Arc<str>>;

/// Whether a scheduler gives new keys to the server with the least load, whatever the key; `cbr` asks the key among equals.
pub(super) const fn is_by_load(method: &Method) -> bool {
    matches!(method, Method::Locality { .. } | Method::ReplicatedLocality { .. } | Method::CostBounded { .. })
}

/// Two rule files, and a proxy that has just been started on each.
pub(super) struct Trial {
    before: Arc<Snapshot>,
    after: Arc<Snapshot>,
}

impl Trial {
    pub(super) fn new(before: &Rehearsal, after: &Rehearsal) -> Self {
        Self { before: Arc::clone(before.snapshot()), after: Arc::clone(after.snapshot()) }
    }

    /// The servers of a pool's keys before the change, and after it in a proxy that takes it over.
    pub(super) fn servers(&self, pool: &str, items: &[Item]) -> (Vec<Named>, Vec<Named>) {
        let (config, rules) = (Arc::clone(&self.before.config), Arc::clone(&self.before.rules));
        let store = SnapshotStore::new(config, rules, Arc::new(ProcessCounters::default()));
        let schedulers = Schedulers::from_start();
        let keys: Vec<Option<u64>> = items.iter().map(|item| Some(item.before)).collect();
        let before = choose(&store.load(), &schedulers, pool, &keys, &[]);
        store.reload(Arc::clone(&self.after.config), Arc::clone(&self.after.rules));
        let keys: Vec<Option<u64>> = items.iter().map(|item| item.after).collect();
        let after = choose(&store.load(), &schedulers, pool, &keys, &before);
        (before, after)
    }
}

/// The servers that a pool's scheduler chooses, one key after the other; `known` are those that they had.
fn choose(
    snapshot: &Snapshot,
    schedulers: &Schedulers,
    pool: &str,
    keys: &[Option<u64>],
    known: &[Named],
) -> Vec<Named> {
    let position = snapshot.pools.iter().position(|candidate| *candidate.pool.name == *pool);
    let index = position.and_then(|position| u32::try_from(position).ok()).map(PoolIndex);
    let Some(place) = index.and_then(|index| Place::of(snapshot, index)) else { return vec![None; keys.len()] };
    let is_by_load = is_by_load(&place.pool.pool.scheduler.method);
    let mut held = Held::default();
    let mut choose_one = |key: u64, known: Option<&Arc<str>>| {
        if is_by_load {
            held.make_room(&place);
        }
        let ask = Ask { key: Some(key), own: None, tried: &Tried::NONE, now: Timestamp::ZERO };
        let index = schedulers.choose(&place, &ask, &mut Trace::off())?;
        let candidate = place.pool.candidates.get(index)?;
        let name = Arc::clone(&candidate.server.id.server);
        if is_by_load && known != Some(&name) {
            held.hold(&candidate.load);
        }
        Some(name)
    };
    let known = known.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    keys.iter().zip(known).map(|(key, known)| choose_one((*key)?, known)).collect()
}

/// Requests in flight, which end with this.
#[derive(Default)]
struct Held(Vec<Arc<Load>>);

impl Held {
    fn hold(&mut self, load: &Arc<Load>) {
        if load.try_reserve(None) {
            self.0.push(Arc::clone(load));
        }
    }

    /// Ends them where a server has as many as it may.
    fn make_room(&mut self, place: &Place<'_>) {
        let is_full = |max: Option<u32>, load: &Load| max.is_some_and(|max| load.active() >= max);
        if place.pool.candidates.iter().any(|candidate| is_full(candidate.max, &candidate.load)) {
            self.end_all();
        }
    }

    fn end_all(&mut self) {
        self.0.drain(..).for_each(|load| load.release());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end_all();
    }
}

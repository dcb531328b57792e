//! The snapshot: all that a request needs to know to be decided, immutable, swapped as a whole.
//!
//! Control is its only writer. A change of one server's state makes that pool's part anew and shares all the others.
//! Counters, loads and idle connections live outside, found by a server's number, and survive both a change and a reload.
//! A worker looks at the snapshot through a cache of its own, once for each choice, and does not hold it while it forwards.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;

use crate::base::id::{PoolIndex, ServerSlot};
use crate::pure::config::Config;
use crate::pure::pool::{Candidate, Pool, PoolView, Share, State, Tried, Wanted, is_in_panic};
use crate::pure::rule::compile::RuleSet;
use crate::pure::scheduler::Memory;
use crate::shared::counters::{PoolRecord, ProcessCounters};
pub use crate::shared::endpoint::Endpoint;
use crate::shared::queue::{Queue, Seat};

mod registry;

use registry::{Enrolled, Registry};

/// Everything that decides a request.
#[derive(Debug)]
pub struct Snapshot {
    /// What the rule files say: listeners, limits.
    pub config: Arc<Config>,
    /// The rules, compiled.
    pub rules: Arc<RuleSet>,
    /// The pools in file order; [`PoolIndex`] counts them.
    pub pools: Vec<Arc<PoolSnapshot>>,
    /// Another for each change of a server's addresses, and for each configuration.
    pub whereabouts: u64,
    _alive: Alive,
}

/// Counts a snapshot as long as somebody holds it.
#[derive(Debug)]
struct Alive(Arc<ProcessCounters>);

impl Alive {
    fn new(process: &Arc<ProcessCounters>) -> Self {
        process.snapshots_alive.rise();
        Self(Arc::clone(process))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.snapshots_alive.fall();
    }
}

/// A pool at one moment.
#[derive(Clone, Debug)]
pub struct PoolSnapshot {
    /// What the rule files say.
    pub pool: Arc<Pool>,
    /// What is counted.
    pub record: Arc<PoolRecord>,
    /// Where its requests wait that no server has a place for; `None`: they are refused at once.
    pub queue: Option<Arc<Queue>>,
    /// Its servers in file order, the backups behind the others, as schedulers see them.
    pub candidates: Vec<Candidate>,
    /// The position of the first backup; without any, the number of the servers.
    pub first_backup: usize,
    /// Its servers in the same order, as requests hold them.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// Whether so few servers are available that suspicion is ignored.
    pub in_panic: bool,
    /// What the workers' instances of its scheduler remember together.
    pub memory: Arc<Memory>,
    /// The same of the backups, among which the scheduler chooses by itself; `None`: there are none.
    pub backup_memory: Option<Arc<Memory>>,
    /// The same as long as scheduler and list of servers are: a scheduler's instance lives as long.
    pub roster: u64,
    /// Another for each change of a state or a share.
    pub generation: u64,
}

impl Snapshot {
    /// The pool at this position.
    pub fn pool(&self, index: PoolIndex) -> Option<&Arc<PoolSnapshot>> {
        self.pools.get(index.0 as usize)
    }

    /// The pool of that server.
    pub fn pool_of(&self, endpoint: &Endpoint) -> Option<&Arc<PoolSnapshot>> {
        self.pools.iter().find(|pool| pool.pool.name == endpoint.server.id.pool)
    }

    /// The position now of the pool of this name, which stood at `index` when it was last seen; `None`: it is gone.
    pub fn find_again(&self, index: PoolIndex, name: &Arc<str>) -> Option<PoolIndex> {
        let is_it = |pool: &Arc<PoolSnapshot>| Arc::ptr_eq(&pool.pool.name, name) || *pool.pool.name == **name;
        if self.pool(index).is_some_and(is_it) {
            return Some(index);
        }
        let position = self.pools.iter().position(is_it)?;
        u32::try_from(position).ok().map(PoolIndex)
    }
}

impl PoolSnapshot {
    /// What a scheduler chooses from: all servers but the backups.
    pub fn view<'a>(&'a self, tried: &'a Tried) -> PoolView<'a> {
        self.view_of(self.candidates.get(..self.first_backup).unwrap_or_default(), tried)
    }

    /// What a scheduler chooses from where none of the others may get the request: the backups.
    pub fn backup_view<'a>(&'a self, tried: &'a Tried) -> PoolView<'a> {
        self.view_of(self.candidates.get(self.first_backup..).unwrap_or_default(), tried)
    }

    /// Whether some of its servers are backups.
    pub const fn has_backups(&self) -> bool {
        self.first_backup < self.candidates.len()
    }

    /// A request for a key goes to the server at that position.
    pub fn note_key(&self, key: u64, index: usize) {
        match (index.checked_sub(self.first_backup), &self.backup_memory) {
            (Some(index), Some(memory)) => memory.locality.note(key, index),
            (Some(_) | None, _) => self.memory.locality.note(key, index),
        }
    }

    /// The server of that number, and its position.
    pub fn candidate_of(&self, slot: ServerSlot) -> Option<(usize, &Candidate)> {
        self.candidates.iter().enumerate().find(|(_, candidate)| candidate.slot == slot)
    }

    /// Whether a request could go to another server than that one, and those that were tried, now.
    pub fn has_other_than(&self, slot: ServerSlot, tried: &Tried) -> bool {
        let view = self.view(&Tried::NONE);
        let is_other = |other: ServerSlot| other != slot && !tried.contains(other);
        self.candidates.iter().any(|candidate| is_other(candidate.slot) && view.may_get(candidate))
    }

    /// What its queue has to know of its servers.
    fn seats(&self) -> impl Iterator<Item = Seat> {
        let view = self.view(&Tried::NONE);
        self.candidates.iter().zip(&self.endpoints).map(move |(candidate, endpoint)| Seat {
            endpoint: Arc::clone(endpoint),
            share: candidate.share,
            takes_new: view.stands(candidate),
            takes_back: view.takes_back(candidate),
        })
    }

    /// Tells its queue, where it has one, what has become of its servers: those who wait get the places that are free now.
    fn tell_queue(&self) {
        if let Some(queue) = &self.queue {
            queue.follow(self.seats());
        }
    }

    fn view_of<'a>(&'a self, candidates: &'a [Candidate], tried: &'a Tried) -> PoolView<'a> {
        PoolView {
            candidates,
            generation: self.generation,
            wanted: if self.in_panic { Wanted::InPanic } else { Wanted::New },
            only_well: false,
            tried,
        }
    }
}

/// A new state of a server, and what changes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The server.
    pub slot: ServerSlot,
    /// Its state.
    pub state: State,
    /// Its share; `None`: as it was.
    pub share: Option<Share>,
    /// What it says itself of the requests that it may have at once; `None`: nothing new.
    pub max: Option<OwnMax>,
}

impl StateChange {
    /// A new state, and all else as it was.
    pub const fn new(slot: ServerSlot, state: State) -> Self {
        Self { slot, state, share: None, max: None }
    }
}

/// How many requests a server may have at once by its own word, and never more than the configuration says; `None`: it says
/// nothing.
pub type OwnMax = Option<u32>;

/// Where the snapshot is kept, and changed by control.
#[derive(Debug)]
pub struct SnapshotStore {
    current: Arc<ArcSwap<Snapshot>>,
    process: Arc<ProcessCounters>,
    /// Held while a snapshot is made, never on a request's path.
    registry: Mutex<Registry>,
}

impl SnapshotStore {
    /// The first snapshot: every server is up and has its configured share.
    pub fn new(config: Arc<Config>, rules: Arc<RuleSet>, process: Arc<ProcessCounters>) -> Self {
        let mut registry = Registry::default();
        let snapshot = assemble(&mut registry, config, rules, &[], &process);
        Self { current: Arc::new(ArcSwap::from_pointee(snapshot)), process, registry: Mutex::new(registry) }
    }

    /// The snapshot now, for those who ask seldom.
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// A worker's way to the snapshot.
    pub fn cache(&self) -> SnapshotCache {
        SnapshotCache { cache: Cache::new(Arc::clone(&self.current)) }
    }

    /// What is counted for the process.
    pub fn process(&self) -> &Arc<ProcessCounters> {
        &self.process
    }

    /// Publishes new states, all at once. Only the pools in which something changes are made anew. Servers that are no
    /// longer configured are passed over.
    pub fn set_states(&self, changes: &[StateChange]) {
        self.change_pools(|registry, pools| {
            for change in changes {
                let Some((pool, position)) = registry.place(change.slot) else { continue };
                let Some(pool) = pools.get_mut(pool) else { continue };
                let Some(candidate) = pool.candidates.get(position) else { continue };
                let share = change.share.unwrap_or(candidate.share);
                let max = change.max.map_or(candidate.max, |own| candidate.server.max.into_iter().chain(own).min());
                if (candidate.state, candidate.share, candidate.max) == (change.state, share, max) {
                    continue;
                }
                // Copied once for several changes: the copy has no other holder.
                if let Some(candidate) = Arc::make_mut(pool).candidates.get_mut(position) {
                    (candidate.state, candidate.share, candidate.max) = (change.state, share, max);
                }
            }
        });
    }

    /// Publishes the addresses that servers' names have now. Where they are others than before, the server keeps number,
    /// counters and share; what it said of itself is forgotten, and it is thought of as up again, unless an operator has
    /// taken it out or it is on its way back. Returns whether any are.
    pub fn set_addresses(&self, found: &[(ServerSlot, Arc<[SocketAddr]>)]) -> bool {
        self.change_pools(|registry, pools| {
            for (slot, addresses) in found {
                let Some((pool, position)) = registry.place(*slot) else { continue };
                let Some(pool) = pools.get_mut(pool) else { continue };
                let Some(known) = pool.endpoints.get(position).map(Arc::clone) else { continue };
                let Some(incarnation) = registry.resolve(&known.server.id, addresses) else { continue };
                let pool = Arc::make_mut(pool);
                if let Some(candidate) = pool.candidates.get_mut(position) {
                    (candidate.incarnation, candidate.max) = (incarnation, candidate.server.max);
                    if matches!(candidate.state, State::Suspect { .. } | State::Down) {
                        candidate.state = State::Up;
                    }
                }
                if let Some(endpoint) = pool.endpoints.get_mut(position) {
                    let (server, record) = (Arc::clone(&known.server), Arc::clone(&known.record));
                    let moved = Endpoint::new(server, record, incarnation, Arc::clone(addresses));
                    *endpoint = Arc::new(moved.measured(known.is_measured));
                }
            }
        })
    }

    /// Publishes what `change` makes of the pools. Returns whether it changes any.
    fn change_pools(&self, change: impl FnOnce(&mut Registry, &mut [Arc<PoolSnapshot>])) -> bool {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.current.load_full();
        let mut pools = old.pools.clone();
        change(&mut registry, &mut pools);
        let has_changed = renew_changed(&mut pools, &old.pools, &mut registry);
        if has_changed {
            self.current.store(Arc::new(Snapshot {
                config: Arc::clone(&old.config),
                rules: Arc::clone(&old.rules),
                pools,
                whereabouts: registry.whereabouts(),
                _alive: Alive::new(&self.process),
            }));
        }
        has_changed
    }

    /// Publishes another configuration. Servers that stay keep number, counters and, where the address is the same, state
    /// and share; pools whose servers stay keep their schedulers.
    pub fn reload(&self, config: Arc<Config>, rules: Arc<RuleSet>) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.current.load_full();
        let snapshot = Arc::new(assemble(&mut registry, config, rules, &old.pools, &self.process));
        self.current.store(Arc::clone(&snapshot));
        for old in &old.pools {
            let stays = |new: &&Arc<PoolSnapshot>| new.pool.name == old.pool.name && new.queue.is_some();
            if let Some(queue) = old.queue.as_ref().filter(|_| !snapshot.pools.iter().any(|new| stays(&new))) {
                // Whoever waits there looks at the snapshot again, and so does who comes with the old one in hand.
                queue.close();
            }
        }
    }
}

/// A worker's way to the snapshot: one atomic read as long as it does not change.
pub struct SnapshotCache {
    cache: Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>,
}

impl SnapshotCache {
    /// The snapshot now.
    pub fn load(&mut self) -> &Arc<Snapshot> {
        self.cache.load()
    }
}

impl std::fmt::Debug for SnapshotCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotCache").finish_non_exhaustive()
    }
}

/// Brings the pools that are not the old ones up to their servers' states. Returns whether there are any.
fn renew_changed(pools: &mut [Arc<PoolSnapshot>], old: &[Arc<PoolSnapshot>], registry: &mut Registry) -> bool {
    let mut has_changed = false;
    for (new, old) in pools.iter_mut().zip(old) {
        if !Arc::ptr_eq(new, old) {
            has_changed = true;
            let pool = Arc::make_mut(new);
            pool.in_panic = is_in_panic(&pool.candidates);
            pool.generation = registry.next_generation();
            pool.tell_queue();
        }
    }
    has_changed
}

/// Makes a snapshot of a configuration, keeping of the old pools what stays.
fn assemble(
    registry: &mut Registry,
    config: Arc<Config>,
    rules: Arc<RuleSet>,
    old: &[Arc<PoolSnapshot>],
    process: &Arc<ProcessCounters>,
) -> Snapshot {
    registry.begin();
    let pools = config
        .pools
        .iter()
        .enumerate()
        .map(|(position, pool)| {
            let old = old.iter().find(|old| old.pool.name == pool.name);
            let new = assemble_pool(registry, position, pool, old.map(AsRef::as_ref));
            new.tell_queue();
            Arc::new(new)
        })
        .collect();
    registry.end();
    Snapshot { config, rules, pools, whereabouts: registry.whereabouts(), _alive: Alive::new(process) }
}

fn assemble_pool(
    registry: &mut Registry,
    position: usize,
    pool: &Arc<Pool>,
    old: Option<&PoolSnapshot>,
) -> PoolSnapshot {
    let held: HashMap<ServerSlot, (&Candidate, &Arc<Endpoint>)> = old
        .into_iter()
        .flat_map(|old| old.candidates.iter().zip(&old.endpoints))
        .map(|(candidate, endpoint)| (candidate.slot, (candidate, endpoint)))
        .collect();
    let is_measured = pool.scheduler.method.is_measuring();
    let mut candidates = Vec::with_capacity(pool.servers.len());
    let mut endpoints = Vec::with_capacity(pool.servers.len());
    let (regular, backups): (Vec<_>, Vec<_>) = pool.servers.iter().partition(|server| !server.is_backup);
    // Where all are backups, none stands by.
    let first_backup = if regular.is_empty() { backups.len() } else { regular.len() };
    for (index, server) in regular.into_iter().chain(backups).enumerate() {
        let Enrolled { record, incarnation, named } = registry.enrol(server, (position, index));
        let kept = held.get(&record.slot).filter(|(candidate, _)| candidate.incarnation == incarnation);
        let kept_share = kept.filter(|(old, _)| old.server.weight == server.weight).map(|(old, _)| old.share);
        candidates.push(Candidate {
            server: Arc::clone(server),
            slot: record.slot,
            incarnation,
            state: kept.map_or(State::Up, |(old, _)| old.state),
            share: kept_share.unwrap_or(Share::of(server.weight)),
            max: server.max,
            load: Arc::clone(&record.load),
        });
        endpoints.push(match kept {
            Some((old, endpoint)) if *old.server == **server && endpoint.is_measured == is_measured => {
                Arc::clone(endpoint)
            }
            _ => Arc::new(Endpoint::new(Arc::clone(server), record, incarnation, named).measured(is_measured)),
        });
    }
    let is_same_scheduler = |old: &&PoolSnapshot| old.pool.scheduler == pool.scheduler;
    let is_same_roster = |old: &&PoolSnapshot| {
        // Tables are made from the weights; those who count see them in the view.
        let weight = |candidate: &Candidate| pool.scheduler.method.is_keyed().then_some(candidate.server.weight);
        let known = |candidate: &Candidate| (candidate.slot, weight(candidate));
        is_same_scheduler(old)
            && old.first_backup == first_backup
            && old.candidates.iter().map(known).eq(candidates.iter().map(known))
    };
    let (roster, memory, backup_memory) = match old.filter(is_same_roster) {
        Some(old) => (old.roster, Arc::clone(&old.memory), old.backup_memory.clone()),
        None => {
            // What the keys' hashes mean, and who remembers them how; options and the fallback change nothing in that.
            let remembers_alike = |old: &&PoolSnapshot| {
                old.pool.scheduler.method.remembers_like(&pool.scheduler.method)
                    && (&old.pool.key, &old.pool.key_normalize) == (&pool.key, &pool.key_normalize)
            };
            let remembered = old.filter(remembers_alike);
            let memory = |servers: &[Candidate], old: Option<&Arc<Memory>>| {
                let servers = servers.iter().map(|candidate| &*candidate.server);
                Arc::new(Memory::new(&pool.scheduler, servers, old.map(AsRef::as_ref)))
            };
            let (regular, backups) = candidates.split_at(first_backup);
            let backup_memory =
                (!backups.is_empty()).then(|| memory(backups, remembered.and_then(|old| old.backup_memory.as_ref())));
            (registry.next_roster(), memory(regular, remembered.map(|old| &old.memory)), backup_memory)
        }
    };
    let record = registry.pool_record(&pool.name);
    PoolSnapshot {
        roster,
        memory,
        backup_memory,
        generation: registry.next_generation(),
        queue: pool.queue.is_some().then(|| Arc::clone(&record.queue)),
        record,
        in_panic: is_in_panic(&candidates),
        pool: Arc::clone(pool),
        candidates,
        first_backup,
        endpoints,
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! What a pool's scheduler remembers for all workers together: tables made from the list of servers, the homes of keys, the
//! keys that are hot, what a miss costs.
//!
//! Made once for a list of servers. When that changes, keys that have their home at a server that stays keep it. It refuses
//! to choose: schedulers do.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::heat::Heat;
use super::maglev::{Entrant, Table};
use super::rendezvous::highest;
use crate::base::time::Timestamp;
use crate::pure::key_table::{KeyTable, Usage};
use crate::pure::locality::Locality;
use crate::pure::pool::{HashMode, Method, SchedulerConfig, Server};
use crate::pure::rendezvous::{Lineup, Wait};
use crate::pure::rule::hash::hash;

/// What workers share of a pool's scheduler.
#[derive(Debug, Default)]
pub struct Memory {
    /// The hash of each server's name.
    names: Box<[u64]>,
    /// The configured weights.
    weights: Box<[u16]>,
    /// Whether they differ.
    pub(super) is_weighted: bool,
    /// Both, to find the highest score by.
    pub(super) lineup: Lineup,
    /// Where keys belong, where the scheduler has a table of all.
    pub(super) table: Table,
    /// Where keys have been, where the scheduler remembers it.
    pub(super) homes: Option<KeyTable<Home>>,
    /// Which keys are asked for most.
    pub(super) heat: Heat,
    /// What a miss costs.
    pub costs: MissCosts,
    /// What shows how well keys stay together.
    pub locality: Locality,
    /// How many of the keys that were known have another server by the change that made this.
    pub moved: Moved,
    /// How many requests may leave their home.
    pub(super) spill: SpillBudget,
}

/// How many keys a change has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Those that have another server.
    pub keys: u64,
    /// Those that were looked at.
    pub of: u64,
}

impl Moved {
    fn count(&mut self, has_moved: bool) {
        self.keys += u64::from(has_moved);
        self.of += 1;
    }
}

/// The keys by which a change of a table is judged.
const SAMPLE: u64 = 4096;

/// The most servers that a key has at once.
pub(super) const HOMES_MAX: usize = 8;

/// The servers of a key, by their positions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Home {
    servers: [u32; HOMES_MAX],
    count: u8,
    /// When a server was last added or dropped.
    pub(super) changed: Timestamp,
}

impl Home {
    /// The servers.
    pub(super) fn servers(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.servers.iter().take(usize::from(self.count)).map(|index| *index as usize)
    }

    pub(super) fn count(&self) -> usize {
        usize::from(self.count)
    }

    pub(super) fn holds(&self, index: usize) -> bool {
        self.servers().any(|held| held == index)
    }

    /// Makes `index` the only server.
    pub(super) fn set(&mut self, index: usize, now: Timestamp) {
        self.count = 0;
        self.add(index, now);
    }

    /// Adds a server, unless it is there or there are too many.
    pub(super) fn add(&mut self, index: usize, now: Timestamp) {
        if self.holds(index) {
            return;
        }
        if let (Some(free), Ok(index)) = (self.servers.get_mut(usize::from(self.count)), u32::try_from(index)) {
            *free = index;
            self.count += 1;
            self.changed = now;
        }
    }

    /// Drops a server.
    pub(super) fn drop_server(&mut self, index: usize, now: Timestamp) {
        let Some(place) = self.servers().position(|held| held == index) else { return };
        let last = usize::from(self.count) - 1;
        self.servers.swap(place, last);
        self.count -= 1;
        self.changed = now;
    }
}

impl Memory {
    /// That of a scheduler over these servers; `old` is what was remembered of an earlier list, whose homes are kept.
    pub fn new<'s>(config: &SchedulerConfig, servers: impl Iterator<Item = &'s Server>, old: Option<&Self>) -> Self {
        let servers: Vec<&Server> = servers.collect();
        let names: Box<[u64]> = servers.iter().map(|server| hash(server.id.server.as_bytes(), 0)).collect();
        let entrants = |is_weighted: bool| -> Vec<Entrant<'_>> {
            let weight = |server: &Server| if is_weighted { server.weight } else { server.weight.min(1) };
            servers.iter().map(|server| Entrant { name: &server.id.server, weight: weight(server) }).collect()
        };
        let table = match &config.method {
            Method::DestinationHash(HashMode::Ipvs) => Table::buckets(&entrants(true), false),
            Method::SourceHash(HashMode::Ipvs) => Table::buckets(&entrants(true), true),
            Method::DestinationHash(HashMode::Maglev) => Table::maglev(&entrants(false)),
            Method::SourceHash(HashMode::Maglev) | Method::Maglev | Method::BoundedHash { .. } => {
                Table::maglev(&entrants(true))
            }
            _ => Table::default(),
        };
        let homes = config.method.keys_max().map(|most| {
            let homes = KeyTable::new(most as usize);
            if let Some(old) = old {
                old.carry_over(&homes, &names);
            }
            homes
        });
        if !config.method.is_keyed() {
            return Self { names, ..Self::default() };
        }
        let locality = Locality::new(servers.len());
        let weights: Box<[u16]> = servers.iter().map(|server| server.weight).collect();
        let is_weighted = weights.iter().any(|weight| Some(weight) != weights.first());
        let lineup = Lineup::new(names.iter().copied().zip(weights.iter().copied()));
        let heat = Heat::new();
        let mut memory = Self { names, weights, is_weighted, lineup, table, homes, heat, locality, ..Self::default() };
        if let Some(old) = old {
            memory.moved = old.moved_to(&memory);
        }
        memory
    }

    /// How long each server waits for a key.
    pub(super) fn waits(&self, key: u64) -> impl Iterator<Item = Wait> + use<'_> {
        self.names.iter().zip(&self.weights).map(move |(name, weight)| Wait::of(key, *name, *weight))
    }

    /// How long a server waits for a key.
    pub(super) fn wait(&self, key: u64, index: usize) -> Option<Wait> {
        Some(Wait::of(key, *self.names.get(index)?, *self.weights.get(index)?))
    }

    /// Shows the servers of each key that is remembered.
    pub fn for_each_key(&self, mut show: impl FnMut(u64, &mut dyn Iterator<Item = usize>)) {
        if let Some(homes) = &self.homes {
            homes.for_each(|key, home| show(key, &mut home.servers()));
        }
    }

    /// How full the table of the keys' servers is, where the scheduler has one.
    pub fn usage(&self) -> Option<Usage> {
        self.homes.as_ref().map(KeyTable::usage)
    }

    /// The hottest keys with their shares of all requests, the hottest first.
    pub fn hottest(&self, most: usize) -> Vec<(u64, f64)> {
        self.heat.hottest(most)
    }

    /// The server of a key, were all well: by the table, or by score.
    fn home_of(&self, key: u64) -> Option<usize> {
        self.table
            .find(key)
            .or_else(|| highest(self, key, |index| self.weights.get(index).is_some_and(|weight| *weight > 0)))
    }

    /// How many keys have another server in `new`: of those that are remembered, or of so many spread evenly over a table.
    fn moved_to(&self, new: &Self) -> Moved {
        let name = |memory: &Self, index: usize| memory.names.get(index).copied();
        let mut moved = Moved::default();
        if let (Some(before), Some(after)) = (&self.homes, &new.homes) {
            before.for_each(|key, home| {
                let first = home.servers().next().and_then(|index| name(self, index));
                let stays = after.look(key, |home| home.servers().next().and_then(|index| name(new, index)) == first);
                moved.count(stays != Some(true));
            });
            return moved;
        }
        for number in 0..SAMPLE {
            let key = hash(&number.to_le_bytes(), 0);
            let server = |memory: &Self| memory.home_of(key).and_then(|index| name(memory, index));
            moved.count(server(self) != server(new));
        }
        moved
    }

    /// Copies the homes to a table in whose order of servers the names are `names`.
    fn carry_over(&self, homes: &KeyTable<Home>, names: &[u64]) {
        let Some(old) = &self.homes else { return };
        let moved: Vec<Option<usize>> =
            self.names.iter().map(|name| names.iter().position(|other| other == name)).collect();
        old.for_each(|key, home| {
            let mut kept = Home::default();
            for index in home.servers().filter_map(|index| moved.get(index).copied().flatten()) {
                kept.add(index, home.changed);
            }
            kept.changed = home.changed;
            if kept.count() > 0 {
                homes.with(key, |home| {
                    *home = kept;
                    Some(())
                });
            }
        });
    }
}

/// What a miss costs, as answers say that they were one (RFC 9211, and what came before it).
#[derive(Debug, Default)]
pub struct MissCosts {
    hits: AtomicU64,
    misses: AtomicU64,
    hit_nanos: AtomicU64,
    miss_nanos: AtomicU64,
}

impl MissCosts {
    /// An answer has come out of a cache, or has not.
    pub fn note(&self, is_hit: bool, latency: Duration) {
        let (count, average) = if is_hit { (&self.hits, &self.hit_nanos) } else { (&self.misses, &self.miss_nanos) };
        count.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let before = average.load(Ordering::Relaxed);
        let after = if before == 0 { nanos } else { before - (before >> 5) + (nanos >> 5) };
        average.store(after.max(1), Ordering::Relaxed);
    }

    /// What a miss costs more than a hit; `None`: no answer of either kind has been seen.
    pub fn penalty(&self) -> Option<Duration> {
        let (hit, miss) = (self.hit_nanos.load(Ordering::Relaxed), self.miss_nanos.load(Ordering::Relaxed));
        (hit > 0 && miss > 0).then(|| Duration::from_nanos(miss.saturating_sub(hit)))
    }

    /// Hits and misses so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

/// A share of all requests that may be spent, saved up for no more than a moment.
#[derive(Debug, Default)]
pub(super) struct SpillBudget(AtomicI64);

impl SpillBudget {
    /// The most that is saved up: so many requests.
    const SAVED_MAX: i64 = 20;

    /// A request has come, `percent` of which may be spent.
    pub(super) fn earn(&self, percent: u32) {
        if self.0.load(Ordering::Relaxed) < Self::SAVED_MAX * 100 {
            self.0.fetch_add(i64::from(percent), Ordering::Relaxed);
        }
    }

    /// Spends one request, if there is one.
    pub(super) fn spend(&self) -> bool {
        if self.0.load(Ordering::Relaxed) < 100 {
            return false;
        }
        // Two workers at once may overdraw it by one; the next requests pay for that.
        self.0.fetch_sub(100, Ordering::Relaxed);
        true
    }
}

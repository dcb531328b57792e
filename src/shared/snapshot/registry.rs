//! The numbers and records of servers and pools: given once for the process's life, whatever a reload brings.
//!
//! A server that is no longer configured keeps its record for the day it comes back. So many are remembered; then the
//! longest gone are forgotten, and would come back with a new number. A number is never given twice.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::base::id::{ServerId, ServerSlot};
use crate::pure::pool::{Address, Server};
use crate::shared::counters::{PoolRecord, ServerRecord};

/// The most servers, and the most pools, that are remembered beside the configured ones.
const RETIRED_MAX: usize = 65_536;

/// Who has been configured, and who is.
#[derive(Debug, Default)]
pub(super) struct Registry {
    servers: HashMap<ServerId, Entry<ServerEntry>>,
    pools: HashMap<Arc<str>, Entry<Arc<PoolRecord>>>,
    /// Pool and position of each configured server.
    places: HashMap<ServerSlot, (usize, usize)>,
    /// Counts configurations.
    round: u64,
    next_slot: u32,
    generation: u64,
    roster: u64,
    whereabouts: u64,
}

#[derive(Debug)]
struct Entry<T> {
    what: T,
    /// The last configuration that had it.
    round: u64,
}

#[derive(Debug)]
struct ServerEntry {
    record: Arc<ServerRecord>,
    address: Address,
    /// The addresses of its name, once it has been resolved.
    named: Arc<[SocketAddr]>,
    incarnation: u32,
}

/// A server of a configuration, as it is known.
#[derive(Debug)]
pub(super) struct Enrolled {
    /// Its record.
    pub(super) record: Arc<ServerRecord>,
    /// Which of its addresses it has now.
    pub(super) incarnation: u32,
    /// The addresses of its name.
    pub(super) named: Arc<[SocketAddr]>,
}

impl Registry {
    /// Begins a configuration.
    pub(super) fn begin(&mut self) {
        self.round += 1;
        self.whereabouts += 1;
        self.places.clear();
    }

    /// Ends a configuration: forgets the longest gone where too many are remembered.
    pub(super) fn end(&mut self) {
        forget_longest_gone(&mut self.servers, self.round, RETIRED_MAX);
        forget_longest_gone(&mut self.pools, self.round, RETIRED_MAX);
    }

    /// What is known of a server of this configuration.
    pub(super) fn enrol(&mut self, server: &Server, place: (usize, usize)) -> Enrolled {
        let next_slot = &mut self.next_slot;
        let entry = self.servers.entry(server.id.clone()).or_insert_with(|| {
            let slot = ServerSlot(*next_slot);
            *next_slot += 1;
            let record = Arc::new(ServerRecord::new(server.id.clone(), slot));
            let address = server.address.clone();
            Entry { what: ServerEntry { record, address, named: Arc::default(), incarnation: 0 }, round: 0 }
        });
        entry.round = self.round;
        let known = &mut entry.what;
        if known.address != server.address {
            known.address = server.address.clone();
            known.named = Arc::default();
            known.incarnation += 1;
            known.record.moves(known.incarnation);
        }
        self.places.insert(known.record.slot, place);
        Enrolled { record: Arc::clone(&known.record), incarnation: known.incarnation, named: Arc::clone(&known.named) }
    }

    /// Notes the addresses that a server's name has now, and counts them; `None`: they are those it had, in whatever order.
    pub(super) fn resolve(&mut self, id: &ServerId, addresses: &Arc<[SocketAddr]>) -> Option<u32> {
        let known = &mut self.servers.get_mut(id)?.what;
        let is_same = known.named.len() == addresses.len() && addresses.iter().all(|one| known.named.contains(one));
        if is_same {
            return None;
        }
        known.named = Arc::clone(addresses);
        known.incarnation += 1;
        known.record.moves(known.incarnation);
        self.whereabouts += 1;
        Some(known.incarnation)
    }

    /// The record of a pool of this configuration.
    pub(super) fn pool_record(&mut self, name: &Arc<str>) -> Arc<PoolRecord> {
        let entry = self
            .pools
            .entry(Arc::clone(name))
            .or_insert_with(|| Entry { what: Arc::new(PoolRecord::new(Arc::clone(name))), round: 0 });
        entry.round = self.round;
        Arc::clone(&entry.what)
    }

    /// Pool and position of a configured server.
    pub(super) fn place(&self, slot: ServerSlot) -> Option<(usize, usize)> {
        self.places.get(&slot).copied()
    }

    /// A number that no pool's snapshot has had.
    pub(super) const fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// Another for each configuration, and for each change of addresses.
    pub(super) const fn whereabouts(&self) -> u64 {
        self.whereabouts
    }

    /// A number that no list of servers has had.
    pub(super) const fn next_roster(&mut self) -> u64 {
        self.roster += 1;
        self.roster
    }
}

fn forget_longest_gone<K: Clone + Eq + std::hash::Hash, T>(
    entries: &mut HashMap<K, Entry<T>>,
    round: u64,
    retired_max: usize,
) {
    let mut gone: Vec<(u64, K)> = entries
        .iter()
        .filter(|(_, entry)| entry.round < round)
        .map(|(key, entry)| (entry.round, key.clone()))
        .collect();
    let excess = gone.len().saturating_sub(retired_max);
    if excess > 0 {
        gone.sort_by_key(|(round, _)| *round);
        for (_, key) in gone.iter().take(excess) {
            entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gone_are_forgotten_first_and_the_configured_never() {
        let mut entries: HashMap<u32, Entry<()>> =
            (0..10).map(|number| (number, Entry { what: (), round: u64::from(number) })).collect();
        forget_longest_gone(&mut entries, 9, 3);
        let mut left: Vec<_> = entries.into_keys().collect();
        left.sort_unstable();
        assert_eq!(left, [6, 7, 8, 9]);
    }

    #[test]
    fn a_number_is_not_given_again_when_its_server_is_forgotten() {
        let server = |name: &str| Server {
            id: ServerId { pool: "p".into(), server: name.into() },
            address: Address::Name("h".to_owned(), 1),
            weight: 1,
            max: None,
            is_backup: false,
        };
        let mut registry = Registry::default();
        registry.begin();
        assert_eq!(registry.enrol(&server("a"), (0, 0)).record.slot, ServerSlot(0));
        registry.begin();
        forget_longest_gone(&mut registry.servers, registry.round, 0);
        assert_eq!(registry.enrol(&server("a"), (0, 0)).record.slot, ServerSlot(1));
        assert_eq!(registry.enrol(&server("b"), (0, 1)).record.slot, ServerSlot(2));
        assert_eq!(registry.enrol(&server("a"), (0, 0)).record.slot, ServerSlot(1));
    }
}

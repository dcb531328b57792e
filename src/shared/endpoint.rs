//! A server as requests hold it: what the rule files say, what is counted, and where it is reached now.
//!
//! The addresses of a name are those that it had when the snapshot was made: nothing here resolves anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pure::pool::{Address, Server};
use crate::shared::counters::ServerRecord;

/// A server as a request holds it: one count of references, whatever is needed of it.
#[derive(Debug)]
pub struct Endpoint {
    /// What the rule files say.
    pub server: Arc<Server>,
    /// What is counted.
    pub record: Arc<ServerRecord>,
    /// Counts the addresses it has had.
    pub incarnation: u32,
    /// Whether its pool's scheduler asks how fast it answers.
    pub is_measured: bool,
    /// The addresses of its name.
    named: Arc<[SocketAddr]>,
    /// The position among them of the one that a connection was last made to.
    last_good: AtomicUsize,
}

impl Endpoint {
    /// A server whose name, where it has one, has the addresses `named`.
    pub fn new(server: Arc<Server>, record: Arc<ServerRecord>, incarnation: u32, named: Arc<[SocketAddr]>) -> Self {
        Self { server, record, incarnation, is_measured: false, named, last_good: AtomicUsize::new(0) }
    }

    /// The same, measured or not.
    pub const fn measured(mut self, is_measured: bool) -> Self {
        self.is_measured = is_measured;
        self
    }

    /// The addresses of its name; empty where it has none, or where the name has not been resolved yet.
    pub fn named(&self) -> &[SocketAddr] {
        &self.named
    }

    /// The same addresses in the order in which they are tried: from the one that worked last, round to that before it.
    pub fn named_from_last_good(&self) -> impl Iterator<Item = (usize, SocketAddr)> + use<'_> {
        let count = self.named.len();
        let first = self.last_good.load(Ordering::Relaxed);
        (0..count).filter_map(move |step| {
            let position = (first + step) % count;
            self.named.get(position).map(|address| (position, *address))
        })
    }

    /// A connection was made to the address at that position.
    pub fn worked(&self, position: usize) {
        // Written only where it changes, so that the cache line stays shared.
        if self.last_good.load(Ordering::Relaxed) != position {
            self.last_good.store(position, Ordering::Relaxed);
        }
    }

    /// Whether a connection to `peer` leads to where this server is now; a unix socket has no peer to tell by.
    pub fn leads_to(&self, peer: Option<SocketAddr>) -> bool {
        match (&self.server.address, peer) {
            (Address::Socket(address), Some(peer)) => *address == peer,
            (Address::Name(..), Some(peer)) => self.named.contains(&peer),
            (Address::Unix(_), _) | (_, None) => false,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::id::{ServerId, ServerSlot};

    /// A server of that address, whose name has the addresses `named`.
    pub(crate) fn endpoint(address: Address, named: &[SocketAddr]) -> Endpoint {
        let id = ServerId { pool: "p".into(), server: "s".into() };
        let server = Server { id: id.clone(), address, weight: 1, max: None, is_backup: false };
        Endpoint::new(Arc::new(server), Arc::new(ServerRecord::new(id, ServerSlot(0))), 0, named.into())
    }

    #[test]
    fn addresses_are_tried_from_the_last_good_one_on() {
        let all: Vec<SocketAddr> = (1..4).map(|last| ([127, 0, 0, last], 80).into()).collect();
        let endpoint = endpoint(Address::Name("a.test".to_owned(), 80), &all);
        let order = || endpoint.named_from_last_good().map(|(position, _)| position).collect::<Vec<_>>();
        assert_eq!(order(), [0, 1, 2]);
        endpoint.worked(2);
        assert_eq!(order(), [2, 0, 1]);
        assert!(endpoint.leads_to(Some(all[1])) && !endpoint.leads_to(None));
        assert!(!endpoint.leads_to(Some(([127, 0, 0, 9], 80).into())));
    }
}

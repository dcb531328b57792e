//! What all workers share besides the snapshot: limits and counters of the whole process. Atomics, and one sharded table.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::id::ListenerIndex;
use crate::base::rng::derive_seed;
use crate::pure::config::ProcessLimits;
use crate::pure::h2::frames::Fault;
use crate::request::listener::Listener;
use crate::request::proxy_header::HeaderRefused;
use crate::shared::cookie_sealer::CookieSealer;
use crate::shared::counters::{Counter, ProcessCounters};
use crate::shared::learned_types::LearnedTypes;
use crate::transport::tls::{Connectors, said};

/// The most paths whose media type is remembered.
const LEARNED_MAX: usize = 65_536;

/// How many client connections there are, and may be.
#[derive(Debug)]
pub struct Connections {
    now: AtomicU32,
    max: u32,
    /// How many requests are about to take the last descriptors.
    in_need: AtomicU32,
}

/// While it lives, what becomes free is for a request that was accepted.
#[derive(Debug)]
pub struct InNeed<'c>(&'c Connections);

impl Drop for InNeed<'_> {
    fn drop(&mut self) {
        self.0.in_need.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    fn new(max: u32) -> Self {
        Self { now: AtomicU32::new(0), max: max.max(1), in_need: AtomicU32::new(0) }
    }

    /// Whether no further connection may be accepted at present.
    pub fn is_full(&self) -> bool {
        self.now.load(Ordering::Relaxed) >= self.max || self.in_need.load(Ordering::Relaxed) > 0
    }

    /// Has accepting wait.
    pub fn hold(&self) -> InNeed<'_> {
        self.in_need.fetch_add(1, Ordering::Relaxed);
        InNeed(self)
    }

    /// A connection comes, where there is a place for it.
    pub fn try_enter(&self) -> bool {
        let next = |now: u32| (now < self.max).then_some(now + 1);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// A connection comes, whatever the bound.
    pub fn enter(&self) {
        self.now.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection ends.
    pub fn leave(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many there may be.
    pub const fn max(&self) -> u32 {
        self.max
    }

    /// Connections now.
    pub fn count(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }
}

/// What all workers share.
#[derive(Debug)]
pub struct Process {
    /// The limits of the process.
    pub limits: ProcessLimits,
    /// Its counters.
    pub counters: Arc<ProcessCounters>,
    /// TLS handshakes done.
    pub handshakes: Counter,
    /// TLS handshakes that failed or did not come to their end in time.
    pub handshakes_failed: Counter,
    /// Connections that were closed because of their PROXY header, or for want of one.
    pub proxy_headers_refused: Counter,
    /// Streams of HTTP/2 that were refused, since their client had `streams-max` of them.
    pub h2_streams_refused: Counter,
    /// HTTP/2 connections that were ended because their client sent more of what costs it nothing than is borne.
    pub h2_floods: Counter,
    /// Those that were ended because their client broke the protocol.
    pub h2_errors: Counter,
    /// Accepts that failed for want of descriptors or memory.
    pub accept_errors: Counter,
    /// The media types that paths last answered with.
    pub learned: LearnedTypes,
    /// Its client connections.
    pub connections: Connections,
    /// Connections per client address, where a listener bounds them.
    pub clients: ClientTable,
    /// What the workers' random numbers start from.
    pub seed: u64,
    /// TLS towards the servers; each worker has a copy of its own.
    pub connectors: Connectors,
    /// The keys of persistence cookies, where a pool gives any.
    pub sealer: Option<CookieSealer>,
    /// Secret: what the hashes of clients in tables of choices start from.
    pub choices_seed: u64,
}

impl Process {
    /// A process with those limits, for at most `connections_max` client connections.
    pub fn new(limits: ProcessLimits, connections_max: u32, seed: u64, counters: Arc<ProcessCounters>) -> Self {
        Self {
            limits,
            counters,
            handshakes: Counter::default(),
            handshakes_failed: Counter::default(),
            proxy_headers_refused: Counter::default(),
            h2_streams_refused: Counter::default(),
            h2_floods: Counter::default(),
            h2_errors: Counter::default(),
            accept_errors: Counter::default(),
            learned: LearnedTypes::new(LEARNED_MAX, derive_seed(seed, "media types", 0)),
            connections: Connections::new(connections_max),
            clients: ClientTable::default(),
            seed,
            connectors: Connectors::default(),
            sealer: None,
            choices_seed: derive_seed(seed, "choices of clients", 0),
        }
    }

    /// The same, for pools whose servers speak TLS.
    #[must_use]
    pub fn with_connectors(mut self, connectors: Connectors) -> Self {
        self.connectors = connectors;
        self
    }

    /// The same, for pools that give their clients cookies.
    #[must_use]
    pub fn with_sealer(mut self, sealer: Option<CookieSealer>) -> Self {
        self.sealer = sealer;
        self
    }

    /// Counts an HTTP/2 connection that ends by a fault of its client, and says so now and then. `has_begun`: the client has sent
    /// the preface.
    pub fn say_h2_broken(&self, fault: Fault, has_begun: bool, peer: SocketAddr, listener: &Listener) {
        let (counter, what) = match fault {
            _ if !has_begun => (&self.h2_errors, "it does not speak HTTP/2"),
            Fault::Flood => (&self.h2_floods, "it sent more than is borne of what costs it nothing"),
            Fault::Protocol | Fault::FrameSize | Fault::Compression | Fault::StreamClosed | Fault::FlowControl => {
                (&self.h2_errors, "it broke the protocol")
            }
        };
        counter.add(1);
        if listener.said.faults.is_due() {
            tracing::info!("the HTTP/2 connection of {peer} to {} was ended: {what}", listener.place());
        }
    }

    /// Counts an accept that failed, and says so now and then.
    pub fn say_accept_error(&self, error: &io::Error, listener: &Listener) {
        self.accept_errors.add(1);
        if listener.said.accepts.is_due() {
            tracing::warn!("accepting on {} failed, and waits: {error}", listener.place());
        }
    }

    /// Counts a handshake that has failed, and says so now and then; not of a client that has gone away.
    pub fn say_handshake_failed(&self, error: &io::Error, peer: SocketAddr, listener: &Listener) {
        self.handshakes_failed.add(1);
        let has_gone = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
        if !has_gone && listener.said.handshakes.is_due() {
            tracing::info!("the TLS handshake of {peer} with {} failed: {}", listener.place(), said(error));
        }
    }

    /// Counts streams of HTTP/2 that were refused for `streams-max`, and says so now and then.
    pub fn say_streams_refused(&self, count: u64, peer: SocketAddr, listener: &Listener) {
        self.h2_streams_refused.add(count);
        if listener.said.streams.is_due() {
            tracing::info!("streams of {peer} to {} were refused: it has `streams-max` of them open", listener.place());
        }
    }

    /// Counts a connection that is closed because of its PROXY header, and says so now and then.
    pub fn say_header_refused(&self, refused: &HeaderRefused, peer: SocketAddr, listener: &Listener) {
        self.proxy_headers_refused.add(1);
        if listener.said.headers.is_due() {
            tracing::warn!("a connection from {peer} to {} was closed: {refused}", listener.place());
        }
    }
}

/// Shards of the client table.
const SHARDS: usize = 16;

/// Connections per listener and client address: each listener has a limit of its own. It holds an entry only while its client has a connection, so that the most connections
/// bound it too. IPv6 clients count by their /64, the smallest network that is handed out.
#[derive(Debug, Default)]
pub struct ClientTable {
    shards: [Arc<Mutex<HashMap<Client, u32>>>; SHARDS],
}

type Client = (ListenerIndex, IpAddr);

/// A connection's place in the table; it leaves with this.
#[derive(Debug)]
pub struct ClientPlace {
    /// Whether the client has more connections than it may.
    pub is_over_limit: bool,
    shard: Arc<Mutex<HashMap<Client, u32>>>,
    client: Client,
}

impl ClientTable {
    /// Counts a connection of `client` to a listener, where it may have `max`.
    pub fn enter(&self, listener: ListenerIndex, client: IpAddr, max: u32) -> ClientPlace {
        let client = match client.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
            v4 @ IpAddr::V4(_) => v4,
        };
        let spread = match client {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        };
        let index = (spread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize % SHARDS;
        let shard = Arc::clone(self.shards.get(index).unwrap_or(&self.shards[0]));
        let count = {
            let mut counts = shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let count = counts.entry((listener, client)).or_default();
            *count += 1;
            *count
        };
        ClientPlace { is_over_limit: count > max, shard, client: (listener, client) }
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut counts = self.shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ListenerIndex = ListenerIndex(0);

    #[test]
    fn a_client_is_over_its_limit_until_one_of_its_connections_ends() {
        let table = ClientTable::default();
        let client = "192.0.2.1".parse().unwrap();
        let first = table.enter(HERE, client, 1);
        assert!(!first.is_over_limit);
        assert!(table.enter(HERE, client, 1).is_over_limit);
        drop(first);
        assert!(!table.enter(HERE, client, 1).is_over_limit);
        assert!(table.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn addresses_of_one_64_bit_network_are_one_client() {
        let table = ClientTable::default();
        let _first = table.enter(HERE, "2001:db8::1".parse().unwrap(), 1);
        assert!(table.enter(HERE, "2001:db8::2".parse().unwrap(), 1).is_over_limit);
        assert!(!table.enter(HERE, "2001:db8:0:1::2".parse().unwrap(), 1).is_over_limit);
    }

    #[test]
    fn connections_to_one_listener_do_not_count_at_another() {
        let table = ClientTable::default();
        let client = "192.0.2.1".parse().unwrap();
        let _many: Vec<_> = (0..100).map(|_| table.enter(HERE, client, 100)).collect();
        assert!(!table.enter(ListenerIndex(1), client, 1).is_over_limit);
    }
}

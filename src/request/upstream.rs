//! One worker's idle connections to servers: the last one used is the first one taken.
//!
//! Bounded per server by `idle-max` and in time by `idle-timeout`, which is below the server's own, so that the server seldom
//! closes first. A connection that closed or spoke while it was idle is never used (RFC 9112 9.2), nor is one to an address
//! that is no longer the server's. It refuses to dial.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::request::stream::ServerStream;
use crate::shared::endpoint::Endpoint;

/// The client's connection that a connection to a server is for, where the server was told of it: no other may use it. The number
/// comes again once the client's connection has ended and those that were for it have been let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(pub usize);

#[derive(Debug)]
struct Idle {
    stream: ServerStream,
    since: Timestamp,
    owner: Option<Owner>,
}

/// The idle connections to one server.
#[derive(Debug, Default)]
struct Shelf {
    connections: VecDeque<Idle>,
    timeout: Duration,
    /// The address the connections lead to, as a number that grows with each change.
    incarnation: u32,
}

impl Shelf {
    /// Takes the last connection of that owner. Where nobody owns any, that is the last of all.
    #[inline]
    fn last_of(&mut self, owner: Option<Owner>) -> Option<Idle> {
        if self.connections.back()?.owner == owner {
            return self.connections.pop_back();
        }
        let at = self.connections.iter().rposition(|idle| idle.owner == owner)?;
        self.connections.remove(at)
    }

    /// Lets go of connections to addresses that are no longer the server's. False: `endpoint` is one of the past itself.
    #[inline]
    fn follow(&mut self, endpoint: &Endpoint) -> bool {
        if self.incarnation < endpoint.incarnation {
            self.connections.retain(|idle| endpoint.leads_to(idle.stream.peer_address()));
            self.incarnation = endpoint.incarnation;
        }
        self.incarnation == endpoint.incarnation
    }
}

/// The idle connections of one worker.
#[derive(Debug, Default)]
pub struct IdleConnections {
    /// By server number: they are dense, and no hash is as cheap as an index.
    shelves: RefCell<Vec<Shelf>>,
}

impl IdleConnections {
    /// A connection of that owner, or of nobody's, that was silent while it was idle. `is_certain` looks at the socket
    /// itself: for requests that can't be sent again.
    pub fn take(
        &self,
        endpoint: &Endpoint,
        owner: Option<Owner>,
        now: Timestamp,
        is_certain: bool,
    ) -> Option<ServerStream> {
        let mut shelves = self.shelves.borrow_mut();
        let shelf = shelves.get_mut(endpoint.record.slot.0 as usize)?;
        if !shelf.follow(endpoint) {
            return None;
        }
        while let Some(mut idle) = shelf.last_of(owner) {
            if now.since(idle.since) < shelf.timeout && idle.stream.is_quiet(is_certain) {
                return Some(idle.stream);
            }
        }
        None
    }

    /// Keeps a connection whose exchange is over, unless `max` are kept already.
    pub fn put(
        &self,
        endpoint: &Endpoint,
        owner: Option<Owner>,
        stream: ServerStream,
        now: Timestamp,
        max: usize,
        timeout: Duration,
    ) {
        let mut shelves = self.shelves.borrow_mut();
        let index = endpoint.record.slot.0 as usize;
        if shelves.len() <= index {
            shelves.resize_with(index + 1, Shelf::default);
        }
        let Some(shelf) = shelves.get_mut(index) else { return };
        if !shelf.follow(endpoint) {
            // Its exchange began before the address changed.
            return;
        }
        shelf.timeout = timeout;
        if shelf.connections.len() < max {
            shelf.connections.push_back(Idle { stream, since: now, owner });
        }
    }

    /// Closes those of an owner that has ended.
    pub fn forget(&self, owner: Owner) {
        for shelf in self.shelves.borrow_mut().iter_mut() {
            shelf.connections.retain(|idle| idle.owner != Some(owner));
        }
    }

    /// Lets go of what is too old, closed or chattering.
    pub fn sweep(&self, now: Timestamp) {
        for shelf in self.shelves.borrow_mut().iter_mut() {
            let timeout = shelf.timeout;
            shelf.connections.retain_mut(|idle| now.since(idle.since) < timeout && idle.stream.is_quiet(false));
            if shelf.connections.is_empty() {
                shelf.connections = VecDeque::new();
            }
        }
    }

    /// Lets go of what leads to addresses that are no longer those of `endpoint`.
    pub fn follow(&self, endpoint: &Endpoint) {
        if let Some(shelf) = self.shelves.borrow_mut().get_mut(endpoint.record.slot.0 as usize) {
            shelf.follow(endpoint);
        }
    }

    /// How many connections are kept.
    pub fn len(&self) -> usize {
        self.shelves.borrow().iter().map(|shelf| shelf.connections.len()).sum()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes all of them.
    pub fn clear(&self) {
        self.shelves.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::base::id::{ServerId, ServerSlot};
    use crate::pure::pool::{Address, Server};
    use crate::shared::counters::ServerRecord;

    /// A server of that name, at its `incarnation`th set of addresses.
    fn endpoint(incarnation: u32, named: &[SocketAddr]) -> Endpoint {
        let id = ServerId { pool: "p".into(), server: "s".into() };
        let address = Address::Name("a.test".to_owned(), 80);
        let server = Server { id: id.clone(), address, weight: 1, max: None, is_backup: false };
        let record = Arc::new(ServerRecord::new(id, ServerSlot(3)));
        Endpoint::new(Arc::new(server), record, incarnation, named.into())
    }

    #[test]
    fn connections_to_addresses_that_have_left_go_and_none_comes_back() {
        crate::request::worker::runtime().unwrap().block_on(async {
            let stays = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let leaves = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (kept, left) = (stays.local_addr().unwrap(), leaves.local_addr().unwrap());
            let (idle, now) = (IdleConnections::default(), Timestamp::default());
            let to = async |address: SocketAddr| ServerStream::Plain(TcpStream::connect(address).await.unwrap());
            let put = |endpoint: &Endpoint, stream| idle.put(endpoint, None, stream, now, 8, Duration::from_secs(1));
            let (before, after) = (endpoint(0, &[kept, left]), endpoint(1, &[kept]));
            put(&before, to(kept).await);
            put(&before, to(left).await);
            idle.follow(&after);
            assert_eq!(idle.len(), 1, "that to the old address is gone");
            put(&before, to(left).await);
            assert_eq!(idle.len(), 1, "an exchange that outlives an address brings none back");
            assert!(idle.take(&before, None, now, false).is_none());
            assert_eq!(idle.take(&after, None, now, false).unwrap().peer_address(), Some(kept));
            put(&after, to(kept).await);
            assert!(idle.take(&endpoint(2, &[left]), None, now, false).is_none());
            assert!(idle.is_empty());
        });
    }
}

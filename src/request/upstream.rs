//! One worker's idle connections to servers: the last one used is the first one taken.
//!
//! Bounded per server by `idle-max` and in time by `idle-timeout`, which is below the server's own, so that the server seldom
//! closes first. A connection that closed or spoke while it was idle is never used (RFC 9112 9.2). It refuses to dial.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;
use crate::request::stream::ServerStream;

/// The client's connection that a connection to a server is for, where the server was told of it: no other may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(pub u64);

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
        (slot, incarnation): (ServerSlot, u32),
        owner: Option<Owner>,
        now: Timestamp,
        is_certain: bool,
    ) -> Option<ServerStream> {
        let mut shelves = self.shelves.borrow_mut();
        let shelf = shelves.get_mut(slot.0 as usize)?;
        if shelf.incarnation != incarnation {
            return None;
        }
        // Where nobody owns any, the last one is the one.
        while let Some(at) = shelf.connections.iter().rposition(|idle| idle.owner == owner) {
            let idle = shelf.connections.remove(at)?;
            if now.since(idle.since) < shelf.timeout && idle.stream.is_quiet(is_certain) {
                return Some(idle.stream);
            }
        }
        None
    }

    /// Keeps a connection whose exchange is over, unless `max` are kept already.
    pub fn put(
        &self,
        (slot, incarnation): (ServerSlot, u32),
        owner: Option<Owner>,
        stream: ServerStream,
        now: Timestamp,
        max: usize,
        timeout: Duration,
    ) {
        let mut shelves = self.shelves.borrow_mut();
        let index = slot.0 as usize;
        if shelves.len() <= index {
            shelves.resize_with(index + 1, Shelf::default);
        }
        let Some(shelf) = shelves.get_mut(index) else { return };
        if shelf.incarnation > incarnation {
            // Its exchange began before the address changed.
            return;
        }
        if shelf.incarnation < incarnation {
            shelf.connections.clear();
            shelf.incarnation = incarnation;
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
            shelf.connections.retain(|idle| now.since(idle.since) < timeout && idle.stream.is_quiet(false));
            if shelf.connections.is_empty() {
                shelf.connections = VecDeque::new();
            }
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
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_exchange_that_outlives_an_address_brings_no_connection_to_the_old_one_back() {
        crate::request::worker::runtime().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut kept = Vec::new();
            let mut connections = Vec::new();
            for _ in 0..3 {
                connections.push(ServerStream::Plain(TcpStream::connect(address).await.unwrap()));
                kept.push(listener.accept().await.unwrap());
            }
            let (idle, slot, now) = (IdleConnections::default(), ServerSlot(3), Timestamp::default());
            let mut put = |incarnation| {
                idle.put((slot, incarnation), None, connections.pop().unwrap(), now, 8, Duration::from_secs(1));
            };
            put(0);
            put(1);
            assert_eq!(idle.len(), 1, "that to the old address is gone");
            put(0);
            assert_eq!(idle.len(), 1);
            assert!(idle.take((slot, 0), None, now, false).is_none());
            assert!(idle.take((slot, 1), None, now, false).is_some());
        });
    }
}

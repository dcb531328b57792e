//! Names and numbers by which parts of the product refer to each other.

use std::sync::Arc;

/// A server's identity: the names of its pool and of itself. It outlives a change of address, so that counters do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId {
    /// The pool's name.
    pub pool: Arc<str>,
    /// The server's name, unique in its pool.
    pub server: Arc<str>,
}

impl std::fmt::Display for ServerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.pool, self.server)
    }
}

/// A number given once per [`ServerId`] and process and never given again: the index of tables on a request's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerSlot(pub u32);

/// A pool's position in its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolIndex(pub u32);

/// A listener's position in its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerIndex(pub u32);

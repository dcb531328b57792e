//! Pools and their servers as configured, and the small live view of them that a scheduler chooses from.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::id::ServerId;
use crate::base::units::Bytes;
use crate::pure::check::CheckConfig;
use crate::pure::config::CertificateFiles;
use crate::pure::detection::Detection;
use crate::pure::feedback::agent_check::AgentCheck;
use crate::pure::feedback::weights::FeedbackConfig;
use crate::pure::persistence::Persistence;
use crate::pure::proxy_protocol::Version;
use crate::pure::recovery::plan::Plan;
use crate::pure::rule::KeySource;

mod load;
mod pace;
mod run_queue;
mod state;
mod view;

pub use load::Load;
pub use pace::Pace;
pub use run_queue::RunQueue;
pub use state::{State, Wanted};
pub use view::{Candidate, Ineligible, PoolView, Share, Tried, is_in_panic};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a port.
    Socket(SocketAddr),
    /// A host name in lower case that is resolved again by TTL, and a port.
    Name(String, u16),
    /// A unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(address) => write!(f, "{address}"),
            Self::Name(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A server as the rule file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Pool and server name.
    pub id: ServerId,
    /// Where it listens.
    pub address: Address,
    /// Its configured share, 0..=65535; 0 gets nothing.
    pub weight: u16,
    /// The most requests it may have in flight; `None`: no bound.
    pub max: Option<u32>,
    /// Whether it stands by, and gets requests only where no other server of its pool may get them.
    pub is_backup: bool,
}

/// How the servers of a pool are spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The protocol.
    pub protocol: UpstreamProtocol,
    /// The most idle connections kept per worker and server.
    pub idle_max: u32,
    /// How long an idle connection is kept; below the server's own keep-alive time.
    pub idle_timeout: Duration,
    /// The PROXY header that each connection begins with, so that a server learns who the client is; `None`: without one.
    pub proxy_protocol: Option<Version>,
    /// TLS, where it is spoken.
    pub tls: Option<UpstreamTls>,
}

/// How TLS is spoken with the servers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// What a server's certificate is held against.
    pub verification: Verification,
    /// The name or the IP address that it has to be for; `None`: the one by which the server is reached.
    pub server_name: Option<String>,
    /// What a server is shown that asks for a certificate.
    pub certificate: Option<CertificateFiles>,
}

/// What servers' certificates are held against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// The authorities that the system trusts.
    #[default]
    System,
    /// Those of this PEM file.
    Authorities(PathBuf),
    /// Nothing: whoever can take the connection over can read and change all of it.
    Insecure,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            protocol: UpstreamProtocol::Http1,
            idle_max: 128,
            idle_timeout: Duration::from_secs(4),
            proxy_protocol: None,
            tls: None,
        }
    }
}

/// Protocols towards servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: over TLS by ALPN, without TLS by prior knowledge (RFC 9113 3.2, 3.3).
    Http2,
}

/// The time bounds of a pool's exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection to be made.
    pub connect: Duration,
    /// For any wait for the server's bytes, head or body, while we are reading.
    pub response: Duration,
    /// For a tunnel in which no byte moves.
    pub tunnel: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(2), response: Duration::from_secs(60), tunnel: Duration::from_secs(3600) }
    }
}

/// When a request is sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The most repetitions of one request.
    pub count: u32,
    /// After a connection could not be made.
    pub on_connect: bool,
    /// After a connection broke before a byte of the answer came.
    pub on_reset: bool,
    /// After one of these answers: some of 500, 502, 503, 504. The head is held back until the choice is made.
    pub on_status: Vec<u16>,
}

impl Default for Retry {
    fn default() -> Self {
        Self { count: 1, on_connect: true, on_reset: true, on_status: Vec::new() }
    }
}

/// The bounds of a pool's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBounds {
    /// The most requests that wait.
    pub max: u32,
    /// How long each of them waits.
    pub timeout: Duration,
}

impl Default for QueueBounds {
    fn default() -> Self {
        Self { max: 1024, timeout: Duration::from_secs(5) }
    }
}

/// How a pool's servers are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// The scheduler.
    pub method: Method,
    /// What decides where the scheduler has no answer: no key, a server that may not get the request, a bound.
    pub fallback: Fallback,
}

impl From<Method> for SchedulerConfig {
    fn from(method: Method) -> Self {
        Self { method, fallback: Fallback::default() }
    }
}

/// What decides where content gives no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// A key that leads to a server that may not get the request leads nowhere: the kernel's way. Without a key, `wlc`.
    None,
    /// A scheduler without a key.
    By(Method),
}

impl Default for Fallback {
    fn default() -> Self {
        Self::By(Method::WeightedLeastConnections(Ties::Rotate))
    }
}

/// A scheduler, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Next eligible after the last.
    RoundRobin,
    /// Shares by weight.
    WeightedRoundRobin(WrrMode),
    /// Least requests in flight.
    LeastConnections(Ties),
    /// Least requests in flight per weight.
    WeightedLeastConnections(Ties),
    /// Shortest expected delay.
    ExpectedDelay(Ties),
    /// An idle server, else the shortest expected delay.
    NeverQueue(Ties),
    /// Shortest expected delay by the capacity that was seen.
    SeenCapacity(Ties),
    /// The better of two that are drawn, by requests in flight.
    TwoChoices,
    /// The better of two that are drawn, by the time they take.
    PeakEwma,
    /// The highest weight.
    Failover,
    /// The highest weight that is not spent.
    Overflow,
    /// By a table of keys, all servers alike.
    DestinationHash(HashMode),
    /// By a table of clients' addresses.
    SourceHash(HashMode),
    /// By a table of keys.
    Maglev,
    /// The highest score for a key.
    Rendezvous,
    /// By a table of keys, with bounded loads.
    BoundedHash {
        /// The most requests in flight, in percent of a server's part.
        percent: u32,
    },
    /// A key has one server until that is overloaded.
    Locality {
        /// The most keys that are remembered.
        keys_max: u32,
    },
    /// A key has a set of servers.
    ReplicatedLocality {
        /// The most keys that are remembered.
        keys_max: u32,
        /// How long a set stays as it is before it shrinks.
        shrink_after: Duration,
    },
    /// Cost-bounded rendezvous.
    CostBounded {
        /// The most keys that are remembered.
        keys_max: u32,
        /// What a miss costs, where it can't be measured.
        miss_cost: Duration,
        /// How many servers a new key may choose among; `None`: all.
        choices: Option<u32>,
    },
    /// The shortest run queue, as servers report it.
    ShortestRunQueue(Reports),
}

impl Method {
    /// Its name in rule files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "rr",
            Self::WeightedRoundRobin(_) => "wrr",
            Self::LeastConnections(_) => "lc",
            Self::WeightedLeastConnections(_) => "wlc",
            Self::ExpectedDelay(_) => "sed",
            Self::NeverQueue(_) => "nq",
            Self::SeenCapacity(_) => "fb-wlc",
            Self::TwoChoices => "p2c",
            Self::PeakEwma => "peak-ewma",
            Self::Failover => "fo",
            Self::Overflow => "ovf",
            Self::DestinationHash(_) => "dh",
            Self::SourceHash(_) => "sh",
            Self::Maglev => "mh",
            Self::Rendezvous => "rendezvous",
            Self::BoundedHash { .. } => "ch-bl",
            Self::Locality { .. } => "lblc",
            Self::ReplicatedLocality { .. } => "lblcr",
            Self::CostBounded { .. } => "cbr",
            Self::ShortestRunQueue(_) => "run-queue",
        }
    }

    /// Whether it goes by a key.
    pub const fn is_keyed(&self) -> bool {
        matches!(
            self,
            Self::DestinationHash(_)
                | Self::SourceHash(_)
                | Self::Maglev
                | Self::Rendezvous
                | Self::BoundedHash { .. }
                | Self::Locality { .. }
                | Self::ReplicatedLocality { .. }
                | Self::CostBounded { .. }
        )
    }

    /// Whether it asks how fast servers answer.
    pub const fn is_measuring(&self) -> bool {
        matches!(self, Self::SeenCapacity(_) | Self::PeakEwma | Self::CostBounded { .. } | Self::ShortestRunQueue(_))
    }

    /// Whether the agents of its servers are asked before requests are given to them.
    pub const fn asks(&self) -> bool {
        matches!(self, Self::ShortestRunQueue(Reports::Pull))
    }

    /// Whether another remembers keys in the same way, whatever its options.
    pub fn remembers_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The most keys whose servers it remembers; `None`: it remembers none.
    pub const fn keys_max(&self) -> Option<u32> {
        match self {
            Self::Locality { keys_max }
            | Self::ReplicatedLocality { keys_max, .. }
            | Self::CostBounded { keys_max, .. } => Some(*keys_max),
            _ => None,
        }
    }
}

impl Default for Method {
    fn default() -> Self {
        Self::WeightedRoundRobin(WrrMode::Smooth)
    }
}

/// How `run-queue` comes to know how long run queues are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reports {
    /// Agents say so by themselves.
    #[default]
    Push,
    /// Agents are asked, and a server whose agent does not answer in time gets nothing.
    Pull,
}

/// How a table of keys is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashMode {
    /// Maglev's: the order in the file moves nothing.
    #[default]
    Maglev,
    /// The kernel's: 256 buckets dealt in file order.
    Ipvs,
}

/// What of a URI's query counts for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyNormalize {
    /// Whether the parameters are sorted first.
    pub sort_query: bool,
    /// The parameters that don't count; `*` stands for any text.
    pub drop: Vec<String>,
}

/// The order in which weighted round robin deals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WrrMode {
    /// The order in which 5,1,1 gives A A B A C A A.
    #[default]
    Smooth,
    /// The kernel's gcd/max walk, in which 4,3,2 gives A A B A B C A B C.
    Ipvs,
}

/// Who wins among equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// They take turns.
    #[default]
    Rotate,
    /// The first in file order: the kernel's way.
    First,
}

/// A pool as the rule file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: Arc<str>,
    /// Its servers in file order.
    pub servers: Vec<Arc<Server>>,
    /// How a server is chosen.
    pub scheduler: SchedulerConfig,
    /// What the scheduler hashes, where the rule says nothing.
    pub key: Option<KeySource>,
    /// What of a query counts for a key; `None`: all of it, as it is.
    pub key_normalize: Option<KeyNormalize>,
    /// How its clients are kept with their servers; `None`: each request is a new one.
    pub persistence: Option<Arc<Persistence>>,
    /// How its servers are checked; `None`: by a connect, and only those that are not well.
    pub check: Option<Arc<CheckConfig>>,
    /// How its servers are suspected.
    pub detection: Detection,
    /// How it follows what its servers say of their load; `None`: it does not say.
    pub feedback: Option<FeedbackConfig>,
    /// What answers speak against a server.
    pub passive: Passive,
    /// Whether answers tell how loaded their server is; `None`: what they say of it is passed on unread.
    pub orca: Option<Orca>,
    /// How its servers are asked what they say of themselves (HAProxy's agent-check); `None`: they are not.
    pub agent_check: Option<Arc<AgentCheck>>,
    /// How its servers are spoken to.
    pub upstream: Upstream,
    /// Its time bounds.
    pub timeouts: Timeouts,
    /// When a request is sent again.
    pub retry: Retry,
    /// Where requests wait that no server has a place for; `None`: they are refused at once.
    pub queue: Option<QueueBounds>,
    /// What is done to bring its servers back; `None`: nothing.
    pub recovery: Option<Arc<Plan>>,
    /// How long the share of a server rises that comes back, or comes new by a reload; `None`: it has its whole share at once.
    pub slow_start: Option<Duration>,
}

impl Pool {
    /// How it follows what its servers say of their load; a scheduler that goes by capacity does without being told to.
    pub fn follows_reports(&self) -> Option<FeedbackConfig> {
        let by_scheduler = matches!(self.scheduler.method, Method::SeenCapacity(_)).then(FeedbackConfig::default);
        self.feedback.or(by_scheduler)
    }

    /// Whether an answer of that status is a failure of the server: one of those for which a request is sent again, or that the
    /// rule file counts against servers.
    pub fn is_failure(&self, status: u16) -> bool {
        self.retry.on_status.contains(&status) || self.passive.statuses.contains(&status)
    }
}

/// What of servers' answers is looked at beside what clients get of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passive {
    /// The statuses that count against a server, besides those for which a request is sent again.
    pub statuses: Vec<u16>,
}

/// What answers tell of their server's load, and what becomes of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orca {
    /// Whether clients get to see it.
    pub is_passed_on: bool,
}

/// The most of a request's body that is kept for a repetition.
pub const RETRY_BODY_MAX: Bytes = Bytes::kib(64);

#[cfg(test)]
mod tests;

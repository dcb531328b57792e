//! The state of a running proxy as data: what `GET /status` answers, as JSON. All keys are always there; what is not known, or
//! does not apply, is null or empty. Times are whole microseconds, as in the access log; counts are since the start.

use serde::{Deserialize, Serialize};

use super::control::{AlertStatus, AvailabilityStatus, EvidenceStatus, RecoveryStatus};
use super::feedback::FeedbackStatus;
use super::heard::{AgentCheckStatus, ReportsStatus};

/// A running proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The process.
    pub process: ProcessStatus,
    /// Its pools, in the order of the rule files.
    pub pools: Vec<PoolStatus>,
}

/// The process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessStatus {
    /// The version of the binary.
    pub version: String,
    /// The process id.
    pub pid: u32,
    /// Since it began to serve.
    pub uptime_seconds: u64,
    /// Worker threads.
    pub workers: usize,
    /// Client connections now.
    pub connections: u32,
    /// The most client connections.
    pub connections_max: u32,
    /// TLS handshakes with clients that were done.
    pub tls_handshakes: u64,
    /// Those that failed.
    pub tls_handshakes_failed: u64,
    /// Connections that were closed because of their PROXY header, or for want of one.
    pub proxy_headers_refused: u64,
    /// Streams of HTTP/2 that were refused, since their client had as many as it may.
    pub http2_streams_refused: u64,
    /// HTTP/2 connections that were ended because their client sent more of what costs it nothing than is borne.
    pub http2_floods: u64,
    /// Those that were ended because their client broke the protocol.
    pub http2_errors: u64,
    /// Accepts that failed for want of descriptors or memory.
    pub accept_errors: u64,
    /// Snapshots of the configuration that somebody still holds: the one that counts, and those that idle workers last saw.
    pub snapshots_alive: u64,
    /// Panics that were caught, each of which has ended a connection.
    pub panics: u64,
    /// The access log; none where there is none.
    pub access_log: Option<LogStatus>,
    /// What agents report; none where nobody listens to them.
    pub feedback: Option<ReportsStatus>,
    /// What servers answer to agent-checks; none where no pool has one.
    pub agent_checks: Option<AgentCheckStatus>,
    /// Alerts; all zero where nobody is alerted.
    pub alerts: AlertStatus,
}

/// The access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogStatus {
    /// Lines that were written.
    pub written: u64,
    /// Lines that were lost.
    pub dropped: u64,
    /// Writes and openings that failed.
    pub errors: u64,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its scheduler.
    pub scheduler: String,
    /// What the scheduler hashes, where a rule says nothing else.
    pub key: Option<String>,
    /// What is asked of its servers, such as `http GET /health`; none where only servers that are not well are tried.
    pub check: Option<String>,
    /// Whether suspicion is ignored, for so few of its servers are up.
    pub in_panic: bool,
    /// How available it was: in service while one of its servers is.
    pub availability: Option<AvailabilityStatus>,
    /// Its servers, in the order of the rule files, the backups behind the others.
    pub servers: Vec<ServerStatus>,
    /// Where its requests wait; none where they don't.
    pub queue: Option<QueueStatus>,
    /// The table of the clients that belong to a server; none where the pool keeps none.
    pub persistence: Option<TableStatus>,
    /// How well keys stay together; none where the scheduler goes by no key.
    pub locality: Option<LocalityStatus>,
}

/// The queue of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Requests that wait now.
    pub waiting: u32,
    /// The most that may.
    pub max: u32,
    /// Requests that have waited, or do.
    pub waited: u64,
    /// Requests that were refused because as many waited as may.
    pub turned_away: u64,
    /// Requests that waited in vain.
    pub timed_out: u64,
    /// Requests whose client went away while they waited, or that were cut off.
    pub left: u64,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// Where it listens, as in the rule files.
    pub address: String,
    /// `up`, `recovering`, `suspect`, `overloaded`, `down`, `drained` or `maintenance`.
    pub state: String,
    /// Whether it stands by for the others.
    pub backup: bool,
    /// Its configured weight.
    pub weight: u16,
    /// Its weight now.
    pub share: f64,
    /// The most requests that it may have in flight.
    pub max: Option<u32>,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests that were given to it, repetitions included.
    pub requests: u64,
    /// Those of them that were repetitions.
    pub retries: u64,
    /// Its answers by the class of their status.
    pub answers: Answers,
    /// How requests failed at it.
    pub failures: Failures,
    /// Requests whose client went away, for which it is not to blame.
    pub client_aborts: u64,
    /// Bytes of requests' bodies that were sent to it.
    pub bytes_to_server: u64,
    /// Bytes of its answers' bodies that were sent to clients.
    pub bytes_to_client: u64,
    /// How long its answers took to begin, on average since the start.
    pub latency_us: Option<u64>,
    /// What one request takes for each that is in flight, lately; where the scheduler measures.
    pub service_us: Option<u64>,
    /// How long answers take, after the last peak; where the scheduler measures.
    pub peak_latency_us: Option<u64>,
    /// The answers that it finishes in a second in which it has anything to do, lately; where the scheduler measures.
    pub capacity_per_second: Option<f64>,
    /// The tasks that run or wait there by its last report, and the requests sent since; none where it has not said of late.
    pub run_queue: Option<u64>,
    /// How many different keys it has got, about; where the scheduler goes by a key.
    pub keys: Option<u64>,
    /// How available it was.
    pub availability: Option<AvailabilityStatus>,
    /// What made its state what it is.
    pub because: Option<String>,
    /// What was seen of it, the latest last.
    pub evidence: Vec<EvidenceStatus>,
    /// What is made of its reports; none where none came.
    pub feedback: Option<FeedbackStatus>,
    /// What was done to bring it back; none where its pool has no `recovery`.
    pub recovery: Option<RecoveryStatus>,
}

/// Answers by the class of their status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answers {
    /// 101, the only one that ends a request.
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// 2xx.
    #[serde(rename = "2xx")]
    pub success: u64,
    /// 3xx.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// 4xx.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// 5xx.
    #[serde(rename = "5xx")]
    pub server_error: u64,
}

impl Answers {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.informational + self.success + self.redirection + self.client_error + self.server_error
    }
}

/// How requests failed at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failures {
    /// Connections that it refused or that could not reach it.
    pub connect_errors: u64,
    /// Connections that were not made in time.
    pub connect_timeouts: u64,
    /// Connections that broke before the answer was whole.
    pub resets: u64,
    /// Answers that did not come in time.
    pub response_timeouts: u64,
    /// Answers that were no HTTP.
    pub malformed: u64,
    /// Requests that were taken back because the whole server was silent.
    pub taken_back: u64,
    /// Connects that have failed since the last good one.
    pub connects_in_a_row: u32,
}

impl Failures {
    /// Requests that failed.
    pub const fn total(&self) -> u64 {
        self.connect_errors
            + self.connect_timeouts
            + self.resets
            + self.response_timeouts
            + self.malformed
            + self.taken_back
    }
}

/// How well the keys of a pool stay together, since its servers, their weights or its scheduler last changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalityStatus {
    /// How many different keys there have been, about.
    pub distinct_keys: u64,
    /// How many servers have got a key on average: 1 where each key stayed with one.
    pub replicas_per_key: Option<f64>,
    /// Answers that came out of a server's cache, as they say.
    pub hits: u64,
    /// Answers that did not, as they say.
    pub misses: u64,
    /// Hits among the answers that say.
    pub hit_rate: Option<f64>,
    /// What a miss takes longer than a hit.
    pub miss_penalty_us: Option<u64>,
    /// The keys that are asked for most, the hottest first.
    pub top_keys: Vec<TopKey>,
    /// The table of the keys' servers, where the scheduler has one.
    pub table: Option<TableStatus>,
    /// What the last change of the servers or weights did; none where there was none.
    pub moved: Option<MovedKeys>,
}

/// A key that is asked for often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopKey {
    /// How it reads, shortened; none where that is not known or nobody's business.
    pub name: Option<String>,
    /// Its hash in hexadecimal digits, as `explain` tells it.
    pub hash: String,
    /// Its share of the requests with a key, of late.
    pub share: f64,
}

/// A bounded table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableStatus {
    /// Keys, or clients, that are in it.
    pub keys: usize,
    /// The most that can be.
    pub capacity: usize,
    /// Those that have made room for others.
    pub evictions: u64,
}

/// How many keys have another server by a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MovedKeys {
    /// Those that have.
    pub keys: u64,
    /// Those that were looked at.
    pub of: u64,
}

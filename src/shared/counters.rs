//! What is counted: by server, by pool, and for the process. All relaxed atomics, what is written together on cache lines
//! of its own.
//!
//! Counters live outside the snapshot, are found through it, and survive a reload. They are never read to decide on a
//! request's path, with one exception: the retry budget.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::base::id::{ServerId, ServerSlot};
use crate::base::time;
use crate::pure::pool::Load;
use crate::shared::choices::Choices;
use crate::shared::latencies::Latencies;
use crate::shared::load_said::LoadSaid;
use crate::shared::outcome::Outcome;
use crate::shared::queue::Queue;
use crate::shared::spaced::Spaced;

pub mod budget;
pub mod feedback;

/// A count that only grows. Padded to a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `amount` more.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are now. Padded to a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// One more.
    pub fn rise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less. Only who counted one more may call it.
    pub fn fall(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many there are.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted for the whole process.
#[derive(Debug, Default)]
pub struct ProcessCounters {
    /// Panics that were caught.
    pub panics: Counter,
    /// Snapshots that somebody still holds.
    pub snapshots_alive: Gauge,
    /// What servers say of themselves, and what was refused of it.
    pub feedback: feedback::FeedbackCounters,
}

/// Written for every request.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Traffic {
    requests: AtomicU64,
    /// Final answers by the first digit of their status, 1 to 5; a 101 is the only 1xx.
    answers: [AtomicU64; 5],
    bytes_to_server: AtomicU64,
    bytes_to_client: AtomicU64,
}

/// Written where something went wrong.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Faults {
    connect_errors: AtomicU64,
    connect_timeouts: AtomicU64,
    resets: AtomicU64,
    response_timeouts: AtomicU64,
    malformed: AtomicU64,
    taken_back: AtomicU64,
    retries: AtomicU64,
    client_aborts: AtomicU64,
}

/// What speaks against the server at its present addresses: control reads it with every tick.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Evidence {
    /// Counts the addresses it has had: what ends at another says nothing of these.
    incarnation: AtomicU32,
    failed: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
}

/// What the process knows of one server, whatever its address, as long as it is configured and across reloads.
#[derive(Debug)]
pub struct ServerRecord {
    /// Pool and server name.
    pub id: ServerId,
    /// Its number.
    pub slot: ServerSlot,
    /// Its requests in flight.
    pub load: Arc<Load>,
    /// When its trouble was last said.
    pub said: Spaced,
    /// How long its answers take.
    pub latencies: Latencies,
    /// What it says of its load beside its answers, in pools that ask.
    pub load_said: LoadSaid,
    traffic: Traffic,
    faults: Faults,
    evidence: Evidence,
}

/// What has ended at a server so far. Differences say what has ended in a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Requests that failed by its fault, at its present addresses.
    pub failed: u64,
    /// Connects among them that were refused or found no way.
    pub refused: u64,
    /// Requests that ended, well or not; those whose client went away are left out.
    pub all: u64,
}

/// A copy of a server's counts. Each is exact; together they are of about one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerFigures {
    /// Requests in flight.
    pub active: u32,
    /// Attempts that were given to it.
    pub requests: u64,
    /// Final answers by the first digit of their status, 1 to 5.
    pub answers: [u64; 5],
    /// Bytes of requests' bodies written to it.
    pub bytes_to_server: u64,
    /// Bytes of its answers' bodies written to clients.
    pub bytes_to_client: u64,
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
    /// Requests that were taken back from it because it was silent.
    pub taken_back: u64,
    /// Attempts that were repetitions.
    pub retries: u64,
    /// Requests whose client went away.
    pub client_aborts: u64,
    /// Connects that failed since the last good one.
    pub connect_failures_in_a_row: u32,
}

impl ServerRecord {
    /// A record of nothing yet.
    pub fn new(id: ServerId, slot: ServerSlot) -> Self {
        Self {
            id,
            slot,
            load: Arc::default(),
            said: Spaced::default(),
            latencies: Latencies::default(),
            load_said: LoadSaid::default(),
            traffic: Traffic::default(),
            faults: Faults::default(),
            evidence: Evidence::default(),
        }
    }

    /// Counts an attempt that is given to this server.
    pub fn count_request(&self) {
        self.traffic.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a count back. Only who counted may call it.
    pub fn uncount_request(&self) {
        self.traffic.requests.fetch_sub(1, Ordering::Relaxed);
    }

    /// Begins to measure an attempt.
    #[cold]
    pub fn begin_measuring(&self) {
        // Only the end of a rest is a matter of time.
        if !self.load.pace.is_busy() {
            self.load.pace.begins(time::now());
        }
        self.load.run_queue.count_sent();
    }

    /// Ends to measure an attempt that still has its place.
    #[cold]
    pub fn end_measuring(&self, outcome: Outcome) {
        // A server that fails fast has no capacity to show for it.
        let is_finished = matches!(outcome, Outcome::Answered { status: ..500, .. });
        // Its place is not given back yet.
        self.load.pace.ends(time::now(), is_finished, self.load.active().saturating_sub(1));
    }

    /// Counts that the attempt is a repetition.
    pub fn count_retry(&self) {
        self.faults.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the bytes of an exchange's bodies.
    pub fn count_bytes(&self, to_server: u64, to_client: u64) {
        self.traffic.bytes_to_server.fetch_add(to_server, Ordering::Relaxed);
        self.traffic.bytes_to_client.fetch_add(to_client, Ordering::Relaxed);
    }

    /// Nothing that failed is in a row any more.
    pub fn forget_failures(&self) {
        self.load.forget_failures();
    }

    /// It has other addresses now: what is on its way to the former says nothing of it, and nothing is in a row.
    pub fn moves(&self, incarnation: u32) {
        self.evidence.incarnation.store(incarnation, Ordering::Relaxed);
        self.forget_failures();
    }

    /// What has ended here so far.
    pub fn ended(&self) -> Ended {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let answered: u64 = self.traffic.answers.iter().map(read).sum();
        let evidence = &self.evidence;
        Ended {
            failed: read(&evidence.failed),
            refused: read(&evidence.refused),
            all: answered.saturating_add(read(&evidence.unanswered)),
        }
    }

    /// Connects that failed since the last good one.
    pub fn connect_failures_in_a_row(&self) -> u32 {
        self.load.connect_failures_in_a_row()
    }

    /// Counts that an attempt failed by the server's fault, at the addresses that it had as `incarnation`. `is_answered`: the
    /// answer had begun.
    #[cold]
    pub fn count_failure(&self, outcome: Outcome, incarnation: u32, is_answered: bool) {
        let evidence = &self.evidence;
        if incarnation != evidence.incarnation.load(Ordering::Relaxed) {
            return;
        }
        evidence.failed.fetch_add(1, Ordering::Relaxed);
        if !matches!(outcome, Outcome::Failing { .. }) {
            evidence.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        match outcome {
            Outcome::ConnectError => {
                evidence.refused.fetch_add(1, Ordering::Relaxed);
                self.load.count_connect_failure();
            }
            Outcome::ConnectTimeout => self.load.count_connect_failure(),
            Outcome::ResponseTimeout if !is_answered => self.load.count_timeout(),
            _ => {}
        }
    }

    /// Counts how an attempt ended.
    pub fn count_outcome(&self, outcome: Outcome) {
        let faults = &self.faults;
        let counter = match outcome {
            Outcome::Answered { status, latency } | Outcome::Failing { status, latency } => {
                self.load.add_latency(latency);
                let Some(class) = self.traffic.answers.get(usize::from(status / 100).wrapping_sub(1)) else { return };
                class
            }
            Outcome::ConnectError => &faults.connect_errors,
            Outcome::ConnectTimeout => &faults.connect_timeouts,
            Outcome::Reset => &faults.resets,
            Outcome::ResponseTimeout => &faults.response_timeouts,
            Outcome::Malformed => &faults.malformed,
            Outcome::Silent => &faults.taken_back,
            Outcome::ClientAborted => &faults.client_aborts,
            Outcome::OwnFault => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A copy of the counts.
    pub fn figures(&self) -> ServerFigures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (traffic, faults) = (&self.traffic, &self.faults);
        ServerFigures {
            active: self.load.active(),
            requests: read(&traffic.requests),
            answers: std::array::from_fn(|class| traffic.answers.get(class).map_or(0, read)),
            bytes_to_server: read(&traffic.bytes_to_server),
            bytes_to_client: read(&traffic.bytes_to_client),
            connect_errors: read(&faults.connect_errors),
            connect_timeouts: read(&faults.connect_timeouts),
            resets: read(&faults.resets),
            response_timeouts: read(&faults.response_timeouts),
            malformed: read(&faults.malformed),
            taken_back: read(&faults.taken_back),
            retries: read(&faults.retries),
            client_aborts: read(&faults.client_aborts),
            connect_failures_in_a_row: self.connect_failures_in_a_row(),
        }
    }
}

/// What the process knows of one pool, across reloads.
#[derive(Debug)]
pub struct PoolRecord {
    /// The pool's name.
    pub name: Arc<str>,
    /// How many of its requests may be sent again.
    pub budget: budget::RetryBudget,
    /// Where its requests wait, if the pool says so, and how many have.
    pub queue: Arc<Queue>,
    choices: OnceLock<Choices>,
}

impl PoolRecord {
    /// A record of nothing yet.
    pub fn new(name: Arc<str>) -> Self {
        Self { name, budget: budget::RetryBudget::default(), queue: Arc::default(), choices: OnceLock::new() }
    }

    /// Which servers its clients belong to; it has no memory before somebody asks.
    pub fn choices(&self) -> &Choices {
        self.choices.get_or_init(Choices::default)
    }
}

#[cfg(test)]
mod tests;

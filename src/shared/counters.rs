//! What is counted: by server, by pool, and for the process. All relaxed atomics, what is written together on cache lines
//! of its own.
//!
//! Counters live outside the snapshot, are found through it, and survive a reload. They are never read to decide on a
//! request's path, with one exception: the retry budget.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::base::id::{ServerId, ServerSlot};
use crate::base::time;
use crate::pure::pool::Load;
use crate::shared::choices::Choices;
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
    /// Outcomes that control was not told of because its queue was full.
    pub outcomes_dropped: Counter,
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
    retries: AtomicU64,
    client_aborts: AtomicU64,
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
    traffic: Traffic,
    faults: Faults,
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
            traffic: Traffic::default(),
            faults: Faults::default(),
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
        self.load.pace.begins(time::now());
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

    /// A connection was made, or an answer came: connect failures are no longer in a row.
    pub fn forget_connect_failures(&self) {
        self.load.forget_connect_failures();
    }

    /// Connects that failed since the last good one.
    pub fn connect_failures_in_a_row(&self) -> u32 {
        self.load.connect_failures_in_a_row()
    }

    /// Counts how an attempt ended.
    pub fn count_outcome(&self, outcome: Outcome) {
        let faults = &self.faults;
        let counter = match outcome {
            Outcome::Answered { status, latency } => {
                self.forget_connect_failures();
                self.load.add_latency(latency);
                let Some(class) = self.traffic.answers.get(usize::from(status / 100).wrapping_sub(1)) else { return };
                class
            }
            Outcome::ConnectError => &faults.connect_errors,
            Outcome::ConnectTimeout => &faults.connect_timeouts,
            Outcome::Reset => &faults.resets,
            Outcome::ResponseTimeout => &faults.response_timeouts,
            Outcome::Malformed => &faults.malformed,
            Outcome::ClientAborted => &faults.client_aborts,
            Outcome::OwnFault => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if matches!(outcome, Outcome::ConnectError | Outcome::ConnectTimeout) {
            self.load.count_connect_failure();
        }
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

//! From a running proxy to its [`Status`]: counters are read where workers write them, and nothing is stopped for it.
//!
//! Each count is exact; together they are of about one moment. What is locked is locked in shards, each for as long as it
//! takes to count it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::control::{AvailabilityStatus, EvidenceStatus, RecoveryStatus};
use super::feedback::FeedbackStatus;
use super::heard::{AgentCheckStatus, ReportsStatus};
use super::report::{
    Answers, Failures, LocalityStatus, LogStatus, MovedKeys, PoolStatus, ProcessStatus, QueueStatus, ServerStatus,
    Status, TableStatus, TopKey,
};
use super::rounded;
use crate::base::time::{self, Timestamp};
use crate::pure::key_table::Usage;
use crate::pure::pool::{Candidate, State};
use crate::request::access_log::LogCounters;
use crate::request::process::Process;
use crate::shared::control_report::{ControlReport, ControlReportStore};
use crate::shared::counters::ServerFigures;
use crate::shared::queue::QueueFigures;
use crate::shared::snapshot::{Endpoint, PoolSnapshot, Snapshot, SnapshotStore};

/// How many of the hottest keys are told.
const TOP_KEYS: usize = 10;

/// Where everything is counted.
#[derive(Clone, Debug)]
pub struct Source {
    /// When the process began to serve.
    pub started: Timestamp,
    /// How many workers there are.
    pub workers: usize,
    /// What they share.
    pub process: Arc<Process>,
    /// The pools.
    pub store: Arc<SnapshotStore>,
    /// What control knows.
    pub reports: Arc<ControlReportStore>,
    /// The access log, where there is one.
    pub log: Option<Arc<LogCounters>>,
}

impl Source {
    /// The state now.
    pub fn status(&self) -> Status {
        let snapshot = self.store.load();
        let report = self.reports.load();
        let pools = snapshot.pools.iter().map(|pool| pool_status(pool, &report)).collect();
        Status { process: self.process(&snapshot, &report), pools }
    }

    fn process(&self, snapshot: &Snapshot, report: &ControlReport) -> ProcessStatus {
        let (process, counters) = (&self.process, &self.process.counters);
        let asks = snapshot.config.pools.iter().any(|pool| pool.agent_check.is_some());
        let log = |counters: &Arc<LogCounters>| LogStatus {
            written: counters.written.load(Ordering::Relaxed),
            dropped: counters.dropped.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
        };
        ProcessStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: time::now().since(self.started).as_secs(),
            workers: self.workers,
            connections: process.connections.count(),
            connections_max: process.connections.max(),
            tls_handshakes: process.handshakes.get(),
            tls_handshakes_failed: process.handshakes_failed.get(),
            proxy_headers_refused: process.proxy_headers_refused.get(),
            http2_streams_refused: process.h2_streams_refused.get(),
            http2_floods: process.h2_floods.get(),
            http2_errors: process.h2_errors.get(),
            accept_errors: process.accept_errors.get(),
            snapshots_alive: counters.snapshots_alive.get(),
            panics: counters.panics.get(),
            access_log: self.log.as_ref().map(log),
            feedback: snapshot.config.feedback.as_ref().map(|_| ReportsStatus::of(&counters.feedback)),
            agent_checks: asks.then(|| AgentCheckStatus::of(&counters.feedback)),
            alerts: report.alerts.into(),
        }
    }
}

fn pool_status(pool: &PoolSnapshot, report: &ControlReport) -> PoolStatus {
    let (settings, now) = (&pool.pool, time::now());
    let is_keyed = settings.scheduler.method.is_keyed();
    // The backups have a memory of their own.
    let backups = pool.backup_memory.iter().flat_map(|memory| memory.locality.by_server());
    let mut keys = pool.memory.locality.by_server().chain(backups);
    let mut servers = Vec::with_capacity(pool.candidates.len());
    for (candidate, endpoint) in pool.candidates.iter().zip(&pool.endpoints) {
        let keys = is_keyed.then(|| keys.next().unwrap_or(0));
        servers.push(server_status(candidate, endpoint, keys, report));
    }
    let queue = settings.queue.map(|bounds| {
        let QueueFigures { waiting, waited, turned_away, timed_out, left } = pool.record.queue.figures();
        QueueStatus { waiting, max: bounds.max, waited, turned_away, timed_out, left }
    });
    let holdings = servers.iter().filter_map(|server| server.keys).sum();
    PoolStatus {
        name: settings.name.to_string(),
        scheduler: settings.scheduler.method.name().to_owned(),
        key: settings.key.as_ref().filter(|_| is_keyed).map(ToString::to_string),
        check: settings.check.as_ref().map(|check| check.kind.to_string()),
        in_panic: pool.in_panic,
        availability: report.pools.get(&settings.name).map(|tally| AvailabilityStatus::of(tally, now)),
        queue,
        persistence: settings.persistence.as_ref().map(|_| table_status(pool.record.choices().usage())),
        locality: is_keyed.then(|| locality_status(pool, holdings)),
        servers,
    }
}

fn server_status(
    candidate: &Candidate,
    endpoint: &Endpoint,
    keys: Option<u64>,
    report: &ControlReport,
) -> ServerStatus {
    let ServerFigures {
        active,
        requests,
        answers: [informational, success, redirection, client_error, server_error],
        bytes_to_server,
        bytes_to_client,
        connect_errors,
        connect_timeouts,
        resets,
        response_timeouts,
        malformed,
        taken_back,
        retries,
        client_aborts,
        connect_failures_in_a_row,
    } = endpoint.record.figures();
    let answers = Answers { informational, success, redirection, client_error, server_error };
    let load = &candidate.load;
    let (known_to_control, now) = (report.servers.get(&candidate.slot), time::now());
    let known = |nanos: u64| (nanos > 0).then_some(nanos / 1_000);
    ServerStatus {
        name: candidate.server.id.server.to_string(),
        address: candidate.server.address.to_string(),
        state: state_word(candidate.state).to_owned(),
        backup: candidate.server.is_backup,
        weight: candidate.server.weight,
        share: f64::from(candidate.share.units()) / f64::from(UNITS_OF_A_WEIGHT),
        max: candidate.max,
        in_flight: active,
        requests,
        retries,
        answers,
        failures: Failures {
            connect_errors,
            connect_timeouts,
            resets,
            response_timeouts,
            malformed,
            taken_back,
            connects_in_a_row: connect_failures_in_a_row,
        },
        client_aborts,
        bytes_to_server,
        bytes_to_client,
        latency_us: micros(load.latency()).checked_div(answers.total()),
        service_us: known(load.pace.service_nanos()),
        peak_latency_us: Some(micros(load.pace.peak_latency(now))).filter(|micros| *micros > 0),
        capacity_per_second: load.pace.answers_per_second(now).map(|answers| rounded(answers, 100.0)),
        run_queue: load.run_queue.length(now),
        keys,
        availability: known_to_control
            .and_then(|server| server.availability.as_ref())
            .map(|tally| AvailabilityStatus::of(tally, now)),
        feedback: known_to_control
            .and_then(|server| server.feedback.as_ref())
            .map(|feedback| FeedbackStatus::of(feedback, now)),
        because: known_to_control.and_then(|server| server.because).map(|sign| sign.to_string()),
        evidence: known_to_control
            .iter()
            .flat_map(|server| server.evidence.iter().map(|evidence| EvidenceStatus::of(evidence, now)))
            .collect(),
        recovery: known_to_control
            .and_then(|server| server.recovery.as_ref())
            .map(|recovery| RecoveryStatus::of(recovery, now)),
    }
}

/// What a share counts for a weight of 1.
const UNITS_OF_A_WEIGHT: u32 = crate::pure::pool::Share::of(1).units();

fn locality_status(pool: &PoolSnapshot, holdings: u64) -> LocalityStatus {
    let memory = &pool.memory;
    let locality = &memory.locality;
    // Where the backups serve alone, they see keys that the others have not seen.
    let at_backups = pool.backup_memory.as_ref().map_or(0, |memory| memory.locality.distinct());
    let distinct = locality.distinct().max(at_backups);
    let (hits, misses) = memory.costs.counts();
    let told = hits + misses;
    let top_key = |(key, share): (u64, f64)| TopKey {
        name: locality.name_of(key).map(String::from),
        hash: format!("{key:016x}"),
        share: rounded(share, 10_000.0),
    };
    LocalityStatus {
        distinct_keys: distinct,
        // Both are estimates: less than one server has no key that there has been.
        replicas_per_key: (distinct > 0).then(|| rounded((holdings as f64 / distinct as f64).max(1.0), 100.0)),
        hits,
        misses,
        hit_rate: (told > 0).then(|| rounded(hits as f64 / told as f64, 10_000.0)),
        miss_penalty_us: memory.costs.penalty().map(micros),
        top_keys: memory.hottest(TOP_KEYS).into_iter().map(top_key).collect(),
        table: memory.usage().map(table_status),
        moved: (memory.moved.of > 0).then_some(MovedKeys { keys: memory.moved.keys, of: memory.moved.of }),
    }
}

const fn table_status(usage: Usage) -> TableStatus {
    TableStatus { keys: usage.entries, capacity: usage.capacity, evictions: usage.evictions }
}

const fn state_word(state: State) -> &'static str {
    match state {
        State::Up => "up",
        State::Recovering => "recovering",
        State::Suspect { by_overload: false } => "suspect",
        State::Suspect { by_overload: true } => "overloaded",
        State::Down => "down",
        State::Drained => "drained",
        State::Maintenance => "maintenance",
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

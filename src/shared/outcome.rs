//! How a request at a server ended, and the way from the workers to control by which that is told.
//!
//! The way is a bounded queue per worker that control empties on its own timer: a send never wakes anybody and never
//! waits; where the queue is full the report is dropped and counted. So nothing that must not be lost may hang on a
//! report: consecutive connect failures are kept by the counters.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::base::id::ServerSlot;
use crate::shared::counters::ProcessCounters;

/// How a request at a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered.
    Answered {
        /// The final status.
        status: u16,
        /// From the choice of the server to the head of its answer.
        latency: Duration,
    },
    /// No connection: refused, unreachable.
    ConnectError,
    /// No connection in time.
    ConnectTimeout,
    /// The connection broke before the answer was whole.
    Reset,
    /// The server's bytes did not come in time.
    ResponseTimeout,
    /// What came is no HTTP.
    Malformed,
    /// The client went away. It never counts against the server.
    ClientAborted,
    /// Pointsman failed: no descriptor, no memory. It counts against nobody.
    OwnFault,
}

impl Outcome {
    /// Whether it is evidence against the server.
    pub const fn is_failure(self) -> bool {
        match self {
            Self::ConnectError | Self::ConnectTimeout | Self::Reset | Self::ResponseTimeout | Self::Malformed => true,
            Self::Answered { .. } | Self::ClientAborted | Self::OwnFault => false,
        }
    }
}

/// What a worker tells control of one request that failed by its server's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The server.
    pub slot: ServerSlot,
    /// Which of its addresses.
    pub incarnation: u32,
    /// How the request ended.
    pub outcome: Outcome,
}

/// The most reports that wait in one worker's queue: control empties it every 50 ms.
pub const REPORTS_MAX: usize = 8192;

/// A worker's end of its queue.
#[derive(Clone, Debug)]
pub struct OutcomeSender {
    queue: SyncSender<Report>,
    process: Arc<ProcessCounters>,
}

impl OutcomeSender {
    /// Tells control; where the queue is full the report is dropped and counted.
    pub fn send(&self, report: Report) {
        if self.queue.try_send(report).is_err() {
            self.process.outcomes_dropped.add(1);
        }
    }
}

/// Control's end of a worker's queue.
#[derive(Debug)]
pub struct OutcomeReceiver {
    queue: Receiver<Report>,
}

impl OutcomeReceiver {
    /// What has come since the last call, at most what the queue holds.
    pub fn drain(&self) -> impl Iterator<Item = Report> {
        self.queue.try_iter().take(REPORTS_MAX)
    }
}

/// A queue for one worker.
pub fn outcome_queue(process: Arc<ProcessCounters>) -> (OutcomeSender, OutcomeReceiver) {
    bounded_queue(process, REPORTS_MAX)
}

fn bounded_queue(process: Arc<ProcessCounters>, bound: usize) -> (OutcomeSender, OutcomeReceiver) {
    let (sender, receiver) = sync_channel(bound);
    (OutcomeSender { queue: sender, process }, OutcomeReceiver { queue: receiver })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(slot: u32) -> Report {
        Report { slot: ServerSlot(slot), incarnation: 0, outcome: Outcome::Reset }
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_blocks() {
        let process = Arc::new(ProcessCounters::default());
        let (sender, receiver) = bounded_queue(Arc::clone(&process), 2);
        for slot in 0..5 {
            sender.send(report(slot));
        }
        assert_eq!(process.outcomes_dropped.get(), 3);
        assert_eq!(receiver.drain().collect::<Vec<_>>(), [report(0), report(1)]);
        sender.send(report(9));
        assert_eq!(receiver.drain().count(), 1);
        drop(receiver);
        sender.send(report(9));
        assert_eq!(process.outcomes_dropped.get(), 4);
    }

    #[test]
    fn only_what_the_server_did_counts_against_it() {
        for outcome in
            [Outcome::Answered { status: 500, latency: Duration::ZERO }, Outcome::ClientAborted, Outcome::OwnFault]
        {
            assert!(!outcome.is_failure());
        }
        for outcome in [
            Outcome::ConnectError,
            Outcome::ConnectTimeout,
            Outcome::Reset,
            Outcome::ResponseTimeout,
            Outcome::Malformed,
        ] {
            assert!(outcome.is_failure());
        }
    }
}

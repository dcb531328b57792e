//! `run-queue`: the server on which the fewest tasks wait for a processor, by its own word: least of the reported length of its
//! run queue, the requests that were sent to it since, and the one at hand, for its weight. Source: a Linux cluster of 2011 whose
//! balancer asked its servers for their CPU run queues.
//!
//! - `reports="pull"`: servers are asked, and one that has not answered in time gets nothing until it does, as long as another has.
//! - `reports="push"`: servers report by themselves. One that has not of late counts by its requests in flight, each of which
//!   may be a task that waits: a server whose agent has died goes on with about its part.
//!
//! Where no server has reported, or none of those that have may get the request, it is `wlc` among those that may. It refuses
//! to ask anybody: questions are the feedback thread's.

use super::least_loaded::Measure;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, PoolView};

const AIM: &str = "the shortest run queue for its weight";
const NOT_HEARD: &str = "the least load for its weight: no server that may get it has told its run queue";

/// The largest load there is: that of a server that is passed over.
const PASSED_OVER: u64 = (1 << 40) - 1;

/// By what servers say: when they are asked, or by themselves.
#[derive(Debug)]
pub(super) struct Told<const IS_ASKED: bool> {
    is_heard: bool,
    now: Timestamp,
}

/// By what servers say when they are asked.
pub(super) type Pulled = Told<true>;

/// By what servers say by themselves.
pub(super) type Pushed = Told<false>;

/// Whether one of those that may get the request has told its run queue.
fn is_heard(view: &PoolView<'_>, now: Timestamp, mut among: impl Iterator<Item = usize>) -> bool {
    among.any(|index| {
        let candidate = view.candidates.get(index);
        candidate.is_some_and(|candidate| candidate.load.run_queue.length(now).is_some() && view.may_get(candidate))
    })
}

/// What a request would wait behind at a server, itself included; `None`: the server has not told.
fn told(candidate: &Candidate, now: Timestamp) -> Option<u64> {
    candidate.load.run_queue.length(now).map(|length| length + 1)
}

/// The requests in flight there.
fn in_flight(candidate: &Candidate) -> u64 {
    u64::from(candidate.load.active())
}

impl<const IS_ASKED: bool> Measure for Told<IS_ASKED> {
    const NAME: &'static str = "run-queue";
    const AIM: &'static str = AIM;

    fn of(view: &PoolView<'_>, now: Timestamp, among: impl Iterator<Item = usize>) -> Self {
        Self { is_heard: is_heard(view, now, among), now }
    }

    fn aim(&self) -> &'static str {
        if self.is_heard { AIM } else { NOT_HEARD }
    }

    fn load(&self, candidate: &Candidate) -> u64 {
        let in_flight = in_flight(candidate);
        if !self.is_heard {
            return in_flight;
        }
        told(candidate, self.now).unwrap_or(if IS_ASKED { PASSED_OVER } else { in_flight + 1 })
    }

    fn capacity(&self, candidate: &Candidate) -> u32 {
        let is_passed_over = IS_ASKED && self.is_heard && told(candidate, self.now).is_none();
        // Whatever its weight, it is behind all others.
        if is_passed_over { 1 } else { candidate.share.units() }
    }

    /// Servers tell at any time.
    fn is_dated(&self, _: Timestamp) -> bool {
        true
    }
}

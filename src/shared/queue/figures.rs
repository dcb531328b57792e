//! What is counted of a queue.

use crate::shared::counters::Counter;

/// The counters of one queue.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) waited: Counter,
    pub(super) turned_away: Counter,
    pub(super) timed_out: Counter,
    pub(super) left: Counter,
}

/// A copy of a queue's counts. Each is exact; together they are of about one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Requests that wait now.
    pub waiting: u32,
    /// Requests that have waited, or do.
    pub waited: u64,
    /// Requests that were refused because as many waited as may.
    pub turned_away: u64,
    /// Requests that waited in vain.
    pub timed_out: u64,
    /// Requests whose client went away while they waited, or that were cut off.
    pub left: u64,
}

impl Figures {
    pub(super) fn read(&self, waiting: u32) -> QueueFigures {
        QueueFigures {
            waiting,
            waited: self.waited.get(),
            turned_away: self.turned_away.get(),
            timed_out: self.timed_out.get(),
            left: self.left.get(),
        }
    }
}

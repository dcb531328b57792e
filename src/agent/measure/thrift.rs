//! What measuring may cost: a reading that took long is made less often, so that the agent takes its small part of one core
//! and no more, however large the machine. It counts the thread's own processor time: that of a machine that is too busy to let
//! it run is not its cost.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::base::time::Timestamp;

/// When something may be read again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thrift {
    last: Timestamp,
    cost: Duration,
}

impl Thrift {
    /// Whether it may be read now, where it may take one part in `parts` of the time.
    pub fn allows(&self, now: Timestamp, parts: u32) -> bool {
        now.since(self.last) >= self.cost.saturating_mul(parts)
    }

    /// Notes that what would be read is as it was: it is as if it had been read.
    pub const fn spare(&mut self, now: Timestamp) {
        self.last = now;
    }

    /// Reads, and notes what it cost.
    pub fn spend<T>(&mut self, now: Timestamp, read: impl FnOnce() -> T) -> T {
        let before = spent();
        let result = read();
        // Of the last few: one that was dear for once, by a look at all processes say, is spread over those that follow.
        self.cost = (self.cost * 3 + spent().saturating_sub(before)) / 4;
        self.last = now;
        result
    }
}

/// The processor time that this thread has taken.
fn spent() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

//! How long a server's run queue is, by its last report, and what has been sent to it since.
//!
//! Whoever hears the server's agent writes it, every worker counts what it sends, and schedulers read both: relaxed atomics,
//! nobody waits. A report holds for as long as its writer says, and no longer; it refuses to guess what came after.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::base::time::Timestamp;

/// The reported run queue of one server.
#[derive(Debug, Default)]
pub struct RunQueue {
    /// The length, and below it what `sent` was when it was heard: so that both are always of one report.
    heard: AtomicU64,
    /// Until when it holds, in nanoseconds.
    holds_until: AtomicU64,
    /// Requests so far; it goes round.
    sent: AtomicU32,
}

impl RunQueue {
    /// Its server says that so many tasks wait or run there; that holds until then.
    pub fn hear(&self, length: u32, holds_until: Timestamp) {
        let sent = self.sent.load(Ordering::Relaxed);
        self.heard.store(u64::from(length) << 32 | u64::from(sent), Ordering::Relaxed);
        self.holds_until.store(holds_until.as_nanos(), Ordering::Relaxed);
    }

    /// Its server did not answer: what it said before does not hold any more.
    pub fn fall_silent(&self) {
        if self.holds_until.load(Ordering::Relaxed) != 0 {
            self.holds_until.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a request that is given to the server.
    pub fn count_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a count back: the request was not sent. Only who counted may call it.
    pub fn uncount_sent(&self) {
        self.sent.fetch_sub(1, Ordering::Relaxed);
    }

    /// The requests that were given to it so far; it goes round after 2³².
    pub fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The tasks that it said to have and the requests that were sent to it since; `None`: it has not said, or not of late.
    pub fn length(&self, now: Timestamp) -> Option<u64> {
        if self.holds_until.load(Ordering::Relaxed) <= now.as_nanos() {
            return None;
        }
        let heard = self.heard.load(Ordering::Relaxed);
        let (length, then) = (heard >> 32, heard as u32);
        let since = self.sent.load(Ordering::Relaxed).wrapping_sub(then);
        // A count that was taken back after it was heard would be a huge number.
        let since = if since > u32::MAX / 2 { 0 } else { since };
        Some(length + u64::from(since))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_queue_is_what_was_heard_and_what_was_sent_since() {
        let queue = RunQueue::default();
        let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        assert_eq!(queue.length(at(0)), None);
        queue.count_sent();
        queue.hear(7, at(100));
        assert_eq!(queue.length(at(99)), Some(7));
        queue.count_sent();
        queue.count_sent();
        assert_eq!(queue.length(at(99)), Some(9));
        queue.uncount_sent();
        assert_eq!(queue.length(at(99)), Some(8));
        assert_eq!(queue.length(at(100)), None, "it is too old");
        queue.hear(u32::MAX, at(300));
        assert_eq!(queue.length(at(200)), Some(u64::from(u32::MAX)));
        queue.uncount_sent();
        assert_eq!(queue.length(at(200)), Some(u64::from(u32::MAX)), "never less than was heard");
        queue.fall_silent();
        assert_eq!(queue.length(at(200)), None);
        queue.hear(0, at(300));
        assert_eq!(queue.length(at(200)), Some(0), "its first answer brings it back");
    }

    #[test]
    fn the_count_of_what_was_sent_goes_round() {
        let queue = RunQueue::default();
        queue.sent.store(u32::MAX, Ordering::Relaxed);
        queue.hear(1, Timestamp::NEVER);
        queue.count_sent();
        queue.count_sent();
        assert_eq!((queue.sent(), queue.length(Timestamp::ZERO)), (1, Some(3)));
    }
}

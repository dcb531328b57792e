//! Why a server is suspected: the causes that stand, each until what it came from has cleared.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::feedback::report::Source;

/// Why a server is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Connects to it fail.
    Connects,
    /// Most of its requests fail.
    FailureRate,
    /// Requests wait and it sends nothing.
    Silence,
    /// Its checks fail.
    Checks,
    /// Somebody who knows says that something is wrong.
    Verdict(Source),
    /// Somebody who knows says that it has too much to do.
    Overload(Source),
    /// Its agent has broken its promises.
    AgentSilent,
}

/// The longest that a server is barred for what requests have seen, before it is tried again.
const HOLD_MAX: Duration = Duration::from_secs(30);

/// The first time.
const HOLD_MIN: Duration = Duration::from_secs(1);

/// After so long without trouble the first time comes again.
const HOLD_FORGOTTEN: Duration = Duration::from_secs(60);

/// The causes that stand against one server. There are no more of them than kinds.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    causes: Vec<Standing>,
    /// How often requests alone have barred it, and when last.
    holds: (u32, Timestamp),
}

#[derive(Clone, Copy, Debug)]
struct Standing {
    cause: Cause,
    /// It does not clear before this.
    until: Timestamp,
}

impl Suspicion {
    /// Another cause, or the same again.
    pub(super) fn add(&mut self, now: Timestamp, cause: Cause) {
        if self.has(cause) {
            return;
        }
        // Checks see nothing of these: only time tells, and longer each time.
        let is_timed = matches!(cause, Cause::FailureRate | Cause::Silence);
        let until = if is_timed { now + self.next_hold(now) } else { now };
        self.causes.push(Standing { cause, until });
    }

    fn next_hold(&mut self, now: Timestamp) -> Duration {
        let (count, last) = self.holds;
        let count = if now.since(last) > HOLD_FORGOTTEN { 0 } else { count };
        self.holds = (count.saturating_add(1), now);
        HOLD_MIN.saturating_mul(1 << count.min(5)).min(HOLD_MAX)
    }

    /// A cause has cleared.
    pub(super) fn remove(&mut self, cause: Cause) {
        self.causes.retain(|standing| standing.cause != cause);
    }

    /// A cause clears, unless it is too early.
    pub(super) fn remove_in_time(&mut self, now: Timestamp, cause: Cause) {
        self.causes.retain(|standing| standing.cause != cause || standing.until > now);
    }

    pub(super) fn clear(&mut self) {
        self.causes.clear();
    }

    pub(super) fn has(&self, cause: Cause) -> bool {
        self.causes.iter().any(|standing| standing.cause == cause)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    /// Whether somebody says that it has too much to do.
    pub(super) fn has_overload(&self) -> bool {
        self.causes.iter().any(|standing| matches!(standing.cause, Cause::Overload(_)))
    }

    /// Whether somebody's word stands against it, or silence where a word is due: checks alone don't clear that.
    pub(super) fn has_word(&self) -> bool {
        let is_word = |cause| matches!(cause, Cause::Overload(_) | Cause::Verdict(_) | Cause::AgentSilent);
        self.causes.iter().any(|standing| is_word(standing.cause))
    }

    /// Whether it has too much to do, and nothing else is known against it.
    pub(super) fn is_overload_alone(&self) -> bool {
        self.has_overload() && self.causes.iter().all(|standing| matches!(standing.cause, Cause::Overload(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_server_that_fails_again_and_again_is_barred_longer_each_time() {
        let mut suspicion = Suspicion::default();
        let mut now = at(100);
        for hold in [1, 2, 4, 8, 16, 30, 30] {
            suspicion.add(now, Cause::Silence);
            suspicion.remove_in_time(now + Duration::from_millis(hold * 1_000 - 1), Cause::Silence);
            assert!(!suspicion.is_empty(), "{hold}");
            now = now + Duration::from_secs(hold);
            suspicion.remove_in_time(now, Cause::Silence);
            assert!(suspicion.is_empty(), "{hold}");
        }
        now = now + HOLD_FORGOTTEN + Duration::from_secs(1);
        suspicion.add(now, Cause::FailureRate);
        suspicion.remove_in_time(now + HOLD_MIN, Cause::FailureRate);
        assert!(suspicion.is_empty());
    }

    #[test]
    fn overload_stands_alone_or_not_at_all() {
        let mut suspicion = Suspicion::default();
        assert!(!suspicion.is_overload_alone());
        suspicion.add(at(0), Cause::Overload(Source::Agent));
        suspicion.add(at(0), Cause::Overload(Source::Orca));
        assert!(suspicion.is_overload_alone());
        suspicion.add(at(0), Cause::Connects);
        assert!(suspicion.has_overload() && !suspicion.is_overload_alone());
    }
}

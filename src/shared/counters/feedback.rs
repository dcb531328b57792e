//! What is counted of reports: of those that came, and of those that were refused, by the reason.
//!
//! Written by the threads that receive them, never by a worker; read by control, which excuses promises while anything is
//! dropped, and by `status`.

use super::Counter;

/// The counts of all that servers say of themselves.
#[derive(Debug, Default)]
pub struct FeedbackCounters {
    /// Reports of agents that counted.
    pub accepted: Counter,
    /// Datagrams from addresses that may not report, as far as the kernel let them through.
    pub foreign: Counter,
    /// Datagrams that are no reports, and reports that say what can't be.
    pub malformed: Counter,
    /// Datagrams that name no configured server.
    pub unknown: Counter,
    /// Datagrams that were not looked at, for their sender had had its share, and reports beyond what one server is granted.
    pub limited: Counter,
    /// Reports with a tag that is not right.
    pub forged: Counter,
    /// Reports that were sent too long ago, or by a clock that differs.
    pub late: Counter,
    /// Reports that had counted before, or came after a later one.
    pub replayed: Counter,
    /// Reports of agents that had not heard of this process.
    pub unheard: Counter,
    /// Datagrams for which the socket's buffer had no room, as far as that is known.
    pub dropped_by_kernel: Counter,
    /// Reports for which control had no room.
    pub dropped: Counter,
    /// Questions and other orders that were sent to agents.
    pub orders: Counter,
    /// Orders that could not be sent: nothing had been heard of the agent, or the network refused.
    pub orders_failed: Counter,
    /// Replies to agent-checks.
    pub agent_checks: Counter,
    /// Agent-checks without a reply that could be read.
    pub agent_checks_failed: Counter,
}

impl FeedbackCounters {
    /// Reports that may have been lost on our side so far: as it rises, a promise that was not kept may have been.
    pub fn lost(&self) -> u64 {
        self.dropped_by_kernel.get() + self.dropped.get()
    }
}

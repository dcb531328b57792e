//! What was heard of agents and agent-checks, and what of it was refused, as `status` tells it: counts since the start.

use serde::{Deserialize, Serialize};

use crate::shared::counters::feedback::FeedbackCounters;

/// What agents report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportsStatus {
    /// Reports that counted.
    pub accepted: u64,
    /// Those that did not, and what was no report.
    pub refused: RefusedReports,
    /// Datagrams for which the socket's buffer had no room, about.
    pub dropped_by_kernel: u64,
    /// Reports for which control had no room, and those of known agents that were not looked at.
    pub dropped: u64,
    /// Questions and other orders to agents.
    pub orders: u64,
    /// Those that could not be sent.
    pub orders_failed: u64,
}

/// Datagrams that did not count, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedReports {
    /// From addresses that may not report, as far as the kernel let them through.
    pub foreign: u64,
    /// No reports, or with content that can't be.
    pub malformed: u64,
    /// Of no configured server.
    pub unknown: u64,
    /// Not looked at: their sender had had its share.
    pub limited: u64,
    /// With a tag that is not right.
    pub forged: u64,
    /// Sent too long ago, or by a clock that differs.
    pub late: u64,
    /// Seen before, or older than one that counted.
    pub replayed: u64,
    /// By agents that had not heard of this process yet, or made for another.
    pub unheard: u64,
}

/// What servers answer to agent-checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentCheckStatus {
    /// Replies that could be read.
    pub replies: u64,
    /// Questions that brought none.
    pub failed: u64,
}

impl ReportsStatus {
    /// The counts now.
    pub fn of(counters: &FeedbackCounters) -> Self {
        Self {
            accepted: counters.accepted.get(),
            refused: RefusedReports {
                foreign: counters.foreign.get(),
                malformed: counters.malformed.get(),
                unknown: counters.unknown.get(),
                limited: counters.limited.get(),
                forged: counters.forged.get(),
                late: counters.late.get(),
                replayed: counters.replayed.get(),
                unheard: counters.unheard.get(),
            },
            dropped_by_kernel: counters.dropped_by_kernel.get(),
            dropped: counters.dropped.get(),
            orders: counters.orders.get(),
            orders_failed: counters.orders_failed.get(),
        }
    }

    /// In words, for people: troubles of which there are none are left out.
    pub(super) fn lines(&self) -> Vec<String> {
        let refused = &self.refused;
        let troubles = [
            (refused.foreign, "datagrams came from addresses that may not report"),
            (refused.malformed, "datagrams were no reports"),
            (refused.unknown, "reports were of no configured server"),
            (refused.limited, "datagrams were not looked at, for their sender had had its share"),
            (refused.forged, "reports had a wrong signature"),
            (refused.late, "reports were too old, or of a clock that differs"),
            (refused.replayed, "reports had come before"),
            (self.dropped_by_kernel, "datagrams found no room in the socket's buffer"),
            (self.dropped, "reports were lost on their way to control"),
        ];
        let troubles = troubles.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("  {count} {what}"));
        std::iter::once(format!("  {} reports of agents counted", self.accepted)).chain(troubles).collect()
    }
}

impl AgentCheckStatus {
    /// The counts now.
    pub fn of(counters: &FeedbackCounters) -> Self {
        Self { replies: counters.agent_checks.get(), failed: counters.agent_checks_failed.get() }
    }

    /// In words, for people.
    pub(super) fn line(&self) -> String {
        let failed = if self.failed > 0 { format!(", {} brought no reply", self.failed) } else { String::new() };
        format!("  {} agent-checks were answered{failed}", self.replies)
    }
}

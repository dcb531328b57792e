//! What control knows of servers, for those who ask it: written whole by the control loop now and then, read by `status`. No
//! request ever looks at it.
//!
//! It is a report and nothing more: who reads it decides nothing by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::base::id::ServerSlot;
use crate::pure::alert::AlertCounts;
use crate::pure::availability::Tally;
use crate::pure::control::evidence::{Evidence, Sign};
use crate::pure::control::view::FeedbackView;
use crate::pure::recovery::RecoveryReport;

/// What control knows.
#[derive(Clone, Debug, Default)]
pub struct ControlReport {
    /// Of each configured server.
    pub servers: BTreeMap<ServerSlot, ServerReport>,
    /// How available each pool was, by its name.
    pub pools: BTreeMap<Arc<str>, Tally>,
    /// What became of alerts.
    pub alerts: AlertCounts,
}

/// What control knows of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerReport {
    /// What made its state what it is; `None`: nobody has said.
    pub because: Option<Sign>,
    /// What was seen of it, the latest last.
    pub evidence: Vec<Evidence>,
    /// What is made of its reports; `None`: it has sent none.
    pub feedback: Option<FeedbackView>,
    /// How available it was; `None`: not known yet.
    pub availability: Option<Tally>,
    /// What was done to bring it back; `None`: its pool has no `recovery`.
    pub recovery: Option<RecoveryReport>,
}

/// Where the report lies.
#[derive(Debug, Default)]
pub struct ControlReportStore(ArcSwap<ControlReport>);

impl ControlReportStore {
    /// The last report.
    pub fn load(&self) -> Arc<ControlReport> {
        self.0.load_full()
    }

    /// Replaces the report.
    pub fn publish(&self, report: ControlReport) {
        self.0.store(Arc::new(report));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_whole_and_the_last_one_counts() {
        let store = ControlReportStore::default();
        let before = store.load();
        let servers = BTreeMap::from([(ServerSlot(7), ServerReport::default())]);
        store.publish(ControlReport { servers, ..ControlReport::default() });
        assert!(before.servers.is_empty() && store.load().servers.contains_key(&ServerSlot(7)));
    }
}

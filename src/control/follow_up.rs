//! What follows from changes of state beside new snapshots: how available servers and pools were, and the report for those who
//! ask.
//!
//! The control loop tells it what has happened; it never tells control anything. It publishes at most every
//! [`PUBLISH_EVERY`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;
use crate::pure::availability::{Standing, Tally};
use crate::pure::control::Control;
use crate::shared::control_report::{ControlReport, ControlReportStore, ServerReport};
use crate::shared::snapshot::Snapshot;

/// How often a report is published where things change.
pub const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// What follows from changes of state.
#[derive(Debug)]
pub(super) struct FollowUp {
    reports: Arc<ControlReportStore>,
    servers: BTreeMap<ServerSlot, Tally>,
    pools: BTreeMap<Arc<str>, Pool>,
    /// Whether something has changed since the last report.
    is_stale: bool,
    published: Timestamp,
}

#[derive(Debug)]
struct Pool {
    servers: Vec<ServerSlot>,
    tally: Tally,
}

impl FollowUp {
    pub(super) fn new(reports: Arc<ControlReportStore>) -> Self {
        let (servers, pools) = (BTreeMap::new(), BTreeMap::new());
        Self { reports, servers, pools, is_stale: true, published: Timestamp::ZERO }
    }

    /// These are the servers now.
    pub(super) fn reload(&mut self, now: Timestamp, snapshot: &Snapshot, control: &Control) {
        let mut tallies = std::mem::take(&mut self.servers);
        let mut pools = std::mem::take(&mut self.pools);
        for pool in &snapshot.pools {
            let servers: Vec<ServerSlot> = pool.candidates.iter().map(|candidate| candidate.slot).collect();
            for slot in &servers {
                let standing = standing(control, *slot);
                let mut tally = tallies.remove(slot).unwrap_or_else(|| Tally::new(now, standing));
                tally.stands(now, standing);
                self.servers.insert(*slot, tally);
            }
            let standing = Standing::of_pool(servers.iter().map(|slot| standing(control, *slot)));
            let mut tally = pools.remove(&pool.pool.name).map_or_else(|| Tally::new(now, standing), |pool| pool.tally);
            tally.stands(now, standing);
            self.pools.insert(Arc::clone(&pool.pool.name), Pool { servers, tally });
        }
        self.is_stale = true;
    }

    /// Something may have changed what is known of servers.
    pub(super) const fn note(&mut self) {
        self.is_stale = true;
    }

    /// Events have been weighed, and time has passed.
    pub(super) fn go_on(&mut self, now: Timestamp, control: &Control) {
        if !self.is_stale || now.since(self.published) < PUBLISH_EVERY {
            return;
        }
        (self.is_stale, self.published) = (false, now);
        self.reports.publish(self.report(now, control));
    }

    /// A server's state has changed.
    pub(super) fn changed(&mut self, now: Timestamp, slot: ServerSlot, control: &Control) {
        self.is_stale = true;
        let Some(tally) = self.servers.get_mut(&slot) else { return };
        tally.stands(now, standing(control, slot));
        for pool in self.pools.values_mut().filter(|pool| pool.servers.contains(&slot)) {
            let servers = pool.servers.iter().map(|slot| standing(control, *slot));
            pool.tally.stands(now, Standing::of_pool(servers));
        }
    }

    fn report(&self, now: Timestamp, control: &Control) -> ControlReport {
        let server = |(slot, tally): (&ServerSlot, &Tally)| {
            let view = control.view(*slot, now);
            let (evidence, feedback) = view.map(|view| (view.evidence, view.feedback)).unwrap_or_default();
            (*slot, ServerReport { evidence, feedback, availability: Some(*tally), recovery: None })
        };
        ControlReport {
            servers: self.servers.iter().map(server).collect(),
            pools: self.pools.iter().map(|(name, pool)| (Arc::clone(name), pool.tally)).collect(),
            ..ControlReport::default()
        }
    }
}

/// How a server stands; one that is gone is nobody's concern.
fn standing(control: &Control, slot: ServerSlot) -> Standing {
    control.state(slot).map_or(Standing::Away, |state| Standing::of(state, control.is_dead(slot)))
}

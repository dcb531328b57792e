//! What follows from changes of state beside new snapshots: recovery, alerts, how available servers and pools were, and the
//! report for those who ask.
//!
//! The control loop tells it what has happened; it never tells control anything, and it never waits: steps and alerts are
//! others' work. It publishes as often as [`Freshness`] says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::base::id::{ServerId, ServerSlot};
use crate::base::time::Timestamp;
use crate::control::alert::Alerter;
use crate::control::equipment::{Equipment, Renewal};
use crate::control::freshness::Freshness;
use crate::control::recovery::{StepResult, Steps, Target};
use crate::pure::alert::{AlertCounts, Alerts, Occasion};
use crate::pure::availability::{Standing, Tally};
use crate::pure::control::Control;
use crate::pure::feedback::wire::RestartProgress;
use crate::pure::recovery::plan::{Machine, Plan};
use crate::pure::recovery::{Attempt, Effect, Event, Means, Outcome, Recoverable, Recovery, StepFailure, StepId};
use crate::shared::control_report::{ControlReport, ControlReportStore, ServerReport};
use crate::shared::snapshot::Snapshot;
use crate::transport::tls::Connectors;

/// What follows from changes of state.
#[derive(Debug)]
pub(super) struct FollowUp {
    reports: Arc<ControlReportStore>,
    recovery: Recovery,
    steps: Steps,
    alerts: Alerts,
    alerter: Alerter,
    servers: BTreeMap<ServerSlot, Followed>,
    pools: BTreeMap<Arc<str>, Pool>,
    /// Servers that are in doubt: they may be dead without a change of state.
    doubted: BTreeSet<ServerSlot>,
    effects: Vec<Effect>,
    /// How far the last report is behind.
    freshness: Freshness,
}

#[derive(Debug)]
struct Followed {
    id: ServerId,
    pool: Arc<str>,
    tally: Tally,
    /// For whom steps are taken; `None`: nothing may be done.
    target: Option<Target>,
}

#[derive(Debug)]
struct Pool {
    servers: Vec<ServerSlot>,
    tally: Tally,
}

impl FollowUp {
    /// Nothing to follow yet: a reload brings it. `seed` spreads attempts over time. The ends of steps come out of the second and have
    /// to be told to [`Self::step_done`].
    pub(super) fn new(
        reports: Arc<ControlReportStore>,
        equipment: Equipment,
        connectors: &Connectors,
        seed: u64,
    ) -> (Self, mpsc::Receiver<StepResult>) {
        let Equipment { passwords, alerter, orders } = equipment;
        let (steps, results) = Steps::new(passwords, orders, connectors);
        let follow_up = Self {
            reports,
            recovery: Recovery::new(seed),
            steps,
            alerts: Alerts::default(),
            alerter,
            servers: BTreeMap::new(),
            pools: BTreeMap::new(),
            doubted: BTreeSet::new(),
            effects: Vec::new(),
            freshness: Freshness::default(),
        };
        (follow_up, results)
    }

    /// Another configuration brings this with it.
    pub(super) fn equip(&mut self, renewal: Renewal) {
        self.steps.learn(renewal.passwords);
        if let Some(alerter) = renewal.alerter {
            // What the former still has is delivered.
            self.alerter = alerter;
        }
    }

    /// These are the servers now.
    pub(super) fn reload(&mut self, now: Timestamp, snapshot: &Snapshot, control: &Control) {
        let mut known = std::mem::take(&mut self.servers);
        let mut pools = std::mem::take(&mut self.pools);
        let machines = &snapshot.config.machines;
        let mut recoverable = Vec::new();
        for pool in &snapshot.pools {
            let name = &pool.pool.name;
            let mut slots = Vec::with_capacity(pool.candidates.len());
            for (candidate, endpoint) in pool.candidates.iter().zip(&pool.endpoints) {
                let (slot, id) = (candidate.slot, candidate.server.id.clone());
                let standing = standing(control, slot);
                let mut tally = known.remove(&slot).map_or_else(|| Tally::new(now, standing), |known| known.tally);
                tally.stands(now, standing);
                let host = machines.name_of(&id);
                let machine = machines.get(&host).cloned();
                let means = pool.pool.recovery.as_ref().map(|plan| means_of(plan, machine.as_ref()));
                recoverable.push(Recoverable { slot, id: id.clone(), host, means, standing: tally.standing() });
                let target = pool.pool.recovery.as_ref().map(|plan| Target {
                    endpoint: Arc::clone(endpoint),
                    pool: Arc::clone(&pool.pool),
                    plan: Arc::clone(plan),
                    machine,
                });
                slots.push(slot);
                self.servers.insert(slot, Followed { id, pool: Arc::clone(name), tally, target });
            }
            let standing = Standing::of_pool(slots.iter().map(|slot| self.standing_of(*slot)));
            let mut tally = pools.remove(name).map_or_else(|| Tally::new(now, standing), |pool| pool.tally);
            tally.stands(now, standing);
            self.pools.insert(Arc::clone(name), Pool { servers: slots, tally });
        }
        let is_doubted = |followed: &Followed| followed.tally.standing() == Standing::Doubted;
        self.doubted =
            self.servers.iter().filter(|(_, followed)| is_doubted(followed)).map(|(slot, _)| *slot).collect();
        let ids: BTreeSet<&ServerId> = self.servers.values().map(|followed| &followed.id).collect();
        self.alerts.keep(|id| ids.contains(id));
        self.recover(now, Event::Reload(&recoverable));
        self.freshness.state_changed();
    }

    /// Something may have changed what is known of servers.
    pub(super) const fn note(&mut self) {
        self.freshness.figures_changed();
    }

    /// A server's state has changed.
    pub(super) fn changed(&mut self, now: Timestamp, slot: ServerSlot, control: &Control) {
        self.freshness.state_changed();
        let Some(followed) = self.servers.get_mut(&slot) else { return };
        let before = followed.tally.standing();
        followed.tally.stands(now, standing(control, slot));
        let after = followed.tally.standing();
        if after == Standing::Doubted {
            self.doubted.insert(slot);
        } else {
            self.doubted.remove(&slot);
        }
        if before == after {
            return;
        }
        let (id, pool) = (followed.id.clone(), Arc::clone(&followed.pool));
        if let Some(pool) = self.pools.get_mut(&pool) {
            let servers = pool.servers.iter().filter_map(|slot| self.servers.get(slot));
            pool.tally.stands(now, Standing::of_pool(servers.map(|followed| followed.tally.standing())));
        }
        let because = || control.view(slot, now).map(|view| view.because.to_string()).unwrap_or_default();
        match after {
            Standing::Failed => self.alert(now, Occasion::Down, &id, because()),
            Standing::InService => self.alert(now, Occasion::Recovered, &id, because()),
            Standing::Doubted | Standing::Away => {}
        }
        self.recover(now, Event::Stands(slot, after));
    }

    /// A server's agent was heard.
    pub(super) fn heard(&mut self, now: Timestamp, slot: ServerSlot, promised: Option<Duration>) {
        self.recover(now, Event::AgentHeard(slot, promised));
    }

    /// A server's agent says how the restart of that step goes.
    pub(super) fn restart_news(&self, (step, progress): (StepId, RestartProgress)) {
        self.steps.restart_news(step, progress);
    }

    /// A step has ended.
    pub(super) fn step_done(&mut self, now: Timestamp, (id, result): StepResult) {
        self.recover(now, Event::StepDone(id, result));
    }

    /// A tick's events have been weighed.
    pub(super) fn tick(&mut self, now: Timestamp, control: &Control) {
        for slot in self.doubted.clone() {
            if standing(control, slot) != Standing::Doubted {
                self.changed(now, slot, control);
            }
        }
        self.recover(now, Event::Tick);
        for alert in self.alerts.tick(now) {
            self.alerter.send(&alert);
        }
        if self.freshness.is_due(now) {
            self.reports.publish(self.report(now, control));
        }
    }

    fn standing_of(&self, slot: ServerSlot) -> Standing {
        self.servers.get(&slot).map_or(Standing::Away, |followed| followed.tally.standing())
    }

    fn alert(&mut self, now: Timestamp, occasion: Occasion, server: &ServerId, because: String) {
        if let Some(alert) = self.alerts.note(now, occasion, server, because) {
            self.alerter.send(&alert);
        }
    }

    fn recover(&mut self, now: Timestamp, event: Event<'_>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.recovery.handle(now, event, &mut effects);
        self.steps.call_off(|step| self.recovery.wants(now, step));
        if !effects.is_empty() {
            self.freshness.state_changed();
        }
        for effect in effects.drain(..) {
            match effect {
                Effect::Run(id, slot, step) => {
                    match self.servers.get(&slot).and_then(|followed| followed.target.clone()) {
                        Some(target) => self.steps.begin(id, step, target),
                        None => self.steps.tell(id, Err(StepFailure::NotDone("it is not known how".to_owned()))),
                    }
                }
                Effect::Tell(server, attempt) => tell(&server, &attempt),
                Effect::GaveUp(server, because) => {
                    tracing::error!("recovery of server {server} is given up: {because}");
                    self.alert(now, Occasion::GivenUp, &server, because);
                }
            }
        }
        self.effects = effects;
    }

    fn report(&self, now: Timestamp, control: &Control) -> ControlReport {
        let server = |(slot, followed): (&ServerSlot, &Followed)| {
            let view = control.view(*slot, now);
            let because = view.as_ref().map(|view| view.because);
            let (evidence, feedback) = view.map(|view| (view.evidence, view.feedback)).unwrap_or_default();
            let recovery = self.recovery.report(*slot);
            (*slot, ServerReport { because, evidence, feedback, availability: Some(followed.tally), recovery })
        };
        ControlReport {
            servers: self.servers.iter().map(server).collect(),
            pools: self.pools.iter().map(|(name, pool)| (Arc::clone(name), pool.tally)).collect(),
            alerts: AlertCounts { held_back: self.alerts.held_back(), ..self.alerter.counts() },
        }
    }
}

/// How a server stands; one that is gone is nobody's concern.
fn standing(control: &Control, slot: ServerSlot) -> Standing {
    control.state(slot).map_or(Standing::Away, |state| Standing::of(state, control.is_dead(slot)))
}

/// What a plan allows for a server on that machine.
fn means_of(plan: &Plan, machine: Option<&Machine>) -> Means {
    Means {
        restart: plan.restart,
        wake: plan.wake_on_lan.is_some() && machine.is_some_and(|machine| machine.mac.is_some()),
        power: plan.ipmi.is_some() && machine.is_some_and(|machine| machine.ipmi.is_some()),
        is_dry_run: plan.is_dry_run,
    }
}

fn tell(server: &ServerId, attempt: &Attempt) {
    let Attempt { step, outcome, times, .. } = attempt;
    match outcome {
        // That it goes on is no news.
        _ if *times > 1 => tracing::debug!("recovery of server {server}: {step}: {outcome}"),
        Outcome::Running => tracing::info!("recovery of server {server}: {step} begins"),
        Outcome::Done | Outcome::DryRun => tracing::info!("recovery of server {server}: {step}: {outcome}"),
        Outcome::Failed(_) => tracing::warn!("recovery of server {server}: {step}: {outcome}"),
    }
}

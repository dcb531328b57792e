//! The control loop: a thread of its own that feeds [`Control`] and carries out its effects.
//!
//! Every [`TICK`] it looks at what requests have counted and lets time pass; check results and orders it takes as they
//! come. It is the only writer of the snapshot. It decides nothing by itself, and no request ever waits for it. Should its
//! thread end unasked, the process must end: [`Handle::is_finished`] tells.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::base::id::{ServerId, ServerSlot};
use crate::base::time;
use crate::control::agent_orders::AgentOrder;
use crate::control::checks::{CheckResult, Checks};
use crate::control::equipment::{Equipped, Renewal};
use crate::control::follow_up::FollowUp;
use crate::control::inputs::{Heard, Inputs};
use crate::control::naming::{Found, Naming};
use crate::control::recovery::StepResult;
use crate::control::share_log::ShareLog;
use crate::control::sight::Sight;
use crate::pure::config::Config;
use crate::pure::control::{Change, Control, Effect, Event, Order, ShareChange, TICK, Watched};
use crate::pure::feedback::report::Source;
use crate::pure::pool::{Address, Share, State};
use crate::pure::rule::compile::RuleSet;
use crate::shared::control_report::ControlReportStore;
use crate::shared::inbox::{Inbox, Order as WorkerOrder};
use crate::shared::snapshot::{Endpoint, Snapshot, SnapshotStore, StateChange};
use crate::shared::spaced::Spaced;
use crate::shared::thread;
use crate::transport::tls::Connectors;

pub use crate::control::equipment::{Equipment, EquipmentError};
pub use crate::control::passwords::read as read_password;

/// The most orders that wait.
const ORDERS_MAX: usize = 256;

/// Something that the control thread is asked for.
#[derive(Debug)]
enum Command {
    /// An operator's order.
    Order(ServerId, Order),
    /// Another configuration, with what it brings.
    Reload(Arc<Config>, Arc<RuleSet>, Box<Renewal>),
}

/// The control thread, as seen from outside.
#[derive(Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
    /// What control acts with.
    equipped: Mutex<Equipped>,
    names_tried: std::sync::mpsc::Receiver<()>,
}

/// The control thread has ended, or does not keep up with its orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("control does not take orders")]
pub struct Unavailable;

impl Handle {
    /// Whether the thread has ended. Unless it was stopped, that is by a panic.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until each name of a server has been asked for once, with whatever result, and no longer than `patience`.
    /// Returns whether they have.
    pub fn wait_for_names(&self, patience: Duration) -> bool {
        self.names_tried.recv_timeout(patience).is_ok()
    }

    /// Orders something of a server. A server that is not configured is passed over.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn order(&self, server: ServerId, order: Order) -> Result<(), Unavailable> {
        self.command(Command::Order(server, order))
    }

    /// Publishes another configuration. What it names is read and started here and now, so that the control thread does not wait
    /// for it.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn reload(&self, config: Arc<Config>, rules: Arc<RuleSet>) -> Result<(), Unavailable> {
        let mut equipped = self.equipped.lock().unwrap_or_else(PoisonError::into_inner);
        let (renewal, next) = equipped.renewed(&config);
        self.command(Command::Reload(config, rules, Box::new(renewal)))?;
        *equipped = next;
        Ok(())
    }

    /// Ends the thread and waits for its end, which a tick or less brings.
    pub fn stop(self) {
        // Without anybody to order it, the loop ends.
        drop(self.commands);
        // A thread that ended in a panic is ended too.
        let _ = self.thread.join();
    }

    fn command(&self, command: Command) -> Result<(), Unavailable> {
        self.commands.try_send(command).map_err(|_| Unavailable)
    }
}

/// What the control thread works with.
#[derive(Debug)]
pub struct Start<'a> {
    /// Where the servers' states are published.
    pub store: Arc<SnapshotStore>,
    /// The workers, which take its orders.
    pub workers: Vec<Inbox>,
    /// How hands are shaken with the servers of those pools that speak TLS.
    pub connectors: &'a Connectors,
    /// Where it tells what it knows.
    pub reports: Arc<ControlReportStore>,
    /// What it brings servers back with, and tells people.
    pub equipment: Equipment,
    /// What servers say of themselves.
    pub inputs: Inputs,
}

/// Starts the control thread over the servers of the store's snapshot.
///
/// # Errors
/// Where the thread or its runtime can't be made.
pub fn start(start: Start<'_>) -> io::Result<Handle> {
    let Start { store, workers, connectors, reports, equipment, inputs } = start;
    let connectors = Connectors::clone(connectors);
    let equipped = Mutex::new(Equipped::with(&equipment, &store.load().config.alert));
    let (sender, receiver) = mpsc::channel(ORDERS_MAX);
    let (tried, names_tried) = std::sync::mpsc::sync_channel(1);
    let make = || Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let thread = thread::start("control", make, move |runtime| {
        let start = Start { store, workers, connectors: &connectors, reports, equipment, inputs };
        runtime.block_on(ControlLoop::new(start, tried).serve(receiver));
    })?;
    Ok(Handle { commands: sender, thread, equipped, names_tried })
}

struct ControlLoop {
    store: Arc<SnapshotStore>,
    workers: Vec<Inbox>,
    control: Control,
    /// The configured servers.
    servers: HashMap<ServerSlot, Arc<Endpoint>>,
    /// What requests have seen of each of them.
    sights: HashMap<ServerSlot, Sight>,
    /// What servers say of themselves, and the way to their agents.
    inputs: Inputs,
    /// How many reports were lost by the last tick.
    reports_lost: u64,
    effects: Vec<Effect>,
    checks: Checks,
    check_results: mpsc::Receiver<CheckResult>,
    naming: Naming,
    found: mpsc::Receiver<Found>,
    /// The configured names, with their addresses once they have been asked for.
    names: HashMap<Arc<str>, Option<Vec<IpAddr>>>,
    /// Those of them of which the resolver says that they do not exist.
    denied: BTreeSet<Arc<str>>,
    said_late: Spaced,
    share_log: ShareLog,
    /// Told once, when all have been.
    tried: std::sync::mpsc::SyncSender<()>,
    follow_up: FollowUp,
    step_results: mpsc::Receiver<StepResult>,
}

impl ControlLoop {
    fn new(start: Start<'_>, tried: std::sync::mpsc::SyncSender<()>) -> Self {
        let Start { store, workers, connectors, reports, equipment, inputs } = start;
        let (naming, found) = Naming::new();
        let (checks, check_results) = Checks::new(connectors);
        // For jitter only.
        let seed = time::wall_clock().duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()));
        let (follow_up, step_results) = FollowUp::new(reports, equipment, connectors, seed);
        let mut control_loop = Self {
            store,
            workers,
            control: Control::new(seed),
            servers: HashMap::new(),
            sights: HashMap::new(),
            inputs,
            reports_lost: 0,
            effects: Vec::new(),
            checks,
            check_results,
            naming,
            found,
            names: HashMap::new(),
            denied: BTreeSet::new(),
            said_late: Spaced::default(),
            share_log: ShareLog::default(),
            tried,
            follow_up,
            step_results,
        };
        control_loop.know_servers();
        control_loop
    }

    async fn serve(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.follow_names();
        loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(),
                Some((check, server, result)) = self.check_results.recv() => {
                    self.handle(Event::CheckDone(check, server, result));
                }
                Some(result) = self.step_results.recv() => self.follow_up.step_done(time::now(), result),
                Some(found) = self.found.recv() => self.found(found),
                Some(heard) = self.inputs.heard.recv() => self.heard(&heard),
                command = commands.recv() => match command {
                    Some(Command::Order(server, order)) => self.order(&server, order),
                    Some(Command::Reload(config, rules, renewal)) => {
                        self.follow_up.equip(*renewal);
                        self.store.reload(config, rules);
                        self.follow_names();
                        self.publish_names();
                        self.know_servers();
                    }
                    None => return,
                },
            }
            self.carry_out();
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        match &event {
            Event::Tick => {}
            Event::Report(slot, Source::Agent, report) => {
                self.follow_up.heard(time::now(), *slot, report.promised_next)
            }
            _ => self.follow_up.note(),
        }
        self.control.handle(time::now(), event, &mut self.effects);
    }

    fn heard(&mut self, heard: &Heard) {
        self.handle(Event::Report(heard.slot, heard.source, &heard.report));
        if let Some(news) = heard.restart {
            self.follow_up.restart_news(news);
        }
        self.follow_up.note();
    }

    fn tick(&mut self) {
        let lost = self.store.process().feedback.lost();
        if lost != self.reports_lost {
            self.reports_lost = lost;
            self.handle(Event::ReportsDropped);
        }
        self.gather_outcomes();
        self.handle(Event::Tick);
        self.carry_out();
        let now = time::now();
        self.share_log.due(now).iter().for_each(tell_share);
        self.follow_up.tick(now, &self.control);
    }

    /// Tells what requests have seen of each server since the last time, where that is anything.
    fn gather_outcomes(&mut self) {
        let now = time::now();
        let Self { servers, sights, control, effects, follow_up, .. } = self;
        let mut tell = |event: Event<'_>| {
            follow_up.note();
            control.handle(now, event, effects);
        };
        for (slot, endpoint) in servers {
            let sight = sights.entry(*slot).or_default();
            if let Some(summary) = sight.look(now, &endpoint.record) {
                tell(Event::Outcomes(*slot, summary));
            }
            if let Some(report) = sight.load(&endpoint.record) {
                tell(Event::Report(*slot, Source::Orca, &report));
            }
        }
    }

    fn order(&mut self, server: &ServerId, order: Order) {
        let slot = self.servers.values().find(|endpoint| endpoint.server.id == *server).map(|found| found.record.slot);
        match slot {
            Some(slot) => self.handle(Event::Order(slot, order)),
            None => tracing::warn!("an order for {server}, which is not configured, is passed over"),
        }
    }

    /// Has the names of the configured servers asked for.
    fn follow_names(&mut self) {
        let snapshot = self.store.load();
        let servers = snapshot.config.pools.iter().flat_map(|pool| &pool.servers);
        let hosts: BTreeSet<Arc<str>> = servers
            .filter_map(|server| match &server.address {
                Address::Name(host, _) => Some(Arc::from(host.as_str())),
                Address::Socket(_) | Address::Unix(_) => None,
            })
            .collect();
        self.names.retain(|host, _| hosts.contains(host));
        self.denied.retain(|host| hosts.contains(host));
        for host in &hosts {
            self.names.entry(Arc::clone(host)).or_default();
        }
        self.naming.follow(&hosts, &snapshot.config.resolvers);
        self.tell_when_tried();
    }

    fn found(&mut self, found: Found) {
        // One that is gone from the configuration may have been on its way.
        let Some(known) = self.names.get_mut(&found.host) else { return };
        *known = Some(found.addresses);
        if found.is_denied {
            self.denied.insert(found.host);
        } else {
            self.denied.remove(&found.host);
        }
        if self.publish_names() {
            self.know_servers();
        }
        self.tell_when_tried();
    }

    fn tell_when_tried(&self) {
        if self.names.values().all(Option::is_some) {
            // Whoever waits for it needs it once, or has gone.
            let _ = self.tried.try_send(());
        }
    }

    /// Publishes the addresses of all names. Returns whether any are new.
    fn publish_names(&self) -> bool {
        let snapshot = self.store.load();
        let endpoints = snapshot.pools.iter().flat_map(|pool| &pool.endpoints);
        let addresses: Vec<(ServerSlot, Arc<[SocketAddr]>)> = endpoints
            .filter_map(|endpoint| {
                let Address::Name(host, port) = &endpoint.server.address else { return None };
                let known = self.names.get(host.as_str())?.as_ref()?;
                let at_port = known.iter().map(|address| SocketAddr::new(*address, *port)).collect();
                // What a task that began anew does not know yet, its predecessor may have known.
                (!known.is_empty()).then_some((endpoint.record.slot, at_port))
            })
            .collect();
        self.store.set_addresses(&addresses)
    }

    /// Takes over the servers of the snapshot.
    fn know_servers(&mut self) {
        let snapshot = self.store.load();
        let pools = || {
            snapshot.pools.iter().flat_map(|pool| {
                let servers = pool.candidates.iter().zip(&pool.endpoints);
                servers.map(|(candidate, endpoint)| (&pool.pool, candidate, endpoint))
            })
        };
        self.servers = pools().map(|(_, candidate, endpoint)| (candidate.slot, Arc::clone(endpoint))).collect();
        self.sights.retain(|slot, _| self.servers.contains_key(slot));
        let watched: Vec<Watched> = pools()
            .map(|(pool, candidate, _)| Watched {
                slot: candidate.slot,
                id: candidate.server.id.clone(),
                incarnation: candidate.incarnation,
                state: candidate.state,
                share: candidate.share,
                whole: Share::of(candidate.server.weight),
                slow_start: pool.slow_start,
                check: pool.check.as_ref().map(|check| check.times).unwrap_or_default(),
                detection: pool.detection,
                feedback: pool.follows_reports(),
            })
            .collect();
        self.handle(Event::Reload(&watched));
        self.follow_up.reload(time::now(), &snapshot, &self.control);
    }

    fn carry_out(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        let (mut changes, mut silent) = (Vec::new(), Vec::new());
        let (mut states_told, mut shares_told) = (Vec::new(), Vec::new());
        let snapshot = self.store.load();
        for effect in self.effects.drain(..) {
            match effect {
                Effect::SetState(slot, state) => {
                    changes.push(StateChange::new(slot, state));
                    self.follow_up.changed(time::now(), slot, &self.control);
                }
                Effect::SetShare(slot, share) => {
                    if let Some(state) = self.control.state(slot) {
                        changes.push(StateChange { share: Some(share), ..StateChange::new(slot, state) });
                    }
                }
                Effect::ForgetConnectFailures(slot) => {
                    if let Some(endpoint) = self.servers.get(&slot) {
                        endpoint.record.forget_failures();
                    }
                }
                Effect::RunCheck(check) => {
                    let endpoint = self.servers.get(&check.server);
                    if let Some((endpoint, pool)) = endpoint.and_then(|it| Some((it, snapshot.pool_of(it)?))) {
                        let is_denied = match &endpoint.server.address {
                            Address::Name(host, _) => self.denied.contains(host.as_str()),
                            Address::Socket(_) | Address::Unix(_) => false,
                        };
                        self.checks.begin(check, Arc::clone(endpoint), Arc::clone(&pool.pool), is_denied);
                    }
                }
                Effect::TakeBack(slot) => silent.push(slot),
                Effect::Ask(slot) => self.inputs.order(slot, AgentOrder::Question),
                Effect::SetMax(slot, max) => {
                    if let Some(state) = self.control.state(slot) {
                        changes.push(StateChange { max: Some(max), ..StateChange::new(slot, state) });
                    }
                }
                Effect::SetCounter(slot, counter) => {
                    if let Some(endpoint) = self.servers.get(&slot) {
                        endpoint.record.load.set_counter(counter);
                    }
                }
                Effect::TellShare(change) => {
                    shares_told.extend(self.share_log.note(time::now(), change));
                }
                Effect::TellOscillation(server, gain) => tracing::warn!(
                    "the share of {server} goes to and fro: from now on it goes {:.0} % of each way",
                    gain * 100.0
                ),
                Effect::TellLate(late, factor) => tell_late(late, factor, &self.said_late),
                Effect::Tell(change) => states_told.push(change),
            }
        }
        if !changes.is_empty() {
            self.store.set_states(&changes);
            tell_of_panic(&snapshot, &self.store.load());
        }
        // Behind the states: what is said holds for the next request.
        states_told.iter().for_each(tell);
        shares_told.iter().for_each(tell_share);
        // Behind the states: what is taken back is not to go there again.
        for (slot, worker) in silent.into_iter().flat_map(|slot| self.workers.iter().map(move |worker| (slot, worker)))
        {
            // A worker that does not take it has stopped, or will see to its requests itself: they time out.
            let _ = worker.send(WorkerOrder::TakeBack(slot));
        }
    }
}

fn tell(change: &Change) {
    let Change { server, from, to, because } = change;
    match to {
        State::Suspect { .. } | State::Down => tracing::warn!("server {server} was {from} and is {to}: {because}"),
        State::Up | State::Recovering | State::Drained | State::Maintenance => {
            tracing::info!("server {server} was {from} and is {to}: {because}");
        }
    }
}

fn tell_late(late: Duration, factor: f64, said: &Spaced) {
    if said.is_due() {
        let late = late.as_millis();
        tracing::warn!("control was {late} ms late: this machine is too busy; timeouts are {factor:.1} times as long");
    }
}

fn tell_share(change: &ShareChange) {
    let ShareChange { server, from, to, rating, is_dry_run } = change;
    let would = if *is_dry_run { "would be" } else { "is" };
    match rating {
        Some(rating) => tracing::info!(
            "the share of {server} was {from} and {would} {to}: load {:.0} %, highest use {:.0} %, performance {:.0} %",
            rating.load * 100.0,
            rating.highest * 100.0,
            rating.performance * 100.0
        ),
        None => {
            tracing::info!("the share of {server} was {from} and {would} {to}: by its own wish or for want of reports")
        }
    }
}

fn tell_of_panic(before: &Snapshot, after: &Snapshot) {
    for (before, after) in before.pools.iter().zip(&after.pools) {
        let name = &after.pool.name;
        match (before.in_panic, after.in_panic) {
            (false, true) => tracing::warn!(
                "pool {name}: fewer than half of the servers are available; suspicion is ignored, all but the dead get requests"
            ),
            (true, false) => tracing::info!("pool {name}: half of the servers or more are available again"),
            (true, true) | (false, false) => {}
        }
    }
}

#[cfg(test)]
mod tests;

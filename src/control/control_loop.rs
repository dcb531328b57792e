//! The control loop: a thread of its own that feeds [`Control`] and carries out its effects.
//!
//! Every [`TICK`] it empties the workers' outcome queues and lets time pass; check results and orders it takes as they
//! come. It is the only writer of the snapshot. It decides nothing by itself, and no request ever waits for it. Should its
//! thread end unasked, the process must end: [`Handle::is_finished`] tells.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::base::id::{ServerId, ServerSlot};
use crate::base::time;
use crate::control::inputs::{Heard, Inputs};
use crate::control::naming::{Found, Naming};
use crate::control::probe::check_connect;
use crate::pure::config::Config;
use crate::pure::control::{
    CHECKS_MAX, Change, Check, CheckFailure, CheckId, Control, Effect, Event, Order, OutcomeSummary, TICK, Watched,
};
use crate::pure::pool::{Address, Share, State};
use crate::pure::proxy_protocol::Version;
use crate::pure::rule::compile::RuleSet;
use crate::shared::outcome::OutcomeReceiver;
use crate::shared::snapshot::{Endpoint, Snapshot, SnapshotStore, StateChange};
use crate::shared::thread;

/// The most orders that wait.
const ORDERS_MAX: usize = 256;

/// Something that the control thread is asked for.
#[derive(Debug)]
enum Command {
    /// An operator's order.
    Order(ServerId, Order),
    /// Another configuration.
    Reload(Arc<Config>, Arc<RuleSet>),
}

/// The control thread, as seen from outside.
#[derive(Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
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

    /// Publishes another configuration.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn reload(&self, config: Arc<Config>, rules: Arc<RuleSet>) -> Result<(), Unavailable> {
        self.command(Command::Reload(config, rules))
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

/// Starts the control thread over the servers of the store's snapshot; `outcomes` are the workers' queues.
///
/// # Errors
/// Where the thread or its runtime can't be made.
pub fn start(store: Arc<SnapshotStore>, outcomes: Vec<OutcomeReceiver>) -> io::Result<Handle> {
    let inputs = Inputs::none(store.process());
    start_with(store, outcomes, inputs)
}

/// The same, with what servers say of themselves, and a way to their agents.
///
/// # Errors
/// Where the thread or its runtime can't be made.
pub fn start_with(store: Arc<SnapshotStore>, outcomes: Vec<OutcomeReceiver>, inputs: Inputs) -> io::Result<Handle> {
    let (sender, receiver) = mpsc::channel(ORDERS_MAX);
    let (tried, names_tried) = std::sync::mpsc::sync_channel(1);
    let make = || Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let thread = thread::start("control", make, |runtime| {
        runtime.block_on(ControlLoop::new(store, outcomes, inputs, tried).serve(receiver));
    })?;
    Ok(Handle { commands: sender, thread, names_tried })
}

type CheckResult = (CheckId, ServerSlot, Result<Duration, CheckFailure>);

struct ControlLoop {
    store: Arc<SnapshotStore>,
    outcomes: Vec<OutcomeReceiver>,
    control: Control,
    /// The configured servers.
    servers: HashMap<ServerSlot, Arc<Endpoint>>,
    /// What requests have seen since the last tick; emptied with each, its memory is kept.
    seen: HashMap<ServerSlot, OutcomeSummary>,
    /// How many outcomes were dropped by the last tick.
    dropped: u64,
    /// What servers say of themselves, and the way to their agents.
    inputs: Inputs,
    /// How many reports were lost by the last tick.
    reports_lost: u64,
    effects: Vec<Effect>,
    checked: mpsc::Sender<CheckResult>,
    check_results: mpsc::Receiver<CheckResult>,
    naming: Naming,
    found: mpsc::Receiver<Found>,
    /// The configured names, with their addresses once they have been asked for.
    names: HashMap<Arc<str>, Option<Vec<IpAddr>>>,
    /// Told once, when all have been.
    tried: std::sync::mpsc::SyncSender<()>,
}

impl ControlLoop {
    fn new(
        store: Arc<SnapshotStore>,
        outcomes: Vec<OutcomeReceiver>,
        inputs: Inputs,
        tried: std::sync::mpsc::SyncSender<()>,
    ) -> Self {
        let (naming, found) = Naming::new();
        let (checked, check_results) = mpsc::channel(CHECKS_MAX);
        // For jitter only.
        let seed = time::wall_clock().duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()));
        let mut control_loop = Self {
            store,
            outcomes,
            control: Control::new(seed),
            servers: HashMap::new(),
            seen: HashMap::new(),
            dropped: 0,
            inputs,
            reports_lost: 0,
            effects: Vec::new(),
            checked,
            check_results,
            naming,
            found,
            names: HashMap::new(),
            tried,
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
                Some(found) = self.found.recv() => self.found(found),
                Some(heard) = self.inputs.heard.recv() => self.heard(&heard),
                command = commands.recv() => match command {
                    Some(Command::Order(server, order)) => self.order(&server, order),
                    Some(Command::Reload(config, rules)) => {
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
        self.control.handle(time::now(), event, &mut self.effects);
    }

    fn heard(&mut self, heard: &Heard) {
        self.handle(Event::Report(heard.slot, heard.source, &heard.report));
    }

    fn tick(&mut self) {
        let lost = self.store.process().feedback.lost();
        if lost != self.reports_lost {
            self.reports_lost = lost;
            self.handle(Event::ReportsDropped);
        }
        self.gather_outcomes();
        let mut seen = std::mem::take(&mut self.seen);
        for (slot, mut summary) in seen.drain() {
            let Some(endpoint) = self.servers.get(&slot) else { continue };
            summary.connect_failures_in_a_row = endpoint.record.connect_failures_in_a_row();
            self.handle(Event::Outcomes(slot, summary));
        }
        self.seen = seen;
        self.handle(Event::Tick);
    }

    fn gather_outcomes(&mut self) {
        for report in self.outcomes.iter().flat_map(OutcomeReceiver::drain) {
            // What was seen of a former address says nothing of this one.
            if self.servers.get(&report.slot).is_some_and(|server| server.incarnation == report.incarnation) {
                let summary = self.seen.entry(report.slot).or_default();
                summary.failed = summary.failed.saturating_add(1);
            }
        }
        let dropped = self.store.process().outcomes_dropped.get();
        if dropped != self.dropped {
            // Whose outcomes they were is not known: their counters tell.
            self.dropped = dropped;
            for slot in self.servers.keys() {
                self.seen.entry(*slot).or_default();
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
                servers.map(|(candidate, endpoint)| (pool.pool.slow_start, candidate, endpoint))
            })
        };
        self.servers = pools().map(|(_, candidate, endpoint)| (candidate.slot, Arc::clone(endpoint))).collect();
        let watched: Vec<Watched> = pools()
            .map(|(slow_start, candidate, _)| Watched {
                slot: candidate.slot,
                id: candidate.server.id.clone(),
                incarnation: candidate.incarnation,
                state: candidate.state,
                share: candidate.share,
                whole: Share::of(candidate.server.weight),
                slow_start,
            })
            .collect();
        self.handle(Event::Reload(&watched));
    }

    fn carry_out(&mut self) {
        let mut changes = Vec::new();
        let snapshot = self.store.load();
        for effect in self.effects.drain(..) {
            match effect {
                Effect::SetState(slot, state) => changes.push(StateChange { slot, state, share: None }),
                Effect::SetShare(slot, share) => {
                    if let Some(state) = self.control.state(slot) {
                        changes.push(StateChange { slot, state, share: Some(share) });
                    }
                }
                Effect::ForgetConnectFailures(slot) => {
                    if let Some(endpoint) = self.servers.get(&slot) {
                        endpoint.record.forget_connect_failures();
                    }
                }
                Effect::RunCheck(check) => {
                    if let Some(endpoint) = self.servers.get(&check.server) {
                        let proxy_protocol = snapshot.proxy_protocol_of(endpoint);
                        run_check(check, Arc::clone(endpoint), proxy_protocol, self.checked.clone());
                    }
                }
                Effect::Ask(slot) => self.inputs.orders.ask(slot),
                Effect::TakeBack(_) => {}
                Effect::Tell(change) => tell(&change),
            }
        }
        if !changes.is_empty() {
            self.store.set_states(&changes);
            tell_of_panic(&snapshot, &self.store.load());
        }
    }
}

fn run_check(
    check: Check,
    endpoint: Arc<Endpoint>,
    proxy_protocol: Option<Version>,
    checked: mpsc::Sender<CheckResult>,
) {
    tokio::task::spawn_local(async move {
        let result = check_connect(&endpoint, check.timeout, proxy_protocol).await;
        // Nobody waits for it where control has been stopped.
        let _ = checked.send((check.id, check.server, result)).await;
    });
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

//! The feedback thread: receives what agents report, believes what is signed and new, and asks them.
//!
//! It has its socket, its thread and its tables to itself: a flood costs it time and nobody else. What counts goes to control
//! through a bounded queue, and run queues to where schedulers read them; what is refused is counted by its reason. It decides
//! nothing of a server. A datagram that is lost on our side is counted too, so that control does not take it for a broken promise.

mod restarts;
mod rounds;
mod socket;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot};

use crate::base::id::ServerSlot;
use crate::base::time::{self, Timestamp, UnixNanos};
use crate::control::agent_orders::AgentOrder;
use crate::control::inputs::{Heard, ReportSender};
use crate::pure::feedback::keys::MasterKey;
use crate::pure::feedback::reception::{Received, Reception, Refused, SECRET_LENGTH, Sources};
use crate::pure::feedback::report::Source;
use crate::pure::feedback::wire::{DATAGRAM_MAX, OrderKind, RestartNews, RestartProgress};
use crate::pure::pool::Address;
use crate::pure::rule::Cidr;
use crate::shared::counters::feedback::FeedbackCounters;
use crate::shared::snapshot::{Endpoint, Snapshot, SnapshotStore};
use crate::shared::spaced::Spaced;
use crate::shared::thread;

use restarts::Restarts;
use rounds::Rounds;
pub use socket::{BoundSocket, OpenError};
use socket::{Buffer, LiveSocket};

/// How often the thread looks around: at the configuration, the kernel's counts, rounds of questions.
const LOOK: Duration = Duration::from_millis(100);

/// The same while a pool has its agents asked.
const LOOK_WHILE_ASKING: Duration = Duration::from_millis(5);

/// How often the kernel's counts are read where nothing seems to be lost.
const COUNTS_EVERY: Duration = Duration::from_secs(1);

/// The most datagrams that are looked at before orders and rounds have their turn.
const BATCH: usize = 64;

/// How long a run queue holds that was reported unasked: so many times what was promised, within these bounds.
const HOLDS_TIMES: u32 = 3;
const HOLDS_MIN: Duration = Duration::from_secs(1);
const HOLDS_MAX: Duration = Duration::from_secs(60);
/// The same where nothing was promised.
const HOLDS_UNPROMISED: Duration = Duration::from_secs(5);

/// Starts the thread; it ends when `stop` is dropped at its other end.
///
/// # Errors
/// Where the thread or its runtime can't be made, or there are no random numbers.
pub(super) fn start(
    socket: BoundSocket,
    master: MasterKey,
    store: Arc<SnapshotStore>,
    reports: ReportSender,
    orders: mpsc::Receiver<(ServerSlot, AgentOrder)>,
    stop: oneshot::Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    let secret = random()?;
    let make = || Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    thread::start("feedback", make, move |runtime| {
        let served = runtime.block_on(async {
            let socket = socket.into_live()?;
            let reception = Reception::new(master, &secret, time::now());
            Listening::new(socket, reception, store, reports).serve(orders, stop).await
        });
        if let Err(error) = served {
            tracing::error!("reports can't be received: {error}");
        }
    })
}

/// What nobody can know beforehand.
fn random() -> io::Result<[u8; SECRET_LENGTH]> {
    let mut bytes = [0; SECRET_LENGTH];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(bytes)
}

struct Listening {
    socket: LiveSocket,
    reception: Reception,
    store: Arc<SnapshotStore>,
    reports: ReportSender,
    /// The configured servers.
    servers: HashMap<ServerSlot, Arc<Endpoint>>,
    /// When each agent was last heard.
    heard: HashMap<ServerSlot, Timestamp>,
    /// How the last restart of each went.
    restart_news: HashMap<ServerSlot, RestartNews>,
    restarts: Restarts,
    rounds: Rounds,
    /// Which snapshot's servers these are.
    whereabouts: Option<u64>,
    /// Whether the socket has lost datagrams since the last look, for whatever reason.
    has_drops: bool,
    counts_read: Timestamp,
    refusals: u64,
    said: Spaced,
}

impl Listening {
    fn new(socket: LiveSocket, reception: Reception, store: Arc<SnapshotStore>, reports: ReportSender) -> Self {
        let mut listening = Self {
            socket,
            reception,
            store,
            reports,
            servers: HashMap::new(),
            heard: HashMap::new(),
            restart_news: HashMap::new(),
            restarts: Restarts::default(),
            rounds: Rounds::default(),
            whereabouts: None,
            has_drops: false,
            counts_read: time::now(),
            refusals: 0,
            said: Spaced::default(),
        };
        listening.follow();
        listening
    }

    async fn serve(
        mut self,
        mut orders: mpsc::Receiver<(ServerSlot, AgentOrder)>,
        mut stop: oneshot::Receiver<()>,
    ) -> io::Result<()> {
        let mut buffer = [0; DATAGRAM_MAX + 1];
        let mut next_look = time::now();
        loop {
            tokio::select! {
                ready = self.socket.readable() => {
                    ready?;
                    self.receive(&mut buffer);
                }
                Some((slot, order)) = orders.recv() => self.order(slot, order),
                () = tokio::time::sleep_until(time::instant_of(next_look).into()) => {}
                _ = &mut stop => return Ok(()),
            }
            let now = time::now();
            if now >= next_look {
                self.look(now);
                next_look = now + if self.rounds.is_empty() { LOOK } else { LOOK_WHILE_ASKING };
            }
        }
    }

    fn counters(&self) -> &FeedbackCounters {
        &self.store.process().feedback
    }

    fn receive(&mut self, buffer: &mut Buffer) {
        for _ in 0..BATCH {
            match self.socket.receive(buffer) {
                Ok(Some(datagram)) => {
                    self.has_drops |= datagram.after_drops;
                    let bytes = buffer.get(..datagram.length).unwrap_or_default();
                    self.take(bytes, datagram.from);
                }
                Ok(None) => return,
                // What a former order met on its way comes back as an error of the socket: it says nothing of reports.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    if self.said.is_due() {
                        tracing::warn!("a report can't be received: {error}");
                    }
                    return;
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8], from: SocketAddr) {
        let now = time::now();
        let wall = UnixNanos::of(time::wall_clock());
        match self.reception.receive(bytes, from, now, wall) {
            Ok(received) => self.believe(received, from, now),
            Err(refused) => self.refuse(refused, bytes, from),
        }
    }

    fn believe(&mut self, received: Received, from: SocketAddr, now: Timestamp) {
        let Received { slot, message } = received;
        self.counters().accepted.add(1);
        if self.heard.insert(slot, now).is_none()
            && let Some(endpoint) = self.servers.get(&slot)
        {
            tracing::info!("the agent of {} reports from {from}", endpoint.server.id);
        }
        let holds = self.rounds.holds(slot).unwrap_or_else(|| match message.report.promised_next {
            Some(promised) => (promised * HOLDS_TIMES).clamp(HOLDS_MIN, HOLDS_MAX),
            None => HOLDS_UNPROMISED,
        });
        if let (Some(length), Some(endpoint)) = (message.report.figures.run_queue, self.servers.get(&slot)) {
            endpoint.record.load.run_queue.hear(length, now + holds);
        }
        self.tell_restart(slot, message.restart);
        let restart = self.restarts.heard(slot, message.restart);
        self.reports.send(Heard { slot, source: Source::Agent, report: message.report, restart });
    }

    /// Says how a restart went that was ordered, once for each step of it.
    fn tell_restart(&mut self, slot: ServerSlot, news: Option<RestartNews>) {
        let Some(news) = news else { return };
        if self.restart_news.insert(slot, news) == Some(news) {
            return;
        }
        let Some(endpoint) = self.servers.get(&slot) else { return };
        let id = &endpoint.server.id;
        match news.progress {
            RestartProgress::Running => tracing::info!("the agent of {id} restarts its service"),
            RestartProgress::Done => tracing::info!("the agent of {id} has restarted its service"),
            RestartProgress::Failed => tracing::warn!("the agent of {id} could not restart its service"),
            RestartProgress::Refused => tracing::warn!("the agent of {id} does not restart its service"),
        }
    }

    fn refuse(&mut self, refused: Refused, bytes: &[u8], from: SocketAddr) {
        count_refusal(self.counters(), &refused);
        match refused {
            Refused::Unheard(Some(introduction)) => self.send(&introduction, from),
            Refused::Replayed { wants_renewal: true } => {
                self.reception.renew(bytes);
                tracing::warn!("the clock of the agent at {from} was set back: it is introduced anew");
            }
            Refused::Foreign
            | Refused::Malformed
            | Refused::Unknown
            | Refused::Limited(_)
            | Refused::TooMany
            | Refused::Forged
            | Refused::Late
            | Refused::Replayed { wants_renewal: false }
            | Refused::Unheard(None) => {}
        }
    }

    fn order(&mut self, slot: ServerSlot, order: AgentOrder) {
        let wall = UnixNanos::of(time::wall_clock());
        let kind = match order {
            AgentOrder::Question => OrderKind::Question,
            AgentOrder::Restart(_) => OrderKind::Restart,
        };
        let Ok(sealed) = self.reception.order(slot, kind, wall) else {
            self.counters().orders_failed.add(1);
            return;
        };
        self.send(&sealed.datagram, sealed.to);
        if let AgentOrder::Restart(step) = order {
            self.restarts.ordered(time::now(), slot, step, sealed);
        }
    }

    fn send(&self, datagram: &[u8], to: SocketAddr) {
        let counters = self.counters();
        match self.socket.send(datagram, to) {
            Ok(()) => counters.orders.add(1),
            Err(_) => counters.orders_failed.add(1),
        }
    }

    fn look(&mut self, now: Timestamp) {
        self.follow();
        self.ask_in_rounds(now);
        for (datagram, to) in self.restarts.due(now) {
            self.send(&datagram, to);
        }
        if self.has_drops || now.since(self.counts_read) >= COUNTS_EVERY {
            let is_ours = std::mem::take(&mut self.has_drops);
            let lost = self.socket.new_without_room();
            self.counts_read = now;
            // What a filter refuses raises the socket's count alone, and what others lose the system's alone.
            if is_ours && lost > 0 {
                self.counters().dropped_by_kernel.add(lost);
                if self.said.is_due() {
                    tracing::warn!("{lost} reports or so found no room in the socket's buffer");
                }
            }
        }
        self.tell_refusals();
    }

    /// Says now and then what hints at a wrong key, name or clock; floods are in the counters.
    fn tell_refusals(&mut self) {
        let counters = self.counters();
        let (forged, unknown, late) = (counters.forged.get(), counters.unknown.get(), counters.late.get());
        let refusals = forged + unknown + late;
        if refusals != self.refusals && self.said.is_due() {
            self.refusals = refusals;
            tracing::warn!(
                "reports are refused: so far {forged} with a wrong signature, {unknown} of no configured server, {late} sent \
                 more than 30 s from our time"
            );
        }
    }

    fn ask_in_rounds(&mut self, now: Timestamp) {
        let asked = self.rounds.step(now, &self.heard);
        let wall = UnixNanos::of(time::wall_clock());
        for slot in asked {
            // Who has never been heard of can't be asked, and is passed over as it is.
            if let Ok(question) = self.reception.order(slot, OrderKind::Question, wall) {
                self.send(&question.datagram, question.to);
            }
        }
    }

    /// Takes over the servers of the snapshot, where they are others.
    fn follow(&mut self) {
        let snapshot = self.store.load();
        if self.whereabouts == Some(snapshot.whereabouts) {
            return;
        }
        self.whereabouts = Some(snapshot.whereabouts);
        let endpoints = || snapshot.pools.iter().flat_map(|pool| &pool.endpoints);
        self.servers = endpoints().map(|endpoint| (endpoint.record.slot, Arc::clone(endpoint))).collect();
        self.heard.retain(|slot, _| self.servers.contains_key(slot));
        self.restart_news.retain(|slot, _| self.servers.contains_key(slot));
        self.restarts.keep(|slot| self.servers.contains_key(&slot));
        self.rounds.follow(&snapshot);
        let sources = sources(&snapshot);
        self.socket.filter(&sources);
        let servers = endpoints().map(|endpoint| (endpoint.server.id.clone(), endpoint.record.slot));
        for nameless in self.reception.follow(servers, Sources::new(&sources)) {
            tracing::warn!("the name of {nameless} is too long for reports: its agent can't be heard");
        }
    }
}

/// Counts a datagram by the reason for which it was refused. Nobody is excused for it: whoever floods one agent's address and
/// port would have all other promises forgiven.
fn count_refusal(counters: &FeedbackCounters, refused: &Refused) {
    let counter = match refused {
        Refused::Foreign => &counters.foreign,
        Refused::Malformed => &counters.malformed,
        Refused::Unknown => &counters.unknown,
        Refused::Limited(_) | Refused::TooMany => &counters.limited,
        Refused::Forged => &counters.forged,
        Refused::Late => &counters.late,
        Refused::Replayed { .. } => &counters.replayed,
        Refused::Unheard(_) => &counters.unheard,
    };
    counter.add(1);
}

/// Who may report: those that the file names, else the servers themselves; who is at a unix socket is on this machine.
fn sources(snapshot: &Snapshot) -> Vec<Cidr> {
    let configured = snapshot.config.feedback.as_ref().map(|feedback| feedback.sources.as_slice()).unwrap_or_default();
    if !configured.is_empty() {
        return configured.to_vec();
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    for endpoint in snapshot.pools.iter().flat_map(|pool| &pool.endpoints) {
        match &endpoint.server.address {
            Address::Socket(address) => addresses.push(address.ip()),
            Address::Name(..) => addresses.extend(endpoint.named().iter().map(SocketAddr::ip)),
            Address::Unix(_) => addresses.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]),
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into_iter().map(Cidr::single).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::feedback::guard::Admission;

    #[test]
    fn a_flood_from_one_agents_address_excuses_nobodys_silence() {
        let counters = FeedbackCounters::default();
        count_refusal(&counters, &Refused::Limited(Admission::Proven));
        count_refusal(&counters, &Refused::TooMany);
        assert_eq!((counters.limited.get(), counters.lost()), (2, 0));
    }
}

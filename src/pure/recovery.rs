//! The recovery ladder: servers that are dead, agents that speak and steps that end in, steps to take out. No clock, no socket.
//!
//! - One attempt at a time for each machine; servers with the same machine name share one.
//! - Where the machine lives and only the service is dead, its agent is told to restart it; [`SETTLE`] later its port and
//!   check are looked at. An agent that does not speak can't be told: the attempt was in vain.
//! - A machine that does not answer ping, or whose agent's restarts were twice in vain, is woken over the network, and if that
//!   was in vain its power is switched off and on. Once it is up, its agent is told to start the service.
//! - Attempts in vain are repeated after 5 s · 2ⁿ ± 20 %, at most 300 s; five in an hour and nothing more is tried until the
//!   server is back by itself or an operator acts.
//! - Power is never switched while an agent on the machine speaks, or another server there is in service, or while a third
//!   of a pool is down and not all of them on this machine: then something else is wrong.
//! - An operator's drain or maintenance ends it. A dry run decides and shows everything, and does nothing but look;
//!   what it would have done is no reason for anything that is really done, nor the other way round.
//!
//! It refuses to judge whether a server is dead: [`Standing`] says so. Everything is bounded: attempts, steps that are kept,
//! machines that are worked on at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{ServerId, ServerSlot};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::availability::Standing;

mod attempt;
mod patient;
pub mod plan;
mod record;

pub use record::{Attempt, Outcome, RecoveryReport};

use attempt::Run;
use patient::Patient;

/// How long a service that was restarted has before its port and check are looked at.
pub const SETTLE: Duration = Duration::from_secs(10);
/// How long a machine has to come up after it was woken or switched on.
pub const BOOT: Duration = Duration::from_secs(180);
/// How often a machine that is to come up is looked at.
pub const BOOT_LOOK: Duration = Duration::from_secs(5);
/// The wait after the first attempt in vain; it doubles with each.
pub const WAIT: Duration = Duration::from_secs(5);
/// The longest wait.
pub const WAIT_MAX: Duration = Duration::from_secs(300);
/// The most attempts for a server, and the most switches of a machine's power, in an hour.
pub const HOURLY_MAX: usize = 5;
/// So many restarts in vain, and the machine itself is taken for the trouble.
pub const RESTARTS_IN_VAIN: u32 = 2;
/// A server that was brought back and is dead again within this time was not brought back.
pub const STABLE: Duration = Duration::from_secs(60);
/// The most machines that are worked on at once.
pub const RUNS_MAX: usize = 16;
/// A step whose end is not told so long after its timeout is lost.
pub const STEP_LOST_AFTER: Duration = Duration::from_secs(5);

const HOUR: Duration = Duration::from_secs(3600);
/// An agent speaks for so long after it was heard, at least, and without a promise.
const SPEAKS: Duration = Duration::from_secs(5);
const SPEAKS_UNPROMISED: Duration = Duration::from_secs(45);

/// A step's number, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(pub u64);

/// Something that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Ask whether the machine answers.
    Ping,
    /// Tell the agent to restart the service.
    AgentRestart,
    /// Send the magic packet.
    WakeOnLan,
    /// Switch the power off and on.
    PowerCycle,
    /// Look at the service's port, and run its check.
    Check,
}

impl Step {
    /// How long it may take.
    pub const fn timeout(self) -> Duration {
        match self {
            Self::Ping | Self::WakeOnLan => Duration::from_secs(2),
            Self::Check => Duration::from_secs(3),
            Self::AgentRestart => Duration::from_secs(5),
            Self::PowerCycle => Duration::from_secs(30),
        }
    }

    /// Whether it changes something: a dry run leaves it out.
    pub const fn acts(self) -> bool {
        matches!(self, Self::AgentRestart | Self::WakeOnLan | Self::PowerCycle)
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ping => "ping",
            Self::AgentRestart => "restart by its agent",
            Self::WakeOnLan => "Wake-on-LAN",
            Self::PowerCycle => "power cycle",
            Self::Check => "check",
        })
    }
}

/// Why a step did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepFailure {
    /// It was done, and its answer is no: the machine does not answer, the check fails.
    No(String),
    /// It could not be done.
    NotDone(String),
}

/// What may be done for a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Means {
    /// Its agent may be told to restart it.
    pub restart: bool,
    /// Its machine may be woken, and it is known how.
    pub wake: bool,
    /// Its machine's power may be switched, and it is known how.
    pub power: bool,
    /// Nothing of it is to be done.
    pub is_dry_run: bool,
}

/// A configured server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recoverable {
    /// Its number.
    pub slot: ServerSlot,
    /// Its name.
    pub id: ServerId,
    /// Its machine.
    pub host: Arc<str>,
    /// What may be done; `None`: its pool has no `recovery`.
    pub means: Option<Means>,
    /// How it stands.
    pub standing: Standing,
}

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Time has passed.
    Tick,
    /// A server stands like this now.
    Stands(ServerSlot, Standing),
    /// A server's agent was heard; it has promised to be heard again within this time.
    AgentHeard(ServerSlot, Option<Duration>),
    /// A step has ended.
    StepDone(StepId, Result<(), StepFailure>),
    /// These servers are configured now, and no others.
    Reload(&'a [Recoverable]),
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Take this step for the server, within its timeout, and tell how it ended.
    Run(StepId, ServerSlot, Step),
    /// Tell the operator of a step that has begun or ended.
    Tell(ServerId, Attempt),
    /// Nothing more is tried for that server, for this reason.
    GaveUp(ServerId, String),
}

/// The recovery of all servers.
#[derive(Debug)]
pub struct Recovery {
    servers: BTreeMap<ServerSlot, Patient>,
    /// Those that are dead and may be brought back.
    failed: BTreeSet<ServerSlot>,
    hosts: BTreeMap<Arc<str>, Host>,
    /// The attempts that run, by their machines: one for each.
    runs: BTreeMap<Arc<str>, Run>,
    next_step: u64,
    rng: Rng,
}

/// A machine.
#[derive(Debug, Default)]
struct Host {
    servers: BTreeSet<ServerSlot>,
    /// What was done to it.
    done: History,
    /// What dry runs would have done to it: nothing that was really done follows from that.
    shown: History,
}

/// What was done to a machine.
#[derive(Debug, Default)]
struct History {
    /// When its power was switched in the last hour.
    switched: VecDeque<Timestamp>,
    /// It was woken in vain since a server on it was last in service.
    was_woken: bool,
}

impl Host {
    const fn history(&mut self, is_dry_run: bool) -> &mut History {
        if is_dry_run { &mut self.shown } else { &mut self.done }
    }

    fn histories(&mut self) -> [&mut History; 2] {
        [&mut self.done, &mut self.shown]
    }
}

impl Recovery {
    /// No server yet: a reload brings them. `seed` spreads attempts over time.
    pub fn new(seed: u64) -> Self {
        Self {
            servers: BTreeMap::new(),
            failed: BTreeSet::new(),
            hosts: BTreeMap::new(),
            runs: BTreeMap::new(),
            next_step: 0,
            rng: Rng::new(seed),
        }
    }

    /// Weighs an event. What is to be done is added to `effects`. `now` never goes back.
    pub fn handle(&mut self, now: Timestamp, event: Event<'_>, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick => {
                self.advance_runs(now, effects);
                self.begin_due(now, effects);
            }
            Event::Stands(slot, standing) => self.stands(now, slot, standing),
            Event::AgentHeard(slot, promised) => {
                if let Some(patient) = self.servers.get_mut(&slot) {
                    let span = promised.map_or(SPEAKS_UNPROMISED, |promised| SPEAKS.max(promised.saturating_mul(3)));
                    patient.speaks_until = now + span;
                }
            }
            Event::StepDone(step, result) => self.step_done(now, step, result, effects),
            Event::Reload(servers) => self.reload(now, servers),
        }
    }

    /// What was done for a server; `None`: it is not configured, or nothing may be done for it.
    pub fn report(&self, slot: ServerSlot) -> Option<RecoveryReport> {
        self.servers.get(&slot)?.report()
    }

    /// Whether that step is still good for something: its server needs it, and nothing on its machine has come back.
    pub fn wants(&self, now: Timestamp, step: StepId) -> bool {
        self.runs.iter().any(|(host, run)| run.waits_for(step) && !self.lives(now, host))
    }

    /// How many machines are worked on.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    fn stands(&mut self, now: Timestamp, slot: ServerSlot, standing: Standing) {
        let Some(patient) = self.servers.get_mut(&slot) else { return };
        if patient.standing == standing {
            return;
        }
        let host = Arc::clone(&patient.host);
        patient.stands(now, standing, &mut self.rng);
        let is_failed = standing == Standing::Failed && patient.means.is_some();
        if is_failed {
            self.failed.insert(slot);
        } else {
            self.failed.remove(&slot);
        }
        match standing {
            Standing::InService => {
                if let Some(host) = self.hosts.get_mut(&host) {
                    host.histories().into_iter().for_each(|history| history.was_woken = false);
                }
                self.let_go(slot);
            }
            Standing::Away => self.let_go(slot),
            // What runs goes on: it may be about to help.
            Standing::Doubted | Standing::Failed => {}
        }
    }

    /// Begins what is due, the longest due first.
    fn begin_due(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let mut due: Vec<(Timestamp, ServerSlot)> = Vec::new();
        for slot in &self.failed {
            let patient = self.servers.get(slot);
            due.extend(patient.and_then(Patient::due).filter(|due| *due <= now).map(|due| (due, *slot)));
        }
        due.sort_unstable();
        for (_, slot) in due {
            if self.runs.len() >= RUNS_MAX {
                return;
            }
            let Some(patient) = self.servers.get_mut(&slot) else { continue };
            if self.runs.contains_key(&patient.host) {
                continue;
            }
            if patient.is_spent(now) {
                effects.push(patient.give_up());
                continue;
            }
            patient.begin(now);
            let host = Arc::clone(&patient.host);
            self.runs.insert(Arc::clone(&host), Run::new(slot));
            if self.lives(now, &host) {
                self.decide(now, &host, attempt::Life::Alive, effects);
            } else {
                self.take(now, &host, Step::Ping, effects);
            }
        }
    }

    fn reload(&mut self, now: Timestamp, servers: &[Recoverable]) {
        let mut known = std::mem::take(&mut self.servers);
        self.failed.clear();
        for host in self.hosts.values_mut() {
            host.servers.clear();
        }
        for server in servers {
            let patient = match known.remove(&server.slot) {
                Some(mut patient) => {
                    let has_moved = patient.host != server.host;
                    let was_dry_run = patient.is_dry_run();
                    patient.learn(now, server, &mut self.rng);
                    if patient.is_dry_run() != was_dry_run {
                        self.let_go(server.slot);
                        patient.begin_anew(now);
                    } else if has_moved || patient.means.is_none() {
                        self.let_go(server.slot);
                        patient.broke_off(now, &mut self.rng);
                    }
                    patient
                }
                None => Patient::new(now, server),
            };
            if patient.standing == Standing::Failed && patient.means.is_some() {
                self.failed.insert(server.slot);
            }
            self.hosts.entry(Arc::clone(&server.host)).or_default().servers.insert(server.slot);
            self.servers.insert(server.slot, patient);
        }
        for slot in known.into_keys() {
            self.let_go(slot);
        }
        for history in self.hosts.values_mut().flat_map(Host::histories) {
            forget_old(&mut history.switched, now);
        }
        // What was done to a machine in the last hour counts also where it was gone from the file for a moment.
        self.hosts.retain(|name, host| {
            !host.servers.is_empty() || !host.done.switched.is_empty() || self.runs.contains_key(name)
        });
    }

    /// Whether something on the machine shows that it lives.
    fn lives(&self, now: Timestamp, host: &Arc<str>) -> bool {
        self.on(host).any(|patient| patient.standing == Standing::InService || patient.speaks(now))
    }

    fn on<'a>(&'a self, host: &Arc<str>) -> impl Iterator<Item = &'a Patient> + use<'a> {
        let slots = self.hosts.get(host).into_iter().flat_map(|host| &host.servers);
        slots.filter_map(move |slot| self.servers.get(slot))
    }

    /// Whether a third of a pool with a server on this machine is down, and not on this machine alone.
    fn is_something_else_wrong(&self, host: &Arc<str>) -> bool {
        let pools: BTreeSet<&Arc<str>> = self.on(host).map(|patient| &patient.id.pool).collect();
        pools.into_iter().any(|pool| {
            let (mut all, mut down, mut elsewhere) = (0usize, 0usize, 0usize);
            for patient in self.servers.values().filter(|patient| patient.id.pool == *pool) {
                let is_down = matches!(patient.standing, Standing::Failed | Standing::Doubted);
                all += 1;
                down += usize::from(is_down);
                elsewhere += usize::from(is_down && patient.host != *host);
            }
            elsewhere > 0 && down * 3 >= all
        })
    }
}

/// Forgets what is more than an hour ago.
fn forget_old(times: &mut VecDeque<Timestamp>, now: Timestamp) {
    while times.front().is_some_and(|first| now.since(*first) >= HOUR) {
        times.pop_front();
    }
}

#[cfg(test)]
mod tests;

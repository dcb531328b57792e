//! The control core: outcomes, reports, check results, ticks and orders in, effects out. No clock, no socket, no log.
//!
//! Events are evidence; only here is it weighed, and what comes of it are effects that others carry out: new states and
//! shares in the snapshot, checks to run, lines to log. The rules:
//!
//! - Up → Suspect: three connects in a row that failed, more than half of twenty requests or more in two seconds that failed,
//!   silence, checks that failed, a report that says so, and an agent that breaks its promises ([`suspicion::Cause`]).
//! - Suspect → Up: every cause has cleared, and two good checks in a row, begun at least 250 ms apart.
//! - Suspect → Down: two witnesses agree ([`watch`]). Overload is never treated as death. The last server of a pool that could
//!   get requests stays Suspect and is tried: better a doubtful server than none.
//! - Down → Recovering: as many good checks as the pool says. Its share rises from a tenth to the whole ([`climb`]), and then it
//!   is Up. One failure on the way, and it is what it was before. In a pool with `slow-start` Suspect and Maintenance lead there too, and so does a
//!   server that a reload brings.
//! - Drained and Maintenance: by an operator's order or the server's own; an operator's is left by an operator's alone.
//! - In a pool with `detect "classic"` none of this holds, but the push-detection paper's counter ([`watch::TICKS_TO_SUSPECT`]).
//!
//! What reports say of a server's load moves its share ([`weighing`]). Who is slow himself stretches all timeouts
//! ([`guard`]).
//!
//! That a pool of which fewer than half is available ignores suspicion is the snapshot's to say
//! ([`crate::pure::pool::is_in_panic`]): states here are what is known of a server, not what becomes of it.
//!
//! Everything is bounded: the evidence kept for a server, the checks that run at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{ServerId, ServerSlot};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::check::{CheckTimes, WrongAnswer};
use crate::pure::detection::Detection;
use crate::pure::feedback::report::{Report, Source};
use crate::pure::feedback::weights::{FeedbackConfig, Rating};
use crate::pure::pool::{Share, State};

pub mod checks;
pub mod climb;
pub mod evidence;
mod failure_window;
pub mod guard;
pub mod influence;
pub mod promises;
pub mod suspicion;
pub mod view;
pub mod voices;
pub mod watch;
pub mod weighing;

use checks::CHECK_LOST_AFTER;
use evidence::{Evidence, Sign};
use guard::{Guard, is_half_a_pool};
use suspicion::Cause;
use watch::{SILENCE_MIN, Turn, Watch};

/// How often [`Event::Tick`] comes.
pub const TICK: Duration = Duration::from_millis(50);

/// The most checks that run at once; more that are due wait for a free place, the longest due first.
pub const CHECKS_MAX: usize = 256;

/// The push-detection paper's tick.
pub const CLASSIC_TICK: Duration = Duration::from_millis(200);

/// A check's number, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckId(pub u64);

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Time has passed: comes every [`TICK`], late or not.
    Tick,
    /// What requests have seen of a server since the last time.
    Outcomes(ServerSlot, OutcomeSummary),
    /// A server has said something of itself, and whoever carried it believes that it did.
    Report(ServerSlot, Source, &'a Report),
    /// The machine has dropped datagrams that may have been reports: a promise that was missed meanwhile does not count.
    ReportsDropped,
    /// A check has ended.
    CheckDone(CheckId, ServerSlot, Result<Duration, CheckFailure>),
    /// An operator wants something of a server.
    Order(ServerSlot, Order),
    /// These servers are configured now, and no others.
    Reload(&'a [Watched]),
}

/// What requests have seen of one server in a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeSummary {
    /// Requests that failed by its fault.
    pub failed: u32,
    /// Connects that failed since the last good one, at the end of the while.
    pub connect_failures_in_a_row: u32,
    /// Connects among those that failed that were refused, or found no way.
    pub refused: u32,
    /// Requests that ended, well or not; those whose client went away are left out.
    pub ended: u32,
    /// Requests that the server has and has not answered, at the end of the while.
    pub outstanding: u32,
    /// Since when it has had so many requests that it must answer some, and not sent a byte; `None`: it has not so many.
    pub silent_for: Option<Duration>,
    /// The same where it has one request or more: too few to say anything of a server of which nothing else is known.
    pub quiet_for: Option<Duration>,
    /// The time in which it answers 99 of 100 requests; `None`: not known.
    pub p99: Option<Duration>,
}

/// Why a check did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFailure {
    /// Nobody listens there.
    Refused,
    /// Its name does not exist, or its socket.
    Absent,
    /// No answer in time.
    TimedOut,
    /// There is no way to the server.
    Unreachable,
    /// It does something, and not what it should.
    Answer(WrongAnswer),
    /// Pointsman could not run it, for want of a descriptor, say. It says nothing of the server.
    NotRun,
}

impl std::fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::Absent => f.write_str("its name or its socket does not exist"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Answer(wrong) => write!(f, "{wrong}"),
            Self::NotRun => f.write_str("could not be run"),
        }
    }
}

/// What an operator can want of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Its clients may finish; it gets no new ones.
    Drain,
    /// It gets nothing.
    Maintain,
    /// It is back: Up until evidence says otherwise.
    Enable,
}

/// A configured server.
#[derive(Clone, Debug, PartialEq)]
pub struct Watched {
    /// Its number.
    pub slot: ServerSlot,
    /// Its name.
    pub id: ServerId,
    /// Counts its addresses: what was known of another is forgotten.
    pub incarnation: u32,
    /// Its state in the snapshot.
    pub state: State,
    /// Its share in the snapshot.
    pub share: Share,
    /// Its configured share.
    pub whole: Share,
    /// How long its share rises when it comes back; `None`: not at all, unless it was dead.
    pub slow_start: Option<Duration>,
    /// When it is checked.
    pub check: CheckTimes,
    /// How it is suspected.
    pub detection: Detection,
    /// How its pool follows what servers say of their load; `None`: it does not.
    pub feedback: Option<FeedbackConfig>,
}

/// A check to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its number, with which its result comes back.
    pub id: CheckId,
    /// The server.
    pub server: ServerSlot,
    /// How long it may take.
    pub timeout: Duration,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Publish this state.
    SetState(ServerSlot, State),
    /// Publish this share, with the server's state.
    SetShare(ServerSlot, Share),
    /// The server's connect failures in a row have been dealt with: count anew.
    ForgetConnectFailures(ServerSlot),
    /// Connect to the server and tell how it went.
    RunCheck(Check),
    /// Cancel the server's unanswered requests that may be sent again, and send them elsewhere.
    TakeBack(ServerSlot),
    /// Ask the server's agent for a report.
    Ask(ServerSlot),
    /// The server may have no more requests at once than this; `None`: than the configuration says.
    SetMax(ServerSlot, Option<u32>),
    /// The paper's counter: among servers that are equal otherwise the lower wins.
    SetCounter(ServerSlot, u32),
    /// Tell the operator that a state has changed.
    Tell(Change),
    /// Tell the operator that reports have moved a share, or would.
    TellShare(ShareChange),
    /// Tell the operator that a server's share went to and fro, and the part of each way that it goes from now on.
    TellOscillation(ServerId, f64),
    /// Tell the operator that a tick was so late, and by what timeouts are multiplied now.
    TellLate(Duration, f64),
}

/// A change of a share by reports, with the figures that made it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareChange {
    /// The server.
    pub server: ServerId,
    /// Its share before.
    pub from: Share,
    /// Its share now.
    pub to: Share,
    /// What it came from; `None`: from the server's own wish.
    pub rating: Option<Rating>,
    /// Whether it is only shown.
    pub is_dry_run: bool,
}

/// The servers of a pool.
#[derive(Debug, Default)]
struct PoolWatch {
    slots: Vec<ServerSlot>,
    feedback: Option<FeedbackConfig>,
}

/// A change of state, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The server.
    pub server: ServerId,
    /// Its state before.
    pub from: State,
    /// Its state now.
    pub to: State,
    /// What tipped the scales.
    pub because: Sign,
}

/// The control core.
#[derive(Debug)]
pub struct Control {
    servers: BTreeMap<ServerSlot, Watch>,
    pools: BTreeMap<Arc<str>, PoolWatch>,
    /// Those that are being checked.
    checked: BTreeSet<ServerSlot>,
    /// Those whose share rises.
    climbing: BTreeSet<ServerSlot>,
    /// Those of which time alone may change what is thought.
    timed: BTreeSet<ServerSlot>,
    /// Pools whose servers have reported since the last tick.
    reported: BTreeSet<Arc<str>>,
    weighed: Timestamp,
    guard: Guard,
    classic_ticks: u64,
    /// Whether the servers of a start are known: later ones come by a reload.
    has_started: bool,
    /// The checks that run, and when each is given up for lost.
    running: BTreeMap<CheckId, Timestamp>,
    next_check: u64,
    rng: Rng,
}

impl Control {
    /// A core that knows no server yet: a reload tells it. `seed` spreads checks over time.
    pub fn new(seed: u64) -> Self {
        Self {
            servers: BTreeMap::new(),
            pools: BTreeMap::new(),
            checked: BTreeSet::new(),
            climbing: BTreeSet::new(),
            timed: BTreeSet::new(),
            reported: BTreeSet::new(),
            weighed: Timestamp::ZERO,
            guard: Guard::default(),
            classic_ticks: 0,
            has_started: false,
            running: BTreeMap::new(),
            next_check: 0,
            rng: Rng::new(seed),
        }
    }

    /// Weighs an event. What is to be done is added to `effects`. `now` never goes back.
    pub fn handle(&mut self, now: Timestamp, event: Event<'_>, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick => self.tick(now, effects),
            Event::Outcomes(slot, seen) => {
                let silence = self.silence_of(now, slot, &seen);
                self.update(now, slot, effects, |watch, rng| watch.saw(now, &seen, silence, rng));
                self.bar_if_failing(now, slot, effects);
                self.fall_if_dead(now, slot, effects);
            }
            Event::Report(slot, source, report) => {
                if let Some(watch) = self.servers.get(&slot) {
                    self.reported.insert(Arc::clone(&watch.id().pool));
                }
                self.update(now, slot, effects, |watch, rng| watch.reported(now, source, report, rng));
                self.fall_if_dead(now, slot, effects);
            }
            Event::ReportsDropped => {
                for slot in self.timed.clone() {
                    if let Some(watch) = self.servers.get_mut(&slot) {
                        watch.voices.forgive_all(now);
                    }
                }
            }
            Event::CheckDone(check, slot, result) => {
                self.running.remove(&check);
                // One that ran while we stood still may have been in time.
                let is_doubtful = result == Err(CheckFailure::TimedOut) && self.guard.catches_up(now);
                let result = if is_doubtful { Err(CheckFailure::NotRun) } else { result };
                self.update(now, slot, effects, |watch, rng| watch.check_done(now, check, result, rng));
                self.fall_if_dead(now, slot, effects);
            }
            Event::Order(slot, order) => self.update(now, slot, effects, |watch, rng| watch.ordered(now, order, rng)),
            Event::Reload(servers) => self.reload(now, servers, effects),
        }
    }

    fn tick(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if let Some(late) = self.guard.tick(now) {
            for slot in &self.timed {
                if let Some(watch) = self.servers.get_mut(slot) {
                    watch.voices.forgive(late);
                }
            }
            effects.push(Effect::TellLate(late, self.guard.factor()));
        }
        for slot in self.climbing.clone() {
            self.update(now, slot, effects, |watch, rng| watch.climb_on(now, rng));
        }
        let ticks = (now.as_nanos() / CLASSIC_TICK.as_nanos() as u64).saturating_sub(self.classic_ticks);
        self.classic_ticks += ticks;
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        for slot in self.timed.clone() {
            let stretch = self.guard.factor();
            let counter = self.servers.get(&slot).and_then(Watch::classic_counter);
            self.update(now, slot, effects, |watch, rng| watch.time_passes(now, ticks, stretch, rng));
            let new_counter = self.servers.get(&slot).and_then(Watch::classic_counter);
            if let Some(new) = new_counter.filter(|_| counter != new_counter || ticks > 0) {
                effects.push(Effect::SetCounter(slot, new));
            }
            self.fall_if_dead(now, slot, effects);
        }
        self.weigh_pools(now, effects);
        self.run_due_checks(now, effects);
    }

    /// How long a server may send nothing while requests wait; `None`: that means nothing now.
    fn silence_of(&self, now: Timestamp, slot: ServerSlot, seen: &OutcomeSummary) -> Option<Duration> {
        // What is not silent need not be looked up.
        seen.quiet_for.or(seen.silent_for)?;
        let watch = self.servers.get(&slot)?;
        if !watch.detects_silence() || self.guard.catches_up(now) {
            return None;
        }
        // One that has not answered yet may be as slow as the slowest of its pool.
        let of_pool = || self.pool_of(slot).iter().filter_map(|slot| self.servers.get(slot)?.p99).max();
        let p99 = seen.p99.or(watch.p99).or_else(of_pool)?;
        Some(SILENCE_MIN.max(p99 * 4).mul_f64(self.guard.factor()))
    }

    /// Suspects a server most of whose requests fail, where its pool can do without it: half of the pool is to be left.
    fn bar_if_failing(&mut self, now: Timestamp, slot: ServerSlot, effects: &mut Vec<Effect>) {
        let Some(failing) = self.servers.get(&slot).and_then(|watch| watch.failing(now)) else { return };
        let pool = self.pool_of(slot);
        let is_barred = |other: &&ServerSlot| {
            **other != slot && self.servers.get(other).is_some_and(|watch| watch.has_cause(Cause::FailureRate))
        };
        if (pool.iter().filter(is_barred).count() + 1) * 2 <= pool.len() {
            self.update(now, slot, effects, |watch, rng| watch.accuse(now, Cause::FailureRate, failing, rng));
        }
    }

    /// The servers of a server's pool.
    fn pool_of(&self, slot: ServerSlot) -> &[ServerSlot] {
        let pool = self.servers.get(&slot).and_then(|watch| self.pools.get(&watch.id().pool));
        pool.map(|pool| pool.slots.as_slice()).unwrap_or_default()
    }

    /// What is known of a server, the latest last.
    pub fn evidence(&self, slot: ServerSlot) -> impl Iterator<Item = &Evidence> {
        self.servers.get(&slot).into_iter().flat_map(Watch::evidence)
    }

    /// A server's state; `None`: it is not configured.
    pub fn state(&self, slot: ServerSlot) -> Option<State> {
        self.servers.get(&slot).map(Watch::state)
    }

    /// Whether a server is known to be dead, also where it is kept because its pool has no other.
    pub fn is_dead(&self, slot: ServerSlot) -> bool {
        let (now, stretch) = (self.guard.last_tick(), self.guard.factor());
        self.servers.get(&slot).is_some_and(|watch| watch.is_dead(now, stretch))
    }

    /// Takes a dead server for Down, unless the pool can't do without it.
    fn fall_if_dead(&mut self, now: Timestamp, slot: ServerSlot, effects: &mut Vec<Effect>) {
        let stretch = self.guard.factor();
        if self.servers.get(&slot).is_some_and(|watch| watch.is_dead(now, stretch)) && self.has_other(slot) {
            self.update(now, slot, effects, |watch, _| watch.fall(now));
        }
    }

    /// Whether another server of the same pool could get requests, in panic at least.
    fn has_other(&self, slot: ServerSlot) -> bool {
        let can_stand_in = |other: &ServerSlot| self.servers.get(other).is_some_and(Watch::can_stand_in);
        self.pool_of(slot).iter().any(|other| *other != slot && can_stand_in(other))
    }

    fn update(
        &mut self,
        now: Timestamp,
        slot: ServerSlot,
        effects: &mut Vec<Effect>,
        weigh: impl FnOnce(&mut Watch, &mut Rng) -> Option<Turn>,
    ) {
        let Some(watch) = self.servers.get_mut(&slot) else { return };
        let turn = weigh(watch, &mut self.rng);
        put(&mut self.timed, slot, watch.is_timed());
        if let Some(turn) = turn {
            effects.push(Effect::SetState(slot, turn.to));
        }
        effects.extend(watch.new_share().map(|share| Effect::SetShare(slot, share)));
        effects.extend(watch.new_max().map(|max| Effect::SetMax(slot, max)));
        // Whoever waits for a server that sends nothing waits in vain.
        if watch.takes_back() || turn.is_some_and(|turn| turn.to == State::Down) {
            effects.push(Effect::TakeBack(slot));
        }
        let Some(turn) = turn else { return };
        let is_back = matches!(turn.to, State::Up | State::Recovering);
        if is_back {
            effects.push(Effect::ForgetConnectFailures(slot));
        }
        let server = watch.id().clone();
        let pool = Arc::clone(&server.pool);
        effects.push(Effect::Tell(Change { server, from: turn.from, to: turn.to, because: turn.because }));
        put(&mut self.checked, slot, watch.is_checked());
        put(&mut self.climbing, slot, watch.is_climbing());
        if matches!(turn.to, State::Suspect { .. }) && turn.because.is_lateness() {
            self.look_at_pool(now, &pool);
        }
        if is_back {
            // Now the pool may do without one that it could not spare before.
            for dead in self.checked.clone() {
                self.fall_if_dead(now, dead, effects);
            }
        }
    }

    /// Where half of a pool is late at once, we may be the late one.
    fn look_at_pool(&mut self, now: Timestamp, pool: &Arc<str>) {
        let Some(pool) = self.pools.get(pool) else { return };
        let late = pool.slots.iter().filter_map(|slot| {
            let watch = self.servers.get(slot)?;
            let is_late = watch.has_cause(Cause::AgentSilent) || watch.has_cause(Cause::Silence);
            (is_late && matches!(watch.state(), State::Suspect { .. })).then(|| watch.state_since())
        });
        if is_half_a_pool(now, late, pool.slots.len()) {
            self.guard.half_a_pool();
        }
    }

    fn run_due_checks(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.running.retain(|_, lost_at| *lost_at > now);
        let mut due = Vec::new();
        for slot in &self.checked {
            let Some(watch) = self.servers.get_mut(slot) else { continue };
            watch.give_up_lost_check(now, |check| self.running.contains_key(&check));
            if let Some(since) = watch.check_due(now) {
                due.push((since, *slot));
            }
        }
        due.sort_unstable();
        for (_, slot) in due.into_iter().take(CHECKS_MAX.saturating_sub(self.running.len())) {
            let Some(watch) = self.servers.get_mut(&slot) else { continue };
            let id = CheckId(self.next_check);
            self.next_check += 1;
            watch.check_begun(now, id, &mut self.rng);
            let timeout = watch.check_timeout().mul_f64(self.guard.factor());
            self.running.insert(id, now + timeout + CHECK_LOST_AFTER);
            effects.push(Effect::RunCheck(Check { id, server: slot, timeout }));
        }
    }

    fn reload(&mut self, now: Timestamp, servers: &[Watched], effects: &mut Vec<Effect>) {
        let mut known = std::mem::take(&mut self.servers);
        (self.checked, self.climbing, self.timed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        self.pools.clear();
        for server in servers {
            let pool = self.pools.entry(Arc::clone(&server.id.pool)).or_default();
            pool.slots.push(server.slot);
            pool.feedback = server.feedback;
            let before = known.remove(&server.slot);
            let is_new = before.is_none() && self.has_started;
            let climb = before.as_ref().and_then(Watch::climb);
            let (kept, moved) = match before {
                Some(watch) if watch.is_of(server.incarnation) => (Some(watch), None),
                moved => (None, moved),
            };
            let is_kept = kept.is_some();
            let mut watch = kept.unwrap_or_else(|| Watch::new(now, server, &mut self.rng));
            if let Some(before) = &moved {
                watch.takes_over(before);
            }
            watch.learn_settings(now, server, &mut self.rng);
            self.servers.insert(server.slot, watch);
            self.update(now, server.slot, effects, |watch, rng| match climb {
                // New addresses make no difference to how warm it is.
                Some(climb) if !is_kept => watch.begin_climb(now, climb, Sign::Configured, rng),
                None if is_new => watch.comes_new(now, rng),
                Some(_) | None => watch.is_left_to_the_paper(now, rng),
            });
        }
        let of = |is: fn(&Watch) -> bool| -> BTreeSet<ServerSlot> {
            self.servers.iter().filter(|(_, watch)| is(watch)).map(|(slot, _)| *slot).collect()
        };
        (self.checked, self.climbing, self.timed) =
            (of(Watch::is_checked), of(Watch::is_climbing), of(Watch::is_timed));
        self.reported = self.pools.keys().cloned().collect();
        self.has_started = true;
    }
}

fn put(set: &mut BTreeSet<ServerSlot>, slot: ServerSlot, is_in: bool) {
    if is_in {
        set.insert(slot);
    } else {
        set.remove(&slot);
    }
}

#[cfg(test)]
mod tests;

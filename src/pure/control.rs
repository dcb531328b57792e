//! The control core: outcomes, check results, ticks and orders in, effects out. No clock, no socket, no log.
//!
//! Events are evidence; only here is it weighed, and what comes of it are effects that others carry out: new states in the
//! snapshot, checks to run, lines to log. The rules so far:
//!
//! - Up → Suspect: three connects in a row that failed ([`watch::CONNECT_FAILURES_MAX`]).
//! - While not Up: a TCP check every 250 ms with a timeout of 300 ms.
//! - Suspect → Down: checks agree with what requests saw: one is refused, or [`watch::FALL`] find no way to the server. One
//!   that times out does not: overload is never treated as death. The last server of a pool that could get requests stays
//!   Suspect and is tried: better a doubtful server than none.
//! - Suspect, Down → Up: two good checks in a row, begun at least 250 ms apart.
//! - In a pool with `slow-start` they lead to Recovering instead, and so does the way back from Maintenance and a server that a
//!   reload brings: its share rises from a tenth to the whole in that time ([`climb`]), and then it is Up. One failure on the
//!   way, and it is what it was before, Down or Suspect; a check that times out makes it Suspect.
//! - Drained and Maintenance: by an order, and left by an order alone.
//!
//! That a pool of which fewer than half is available ignores suspicion is the snapshot's to say
//! ([`crate::pure::pool::is_in_panic`]): states here are what is known of a server, not what becomes of it.
//!
//! Everything is bounded: the evidence kept for a server, the checks that run at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::base::id::{ServerId, ServerSlot};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::feedback::report::{Report, Source};
use crate::pure::pool::{Share, State};

pub mod climb;
pub mod evidence;
pub mod watch;

use evidence::{Evidence, Sign};
use watch::{Turn, Watch};

/// How often [`Event::Tick`] comes.
pub const TICK: Duration = Duration::from_millis(50);

/// The most checks that run at once; more that are due wait for a free place, the longest due first.
pub const CHECKS_MAX: usize = 256;

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
    /// Requests that ended, well or not; those whose client went away are left out.
    pub ended: u32,
    /// Requests that the server has and has not answered, at the end of the while.
    pub outstanding: u32,
    /// Since when it has had requests and not sent a byte; `None`: it has none, or has just sent one.
    pub silent_for: Option<Duration>,
    /// The time in which it answers 99 of 100 requests; `None`: not known.
    pub p99: Option<Duration>,
}

/// Why a check did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFailure {
    /// Nobody listens there.
    Refused,
    /// No answer in time.
    TimedOut,
    /// There is no way to the server.
    Unreachable,
    /// Pointsman could not run it, for want of a descriptor, say. It says nothing of the server.
    NotRun,
}

impl std::fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::TimedOut => "timed out",
            Self::Unreachable => "unreachable",
            Self::NotRun => "could not be run",
        })
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// How long its share rises when it comes back; `None`: not at all.
    pub slow_start: Option<Duration>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Tell the operator that a state has changed.
    Tell(Change),
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
    /// Those that are being checked.
    checked: BTreeSet<ServerSlot>,
    /// Those whose share rises.
    climbing: BTreeSet<ServerSlot>,
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
            checked: BTreeSet::new(),
            climbing: BTreeSet::new(),
            has_started: false,
            running: BTreeMap::new(),
            next_check: 0,
            rng: Rng::new(seed),
        }
    }

    /// Weighs an event. What is to be done is added to `effects`. `now` never goes back.
    pub fn handle(&mut self, now: Timestamp, event: Event<'_>, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick => {
                for slot in self.climbing.clone() {
                    self.update(slot, effects, |watch, rng| watch.climb_on(now, rng));
                }
                self.run_due_checks(now, effects);
            }
            Event::Outcomes(slot, seen) => {
                self.update(slot, effects, |watch, rng| watch.saw(now, &seen, rng));
                self.fall_if_dead(slot, effects);
            }
            Event::Report(..) | Event::ReportsDropped => {}
            Event::CheckDone(check, slot, result) => {
                self.running.remove(&check);
                self.update(slot, effects, |watch, rng| watch.check_done(now, check, result, rng));
                self.fall_if_dead(slot, effects);
            }
            Event::Order(slot, order) => self.update(slot, effects, |watch, rng| watch.ordered(now, order, rng)),
            Event::Reload(servers) => self.reload(now, servers, effects),
        }
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
        self.servers.get(&slot).is_some_and(Watch::is_dead)
    }

    /// Takes a dead server for Down, unless the pool can't do without it.
    fn fall_if_dead(&mut self, slot: ServerSlot, effects: &mut Vec<Effect>) {
        if self.servers.get(&slot).is_some_and(Watch::is_dead) && self.has_other(slot) {
            self.update(slot, effects, |watch, _| watch.fall());
        }
    }

    /// Whether another server of the same pool could get requests, in panic at least.
    fn has_other(&self, slot: ServerSlot) -> bool {
        self.servers.get(&slot).is_some_and(|watch| {
            let is_other = |(other, _): &(&ServerSlot, &Watch)| **other != slot;
            self.servers.iter().filter(is_other).any(|(_, other)| other.can_stand_in_for(watch))
        })
    }

    fn update(
        &mut self,
        slot: ServerSlot,
        effects: &mut Vec<Effect>,
        weigh: impl FnOnce(&mut Watch, &mut Rng) -> Option<Turn>,
    ) {
        let Some(watch) = self.servers.get_mut(&slot) else { return };
        let turn = weigh(watch, &mut self.rng);
        if let Some(turn) = turn {
            effects.push(Effect::SetState(slot, turn.to));
        }
        effects.extend(watch.new_share().map(|share| Effect::SetShare(slot, share)));
        let Some(turn) = turn else { return };
        let is_back = matches!(turn.to, State::Up | State::Recovering);
        if is_back {
            effects.push(Effect::ForgetConnectFailures(slot));
        }
        let server = watch.id().clone();
        effects.push(Effect::Tell(Change { server, from: turn.from, to: turn.to, because: turn.because }));
        put(&mut self.checked, slot, watch.is_checked());
        put(&mut self.climbing, slot, watch.is_climbing());
        if is_back {
            // Now the pool may do without one that it could not spare before.
            for dead in self.checked.clone() {
                self.fall_if_dead(dead, effects);
            }
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
            self.running.insert(id, now + watch::CHECK_TIMEOUT + watch::CHECK_LOST_AFTER);
            effects.push(Effect::RunCheck(Check { id, server: slot, timeout: watch::CHECK_TIMEOUT }));
        }
    }

    fn reload(&mut self, now: Timestamp, servers: &[Watched], effects: &mut Vec<Effect>) {
        let mut known = std::mem::take(&mut self.servers);
        (self.checked, self.climbing) = (BTreeSet::new(), BTreeSet::new());
        for server in servers {
            let before = known.remove(&server.slot);
            let is_new = before.is_none() && self.has_started;
            let climb = before.as_ref().and_then(Watch::climb);
            let kept = before.filter(|watch| watch.is_of(server.incarnation));
            let is_kept = kept.is_some();
            let mut watch = kept.unwrap_or_else(|| Watch::new(now, server, &mut self.rng));
            watch.learn_settings(server);
            self.servers.insert(server.slot, watch);
            self.update(server.slot, effects, |watch, rng| match climb {
                // New addresses make no difference to how warm it is.
                Some(climb) if !is_kept => watch.begin_climb(now, climb, Sign::Configured, rng),
                None if is_new => watch.comes_new(now, rng),
                Some(_) | None => None,
            });
        }
        let of = |is: fn(&Watch) -> bool| -> BTreeSet<ServerSlot> {
            self.servers.iter().filter(|(_, watch)| is(watch)).map(|(slot, _)| *slot).collect()
        };
        (self.checked, self.climbing) = (of(Watch::is_checked), of(Watch::is_climbing));
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

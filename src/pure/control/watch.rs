//! One server under watch: its state, the evidence for it, and the checks that may change it.

use std::time::Duration;

use super::evidence::{Evidence, Sign, Signs};
use super::{CheckFailure, CheckId, Order, OutcomeSummary, Watched};
use crate::base::id::ServerId;
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{State, Wanted};

/// So many connects in a row that fail make a server Suspect.
pub const CONNECT_FAILURES_MAX: u32 = 3;

/// The least time between the beginnings of two checks.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Up to so much is added to it, so that the checks of many servers do not fall together.
pub const CHECK_JITTER: Duration = Duration::from_millis(25);

/// How long a check may take.
pub const CHECK_TIMEOUT: Duration = Duration::from_millis(300);

/// A check whose result has not come this long after its timeout is lost: it counts as not run.
pub const CHECK_LOST_AFTER: Duration = Duration::from_secs(1);

/// So many good checks in a row bring a server back.
pub const RISE: u32 = 2;

/// So many checks that find no way to the server, with none between them that passed, agree that a suspected server is
/// dead. A refusal says so at once: nobody listens there. A check that times out never does: the queue of a server that has
/// more to do than it can is full, and looks the same.
pub const FALL: u32 = 3;

/// A turn of a server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) from: State,
    pub(super) to: State,
    pub(super) because: Sign,
}

/// A server under watch.
#[derive(Debug)]
pub(super) struct Watch {
    id: ServerId,
    incarnation: u32,
    state: State,
    pub(super) has_share: bool,
    signs: Signs,
    /// While the server is checked.
    checks: Option<Checks>,
}

/// The checks of a server that is not well.
#[derive(Debug)]
struct Checks {
    due: Timestamp,
    running: Option<CheckId>,
    passed_in_a_row: u32,
    /// Checks that found no way, since the last that passed.
    unreachable: u32,
    /// The failure that left no doubt, if no check has passed since.
    verdict: Option<CheckFailure>,
}

impl Checks {
    /// The first comes at once, or nearly.
    fn begin(now: Timestamp, rng: &mut Rng) -> Self {
        Self { due: now + jitter(rng), running: None, passed_in_a_row: 0, unreachable: 0, verdict: None }
    }

    fn failed(&mut self, why: CheckFailure) {
        match why {
            // Our own want of means is no word on the server.
            CheckFailure::NotRun => return,
            // It may be overloaded.
            CheckFailure::TimedOut => {}
            CheckFailure::Refused => self.verdict = Some(why),
            CheckFailure::Unreachable => {
                self.unreachable = self.unreachable.saturating_add(1);
                if self.unreachable >= FALL {
                    self.verdict = Some(why);
                }
            }
        }
        self.passed_in_a_row = 0;
    }
}

fn jitter(rng: &mut Rng) -> Duration {
    CHECK_JITTER.mul_f64(rng.unit())
}

impl Watch {
    pub(super) fn new(now: Timestamp, server: &Watched, rng: &mut Rng) -> Self {
        let mut watch = Self {
            id: server.id.clone(),
            incarnation: server.incarnation,
            state: server.state,
            has_share: server.has_share,
            signs: Signs::default(),
            checks: None,
        };
        watch.signs.add(now, Sign::Configured);
        watch.check_as_state_asks(now, rng);
        watch
    }

    pub(super) const fn id(&self) -> &ServerId {
        &self.id
    }

    pub(super) const fn state(&self) -> State {
        self.state
    }

    pub(super) const fn is_of(&self, incarnation: u32) -> bool {
        self.incarnation == incarnation
    }

    pub(super) fn evidence(&self) -> impl Iterator<Item = &Evidence> {
        self.signs.iter()
    }

    pub(super) const fn is_checked(&self) -> bool {
        self.checks.is_some()
    }

    /// Requests have seen something.
    pub(super) fn saw(&mut self, now: Timestamp, seen: &OutcomeSummary, rng: &mut Rng) -> Option<Turn> {
        let in_a_row = seen.connect_failures_in_a_row;
        if in_a_row < CONNECT_FAILURES_MAX {
            return None;
        }
        match self.state {
            State::Up | State::Recovering => {
                let sign = Sign::ConnectFailures(in_a_row);
                self.signs.add(now, sign);
                Some(self.turn(now, State::Suspect { by_overload: false }, sign, rng))
            }
            // Known, or an operator's wish that evidence does not undo.
            State::Suspect { .. } | State::Down | State::Drained | State::Maintenance => None,
        }
    }

    /// An operator wants something.
    pub(super) fn ordered(&mut self, now: Timestamp, order: Order, rng: &mut Rng) -> Option<Turn> {
        let to = match order {
            Order::Drain => State::Drained,
            Order::Maintain => State::Maintenance,
            Order::Enable => match self.state {
                State::Drained | State::Maintenance => State::Up,
                // It is not out: what is known of it stands.
                State::Up | State::Recovering | State::Suspect { .. } | State::Down => return None,
            },
        };
        let sign = Sign::Ordered(order);
        self.signs.add(now, sign);
        (to != self.state).then(|| self.turn(now, to, sign, rng))
    }

    /// Since when a check is due; `None`: none is.
    pub(super) fn check_due(&self, now: Timestamp) -> Option<Timestamp> {
        let checks = self.checks.as_ref()?;
        (checks.running.is_none() && checks.due <= now).then_some(checks.due)
    }

    pub(super) fn check_begun(&mut self, now: Timestamp, id: CheckId, rng: &mut Rng) {
        if let Some(checks) = &mut self.checks {
            checks.running = Some(id);
            checks.due = now + CHECK_INTERVAL + jitter(rng);
        }
    }

    /// Forgets a check whose result will not come any more.
    pub(super) fn give_up_lost_check(&mut self, now: Timestamp, still_runs: impl Fn(CheckId) -> bool) {
        let Some(checks) = &mut self.checks else { return };
        if checks.running.is_some_and(|check| !still_runs(check)) {
            checks.running = None;
            self.signs.add(now, Sign::CheckFailed(CheckFailure::NotRun));
        }
    }

    /// Whether requests that `other` can't get could come here.
    pub(super) fn can_stand_in_for(&self, other: &Self) -> bool {
        self.id.pool == other.id.pool && self.has_share && self.state.allows(Wanted::InPanic)
    }

    /// A check has ended. The result of one that is not expected (any more) says nothing.
    pub(super) fn check_done(
        &mut self,
        now: Timestamp,
        id: CheckId,
        result: Result<Duration, CheckFailure>,
    ) -> Option<Turn> {
        let checks = self.checks.as_mut()?;
        if checks.running != Some(id) {
            return None;
        }
        checks.running = None;
        let time = match result {
            Ok(time) => time,
            Err(why) => {
                checks.failed(why);
                self.signs.add(now, Sign::CheckFailed(why));
                return None;
            }
        };
        (checks.unreachable, checks.verdict) = (0, None);
        checks.passed_in_a_row += 1;
        let passed = checks.passed_in_a_row;
        self.signs.add(now, Sign::CheckPassed(time));
        if passed < RISE {
            return None;
        }
        self.checks = None;
        let from = std::mem::replace(&mut self.state, State::Up);
        Some(Turn { from, to: State::Up, because: Sign::ChecksPassed(passed) })
    }

    /// Whether requests and checks agree that a suspected server is dead. Overload is never treated as death.
    pub(super) fn is_dead(&self) -> bool {
        self.state == (State::Suspect { by_overload: false }) && self.verdict().is_some()
    }

    /// Takes a dead server for Down; its checks go on.
    pub(super) fn fall(&mut self) -> Option<Turn> {
        let because = Sign::CheckFailed(self.verdict()?);
        let from = std::mem::replace(&mut self.state, State::Down);
        Some(Turn { from, to: State::Down, because })
    }

    fn verdict(&self) -> Option<CheckFailure> {
        self.checks.as_ref()?.verdict
    }

    fn turn(&mut self, now: Timestamp, to: State, because: Sign, rng: &mut Rng) -> Turn {
        let from = std::mem::replace(&mut self.state, to);
        self.check_as_state_asks(now, rng);
        Turn { from, to, because }
    }

    /// Only a server that is not well is checked.
    fn check_as_state_asks(&mut self, now: Timestamp, rng: &mut Rng) {
        self.checks = match self.state {
            State::Suspect { .. } | State::Down => Some(Checks::begin(now, rng)),
            State::Up | State::Recovering | State::Drained | State::Maintenance => None,
        };
    }
}

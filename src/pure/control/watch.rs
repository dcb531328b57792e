//! One server under watch: its state, the evidence for it, and the checks that may change it.

use std::time::Duration;

use super::climb::Climb;
use super::evidence::{Evidence, Sign, Signs};
use super::{CheckFailure, CheckId, Order, OutcomeSummary, Watched};
use crate::base::id::ServerId;
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{Share, State, Wanted};

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
    /// Its configured share.
    whole: Share,
    /// Its share in the snapshot.
    published: Share,
    slow_start: Option<Duration>,
    /// While its share rises: then it is Recovering.
    climb: Option<Climb>,
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
    /// What left no doubt, if no check has passed since.
    verdict: Option<Sign>,
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
            CheckFailure::Refused => self.verdict = Some(Sign::CheckFailed(why)),
            CheckFailure::Unreachable | CheckFailure::Answer(_) => {
                self.unreachable = self.unreachable.saturating_add(1);
                if self.unreachable >= FALL {
                    self.verdict = Some(Sign::CheckFailed(why));
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
            whole: server.whole,
            published: server.share,
            slow_start: server.slow_start,
            climb: None,
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

    pub(super) const fn is_climbing(&self) -> bool {
        self.climb.is_some()
    }

    pub(super) const fn climb(&self) -> Option<Climb> {
        self.climb
    }

    /// What the rule files say of it now.
    pub(super) const fn learn_settings(&mut self, server: &Watched) {
        self.whole = server.whole;
        self.published = server.share;
        self.slow_start = server.slow_start;
    }

    /// Its share, where that is another than was published.
    pub(super) fn new_share(&mut self) -> Option<Share> {
        let share = self.climb.map_or(self.whole, |climb| climb.share(self.whole));
        (std::mem::replace(&mut self.published, share) != share).then_some(share)
    }

    /// A reload has brought it.
    pub(super) fn comes_new(&mut self, now: Timestamp, rng: &mut Rng) -> Option<Turn> {
        let climb = Climb::new(now, false);
        (self.slow_start.is_some() && self.state == State::Up)
            .then(|| self.begin_climb(now, climb, Sign::Configured, rng))
            .flatten()
    }

    /// Its share begins to rise, or goes on to.
    pub(super) fn begin_climb(&mut self, now: Timestamp, climb: Climb, because: Sign, rng: &mut Rng) -> Option<Turn> {
        let turn = self.turn(now, State::Recovering, because, rng);
        self.climb = Some(climb);
        (turn.from != turn.to).then_some(turn)
    }

    /// Its share rises with the time.
    pub(super) fn climb_on(&mut self, now: Timestamp, rng: &mut Rng) -> Option<Turn> {
        let climb = self.climb.as_mut()?;
        climb.go_on(now, self.slow_start.unwrap_or_default());
        climb.is_over().then(|| {
            self.signs.add(now, Sign::SlowStartOver);
            self.turn(now, State::Up, Sign::SlowStartOver, rng)
        })
    }

    /// Requests have seen something.
    pub(super) fn saw(&mut self, now: Timestamp, seen: &OutcomeSummary, rng: &mut Rng) -> Option<Turn> {
        let in_a_row = seen.connect_failures_in_a_row;
        let sign = Sign::ConnectFailures(in_a_row);
        match self.state {
            State::Up if in_a_row >= CONNECT_FAILURES_MAX => {
                self.signs.add(now, sign);
                Some(self.turn(now, State::Suspect { by_overload: false }, sign, rng))
            }
            State::Recovering if in_a_row > 0 => {
                self.signs.add(now, sign);
                Some(self.fall_back(now, sign, true, rng))
            }
            // Known, or an operator's wish that evidence does not undo.
            State::Up
            | State::Recovering
            | State::Suspect { .. }
            | State::Down
            | State::Drained
            | State::Maintenance => None,
        }
    }

    /// It has failed on its way back: what it was before it is again. One that was dead is doubted no longer, where the
    /// failure `is_clear`.
    fn fall_back(&mut self, now: Timestamp, sign: Sign, is_clear: bool, rng: &mut Rng) -> Turn {
        let was_down = self.climb.is_some_and(|climb| climb.is_from_down);
        let turn = self.turn(now, State::Suspect { by_overload: false }, sign, rng);
        if let Some(checks) = self.checks.as_mut().filter(|_| was_down && is_clear) {
            checks.verdict = Some(sign);
        }
        turn
    }

    /// An operator wants something.
    pub(super) fn ordered(&mut self, now: Timestamp, order: Order, rng: &mut Rng) -> Option<Turn> {
        let to = match order {
            Order::Drain => State::Drained,
            Order::Maintain => State::Maintenance,
            Order::Enable => match self.state {
                State::Maintenance if self.slow_start.is_some() => {
                    self.signs.add(now, Sign::Ordered(order));
                    return self.begin_climb(now, Climb::new(now, false), Sign::Ordered(order), rng);
                }
                // One that was drained has served its clients on.
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
        self.id.pool == other.id.pool && !self.whole.is_zero() && self.state.allows(Wanted::InPanic)
    }

    /// A check has ended. The result of one that is not expected (any more) says nothing.
    pub(super) fn check_done(
        &mut self,
        now: Timestamp,
        id: CheckId,
        result: Result<Duration, CheckFailure>,
        rng: &mut Rng,
    ) -> Option<Turn> {
        let checks = self.checks.as_mut()?;
        if checks.running != Some(id) {
            return None;
        }
        checks.running = None;
        let time = match result {
            Ok(time) => time,
            Err(why) => {
                let sign = Sign::CheckFailed(why);
                checks.failed(why);
                self.signs.add(now, sign);
                let is_back = self.state == State::Recovering && why != CheckFailure::NotRun;
                return is_back.then(|| self.fall_back(now, sign, why != CheckFailure::TimedOut, rng));
            }
        };
        (checks.unreachable, checks.verdict) = (0, None);
        checks.passed_in_a_row += 1;
        let passed = checks.passed_in_a_row;
        self.signs.add(now, Sign::CheckPassed(time));
        if passed < RISE || self.state == State::Recovering {
            return None;
        }
        let because = Sign::ChecksPassed(passed);
        if self.slow_start.is_some() {
            let climb = Climb::new(now, self.state == State::Down);
            return self.begin_climb(now, climb, because, rng);
        }
        Some(self.turn(now, State::Up, because, rng))
    }

    /// Whether requests and checks agree that a suspected server is dead. Overload is never treated as death.
    pub(super) fn is_dead(&self) -> bool {
        self.state == (State::Suspect { by_overload: false }) && self.verdict().is_some()
    }

    /// Takes a dead server for Down; its checks go on.
    pub(super) fn fall(&mut self) -> Option<Turn> {
        let because = self.verdict()?;
        let from = std::mem::replace(&mut self.state, State::Down);
        Some(Turn { from, to: State::Down, because })
    }

    fn verdict(&self) -> Option<Sign> {
        self.checks.as_ref()?.verdict
    }

    fn turn(&mut self, now: Timestamp, to: State, because: Sign, rng: &mut Rng) -> Turn {
        let from = std::mem::replace(&mut self.state, to);
        self.climb = None;
        self.check_as_state_asks(now, rng);
        Turn { from, to, because }
    }

    /// Only a server that is not well is checked.
    fn check_as_state_asks(&mut self, now: Timestamp, rng: &mut Rng) {
        self.checks = match self.state {
            State::Suspect { .. } | State::Down | State::Recovering => Some(Checks::begin(now, rng)),
            State::Up | State::Drained | State::Maintenance => None,
        };
    }
}

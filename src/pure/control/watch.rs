//! One server under watch: its state, the evidence for it, and the checks that may change it.
//!
//! Causes make a server Suspect ([`super::suspicion`]); it is Up again when all have cleared and its checks pass. It is dead
//! where two witnesses agree that it is; of which there are four: connects that are refused, checks that fail, silence, and
//! its agent. Overload is no witness, and while a server is overloaded a check that times out is none either.

use std::time::Duration;

use super::checks::{CHECK_INTERVAL, Checks};
use super::climb::Climb;
use super::evidence::{Evidence, Sign, Signs};
use super::failure_window::FailureWindow;
use super::influence::Influence;
use super::suspicion::{Cause, Suspicion};
use super::voices::Voices;
use super::weighing::Question;
use super::{CheckFailure, CheckId, Order, OutcomeSummary, Watched};
use crate::base::id::ServerId;
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::check::CheckTimes;
use crate::pure::detection::{DetectMode, Detection};
use crate::pure::feedback::report::Source;
use crate::pure::pool::{Share, State, Wanted};

mod reports;

/// So many connects in a row that fail make a server Suspect.
pub const CONNECT_FAILURES_MAX: u32 = 3;

/// So many requests must wait for silence to mean anything: a server may work on each of fewer.
pub const SILENT_REQUESTS_MIN: u32 = 8;

/// The least silence that means anything.
pub const SILENCE_MIN: Duration = Duration::from_millis(250);

/// How long the share of a server rises that was dead, where its pool does not say.
pub const SLOW_START: Duration = Duration::from_secs(10);

/// So many good checks in a row clear a suspicion.
pub const CLEARING: u32 = 2;

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
    state_since: Timestamp,
    /// What made it so.
    because: Sign,
    /// Its configured share.
    whole: Share,
    /// Its share in the snapshot.
    published: Share,
    slow_start: Option<Duration>,
    times: CheckTimes,
    detection: Detection,
    /// While its share rises: then it is Recovering.
    climb: Option<Climb>,
    signs: Signs,
    /// While the server is checked.
    checks: Option<Checks>,
    suspicion: Suspicion,
    window: FailureWindow,
    /// Whether requests were refused, and no check has passed since.
    is_refused: bool,
    /// It has failed on its way back from death: that needs no second witness.
    condemned: Option<Sign>,
    /// Whether its unanswered requests are to be sent elsewhere, and when that was wanted last.
    wants_back: bool,
    took_back: Option<Timestamp>,
    /// Whether it was dead, and has not been up since.
    was_dead: bool,
    /// The most requests that it takes, as was published.
    published_max: Option<u32>,
    /// Who has drained it or taken it out; an operator, where it is nobody.
    ordered_by: Option<Source>,
    /// What it says of itself.
    pub(super) voices: Voices,
    /// What that makes of its share.
    pub(super) influence: Influence,
    /// Whether that is only shown.
    pub(super) is_dry_run: bool,
    /// Whether its agent was asked, in the paper's way.
    pub(super) question: Question,
    /// The time in which it answers 99 of 100 requests.
    pub(super) p99: Option<Duration>,
}

impl Watch {
    pub(super) fn new(now: Timestamp, server: &Watched, rng: &mut Rng) -> Self {
        let mut watch = Self {
            id: server.id.clone(),
            incarnation: server.incarnation,
            state: server.state,
            state_since: now,
            because: Sign::Configured,
            whole: server.whole,
            published: server.share,
            slow_start: server.slow_start,
            times: server.check,
            detection: server.detection,
            climb: None,
            signs: Signs::default(),
            checks: None,
            suspicion: Suspicion::default(),
            window: FailureWindow::default(),
            is_refused: false,
            condemned: None,
            wants_back: false,
            took_back: None,
            was_dead: server.state == State::Down,
            published_max: None,
            ordered_by: None,
            voices: Voices::default(),
            influence: Influence::default(),
            is_dry_run: false,
            question: Question::default(),
            p99: None,
        };
        match server.state {
            State::Suspect { by_overload: true } => watch.suspicion.add(now, Cause::Overload(Source::Agent)),
            State::Suspect { by_overload: false } => watch.suspicion.add(now, Cause::Connects),
            _ => {}
        }
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

    pub(super) const fn state_since(&self) -> Timestamp {
        self.state_since
    }

    /// What made its state what it is.
    pub(super) const fn because(&self) -> Sign {
        self.because
    }

    pub(super) const fn whole(&self) -> Share {
        self.whole
    }

    pub(super) const fn is_of(&self, incarnation: u32) -> bool {
        self.incarnation == incarnation
    }

    pub(super) fn evidence(&self) -> impl Iterator<Item = &Evidence> {
        self.signs.iter()
    }

    /// Adds to the evidence.
    pub(super) fn note(&mut self, now: Timestamp, sign: Sign) {
        self.signs.add(now, sign);
    }

    pub(super) const fn is_checked(&self) -> bool {
        self.checks.is_some()
    }

    pub(super) const fn is_climbing(&self) -> bool {
        self.climb.is_some()
    }

    /// Whether time alone may change what is thought of it.
    pub(super) const fn is_timed(&self) -> bool {
        !self.suspicion.is_empty() || self.voices.is_any()
    }

    pub(super) const fn climb(&self) -> Option<Climb> {
        self.climb
    }

    pub(super) fn has_cause(&self, cause: Cause) -> bool {
        self.suspicion.has(cause)
    }

    /// Whether it means something that it sends nothing.
    pub(super) fn detects_silence(&self) -> bool {
        self.detection.silence && self.detection.mode == DetectMode::Evidence
    }

    /// The paper's counter, where it is the paper that decides.
    pub(super) fn classic_counter(&self) -> Option<u32> {
        (self.detection.mode == DetectMode::Classic).then(|| self.voices.counter())
    }

    /// What the rule files say of it now.
    pub(super) fn learn_settings(&mut self, now: Timestamp, server: &Watched, rng: &mut Rng) {
        self.whole = server.whole;
        self.published = server.share;
        // The snapshot has what the rule file says.
        self.published_max = None;
        self.slow_start = server.slow_start;
        let is_checked_else = (self.times.every, self.detection.mode) != (server.check.every, server.detection.mode);
        (self.times, self.detection) = (server.check, server.detection);
        if is_checked_else {
            self.check_as_state_asks(now, rng);
        }
    }

    /// Its share, where that is another than was published.
    pub(super) fn new_share(&mut self) -> Option<Share> {
        let wanted = self.influence.share().filter(|_| !self.is_dry_run);
        let whole = wanted.unwrap_or(self.whole);
        let share = self.climb.map_or(whole, |climb| climb.share(whole));
        (std::mem::replace(&mut self.published, share) != share).then_some(share)
    }

    /// The most requests that it takes by its own word, where that is other than was published.
    pub(super) fn new_max(&mut self) -> Option<Option<u32>> {
        let max = self.voices.connections_max();
        (std::mem::replace(&mut self.published_max, max) != max).then_some(max)
    }

    /// In the paper's way of detection only an agent could bring it back: without one it is thought of as up.
    pub(super) fn is_left_to_the_paper(&mut self, now: Timestamp, rng: &mut Rng) -> Option<Turn> {
        let is_out = matches!(self.state, State::Suspect { .. } | State::Down | State::Recovering);
        let is_left =
            self.detection.mode == DetectMode::Classic && is_out && self.voices.service(Source::Agent).is_none();
        is_left.then(|| self.turn(now, State::Up, Sign::Configured, rng))
    }

    /// It was known at another address: what was wished of it there holds here.
    pub(super) const fn takes_over(&mut self, before: &Self) {
        self.ordered_by = before.ordered_by;
        self.was_dead = before.was_dead;
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
        let takes = self.slow_start.unwrap_or(if climb.is_from_down { SLOW_START } else { Duration::ZERO });
        climb.go_on(now, takes);
        climb.is_over().then(|| {
            self.signs.add(now, Sign::SlowStartOver);
            self.turn(now, State::Up, Sign::SlowStartOver, rng)
        })
    }

    /// Requests have seen something. `silence` is how long it may send nothing; `None`: that means nothing here.
    pub(super) fn saw(
        &mut self,
        now: Timestamp,
        seen: &OutcomeSummary,
        silence: Option<Duration>,
        rng: &mut Rng,
    ) -> Option<Turn> {
        self.window.add(now, seen.ended, seen.failed);
        self.p99 = seen.p99.or(self.p99);
        if !self.is_judged_by_requests() {
            return None;
        }
        let in_a_row = seen.connect_failures_in_a_row;
        let is_recovering = self.state == State::Recovering;
        let mut turn = None;
        if in_a_row >= CONNECT_FAILURES_MAX || is_recovering && in_a_row > 0 {
            self.is_refused |= seen.refused > 0;
            turn = self.accuse(now, Cause::Connects, Sign::ConnectFailures(in_a_row), rng);
        }
        let lasts = |quiet: &Duration| silence.is_some_and(|least| *quiet >= least);
        // Of a server that is doubted already, one request that waits in vain says as much as many of another.
        let is_checked_in_vain = self.checks.as_ref().is_some_and(|checks| checks.failed_in_a_row > 0);
        let is_doubted = self.state == State::Suspect { by_overload: false } || is_checked_in_vain;
        let is_many = seen.outstanding >= SILENT_REQUESTS_MIN;
        let quiet = if is_doubted && !is_many { seen.quiet_for } else { seen.silent_for.filter(|_| is_many) };
        if let Some(quiet) = quiet.filter(lasts) {
            if self.took_back.is_none_or(|last| now.since(last) >= SILENCE_MIN) {
                (self.wants_back, self.took_back) = (true, Some(now));
            }
            turn = turn.or(self.accuse(now, Cause::Silence, Sign::Silent(seen.outstanding, quiet), rng));
        }
        turn
    }

    const fn is_judged_by_requests(&self) -> bool {
        let is_out = matches!(self.state, State::Drained | State::Maintenance);
        !is_out && matches!(self.detection.mode, DetectMode::Evidence)
    }

    /// What speaks against it where too many of its requests fail.
    pub(super) fn failing(&self, now: Timestamp) -> Option<Sign> {
        let (failed, ended) = self.window.alarming(now).filter(|_| self.is_judged_by_requests())?;
        Some(Sign::RequestsFailed(failed, ended))
    }

    /// Whether its unanswered requests are to be sent elsewhere: it sends nothing. Asked once, it is forgotten.
    pub(super) const fn takes_back(&mut self) -> bool {
        std::mem::replace(&mut self.wants_back, false)
    }

    /// Something speaks against it.
    pub(super) fn accuse(&mut self, now: Timestamp, cause: Cause, sign: Sign, rng: &mut Rng) -> Option<Turn> {
        let is_known = self.suspicion.has(cause);
        self.suspicion.add(now, cause);
        if !is_known {
            self.signs.add(now, sign);
        }
        match self.state {
            State::Recovering => {
                let is_clear = !matches!(cause, Cause::Overload(_) | Cause::Silence);
                Some(self.fall_back(now, sign, is_clear, rng))
            }
            State::Up => Some(self.turn(now, self.suspect(), sign, rng)),
            State::Suspect { .. } => self.weigh_overload(now, sign),
            State::Down | State::Drained | State::Maintenance => None,
        }
    }

    /// Suspect, as the causes say.
    fn suspect(&self) -> State {
        State::Suspect { by_overload: self.suspicion.is_overload_alone() }
    }

    /// Whether it is suspected by overload alone may have changed.
    fn weigh_overload(&mut self, now: Timestamp, because: Sign) -> Option<Turn> {
        if self.suspicion.is_empty() || !matches!(self.state, State::Suspect { .. }) || self.state == self.suspect() {
            return None;
        }
        let to = self.suspect();
        let from = std::mem::replace(&mut self.state, to);
        (self.state_since, self.because) = (now, because);
        Some(Turn { from, to, because })
    }

    /// It has failed on its way back: what it was before it is again. One that was dead is doubted no longer, where the
    /// failure `is_clear`.
    fn fall_back(&mut self, now: Timestamp, sign: Sign, is_clear: bool, rng: &mut Rng) -> Turn {
        let was_down = self.was_dead;
        if self.suspicion.is_empty() {
            self.suspicion.add(now, Cause::Checks);
        }
        let turn = self.turn(now, self.suspect(), sign, rng);
        self.condemned = (was_down && is_clear).then_some(sign);
        turn
    }

    /// An operator wants something.
    pub(super) fn ordered(&mut self, now: Timestamp, order: Order, rng: &mut Rng) -> Option<Turn> {
        self.ordered_by = None;
        self.follow_order(now, order, Sign::Ordered(order), rng)
    }

    fn follow_order(&mut self, now: Timestamp, order: Order, sign: Sign, rng: &mut Rng) -> Option<Turn> {
        let to = match order {
            Order::Drain => State::Drained,
            Order::Maintain => State::Maintenance,
            Order::Enable => match self.state {
                State::Maintenance if self.slow_start.is_some() => {
                    self.signs.add(now, sign);
                    return self.begin_climb(now, Climb::new(now, false), sign, rng);
                }
                // One that was drained has served its clients on.
                State::Drained | State::Maintenance => State::Up,
                // It is not out: what is known of it stands.
                State::Up | State::Recovering | State::Suspect { .. } | State::Down => return None,
            },
        };
        self.signs.add(now, sign);
        self.suspicion.clear();
        (to != self.state).then(|| self.turn(now, to, sign, rng))
    }

    /// Since when a check is due; `None`: none is.
    pub(super) fn check_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.checks.as_ref()?.due(now)
    }

    pub(super) fn check_begun(&mut self, now: Timestamp, id: CheckId, rng: &mut Rng) {
        let every = match self.state {
            State::Up => self.times.every.unwrap_or(CHECK_INTERVAL),
            _ => CHECK_INTERVAL,
        };
        if let Some(checks) = &mut self.checks {
            checks.begun(now, id, every, rng);
        }
    }

    /// How long a check of it may take.
    pub(super) const fn check_timeout(&self) -> Duration {
        self.times.timeout
    }

    /// Forgets a check whose result will not come any more.
    pub(super) fn give_up_lost_check(&mut self, now: Timestamp, still_runs: impl Fn(CheckId) -> bool) {
        let Some(checks) = &mut self.checks else { return };
        if checks.running.is_some_and(|check| !still_runs(check)) {
            checks.running = None;
            self.signs.add(now, Sign::CheckFailed(CheckFailure::NotRun));
        }
    }

    /// Whether requests that another of its pool can't get could come here.
    pub(super) const fn can_stand_in(&self) -> bool {
        !self.whole.is_zero() && self.state.allows(Wanted::InPanic)
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
        match result {
            Ok(time) => {
                checks.passed();
                self.signs.add(now, Sign::CheckPassed(time));
                (self.is_refused, self.condemned) = (false, None);
                self.suspicion.remove(Cause::Connects);
                self.suspicion.remove(Cause::Checks);
                self.come_back(now, rng)
            }
            Err(why) => self.check_failed(now, why, rng),
        }
    }

    fn check_failed(&mut self, now: Timestamp, why: CheckFailure, rng: &mut Rng) -> Option<Turn> {
        let checks = self.checks.as_mut()?;
        checks.failed(why);
        let has_fallen = checks.have_fallen(&self.times);
        let sign = Sign::CheckFailed(why);
        self.signs.add(now, sign);
        match self.state {
            State::Recovering if why != CheckFailure::NotRun => {
                Some(self.fall_back(now, sign, why != CheckFailure::TimedOut, rng))
            }
            State::Up if has_fallen => self.accuse(now, Cause::Checks, sign, rng),
            _ => None,
        }
    }

    /// It is back, where nothing speaks against it any more and its checks pass.
    fn come_back(&mut self, now: Timestamp, rng: &mut Rng) -> Option<Turn> {
        let passed = self.checks.as_ref().map_or(0, |checks| checks.passed_in_a_row);
        let is_back = match self.state {
            State::Suspect { .. } => self.suspicion.is_empty() && passed >= CLEARING,
            State::Down => !self.suspicion.has_word() && passed >= self.times.rise.max(1),
            State::Up | State::Recovering | State::Drained | State::Maintenance => false,
        };
        if !is_back {
            return None;
        }
        let because = Sign::ChecksPassed(passed);
        let was_down = self.was_dead;
        let takes = self.slow_start.or(was_down.then_some(SLOW_START)).filter(|takes| !takes.is_zero());
        if takes.is_some() {
            return self.begin_climb(now, Climb::new(now, was_down), because, rng);
        }
        Some(self.turn(now, State::Up, because, rng))
    }

    /// Whether a suspected server is dead: two witnesses agree. Overload is never treated as death.
    pub(super) fn is_dead(&self, now: Timestamp, stretch: f64) -> bool {
        if self.state != (State::Suspect { by_overload: false }) || self.detection.mode == DetectMode::Classic {
            return false;
        }
        if self.condemned.is_some() {
            return true;
        }
        let of_checks = |says: fn(&Checks) -> bool| self.checks.as_ref().is_some_and(says);
        let is_check_refused = of_checks(|checks| checks.is_refused);
        let has_fallen = self.checks.as_ref().is_some_and(|checks| checks.have_fallen(&self.times));
        // The kernel's word that nobody listens, whoever asked it, is one witness, unless the agent has just seen that
        // somebody does; that checks fail, whatever they ask, is another.
        let connects =
            (self.is_refused || has_fallen && is_check_refused) && !self.voices.is_agent_sure_it_lives(now, stretch);
        let have_failed = has_fallen && (!self.suspicion.has_overload() || of_checks(|checks| checks.has_no_way));
        let silence = self.suspicion.has(Cause::Silence);
        let agent = self.voices.is_agent_a_witness(now, stretch);
        // A check that is refused leaves no doubt where anybody else speaks.
        let checks = have_failed || is_check_refused && (self.is_refused || silence || agent);
        let witnesses = [connects, checks, silence, agent].into_iter().filter(|speaks| *speaks).count();
        witnesses >= 2
    }

    /// Takes a dead server for Down; its checks go on.
    pub(super) fn fall(&mut self, now: Timestamp) -> Option<Turn> {
        let last = self.checks.as_ref().and_then(|checks| checks.last);
        let because = self.condemned.or(last).or_else(|| self.signs.iter().last().map(|evidence| evidence.sign))?;
        self.condemned = None;
        (self.state_since, self.because) = (now, because);
        self.was_dead = true;
        let from = std::mem::replace(&mut self.state, State::Down);
        Some(Turn { from, to: State::Down, because })
    }

    fn turn(&mut self, now: Timestamp, to: State, because: Sign, rng: &mut Rng) -> Turn {
        let from = std::mem::replace(&mut self.state, to);
        (self.state_since, self.because) = (now, because);
        self.climb = None;
        self.was_dead = to == State::Down || self.was_dead && to != State::Up;
        if matches!(to, State::Up | State::Recovering) {
            self.suspicion.clear();
            self.window.clear();
            (self.is_refused, self.condemned) = (false, None);
        }
        self.check_as_state_asks(now, rng);
        Turn { from, to, because }
    }

    /// A server that is not well is checked, and one that is, where the configuration says so.
    fn check_as_state_asks(&mut self, now: Timestamp, rng: &mut Rng) {
        let old = self.checks.take();
        let is_classic = self.detection.mode == DetectMode::Classic;
        self.checks = match self.state {
            State::Suspect { .. } | State::Down | State::Recovering if !is_classic => {
                let mut checks = Checks::begin(now, rng);
                // What led to the suspicion speaks on.
                if let Some(old) = old.filter(|_| self.state != State::Recovering) {
                    checks.failed_in_a_row = old.failed_in_a_row;
                    (checks.is_refused, checks.has_no_way, checks.last) = (old.is_refused, old.has_no_way, old.last);
                }
                Some(checks)
            }
            // Its own word is not the last: whoever stops for good is missed in the end.
            State::Drained | State::Maintenance if !is_classic && self.ordered_by.is_some() => {
                Some(Checks::begin(now, rng))
            }
            State::Up if !is_classic => self.times.every.map(|every| Checks::begin_within(now, every, rng)),
            _ => None,
        };
    }
}

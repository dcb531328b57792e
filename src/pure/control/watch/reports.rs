//! What a server says of itself, and what it no longer says, turned into causes and turns.

use std::time::Duration;

use super::{Turn, Watch};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::control::Order;
use crate::pure::control::evidence::Sign;
use crate::pure::control::promises::{DOUBT, MISSED_MAX};
use crate::pure::control::suspicion::Cause;
use crate::pure::control::voices;
use crate::pure::detection::DetectMode;
use crate::pure::feedback::report::{Report, Service, Source};
use crate::pure::pool::State;

/// The paper: at so many ticks without a report a server has reached its maximum.
pub const TICKS_TO_SUSPECT: u32 = 10;

/// The paper: at so many it has failed.
pub const TICKS_TO_FAIL: u32 = 50;

/// Who says that it is about to stop has stopped after so long, or does not mean to.
const LEAVES_WITHIN: Duration = Duration::from_secs(30);

/// An agent that is silent for so long while all else is well is done without.
const AGENT_LOST_AFTER: Duration = Duration::from_secs(10);

impl Watch {
    /// It says something of itself.
    pub(in crate::pure::control) fn reported(
        &mut self,
        now: Timestamp,
        source: Source,
        report: &Report,
        rng: &mut Rng,
    ) -> Option<Turn> {
        self.question.heard();
        let before = self.voices.service(source);
        if self.voices.hear(now, source, report) {
            self.signs.add(now, Sign::AgentRestarted);
        }
        if before != Some(report.service) {
            self.signs.add(now, Sign::Says(source, report.service));
        }
        if self.detection.mode == DetectMode::Classic {
            return self.reported_classic(now, source, report, rng);
        }
        if let Some(turn) = self.reported_orders(now, source, report.service, rng) {
            return Some(turn);
        }
        if matches!(self.state, State::Drained | State::Maintenance) {
            return None;
        }
        let mut turn = None;
        if source == Source::Agent {
            self.suspicion.remove(Cause::AgentSilent);
        }
        if matches!(report.service, Service::Abnormal | Service::Down) {
            turn = self.accuse(now, Cause::Verdict(source), Sign::Says(source, report.service), rng);
        } else {
            self.suspicion.remove(Cause::Verdict(source));
        }
        let overload = Cause::Overload(source);
        if report.is_overloaded {
            turn = self.accuse(now, overload, Sign::Overloaded(source), rng).or(turn);
        } else if self.suspicion.has(overload) {
            self.signs.add(now, Sign::OverloadOver(source));
            self.suspicion.remove(overload);
        }
        turn.or_else(|| self.weigh_overload(now, Sign::Says(source, report.service)))
            .or_else(|| self.come_back(now, rng))
    }

    /// It wants to be left alone, or no longer. An operator's order stands against that.
    fn reported_orders(&mut self, now: Timestamp, source: Source, service: Service, rng: &mut Rng) -> Option<Turn> {
        let is_out = matches!(self.state, State::Drained | State::Maintenance);
        if is_out && self.ordered_by != Some(source) {
            return None;
        }
        let order = match service {
            // Who is dead has no clients that it could finish with.
            Service::Leaving if self.state == State::Down => return None,
            Service::Leaving => Order::Drain,
            Service::Maintenance => Order::Maintain,
            Service::Up if is_out => Order::Enable,
            Service::Abnormal | Service::Down if is_out => {
                // From out of service straight into doubt: not a request goes there between.
                self.ordered_by = None;
                self.suspicion.add(now, Cause::Verdict(source));
                let sign = Sign::Says(source, service);
                return Some(self.turn(now, self.suspect(), sign, rng));
            }
            Service::Up | Service::Abnormal | Service::Down => return None,
        };
        self.ordered_by = (order != Order::Enable).then_some(source);
        self.follow_order(now, order, Sign::Says(source, service), rng)
    }

    /// The paper's: an abnormal report stops dispatch at once, any other makes it well.
    fn reported_classic(&mut self, now: Timestamp, source: Source, report: &Report, rng: &mut Rng) -> Option<Turn> {
        if source != Source::Agent {
            return None;
        }
        let is_out = matches!(self.state, State::Drained | State::Maintenance);
        let sign = Sign::Says(source, report.service);
        let to = match report.service {
            Service::Leaving | Service::Maintenance => return self.reported_orders(now, source, report.service, rng),
            _ if is_out => return self.reported_orders(now, source, report.service, rng),
            Service::Abnormal | Service::Down => State::Suspect { by_overload: false },
            Service::Up => State::Up,
        };
        let is_same = self.state == to || (self.state == State::Down && to != State::Up);
        (!is_same).then(|| self.turn(now, to, sign, rng))
    }

    /// Time has passed: so many of the paper's ticks, by a clock that is stretched while we are slow ourselves.
    pub(in crate::pure::control) fn time_passes(
        &mut self,
        now: Timestamp,
        ticks: u32,
        stretch: f64,
        rng: &mut Rng,
    ) -> Option<Turn> {
        if self.detection.mode == DetectMode::Classic {
            return self.ticked(now, ticks, rng);
        }
        if matches!(self.state, State::Drained | State::Maintenance) {
            return self.ends_own_word(now, rng);
        }
        self.forget_old_voices(now);
        let late = self.voices.promises().and_then(|promises| {
            let (missed, doubt) = (promises.missed(now, stretch), promises.doubt(now, stretch));
            match (missed >= MISSED_MAX, doubt >= DOUBT) {
                (true, _) => Some(Sign::PromisesMissed(missed)),
                (false, true) => Some(Sign::Doubted((doubt * 10.0) as u32)),
                (false, false) => None,
            }
        });
        if let Some(sign) = late.filter(|_| !self.suspicion.has(Cause::AgentSilent)) {
            return self.accuse(now, Cause::AgentSilent, sign, rng);
        }
        let passed = self.checks.as_ref().map_or(0, |checks| checks.passed_in_a_row);
        if passed < super::CLEARING {
            return None;
        }
        let is_lost = self.voices.promises().is_some_and(|it| now.since(it.heard()) >= AGENT_LOST_AFTER);
        if is_lost && self.suspicion.has(Cause::AgentSilent) {
            self.voices.lose(Source::Agent);
            self.forget_words_of(Source::Agent);
            self.suspicion.remove(Cause::AgentSilent);
            self.signs.add(now, Sign::AgentLost);
        }
        self.suspicion.remove_in_time(now, Cause::Silence);
        self.suspicion.remove_in_time(now, Cause::FailureRate);
        self.weigh_overload(now, Sign::Cleared).or_else(|| self.come_back(now, rng))
    }

    /// One that has drained itself, or taken itself out, and then fell silent: it may have stopped for good, or only whoever
    /// spoke for it has. Its checks tell.
    fn ends_own_word(&mut self, now: Timestamp, rng: &mut Rng) -> Option<Turn> {
        let source = self.ordered_by?;
        let patience = if self.state == State::Drained { LEAVES_WITHIN } else { voices::HOLDS };
        if self.voices.heard_from(source).is_some_and(|heard| now.since(heard) < patience) {
            return None;
        }
        let checks = self.checks.as_ref()?;
        let (is_well, has_fallen) = (checks.passed_in_a_row >= super::CLEARING, checks.have_fallen(&self.times));
        if !is_well && !has_fallen {
            return None;
        }
        self.ordered_by = None;
        self.voices.lose(source);
        self.signs.add(now, Sign::AgentLost);
        if is_well {
            return Some(self.turn(now, State::Up, Sign::AgentLost, rng));
        }
        let sign = self.checks.as_ref().and_then(|checks| checks.last).unwrap_or(Sign::AgentLost);
        self.suspicion.add(now, Cause::Checks);
        Some(self.turn(now, self.suspect(), sign, rng))
    }

    /// What a source said long ago holds no longer.
    fn forget_old_voices(&mut self, now: Timestamp) {
        for source in [Source::Agent, Source::AgentCheck, Source::Orca] {
            if self.voices.is_old(now, source) {
                // An agent's broken promises speak on.
                if source != Source::Agent || self.voices.promises().is_none() {
                    self.voices.lose(source);
                }
                self.forget_words_of(source);
            }
        }
    }

    fn forget_words_of(&mut self, source: Source) {
        self.suspicion.remove(Cause::Verdict(source));
        self.suspicion.remove(Cause::Overload(source));
    }

    /// The paper's counter.
    fn ticked(&mut self, now: Timestamp, ticks: u32, rng: &mut Rng) -> Option<Turn> {
        let counter = self.voices.tick(ticks)?;
        let to = match self.state {
            State::Up | State::Recovering | State::Suspect { .. } if counter >= TICKS_TO_FAIL => State::Down,
            State::Up | State::Recovering if counter >= TICKS_TO_SUSPECT => State::Suspect { by_overload: false },
            _ => return None,
        };
        let sign = Sign::Unreported(counter);
        self.signs.add(now, sign);
        Some(self.turn(now, to, sign, rng))
    }
}

//! One attempt to bring a server back, step by step: what has to be known, what is done, and how long is waited for it.
//!
//! An attempt whose server needs it no more is let go at once, but its machine is free only when the step that runs has ended:
//! two never work on one machine.

use std::sync::Arc;

use super::patient::Patient;
use super::record::Outcome;
use super::{
    BOOT, BOOT_LOOK, Effect, HOURLY_MAX, Means, Recovery, SETTLE, STEP_LOST_AFTER, Step, StepFailure, StepId,
    forget_old,
};
use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;

/// What is known of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Something of it answers.
    Alive,
    /// It does not answer.
    Dead,
    /// It could not be asked.
    Unknown,
}

/// An attempt.
#[derive(Debug)]
pub(super) struct Run {
    server: ServerSlot,
    /// Whether its server needs it no more.
    is_let_go: bool,
    step: Option<Pending>,
    wait: Option<Wait>,
}

/// A step that runs.
#[derive(Clone, Copy, Debug)]
struct Pending {
    id: StepId,
    step: Step,
    lost_at: Timestamp,
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// The service, that was restarted.
    Settling { until: Timestamp },
    /// The machine.
    Booting { until: Timestamp, look_at: Timestamp, is_up: bool },
}

impl Run {
    pub(super) const fn new(server: ServerSlot) -> Self {
        Self { server, is_let_go: false, step: None, wait: None }
    }

    /// Whether that step runs, and its server needs it.
    pub(super) fn waits_for(&self, step: StepId) -> bool {
        !self.is_let_go && self.step.is_some_and(|pending| pending.id == step)
    }
}

impl Recovery {
    /// The server needs no more help: what is done for it ends.
    pub(super) fn let_go(&mut self, slot: ServerSlot) {
        self.runs.retain(|_, run| {
            if run.server == slot {
                run.is_let_go = true;
            }
            !run.is_let_go || run.step.is_some()
        });
    }

    /// Takes a step of the machine's attempt; in a dry run, one that would change something is only shown.
    pub(super) fn take(&mut self, now: Timestamp, host: &Arc<str>, step: Step, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(host) else { return };
        let Some(patient) = self.servers.get_mut(&run.server) else { return };
        let is_dry_run = patient.is_dry_run();
        match step {
            Step::AgentRestart => patient.restarted(),
            Step::PowerCycle => {
                if let Some(host) = self.hosts.get_mut(host) {
                    host.history(is_dry_run).switched.push_back(now);
                }
            }
            Step::Ping | Step::WakeOnLan | Step::Check => {}
        }
        if step.acts() && is_dry_run {
            effects.push(patient.note(now, step, Outcome::DryRun));
            self.was_done(now, host, step);
            return;
        }
        let id = StepId(self.next_step);
        self.next_step += 1;
        run.step = Some(Pending { id, step, lost_at: now + step.timeout() + STEP_LOST_AFTER });
        effects.push(patient.note(now, step, Outcome::Running));
        effects.push(Effect::Run(id, run.server, step));
    }

    /// A step has ended, one way or another.
    pub(super) fn step_done(
        &mut self,
        now: Timestamp,
        id: StepId,
        result: Result<(), StepFailure>,
        effects: &mut Vec<Effect>,
    ) {
        let is_of = |run: &Run| run.step.is_some_and(|pending| pending.id == id);
        let Some((host, run)) = self.runs.iter_mut().find(|(_, run)| is_of(run)) else { return };
        let host = Arc::clone(host);
        let Some(Pending { step, .. }) = run.step.take() else { return };
        let (slot, is_let_go) = (run.server, run.is_let_go);
        if let Some(patient) = self.servers.get_mut(&slot) {
            let outcome = match &result {
                Ok(()) => Outcome::Done,
                Err(StepFailure::No(why) | StepFailure::NotDone(why)) => Outcome::Failed(why.clone()),
            };
            effects.extend(patient.note_end(outcome));
        }
        if is_let_go {
            self.runs.remove(&host);
            return;
        }
        match (step, result) {
            (Step::Ping, result) => self.pinged(now, &host, result, effects),
            (Step::Check, Ok(())) => {
                // Control sees it too, and will say so.
                self.runs.remove(&host);
                if let Some(patient) = self.servers.get_mut(&slot) {
                    patient.broke_off(now, &mut self.rng);
                }
            }
            (Step::AgentRestart | Step::WakeOnLan | Step::PowerCycle, Ok(())) => self.was_done(now, &host, step),
            (Step::AgentRestart | Step::WakeOnLan | Step::PowerCycle | Step::Check, Err(_)) => {
                self.end_in_vain(now, &host, effects);
            }
        }
    }

    fn pinged(&mut self, now: Timestamp, host: &Arc<str>, result: Result<(), StepFailure>, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.get_mut(host) else { return };
        if let Some(Wait::Booting { is_up, .. }) = &mut run.wait {
            *is_up |= result.is_ok();
            return;
        }
        let life = match result {
            Ok(()) => Life::Alive,
            Err(StepFailure::No(_)) => Life::Dead,
            Err(StepFailure::NotDone(_)) => Life::Unknown,
        };
        self.decide(now, host, life, effects);
    }

    /// What is done for a server whose machine is in that condition.
    pub(super) fn decide(&mut self, now: Timestamp, host: &Arc<str>, life: Life, effects: &mut Vec<Effect>) {
        let Some(patient) = self.runs.get(host).and_then(|run| self.servers.get(&run.server)) else { return };
        let Some(means) = patient.means else { return };
        let can_restart = means.restart && patient.speaks(now);
        // Of a machine that could not be asked nothing is known, and nothing follows from what was tried in vain.
        if life == Life::Dead || (life == Life::Alive && patient.has_restarted_in_vain()) {
            match self.power_step(now, host, means) {
                Ok(step) => self.take(now, host, step, effects),
                // An agent that speaks may be told once more.
                Err(_) if can_restart => self.take(now, host, Step::AgentRestart, effects),
                Err((step, why)) => self.pass_over(now, host, step, why, effects),
            }
        } else if can_restart {
            self.take(now, host, Step::AgentRestart, effects);
        } else {
            let why = if means.restart { "its agent does not speak" } else { "the pool has `restart #false`" };
            if means.restart
                && life == Life::Alive
                && let Some(patient) = self.runs.get(host).and_then(|run| self.servers.get_mut(&run.server))
            {
                patient.restarted();
            }
            self.pass_over(now, host, Step::AgentRestart, why, effects);
        }
    }

    /// What may be done to the machine itself: it is woken once, then its power is switched.
    fn power_step(&mut self, now: Timestamp, host: &Arc<str>, means: Means) -> Result<Step, (Step, &'static str)> {
        if self.lives(now, host) {
            return Err((Step::PowerCycle, "something on the machine is alive"));
        }
        let something_else = self.is_something_else_wrong(host);
        let Some(machine) = self.hosts.get_mut(host).map(|host| host.history(means.is_dry_run)) else {
            return Err((Step::PowerCycle, "the machine is not known"));
        };
        if means.wake && !machine.was_woken {
            return Ok(Step::WakeOnLan);
        }
        forget_old(&mut machine.switched, now);
        let trouble = if !means.power {
            "nothing says how its power is switched"
        } else if something_else {
            "a third of the pool is down, not on this machine alone"
        } else if machine.switched.len() >= HOURLY_MAX {
            "its power was switched five times in an hour"
        } else {
            return Ok(Step::PowerCycle);
        };
        if means.wake { Ok(Step::WakeOnLan) } else { Err((Step::PowerCycle, trouble)) }
    }

    /// A step was due and can't be taken: the attempt was in vain.
    fn pass_over(&mut self, now: Timestamp, host: &Arc<str>, step: Step, why: &str, effects: &mut Vec<Effect>) {
        let patient = self.runs.get(host).and_then(|run| self.servers.get_mut(&run.server));
        effects.extend(patient.map(|patient| patient.note(now, step, Outcome::Failed(why.to_owned()))));
        self.end_in_vain(now, host, effects);
    }

    /// A step that changes something was done: now it is waited for.
    fn was_done(&mut self, now: Timestamp, host: &Arc<str>, step: Step) {
        let Some(run) = self.runs.get_mut(host) else { return };
        run.wait = match step {
            Step::AgentRestart => Some(Wait::Settling { until: now + SETTLE }),
            Step::WakeOnLan | Step::PowerCycle => {
                Some(Wait::Booting { until: now + BOOT, look_at: now + BOOT_LOOK, is_up: false })
            }
            Step::Ping | Step::Check => None,
        };
        let is_dry_run = self.servers.get(&run.server).is_some_and(Patient::is_dry_run);
        if step == Step::WakeOnLan
            && let Some(host) = self.hosts.get_mut(host)
        {
            host.history(is_dry_run).was_woken = true;
        }
    }

    fn end_in_vain(&mut self, now: Timestamp, host: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(run) = self.runs.remove(host) else { return };
        if let Some(patient) = self.servers.get_mut(&run.server) {
            effects.extend(patient.failed_again(now, &mut self.rng));
        }
    }

    /// Gives lost steps up and goes on where a wait is over.
    pub(super) fn advance_runs(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let hosts: Vec<Arc<str>> = self.runs.keys().cloned().collect();
        for host in hosts {
            let Some(run) = self.runs.get_mut(&host) else { continue };
            match (run.step, run.wait) {
                (Some(pending), _) => {
                    if pending.lost_at <= now {
                        let lost = Err(StepFailure::NotDone("its end was never told".to_owned()));
                        self.step_done(now, pending.id, lost, effects);
                    }
                }
                (None, Some(Wait::Settling { until })) => {
                    if until <= now {
                        run.wait = None;
                        self.take(now, &host, Step::Check, effects);
                    }
                }
                (None, Some(Wait::Booting { until, look_at, is_up })) => {
                    let patient = self.servers.get(&run.server);
                    let may_restart = patient.and_then(|it| it.means).is_some_and(|means| means.restart);
                    if may_restart && patient.is_some_and(|patient| patient.speaks(now)) {
                        run.wait = None;
                        self.take(now, &host, Step::AgentRestart, effects);
                    } else if until <= now {
                        run.wait = None;
                        if is_up {
                            self.take(now, &host, Step::Check, effects);
                        } else {
                            self.end_in_vain(now, &host, effects);
                        }
                    } else if look_at <= now && !is_up {
                        run.wait = Some(Wait::Booting { until, look_at: now + BOOT_LOOK, is_up });
                        self.take(now, &host, Step::Ping, effects);
                    }
                }
                // Nothing is waited for: there is nothing left of it.
                (None, None) => {
                    self.runs.remove(&host);
                }
            }
        }
    }
}

//! The services of a machine that depend on each other, and what to do when one fails: the monitor of the hot-standby paper.
//!
//! A service that fails is started anew: those that need it are stopped, the last first; it is stopped and started and looked
//! at; then the others are started again in order, each looked at. Where it is not well after that it is left stopped, and so
//! are those that need it; somebody is told, and the whole is abnormal until it runs. A service that somebody else has
//! brought back is taken for well, and those that waited for it are started. One that had to be started anew
//! [`RESTARTS_MAX`] times in an hour is given up like one that did not start.
//!
//! One step at a time: [`ServiceTree::handle`] takes what has happened and gives the next step. No clock, no process. It
//! refuses services that need one which is not above them, so that there is no circle.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::Timestamp;

/// The most services.
pub const SERVICES_MAX: usize = 64;
/// So many bad looks in a row are a failure.
pub const FALL: u32 = 2;
/// How often a service is started anew in an hour before it is given up.
pub const RESTARTS_MAX: usize = 5;
/// The hour in which restarts are counted.
const RESTARTS_IN: Duration = Duration::from_secs(3600);

/// A service's place in its file.
pub type ServiceIndex = usize;

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody looked at a service, and it was well or not.
    Seen(ServiceIndex, bool),
    /// The step that was given last has ended, well or not.
    Ended(bool),
    /// The balancer wants the service that clients reach started anew: [`ServiceTree::handle`] begins with what has failed, and
    /// takes the last of the file where all are well.
    Restart,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run the service's `stop`.
    Stop(ServiceIndex),
    /// Run its `start`.
    Start(ServiceIndex),
    /// Look at it until it is well, or its time is over.
    Verify(ServiceIndex),
}

/// What people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It has failed, and is started anew.
    Failed(ServiceIndex),
    /// It runs again.
    Restored(ServiceIndex),
    /// It is left stopped.
    GivenUp(ServiceIndex),
}

/// Effects of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Do this, and tell when it has ended.
    Do(Step),
    /// Tell people.
    Tell(News),
    /// The restart that was ordered is over, well or not.
    RestartOver(bool),
    /// A restart was ordered that can't be done now.
    RestartRefused,
}

/// How a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It runs, as far as anybody has seen.
    Running,
    /// It was stopped because of another.
    Stopped,
    /// It is left stopped.
    GivenUp,
}

/// A service.
#[derive(Clone, Debug)]
struct Entry {
    needs: Vec<ServiceIndex>,
    state: State,
    bad_looks: u32,
    restarts: VecDeque<Timestamp>,
}

/// Why services can't be a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// There are too many.
    #[error("there are more than {SERVICES_MAX} services")]
    TooMany,
    /// One needs a service that does not stand above it.
    #[error("service {0} needs one that does not stand above it")]
    NotAbove(ServiceIndex),
}

/// Services in the order in which they are started, and what is being done.
#[derive(Clone, Debug)]
pub struct ServiceTree {
    services: Vec<Entry>,
    plan: VecDeque<Step>,
    /// The step that was given and has not ended.
    current: Option<Step>,
    /// Whom the plan is for.
    cause: Option<ServiceIndex>,
    is_ordered: bool,
}

impl ServiceTree {
    /// Services, each with those that it needs.
    ///
    /// # Errors
    /// [`TreeError`] where they are no tree, or too many.
    pub fn new(needs: Vec<Vec<ServiceIndex>>) -> Result<Self, TreeError> {
        if needs.len() > SERVICES_MAX {
            return Err(TreeError::TooMany);
        }
        if let Some(at) = needs.iter().enumerate().position(|(at, needs)| needs.iter().any(|need| *need >= at)) {
            return Err(TreeError::NotAbove(at));
        }
        let entry = |needs| Entry { needs, state: State::Running, bad_looks: 0, restarts: VecDeque::new() };
        let services = needs.into_iter().map(entry).collect();
        Ok(Self { services, plan: VecDeque::new(), current: None, cause: None, is_ordered: false })
    }

    /// Whether every service runs, and nothing is being done.
    pub fn is_well(&self) -> bool {
        self.is_idle() && self.services.iter().all(|service| service.state == State::Running)
    }

    /// Whether nothing is being done.
    pub const fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Weighs an event; what is to be done is added to `effects`. `now` never goes back.
    pub fn handle(&mut self, now: Timestamp, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Seen(at, is_well) => self.seen(now, at, is_well, effects),
            Event::Ended(is_good) => self.ended(is_good, effects),
            Event::Restart => self.restart_ordered(effects),
        }
    }

    fn seen(&mut self, now: Timestamp, at: ServiceIndex, is_well: bool, effects: &mut Vec<Effect>) {
        // What is seen meanwhile may be the plan's own doing.
        if !self.is_idle() {
            return;
        }
        let Some(service) = self.services.get_mut(at) else { return };
        service.bad_looks = if is_well { 0 } else { service.bad_looks.saturating_add(1) };
        match service.state {
            State::Running if service.bad_looks >= FALL => self.failed(now, at, effects),
            State::GivenUp if is_well => {
                service.state = State::Running;
                effects.push(Effect::Tell(News::Restored(at)));
                self.start_waiting();
                self.next(effects);
            }
            State::Running | State::GivenUp | State::Stopped => {}
        }
    }

    fn failed(&mut self, now: Timestamp, at: ServiceIndex, effects: &mut Vec<Effect>) {
        effects.push(Effect::Tell(News::Failed(at)));
        let Some(service) = self.services.get_mut(at) else { return };
        service.restarts.retain(|restart| now.since(*restart) < RESTARTS_IN);
        let is_hopeless = service.restarts.len() >= RESTARTS_MAX;
        service.restarts.push_back(now);
        self.stop_dependents(at);
        if is_hopeless {
            self.give_up(at, effects);
        } else {
            self.start_anew(at);
        }
        self.next(effects);
    }

    fn restart_ordered(&mut self, effects: &mut Vec<Effect>) {
        let given_up = self.services.iter().position(|service| service.state == State::GivenUp);
        let Some(at) = given_up.or(self.services.len().checked_sub(1)).filter(|_| self.is_idle()) else {
            effects.push(Effect::RestartRefused);
            return;
        };
        self.is_ordered = true;
        self.stop_dependents(at);
        self.start_anew(at);
        self.next(effects);
    }

    /// Stops those that need this one and run, the last first.
    fn stop_dependents(&mut self, at: ServiceIndex) {
        for dependent in self.dependents(at).into_iter().rev() {
            if let Some(service) = self.services.get_mut(dependent).filter(|service| service.state == State::Running) {
                service.state = State::Stopped;
                self.plan.push_back(Step::Stop(dependent));
            }
        }
    }

    fn start_anew(&mut self, at: ServiceIndex) {
        self.cause = Some(at);
        if let Some(service) = self.services.get_mut(at) {
            service.state = State::Stopped;
        }
        self.plan.extend([Step::Stop(at), Step::Start(at), Step::Verify(at)]);
    }

    /// Starts those that were stopped and have all that they need, in order.
    fn start_waiting(&mut self) {
        let mut runs: Vec<bool> = self.services.iter().map(|service| service.state == State::Running).collect();
        for (at, service) in self.services.iter().enumerate() {
            let has_all = service.needs.iter().all(|need| runs.get(*need) == Some(&true));
            if service.state == State::Stopped && has_all {
                self.plan.extend([Step::Start(at), Step::Verify(at)]);
                if let Some(runs) = runs.get_mut(at) {
                    *runs = true;
                }
            }
        }
    }

    /// Those that need this one, themselves or through others, in order.
    fn dependents(&self, at: ServiceIndex) -> Vec<ServiceIndex> {
        let mut found = vec![at];
        for (other, service) in self.services.iter().enumerate().skip(at + 1) {
            if service.needs.iter().any(|need| found.contains(need)) {
                found.push(other);
            }
        }
        found.split_off(1)
    }

    fn ended(&mut self, is_good: bool, effects: &mut Vec<Effect>) {
        match self.current.take() {
            // A service that is dead need not be stopped well.
            None | Some(Step::Stop(_)) => {}
            Some(Step::Start(at)) if !is_good => self.give_up(at, effects),
            Some(Step::Start(_)) => {}
            Some(Step::Verify(at)) if !is_good => self.give_up(at, effects),
            Some(Step::Verify(at)) => self.verified(at, effects),
        }
        self.next(effects);
    }

    fn verified(&mut self, at: ServiceIndex, effects: &mut Vec<Effect>) {
        if let Some(service) = self.services.get_mut(at) {
            service.state = State::Running;
            service.bad_looks = 0;
        }
        if self.cause == Some(at) {
            self.cause = None;
            effects.push(Effect::Tell(News::Restored(at)));
            self.start_waiting();
        }
    }

    /// Leaves a service stopped, and those that need it: what was planned for them is not done.
    fn give_up(&mut self, at: ServiceIndex, effects: &mut Vec<Effect>) {
        if let Some(service) = self.services.get_mut(at) {
            service.state = State::GivenUp;
            service.bad_looks = 0;
        }
        effects.push(Effect::Tell(News::GivenUp(at)));
        let dependents = self.dependents(at);
        self.plan.retain(|step| match step {
            Step::Stop(_) => true,
            Step::Start(of) | Step::Verify(of) => *of != at && !dependents.contains(of),
        });
        // Those that need it are stopped before it, and it before anything else is started.
        let stops = self.plan.iter().take_while(|step| matches!(step, Step::Stop(_))).count();
        self.plan.insert(stops, Step::Stop(at));
        if self.cause == Some(at) {
            self.cause = None;
        }
    }

    fn next(&mut self, effects: &mut Vec<Effect>) {
        self.current = self.plan.pop_front();
        match self.current {
            Some(step) => effects.push(Effect::Do(step)),
            None if self.is_ordered => {
                self.is_ordered = false;
                effects.push(Effect::RestartOver(self.is_well()));
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;

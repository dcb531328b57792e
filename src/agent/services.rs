//! The services of the agent's file: looks at them, runs the commands that [`ServiceTree`] asks for, one at a time, and tells
//! people.
//!
//! A command is a program with its arguments, in a process group of its own so that it can be ended with all that it began when
//! its time is over; no shell, nothing from the network in it. It never waits for one: everything is looked at once a sample.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tracing::{error, info, warn};

use crate::agent::liveness::Liveness;
use crate::agent::measure::Sockets;
use crate::agent::own_check::OwnCheck;
use crate::base::time::Timestamp;
use crate::pure::config::agent_file::{AgentFile, CommandLine, ServiceConfig};
use crate::pure::feedback::wire::RestartProgress;
use crate::pure::service_tree::{Effect, Event, News, ServiceTree, Step, TreeError};

/// How often services are looked at.
const EVERY: Duration = Duration::from_millis(250);
/// The most alerts that run at once; more are left out, and the log has them.
const ALERTS_MAX: usize = 8;
/// How long an alert may run.
const ALERT_TIMEOUT: Duration = Duration::from_secs(30);

/// A service, and what is looked at.
#[derive(Debug)]
struct Watched {
    config: ServiceConfig,
    process: Option<Liveness>,
    check: Option<OwnCheck>,
}

/// A command that runs, or a service that is looked at until it is well.
#[derive(Debug)]
struct Running {
    step: Step,
    /// `None`: there is no command, it is looked at; or it could not be begun.
    child: Option<Child>,
    deadline: Timestamp,
}

/// The services of a file.
#[derive(Debug)]
pub struct Services {
    tree: ServiceTree,
    watched: Vec<Watched>,
    alert: Option<CommandLine>,
    alerts: Vec<(Child, Timestamp)>,
    sockets: Sockets,
    running: Option<Running>,
    looked: Option<Timestamp>,
    restart: Option<RestartProgress>,
}

impl Services {
    /// Begins to watch. Needs a runtime around it.
    ///
    /// # Errors
    /// [`TreeError`] where they are no tree.
    pub fn watch(file: AgentFile) -> Result<Self, TreeError> {
        let needs = file.services.iter().map(|service| service.needs.clone()).collect();
        let watched = |config: ServiceConfig| Watched {
            process: config.process.clone().map(Liveness::of),
            check: config.check.clone().map(OwnCheck::begin),
            config,
        };
        Ok(Self {
            tree: ServiceTree::new(needs)?,
            watched: file.services.into_iter().map(watched).collect(),
            alert: file.alert,
            alerts: Vec::new(),
            sockets: Sockets::of(None),
            running: None,
            looked: None,
            restart: None,
        })
    }

    /// Whether all of them run.
    pub fn are_well(&self) -> bool {
        self.tree.is_well()
    }

    /// Does what an order to restart asks for. How it goes on is [`Services::restart_news`].
    pub fn restart(&mut self, now: Timestamp) -> RestartProgress {
        let mut effects = Vec::new();
        self.tree.handle(now, Event::Restart, &mut effects);
        if effects.contains(&Effect::RestartRefused) {
            return RestartProgress::Refused;
        }
        self.carry_out(now, &effects);
        RestartProgress::Running
    }

    /// How the restart that was ordered has ended, once.
    pub fn restart_news(&mut self) -> Option<RestartProgress> {
        self.restart.take()
    }

    /// Looks at what runs, and at the services when it is time and nobody works on them.
    pub fn tick(&mut self, now: Timestamp, is_in_maintenance: bool) {
        self.end_alerts(now);
        if let Some(is_good) = self.ended(now) {
            self.running = None;
            self.handle(now, Event::Ended(is_good));
        }
        let is_due = self.looked.is_none_or(|at| now.since(at) >= EVERY);
        if !is_due || is_in_maintenance || !self.tree.is_idle() {
            return;
        }
        self.looked = Some(now);
        for at in 0..self.watched.len() {
            if let Some(is_well) = self.is_well(at, now) {
                self.handle(now, Event::Seen(at, is_well));
            }
        }
    }

    fn handle(&mut self, now: Timestamp, event: Event) {
        let mut effects = Vec::new();
        self.tree.handle(now, event, &mut effects);
        self.carry_out(now, &effects);
    }

    /// Whether a service is well; `None`: its check has not said yet.
    fn is_well(&mut self, at: usize, now: Timestamp) -> Option<bool> {
        let watched = self.watched.get_mut(at)?;
        let lives = watched.process.as_mut().is_none_or(|process| process.look(now).is_some());
        let listens = match watched.config.port {
            Some(port) => self.sockets.listening(port).ok()?.is_some(),
            None => true,
        };
        let answers = watched.check.as_ref().map_or(Some(true), OwnCheck::is_good);
        if lives && listens { answers } else { Some(false) }
    }

    /// Whether what runs has ended, and how; `None`: it goes on.
    fn ended(&mut self, now: Timestamp) -> Option<bool> {
        let running = self.running.as_mut()?;
        let is_late = now >= running.deadline;
        match (running.step, &mut running.child) {
            (Step::Verify(at), _) => match self.is_well(at, now) {
                Some(true) => Some(true),
                Some(false) | None => is_late.then_some(false),
            },
            (Step::Stop(_) | Step::Start(_), None) => Some(false),
            (Step::Stop(_) | Step::Start(_), Some(child)) => match child.try_wait() {
                Ok(Some(status)) => Some(status.success()),
                Ok(None) if is_late => {
                    end(child);
                    Some(false)
                }
                Ok(None) => None,
                Err(_) => Some(false),
            },
        }
    }

    fn carry_out(&mut self, now: Timestamp, effects: &[Effect]) {
        for effect in effects {
            match *effect {
                Effect::Do(step) => self.begin(now, step),
                Effect::Tell(news) => self.tell(now, news),
                Effect::RestartOver(is_good) => {
                    self.restart = Some(if is_good { RestartProgress::Done } else { RestartProgress::Failed });
                }
                Effect::RestartRefused => {}
            }
        }
    }

    fn begin(&mut self, now: Timestamp, step: Step) {
        let (Step::Stop(at) | Step::Start(at) | Step::Verify(at)) = step;
        let Some(watched) = self.watched.get(at) else { return };
        let ServiceConfig { name, timeout, start, stop, .. } = &watched.config;
        let child = match step {
            Step::Stop(_) => {
                info!("stopping the service `{name}`");
                spawn(stop, &[])
            }
            Step::Start(_) => {
                info!("starting the service `{name}`");
                spawn(start, &[])
            }
            Step::Verify(_) => {
                if let Some(check) = &watched.check {
                    check.forget();
                }
                None
            }
        };
        self.running = Some(Running { step, child, deadline: now + *timeout });
    }

    fn tell(&mut self, now: Timestamp, news: News) {
        let (at, word) = match news {
            News::Failed(at) => (at, "failed"),
            News::Restored(at) => (at, "restored"),
            News::GivenUp(at) => (at, "given-up"),
        };
        let Some(name) = self.watched.get(at).map(|watched| watched.config.name.clone()) else { return };
        match news {
            News::Failed(_) => warn!("the service `{name}` has failed: it is started anew"),
            News::Restored(_) => info!("the service `{name}` runs again"),
            News::GivenUp(_) => error!("the service `{name}` is left stopped: it does not run after a restart"),
        }
        if let Some(alert) = &self.alert {
            if self.alerts.len() >= ALERTS_MAX {
                warn!("no alert of `{name}`: {ALERTS_MAX} run already");
            } else if let Some(child) = spawn(alert, &[&name, word]) {
                self.alerts.push((child, now + ALERT_TIMEOUT));
            }
        }
    }

    fn end_alerts(&mut self, now: Timestamp) {
        self.alerts.retain_mut(|(child, deadline)| match child.try_wait() {
            Ok(None) if now < *deadline => true,
            Ok(None) => {
                end(child);
                false
            }
            Ok(Some(_)) | Err(_) => false,
        });
    }
}

/// Begins a command; `None`, and a line in the log, where that can't be done.
fn spawn(command: &CommandLine, more: &[&str]) -> Option<Child> {
    let mut process = Command::new(&command.program);
    process.args(&command.arguments).args(more).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    process.spawn().inspect_err(|cause| error!("`{}` can't be run: {cause}", command.program)).ok()
}

/// Ends a command whose time is over, with its process group.
fn end(child: &mut Child) {
    if let Ok(process) = i32::try_from(child.id()) {
        // Fails only where it has ended by itself.
        let _ = killpg(Pid::from_raw(process), Signal::SIGKILL);
    }
    let _ = child.wait();
}

//! The agent's one loop: a look every 50 ms, a report when [`Pacing`] says so, an order when one comes, and a word at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::agent::liveness::Liveness;
use crate::agent::measure::Measure;
use crate::agent::own_check::OwnCheck;
use crate::agent::pulse::Pulse;
use crate::agent::services::Services;
use crate::agent::speaker::{Arrival, Speaker};
use crate::agent::state_log::StateLog;
use crate::base::time::{self, UnixNanos};
use crate::pure::feedback::pacing::{Pacing, Reason, SAMPLE, Sample};
use crate::pure::feedback::report::{Report, Service};
use crate::pure::feedback::wire::{OrderKind, RestartNews, RestartProgress, SignedOrder};

/// How often an agent that ends says so, and how far apart: a datagram may be lost.
const FAREWELLS: u32 = 3;
const FAREWELL_GAP: Duration = Duration::from_millis(20);

/// Everything that an agent is made of.
#[derive(Debug)]
pub struct Agent {
    /// What it speaks with.
    pub speaker: Speaker,
    /// When it speaks.
    pub pacing: Pacing,
    /// What it measures.
    pub measure: Measure,
    /// Its service's process, where it is told which.
    pub process: Option<Liveness>,
    /// Its own check, where it has one.
    pub check: Option<OwnCheck>,
    /// The services of its file.
    pub services: Option<Services>,
    /// While it exists, the service is in maintenance.
    pub maintenance_file: Option<PathBuf>,
    /// The balancer and the number of the last order to restart, while it goes on.
    pub restarting: Option<(usize, u64)>,
    /// What the log has of the service.
    pub log: StateLog,
}

impl Agent {
    /// Runs until SIGTERM or SIGINT. As a task of the runtime: one that a runtime is blocked on is woken by a system call.
    ///
    /// # Errors
    /// Where signals can't be heard, or there is no timer, or it ends.
    pub async fn run(mut self, mut arrivals: mpsc::Receiver<Arrival>) -> std::io::Result<()> {
        let mut ends: [Signal; 2] = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        let looks = Pulse::every(SAMPLE)?;
        let [terminate, interrupt] = &mut ends;
        loop {
            tokio::select! {
                beat = looks.beat() => {
                    beat?;
                    self.look();
                }
                Some(arrival) = arrivals.recv() => self.hear(&arrival),
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        self.leave().await;
        Ok(())
    }

    fn look(&mut self) {
        let sample = self.sample(false);
        let now = time::now();
        if let Some(services) = &mut self.services {
            services.tick(now, sample.service == Service::Maintenance);
        }
        let has_news = self.note_restart_news();
        match self.pacing.look(now, &sample) {
            Some(why) => self.say(Some(why), &sample),
            None if has_news => self.say(None, &sample),
            None => {}
        }
    }

    fn sample(&mut self, is_asked: bool) -> Sample {
        let now = time::now();
        let process = self.process.as_mut().map(|process| process.look(now));
        self.measure.follow(process.flatten());
        let look = self.measure.look(now, self.pacing.wants_figures(now), is_asked);
        let is_bad = self.check.as_ref().and_then(OwnCheck::is_good) == Some(false);
        let is_failed = self.services.as_ref().is_some_and(|services| !services.are_well());
        let (service, why) = if self.is_in_maintenance() {
            (Service::Maintenance, "the maintenance file is there")
        } else if process == Some(None) {
            (Service::Down, "its process does not live")
        } else if !look.is_listening {
            (Service::Down, "nobody listens on its port")
        } else if !look.has_members {
            (Service::Down, "no process is in its cgroup")
        } else if is_bad {
            (Service::Abnormal, "its check has failed twice in a row")
        } else if is_failed {
            (Service::Abnormal, "a service of the agent's file does not run")
        } else {
            (Service::Up, "")
        };
        let sample = Sample { figures: look.figures, is_overloaded: look.is_overloaded, service };
        let lost = self.process.as_ref().filter(|_| process == Some(None) && service == Service::Down);
        self.log.note(now, &sample, || match lost {
            Some(process) => Some(process.why_none()),
            None => (service != Service::Up).then(|| why.to_owned()),
        });
        sample
    }

    fn is_in_maintenance(&self) -> bool {
        self.maintenance_file.as_deref().is_some_and(Path::exists)
    }

    fn say(&mut self, why: Option<Reason>, sample: &Sample) {
        let (said, promised_next) = self.pacing.told(time::now(), why, sample);
        let Sample { figures, is_overloaded, service } = said;
        let report = Report { figures, is_overloaded, service, promised_next, ..Report::default() };
        self.speaker.say(&report, wall_clock());
    }

    fn hear(&mut self, arrival: &Arrival) {
        let Some(order) = self.speaker.hear(arrival, wall_clock()) else { return };
        match order.kind {
            OrderKind::Question => {}
            OrderKind::Restart => self.restart(arrival.0, &order),
        }
        let sample = self.sample(true);
        self.say(None, &sample);
    }

    fn restart(&mut self, balancer: usize, order: &SignedOrder) {
        let is_in_maintenance = self.is_in_maintenance();
        let progress = match &mut self.services {
            Some(services) if !is_in_maintenance => services.restart(time::now()),
            Some(_) | None => RestartProgress::Refused,
        };
        if progress == RestartProgress::Refused {
            warn!("a restart was ordered, and there is no command for it, another is at work or it is in maintenance");
        } else {
            info!("a restart was ordered");
            self.restarting = Some((balancer, order.number));
        }
        self.speaker.note_restart(balancer, RestartNews { number: order.number, progress });
    }

    /// Whether a restart that was ordered has ended.
    fn note_restart_news(&mut self) -> bool {
        let news = self.services.as_mut().and_then(Services::restart_news);
        let Some((progress, (balancer, number))) = news.zip(self.restarting) else { return false };
        self.restarting = None;
        info!("the restart that was ordered: {progress:?}");
        self.speaker.note_restart(balancer, RestartNews { number, progress });
        true
    }

    async fn leave(mut self) {
        info!("leaving");
        let mut sample = self.sample(false);
        sample.service = Service::Leaving;
        let Sample { figures, is_overloaded, service } = sample;
        let report = Report { figures, is_overloaded, service, ..Report::default() };
        for farewell in 0..FAREWELLS {
            if farewell > 0 {
                tokio::time::sleep(FAREWELL_GAP).await;
            }
            self.speaker.say(&report, wall_clock());
        }
    }
}

/// The wall clock, to the nanosecond.
pub fn wall_clock() -> UnixNanos {
    UnixNanos::of(time::wall_clock())
}

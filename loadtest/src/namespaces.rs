//! An agent and its server behind a cable that loses packets and delays each by another time, so that reports come late, twice as late as
//! promised, out of order, or not at all. However that is, the server is well, and must not be taken for dead.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::alarm::Alarm;
use crate::backend::{Backend, Place};
use crate::cable::{Machine, Quality};
use crate::catalogue::Ask;
use crate::changes::Change;
use crate::experiment::Ground;
use crate::failure::Outcome;
use crate::figures::{figure, time};
use crate::open_loop::{self, Exchange};
use crate::reporter::{Agent, Keys, Wanted};
use crate::rival::{Inbox, Rival, Running, full_name};
use crate::serve::Serve;
use crate::statistics;
use crate::target::{self, at_most};

/// Requests a second.
const RATE: u32 = 50;
/// What each takes, and how many a server takes at a time.
const WORK: Duration = Duration::from_millis(10);
const SLOTS: usize = 64;
const SETTLE: Duration = Duration::from_secs(3);
/// The most changes that are shown.
const SHOWN: usize = 40;

/// Who is measured.
pub const RIVALS: [Rival; 1] = [Rival::pointsman(
    "pointsman",
    "Pointsman",
    "    scheduler \"wlc\"\n    retry count=2 on=\"connect reset\"\n    check \"http\" path=\"/ping\"",
)];

/// What is done.
pub struct Namespaces {
    /// For how long.
    pub duration: Duration,
    /// What the cable does.
    pub quality: Quality,
    /// Where everything drawn by lot begins.
    pub seed: u64,
}

impl Namespaces {
    /// Runs it; the report, and whether no target was missed.
    pub fn run(&self, ground: &mut Ground) -> Outcome<(String, bool)> {
        let (runtime, tasks) = Ground::runtime()?;
        tasks.block_on(&runtime, self.measure(ground))
    }

    async fn measure(&self, ground: &mut Ground) -> Outcome<(String, bool)> {
        let alarm = Alarm::start()?;
        let machine = Machine::make(self.quality, self.seed)?;
        let near = Place { cores: ground.cores.load.clone(), namespace: None };
        let far = Place { namespace: Some(machine.name.clone()), ..near.clone() };
        let mut servers = Vec::new();
        for (number, (host, place)) in [(Ipv4Addr::LOCALHOST, &near), (machine.far, &far)].into_iter().enumerate() {
            let address = SocketAddr::from((host, ground.site.free_port()?));
            let serve = Serve { address, number, slots: SLOTS, waiting_max: SLOTS, computes: false, verdict: None };
            servers.push(Backend::start(serve, place.clone(), None, &alarm).await?);
        }
        let keys = Keys::make(ground)?;
        let inbox = Inbox { address: (machine.near, ground.site.free_port()?).into(), key: &keys.master };
        let to = inbox.address;
        let serves: Vec<Serve> = servers.iter().map(|server| server.serve.clone()).collect();
        let [rival] = RIVALS;
        let mut running = Running::start(&rival, &serves, Some(inbox), ground, &alarm).await?;
        let wanted = |place| Wanted { to, connections_max: SLOTS, is_classic: false, place };
        let start = |(server, place)| keys.start_agent(server, &wanted(place), ground);
        let mut agents = servers.iter().zip([&near, &far]).map(start).collect::<Outcome<Vec<Agent>>>()?;
        let from = alarm.now() + SETTLE;
        let arrivals = open_loop::evenly(RATE, self.duration, Ask::Work(WORK));
        let exchanges = open_loop::offer(running.balancer.port, &arrivals, from, &alarm).await?;
        running.balancer.still_runs()?;
        agents.iter_mut().try_for_each(Agent::still_runs)?;
        let mut latencies: Vec<Duration> = exchanges.iter().filter_map(Exchange::latency).collect();
        latencies.sort_unstable();
        let failed = exchanges.len() - latencies.len();
        let far = serves.last().map(full_name).unwrap_or_default();
        let (changes, packets) = (running.changes()?, machine.packets());
        Ok(self.report(&changes, &far, packets, (exchanges.len(), failed), statistics::percentile(&latencies, 0.99)))
    }

    fn report(
        &self,
        changes: &[Change],
        far: &str,
        (carried, lost): (u64, u64),
        (sent, failed): (usize, usize),
        p99: Option<Duration>,
    ) -> (String, bool) {
        let Quality { loss, jitter } = self.quality;
        let dead = changes.iter().filter(|change| change.is_death()).count();
        let suspected = changes.iter().filter(|change| change.is_suspicion()).count();
        let mut text = format!(
            "\n- {:?}; {far} is behind a cable that loses {:.1} % of the packets and delays each by up to {jitter:?}: {carried} were carried, \
             {lost} lost\n- {RATE} requests a second: {failed} of {sent} failed, p99 {} ms\n- suspected {suspected} times, taken for dead \
             {dead} times\n",
            self.duration,
            loss * 100.0,
            time(p99)
        );
        for change in changes.iter().take(SHOWN) {
            let Change { server, from, to, because, .. } = change;
            let _ = writeln!(text, "  - {server} was {from} and is {to}: {because}");
        }
        let targets = [
            at_most("servers that are well and were taken for dead", Some(figure(dead)), Some(0.0)),
            at_most("failed requests", Some(figure(failed)), Some(0.0)),
        ];
        text.push_str(&target::text(&targets));
        (text, target::none_is_missed(&targets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_false_death_misses_the_target_and_a_suspicion_does_not() {
        let plan = Namespaces {
            duration: Duration::from_secs(300),
            quality: Quality { loss: 0.01, jitter: Duration::from_millis(20) },
            seed: 1,
        };
        let change = |to: &str| Change {
            at: Duration::ZERO,
            server: "all/s2".to_owned(),
            from: "up".to_owned(),
            to: to.to_owned(),
            because: "three promises were missed".to_owned(),
        };
        let (text, passed) = plan.report(&[change("suspect")], "all/s2", (990, 10), (100, 0), Some(WORK));
        assert!(passed && text.contains("loses 1.0 %") && text.contains("suspected 1 times"), "{text}");
        assert!(text.contains("  - all/s2 was up and is suspect: three promises were missed\n"), "{text}");
        let (_, passed) = plan.report(&[change("suspect"), change("down")], "all/s2", (990, 10), (100, 0), Some(WORK));
        assert!(!passed);
    }
}

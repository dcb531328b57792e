//! The experiment of the push-detection paper: one of two servers with a bound is overloaded, past the proxy, for 10 s at a time, while a
//! client asks through the proxy at a fixed rate. What it loses is the time to repair.
//!
//! MTTR per hour = 3600 s − answers ÷ the rate of answers, which at the rate without faults is requests lost ÷ rate offered. A request is lost
//! that fails, or whose answer takes longer than [`PATIENCE`]. The paper has twelve overloads in an hour: fewer are scaled to that.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::task::spawn_local;

use crate::alarm::Alarm;
use crate::backend::{Backend, Place};
use crate::catalogue::Ask;
use crate::changes::Change;
use crate::closed_loop::Crowd;
use crate::experiment::Ground;
use crate::failure::{Outcome, While};
use crate::figures::{figure, time};
use crate::open_loop::{self, Exchange};
use crate::proxy::Product;
use crate::reporter::{Agent, Keys, Wanted};
use crate::rival::{Inbox, Rival, Running};
use crate::serve::Serve;
use crate::statistics;
use crate::target::{self, Target, at_most};

/// Requests that a server works on at a time; as many may wait.
const SLOTS: usize = 60;
/// What each takes.
const WORK: Duration = Duration::from_millis(100);
/// Requests a second through the proxy: a sixth of what the two servers can do.
const RATE: u32 = 200;
/// Clients that overload a server: as many as find a slot, a place to wait, and neither.
const CROWD: usize = 3 * SLOTS;
/// A later answer is none.
const PATIENCE: Duration = Duration::from_secs(1);
/// Overloads in an hour.
const AN_HOUR: f64 = 12.0;
/// Between the start of proxy and agents and the first request.
const SETTLE: Duration = Duration::from_secs(3);
/// Of all connections that the two servers take, so many are in use while they are healthy: 95 %.
const HEALTHY: usize = 2 * SLOTS * 95 / 100;
/// A healthy load counts as such from this part of the answers on that it should bring.
const ENOUGH: f64 = 0.8;

/// Who is compared.
pub const RIVALS: [Rival; 8] = [
    Rival::pointsman("pointsman", "Pointsman, no retries", "    scheduler \"wlc\"\n    retry count=0"),
    Rival::pointsman(
        "pointsman-retries",
        "Pointsman, retries",
        "    scheduler \"wlc\"\n    retry count=2 on=\"connect reset 503\"",
    ),
    Rival::pointsman(
        "classic",
        "Pointsman, detect \"classic\"",
        "    scheduler \"wlc\"\n    detect \"classic\"\n    retry count=0",
    )
    .with_classic_agents(),
    Rival::peer("nginx", "nginx", Product::Nginx, "untuned").as_it_comes(),
    Rival::peer("nginx-tuned", "nginx, tuned", Product::Nginx, "tuned"),
    Rival::peer("haproxy", "HAProxy", Product::Haproxy, "untuned").as_it_comes(),
    Rival::peer("haproxy-tuned", "HAProxy, tuned checks", Product::Haproxy, "tuned"),
    Rival::peer("poller", "a 2 s poller (HAProxy agent-check)", Product::Haproxy, "poller"),
];

/// When servers are overloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// How often.
    pub rounds: u32,
    /// For how long each time.
    pub overload: Duration,
    /// For how long not: half of it before, half behind.
    pub quiet: Duration,
}

impl Timeline {
    fn period(self) -> Duration {
        self.overload + self.quiet
    }

    fn end(self) -> Duration {
        self.period() * self.rounds
    }

    fn overload_of(self, round: u32) -> std::ops::Range<Duration> {
        let begin = self.period() * round + self.quiet / 2;
        begin..begin + self.overload
    }

    /// Whether a server is overloaded then, or was so a second ago.
    fn is_overloaded(self, at: Duration) -> bool {
        let part = (0..self.rounds).map(|round| self.overload_of(round));
        part.into_iter().any(|part| (part.start..part.end + PATIENCE).contains(&at))
    }
}

/// What is measured.
pub struct Mttr {
    /// Who.
    pub rivals: Vec<Rival>,
    /// When servers are overloaded.
    pub timeline: Timeline,
    /// How long Pointsman is watched at a healthy load; zero: not.
    pub healthy: Duration,
    /// Where everything drawn by lot begins.
    pub seed: u64,
}

/// What was seen of one.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    /// Requests.
    sent: usize,
    /// Those that were lost.
    lost: usize,
    /// Those of them while nothing was overloaded.
    lost_in_quiet: usize,
    /// Seconds an hour.
    mttr: f64,
    /// The latency that 99 % of those that were not lost were within.
    p99: Option<Duration>,
    /// How often a server was suspected, and taken for dead.
    suspected: usize,
    dead: usize,
}

struct Row {
    rival: Rival,
    seen: Outcome<Seen>,
}

/// A healthy load.
struct Health {
    rival: Rival,
    /// Requests a second, and how often a server was suspected.
    seen: Outcome<(f64, usize)>,
}

impl Mttr {
    /// Runs everything; the report, and whether no target was missed.
    pub fn run(&self, ground: &mut Ground, mut say: impl FnMut(String)) -> Outcome<(String, bool)> {
        let mut rows = Vec::new();
        for rival in &self.rivals {
            let seen = self.measure(rival, ground);
            crate::clock::go_on()?;
            let row = Row { rival: *rival, seen };
            say(row.line());
            rows.push(row);
        }
        let mut healths = Vec::new();
        // Retries change nothing of what is suspected.
        let is_watched = |rival: &&Rival| ["pointsman", "classic"].contains(&rival.key) && !self.healthy.is_zero();
        let watched = self.rivals.iter().filter(is_watched);
        for rival in watched {
            let seen = self.healthy(rival, ground);
            crate::clock::go_on()?;
            let health = Health { rival: *rival, seen };
            say(health.line(self.healthy));
            healths.push(health);
        }
        let targets = targets(&rows, &healths);
        let text = self.heading() + &table(&rows) + &self.health_table(&healths) + &target::text(&targets);
        Ok((text, target::none_is_missed(&targets)))
    }

    fn heading(&self) -> String {
        let Timeline { rounds, overload, quiet } = self.timeline;
        format!(
            "\n- two servers of {SLOTS} slots, as many places to wait, {WORK:?} a request; {RATE} requests a second through the proxy\n\
             - {rounds} times {overload:?} of {CROWD} clients at one of them and {quiet:?} without; lost: failed, or not answered within \
             {PATIENCE:?}; scaled to {AN_HOUR} overloads an hour\n\n"
        )
    }

    fn measure(&self, rival: &Rival, ground: &mut Ground) -> Outcome<Seen> {
        let (runtime, tasks) = Ground::runtime()?;
        tasks.block_on(&runtime, async {
            let alarm = Alarm::start()?;
            let mut stage = Stage::set(rival, ground, &alarm).await?;
            let from = alarm.now() + SETTLE;
            let overloads = spawn_local(overload(stage.victim(), self.timeline, self.seed, from, alarm.clone()));
            let arrivals = open_loop::evenly(RATE, self.timeline.end(), Ask::Work(WORK));
            let exchanges = open_loop::offer(stage.running.balancer.port, &arrivals, from, &alarm).await?;
            overloads.await.doing(|| "overloading a server".to_owned())??;
            let changes = stage.end()?;
            Ok(Seen::of(&exchanges, self.timeline, &changes))
        })
    }

    /// Uses 95 % of the connections that the servers take, and counts suspicions.
    fn healthy(&self, rival: &Rival, ground: &mut Ground) -> Outcome<(f64, usize)> {
        let (runtime, tasks) = Ground::runtime()?;
        tasks.block_on(&runtime, async {
            let alarm = Alarm::start()?;
            let mut stage = Stage::set(rival, ground, &alarm).await?;
            let address = (Ipv4Addr::LOCALHOST, stage.running.balancer.port).into();
            let draw = |_: &mut statistics::Numbers| Ask::Work(WORK);
            let crowd = Crowd { address, clients: HEALTHY, thinking: Duration::ZERO, draw, seed: self.seed };
            let (from, until) = (alarm.now() + SETTLE, alarm.now() + SETTLE + self.healthy);
            let exchanges = crowd.ask(from, until, alarm.clone()).await?;
            let suspected = stage.end()?.iter().filter(|change| change.is_suspicion()).count();
            Ok((figure(exchanges.len()) / self.healthy.as_secs_f64(), suspected))
        })
    }

    fn health_table(&self, healths: &[Health]) -> String {
        if healths.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "\nA healthy load: {HEALTHY} requests at a time, so that each server has 95 % of its connections in use, for {:?}.\n\n\
             | | requests a second | suspicions | an hour |\n| --- | --- | --- | --- |\n",
            self.healthy
        );
        for health in healths {
            let _ = writeln!(text, "{}", health.line(self.healthy));
        }
        text
    }
}

/// Everything that runs in one row.
struct Stage {
    servers: Vec<Backend>,
    running: Running,
    agents: Vec<Agent>,
}

impl Stage {
    async fn set(rival: &Rival, ground: &mut Ground, alarm: &Alarm) -> Outcome<Self> {
        let place = Place { cores: ground.cores.load.clone(), namespace: None };
        let mut servers = Vec::new();
        for number in 0..2 {
            let local = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let (address, verdict) = (local(ground.site.free_port()?), local(ground.site.free_port()?));
            let serve =
                Serve { address, number, slots: SLOTS, waiting_max: SLOTS, computes: false, verdict: Some(verdict) };
            servers.push(Backend::start(serve, place.clone(), None, alarm).await?);
        }
        let keys = rival.has_agents.then(|| Keys::make(ground)).transpose()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ground.site.free_port()?));
        let inbox = keys.as_ref().map(|keys| Inbox { address, key: &keys.master });
        let serves: Vec<Serve> = servers.iter().map(|server| server.serve.clone()).collect();
        let running = Running::start(rival, &serves, inbox, ground, alarm).await?;
        let agents = match (&keys, running.reports_to) {
            (Some(keys), Some(to)) => {
                let is_classic = rival.has_classic_agents;
                let wanted = Wanted { to, connections_max: SLOTS, is_classic, place: &place };
                servers.iter().map(|server| keys.start_agent(server, &wanted, ground)).collect::<Outcome<_>>()?
            }
            _ => Vec::new(),
        };
        Ok(Self { servers, running, agents })
    }

    fn victim(&self) -> SocketAddr {
        self.servers.first().map_or((Ipv4Addr::LOCALHOST, 1).into(), |server| server.serve.address)
    }

    /// What changed; fails if anything has ended meanwhile.
    fn end(&mut self) -> Outcome<Vec<Change>> {
        self.running.balancer.still_runs()?;
        self.agents.iter_mut().try_for_each(Agent::still_runs)?;
        self.running.changes()
    }
}

async fn overload(address: SocketAddr, timeline: Timeline, seed: u64, from: Duration, alarm: Alarm) -> Outcome<()> {
    for round in 0..timeline.rounds {
        let part = timeline.overload_of(round);
        let draw = |_: &mut statistics::Numbers| Ask::Work(WORK);
        let crowd = Crowd { address, clients: CROWD, thinking: Duration::ZERO, draw, seed };
        alarm.until(from + part.start).await;
        crowd.ask(from + part.start, from + part.end, alarm.clone()).await?;
    }
    Ok(())
}

/// Seconds an hour in which there is no answer, as the paper counts it, for an hour of this many overloads.
fn mttr(lost: usize, rate: u32, rounds: u32) -> f64 {
    figure(lost) / f64::from(rate) * AN_HOUR / f64::from(rounds.max(1))
}

fn is_lost(exchange: &Exchange) -> bool {
    exchange.latency().is_none_or(|latency| latency > PATIENCE)
}

impl Seen {
    fn of(exchanges: &[Exchange], timeline: Timeline, changes: &[Change]) -> Self {
        let lost: Vec<&Exchange> = exchanges.iter().filter(|exchange| is_lost(exchange)).collect();
        let quiet = lost.iter().filter(|exchange| !timeline.is_overloaded(exchange.arrival.at)).count();
        let kept = exchanges.iter().filter(|exchange| !is_lost(exchange));
        let mut latencies: Vec<Duration> = kept.filter_map(Exchange::latency).collect();
        latencies.sort_unstable();
        Self {
            sent: exchanges.len(),
            lost: lost.len(),
            lost_in_quiet: quiet,
            mttr: mttr(lost.len(), RATE, timeline.rounds),
            p99: statistics::percentile(&latencies, 0.99),
            suspected: changes.iter().filter(|change| change.is_suspicion()).count(),
            dead: changes.iter().filter(|change| change.is_death()).count(),
        }
    }
}

impl Row {
    fn line(&self) -> String {
        let name = self.rival.name;
        let seen = match &self.seen {
            Ok(seen) => seen,
            Err(failure) => return format!("| {name} | not measured: {} | | | | | |", failure.brief()),
        };
        let states = match self.rival.product {
            Product::Pointsman => format!("{}, {}", seen.suspected, seen.dead),
            Product::Nginx | Product::Haproxy => "–".to_owned(),
        };
        format!(
            "| {name} | {:.2} | {:.4} % | {} of {} | {} | {} | {states} |",
            seen.mttr,
            (3_600.0 - seen.mttr) / 36.0,
            seen.lost,
            seen.sent,
            seen.lost_in_quiet,
            time(seen.p99)
        )
    }
}

impl Health {
    fn line(&self, watched: Duration) -> String {
        let name = self.rival.name;
        match &self.seen {
            Ok((rate, suspected)) => {
                let an_hour = figure(*suspected) * 3_600.0 / watched.as_secs_f64();
                format!("| {name} | {rate:.0} | {suspected} | {an_hour:.0} |")
            }
            Err(failure) => format!("| {name} | not measured: {} | | |", failure.brief()),
        }
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = "| | MTTR, s an hour | uptime | lost | of them not in an overload | p99 ms | suspected, down |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for row in rows {
        let _ = writeln!(text, "{}", row.line());
    }
    text
}

fn targets(rows: &[Row], healths: &[Health]) -> Vec<Target> {
    let of =
        |key: &str| rows.iter().find(|row| row.rival.key == key).and_then(|row| Some(row.seen.as_ref().ok()?.mttr));
    let best = rows.iter().filter(|row| row.rival.is_default_peer).filter_map(|row| Some(row.seen.as_ref().ok()?.mttr));
    let best = best.min_by(f64::total_cmp);
    let health = healths.iter().find(|health| health.rival.key == "pointsman");
    // A machine on which the load never came about has shown nothing, but for a suspicion.
    let least = figure(HEALTHY) / WORK.as_secs_f64() * ENOUGH;
    let seen = health.and_then(|health| health.seen.as_ref().ok());
    let suspected = seen.filter(|(rate, suspected)| *rate >= least || *suspected > 0).map(|seen| figure(seen.1));
    vec![
        at_most("MTTR of Pointsman without retries, s an hour", of("pointsman"), Some(2.0)),
        at_most("MTTR of Pointsman with retries, s an hour", of("pointsman-retries"), Some(0.3)),
        at_most(
            "MTTR without retries, at most a quarter of the best peer as it comes",
            of("pointsman"),
            best.map(|best| best / 4.0),
        ),
        at_most("suspicions at a healthy load of 95 %", suspected, Some(0.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Source;
    use crate::open_loop::{Arrival, End};

    const TIMELINE: Timeline =
        Timeline { rounds: 12, overload: Duration::from_secs(10), quiet: Duration::from_secs(290) };

    #[test]
    fn the_time_to_repair_is_the_papers() {
        assert_eq!(TIMELINE.end(), Duration::from_secs(3_600));
        let (sent, lost) = (3_600 * RATE as usize, 9_078);
        let papers = 3_600.0 - figure(sent - lost) / f64::from(RATE);
        assert!((mttr(lost, RATE, 12) - papers).abs() < 1e-9 && (papers - 45.39).abs() < 1e-9);
        assert!((mttr(lost / 12, RATE, 1) - papers).abs() < 0.1, "a single overload counts twelve times");
    }

    #[test]
    fn an_overload_is_in_the_middle_of_its_round() {
        assert_eq!(TIMELINE.overload_of(1), Duration::from_secs(445)..Duration::from_secs(455));
        let overloaded = |second: f64| TIMELINE.is_overloaded(Duration::from_secs_f64(second));
        assert!(!overloaded(144.9) && overloaded(145.0) && overloaded(155.9) && !overloaded(156.1));
    }

    fn ended(second: u64, end: End) -> Exchange {
        Exchange { arrival: Arrival { at: Duration::from_secs(second), ask: Ask::Work(WORK) }, end }
    }

    fn answered(second: u64, latency: u64) -> Exchange {
        let latency = Duration::from_millis(latency);
        ended(second, End::Answered { latency, late: Duration::ZERO, server: 0, source: Source::Made })
    }

    #[test]
    fn what_comes_too_late_is_lost_like_what_fails() {
        let exchanges = [
            answered(1, 100),
            answered(2, 1_000),
            answered(146, 1_001),
            ended(150, End::Failed),
            ended(300, End::NotSent),
        ];
        let change = |to: &str| Change {
            at: Duration::ZERO,
            server: "all/s1".to_owned(),
            from: "up".to_owned(),
            to: to.to_owned(),
            because: String::new(),
        };
        let changes = [change("overloaded"), change("up"), change("suspect"), change("down")];
        let seen = Seen::of(&exchanges, TIMELINE, &changes);
        assert_eq!((seen.sent, seen.lost, seen.lost_in_quiet), (5, 3, 1));
        assert_eq!((seen.suspected, seen.dead, seen.p99), (2, 1, Some(Duration::from_secs(1))));
    }

    #[test]
    fn targets_compare_with_the_best_peer_as_it_comes_and_are_open_without_one() {
        let row = |rival: Rival, mttr: f64| {
            let mut seen = Seen::of(&[], TIMELINE, &[]);
            seen.mttr = mttr;
            Row { rival, seen: Ok(seen) }
        };
        let health = Health { rival: RIVALS[0], seen: Ok((1_000.0, 1)) };
        let rows =
            [row(RIVALS[0], 1.5), row(RIVALS[1], 0.2), row(RIVALS[3], 60.0), row(RIVALS[4], 0.1), row(RIVALS[5], 5.0)];
        let met =
            |rows: &[Row], healths: &[Health]| targets(rows, healths).iter().map(|one| one.met).collect::<Vec<_>>();
        assert_eq!(met(&rows, &[health]), [Some(true), Some(true), Some(false), Some(false)]);
        assert_eq!(met(&rows[..1], &[]), [Some(true), None, None, None]);
        let health = |rate, suspected| Health { rival: RIVALS[0], seen: Ok((rate, suspected)) };
        let healthy = |health| met(&[], &[health])[3];
        assert_eq!(healthy(health(1_140.0, 0)), Some(true));
        assert_eq!(healthy(health(500.0, 0)), None, "the load never came about");
        assert_eq!(healthy(health(500.0, 2)), Some(false));
    }
}

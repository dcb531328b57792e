//! A part of the experiment: servers, agents, a proxy and clients, for a while; and bursts.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use super::{CLIENTS, CORES, FEW, LIMIT, SERVERS, THINKING, THINKING_LIGHTLY, draw, draw_cheap};
use crate::alarm::Alarm;
use crate::backend::{Backend, Group, Place};
use crate::closed_loop::Crowd;
use crate::experiment::Ground;
use crate::failure::{Failure, Outcome};
use crate::figures::{self, figure};
use crate::gauge::{self, Gauge};
use crate::open_loop::{self, Arrival, End, Exchange};
use crate::reporter::{Agent, Keys, Wanted};
use crate::rival::{Inbox, Rival, Running, full_name};
use crate::serve::Serve;
use crate::statistics::{self, Numbers};

/// Threads of a server, and the connections that its agent takes for its most.
const THREADS: usize = 16;
const CONNECTIONS_MAX: usize = 400;
/// Between the start of everything and the first request: agents have told what servers can do.
const SETTLE: Duration = Duration::from_secs(3);
/// Clients have come by then, and what schedulers learn they have learnt.
const WARM_UP: Duration = Duration::from_secs(4);
/// Requests that were sent later than this were sent by a busy machine.
const LATE_MAX: Duration = Duration::from_millis(10);
/// Between two bursts.
const LULL: Duration = Duration::from_secs(1);

/// What is different between the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Equal servers, as in the paper.
    Equal,
    /// Servers of the speeds 4, 2 and 1, of which nobody has been told.
    Uneven,
    /// Equal servers that have little to do.
    Light,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Equal, Self::Uneven, Self::Light];

    /// Its name in the report.
    pub fn title(self) -> &'static str {
        match self {
            Self::Equal => "equal servers",
            Self::Uneven => "speeds 4, 2 and 1",
            Self::Light => "a light load",
        }
    }

    /// Its name in file names.
    pub fn key(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Uneven => "uneven",
            Self::Light => "light",
        }
    }

    /// The part of a processor that each server has, in cores.
    fn cores(self) -> [f64; SERVERS] {
        let speeds = match self {
            Self::Equal | Self::Light => [1.0, 1.0, 1.0],
            Self::Uneven => [4.0, 2.0, 1.0],
        };
        speeds.map(|speed| CORES * speed / speeds.iter().sum::<f64>())
    }

    /// Runs `rival` in this part.
    pub fn measure(self, rival: &Rival, duration: Duration, seed: u64, ground: &mut Ground) -> Outcome<Seen> {
        let (runtime, tasks) = Ground::runtime()?;
        tasks.block_on(&runtime, async {
            let alarm = Alarm::start()?;
            let mut stage = Stage::set(rival, self.cores(), ground, &alarm).await?;
            let from = alarm.now() + SETTLE;
            let (clients, thinking, draw): (_, _, fn(&mut Numbers) -> _) = match self {
                Self::Equal | Self::Uneven => (CLIENTS, THINKING, draw),
                Self::Light => (FEW, THINKING_LIGHTLY, draw_cheap),
            };
            let crowd = Crowd { address: stage.address(), clients, thinking, draw, seed };
            let until = from + WARM_UP + duration;
            let exchanges = crowd.ask(from, until, alarm.clone()).await?;
            stage.check()?;
            let counted = exchanges.into_iter().filter(|exchange| exchange.arrival.at >= WARM_UP).collect::<Vec<_>>();
            let line = |server: &Backend| {
                gauge::line(&stage.gauge.samples(), &full_name(&server.serve), from + WARM_UP, until)
            };
            let lines: Vec<_> = stage.servers.iter().map(line).collect();
            if lines.iter().any(Vec::is_empty) {
                return Err(Failure::new("an agent has reported no load"));
            }
            Ok(Seen::of(&counted, lines, stage.is_by_agents))
        })
    }
}

/// Sends bursts of these sizes, each so often, before equal servers; the mean response time of each size.
pub fn bursts(
    rival: &Rival,
    sizes: &[usize],
    repeats: usize,
    seed: u64,
    ground: &mut Ground,
) -> Outcome<Vec<Duration>> {
    let (runtime, tasks) = Ground::runtime()?;
    tasks.block_on(&runtime, async {
        let alarm = Alarm::start()?;
        let mut stage = Stage::set(rival, Part::Equal.cores(), ground, &alarm).await?;
        alarm.sleep(SETTLE).await;
        let mut means = Vec::new();
        for size in sizes {
            let mut numbers = Numbers::new(seed);
            let mut latencies = Vec::new();
            for _ in 0..repeats {
                let arrivals: Vec<Arrival> =
                    (0..*size).map(|_| Arrival { at: Duration::ZERO, ask: draw(&mut numbers) }).collect();
                let port = stage.running.balancer.port;
                let exchanges = open_loop::offer(port, &arrivals, alarm.now(), &alarm).await?;
                if exchanges.iter().any(|exchange| exchange.latency().is_none()) {
                    return Err(Failure::new(format!("requests of a burst of {size} failed")));
                }
                latencies.extend(exchanges.iter().filter_map(Exchange::latency));
                alarm.sleep(LULL).await;
            }
            means.push(figures::mean(&latencies).unwrap_or_default());
        }
        stage.check()?;
        Ok(means)
    })
}

/// What was seen of one in a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Requests that were answered, and that failed.
    pub answered: usize,
    pub failed: usize,
    /// Response times.
    pub mean: Duration,
    pub p99: Option<Duration>,
    /// Each server's part of the answers.
    pub shares: Vec<f64>,
    /// Each server's load by time.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// Each server's longest time in overload, in seconds.
    pub overloads: Vec<f64>,
    /// Whether agents have measured the load.
    pub is_by_agents: bool,
    /// By how much 99 % of the requests were sent too late at most: an error of the measurement.
    pub late: Option<Duration>,
}

impl Seen {
    fn of(exchanges: &[Exchange], lines: Vec<Vec<(f64, f64)>>, is_by_agents: bool) -> Self {
        let latencies = figures::latencies(exchanges);
        let answered: Vec<Duration> = latencies.iter().copied().flatten().collect();
        let mut shares = vec![0.0; SERVERS];
        for exchange in exchanges {
            if let End::Answered { server, .. } = exchange.end
                && let Some(share) = shares.get_mut(server)
            {
                *share += 1.0 / figure(answered.len());
            }
        }
        Self {
            answered: answered.len(),
            failed: latencies.len() - answered.len(),
            mean: figures::mean(&answered).unwrap_or_default(),
            p99: statistics::percentile(&latencies, 0.99).flatten(),
            shares,
            overloads: lines.iter().map(|line| gauge::longest_above(line, LIMIT)).collect(),
            lines,
            is_by_agents,
            late: figures::late(exchanges),
        }
    }

    /// Whether the machine had time for all this: what a client that is starved sees says nothing.
    pub fn is_sound(&self) -> bool {
        self.late.is_none_or(|late| late <= LATE_MAX)
    }

    /// The longest time in overload of any server, in seconds.
    pub fn longest_overload(&self) -> f64 {
        self.overloads.iter().copied().fold(0.0, f64::max)
    }

    /// By how much the share that is farthest from an equal one is off, as a part of it.
    pub fn unevenness(&self) -> f64 {
        let equal = self.shares.iter().sum::<f64>() / self.shares.len().max(1) as f64;
        let off = self.shares.iter().map(|share| (share / equal - 1.0).abs());
        if equal > 0.0 { off.fold(0.0, f64::max) } else { 0.0 }
    }
}

/// Everything that runs.
struct Stage {
    running: Running,
    /// Those that report to the proxy, and those that report to us.
    agents: Vec<Agent>,
    gauge: Gauge,
    is_by_agents: bool,
    servers: Vec<Backend>,
}

impl Stage {
    async fn set(rival: &Rival, cores: [f64; SERVERS], ground: &mut Ground, alarm: &Alarm) -> Outcome<Self> {
        let place = Place { cores: ground.cores.load.clone(), namespace: None };
        let mut servers = Vec::new();
        for (number, cores) in cores.into_iter().enumerate() {
            let group = Rc::new(Group::make(&format!("s{}", number + 1), cores)?);
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ground.site.free_port()?));
            let serve = Serve { address, number, slots: THREADS, waiting_max: 10_000, computes: true, verdict: None };
            servers.push(Backend::start(serve, place.clone(), Some(group), alarm).await?);
        }
        let keys = if rival.has_agents { Some(Keys::make(ground)?) } else { Keys::make(ground).ok() };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ground.site.free_port()?));
        let inbox = keys.as_ref().map(|keys| Inbox { address, key: &keys.master });
        let serves: Vec<Serve> = servers.iter().map(|server| server.serve.clone()).collect();
        let running = Running::start(rival, &serves, inbox, ground, alarm).await?;
        let gauge = Gauge::start(alarm).await?;
        let mut agents = Vec::new();
        for (server, cores) in servers.iter().zip(cores) {
            let Some(keys) = &keys else {
                if let Some(process) = server.process() {
                    // It ends with the server.
                    drop(gauge.watch(full_name(&server.serve), process, cores, alarm));
                }
                continue;
            };
            let wanted = |to, is_classic| Wanted { to, connections_max: CONNECTIONS_MAX, is_classic, place: &place };
            agents.push(keys.start_agent(server, &wanted(gauge.address, false), ground)?);
            if let Some(to) = running.reports_to {
                agents.push(keys.start_agent(server, &wanted(to, rival.has_classic_agents), ground)?);
            }
        }
        Ok(Self { running, agents, gauge, is_by_agents: keys.is_some(), servers })
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.running.balancer.port).into()
    }

    /// Fails if anything has ended.
    fn check(&mut self) -> Outcome<()> {
        self.running.balancer.still_runs()?;
        self.agents.iter_mut().try_for_each(Agent::still_runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Ask, Source};

    fn ended(end: End) -> Exchange {
        Exchange { arrival: Arrival { at: Duration::ZERO, ask: Ask::Ping }, end }
    }

    fn answered(latency: u64, server: usize) -> Exchange {
        let latency = Duration::from_millis(latency);
        ended(End::Answered { latency, late: Duration::ZERO, server, source: Source::Made })
    }

    #[test]
    fn speeds_share_out_the_same_processor() {
        for part in Part::ALL {
            assert!((part.cores().iter().sum::<f64>() - CORES).abs() < 1e-9);
        }
        let [four, two, one] = Part::Uneven.cores();
        assert!((four / one - 4.0).abs() < 1e-9 && (two / one - 2.0).abs() < 1e-9);
    }

    #[test]
    fn shares_overloads_and_failures_are_told_apart() {
        let exchanges = [answered(10, 0), answered(20, 0), answered(30, 1), answered(40, 2), ended(End::Failed)];
        let lines = vec![vec![(0.0, 0.9), (2.0, 0.1)], vec![(0.0, 0.8), (5.0, 0.8)], vec![(0.0, 0.1)]];
        let seen = Seen::of(&exchanges, lines, true);
        assert_eq!((seen.answered, seen.failed, seen.p99), (4, 1, None));
        assert_eq!(seen.mean, Duration::from_millis(25));
        assert!((seen.longest_overload() - 5.0).abs() < 1e-9, "{:?}", seen.overloads);
        assert!((seen.unevenness() - 0.5).abs() < 1e-9, "{:?}", seen.shares);
    }
}

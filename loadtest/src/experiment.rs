//! One run of an experiment: servers and client in this program, a proxy on a core of its own between them, and a plan of what happens
//! when.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::{LocalSet, spawn_local};

use crate::accounting::{self, CoreTicks};
use crate::alarm::Alarm;
use crate::contender::{Balancer, Pool};
use crate::failure::{Outcome, While};
use crate::farm::{Farm, Stations};
use crate::machine::{self, Cores};
use crate::open_loop::{self, Arrival, Exchange};
use crate::proxy::{Product, Setting};
use crate::site::Site;

/// Between the start of the proxy and the first request.
const HEAD_START: Duration = Duration::from_millis(100);

/// What all runs stand on.
pub struct Ground {
    /// What is the same for all proxies.
    pub setting: Setting,
    /// Who works where.
    pub cores: Cores,
    /// Files and ports.
    pub site: Site,
    /// What a reader must know of the machine, a line of Markdown each.
    pub facts: Vec<String>,
}

impl Ground {
    /// Finds what the `products` need, and shares out the cores.
    pub fn set_up(
        products: &[Product],
        pointsman: Option<PathBuf>,
        cores: (Option<usize>, Option<Vec<usize>>),
    ) -> Outcome<Self> {
        let has = |product: Product| products.contains(&product);
        let mut tools = vec!["taskset", "setpriv"];
        tools.extend(has(Product::Nginx).then_some("nginx"));
        tools.extend(has(Product::Haproxy).then_some("haproxy"));
        machine::require(&tools)?;
        let is_measured = has(Product::Pointsman);
        let pointsman = if is_measured { machine::pointsman(pointsman)? } else { PathBuf::new() };
        let descriptors = machine::raise_descriptors()?;
        let cores = Cores::share(cores.0, cores.1)?;
        let mut facts = machine::facts(&cores, descriptors, is_measured.then_some(pointsman.as_path()));
        facts.push(machine::quiet(&cores)?);
        let setting = Setting {
            pointsman,
            core: cores.proxy,
            origin_port: 0,
            origin_h2c_port: 0,
            origin_grpc_port: 0,
            logged: false,
            under: Vec::new(),
        };
        Ok(Self { setting, cores, site: Site::new()?, facts })
    }

    /// A runtime and a set of its tasks, for one run.
    pub fn runtime() -> Outcome<(tokio::runtime::Runtime, LocalSet)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok((runtime.doing(|| "starting a runtime".to_owned())?, LocalSet::new()))
    }

    /// Runs `scene`, with stations that `stations` makes.
    pub fn run(&mut self, scene: &Scene<'_>, stations: Stations) -> Outcome<Run> {
        let ports = (0..scene.servers).map(|_| self.site.free_port()).collect::<Outcome<Vec<u16>>>()?;
        let (runtime, tasks) = Self::runtime()?;
        tasks.block_on(&runtime, async {
            let alarm = Alarm::start()?;
            let farm = Farm::start(&ports, stations, &alarm).await?;
            let mut proxy = Balancer::start(scene.pools, &ports, &self.setting, &mut self.site, &alarm).await?;
            let from = alarm.now() + HEAD_START;
            let happens = spawn_local(happen(farm, scene.plan, scene.victim, from, alarm.clone()));
            let meter = spawn_local(self.meter(&proxy, scene.plan, from, &alarm));
            let exchanges = open_loop::offer(proxy.port, scene.arrivals, from, &alarm).await?;
            proxy.still_runs()?;
            happens.await.doing(|| "killing a server".to_owned())??;
            let busy = meter.await.doing(|| "reading how busy the cores are".to_owned())??;
            Ok(Run { exchanges, busy })
        })
    }

    /// How busy the cores are in the steady part.
    fn meter(
        &self,
        proxy: &Balancer,
        plan: Plan,
        from: Duration,
        alarm: &Alarm,
    ) -> impl Future<Output = Outcome<Busy>> + use<> {
        let (alarm, steady) = (alarm.clone(), plan.steady());
        let mut cores: Vec<usize> = self.cores.load.split(',').filter_map(|core| core.parse().ok()).collect();
        cores.push(self.cores.proxy);
        let (proxy, own) = (proxy.meter(), [std::process::id()]);
        async move {
            let ticks = || cores.iter().map(|core| accounting::core_ticks(*core)).collect::<Outcome<Vec<_>>>();
            let used = || Ok((proxy()?, accounting::processor_time(&own)?));
            alarm.until(from + steady.start).await;
            let (before, ticks_before) = (used()?, ticks()?);
            alarm.until(from + steady.end).await;
            let (after, duration) = (used()?, (steady.end - steady.start).as_secs_f64());
            let part = |after: Duration, before| after.saturating_sub(before).as_secs_f64() / duration;
            let busy = |(now, before): (CoreTicks, CoreTicks)| now.since(before).busy();
            Ok(Busy {
                proxy: part(after.0, before.0),
                own: part(after.1, before.1),
                machine: ticks()?.into_iter().zip(ticks_before).map(busy).fold(0.0, f64::max),
            })
        }
    }
}

/// Kills `victim` and brings it back when the plan says so; then keeps the servers until the end.
async fn happen(mut farm: Farm, plan: Plan, victim: Option<usize>, from: Duration, alarm: Alarm) -> Outcome<Farm> {
    if let Some(victim) = victim {
        let outage = plan.outage();
        alarm.until(from + outage.start).await;
        farm.kill(victim).await;
        alarm.until(from + outage.end).await;
        farm.revive(victim).await?;
    }
    Ok(farm)
}

/// How long each part of a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Until caches are as full as they will be; nothing counts yet.
    pub warm_up: Duration,
    /// What most figures are about.
    pub steady: Duration,
    /// One server is dead.
    pub down: Duration,
    /// It is back.
    pub back: Duration,
}

impl Plan {
    /// The part that most figures are about.
    pub fn steady(self) -> Range<Duration> {
        self.warm_up..self.warm_up + self.steady
    }

    /// The part without one of the servers.
    pub fn outage(self) -> Range<Duration> {
        let begin = self.steady().end;
        begin..begin + self.down
    }

    /// The end of the load.
    pub fn end(self) -> Duration {
        self.outage().end + self.back
    }
}

/// What is run.
pub struct Scene<'a> {
    /// How the servers are shared out, and so who is measured.
    pub pools: &'a [Pool],
    /// How many servers there are.
    pub servers: usize,
    /// What is asked for, and when.
    pub arrivals: &'a [Arrival],
    /// What happens when.
    pub plan: Plan,
    /// Who is killed.
    pub victim: Option<usize>,
}

/// What came of it.
pub struct Run {
    /// Every request.
    pub exchanges: Vec<Exchange>,
    /// How busy the machine was.
    pub busy: Busy,
}

/// How much of a core was used in the steady part, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// By the proxy.
    pub proxy: f64,
    /// By servers and client: by this program.
    pub own: f64,
    /// By everybody, of the core that was used most.
    pub machine: f64,
}

/// Only while the cores have room, queues are those of the servers alone.
const ROOM: f64 = 0.6;

impl Busy {
    /// The larger of each.
    pub fn most(self, other: Self) -> Self {
        let (proxy, own) = (self.proxy.max(other.proxy), self.own.max(other.own));
        Self { proxy, own, machine: self.machine.max(other.machine) }
    }

    /// A line of Markdown.
    pub fn says(self) -> String {
        let [proxy, own, machine] = [self.proxy, self.own, self.machine].map(|part| format!("{:.0} %", part * 100.0));
        let doubt = if self.machine > ROOM { ": **too much for latencies to be trusted**" } else { "" };
        format!(
            "- of a core at most: the proxy {proxy}, servers and client {own}, everybody on the busier one {machine}{doubt}"
        )
    }
}

//! Simulated worlds: machines that crash and come back, agents that speak or don't, steps that succeed, fail or are lost.

use std::collections::HashMap;

use super::*;

struct Truth {
    host: usize,
    standing: Standing,
    does_agent_speak: bool,
    heard: Timestamp,
    begun: VecDeque<Timestamp>,
}

/// A step that runs: its number, its server, the step, when it ends and how (`None`: never), and when it began.
type Running = (StepId, usize, Step, Option<(Timestamp, bool)>, Timestamp);

struct World {
    rng: Rng,
    now: Timestamp,
    recovery: Recovery,
    servers: Vec<Truth>,
    is_dry_run: bool,
    running: Vec<Running>,
    switched: HashMap<usize, VecDeque<Timestamp>>,
    given_up: u32,
    taken: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let is_dry_run = seed % 8 == 7;
        let count = 1 + rng.below(8) as usize;
        let hosts = 1 + rng.below(count as u64);
        let means = Means {
            restart: !seed.is_multiple_of(3),
            wake: seed.is_multiple_of(2),
            power: !seed.is_multiple_of(5),
            is_dry_run,
        };
        let truth = |rng: &mut Rng| Truth {
            host: rng.below(hosts) as usize,
            standing: Standing::InService,
            does_agent_speak: true,
            heard: Timestamp::ZERO,
            begun: VecDeque::new(),
        };
        let servers: Vec<_> = (0..count).map(|_| truth(&mut rng)).collect();
        let list: Vec<_> = (0..)
            .zip(&servers)
            .map(|(number, truth): (u32, _)| server(number, &format!("h{}", truth.host), means))
            .collect();
        let mut recovery = Recovery::new(seed);
        recovery.handle(Timestamp::ZERO, Event::Reload(&list), &mut Vec::new());
        let (running, switched) = (Vec::new(), HashMap::new());
        Self { rng, now: Timestamp::ZERO, recovery, servers, is_dry_run, running, switched, given_up: 0, taken: 0 }
    }

    fn handle(&mut self, event: Event<'_>) {
        let mut effects = Vec::new();
        self.recovery.handle(self.now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Run(id, slot, step) => self.begins(id, slot.0 as usize, step),
                Effect::GaveUp(..) => self.given_up += 1,
                Effect::Tell(_, attempt) => {
                    assert!(!attempt.step.acts() || attempt.outcome != Outcome::DryRun || self.is_dry_run);
                }
            }
        }
    }

    fn begins(&mut self, id: StepId, number: usize, step: Step) {
        self.taken += 1;
        let host = self.servers[number].host;
        // A step that never ends is lost after its time.
        self.running.retain(|(.., lost_at)| *lost_at > self.now);
        let is_busy = self.running.iter().any(|(_, other, ..)| self.servers[*other].host == host);
        assert!(!is_busy, "two steps at once on one machine");
        assert!(!(step.acts() && self.is_dry_run), "{step:?} in a dry run");
        assert!(self.recovery.runs() <= RUNS_MAX);
        if step == Step::AgentRestart {
            let truth = &self.servers[number];
            let span = self.now.since(truth.heard);
            assert!(span <= Duration::from_secs(5), "an order to an agent that was silent for {span:?}");
        }
        if step == Step::PowerCycle {
            for other in self.servers.iter().filter(|other| other.host == host) {
                assert!(self.now.since(other.heard) >= SPEAKS, "a power cycle while an agent speaks");
                assert_ne!(other.standing, Standing::InService, "a power cycle under a server in service");
            }
            let is_down = |truth: &&Truth| matches!(truth.standing, Standing::Failed | Standing::Doubted);
            let down = self.servers.iter().filter(is_down).count();
            let elsewhere = self.servers.iter().filter(is_down).filter(|truth| truth.host != host).count();
            assert!(elsewhere == 0 || down * 3 < self.servers.len(), "a power cycle while a third is down");
            let times = self.switched.entry(host).or_default();
            forget_old(times, self.now);
            times.push_back(self.now);
            assert!(times.len() <= HOURLY_MAX, "more than five power cycles in an hour");
        }
        let takes = step.timeout().mul_f64(self.rng.unit());
        let end = (self.rng.below(10) > 0).then(|| (self.now + takes, self.rng.below(2) == 0));
        self.running.push((id, number, step, end, self.now + step.timeout() + STEP_LOST_AFTER));
        self.count_attempts(number);
    }

    /// Attempts begin where none ran: told by the patient itself.
    fn count_attempts(&mut self, number: usize) {
        let slot = ServerSlot(u32::try_from(number).unwrap());
        let last = self.recovery.servers[&slot].last_begun();
        let begun = &mut self.servers[number].begun;
        if begun.back().copied() != last {
            begun.extend(last);
        }
        forget_old(begun, self.now);
        assert!(begun.len() <= HOURLY_MAX, "more than five attempts in an hour");
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_secs(1);
        for number in 0..self.servers.len() {
            let slot = ServerSlot(u32::try_from(number).unwrap());
            if self.servers[number].does_agent_speak && self.rng.below(3) == 0 {
                self.servers[number].heard = self.now;
                self.handle(Event::AgentHeard(slot, Some(Duration::from_secs(1))));
            }
            let turn = match (self.servers[number].standing, self.rng.below(2_000)) {
                (Standing::InService, 0..2) => Standing::Doubted,
                (Standing::Doubted, 0..400) => Standing::Failed,
                (Standing::Doubted, 400..600) | (Standing::Failed, 0..2) | (Standing::Away, 0..20) => {
                    Standing::InService
                }
                (_, 1_998) => Standing::Away,
                (_, 1_999) => {
                    self.servers[number].does_agent_speak ^= true;
                    continue;
                }
                _ => continue,
            };
            self.servers[number].standing = turn;
            self.handle(Event::Stands(slot, turn));
        }
        let (now, mut ended) = (self.now, Vec::new());
        self.running.retain(|(id, number, step, end, _)| match end {
            Some((at, is_good)) if *at <= now => {
                ended.push((*id, *number, *step, *is_good));
                false
            }
            Some(_) | None => true,
        });
        for (id, number, step, is_good) in ended {
            self.handle(Event::StepDone(id, if is_good { Ok(()) } else { no() }));
            let truth = &mut self.servers[number];
            let helps = is_good && step.acts() && self.rng.below(2) == 0;
            if helps && truth.standing == Standing::Failed {
                truth.standing = Standing::InService;
                self.handle(Event::Stands(ServerSlot(u32::try_from(number).unwrap()), Standing::InService));
            }
        }
        self.handle(Event::Tick);
    }
}

#[test]
fn in_every_world_nothing_is_done_that_must_not_be() {
    let (mut taken, mut given_up, mut switched) = (0, 0, 0);
    for seed in 0..256 {
        let mut world = World::new(seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Two and a half hours.
            for _ in 0..9_000 {
                world.step();
            }
        }));
        assert!(result.is_ok(), "seed {seed}");
        taken += world.taken;
        given_up += world.given_up;
        switched += world.switched.len();
    }
    assert!(
        taken > 4_000 && given_up > 100 && switched > 20,
        "{taken} steps, {given_up} given up, {switched} switched"
    );
}

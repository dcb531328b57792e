//! Worlds of servers with agents: processes that crash, machines that vanish, agents that are lost alone, overloads, datagrams
//! that are dropped and late, and a balancer that stands still. What must hold is computed from the truth, not from the core.

use std::collections::VecDeque;

use super::*;
use crate::pure::check::CheckTimes;
use crate::pure::feedback::report::Service;

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Its process is gone: connects are refused, and its agent says so.
    Crashed,
    /// Its machine is gone: nothing comes back.
    Vanished,
    /// Its process hangs: connects work, nothing is answered, and its agent sees a port.
    Hangs,
    /// It has too much to do: checks and connects time out now and then, its agent says so or is starved.
    Overloaded,
    /// Its agent alone is gone.
    Mute,
}

const FAULTS: [Fault; 6] = [Fault::None, Fault::Crashed, Fault::Vanished, Fault::Hangs, Fault::Overloaded, Fault::Mute];

struct Server {
    fault: Fault,
    state: State,
    row: u32,
    sequence: u64,
    next_report: Timestamp,
    /// Since when its requests wait in vain.
    quiet: Option<Timestamp>,
    /// Whether it has had a fault that is more than overload since it was well.
    was_broken: bool,
}

struct World {
    rng: Rng,
    control: Control,
    now: Timestamp,
    is_calm: bool,
    only_overload: bool,
    servers: Vec<Server>,
    checks: Vec<(Timestamp, Check, Fault)>,
    reports: VecDeque<(Timestamp, ServerSlot, Report)>,
    falls: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = 2 + u32::try_from(rng.below(5)).unwrap();
        let check = CheckTimes { every: Some(Duration::from_millis(500)), ..CheckTimes::default() };
        let list: Vec<_> = (0..count).map(|number| Watched { check, ..watched(number) }).collect();
        let mut control = Control::new(seed);
        control.handle(Timestamp::ZERO, Event::Reload(&list), &mut Vec::new());
        let server = |_| Server {
            fault: Fault::None,
            state: State::Up,
            row: 0,
            sequence: 0,
            next_report: Timestamp::ZERO,
            quiet: None,
            was_broken: false,
        };
        Self {
            rng,
            control,
            now: Timestamp::ZERO,
            is_calm: false,
            only_overload: seed.is_multiple_of(4),
            servers: (0..count).map(server).collect(),
            checks: Vec::new(),
            reports: VecDeque::new(),
            falls: 0,
        }
    }

    fn chance(&mut self, per_thousand: u64) -> bool {
        !self.is_calm && self.rng.below(1_000) < per_thousand
    }

    fn step(&mut self) {
        let pause = if self.chance(3) { self.rng.below(2_500) } else { self.rng.below(10) };
        self.now = self.now + TICK + Duration::from_millis(pause);
        for index in 0..self.servers.len() {
            if self.chance(8) {
                let fault = FAULTS[usize::try_from(self.rng.below(6)).unwrap()];
                let is_overload = matches!(fault, Fault::None | Fault::Overloaded);
                self.servers[index].fault = if self.only_overload && !is_overload { Fault::None } else { fault };
            }
            let server = &mut self.servers[index];
            server.was_broken |= !matches!(server.fault, Fault::None | Fault::Overloaded);
            self.requests(index);
            self.speak(index);
        }
        while self.reports.front().is_some_and(|(at, ..)| *at <= self.now) {
            let Some((_, slot, report)) = self.reports.pop_front() else { break };
            self.handle(Event::Report(slot, Source::Agent, &report));
        }
        let (done, running) = self.checks.drain(..).partition(|(at, ..)| *at <= self.now);
        self.checks = running;
        let done: Vec<_> = done;
        for (_, check, fault) in done {
            let is_late = fault == Fault::Overloaded && self.rng.below(2) == 0;
            let result = match fault {
                Fault::Crashed => REFUSED,
                Fault::Vanished | Fault::Hangs => Err(CheckFailure::TimedOut),
                Fault::Overloaded if is_late => Err(CheckFailure::TimedOut),
                Fault::None | Fault::Mute | Fault::Overloaded => PASS,
            };
            self.handle(Event::CheckDone(check.id, check.server, result));
        }
        self.handle(Event::Tick);
        assert!(self.servers.iter().any(|server| server.state != State::Down), "nobody is left to be tried");
    }

    /// What requests see, as long as the server gets any.
    fn requests(&mut self, index: usize) {
        let fails = self.rng.below(3) == 0;
        let server = &mut self.servers[index];
        let gets_new = matches!(server.state, State::Up | State::Recovering);
        let is_quiet = matches!(server.fault, Fault::Vanished | Fault::Hangs);
        server.quiet = is_quiet.then(|| server.quiet.unwrap_or(self.now));
        let refused = u32::from(server.fault == Fault::Crashed && gets_new);
        let late = u32::from(server.fault == Fault::Overloaded && fails || server.fault == Fault::Vanished);
        server.row = if refused + late == 0 || !gets_new { 0 } else { server.row + 1 };
        let quiet_for = server.quiet.map(|since| self.now.since(since));
        let seen = OutcomeSummary {
            failed: refused + late,
            refused,
            connect_failures_in_a_row: server.row,
            ended: 5,
            outstanding: if is_quiet { 10 } else { 2 },
            silent_for: quiet_for,
            quiet_for,
            p99: Some(Duration::from_millis(10)),
        };
        self.handle(Event::Outcomes(ServerSlot(u32::try_from(index).unwrap()), seen));
    }

    fn speak(&mut self, index: usize) {
        let (is_lost, jitter) = (self.chance(10), Duration::from_millis(self.rng.below(20)));
        let is_starved = self.rng.below(4) == 0;
        let server = &mut self.servers[index];
        if self.now < server.next_report {
            return;
        }
        let promised = Duration::from_millis(200);
        server.next_report = self.now + promised;
        server.sequence += 1;
        let is_mute = matches!(server.fault, Fault::Vanished | Fault::Mute);
        if is_lost || is_mute || server.fault == Fault::Overloaded && is_starved {
            return;
        }
        let report = Report {
            boot: 1,
            sequence: server.sequence,
            promised_next: Some(promised),
            is_overloaded: server.fault == Fault::Overloaded,
            service: if server.fault == Fault::Crashed { Service::Down } else { Service::Up },
            ..Report::default()
        };
        self.reports.push_back((self.now + jitter, ServerSlot(u32::try_from(index).unwrap()), report));
    }

    fn handle(&mut self, event: Event<'_>) {
        let mut effects = Vec::new();
        self.control.handle(self.now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::SetState(slot, state) => self.turn(slot, state),
                Effect::RunCheck(check) => {
                    let fault = self.servers[check.server.0 as usize].fault;
                    let takes = match fault {
                        Fault::Vanished | Fault::Hangs => check.timeout,
                        _ => Duration::from_millis(self.rng.below(40)),
                    };
                    self.checks.push((self.now + takes, check, fault));
                }
                _ => {}
            }
        }
    }

    fn turn(&mut self, slot: ServerSlot, state: State) {
        let server = &mut self.servers[slot.0 as usize];
        if state == State::Down {
            self.falls += 1;
            assert!(
                matches!(server.state, State::Suspect { by_overload: false } | State::Recovering),
                "{:?}",
                server.state
            );
            assert!(server.was_broken, "overload was taken for death");
        }
        if state == State::Up {
            server.was_broken = !matches!(server.fault, Fault::None | Fault::Overloaded);
        }
        server.state = state;
    }

    /// The last fault is over: 15 seconds later everybody is up.
    fn heal(&mut self) {
        self.is_calm = true;
        for server in &mut self.servers {
            (server.fault, server.quiet) = (Fault::None, None);
        }
        let end = self.now + Duration::from_secs(15);
        while self.now < end {
            self.step();
        }
        let states: Vec<_> = self.servers.iter().map(|server| server.state).collect();
        assert!(states.iter().all(|state| *state == State::Up), "{states:?}");
    }
}

#[test]
fn servers_with_agents_are_found_out_and_healed_for_256_seeds() {
    let mut falls = 0;
    for seed in 0..256 {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..600 {
                world.step();
            }
            world.heal();
            world.falls
        });
        match outcome {
            Ok(fallen) => falls += fallen,
            Err(_) => panic!("seed {seed} failed"),
        }
    }
    assert!(falls > 256, "the worlds were too kind: {falls} falls");
}

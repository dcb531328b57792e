//! The control core's rules one by one, and 256 simulated worlds in which they must hold.

use std::collections::HashMap;

use super::checks::{CHECK_INTERVAL, CHECK_JITTER, CHECK_LOST_AFTER};
use super::*;

mod classic;
mod reports;
mod slow_start;
mod talking_world;

const CHECK_TIMEOUT: Duration = Duration::from_millis(300);
const SUSPECT: State = State::Suspect { by_overload: false };
const PASS: Result<Duration, CheckFailure> = Ok(Duration::from_millis(1));
const REFUSED: Result<Duration, CheckFailure> = Err(CheckFailure::Refused);

fn watched(number: u32) -> Watched {
    let id = ServerId { pool: "p".into(), server: format!("s{number}").into() };
    let (share, whole) = (Share::of(100), Share::of(100));
    Watched {
        slot: ServerSlot(number),
        id,
        incarnation: 0,
        state: State::Up,
        share,
        whole,
        slow_start: None,
        check: CheckTimes::default(),
        detection: Detection::default(),
        feedback: None,
    }
}

fn row(count: u32) -> OutcomeSummary {
    OutcomeSummary { failed: count, refused: count, connect_failures_in_a_row: count, ..OutcomeSummary::default() }
}

/// A core at work on a clock of its own.
struct Bench {
    control: Control,
    now: Timestamp,
}

impl Bench {
    fn new(servers: u32) -> Self {
        let mut control = Control::new(1);
        let list: Vec<_> = (0..servers).map(watched).collect();
        control.handle(Timestamp::ZERO, Event::Reload(&list), &mut Vec::new());
        Self { control, now: Timestamp::ZERO }
    }

    fn handle(&mut self, event: Event<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.control.handle(self.now, event, &mut effects);
        effects
    }

    /// The checks that begin within a while, tick by tick.
    fn checks_within(&mut self, span: Duration) -> Vec<Check> {
        let end = self.now + span;
        let mut checks = Vec::new();
        while self.now < end {
            self.now = self.now + TICK;
            for effect in self.handle(Event::Tick) {
                match effect {
                    Effect::RunCheck(check) => checks.push(check),
                    other => panic!("a tick alone led to {other:?}"),
                }
            }
        }
        checks
    }

    fn state(&self, number: u32) -> State {
        self.control.state(ServerSlot(number)).unwrap()
    }

    fn signs(&self, number: u32) -> Vec<Sign> {
        self.control.evidence(ServerSlot(number)).map(|evidence| evidence.sign).collect()
    }
}

const S0: ServerSlot = ServerSlot(0);

#[test]
fn three_connect_failures_in_a_row_make_a_server_suspect_and_two_do_not() {
    let mut bench = Bench::new(2);
    assert_eq!(bench.handle(Event::Outcomes(S0, row(2))), []);
    let change = Change { server: watched(0).id, from: State::Up, to: SUSPECT, because: Sign::ConnectFailures(3) };
    let effects = bench.handle(Event::Outcomes(S0, row(3)));
    assert_eq!(effects, [Effect::SetState(S0, SUSPECT), Effect::Tell(change)]);
    assert_eq!(bench.handle(Event::Outcomes(S0, row(4))), []);
    assert_eq!((bench.state(0), bench.state(1)), (SUSPECT, State::Up));
    assert_eq!(bench.signs(0), [Sign::Configured, Sign::ConnectFailures(3)]);
}

#[test]
fn failures_that_are_no_connect_failures_do_not() {
    let mut bench = Bench::new(1);
    let seen = OutcomeSummary { failed: 100, ..OutcomeSummary::default() };
    assert_eq!(bench.handle(Event::Outcomes(S0, seen)), []);
    assert_eq!(bench.state(0), State::Up);
}

#[test]
fn two_good_checks_in_a_row_bring_it_back() {
    let mut bench = Bench::new(1);
    bench.handle(Event::Outcomes(S0, row(3)));
    let first = bench.checks_within(TICK);
    assert_eq!(first.len(), 1, "the first check comes with the next tick");
    assert_eq!(bench.handle(Event::CheckDone(first[0].id, S0, PASS)), []);
    let begun = bench.now;
    let second = loop {
        if let [check] = bench.checks_within(TICK).as_slice() {
            break *check;
        }
    };
    assert!(bench.now.since(begun) >= CHECK_INTERVAL && bench.now.since(begun) <= CHECK_INTERVAL + TICK * 2);
    let effects = bench.handle(Event::CheckDone(second.id, S0, PASS));
    let change = Change { server: watched(0).id, from: SUSPECT, to: State::Up, because: Sign::ChecksPassed(2) };
    let expected = [Effect::SetState(S0, State::Up), Effect::ForgetConnectFailures(S0), Effect::Tell(change)];
    assert_eq!(effects, expected);
    assert_eq!(bench.checks_within(Duration::from_secs(5)), [], "a server that is up is not checked");
}

#[test]
fn a_failed_check_between_two_good_ones_begins_the_count_anew() {
    let mut bench = Bench::new(1);
    bench.handle(Event::Outcomes(S0, row(3)));
    for (result, state) in [(PASS, SUSPECT), (REFUSED, SUSPECT), (PASS, SUSPECT), (PASS, State::Up)] {
        let check = bench.checks_within(CHECK_INTERVAL + TICK * 2)[0];
        bench.handle(Event::CheckDone(check.id, S0, result));
        assert_eq!(bench.state(0), state);
    }
}

#[test]
fn a_check_that_could_not_be_run_says_nothing() {
    let mut bench = Bench::new(1);
    bench.handle(Event::Outcomes(S0, row(3)));
    for (result, state) in [(PASS, SUSPECT), (Err(CheckFailure::NotRun), SUSPECT), (PASS, State::Up)] {
        let check = bench.checks_within(CHECK_INTERVAL + TICK * 2)[0];
        bench.handle(Event::CheckDone(check.id, S0, result));
        assert_eq!(bench.state(0), state);
    }
}

/// Brings server 0 to suspicion and fails so many of its checks; returns its state after each.
fn states_after_checks(bench: &mut Bench, results: &[Result<Duration, CheckFailure>]) -> Vec<State> {
    bench.handle(Event::Outcomes(S0, row(3)));
    states_after(bench, results)
}

fn states_after(bench: &mut Bench, results: &[Result<Duration, CheckFailure>]) -> Vec<State> {
    let mut states = Vec::new();
    for result in results {
        let check = bench.checks_within(CHECK_INTERVAL + TICK * 2)[0];
        bench.handle(Event::CheckDone(check.id, S0, *result));
        states.push(bench.state(0));
    }
    states
}

#[test]
fn a_refused_check_agrees_with_refused_connects_at_once() {
    assert_eq!(states_after_checks(&mut Bench::new(2), &[REFUSED]), [State::Down]);
}

#[test]
fn three_checks_without_a_way_to_the_server_agree_with_refused_requests_and_alone_they_do_not() {
    let (none, far) = (Err(CheckFailure::NotRun), Err(CheckFailure::Unreachable));
    let states = states_after_checks(&mut Bench::new(2), &[far, none, far, none, far]);
    assert_eq!(states, [SUSPECT, SUSPECT, SUSPECT, SUSPECT, State::Down]);
    // One that passes takes the requests' word back: then our own way there may be what is broken.
    let states = states_after_checks(&mut Bench::new(2), &[far, PASS, far, far, far, far]);
    assert_eq!(states, [SUSPECT; 6]);
}

#[test]
fn an_overloaded_server_whose_checks_time_out_is_not_taken_for_dead() {
    let results = [Err(CheckFailure::TimedOut); 20];
    let mut bench = Bench::new(2);
    bench.handle(Event::Outcomes(S0, OutcomeSummary { refused: 0, ..row(3) }));
    assert_eq!(states_after(&mut bench, &results), [SUSPECT; 20]);
}

#[test]
fn a_dead_server_comes_back_after_two_good_checks() {
    let results = [REFUSED, PASS, REFUSED, PASS, PASS];
    let states = states_after_checks(&mut Bench::new(2), &results);
    assert_eq!(states, [State::Down, State::Down, State::Down, State::Down, State::Recovering]);
}

#[test]
fn the_last_server_of_a_pool_that_could_get_requests_stays_suspect() {
    // Beside one that is dead, drained, without a share, or of another pool.
    for case in 0..4 {
        let mut other = watched(1);
        match case {
            0 => other.state = State::Down,
            1 => other.state = State::Drained,
            2 => (other.share, other.whole) = (Share::ZERO, Share::ZERO),
            _ => other.id.pool = "other".into(),
        }
        let mut bench = Bench::new(0);
        bench.handle(Event::Reload(&[watched(0), other]));
        bench.handle(Event::Outcomes(S0, row(3)));
        for _ in 0..5 {
            for check in bench.checks_within(CHECK_INTERVAL + TICK * 2) {
                bench.handle(Event::CheckDone(check.id, check.server, REFUSED));
            }
            assert_eq!(bench.state(0), SUSPECT, "case {case}");
        }
        // With another beside it, what is known of it decides.
        bench.handle(Event::Reload(&[watched(0), watched(2)]));
        bench.now = bench.now + TICK;
        bench.handle(Event::Tick);
        assert_eq!(bench.state(0), State::Down, "case {case}");
    }
}

#[test]
fn a_dead_server_that_could_not_be_spared_falls_when_another_comes_back() {
    let mut bench = Bench::new(2);
    let both = [S0, ServerSlot(1)];
    for slot in both {
        bench.handle(Event::Outcomes(slot, row(3)));
    }
    for check in bench.checks_within(TICK) {
        bench.handle(Event::CheckDone(check.id, check.server, REFUSED));
    }
    assert_eq!(both.map(|slot| bench.control.state(slot).unwrap()), [State::Down, SUSPECT]);
    for check in bench.checks_within(CHECK_INTERVAL * 2 + TICK * 4) {
        if check.server == S0 {
            bench.handle(Event::CheckDone(check.id, S0, PASS));
        }
    }
    while bench.state(0) != State::Recovering {
        for check in bench.checks_within(TICK) {
            assert_eq!(check.server, S0);
            let effects = bench.handle(Event::CheckDone(check.id, S0, PASS));
            assert!(
                bench.state(0) != State::Recovering || effects.contains(&Effect::SetState(ServerSlot(1), State::Down))
            );
        }
    }
    assert_eq!(bench.state(1), State::Down);
}

#[test]
fn overload_is_never_treated_as_death() {
    let mut bench = Bench::new(0);
    let overloaded = State::Suspect { by_overload: true };
    bench.handle(Event::Reload(&[Watched { state: overloaded, ..watched(0) }, watched(1)]));
    for _ in 0..5 {
        let check = bench.checks_within(CHECK_INTERVAL + TICK * 2)[0];
        bench.handle(Event::CheckDone(check.id, S0, REFUSED));
        assert_eq!(bench.state(0), overloaded);
    }
}

#[test]
fn one_check_runs_at_a_time_and_a_lost_one_is_given_up() {
    let mut bench = Bench::new(1);
    bench.handle(Event::Outcomes(S0, row(3)));
    let first = bench.checks_within(TICK)[0];
    let lost = CHECK_TIMEOUT + CHECK_LOST_AFTER;
    assert_eq!(bench.checks_within(lost - TICK), []);
    let second = bench.checks_within(TICK)[0];
    assert_ne!(first.id, second.id);
    // The late result of the first is not taken for the second's.
    bench.handle(Event::CheckDone(first.id, S0, PASS));
    bench.handle(Event::CheckDone(second.id, S0, PASS));
    assert_eq!(bench.state(0), SUSPECT);
}

#[test]
fn an_operators_order_stands_against_evidence_until_it_is_lifted() {
    let mut bench = Bench::new(1);
    for (order, state) in [(Order::Drain, State::Drained), (Order::Maintain, State::Maintenance)] {
        bench.handle(Event::Outcomes(S0, row(3)));
        assert_eq!(bench.state(0), SUSPECT);
        assert!(bench.handle(Event::Order(S0, order)).contains(&Effect::SetState(S0, state)));
        assert_eq!(bench.handle(Event::Order(S0, order)), []);
        assert_eq!(bench.handle(Event::Outcomes(S0, row(9))), []);
        assert_eq!(bench.checks_within(Duration::from_secs(2)), []);
        let effects = bench.handle(Event::Order(S0, Order::Enable));
        assert!(effects.contains(&Effect::SetState(S0, State::Up)));
        assert!(effects.contains(&Effect::ForgetConnectFailures(S0)));
        assert_eq!(bench.handle(Event::Order(S0, Order::Enable)), []);
    }
    bench.handle(Event::Outcomes(S0, row(3)));
    assert_eq!(bench.handle(Event::Order(S0, Order::Enable)), [], "suspicion is not an operator's to lift");
}

#[test]
fn a_check_that_ends_after_an_order_changes_nothing() {
    let mut bench = Bench::new(1);
    bench.handle(Event::Outcomes(S0, row(3)));
    let check = bench.checks_within(TICK)[0];
    bench.handle(Event::Order(S0, Order::Drain));
    assert_eq!(bench.handle(Event::CheckDone(check.id, S0, PASS)), []);
    assert_eq!(bench.state(0), State::Drained);
}

#[test]
fn a_reload_keeps_what_is_known_of_servers_that_stay() {
    let mut bench = Bench::new(3);
    for number in 0..3 {
        bench.handle(Event::Outcomes(ServerSlot(number), row(3)));
    }
    let moved = Watched { incarnation: 1, ..watched(1) };
    assert_eq!(bench.handle(Event::Reload(&[watched(2), moved, watched(7)])), []);
    assert_eq!(bench.control.state(S0), None);
    assert_eq!((bench.state(1), bench.state(2), bench.state(7)), (State::Up, SUSPECT, State::Up));
    assert_eq!(bench.signs(1), [Sign::Configured]);
    assert_eq!(bench.signs(2), [Sign::Configured, Sign::ConnectFailures(3)]);
    let checks = bench.checks_within(TICK);
    assert_eq!(checks.iter().map(|check| check.server).collect::<Vec<_>>(), [ServerSlot(2)]);
    for event in [Event::Outcomes(S0, row(9)), Event::CheckDone(CheckId(0), S0, PASS), Event::Order(S0, Order::Drain)] {
        assert_eq!(bench.handle(event), [], "a server that is gone is nobody's");
    }
}

#[test]
fn checks_that_run_at_once_are_bounded_and_everybody_gets_a_turn() {
    let servers = u32::try_from(CHECKS_MAX * 3).unwrap();
    let mut bench = Bench::new(servers);
    for number in 0..servers {
        bench.handle(Event::Outcomes(ServerSlot(number), row(3)));
    }
    let mut seen = HashMap::<ServerSlot, u32>::new();
    for _ in 0..12 {
        let checks = bench.checks_within(TICK);
        assert!(checks.len() <= CHECKS_MAX);
        assert!(bench.handle(Event::Tick).is_empty() || checks.len() < CHECKS_MAX);
        for check in checks {
            *seen.entry(check.server).or_default() += 1;
            bench.handle(Event::CheckDone(check.id, check.server, REFUSED));
        }
    }
    assert_eq!(seen.len(), CHECKS_MAX * 3);
    assert!(seen.values().max().unwrap() - seen.values().min().unwrap() <= 1);
}

/// A world of servers that crash and come back, of requests that notice, of checks that are slow, lost or late.
struct World {
    rng: Rng,
    is_calm: bool,
    slow_start: Option<Duration>,
    falls: u32,
    control: Control,
    now: Timestamp,
    /// When a tick was last late: checks that time out soon after say nothing.
    late_at: Timestamp,
    servers: Vec<Truth>,
    checks: Vec<(Timestamp, Check, Result<Duration, CheckFailure>)>,
}

struct Truth {
    is_alive: bool,
    row: u32,
    state: State,
    passes: Vec<Timestamp>,
    has_failed_check: bool,
    running: Option<(CheckId, Timestamp)>,
    share: Share,
    /// Whether it was down before it began to recover.
    was_down: bool,
}

const SLOW_START: Duration = Duration::from_secs(2);

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = 1 + u32::try_from(rng.below(6)).unwrap();
        let mut control = Control::new(seed);
        let slow_start = (seed % 2 == 1).then_some(SLOW_START);
        let list: Vec<_> = (0..count).map(|number| Watched { slow_start, ..watched(number) }).collect();
        control.handle(Timestamp::ZERO, Event::Reload(&list), &mut Vec::new());
        let truth = |_| Truth {
            is_alive: true,
            row: 0,
            state: State::Up,
            passes: Vec::new(),
            has_failed_check: false,
            running: None,
            share: Share::of(100),
            was_down: false,
        };
        Self {
            rng,
            is_calm: false,
            slow_start,
            falls: 0,
            control,
            now: Timestamp::ZERO,
            late_at: Timestamp::ZERO,
            servers: (0..count).map(truth).collect(),
            checks: Vec::new(),
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        !self.is_calm && self.rng.below(100) < percent
    }

    /// One tick, sometimes late.
    fn step(&mut self) {
        let late = if self.chance(5) { self.rng.below(200) } else { self.rng.below(5) };
        self.now = self.now + TICK + Duration::from_millis(late);
        if late > 50 {
            self.late_at = self.now;
        }
        for index in 0..self.servers.len() {
            if self.chance(2) {
                let server = &mut self.servers[index];
                server.is_alive = !server.is_alive;
            }
            self.requests(index);
        }
        self.finish_checks();
        self.handle(Event::Tick);
        self.judge();
    }

    /// Requests of one tick; the snapshot's panic rule may send them to suspected servers too.
    fn requests(&mut self, index: usize) {
        let attempts = self.rng.below(4);
        let server = &mut self.servers[index];
        for _ in 0..attempts {
            server.row = if server.is_alive { 0 } else { server.row + 1 };
        }
        let (row, was) = (server.row, server.state);
        self.handle(Event::Outcomes(
            ServerSlot(u32::try_from(index).unwrap()),
            super::OutcomeSummary { connect_failures_in_a_row: row, refused: row, ..OutcomeSummary::default() },
        ));
        let state = self.servers[index].state;
        match was {
            State::Up => assert_eq!(state, if row >= 3 { SUSPECT } else { was }, "{row} failures in a row"),
            State::Recovering if row > 0 => assert!([SUSPECT, State::Down].contains(&state), "{row} failures in a row"),
            // Its checks may have been refused before.
            SUSPECT if row >= 3 => assert!([SUSPECT, State::Down].contains(&state), "{row} failures in a row"),
            was => assert_eq!(state, was, "{row} failures in a row"),
        }
    }

    fn finish_checks(&mut self) {
        let (done, running) = self.checks.drain(..).partition(|(at, ..)| *at <= self.now);
        self.checks = running;
        let mut done: Vec<_> = done;
        done.sort_by_key(|(at, ..)| *at);
        for (_, check, result) in done {
            let server = &mut self.servers[check.server.0 as usize];
            match server.running.take_if(|(id, _)| *id == check.id) {
                Some((_, begun)) if result.is_ok() => server.passes.push(begun),
                Some(_)
                    if result == Err(CheckFailure::TimedOut)
                        && self.now.since(self.late_at) < Duration::from_millis(300) => {}
                Some(_) => {
                    server.passes.clear();
                    server.has_failed_check = true;
                }
                None => {}
            }
            self.handle(Event::CheckDone(check.id, check.server, result));
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        let mut effects = Vec::new();
        self.control.handle(self.now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::SetState(slot, state) => {
                    let server = &mut self.servers[slot.0 as usize];
                    assert_ne!(server.state, state, "a change that changes nothing");
                    let is_slow = self.slow_start.is_some() || server.state == State::Down;
                    let comes_back = if is_slow { State::Recovering } else { State::Up };
                    if state == State::Up && is_slow {
                        assert_eq!(server.state, State::Recovering, "up without a slow start");
                    }
                    if state == comes_back && server.state != State::Recovering {
                        server.was_down |= server.state == State::Down;
                        let [.., first, second] = server.passes.as_slice() else {
                            panic!("up without two good checks")
                        };
                        assert!(second.since(*first) >= CHECK_INTERVAL, "the good checks are too near");
                    }
                    match state {
                        State::Up | SUSPECT | State::Recovering => {
                            server.passes.clear();
                            server.running = None;
                        }
                        State::Down => {
                            assert_eq!(server.state, SUSPECT, "death without suspicion");
                            assert!(server.has_failed_check || server.was_down, "death without a second witness");
                        }
                        other => panic!("{other} without an order"),
                    }
                    server.was_down &= state != State::Up;
                    self.falls += u32::from(state == State::Down);
                    server.has_failed_check = false;
                    server.state = state;
                }
                Effect::SetShare(slot, share) => self.servers[slot.0 as usize].share = share,
                Effect::ForgetConnectFailures(slot) => self.servers[slot.0 as usize].row = 0,
                Effect::RunCheck(check) => self.begin_check(check),
                Effect::TakeBack(_) | Effect::TellLate(..) => {}
                Effect::Ask(_)
                | Effect::SetMax(..)
                | Effect::SetCounter(..)
                | Effect::TellShare(_)
                | Effect::TellOscillation(..) => panic!("nobody reports"),
                Effect::Tell(change) => assert_ne!(change.from, change.to),
            }
        }
    }

    fn begin_check(&mut self, check: Check) {
        let is_lost = self.chance(3);
        let takes = Duration::from_millis(self.rng.below(if self.is_calm { 50 } else { 320 }));
        let server = &mut self.servers[check.server.0 as usize];
        assert_ne!(server.state, State::Up, "a check of a server that is well");
        if let Some((_, begun)) = server.running.replace((check.id, self.now)) {
            assert!(self.now.since(begun) >= CHECK_TIMEOUT + CHECK_LOST_AFTER, "two checks at once");
        }
        let result = match (server.is_alive, takes > check.timeout) {
            (_, true) => Err(CheckFailure::TimedOut),
            (true, false) => Ok(takes),
            (false, false) => REFUSED,
        };
        if !is_lost {
            self.checks.push((self.now + takes, check, result));
        }
    }

    /// What must hold at every moment.
    fn judge(&self) {
        assert!(self.servers.iter().any(|server| server.state != State::Down), "nobody is left to be tried");
        for (index, server) in self.servers.iter().enumerate() {
            let slot = ServerSlot(u32::try_from(index).unwrap());
            assert_eq!(self.control.state(slot), Some(server.state));
            let is_partial = server.share < Share::of(100);
            assert!(!is_partial || server.state == State::Recovering, "a share that does not rise");
            assert!(server.share >= Share::of(10) && server.share <= Share::of(100));
            assert!(self.control.evidence(slot).count() <= evidence::KEPT_MAX);
        }
    }

    /// Everybody is alive, nothing is lost or late any more: soon all are up.
    fn heal(&mut self) {
        self.is_calm = true;
        for server in &mut self.servers {
            server.is_alive = true;
            server.row = 0;
        }
        let lost = CHECK_TIMEOUT * 9 + CHECK_LOST_AFTER;
        let climbs = self.slow_start.unwrap_or(watch::SLOW_START) + TICK * 2;
        let end = self.now + lost + climbs + (CHECK_INTERVAL + CHECK_JITTER + TICK * 2) * 3;
        while self.now < end {
            self.step();
        }
        assert!(self.servers.iter().all(|server| server.state == State::Up), "somebody was forgotten");
    }
}

#[test]
fn simulated_crashes_are_noticed_and_healed_for_256_seeds() {
    let mut falls = 0;
    for seed in 0..256 {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..400 {
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

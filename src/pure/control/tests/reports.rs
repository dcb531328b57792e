//! What servers say of themselves: suspicion and its end, two witnesses, an agent that falls silent, our own delay.

use super::*;
use crate::pure::check::CheckTimes;
use crate::pure::feedback::report::{Figures, Service};

const OVERLOADED: State = State::Suspect { by_overload: true };
const PROMISED: Duration = Duration::from_millis(500);

pub(super) fn report(sequence: u64) -> Report {
    Report { boot: 1, sequence, promised_next: Some(PROMISED), ..Report::default() }
}

/// A bench whose agents report, and whose checks have a result.
pub(super) struct Talk {
    pub(super) bench: Bench,
    sequence: u64,
    /// Who reports every 500 ms.
    speaking: Vec<ServerSlot>,
    result: Result<Duration, CheckFailure>,
    next: Timestamp,
    pub(super) effects: Vec<Effect>,
}

impl Talk {
    pub(super) fn new(servers: &[Watched]) -> Self {
        let mut bench = Bench::new(0);
        bench.handle(Event::Reload(servers));
        let speaking = servers.iter().map(|server| server.slot).collect();
        Self { bench, sequence: 0, speaking, result: PASS, next: Timestamp::ZERO, effects: Vec::new() }
    }

    pub(super) fn says(&mut self, slot: ServerSlot, change: impl FnOnce(&mut Report)) {
        self.sequence += 1;
        let mut said = report(self.sequence);
        change(&mut said);
        let effects = self.bench.handle(Event::Report(slot, Source::Agent, &said));
        self.effects.extend(effects);
    }

    fn tick(&mut self) {
        self.bench.now = self.bench.now + TICK;
        if self.bench.now >= self.next {
            self.next = self.bench.now + PROMISED;
            for slot in self.speaking.clone() {
                self.says(slot, |_| {});
            }
        }
        let mut todo = self.bench.handle(Event::Tick);
        while let Some(effect) = todo.pop() {
            if let Effect::RunCheck(check) = &effect {
                todo.extend(self.bench.handle(Event::CheckDone(check.id, check.server, self.result)));
            }
            self.effects.push(effect);
        }
    }

    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.bench.now + span;
        while self.bench.now < end {
            self.tick();
        }
    }

    /// How long it takes server 0 to come to a state.
    fn time_to(&mut self, state: State) -> Duration {
        let begun = self.bench.now;
        while self.bench.state(0) != state {
            self.tick();
            assert!(
                self.bench.now.since(begun) < Duration::from_secs(60),
                "never {state}, but {}",
                self.bench.state(0)
            );
        }
        self.bench.now.since(begun)
    }
}

fn three() -> Talk {
    let mut talk = Talk::new(&[watched(0), watched(1), watched(2)]);
    talk.pass(Duration::from_secs(2));
    talk
}

#[test]
fn an_abnormal_report_stops_new_requests_at_once_and_a_good_one_brings_them_back() {
    for service in [Service::Abnormal, Service::Down] {
        let mut talk = three();
        talk.speaking.remove(0);
        talk.says(S0, |report| report.service = service);
        assert_eq!(talk.bench.state(0), SUSPECT);
        talk.result = Err(CheckFailure::TimedOut);
        talk.says(S0, |report| report.service = service);
        talk.pass(Duration::from_millis(400));
        assert_eq!(talk.bench.state(0), SUSPECT);
        talk.result = PASS;
        talk.pass(Duration::from_millis(600));
        assert_eq!(talk.bench.state(0), SUSPECT, "checks alone do not clear a word");
        talk.says(S0, |_| {});
        assert_eq!(talk.bench.state(0), State::Up, "its checks had passed already");
    }
}

#[test]
fn overload_never_becomes_down_however_long_it_lasts_and_whatever_times_out() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.result = Err(CheckFailure::TimedOut);
    for _ in 0..100 {
        talk.says(S0, |report| report.is_overloaded = true);
        talk.pass(PROMISED);
        assert_eq!(talk.bench.state(0), OVERLOADED);
    }
    // Not even when the agent can't get through any more.
    talk.pass(Duration::from_secs(30));
    assert_eq!(talk.bench.state(0), SUSPECT);
    talk.speaking.push(S0);
    talk.result = PASS;
    assert!(talk.time_to(State::Up) < Duration::from_secs(2));
}

#[test]
fn a_machine_that_vanishes_while_it_is_overloaded_is_down_after_a_minute() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.result = Err(CheckFailure::TimedOut);
    talk.says(S0, |report| report.is_overloaded = true);
    talk.pass(Duration::from_secs(55));
    assert_eq!(talk.bench.state(0), SUSPECT);
    talk.pass(Duration::from_secs(10));
    assert_eq!(talk.bench.state(0), State::Down);
}

#[test]
fn an_agent_that_promised_nothing_and_is_gone_does_not_bar_its_server_for_ever() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.says(S0, |report| (report.is_overloaded, report.promised_next) = (true, None));
    talk.pass(Duration::from_secs(55));
    assert_eq!(talk.bench.state(0), OVERLOADED);
    talk.pass(Duration::from_secs(10));
    assert_eq!(talk.bench.state(0), State::Up);
}

#[test]
fn a_service_that_hangs_is_down_whatever_an_agent_that_sees_its_port_says() {
    let check = CheckTimes { every: Some(Duration::from_millis(500)), ..CheckTimes::default() };
    let mut talk = Talk::new(&[Watched { check, ..watched(0) }, watched(1), watched(2)]);
    talk.pass(Duration::from_secs(2));
    talk.result = Err(CheckFailure::TimedOut);
    talk.bench.handle(Event::Outcomes(S0, silent(20, 300, 5)));
    assert!(talk.time_to(State::Down) <= Duration::from_millis(1_500));
}

#[test]
fn a_server_that_is_overloaded_on_its_way_back_from_death_climbs_again() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.bench.handle(Event::Outcomes(S0, row(3)));
    talk.says(S0, |report| report.service = Service::Down);
    assert_eq!(talk.bench.state(0), State::Down);
    talk.says(S0, |_| {});
    talk.speaking.push(S0);
    talk.time_to(State::Recovering);
    talk.pass(Duration::from_secs(2));
    talk.says(S0, |report| report.is_overloaded = true);
    assert_eq!(talk.bench.state(0), OVERLOADED);
    talk.says(S0, |_| {});
    talk.time_to(State::Recovering);
    assert!(talk.time_to(State::Up) >= watch::SLOW_START);
}

#[test]
fn a_drain_by_a_servers_own_word_ends_by_it_also_at_another_address() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.says(S0, |report| report.service = Service::Leaving);
    let moved = Watched { incarnation: 1, state: State::Drained, ..watched(0) };
    talk.bench.handle(Event::Reload(&[moved, watched(1), watched(2)]));
    assert_eq!(talk.bench.state(0), State::Drained);
    talk.says(S0, |report| report.boot = 2);
    assert_eq!(talk.bench.state(0), State::Up);
}

#[test]
fn a_doubted_server_that_lets_one_request_wait_is_silent() {
    let mut talk = Talk::new(&[watched(0), watched(1)]);
    talk.speaking.clear();
    let waits = OutcomeSummary { quiet_for: Some(Duration::from_millis(300)), silent_for: None, ..silent(1, 0, 5) };
    assert_eq!(talk.bench.handle(Event::Outcomes(S0, waits)), [], "alone it says nothing");
    let late = OutcomeSummary { connect_failures_in_a_row: 3, failed: 3, ..waits };
    let effects = talk.bench.handle(Event::Outcomes(S0, late));
    assert_eq!(talk.bench.state(0), SUSPECT);
    assert!(effects.contains(&Effect::TakeBack(S0)), "{effects:?}");
    talk.result = Err(CheckFailure::TimedOut);
    assert!(talk.time_to(State::Down) <= Duration::from_millis(1_500), "a machine that has vanished");
}

#[test]
fn a_failed_check_and_one_request_that_waits_in_vain_are_suspicious_together() {
    let check = CheckTimes { every: Some(Duration::from_millis(500)), ..CheckTimes::default() };
    let mut bench = Bench::new(0);
    bench.handle(Event::Reload(&[Watched { check, ..watched(0) }, watched(1)]));
    let waits = OutcomeSummary { quiet_for: Some(Duration::from_millis(300)), silent_for: None, ..silent(1, 0, 5) };
    bench.handle(Event::Outcomes(S0, waits));
    assert_eq!(bench.state(0), State::Up);
    let check = loop {
        if let [check] = bench.checks_within(TICK).as_slice() {
            break *check;
        }
    };
    bench.handle(Event::CheckDone(check.id, S0, Err(CheckFailure::TimedOut)));
    assert_eq!(bench.state(0), State::Up, "one check alone says nothing");
    bench.handle(Event::Outcomes(S0, waits));
    assert_eq!(bench.state(0), SUSPECT);
}

fn silent(outstanding: u32, millis: u64, p99: u64) -> OutcomeSummary {
    OutcomeSummary {
        outstanding,
        silent_for: Some(Duration::from_millis(millis)),
        p99: Some(Duration::from_millis(p99)),
        ..OutcomeSummary::default()
    }
}

#[test]
fn a_server_that_dies_of_its_overload_is_down_all_the_same() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.says(S0, |report| report.is_overloaded = true);
    assert_eq!(talk.bench.state(0), OVERLOADED);
    talk.result = REFUSED;
    let effects = talk.bench.handle(Event::Outcomes(S0, row(3)));
    assert!(effects.contains(&Effect::SetState(S0, SUSPECT)));
    assert!(talk.time_to(State::Down) <= CHECK_INTERVAL * 4);
}

#[test]
fn an_agent_that_breaks_three_promises_makes_its_server_suspect_and_one_witness_is_not_enough() {
    let mut talk = three();
    talk.speaking.remove(0);
    let took = talk.time_to(SUSPECT);
    assert!(took >= PROMISED * 2 && took <= PROMISED * 3 + TICK * 2, "{took:?}");
    talk.pass(Duration::from_secs(5));
    assert_eq!(talk.bench.state(0), SUSPECT, "its checks pass");
    // All else is well: in the end the agent is done without.
    assert!(talk.time_to(State::Up) < Duration::from_secs(10));
    talk.pass(Duration::from_secs(60));
    assert_eq!(talk.bench.state(0), State::Up);
    assert!(talk.bench.signs(0).contains(&Sign::AgentLost));
}

#[test]
fn a_silent_agent_and_checks_that_time_out_are_two_witnesses() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.result = Err(CheckFailure::TimedOut);
    talk.time_to(SUSPECT);
    let took = talk.time_to(State::Down);
    assert!(took <= Duration::from_secs(2), "{took:?}");
    assert!(talk.effects.contains(&Effect::TakeBack(S0)));
}

#[test]
fn two_sources_that_disagree_leave_it_suspect() {
    let mut talk = three();
    talk.bench.handle(Event::Outcomes(S0, row(3)));
    talk.result = REFUSED;
    talk.pass(Duration::from_secs(10));
    assert_eq!(talk.bench.state(0), SUSPECT, "its agent says that the service lives");
    talk.says(S0, |report| report.service = Service::Down);
    assert_eq!(talk.bench.state(0), State::Down);
}

#[test]
fn an_agent_that_says_down_and_one_refused_check_are_enough() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.result = REFUSED;
    talk.says(S0, |report| report.service = Service::Down);
    assert!(talk.time_to(State::Down) <= CHECK_INTERVAL);
}

#[test]
fn an_agent_that_restarts_has_broken_no_promise() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.pass(PROMISED * 2);
    talk.says(S0, |report| (report.boot, report.sequence) = (2, 1));
    assert_eq!(talk.bench.state(0), State::Up);
    assert!(talk.bench.signs(0).contains(&Sign::AgentRestarted));
}

#[test]
fn a_clean_stop_drains_and_the_next_start_brings_it_back_but_not_against_an_operator() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.says(S0, |report| report.service = Service::Leaving);
    assert_eq!(talk.bench.state(0), State::Drained);
    talk.pass(Duration::from_secs(25));
    assert_eq!(talk.bench.state(0), State::Drained, "nobody expects it to speak");
    talk.says(S0, |report| report.boot = 2);
    assert_eq!(talk.bench.state(0), State::Up);
    talk.bench.handle(Event::Order(S0, Order::Drain));
    talk.says(S0, |_| {});
    talk.pass(Duration::from_secs(100));
    assert_eq!(talk.bench.state(0), State::Drained);
}

#[test]
fn an_agent_that_is_stopped_for_good_does_not_drain_a_healthy_server_for_ever() {
    let mut talk = three();
    talk.speaking.clear();
    for number in 0..3 {
        talk.says(ServerSlot(number), |report| report.service = Service::Leaving);
    }
    talk.pass(Duration::from_secs(29));
    assert!((0..3).all(|number| talk.bench.state(number) == State::Drained));
    talk.pass(Duration::from_secs(2));
    assert!((0..3).all(|number| talk.bench.state(number) == State::Up));
}

#[test]
fn a_server_that_said_it_would_stop_and_did_is_missed() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.says(S0, |report| report.service = Service::Leaving);
    talk.result = REFUSED;
    talk.pass(Duration::from_secs(35));
    assert_eq!(talk.bench.state(0), State::Down);
}

#[test]
fn an_agent_that_leaves_its_dead_server_makes_nobody_try_it() {
    let mut talk = three();
    talk.speaking.remove(0);
    talk.result = REFUSED;
    talk.time_to(State::Down);
    talk.says(S0, |report| report.service = Service::Leaving);
    assert_eq!(talk.bench.state(0), State::Down, "one that is drained still serves its clients");
}

#[test]
fn a_server_that_goes_from_maintenance_into_trouble_gets_not_a_request_between() {
    for before in [Service::Maintenance, Service::Leaving] {
        let mut talk = three();
        talk.speaking.remove(0);
        talk.says(S0, |report| report.service = before);
        talk.effects.clear();
        talk.says(S0, |report| report.service = Service::Abnormal);
        let states: Vec<_> = talk.effects.iter().filter(|effect| matches!(effect, Effect::SetState(..))).collect();
        assert_eq!(states, [&Effect::SetState(S0, SUSPECT)]);
    }
}

#[test]
fn a_pause_of_our_own_is_nobodys_fault() {
    let mut talk = three();
    talk.bench.now = talk.bench.now + Duration::from_secs(2);
    let late = OutcomeSummary {
        outstanding: 50,
        silent_for: Some(Duration::from_secs(2)),
        p99: Some(Duration::from_millis(5)),
        ..OutcomeSummary::default()
    };
    for effect in talk.bench.handle(Event::Tick) {
        assert!(!matches!(effect, Effect::SetState(..)), "{effect:?}");
    }
    assert_eq!(talk.bench.handle(Event::Outcomes(S0, late)), []);
    talk.pass(Duration::from_secs(5));
    assert!((0..3).all(|number| talk.bench.state(number) == State::Up));
}

#[test]
fn what_was_late_with_us_is_forgiven_also_where_it_is_told_before_the_tick() {
    let mut talk = three();
    talk.bench.now = talk.bench.now + Duration::from_secs(2);
    assert_eq!(talk.bench.handle(Event::Outcomes(S0, silent(50, 2_000, 5))), []);
    talk.pass(Duration::from_secs(2));
    assert_eq!(talk.bench.state(0), State::Up);
}

#[test]
fn datagrams_that_our_machine_dropped_are_no_broken_promises() {
    let mut talk = three();
    talk.speaking.clear();
    for _ in 0..20 {
        talk.pass(PROMISED);
        talk.bench.handle(Event::ReportsDropped);
    }
    assert!((0..3).all(|number| talk.bench.state(number) == State::Up));
}

#[test]
fn half_a_pool_that_is_late_at_once_stretches_every_timeout() {
    let servers: Vec<_> = (0..4).map(watched).collect();
    let mut talk = Talk::new(&servers);
    talk.pass(Duration::from_secs(2));
    talk.speaking.clear();
    // The first two become suspect by broken promises; for the other two the clock is slower then.
    talk.says(ServerSlot(2), |report| report.promised_next = Some(PROMISED + TICK * 4));
    talk.says(ServerSlot(3), |report| report.promised_next = Some(PROMISED + TICK * 4));
    let both = |talk: &Talk| [0, 1].map(|number| talk.bench.state(number)) == [SUSPECT; 2];
    while !both(&talk) {
        talk.tick();
    }
    talk.pass(Duration::from_millis(1_000));
    assert_eq!([2, 3].map(|number| talk.bench.state(number)), [State::Up; 2]);
}

#[test]
fn silence_is_suspicious_only_where_many_wait_and_answers_were_quick() {
    for (seen, is_suspect) in [
        (silent(8, 250, 10), true),
        (silent(7, 9_000, 10), false),
        (silent(8, 249, 10), false),
        (silent(8, 399, 100), false),
        (silent(8, 400, 100), true),
        (OutcomeSummary { p99: None, ..silent(99, 9_000, 1) }, false),
    ] {
        let mut bench = Bench::new(3);
        let effects = bench.handle(Event::Outcomes(S0, seen));
        assert_eq!(bench.state(0) == SUSPECT, is_suspect, "{seen:?}");
        assert_eq!(effects.contains(&Effect::TakeBack(S0)), is_suspect);
    }
    let mut bench = Bench::new(0);
    let patient = Detection { silence: false, ..Detection::default() };
    bench.handle(Event::Reload(&[Watched { detection: patient, ..watched(0) }, watched(1)]));
    bench.handle(Event::Outcomes(S0, silent(50, 9_000, 1)));
    assert_eq!(bench.state(0), State::Up);
}

#[test]
fn a_silent_server_is_barred_longer_each_time_and_is_down_with_a_second_witness() {
    let seen = OutcomeSummary {
        outstanding: 20,
        silent_for: Some(Duration::from_millis(300)),
        p99: Some(Duration::from_millis(5)),
        ..OutcomeSummary::default()
    };
    let mut talk = Talk::new(&[watched(0), watched(1)]);
    talk.speaking.clear();
    let mut barred = Vec::new();
    for _ in 0..4 {
        talk.bench.handle(Event::Outcomes(S0, seen));
        barred.push(talk.time_to(State::Up).as_millis() / 1_000);
    }
    assert_eq!(barred, [1, 2, 4, 8]);
    talk.bench.handle(Event::Outcomes(S0, seen));
    talk.result = Err(CheckFailure::TimedOut);
    assert!(talk.time_to(State::Down) <= Duration::from_millis(1_200));
}

#[test]
fn more_than_half_of_the_requests_failing_bars_at_most_half_of_a_pool() {
    let failing = OutcomeSummary { ended: 40, failed: 30, ..OutcomeSummary::default() };
    let mut bench = Bench::new(5);
    for number in 0..5 {
        bench.handle(Event::Outcomes(ServerSlot(number), failing));
    }
    let barred = (0..5).filter(|number| bench.state(*number) == SUSPECT).count();
    assert_eq!(barred, 2, "the half is counted with the one that is to be barred");
}

#[test]
fn checks_of_a_server_that_is_up_run_as_often_as_configured_and_fall_together() {
    let every = Duration::from_millis(500);
    let check = CheckTimes { every: Some(every), ..CheckTimes::default() };
    let mut bench = Bench::new(0);
    bench.handle(Event::Reload(&[Watched { check, ..watched(0) }, watched(1)]));
    let wrong = Err(CheckFailure::TimedOut);
    let mut run = |results: [Result<Duration, CheckFailure>; 3], interval: Duration| {
        let mut last = None;
        for result in results {
            let check = loop {
                if let [check] = bench.checks_within(TICK).as_slice() {
                    break *check;
                }
            };
            if let Some(last) = last.replace(bench.now) {
                let gap = bench.now.since(last);
                assert!(gap >= interval && gap <= interval + interval / 10 + TICK, "{gap:?}");
            }
            assert_eq!(bench.state(0), State::Up);
            bench.handle(Event::CheckDone(check.id, S0, result));
        }
    };
    run([PASS; 3], every);
    // Where one has failed the next come sooner.
    run([wrong; 3], CHECK_INTERVAL);
    assert_eq!(bench.state(0), SUSPECT);
    for _ in 0..20 {
        let check = bench.checks_within(CHECK_INTERVAL + TICK * 2)[0];
        bench.handle(Event::CheckDone(check.id, S0, wrong));
    }
    assert_eq!(bench.state(0), SUSPECT, "one witness is not enough");
}

#[test]
fn a_server_where_nobody_listens_is_down_without_any_request() {
    let check = CheckTimes { every: Some(Duration::from_millis(500)), ..CheckTimes::default() };
    let mut talk = Talk::new(&[Watched { check, ..watched(0) }, watched(1)]);
    talk.speaking.clear();
    talk.result = REFUSED;
    talk.time_to(State::Down);
    talk.result = PASS;
    talk.time_to(State::Recovering);
    assert!(talk.time_to(State::Up) >= watch::SLOW_START);
}

#[test]
fn what_agents_want_of_their_share_is_followed_and_fades_with_their_silence() {
    let mut talk = three();
    let half = |report: &mut Report| report.figures = Figures { wanted_share: Some(0.5), ..Figures::default() };
    talk.speaking.remove(0);
    talk.says(S0, half);
    talk.pass(TICK);
    assert!(talk.effects.contains(&Effect::SetShare(S0, Share::of(50))));
    talk.effects.clear();
    talk.pass(Duration::from_secs(30));
    let shares: Vec<_> = talk.effects.iter().filter(|effect| matches!(effect, Effect::SetShare(S0, _))).collect();
    assert!(shares.len() > 2 && shares.last() == Some(&&Effect::SetShare(S0, Share::of(100))), "{shares:?}");
}

#[test]
fn a_server_that_says_how_many_it_takes_is_given_no_more() {
    let mut bench = Bench::new(2);
    let figures = Figures { connections_max: Some(30), ..Figures::default() };
    let said = Report { figures, ..Report::default() };
    let effects = bench.handle(Event::Report(S0, Source::AgentCheck, &said));
    assert!(effects.contains(&Effect::SetMax(S0, Some(30))), "{effects:?}");
    // A reload reads the file anew, and what was said is said again.
    assert!(bench.handle(Event::Reload(&[watched(0), watched(1)])).contains(&Effect::SetMax(S0, Some(30))));
    // Whoever says nothing any more has said nothing.
    let mut last = None;
    for _ in 0..1_300 {
        bench.now = bench.now + TICK;
        last = bench.handle(Event::Tick).into_iter().find(|effect| matches!(effect, Effect::SetMax(..))).or(last);
    }
    assert_eq!(last, Some(Effect::SetMax(S0, None)));
}

//! The two papers' mechanisms as they were published: the push-detection counter, and the feedback weights.

use super::reports::{Talk, report};
use super::*;
use crate::pure::detection::DetectMode;
use crate::pure::feedback::report::{Figures, Service, Use};
use crate::pure::feedback::weights::FeedbackMode;

const CLASSIC: Detection = Detection { mode: DetectMode::Classic, silence: true };

fn classic(number: u32) -> Watched {
    Watched { detection: CLASSIC, ..watched(number) }
}

fn bench() -> Bench {
    let mut bench = Bench::new(0);
    bench.handle(Event::Reload(&[classic(0), classic(1)]));
    bench
}

fn tick_on(bench: &mut Bench, span: Duration) {
    let end = bench.now + span;
    while bench.now < end {
        bench.now = bench.now + TICK;
        bench.handle(Event::Tick);
    }
}

#[test]
fn ten_ticks_without_a_report_suspect_and_fifty_fail() {
    let mut bench = bench();
    bench.handle(Event::Report(S0, Source::Agent, &report(1)));
    tick_on(&mut bench, CLASSIC_TICK * 10 - TICK);
    assert_eq!(bench.state(0), State::Up);
    tick_on(&mut bench, TICK);
    assert_eq!(bench.state(0), SUSPECT);
    tick_on(&mut bench, CLASSIC_TICK * 40 - TICK);
    assert_eq!(bench.state(0), SUSPECT);
    tick_on(&mut bench, TICK);
    assert_eq!(bench.state(0), State::Down);
    bench.handle(Event::Report(S0, Source::Agent, &report(2)));
    assert_eq!(bench.state(0), State::Up);
    assert_eq!(bench.state(1), State::Up, "one that never reported is not suspected");
}

#[test]
fn an_abnormal_report_stops_dispatch_at_once_and_any_other_zeroes_the_counter() {
    let mut bench = bench();
    bench.handle(Event::Report(S0, Source::Agent, &report(1)));
    bench.handle(Event::Report(S0, Source::Agent, &Report { service: Service::Abnormal, ..report(2) }));
    assert_eq!(bench.state(0), SUSPECT);
    bench.handle(Event::Report(S0, Source::Agent, &report(3)));
    assert_eq!(bench.state(0), State::Up);
    // What others see counts for nothing.
    assert_eq!(bench.handle(Event::Outcomes(S0, row(9))), []);
    assert_eq!(bench.state(0), State::Up);
}

#[test]
fn the_counter_is_shown_to_schedulers() {
    let mut bench = bench();
    bench.handle(Event::Report(S0, Source::Agent, &report(1)));
    let mut counters = Vec::new();
    for _ in 0..13 {
        bench.now = bench.now + TICK;
        counters.extend(bench.handle(Event::Tick).into_iter().filter_map(|effect| match effect {
            Effect::SetCounter(S0, counter) => Some(counter),
            _ => None,
        }));
    }
    assert_eq!(counters, [1, 2, 3]);
}

/// How often a healthy server is suspected in an hour: its agent reports after real_conn / max_conn × 2 s, and up to 100 ms
/// later. Both ways to detect see the same arrivals.
fn suspected_in_an_hour(detection: Detection, load: f64, seed: u64) -> u32 {
    let mut rng = Rng::new(seed);
    let mut bench = Bench::new(0);
    bench.handle(Event::Reload(&[Watched { detection, ..watched(0) }, watched(1)]));
    let interval = Duration::from_secs_f64(2.0 * load);
    let (mut next, mut sequence, mut suspected) = (Timestamp::ZERO, 0, 0);
    while bench.now < Timestamp::ZERO + Duration::from_secs(3_600) {
        bench.now = bench.now + TICK;
        let mut effects = Vec::new();
        if bench.now >= next {
            sequence += 1;
            let report = Report { sequence, promised_next: Some(interval), ..report(0) };
            effects.extend(bench.handle(Event::Report(S0, Source::Agent, &report)));
            next = next + interval + Duration::from_millis(100).mul_f64(rng.unit());
        }
        effects.extend(bench.handle(Event::Tick));
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::RunCheck(check) => effects.extend(bench.handle(Event::CheckDone(check.id, check.server, PASS))),
                Effect::SetState(S0, SUSPECT) => suspected += 1,
                _ => {}
            }
        }
    }
    suspected
}

#[test]
fn with_jitter_a_healthy_server_is_suspected_hundreds_of_times_an_hour_by_the_paper_and_never_by_us() {
    for (load, seed) in [(0.95, 1), (0.93, 2)] {
        let (paper, ours) =
            (suspected_in_an_hour(CLASSIC, load, seed), suspected_in_an_hour(Detection::default(), load, seed));
        assert!(paper > 100, "{paper} at {load}");
        assert_eq!(ours, 0, "at {load}");
    }
}

fn loaded(cpu: f64) -> Figures {
    let of = |amount| Some(Use { amount, capacity: 1.0 });
    Figures { cpu: of(cpu), memory: of(0.2), disk: of(0.0), network: of(0.0), ..Figures::default() }
}

fn weighed(mode: FeedbackMode) -> Talk {
    let feedback = Some(FeedbackConfig::of(mode));
    Talk::new(&[Watched { feedback, ..watched(0) }, Watched { feedback, ..watched(1) }])
}

fn shares_after(talk: &mut Talk, figures: [Figures; 2]) -> [Option<Share>; 2] {
    talk.effects.clear();
    for (slot, figures) in [S0, ServerSlot(1)].into_iter().zip(figures) {
        talk.says(slot, |report| report.figures = figures);
    }
    let effects = {
        talk.bench.now = talk.bench.now + TICK;
        talk.bench.handle(Event::Tick)
    };
    [S0, ServerSlot(1)].map(|wanted| {
        effects.iter().find_map(|effect| match effect {
            Effect::SetShare(slot, share) if *slot == wanted => Some(*share),
            _ => None,
        })
    })
}

#[test]
fn the_papers_weights_take_the_configured_ones_place_and_a_server_above_a_threshold_gets_nothing() {
    let mut talk = weighed(FeedbackMode::Classic);
    // L = .35·.4 + .25·.2 = .19 and .35·.76 + .05 = .316 with a use above H2.
    let shares = shares_after(&mut talk, [loaded(0.4), loaded(0.76)]);
    assert_eq!(shares, [Some(Share::of(81)), Some(Share::ZERO)]);
    let told = talk.bench.control.view(S0, talk.bench.now).unwrap().feedback.unwrap();
    assert!((told.rating.unwrap().load - 0.19).abs() < 1e-9);
}

#[test]
fn a_weight_of_one_and_an_agent_that_promises_nothing_keep_the_papers_weight_steady() {
    let feedback = Some(FeedbackConfig::of(FeedbackMode::Classic));
    let light = |number| Watched { share: Share::of(1), whole: Share::of(1), feedback, ..watched(number) };
    let mut bench = Bench::new(0);
    bench.handle(Event::Reload(&[light(0), light(1)]));
    let mut shares = Vec::new();
    for tick in 0..1_200u32 {
        bench.now = bench.now + TICK;
        let mut effects = Vec::new();
        if tick % 350 == 0 {
            let cpu = 0.4 + f64::from(tick % 3) * 0.01;
            let said = Report { figures: loaded(cpu), ..Report::default() };
            effects.extend(bench.handle(Event::Report(S0, Source::Agent, &said)));
        }
        effects.extend(bench.handle(Event::Tick));
        shares.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::SetShare(S0, share) => Some(share),
            _ => None,
        }));
    }
    assert_eq!(shares, [Share::of(81)]);
    assert_eq!(bench.control.view(S0, bench.now).unwrap().feedback.unwrap().gain, 1.0);
}

#[test]
fn a_server_that_nobody_may_choose_is_no_reason_to_leave_the_others_nothing() {
    let mut talk = weighed(FeedbackMode::Classic);
    talk.bench.handle(Event::Order(ServerSlot(1), Order::Maintain));
    let shares = shares_after(&mut talk, [loaded(0.9), loaded(0.1)]);
    assert_eq!(shares[0], None, "its weight counts");
}

#[test]
fn who_was_suspected_by_evidence_is_not_stranded_where_the_paper_takes_over() {
    let mut bench = Bench::new(2);
    bench.handle(Event::Outcomes(S0, row(3)));
    assert_eq!(bench.state(0), SUSPECT);
    bench.handle(Event::Reload(&[Watched { state: SUSPECT, ..classic(0) }, classic(1)]));
    assert_eq!(bench.state(0), State::Up);
}

#[test]
fn where_all_would_get_nothing_the_configured_weights_count() {
    let mut talk = weighed(FeedbackMode::Classic);
    assert_eq!(shares_after(&mut talk, [loaded(0.4), loaded(0.76)])[1], Some(Share::ZERO));
    let shares = shares_after(&mut talk, [loaded(0.9), loaded(0.9)]);
    assert_eq!(shares, [Some(Share::of(100)); 2]);
}

#[test]
fn our_weights_scale_the_configured_ones_and_are_halved_above_a_threshold() {
    let mut talk = weighed(FeedbackMode::Capacity);
    let shares = shares_after(&mut talk, [loaded(0.4), loaded(0.8)]);
    assert_eq!(shares[0], Some(Share::of(81)));
    let half = shares[1].unwrap().units() * 1_000 / Share::of(100).units();
    assert_eq!(half, 335, "half of 1 - (.35·.8 + .25·.2)");
}

#[test]
fn a_dry_run_shows_shares_and_uses_none() {
    let feedback = Some(FeedbackConfig { is_dry_run: true, ..FeedbackConfig::of(FeedbackMode::Classic) });
    let mut talk = Talk::new(&[Watched { feedback, ..watched(0) }, Watched { feedback, ..watched(1) }]);
    assert_eq!(shares_after(&mut talk, [loaded(0.4), loaded(0.76)]), [None, None]);
    let view = talk.bench.control.view(S0, talk.bench.now).unwrap().feedback.unwrap();
    assert!(view.is_dry_run && view.share == Some(Share::of(81)));
}

#[test]
fn factors_that_a_reload_changes_count_at_once() {
    let mut talk = weighed(FeedbackMode::Classic);
    shares_after(&mut talk, [loaded(0.4), loaded(0.4)]);
    let factors = crate::pure::feedback::weights::Factors { cpu: 100, memory: 0, disk: 0, network: 0 };
    let feedback = Some(FeedbackConfig { factors, ..FeedbackConfig::of(FeedbackMode::Classic) });
    let share = Share::of(81);
    talk.bench.handle(Event::Reload(&[0, 1].map(|number| Watched { feedback, share, ..watched(number) })));
    talk.bench.now = talk.bench.now + TICK;
    let effects = talk.bench.handle(Event::Tick);
    assert!(effects.contains(&Effect::SetShare(S0, Share::of(60))), "{effects:?}");
}

#[test]
fn a_server_that_says_nothing_for_30_to_40_seconds_is_asked_and_excluded_10_to_15_later() {
    let mut talk = weighed(FeedbackMode::Classic);
    talk.says(S0, |report| (report.figures, report.promised_next) = (loaded(0.4), None));
    let began = talk.bench.now;
    let (mut asked, mut excluded) = (None, None);
    while excluded.is_none() {
        talk.bench.now = talk.bench.now + TICK;
        talk.says(ServerSlot(1), |report| report.figures = loaded(0.1));
        for effect in talk.bench.handle(Event::Tick) {
            match effect {
                Effect::Ask(S0) => asked = asked.or(Some(talk.bench.now)),
                Effect::SetShare(S0, Share::ZERO) => excluded = Some(talk.bench.now),
                _ => {}
            }
        }
        assert!(talk.bench.now.since(began) < Duration::from_secs(70), "never excluded");
    }
    let (asked, excluded) = (asked.unwrap(), excluded.unwrap());
    let slack = Duration::from_secs(3);
    let within = |from: Timestamp, to: Timestamp, least: u64, most: u64| {
        let took = to.since(from);
        took >= Duration::from_secs(least) && took <= Duration::from_secs(most) + slack
    };
    assert!(within(began, asked, 30, 40), "{:?}", asked.since(began));
    assert!(within(asked, excluded, 10, 15), "{:?}", excluded.since(asked));
    talk.says(S0, |report| report.figures = loaded(0.4));
    talk.bench.now = talk.bench.now + TICK;
    assert!(talk.bench.handle(Event::Tick).iter().any(|effect| *effect == Effect::SetShare(S0, Share::of(81))));
}

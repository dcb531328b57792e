//! The rules of recovery one by one on a clock of their own, and 256 simulated worlds in which they must hold.

use super::*;

mod world;

const S0: ServerSlot = ServerSlot(0);
const S1: ServerSlot = ServerSlot(1);
const ALL: Means = Means { restart: true, wake: true, power: true, is_dry_run: false };
const TICK: Duration = Duration::from_millis(50);

fn no() -> Result<(), StepFailure> {
    Err(StepFailure::No("no answer".to_owned()))
}

fn server(number: u32, host: &str, means: Means) -> Recoverable {
    let id = ServerId { pool: "p".into(), server: format!("s{number}").into() };
    Recoverable { slot: ServerSlot(number), id, host: host.into(), means: Some(means), standing: Standing::InService }
}

/// Recovery at work on a clock of its own.
struct Bench {
    recovery: Recovery,
    now: Timestamp,
}

impl Bench {
    fn new(servers: &[Recoverable]) -> Self {
        let mut bench = Self { recovery: Recovery::new(1), now: Timestamp::ZERO + Duration::from_secs(1) };
        assert_eq!(bench.handle(Event::Reload(servers)), []);
        bench
    }

    /// One server of each of so many machines.
    fn of(count: u32, means: Means) -> Self {
        let servers: Vec<_> = (0..count).map(|number| server(number, &format!("h{number}"), means)).collect();
        Self::new(&servers)
    }

    fn handle(&mut self, event: Event<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.recovery.handle(self.now, event, &mut effects);
        effects
    }

    fn stands(&mut self, slot: ServerSlot, standing: Standing) {
        assert_eq!(self.handle(Event::Stands(slot, standing)), []);
    }

    /// The first step that begins within a while, what was passed over or given up before it, and after how long.
    fn next(&mut self, patience: Duration, speaking: &[ServerSlot]) -> (Option<(StepId, ServerSlot, Step)>, Duration) {
        let begun = self.now;
        while self.now.since(begun) < patience {
            for slot in speaking {
                assert_eq!(self.handle(Event::AgentHeard(*slot, Some(Duration::from_millis(100)))), []);
            }
            for effect in self.handle(Event::Tick) {
                if let Effect::Run(id, slot, step) = effect {
                    return (Some((id, slot, step)), self.now.since(begun));
                }
            }
            self.now = self.now + TICK;
        }
        (None, patience)
    }

    /// The step that begins now, or as soon as it does.
    fn step(&mut self, speaking: &[ServerSlot]) -> (StepId, Step) {
        let (id, _, step) = self.next(Duration::from_secs(1_000), speaking).0.expect("a step");
        (id, step)
    }

    fn done(&mut self, id: StepId, result: Result<(), StepFailure>) -> Vec<Effect> {
        self.handle(Event::StepDone(id, result))
    }

    /// Runs on, each step ending as told, and returns the steps that began, up to so many.
    fn steps(
        &mut self,
        count: usize,
        speaking: &[ServerSlot],
        ends: impl Fn(Step) -> Result<(), StepFailure>,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut next = None;
        while steps.len() < count {
            let (id, step) = match next.take() {
                Some(found) => found,
                None => match self.next(Duration::from_secs(1_000), speaking).0 {
                    Some((id, _, step)) => (id, step),
                    None => return steps,
                },
            };
            steps.push(step);
            next = self.done(id, ends(step)).into_iter().find_map(|effect| match effect {
                Effect::Run(id, _, step) => Some((id, step)),
                Effect::Tell(..) | Effect::GaveUp(..) => None,
            });
        }
        steps
    }

    fn outcomes(&self, slot: ServerSlot) -> Vec<(Step, String)> {
        let report = self.recovery.report(slot).unwrap();
        report.steps.into_iter().map(|attempt| (attempt.step, attempt.outcome.to_string())).collect()
    }
}

#[test]
fn a_dead_service_whose_agent_speaks_is_restarted_at_once() {
    let mut bench = Bench::of(2, ALL);
    bench.handle(Event::AgentHeard(S0, Some(Duration::from_secs(1))));
    assert_eq!(bench.handle(Event::Tick), []);
    bench.stands(S0, Standing::Doubted);
    assert_eq!(bench.handle(Event::Tick), [], "a doubt is no death");
    bench.stands(S0, Standing::Failed);
    let (found, waited) = bench.next(Duration::from_secs(1), &[S0]);
    let (id, slot, step) = found.unwrap();
    assert_eq!((slot, step, waited), (S0, Step::AgentRestart, Duration::ZERO));
    bench.done(id, Ok(()));
    // Ten seconds later its port and check are looked at.
    let (found, waited) = bench.next(Duration::from_secs(60), &[S0]);
    assert_eq!((found.unwrap().2, waited), (Step::Check, SETTLE));
    bench.stands(S0, Standing::InService);
    bench.done(found.unwrap().0, Ok(()));
    assert_eq!(bench.next(Duration::from_secs(600), &[S0]).0, None);
    let expected = [(Step::AgentRestart, "done".to_owned()), (Step::Check, "done".to_owned())];
    assert_eq!(bench.outcomes(S0), expected);
}

#[test]
fn a_service_that_is_back_before_its_time_needs_no_check() {
    let mut bench = Bench::of(1, ALL);
    bench.stands(S0, Standing::Failed);
    let (id, step) = bench.step(&[S0]);
    assert_eq!(step, Step::AgentRestart);
    bench.done(id, Ok(()));
    bench.stands(S0, Standing::InService);
    assert_eq!((bench.recovery.runs(), bench.next(Duration::from_secs(600), &[S0]).0), (0, None));
}

#[test]
fn restarts_twice_in_vain_lead_to_the_machine_once_its_agent_is_silent() {
    let mut bench = Bench::of(1, ALL);
    bench.stands(S0, Standing::Failed);
    let in_vain = |step| if step == Step::Check { no() } else { Ok(()) };
    let two = [Step::AgentRestart, Step::Check, Step::AgentRestart, Step::Check];
    assert_eq!(bench.steps(4, &[S0], in_vain), two);
    // While the agent speaks the machine is alive: it is told once more.
    assert_eq!(bench.steps(2, &[S0], in_vain), [Step::AgentRestart, Step::Check]);
    // Silent, and the machine answers ping: it is woken, and looked at until it is up.
    assert_eq!(bench.steps(3, &[], in_vain), [Step::Ping, Step::WakeOnLan, Step::Ping]);
}

#[test]
fn an_agent_that_does_not_speak_can_not_be_told() {
    let mut bench = Bench::of(1, ALL);
    bench.stands(S0, Standing::Failed);
    let steps = bench.steps(4, &[], |_| Ok(()));
    assert_eq!(steps, [Step::Ping, Step::Ping, Step::Ping, Step::WakeOnLan], "after two in vain");
    assert_eq!(bench.outcomes(S0)[1], (Step::AgentRestart, "failed: its agent does not speak".to_owned()));
}

#[test]
fn a_machine_that_does_not_answer_is_woken_then_power_cycled_then_its_service_is_started() {
    let mut bench = Bench::of(3, ALL);
    bench.stands(S0, Standing::Failed);
    let (id, step) = bench.step(&[]);
    assert_eq!(step, Step::Ping);
    let effects = bench.done(id, no());
    let Some(Effect::Run(id, S0, Step::WakeOnLan)) = effects.last() else { panic!("{effects:?}") };
    bench.done(*id, Ok(()));
    // It is looked at every five seconds, for three minutes.
    let begun = bench.now;
    let mut looks = 0;
    let power = loop {
        let (id, step) = bench.step(&[]);
        looks += 1;
        assert_eq!(step, Step::Ping);
        let effects = bench.done(id, no());
        if let Some(Effect::Run(id, S0, Step::PowerCycle)) = effects.last() {
            break *id;
        }
    };
    let took = bench.now.since(begun);
    assert!(looks >= 35 && took >= BOOT && took < BOOT + WAIT_MAX, "{looks} looks in {took:?}");
    bench.done(power, Ok(()));
    let (id, step) = bench.step(&[]);
    assert_eq!(step, Step::Ping);
    bench.done(id, Ok(()));
    // Up, and its agent speaks.
    let (id, step) = bench.step(&[S0]);
    assert_eq!(step, Step::AgentRestart);
    bench.done(id, Ok(()));
    assert_eq!(bench.step(&[S0]).1, Step::Check);
}

#[test]
fn a_machine_that_is_up_without_an_agent_is_checked_in_the_end() {
    let mut bench = Bench::of(1, Means { restart: false, power: false, ..ALL });
    bench.stands(S0, Standing::Failed);
    let (id, _) = bench.step(&[]);
    let effects = bench.done(id, no());
    let Some(Effect::Run(id, _, Step::WakeOnLan)) = effects.last() else { panic!("{effects:?}") };
    bench.done(*id, Ok(()));
    let (id, step) = bench.step(&[]);
    assert_eq!(step, Step::Ping);
    bench.done(id, Ok(()));
    let (found, waited) = bench.next(BOOT, &[]);
    assert_eq!(found.unwrap().2, Step::Check);
    assert!(waited > BOOT - BOOT_LOOK - TICK * 2, "{waited:?}");
}

#[test]
fn a_machine_that_could_not_be_asked_is_not_taken_for_dead() {
    let not_done = || Err(StepFailure::NotDone("not permitted".to_owned()));
    for restart in [true, false] {
        let mut bench = Bench::of(1, Means { restart, ..ALL });
        bench.stands(S0, Standing::Failed);
        assert_eq!(bench.steps(9, &[], |_| not_done()), [Step::Ping; HOURLY_MAX], "restart {restart}");
    }
    // Also where its agent was told twice in vain, and has been silent since.
    let mut bench = Bench::of(1, ALL);
    bench.stands(S0, Standing::Failed);
    let two = [Step::AgentRestart, Step::Check, Step::AgentRestart, Step::Check];
    assert_eq!(bench.steps(4, &[S0], |step| if step == Step::Check { no() } else { Ok(()) }), two);
    bench.now = bench.now + SPEAKS_UNPROMISED;
    assert_eq!(bench.steps(9, &[], |_| not_done()), [Step::Ping; HOURLY_MAX - 2]);
}

#[test]
fn the_waits_double_and_after_five_in_an_hour_it_is_given_up_and_said() {
    let mut bench = Bench::of(1, Means { restart: false, wake: false, power: false, is_dry_run: false });
    bench.stands(S0, Standing::Failed);
    let mut given_up = Vec::new();
    for attempt in 0..HOURLY_MAX {
        let (found, waited) = bench.next(Duration::from_secs(1_000), &[]);
        let low = if attempt == 0 { Duration::ZERO } else { WAIT.mul_f64(0.8) * (1 << (attempt - 1)) };
        let high = if attempt == 0 { Duration::ZERO } else { WAIT.mul_f64(1.2) * (1 << (attempt - 1)) + TICK };
        assert!((low..=high).contains(&waited), "attempt {attempt} after {waited:?}");
        given_up = bench.done(found.unwrap().0, Ok(()));
    }
    let why = "5 attempts in an hour were in vain".to_owned();
    assert_eq!(given_up.last(), Some(&Effect::GaveUp(server(0, "", ALL).id, why)));
    assert_eq!(bench.next(Duration::from_secs(7_200), &[]).0, None, "also not when the hour is over");
    assert!(bench.recovery.report(S0).unwrap().has_given_up);
    // Once it was back by itself, it is helped again.
    bench.stands(S0, Standing::InService);
    bench.now = bench.now + Duration::from_secs(120);
    bench.stands(S0, Standing::Failed);
    assert_eq!(bench.step(&[]).1, Step::Ping);
}

#[test]
fn waits_are_never_longer_than_five_minutes() {
    let mut patient = Patient::new(Timestamp::ZERO, &server(0, "h", ALL));
    let mut rng = Rng::new(3);
    let mut now = Timestamp::ZERO;
    for _ in 0..40 {
        assert_eq!(patient.failed_again(now, &mut rng), None);
        assert!(patient.due().unwrap().since(now) <= WAIT_MAX);
        now = now + WAIT_MAX;
    }
}

#[test]
fn a_service_that_dies_again_at_once_was_restarted_in_vain() {
    let mut bench = Bench::of(1, ALL);
    for round in 0..HOURLY_MAX {
        bench.stands(S0, Standing::Failed);
        let (found, waited) = bench.next(Duration::from_secs(1_000), &[S0]);
        assert!(round == 0 || waited >= WAIT.mul_f64(0.8) * (1 << (round - 1)), "round {round}: {waited:?}");
        bench.done(found.unwrap().0, Ok(()));
        bench.stands(S0, Standing::InService);
        bench.now = bench.now + Duration::from_secs(1);
    }
    bench.stands(S0, Standing::Failed);
    bench.now = bench.now + WAIT_MAX;
    assert!(matches!(bench.handle(Event::Tick).as_slice(), [Effect::GaveUp(..)]), "five in an hour");
}

#[test]
fn one_machine_gets_one_attempt_at_a_time() {
    let mut bench = Bench::new(&[server(0, "h", ALL), server(1, "h", ALL)]);
    bench.stands(S0, Standing::Failed);
    bench.stands(S1, Standing::Failed);
    let (first, step) = bench.step(&[S0, S1]);
    assert_eq!(step, Step::AgentRestart);
    assert_eq!(bench.next(Duration::from_secs(4), &[S0, S1]).0, None);
    // Its server is back while the step still runs: the machine is free when that has ended.
    bench.stands(S0, Standing::InService);
    assert_eq!(bench.next(Duration::from_secs(2), &[S0, S1]).0, None);
    bench.done(first, Ok(()));
    let (found, _) = bench.next(Duration::from_secs(1), &[S0, S1]);
    assert_eq!(found.map(|(_, slot, step)| (slot, step)), Some((S1, Step::AgentRestart)));
}

#[test]
fn power_is_not_switched_while_something_on_the_machine_is_alive() {
    // The other server there is in service: then no ping is needed to know that the machine lives.
    let mut bench = Bench::new(&[server(0, "h", ALL), server(1, "h", ALL)]);
    bench.stands(S0, Standing::Failed);
    assert_eq!(bench.steps(9, &[], |_| no()), []);
    let told: Vec<_> = bench.outcomes(S0).into_iter().map(|(step, _)| step).collect();
    assert_eq!(told[..2], [Step::AgentRestart; 2]);
    assert_eq!(bench.outcomes(S0)[2], (Step::PowerCycle, "failed: something on the machine is alive".to_owned()));
}

#[test]
fn a_power_cycle_that_has_begun_is_not_wanted_once_the_machine_is_back() {
    let means = Means { wake: false, ..ALL };
    let server_back = |bench: &mut Bench| bench.stands(S0, Standing::InService);
    let other_back = |bench: &mut Bench| bench.stands(S1, Standing::InService);
    let taken_out = |bench: &mut Bench| bench.stands(S0, Standing::Away);
    let agent_speaks = |bench: &mut Bench| assert_eq!(bench.handle(Event::AgentHeard(S1, None)), []);
    let turns: [fn(&mut Bench); 4] = [server_back, other_back, taken_out, agent_speaks];
    for turn in turns {
        let mut bench = Bench::new(&[server(0, "h", means), server(1, "h", means), server(2, "k", means)]);
        bench.stands(S0, Standing::Failed);
        bench.stands(S1, Standing::Failed);
        let (id, _) = bench.step(&[]);
        let effects = bench.done(id, no());
        let Some(Effect::Run(power, _, Step::PowerCycle)) = effects.last() else { panic!("{effects:?}") };
        assert!(bench.recovery.wants(bench.now, *power) && !bench.recovery.wants(bench.now, id));
        turn(&mut bench);
        assert!(!bench.recovery.wants(bench.now, *power));
    }
}

#[test]
fn power_is_not_switched_while_a_third_of_the_pool_is_down() {
    let means = Means { wake: false, ..ALL };
    for (count, others, is_switched) in [(4, 1, false), (7, 1, true), (7, 2, false), (1, 0, true), (2, 0, true)] {
        let mut bench = Bench::of(count, means);
        for number in 1..=others {
            bench.stands(ServerSlot(number), Standing::Doubted);
        }
        bench.stands(S0, Standing::Failed);
        let (id, _) = bench.step(&[]);
        let effects = bench.done(id, no());
        let is_run = matches!(effects.last(), Some(Effect::Run(_, S0, Step::PowerCycle)));
        assert_eq!(is_run, is_switched, "{others} others of {count}: {effects:?}");
    }
}

#[test]
fn servers_of_one_machine_that_died_do_not_keep_its_power_from_being_switched() {
    let means = Means { wake: false, ..ALL };
    let mut bench = Bench::new(&[server(0, "h", means), server(1, "h", means), server(2, "k", means)]);
    bench.stands(S0, Standing::Failed);
    bench.stands(S1, Standing::Failed);
    let (id, _) = bench.step(&[]);
    assert!(matches!(bench.done(id, no()).last(), Some(Effect::Run(_, _, Step::PowerCycle))));
}

#[test]
fn a_dry_run_decides_and_shows_everything_and_does_nothing_but_look() {
    let mut bench = Bench::of(1, Means { is_dry_run: true, ..ALL });
    bench.stands(S0, Standing::Failed);
    let steps = bench.steps(200, &[], |_| no());
    assert!(!steps.is_empty() && steps.iter().all(|step| !step.acts()), "{steps:?}");
    let told = bench.outcomes(S0);
    assert!(told.contains(&(Step::PowerCycle, "not done: dry run".to_owned())), "{told:?}");
    assert!(bench.recovery.report(S0).unwrap().is_dry_run);
    let mut bench = Bench::of(1, Means { is_dry_run: true, ..ALL });
    bench.stands(S0, Standing::Failed);
    assert_eq!(bench.steps(1, &[S0], |_| no()), [Step::Check]);
    assert_eq!(bench.outcomes(S0)[0], (Step::AgentRestart, "not done: dry run".to_owned()));
}

#[test]
fn what_a_dry_run_would_have_done_is_not_believed_to_be_done() {
    let reload = |bench: &mut Bench, is_dry_run| {
        let means = Means { is_dry_run, ..ALL };
        let servers = [Recoverable { standing: Standing::Failed, ..server(0, "h0", means) }];
        assert_eq!(bench.handle(Event::Reload(&servers)), []);
    };
    // As often as may be: woken, switched, given up; and in the middle of an attempt.
    for patience in [10_000, 20] {
        let mut bench = Bench::of(1, Means { is_dry_run: true, ..ALL });
        bench.stands(S0, Standing::Failed);
        let end = bench.now + Duration::from_secs(patience);
        while bench.now < end {
            let Some((id, ..)) = bench.next(Duration::from_secs(10), &[]).0 else { continue };
            bench.done(id, no());
        }
        assert_eq!(bench.recovery.report(S0).unwrap().has_given_up, patience > 1_000);
        reload(&mut bench, false);
        let steps = bench.steps(60, &[], |step| if step.acts() { Ok(()) } else { no() });
        let done: Vec<_> = steps.into_iter().filter(|step| step.acts()).collect();
        assert_eq!(done, [Step::WakeOnLan, Step::PowerCycle], "woken first, as if nothing had been done");
        // What was really done is still known after another dry run.
        reload(&mut bench, true);
        reload(&mut bench, false);
        assert_eq!(bench.recovery.hosts["h0"].done.switched.len(), 1);
    }
}

#[test]
fn an_operators_order_ends_it() {
    let mut bench = Bench::of(1, ALL);
    bench.stands(S0, Standing::Failed);
    let (id, _) = bench.step(&[S0]);
    bench.stands(S0, Standing::Away);
    bench.done(id, Ok(()));
    assert_eq!((bench.next(Duration::from_secs(600), &[S0]).0, bench.recovery.runs()), (None, 0));
}

#[test]
fn a_pool_without_recovery_is_left_alone() {
    let mut bench = Bench::new(&[Recoverable { means: None, ..server(0, "h", ALL) }]);
    bench.stands(S0, Standing::Failed);
    assert_eq!((bench.next(Duration::from_secs(600), &[S0]).0, bench.recovery.report(S0)), (None, None));
}

#[test]
fn a_step_whose_end_is_never_told_is_lost_and_the_next_attempt_comes() {
    let mut bench = Bench::of(1, ALL);
    bench.stands(S0, Standing::Failed);
    let (first, step) = bench.step(&[S0]);
    let (found, waited) = bench.next(Duration::from_secs(60), &[S0]);
    assert_eq!(found.unwrap().2, Step::AgentRestart);
    assert!(waited >= step.timeout() + STEP_LOST_AFTER + WAIT.mul_f64(0.8));
    assert_eq!(bench.done(first, Ok(())), [], "too late");
}

#[test]
fn a_reload_keeps_what_was_tried_and_ends_what_is_gone() {
    let mut bench = Bench::of(2, ALL);
    bench.stands(S0, Standing::Failed);
    bench.stands(S1, Standing::Failed);
    for _ in 0..2 {
        bench.next(Duration::from_secs(1), &[]);
    }
    assert_eq!(bench.recovery.runs(), 2);
    let stays = Recoverable { standing: Standing::Failed, ..server(0, "elsewhere", ALL) };
    assert_eq!(bench.handle(Event::Reload(&[stays])), []);
    assert_eq!(bench.recovery.report(S1), None);
    assert_eq!(bench.recovery.report(S0).unwrap().steps.len(), 1);
    // The steps at the former machines end, or are lost; then it goes on at the new one.
    let (found, waited) = bench.next(Duration::from_secs(60), &[]);
    assert_eq!(found.map(|(_, slot, step)| (slot, step)), Some((S0, Step::Ping)));
    assert!(waited >= WAIT.mul_f64(0.8));
    bench.next(Duration::from_secs(60), &[]);
    assert!(bench.recovery.runs() <= 1);
}

#[test]
fn machines_that_are_worked_on_at_once_are_bounded() {
    let count = u32::try_from(RUNS_MAX).unwrap() * 3;
    let mut bench = Bench::of(count, ALL);
    for number in 0..count {
        bench.stands(ServerSlot(number), Standing::Failed);
    }
    let began = bench.handle(Event::Tick).iter().filter(|effect| matches!(effect, Effect::Run(..))).count();
    assert_eq!((began, bench.recovery.runs()), (RUNS_MAX, RUNS_MAX));
}

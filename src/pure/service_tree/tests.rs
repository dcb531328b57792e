//! Tests of the exact order of stops and starts.

use proptest::prelude::*;

use super::*;

/// The paper's services: what clients reach is an address, and behind it are a proxy, an application and its database.
const NAMES: [&str; 5] = ["address", "database", "app", "proxy", "other"];

/// `app` needs `database`, `proxy` needs `address` and `app`.
fn tree() -> ServiceTree {
    ServiceTree::new(vec![vec![], vec![], vec![1], vec![0, 2], vec![]]).unwrap()
}

/// What a tree does after an event where steps end as `ends_well` says, in words.
fn run(tree: &mut ServiceTree, event: Event, ends_well: impl Fn(Step) -> bool) -> Vec<String> {
    run_at(tree, Timestamp::ZERO, event, ends_well)
}

fn run_at(tree: &mut ServiceTree, now: Timestamp, event: Event, ends_well: impl Fn(Step) -> bool) -> Vec<String> {
    let mut done = Vec::new();
    let mut effects = Vec::new();
    tree.handle(now, event, &mut effects);
    while !effects.is_empty() {
        let mut ended = None;
        for effect in effects.drain(..) {
            done.push(said(effect));
            if let Effect::Do(step) = effect {
                assert_eq!(ended, None, "one step at a time");
                ended = Some(ends_well(step));
            }
        }
        if let Some(is_good) = ended {
            tree.handle(now, Event::Ended(is_good), &mut effects);
        }
    }
    done
}

fn said(effect: Effect) -> String {
    match effect {
        Effect::Do(Step::Stop(at)) => format!("stop {}", NAMES[at]),
        Effect::Do(Step::Start(at)) => format!("start {}", NAMES[at]),
        Effect::Do(Step::Verify(at)) => format!("check {}", NAMES[at]),
        Effect::Tell(News::Failed(at)) => format!("{} failed", NAMES[at]),
        Effect::Tell(News::Restored(at)) => format!("{} restored", NAMES[at]),
        Effect::Tell(News::GivenUp(at)) => format!("{} given up", NAMES[at]),
        Effect::RestartOver(is_good) => format!("restart over: {is_good}"),
        Effect::RestartRefused => "restart refused".to_owned(),
    }
}

/// A service that fails: it takes two looks.
fn fail(tree: &mut ServiceTree, at: ServiceIndex, ends_well: impl Fn(Step) -> bool) -> Vec<String> {
    assert_eq!(run(tree, Event::Seen(at, false), |_| true), Vec::<String>::new(), "one look is none");
    run(tree, Event::Seen(at, false), ends_well)
}

#[test]
fn those_that_need_a_failed_service_are_stopped_last_first_and_started_again_in_order() {
    let mut tree = tree();
    assert_eq!(
        fail(&mut tree, 1, |_| true),
        [
            "database failed",
            "stop proxy",
            "stop app",
            "stop database",
            "start database",
            "check database",
            "database restored",
            "start app",
            "check app",
            "start proxy",
            "check proxy",
        ]
    );
    assert!(tree.is_well());
}

#[test]
fn services_that_do_not_need_it_are_left_alone() {
    assert_eq!(
        fail(&mut tree(), 3, |_| true),
        ["proxy failed", "stop proxy", "start proxy", "check proxy", "proxy restored"]
    );
    assert_eq!(
        fail(&mut tree(), 0, |_| true),
        [
            "address failed",
            "stop proxy",
            "stop address",
            "start address",
            "check address",
            "address restored",
            "start proxy",
            "check proxy",
        ]
    );
}

#[test]
fn what_is_still_bad_is_left_stopped_and_abnormal_until_it_runs() {
    let mut tree = tree();
    let done = fail(&mut tree, 1, |step| step != Step::Verify(1));
    assert_eq!(
        done,
        [
            "database failed",
            "stop proxy",
            "stop app",
            "stop database",
            "start database",
            "check database",
            "database given up",
            "stop database",
        ]
    );
    assert!(!tree.is_well() && tree.is_idle());
    for at in [1, 2, 3] {
        assert_eq!(run(&mut tree, Event::Seen(at, false), |_| true), Vec::<String>::new(), "it is not tried for ever");
    }
    // Somebody has brought it back.
    assert_eq!(
        run(&mut tree, Event::Seen(1, true), |_| true),
        ["database restored", "start app", "check app", "start proxy", "check proxy"]
    );
    assert!(tree.is_well());
}

#[test]
fn one_that_does_not_start_again_holds_up_only_those_that_need_it() {
    let mut tree = ServiceTree::new(vec![vec![], vec![0], vec![0], vec![1]]).unwrap();
    let done = fail(&mut tree, 0, |step| step != Step::Start(1));
    assert_eq!(
        done,
        [
            "address failed",
            "stop proxy",
            "stop app",
            "stop database",
            "stop address",
            "start address",
            "check address",
            "address restored",
            "start database",
            "database given up",
            "stop database",
            "start app",
            "check app",
        ]
    );
    assert!(!tree.is_well());
}

#[test]
fn a_restart_that_is_ordered_takes_the_last_service_or_the_one_that_was_given_up() {
    let mut tree = tree();
    assert_eq!(
        run(&mut tree, Event::Restart, |_| true),
        ["stop other", "start other", "check other", "other restored", "restart over: true"]
    );
    fail(&mut tree, 2, |step| step != Step::Start(2));
    assert_eq!(
        run(&mut tree, Event::Restart, |_| true),
        ["stop app", "start app", "check app", "app restored", "start proxy", "check proxy", "restart over: true",]
    );
    let failed = run(&mut tree, Event::Restart, |step| step != Step::Verify(4));
    assert_eq!(failed.last().unwrap(), "restart over: false");
    assert_eq!(run(&mut ServiceTree::new(vec![]).unwrap(), Event::Restart, |_| true), ["restart refused"]);
}

#[test]
fn an_order_is_refused_while_something_is_being_done() {
    let mut tree = tree();
    let mut effects = Vec::new();
    tree.handle(Timestamp::ZERO, Event::Restart, &mut effects);
    effects.clear();
    tree.handle(Timestamp::ZERO, Event::Restart, &mut effects);
    assert_eq!(effects, [Effect::RestartRefused]);
}

#[test]
fn one_that_fails_again_and_again_is_given_up_for_the_hour() {
    let mut tree = tree();
    let at = |minutes: u64| Timestamp::ZERO + Duration::from_secs(60 * minutes);
    let mut fail = |minutes| {
        run_at(&mut tree, at(minutes), Event::Seen(4, false), |_| true);
        run_at(&mut tree, at(minutes), Event::Seen(4, false), |_| true)
    };
    for minutes in 0..5 {
        assert_eq!(fail(minutes).last().unwrap(), "other restored");
    }
    assert_eq!(fail(5), ["other failed", "other given up", "stop other"]);
    run_at(&mut tree, at(64), Event::Seen(4, true), |_| true);
    run_at(&mut tree, at(64), Event::Seen(4, false), |_| true);
    let again = run_at(&mut tree, at(64), Event::Seen(4, false), |_| true);
    assert_eq!(again.last().unwrap(), "other restored", "the first four are more than an hour ago");
}

#[test]
fn one_that_is_given_up_without_a_try_is_not_stopped_under_those_that_need_it() {
    let mut tree = tree();
    for _ in 0..RESTARTS_MAX {
        assert_eq!(fail(&mut tree, 1, |_| true).last().unwrap(), "check proxy");
    }
    let done = fail(&mut tree, 1, |_| true);
    assert_eq!(done, ["database failed", "database given up", "stop proxy", "stop app", "stop database"]);
    assert!(!tree.is_well() && tree.is_idle());
}

#[test]
fn services_that_need_each_other_are_refused() {
    assert_eq!(ServiceTree::new(vec![vec![1], vec![]]).unwrap_err(), TreeError::NotAbove(0));
    assert_eq!(ServiceTree::new(vec![vec![0]]).unwrap_err(), TreeError::NotAbove(0));
    assert_eq!(ServiceTree::new(vec![vec![]; SERVICES_MAX + 1]).unwrap_err(), TreeError::TooMany);
}

proptest! {
    /// Whatever fails and however steps end: no service is started while one that it needs does not run, none is stopped while
    /// one that needs it runs, and it comes to rest.
    #[test]
    fn nothing_runs_without_what_it_needs(
        edges in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..3), 1..5),
        events in prop::collection::vec((0usize..5, any::<bool>(), any::<u16>()), 0..24),
    ) {
        let needs: Vec<Vec<usize>> = edges
            .iter()
            .enumerate()
            .map(|(at, needs)| if at == 0 { vec![] } else { needs.iter().map(|need| need.index(at)).collect() })
            .collect();
        let mut tree = ServiceTree::new(needs.clone()).unwrap();
        let runs = std::cell::RefCell::new(vec![true; needs.len()]);
        for (at, is_well, ends) in events {
            let count = std::cell::Cell::new(0u32);
            let step_ends = |step| {
                count.set(count.get() + 1);
                assert!(count.get() < 100, "it comes to rest");
                let is_good = ends >> (count.get() % 16) & 1 == 0;
                let mut runs = runs.borrow_mut();
                match step {
                    Step::Stop(of) => {
                        let dependent = (0..needs.len()).find(|other| needs[*other].contains(&of) && runs[*other]);
                        assert_eq!(dependent, None, "stopped under one that needs it");
                        runs[of] = false;
                    }
                    Step::Start(of) => assert!(needs[of].iter().all(|need| runs[*need]), "started too early"),
                    Step::Verify(of) => runs[of] = is_good,
                }
                is_good
            };
            if at == needs.len() {
                run(&mut tree, Event::Restart, step_ends);
            } else if at < needs.len() {
                let given_up = tree.services[at].state == State::GivenUp;
                if is_well && given_up && needs[at].iter().all(|need| runs.borrow()[*need]) {
                    runs.borrow_mut()[at] = true;
                    run(&mut tree, Event::Seen(at, true), step_ends);
                } else if !is_well {
                    run(&mut tree, Event::Seen(at, false), step_ends);
                }
            }
            prop_assert!(tree.is_idle());
        }
    }
}

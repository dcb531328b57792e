//! `run-queue`: golden orders by reported lengths and what was sent since, silent servers, and pools that change all the time.

use std::time::Duration;

use super::*;
use crate::pure::pool::Reports;

const PUSHED: Method = Method::ShortestRunQueue(Reports::Push);
const PULLED: Method = Method::ShortestRunQueue(Reports::Pull);

fn heard(candidates: &[Candidate], lengths: &[Option<u32>]) {
    for (candidate, length) in candidates.iter().zip(lengths) {
        match length {
            Some(length) => candidate.load.run_queue.hear(*length, Timestamp::NEVER),
            None => candidate.load.run_queue.fall_silent(),
        }
    }
}

/// Picks that are sent, as letters.
fn sent(picker: &mut Picker, candidates: &[Candidate], count: usize) -> String {
    let mut letters = String::new();
    for _ in 0..count {
        let Some(index) = picker.pick(&changed(candidates, &Tried::NONE)) else {
            letters.push('-');
            continue;
        };
        candidates[index].load.run_queue.count_sent();
        candidates[index].load.try_reserve(None);
        letters.push(char::from(b'A' + u8::try_from(index).unwrap()));
    }
    letters
}

#[test]
fn the_shortest_queue_fills_up_until_the_next_report() {
    for method in [PUSHED, PULLED] {
        let candidates = pool(&[1, 1, 1]);
        let mut picker = Picker::new(&method, Phase::Start);
        heard(&candidates, &[Some(3), Some(0), Some(2)]);
        // 3,0,2: B B until 3,2,2; then from behind B: C, B; then all have 3 and take turns.
        assert_eq!(sent(&mut picker, &candidates, 7), "BBCBCAB");
        // What was sent before does not count any more, and what is in flight never did.
        heard(&candidates, &[Some(0), Some(9), Some(9)]);
        assert_eq!(sent(&mut picker, &candidates, 3), "AAA");
    }
}

#[test]
fn weights_count() {
    let candidates = pool(&[3, 1]);
    let mut picker = Picker::new(&PULLED, Phase::Start);
    heard(&candidates, &[Some(0), Some(0)]);
    // (queue + 1) / weight: 1/3 1/1 A, 2/3 A, then 3/3 against 1/1, which is B's turn no less than A's.
    let order = sent(&mut picker, &candidates, 8);
    assert_eq!(order.matches('A').count(), 6, "{order}");
}

#[test]
fn a_server_that_does_not_answer_gets_nothing_until_it_does() {
    let candidates = pool(&[1, 1, 9]);
    let mut picker = Picker::new(&PULLED, Phase::Start);
    heard(&candidates, &[Some(50), Some(50), None]);
    assert!(
        !sent(&mut picker, &candidates, 20).contains('C'),
        "whatever its weight, and however long the others' queues are"
    );
    heard(&candidates, &[Some(50), Some(50), Some(0)]);
    assert_eq!(sent(&mut picker, &candidates, 5), "CCCCC");
}

#[test]
fn a_server_that_stopped_reporting_counts_by_its_requests_in_flight() {
    let candidates = pool(&[1, 1]);
    let mut picker = Picker::new(&PUSHED, Phase::Start);
    heard(&candidates, &[Some(4), None]);
    candidates[1].load.set_active(2);
    assert_eq!(sent(&mut picker, &candidates, 2), "BB");
    let order = sent(&mut picker, &candidates, 10);
    assert_eq!(order.matches('A').count(), 5, "{order}");
}

#[test]
fn without_any_report_it_is_wlc() {
    for method in [PUSHED, PULLED] {
        let (candidates, other) = (pool(&[2, 1, 4]), pool(&[2, 1, 4]));
        let mut picker = Picker::new(&method, Phase::Start);
        let mut wlc = Picker::new(&WLC, Phase::Start);
        assert_eq!(sent(&mut picker, &candidates, 30), sent(&mut wlc, &other, 30));
    }
}

#[test]
fn where_those_that_answer_are_full_the_silent_ones_serve() {
    let candidates = vec![candidate(0, 1, Some(1)), candidate(1, 1, None), candidate(2, 2, None)];
    let mut picker = Picker::new(&PULLED, Phase::Start);
    heard(&candidates, &[Some(0), None, None]);
    // Then by requests in flight for the weight.
    assert_eq!(sent(&mut picker, &candidates, 4), "ABCC");
}

#[test]
fn what_it_goes_by_is_told() {
    let mut told = String::new();
    for lengths in [[None, None], [Some(2), Some(1)], [Some(2), None]] {
        let candidates = pool(&[1, 1]);
        heard(&candidates, &lengths);
        let scheduler = build(&PULLED.into(), &Arc::default(), Phase::Start);
        let mut trace = Trace::recording();
        scheduler.pick(&changed(&candidates, &Tried::NONE), None, Timestamp::ZERO, &mut Rng::new(1), &mut trace);
        trace.notes().iter().for_each(|note| told += &format!("{}\n", note.text));
    }
    insta::assert_snapshot!(told, @r"
    run-queue: s0 (0 in flight, weight 1) has the least load for its weight: no server that may get it has told its run queue
    run-queue: s1 (0 in flight, weight 1) has the shortest run queue for its weight
    run-queue: s0 (0 in flight, weight 1) has the shortest run queue for its weight
    ");
}

#[test]
fn what_is_too_old_is_not_gone_by() {
    let candidates = pool(&[1, 1]);
    candidates[0].load.run_queue.hear(0, Timestamp::ZERO + Duration::from_secs(1));
    candidates[1].load.run_queue.hear(9, Timestamp::ZERO + Duration::from_secs(3));
    let scheduler = build(&PULLED.into(), &Arc::default(), Phase::Start);
    let pick = |seconds| {
        let now = Timestamp::ZERO + Duration::from_secs(seconds);
        scheduler.pick(&changed(&candidates, &Tried::NONE), None, now, &mut Rng::new(1), &mut Trace::off())
    };
    assert_eq!((pick(0), pick(2)), (Pick::Server(0), Pick::Server(1)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever is reported and happens to the pool, a pick is eligible, there is one exactly where a candidate is eligible, and
    /// a silent server is picked only where no eligible one has answered; the pick is the least of all.
    #[test]
    fn the_pick_is_eligible_and_the_least(
        is_pull in any::<bool>(),
        weights in prop::collection::vec(0u16..6, 1..8),
        lengths in prop::collection::vec(prop::option::of(0u32..20), 8),
        max in prop_oneof![Just(None), Just(Some(2)), Just(Some(0))],
        seed in any::<u64>(),
        changes in prop::collection::vec(change(), 0..60),
    ) {
        let mut world = World::new(&weights, max);
        let method = Method::ShortestRunQueue(if is_pull { Reports::Pull } else { Reports::Push });
        let mut picker = Picker::new(&method, Phase::Seeded(seed));
        heard(&world.candidates, &lengths);
        for change in changes {
            world.apply(change);
            let view = world.view();
            let eligible: Vec<usize> = (0..weights.len()).filter(|index| view.is_eligible(*index)).collect();
            let queue = |index: usize| world.candidates[index].load.run_queue.length(Timestamp::ZERO);
            let picked = picker.pick(&view);
            prop_assert_eq!(picked.is_some(), !eligible.is_empty());
            let Some(picked) = picked else { continue };
            prop_assert!(view.is_eligible(picked));
            let told: Vec<usize> = eligible.iter().copied().filter(|index| queue(*index).is_some()).collect();
            let active = |index: usize| u64::from(world.candidates[index].load.active());
            let (among, load): (&[usize], Box<dyn Fn(usize) -> u64>) = if told.is_empty() {
                (&eligible, Box::new(active))
            } else if is_pull {
                (&told, Box::new(|index| queue(index).unwrap() + 1))
            } else {
                (&eligible, Box::new(|index| queue(index).unwrap_or_else(|| active(index)) + 1))
            };
            prop_assert!(among.contains(&picked));
            let share = |index: usize| u64::from(world.candidates[index].share.units());
            for other in among {
                prop_assert!(load(picked) * share(*other) <= load(*other) * share(picked));
            }
            world.candidates[picked].load.run_queue.count_sent();
        }
    }
}

#[test]
fn a_large_pool_draws_two_and_takes_no_silent_one_beside_one_that_answers() {
    let candidates = pool(&[1; 100]);
    heard(&candidates, &[Some(1); 50]);
    let mut picker = Picker::new(&PULLED, Phase::Seeded(3));
    let picks: Vec<usize> = (0..400).filter_map(|_| picker.pick(&changed(&candidates, &Tried::NONE))).collect();
    let silent = picks.iter().filter(|index| **index >= 50).count();
    // Only where both that were drawn are silent: a quarter.
    assert!(picks.len() == 400 && (50..150).contains(&silent), "{silent}");
}

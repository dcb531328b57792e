//! Golden orders of the schedulers that count, worked by hand from the kernel's rules; each pick stays in flight unless said.

use std::time::Duration;

use super::*;

/// Picks of a pool whose requests stay in flight, as letters.
fn kept(method: &Method, weights: &[u16], before: &[u32], count: usize) -> String {
    let candidates = pool(weights);
    for (candidate, active) in candidates.iter().zip(before) {
        candidate.load.set_active(*active);
    }
    let mut picker = Picker::new(method, Phase::Start);
    let mut letters = String::new();
    for _ in 0..count {
        match picker.pick(&changed(&candidates, &Tried::NONE)) {
            Some(index) => {
                candidates[index].load.try_reserve(None);
                letters.push(char::from(b'A' + u8::try_from(index).unwrap()));
            }
            None => letters.push('-'),
        }
    }
    letters
}

#[test]
fn lc_takes_the_fewest_whatever_the_weight() {
    // 2,0,1: B (1), then B and C are equal.
    assert_eq!(kept(&Method::LeastConnections(Ties::First), &[1, 9, 1], &[2, 0, 1], 5), "BBCAB");
}

#[test]
fn sed_takes_the_shortest_delay() {
    // Weights 4,2,1: (a+1)/4, (b+1)/2, (c+1)/1.
    // 1/4 1/2 1 A; 2/4 1/2 1 A (first of equals); 3/4 1/2 1 B; 3/4 1 1 A; 1 1 1 A; 5/4 1 1 B; 5/4 3/2 1 C.
    assert_eq!(kept(&Method::ExpectedDelay(Ties::First), &[4, 2, 1], &[], 7), "AABAABC");
}

#[test]
fn nq_leaves_nobody_idle() {
    // As sed, but the first that is idle comes first: A, B, C; then (2/4 2/2 2/1) A, 3/4 A, 1 1 2: A, 5/4 1: B.
    assert_eq!(kept(&Method::NeverQueue(Ties::First), &[4, 2, 1], &[], 7), "ABCAAAB");
}

#[test]
fn fo_takes_the_highest_weight_until_it_is_out() {
    let mut candidates = pool(&[2, 5, 5, 0]);
    let mut picker = Picker::new(&Method::Failover, Phase::Start);
    assert_eq!(picker.pick(&changed(&candidates, &Tried::NONE)), Some(1));
    candidates[1].state = State::Down;
    assert_eq!(picker.pick(&changed(&candidates, &Tried::NONE)), Some(2));
    candidates[2].state = State::Down;
    assert_eq!(picker.pick(&changed(&candidates, &Tried::NONE)), Some(0));
    candidates[0].state = State::Down;
    assert_eq!(picker.pick(&changed(&candidates, &Tried::NONE)), None);
}

#[test]
fn ovf_fills_the_highest_weight_before_the_next() {
    // Weight 2 takes while it has at most 2 in flight: three requests; then weight 1 two.
    assert_eq!(kept(&Method::Overflow, &[1, 2], &[], 5), "BBBAA");
    // Where all are over, the fallback: least for the weight, 3/2 against 2/1.
    assert_eq!(kept(&Method::Overflow, &[1, 2], &[2, 3], 1), "B");
    let config = SchedulerConfig { method: Method::Overflow, fallback: Fallback::None };
    let candidates = pool(&[1]);
    candidates[0].load.set_active(2);
    let scheduler = build(&config, &Arc::default(), Phase::Start);
    let view = changed(&candidates, &Tried::NONE);
    let pick = scheduler.pick(&view, None, Timestamp::ZERO, &mut Rng::new(1), &mut Trace::off());
    assert_eq!(pick, Pick::NoneEligible);
}

#[test]
fn fb_wlc_goes_by_what_was_seen_and_by_weights_until_then() {
    let candidates = pool(&[1, 1]);
    let mut picker = Picker::new(&Method::SeenCapacity(Ties::First), Phase::Start);
    candidates[0].load.set_active(1);
    assert_eq!(picker.pick(&changed(&candidates, &Tried::NONE)), Some(1));
    // The first finishes 100 in a busy second, the second 20.
    for (candidate, millis) in candidates.iter().zip([10, 50]) {
        finishes(candidate, millis, 20);
    }
    // 2/100 against 1/20.
    assert_eq!(picker.pick(&changed(&candidates, &Tried::NONE)), Some(0));
    candidates[0].load.set_active(6);
    assert_eq!(picker.pick(&changed(&candidates, &Tried::NONE)), Some(1));
}

/// The server finishes, one after the other, answers that take so long.
fn finishes(candidate: &Candidate, millis: u64, count: u64) {
    for number in 0..count {
        let at = Timestamp::from_nanos(number * 100_000_000);
        candidate.load.pace.begins(at);
        candidate.load.pace.ends(at + Duration::from_millis(millis), true, 0);
    }
}

#[test]
fn fb_wlc_looks_again_at_what_was_seen_after_a_millisecond() {
    let candidates = pool(&[1, 1]);
    finishes(&candidates[0], 10, 20);
    finishes(&candidates[1], 50, 20);
    candidates[0].load.set_active(1);
    let scheduler = build(&Method::SeenCapacity(Ties::First).into(), &Arc::default(), Phase::Start);
    let view = changed(&candidates, &Tried::NONE);
    let pick = |micros: u64| {
        let now = Timestamp::ZERO + Duration::from_micros(micros);
        scheduler.pick(&view, None, now, &mut Rng::new(1), &mut Trace::off())
    };
    assert_eq!(pick(5_000_000), Pick::Server(0));
    finishes(&candidates[1], 1, 1_000);
    assert_eq!([pick(5_000_900), pick(5_001_000)], [Pick::Server(0), Pick::Server(1)]);
}

#[test]
fn where_no_two_can_be_drawn_of_a_large_pool_a_change_is_seen() {
    for method in [Method::WeightedLeastConnections(Ties::Rotate), Method::SeenCapacity(Ties::Rotate)] {
        let mut candidates = pool(&[1; 70]);
        let mut picker = Picker::new(&method, Phase::Seeded(1));
        for only in [3, 69, 5, 3] {
            for (index, candidate) in candidates.iter_mut().enumerate() {
                candidate.state = if index == only { State::Up } else { State::Maintenance };
            }
            assert_eq!(picker.pick(&changed(&candidates, &Tried::NONE)), Some(only));
        }
    }
}

#[test]
fn peak_ewma_avoids_the_slow() {
    let candidates = pool(&[1, 1, 1]);
    for (candidate, millis) in candidates.iter().zip([100, 1, 1]) {
        candidate.load.pace.answers(Timestamp::ZERO, Duration::from_millis(millis), 1);
    }
    let mut picker = Picker::new(&Method::PeakEwma, Phase::Seeded(3));
    // Whoever it is drawn with is better.
    assert!((0..1_000).all(|_| picker.pick(&changed(&candidates, &Tried::NONE)) != Some(0)));
}

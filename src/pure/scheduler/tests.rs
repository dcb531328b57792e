//! Golden orders worked by hand, textbook versions as oracles, shares over several workers, and pools that change all the time.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Candidate, Phase, Pick, PoolView, Scheduler, Timestamp, Trace, WrrMode, build};
use crate::base::id::{ServerId, ServerSlot};
use crate::base::rng::Rng;
use crate::pure::pool::{Address, Fallback, Method, SchedulerConfig, Server, Share, State, Ties, Tried, Wanted};

mod counting;
mod keyed;
mod run_queue;
mod telling;

thread_local! {
    static GENERATION: Cell<u64> = const { Cell::new(0) };
}

fn candidate(number: usize, weight: u16, max: Option<u32>) -> Candidate {
    Candidate {
        server: Arc::new(Server {
            id: ServerId { pool: "p".into(), server: format!("s{number}").into() },
            address: Address::Name("host".to_owned(), 80),
            weight,
            max,
            is_backup: false,
        }),
        slot: ServerSlot(u32::try_from(number).unwrap()),
        incarnation: 0,
        state: State::Up,
        share: Share::of(weight),
        max,
        load: Arc::default(),
    }
}

fn pool(weights: &[u16]) -> Vec<Candidate> {
    weights.iter().enumerate().map(|(number, weight)| candidate(number, *weight, None)).collect()
}

/// A view after a change.
fn changed<'a>(candidates: &'a [Candidate], tried: &'a Tried) -> PoolView<'a> {
    GENERATION.set(GENERATION.get() + 1);
    PoolView { candidates, generation: GENERATION.get(), wanted: Wanted::New, only_well: false, tried }
}

struct Picker {
    scheduler: Box<dyn Scheduler>,
    rng: Rng,
}

impl Picker {
    fn new(config: &Method, phase: Phase) -> Self {
        let seed = if let Phase::Seeded(seed) = phase { seed } else { 0 };
        Self { scheduler: build(&config.clone().into(), &Arc::default(), phase), rng: Rng::new(seed ^ 0xABCD) }
    }

    fn pick(&mut self, view: &PoolView<'_>) -> Option<usize> {
        match self.scheduler.pick(view, None, Timestamp::ZERO, &mut self.rng, &mut Trace::off()) {
            Pick::Server(index) => Some(index),
            Pick::NoneEligible => None,
        }
    }
}

const RR: Method = Method::RoundRobin;
const SMOOTH: Method = Method::WeightedRoundRobin(WrrMode::Smooth);
const IPVS: Method = Method::WeightedRoundRobin(WrrMode::Ipvs);
const WLC: Method = Method::WeightedLeastConnections(Ties::Rotate);
const WLC_FIRST: Method = Method::WeightedLeastConnections(Ties::First);
const ALL: [Method; 5] = [RR, SMOOTH, IPVS, WLC, WLC_FIRST];

fn letters(config: &Method, weights: &[u16], count: usize) -> String {
    let candidates = pool(weights);
    let view = changed(&candidates, &Tried::NONE);
    let mut picker = Picker::new(config, Phase::Start);
    (0..count)
        .map(|_| picker.pick(&view).map_or('-', |index| char::from(b'A' + u8::try_from(index).unwrap())))
        .collect()
}

#[test]
fn golden_orders() {
    assert_eq!(letters(&SMOOTH, &[5, 1, 1], 14), "AABACAAAABACAA");
    assert_eq!(letters(&SMOOTH, &[1, 1, 1], 6), "ABCABC");
    assert_eq!(letters(&SMOOTH, &[4, 3, 2], 9), "ABCABACBA");
    assert_eq!(letters(&SMOOTH, &[3, 1], 8), "AABAAABA");
    assert_eq!(letters(&IPVS, &[4, 3, 2], 18), "AABABCABCAABABCABC");
    assert_eq!(letters(&IPVS, &[2, 4, 0, 2], 8), "BABDBABD");
    assert_eq!(letters(&IPVS, &[1], 3), "AAA");
    assert_eq!(letters(&RR, &[9, 0, 1], 5), "ACACA");
    assert_eq!(letters(&WLC, &[1, 1, 1], 6), "ABCABC");
    assert_eq!(letters(&WLC_FIRST, &[1, 1, 1], 4), "AAAA");
}

#[test]
fn a_pool_without_eligible_servers_gives_none() {
    for config in ALL {
        assert_eq!(letters(&config, &[], 2), "--", "{config:?}");
        assert_eq!(letters(&config, &[0, 0], 2), "--", "{config:?}");
    }
}

/// The order of the kernel's list when requests stay in flight: weights 2, 1 fill as A B A A B A; or with turns, A B A B A A.
#[test]
fn wlc_fills_by_weight_without_division() {
    for (config, expected) in [(WLC_FIRST, "ABAABA"), (WLC, "ABABAA")] {
        let candidates = pool(&[2, 1]);
        let view = changed(&candidates, &Tried::NONE);
        let mut picker = Picker::new(&config, Phase::Start);
        let order: String = (0..6)
            .map(|_| {
                let index = picker.pick(&view).unwrap();
                candidates[index].load.try_reserve(None);
                char::from(b'A' + u8::try_from(index).unwrap())
            })
            .collect();
        assert_eq!(order, expected, "{config:?}");
    }
}

#[test]
fn the_largest_loads_and_weights_do_not_overflow() {
    let candidates = pool(&[65_535, 1]);
    for candidate in &candidates {
        candidate.load.set_active(u32::MAX);
    }
    let view = changed(&candidates, &Tried::NONE);
    assert_eq!(Picker::new(&WLC, Phase::Start).pick(&view), Some(0));
}

/// Weights 1:65535 would make the kernel walk 65 534 empty rounds once the heavy server is out.
#[test]
fn a_heavy_server_that_is_out_leaves_the_walk_short() {
    let mut candidates = pool(&[65_535, 1, 2]);
    candidates[0].state = State::Maintenance;
    let view = changed(&candidates, &Tried::NONE);
    let mut picker = Picker::new(&IPVS, Phase::Start);
    let order: Vec<_> = (0..6).map(|_| picker.pick(&view).unwrap()).collect();
    assert_eq!(order, [2, 1, 2, 2, 1, 2]);
    candidates[0] = candidate(0, 65_535, Some(0));
    let view = changed(&candidates, &Tried::NONE);
    let order: Vec<_> = (0..6).map(|_| picker.pick(&view).unwrap()).collect();
    assert_eq!(order.iter().filter(|index| **index == 2).count(), 4, "{order:?}");
}

/// One step of smooth weighted round robin as it is usually written, O(n): first among all that stand; where the one whose
/// turn it is can't take the request, among the eligible alone.
fn smooth_step(credits: &mut [i64], view: &PoolView<'_>) -> Option<usize> {
    let stands = |index: usize| view.stands(&view.candidates[index]);
    let best = smooth_step_among(credits, view, &stands)?;
    if view.is_eligible(best.0) {
        Some(apply(credits, best))
    } else {
        smooth_step_among(credits, view, &|index| view.is_eligible(index)).map(|best| apply(credits, best))
    }
}

fn apply(credits: &mut [i64], (index, after): (usize, Vec<i64>)) -> usize {
    credits.copy_from_slice(&after);
    index
}

fn smooth_step_among(
    credits: &[i64],
    view: &PoolView<'_>,
    takes_part: &dyn Fn(usize) -> bool,
) -> Option<(usize, Vec<i64>)> {
    let mut credits = credits.to_vec();
    let mut total = 0;
    let mut best: Option<usize> = None;
    for index in 0..credits.len() {
        if takes_part(index) {
            let weight = i64::from(view.candidates[index].share.units());
            credits[index] += weight;
            total += weight;
            if best.is_none_or(|best| credits[index] > credits[best]) {
                best = Some(index);
            }
        }
    }
    credits[best?] -= total;
    best.map(|best| (best, credits))
}

/// What happens to a pool between picks.
#[derive(Clone, Debug)]
enum Change {
    State(usize, State),
    Share(usize, u32),
    Load(usize, u32),
    Tried(usize),
    Forget,
    Generation,
    Panic(bool),
}

fn change() -> impl Strategy<Value = Change> {
    let state = prop_oneof![
        3 => Just(State::Up),
        1 => Just(State::Suspect { by_overload: false }),
        1 => Just(State::Down),
        1 => Just(State::Drained),
    ];
    prop_oneof![
        (any::<usize>(), state).prop_map(|(index, state)| Change::State(index, state)),
        (any::<usize>(), 0u32..2_000).prop_map(|(index, share)| Change::Share(index, share)),
        (any::<usize>(), 0u32..5).prop_map(|(index, load)| Change::Load(index, load)),
        any::<usize>().prop_map(Change::Tried),
        Just(Change::Forget),
        Just(Change::Generation),
        any::<bool>().prop_map(Change::Panic),
    ]
}

struct World {
    candidates: Vec<Candidate>,
    tried: Tried,
    wanted: Wanted,
    generation: u64,
}

impl World {
    fn new(weights: &[u16], max: Option<u32>) -> Self {
        let candidates = weights.iter().enumerate().map(|(number, weight)| candidate(number, *weight, max)).collect();
        Self { candidates, tried: Tried::NONE, wanted: Wanted::New, generation: 1 }
    }

    fn apply(&mut self, change: Change) {
        let count = self.candidates.len();
        match change {
            Change::State(index, state) => {
                self.candidates[index % count].state = state;
                self.generation += 1;
            }
            Change::Share(index, units) => {
                self.candidates[index % count].share = Share::from_units(units);
                self.generation += 1;
            }
            Change::Load(index, load) => {
                let candidate = &self.candidates[index % count];
                while candidate.load.active() > load {
                    candidate.load.release();
                }
                while candidate.load.active() < load {
                    candidate.load.try_reserve(None);
                }
            }
            Change::Tried(index) => self.tried.add(self.candidates[index % count].slot),
            Change::Forget => self.tried = Tried::NONE,
            Change::Generation => self.generation += 1,
            Change::Panic(is_panic) => self.wanted = if is_panic { Wanted::InPanic } else { Wanted::New },
        }
    }

    fn view(&self) -> PoolView<'_> {
        PoolView {
            candidates: &self.candidates,
            generation: self.generation,
            wanted: self.wanted,
            only_well: false,
            tried: &self.tried,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever happens to the pool, a pick is eligible, and there is one exactly where a candidate is eligible.
    #[test]
    fn never_an_ineligible_pick_and_always_one_where_there_is_any(
        which in 0usize..ALL.len(),
        weights in prop_oneof![
            prop::collection::vec(0u16..6, 1..8),
            prop::collection::vec(0u16..3, 60..140),
        ],
        max in prop_oneof![Just(None), Just(Some(2)), Just(Some(0))],
        seed in any::<u64>(),
        changes in prop::collection::vec(change(), 0..80),
    ) {
        let mut world = World::new(&weights, max);
        let mut picker = Picker::new(&ALL[which], Phase::Seeded(seed));
        for change in changes {
            world.apply(change);
            let view = world.view();
            for _ in 0..3 {
                let eligible = (0..weights.len()).any(|index| view.is_eligible(index));
                match picker.pick(&view) {
                    Some(index) => prop_assert!(view.is_eligible(index)),
                    None => prop_assert!(!eligible),
                }
            }
        }
    }

    /// Smooth weighted round robin is the textbook's, also while servers are full or were tried before.
    #[test]
    fn smooth_is_the_textbooks(
        weights in prop::collection::vec(0u16..20, 1..20),
        events in prop::collection::vec((any::<usize>(), 0u32..3), 0..60),
    ) {
        let mut world = World::new(&weights, Some(2));
        let mut credits = vec![0; weights.len()];
        let mut picker = Picker::new(&SMOOTH, Phase::Start);
        for (index, load) in events {
            world.apply(Change::Load(index, load));
            for _ in 0..5 {
                let expected = smooth_step(&mut credits, &world.view());
                prop_assert_eq!(picker.pick(&world.view()), expected);
            }
        }
    }

    /// In a large pool too, where nobody is full.
    #[test]
    fn smooth_is_the_textbooks_in_large_pools(weights in prop::collection::vec(0u16..400, 65..200)) {
        let world = World::new(&weights, None);
        let mut credits = vec![0; weights.len()];
        let mut picker = Picker::new(&SMOOTH, Phase::Start);
        for _ in 0..500 {
            prop_assert_eq!(picker.pick(&world.view()), smooth_step(&mut credits, &world.view()));
        }
    }

    /// At no time is a server more than one request ahead of its share, or two behind.
    #[test]
    fn smooth_is_smooth(weights in prop::collection::vec(1u16..60, 1..30), seed in any::<u64>()) {
        let candidates = pool(&weights);
        let view = changed(&candidates, &Tried::NONE);
        let mut picker = Picker::new(&SMOOTH, Phase::Seeded(seed));
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut counts = vec![0.0f64; weights.len()];
        for step in 1..400 {
            counts[picker.pick(&view).unwrap()] += 1.0;
            for (count, weight) in counts.iter().zip(&weights) {
                let due = f64::from(step) * f64::from(*weight) / total;
                prop_assert!((count - due).abs() < 2.0, "{count} for {due}");
            }
        }
    }

    /// The walk is the kernel's: rounds at falling levels, written out.
    #[test]
    fn the_walk_is_the_kernels(weights in prop::collection::vec(0u16..12, 1..12)) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let divisor = (1..=12u16).rev().find(|divisor| weights.iter().all(|weight| weight % divisor == 0)).unwrap();
        let mut expected = Vec::new();
        let mut level = *weights.iter().max().unwrap();
        while level > 0 {
            expected.extend((0..weights.len()).filter(|index| weights[*index] >= level));
            level -= divisor;
        }
        let candidates = pool(&weights);
        let view = changed(&candidates, &Tried::NONE);
        let mut picker = Picker::new(&IPVS, Phase::Start);
        for index in expected.iter().chain(&expected) {
            prop_assert_eq!(picker.pick(&view), Some(*index));
        }
    }
}

fn shares_of(config: &Method, weights: &[u16], workers: u64, seed: u64) -> Vec<f64> {
    const PICKS: usize = 10_000;
    let candidates = pool(weights);
    let view = changed(&candidates, &Tried::NONE);
    let mut rng = Rng::new(seed);
    let mut pickers: Vec<Picker> = (0..workers).map(|_| Picker::new(config, Phase::Seeded(rng.next_u64()))).collect();
    let mut counts: HashMap<usize, u32> = HashMap::new();
    for _ in 0..PICKS {
        let worker = usize::try_from(rng.below(workers)).unwrap();
        *counts.entry(pickers[worker].pick(&view).unwrap()).or_default() += 1;
    }
    (0..weights.len()).map(|index| f64::from(counts.get(&index).copied().unwrap_or(0)) / PICKS as f64).collect()
}

#[test]
fn shares_hold_over_all_workers_together() {
    let pools: [&[u16]; 6] = [&[5, 1, 1], &[4, 3, 2], &[1], &[100, 0, 1], &[7, 7, 7, 7, 1], &[65_535, 30_000, 2]];
    for config in [SMOOTH, IPVS] {
        for weights in pools {
            let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
            for workers in [1, 2, 4] {
                for seed in 0..16 {
                    // The kernel's order deals a long run to the heaviest first: its shares hold over whole periods only.
                    if config == IPVS && total > 2_000.0 {
                        continue;
                    }
                    for (weight, seen) in weights.iter().zip(shares_of(&config, weights, workers, seed)) {
                        let due = f64::from(*weight) / total;
                        assert!(
                            (seen - due).abs() < 0.02 && (*weight > 0 || seen == 0.0),
                            "{config:?} {weights:?}, {workers} workers, seed {seed}: {seen} for {due}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn round_robin_deals_evenly_over_all_workers_whatever_the_weights() {
    for workers in [1, 2, 4] {
        for seen in shares_of(&RR, &[1, 9, 3], workers, 7) {
            assert!((seen - 1.0 / 3.0).abs() < 0.002, "{seen}");
        }
    }
}

#[test]
fn workers_begin_at_different_places() {
    for config in [RR, SMOOTH, IPVS, WLC] {
        let candidates = pool(&[1; 40]);
        let view = changed(&candidates, &Tried::NONE);
        let first: std::collections::HashSet<_> =
            (0..16).map(|seed| Picker::new(&config, Phase::Seeded(seed)).pick(&view)).collect();
        assert!(first.len() > 8, "{config:?}: {first:?}");
    }
}

/// In a pool too large to scan, load follows weight: no server is far above its share.
#[test]
fn two_choices_keep_load_near_the_weights() {
    for seed in 0..8 {
        let weights: Vec<u16> = (0..100).map(|number| if number % 2 == 0 { 10 } else { 1 }).collect();
        let candidates = pool(&weights);
        let view = changed(&candidates, &Tried::NONE);
        let mut picker = Picker::new(&WLC, Phase::Seeded(seed));
        for _ in 0..5_500 {
            candidates[picker.pick(&view).unwrap()].load.try_reserve(None);
        }
        for (candidate, weight) in candidates.iter().zip(&weights) {
            // 5500 requests over a weight of 550: ten for each unit of weight.
            let due = 10 * u32::from(*weight);
            let active = candidate.load.active();
            assert!(active.abs_diff(due) <= 8, "seed {seed}: {active} in flight for {due}");
        }
    }
}

/// A server that comes back has no claims from the time it was away, and the others none against it.
#[test]
fn nobody_makes_up_for_time_away() {
    for config in [SMOOTH, IPVS] {
        let mut candidates = pool(&[1, 1, 1]);
        let mut picker = Picker::new(&config, Phase::Start);
        candidates[0].state = State::Down;
        let view = changed(&candidates, &Tried::NONE);
        for _ in 0..1_001 {
            assert_ne!(picker.pick(&view), Some(0));
        }
        candidates[0].state = State::Up;
        let view = changed(&candidates, &Tried::NONE);
        let mut counts = [0; 3];
        for _ in 0..30 {
            counts[picker.pick(&view).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (9..=11).contains(count)), "{config:?}: {counts:?}");
    }
}

#[test]
fn a_recording_trace_names_the_chosen_server_and_says_why() {
    for config in ALL {
        for size in [3, 100] {
            let candidates = pool(&vec![1; size]);
            let view = changed(&candidates, &Tried::NONE);
            let mut trace = Trace::recording();
            let scheduler = build(&config.clone().into(), &Arc::default(), Phase::Start);
            let Pick::Server(index) = scheduler.pick(&view, None, Timestamp::ZERO, &mut Rng::new(1), &mut trace) else {
                panic!("nobody was picked")
            };
            assert_eq!(trace.notes().len(), 1, "{config:?}");
            assert_eq!(trace.notes()[0].step, "scheduler");
            assert!(
                trace.notes()[0].text.contains(&format!("s{index} (0 in flight, weight 1)")),
                "{:?}",
                trace.notes()
            );
        }
    }
}

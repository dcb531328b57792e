//! Schedulers that go by key: the kernel's rules worked by hand, what a server that goes takes with it, shares and bounds.

use std::time::Duration;

use super::*;
use crate::pure::pool::HashMode;
use crate::pure::rule::hash::hash;
use crate::pure::scheduler::Memory;
use crate::pure::scheduler::locality::tests::servers_of;

const LBLC: Method = Method::Locality { keys_max: 65_536 };
const LBLCR: Method = Method::ReplicatedLocality { keys_max: 65_536, shrink_after: Duration::from_secs(60) };
const CBR: Method = Method::CostBounded { keys_max: 65_536, miss_cost: Duration::from_millis(10), choices: None };
const CH_BL: Method = Method::BoundedHash { percent: 125 };
const TABLES: [Method; 4] = [
    Method::DestinationHash(HashMode::Maglev),
    Method::SourceHash(HashMode::Maglev),
    Method::Maglev,
    Method::Rendezvous,
];

/// A keyed scheduler of one worker.
struct ByKey {
    scheduler: Box<dyn Scheduler>,
    memory: Arc<Memory>,
    rng: Rng,
}

impl ByKey {
    fn new(config: &SchedulerConfig, candidates: &[Candidate]) -> Self {
        let memory = Arc::new(Memory::new(config, candidates.iter().map(|candidate| &*candidate.server), None));
        Self { scheduler: build(config, &memory, Phase::Start), memory, rng: Rng::new(1) }
    }

    fn of(method: &Method, candidates: &[Candidate]) -> Self {
        Self::new(&method.clone().into(), candidates)
    }

    fn at(&mut self, candidates: &[Candidate], key: Option<u64>, now: Timestamp) -> Option<usize> {
        let view = changed(candidates, &Tried::NONE);
        match self.scheduler.pick(&view, key, now, &mut self.rng, &mut Trace::off()) {
            Pick::Server(index) => Some(index),
            Pick::NoneEligible => None,
        }
    }

    fn pick(&mut self, candidates: &[Candidate], key: u64) -> Option<usize> {
        self.at(candidates, Some(key), Timestamp::ZERO)
    }
}

fn key(number: u64) -> u64 {
    hash(&number.to_le_bytes(), 0)
}

#[test]
fn shares_of_keys_follow_weights_within_two_percent_of_all() {
    for method in TABLES {
        let candidates = pool(&[4, 2, 2, 1, 1]);
        let mut scheduler = ByKey::of(&method, &candidates);
        let mut counts = [0f64; 5];
        for number in 0..100_000 {
            counts[scheduler.pick(&candidates, key(number)).unwrap()] += 1.0 / 100_000.0;
        }
        let is_unweighted = matches!(method, Method::DestinationHash(_));
        let wanted = if is_unweighted { [0.2; 5] } else { [0.4, 0.2, 0.2, 0.1, 0.1] };
        for (share, wanted) in counts.iter().zip(wanted) {
            assert!((share - wanted).abs() < 0.02, "{}: {counts:?}", method.name());
        }
    }
}

#[test]
fn a_server_that_is_not_eligible_moves_its_own_keys_and_no_others() {
    for method in TABLES.into_iter().chain([CH_BL]) {
        let mut candidates = pool(&[1; 10]);
        let mut scheduler = ByKey::of(&method, &candidates);
        let before: Vec<usize> = (0..5_000).map(|number| scheduler.pick(&candidates, key(number)).unwrap()).collect();
        candidates[3].state = State::Down;
        let mut counts = [0u32; 10];
        for (number, home) in (0..).zip(&before) {
            let now = scheduler.pick(&candidates, key(number)).unwrap();
            assert_ne!(now, 3);
            assert!(*home == 3 || now == *home, "{} moved a key of another", method.name());
            counts[now] += 1;
        }
        let most = counts.iter().max().unwrap();
        assert!(f64::from(*most) <= 1.25 * 5_000.0 / 9.0, "{}: {counts:?}", method.name());
        candidates[3].state = State::Up;
        let after: Vec<usize> = (0..5_000).map(|number| scheduler.pick(&candidates, key(number)).unwrap()).collect();
        assert_eq!(before, after, "{}", method.name());
    }
}

#[test]
fn a_request_without_a_key_goes_by_the_fallback_and_strict_keys_lead_nowhere() {
    let mut candidates = pool(&[1, 1]);
    candidates[0].load.set_active(5);
    for method in TABLES.into_iter().chain([CH_BL, LBLC, LBLCR, CBR]) {
        let strict = SchedulerConfig { method: method.clone(), fallback: Fallback::None };
        for config in [strict, method.clone().into()] {
            let mut scheduler = ByKey::new(&config, &candidates);
            assert_eq!(scheduler.at(&candidates, None, Timestamp::ZERO), Some(1), "{}", method.name());
        }
    }
    let strict = SchedulerConfig { method: Method::Maglev, fallback: Fallback::None };
    let mut scheduler = ByKey::new(&strict, &candidates);
    let number = (0..).find(|number| scheduler.pick(&candidates, key(*number)) == Some(1)).unwrap();
    candidates[1].state = State::Down;
    assert_eq!(scheduler.pick(&candidates, key(number)), None);
    assert_eq!(ByKey::of(&Method::Maglev, &candidates).pick(&candidates, key(number)), Some(0));
}

#[test]
fn the_kernels_modes_deal_buckets_in_file_order() {
    let candidates = pool(&[1, 1, 1, 1]);
    let mut scheduler = ByKey::of(&Method::DestinationHash(HashMode::Ipvs), &candidates);
    let mut counts = [0u32; 4];
    for number in 0..10_000 {
        counts[scheduler.pick(&candidates, key(number)).unwrap()] += 1;
    }
    assert!(counts.iter().all(|count| count.abs_diff(2_500) < 300), "{counts:?}");
}

#[test]
fn lblc_moves_a_key_when_its_server_is_overloaded_and_another_half_idle() {
    let mut candidates = pool(&[4, 4]);
    let mut scheduler = ByKey::of(&LBLC, &candidates);
    let home = scheduler.pick(&candidates, 7).unwrap();
    let other = 1 - home;
    // Five of four is too many, but two are half of four: nobody is half idle.
    candidates[home].load.set_active(5);
    candidates[other].load.set_active(2);
    assert_eq!(scheduler.pick(&candidates, 7), Some(home));
    candidates[other].load.set_active(1);
    assert_eq!(scheduler.pick(&candidates, 7), Some(other));
    // It has moved, and stays.
    candidates[home].load.set_active(0);
    assert_eq!(scheduler.pick(&candidates, 7), Some(other));
    // A server that is out loses the key for good.
    candidates[other].state = State::Down;
    assert_eq!(scheduler.pick(&candidates, 7), Some(home));
    candidates[other].state = State::Up;
    assert_eq!(scheduler.pick(&candidates, 7), Some(home));
}

#[test]
fn lblcr_gives_a_key_more_servers_under_load_and_takes_them_back() {
    let candidates = pool(&[2, 2, 2]);
    let mut scheduler = ByKey::of(&LBLCR, &candidates);
    let home = scheduler.pick(&candidates, 7).unwrap();
    candidates[home].load.set_active(3);
    let second = scheduler.pick(&candidates, 7).unwrap();
    assert_ne!(second, home);
    assert_eq!(servers_of(&scheduler.memory, 7), [home, second]);
    // The least loaded of the set.
    candidates[second].load.set_active(1);
    assert_eq!(scheduler.pick(&candidates, 7), Some(second));
    // A minute later the most loaded member goes.
    let later = Timestamp::ZERO + Duration::from_secs(61);
    assert_eq!(scheduler.at(&candidates, Some(7), later), Some(second));
    assert_eq!(servers_of(&scheduler.memory, 7), [second]);
}

#[test]
fn a_request_that_is_sent_again_moves_no_key() {
    for method in [LBLC, LBLCR] {
        let candidates = pool(&[4; 3]);
        let mut scheduler = ByKey::of(&method, &candidates);
        let home = scheduler.pick(&candidates, 7).unwrap();
        let mut tried = Tried::NONE;
        tried.add(candidates[home].slot);
        let view = PoolView { tried: &tried, ..changed(&candidates, &Tried::NONE) };
        let asked = scheduler.scheduler.pick(&view, Some(7), Timestamp::ZERO, &mut scheduler.rng, &mut Trace::off());
        assert_ne!(asked, Pick::Server(home));
        assert_eq!(servers_of(&scheduler.memory, 7), [home], "{}", method.name());
    }
}

#[test]
fn keys_that_come_while_nobody_is_there_drive_no_home_out() {
    let mut candidates = pool(&[1; 2]);
    let few = Method::Locality { keys_max: 64 };
    let mut scheduler = ByKey::of(&few, &candidates);
    let home = scheduler.pick(&candidates, 7).unwrap();
    candidates.iter_mut().for_each(|candidate| candidate.state = State::Down);
    assert!((0..1_000).all(|number| scheduler.pick(&candidates, key(number)).is_none()));
    assert_eq!(servers_of(&scheduler.memory, 7), [home]);
}

#[test]
fn bounded_loads_are_bounded() {
    let candidates = pool(&[1; 8]);
    let mut scheduler = ByKey::of(&CH_BL, &candidates);
    // All for one key.
    for _ in 0..800 {
        let index = scheduler.pick(&candidates, key(5)).unwrap();
        candidates[index].load.try_reserve(None);
    }
    let most = candidates.iter().map(|candidate| candidate.load.active()).max().unwrap();
    assert!((100..=126).contains(&most), "{most}");
}

#[test]
fn cbr_keeps_keys_at_home_and_spreads_new_ones() {
    let candidates = pool(&[1; 8]);
    let mut scheduler = ByKey::of(&CBR, &candidates);
    let homes: Vec<usize> = (0..8_000).map(|number| scheduler.pick(&candidates, key(number)).unwrap()).collect();
    let again: Vec<usize> = (0..8_000).map(|number| scheduler.pick(&candidates, key(number)).unwrap()).collect();
    assert_eq!(homes, again);
    let mut counts = [0u32; 8];
    homes.iter().for_each(|home| counts[*home] += 1);
    assert!(counts.iter().all(|count| count.abs_diff(1_000) < 125), "{counts:?}");
}

#[test]
fn cbr_gives_a_hot_key_several_homes() {
    let candidates = pool(&[1; 8]);
    let mut scheduler = ByKey::of(&CBR, &candidates);
    let mut rng = Rng::new(3);
    for _ in 0..20_000 {
        let number = if rng.below(4) == 0 { 0 } else { 1 + rng.below(5_000) };
        scheduler.pick(&candidates, key(number)).unwrap();
    }
    // A quarter of all requests, where a server's part is an eighth: 2 · ¼ · 8, and what chance added at first.
    let homes = servers_of(&scheduler.memory, key(0)).len();
    assert!((4..=6).contains(&homes), "{homes}");
    let others = (1..5_000).map(|number| servers_of(&scheduler.memory, key(number)).len()).max().unwrap();
    assert_eq!(others, 1);
}

#[test]
fn in_a_large_pool_cbr_takes_no_key_for_hot_by_its_first_requests() {
    let candidates = pool(&[1; 2_000]);
    let mut scheduler = ByKey::of(&CBR, &candidates);
    for round in 0..3 {
        for number in 0..1_000 {
            scheduler.pick(&candidates, key(number)).unwrap();
        }
        let most = (0..1_000).map(|number| servers_of(&scheduler.memory, key(number)).len()).max();
        assert_eq!(most, Some(1), "{round}");
    }
    // One that is hot has homes among those that are drawn for it, whatever it finds there.
    for _ in 0..1_000 {
        let home = scheduler.pick(&candidates, key(0)).unwrap();
        candidates[home].load.try_reserve(None);
    }
    assert_eq!(servers_of(&scheduler.memory, key(0)).len(), 8);
}

#[test]
fn cbr_leaves_home_only_where_waiting_costs_more_than_a_miss_and_stays_where_it_went() {
    let candidates = pool(&[1; 2]);
    let mut scheduler = ByKey::of(&CBR, &candidates);
    let mut at_home: Vec<u64> = (0..400).collect();
    // Each comes often enough to be worth a place in another cache.
    for _ in 0..10 {
        at_home.retain(|number| scheduler.pick(&candidates, key(*number)) == Some(0));
    }
    for candidate in &candidates {
        candidate.load.pace.answers(Timestamp::ZERO, Duration::from_millis(2), 1);
    }
    // Ten in front, 2 ms each: 20 ms saved are not more than twice a miss of 10 ms.
    candidates[0].load.set_active(10);
    assert!(at_home.iter().all(|number| scheduler.pick(&candidates, key(*number)) == Some(0)));
    candidates[0].load.set_active(12);
    let gone: Vec<u64> =
        at_home.iter().copied().filter(|number| scheduler.pick(&candidates, key(*number)) == Some(1)).collect();
    // As many as were saved up, and one in twenty of these.
    assert!((20..=20 + 400 / 20).contains(&gone.len()), "{} of {}", gone.len(), at_home.len());
    assert!(gone.iter().all(|number| scheduler.pick(&candidates, key(*number)) == Some(1)));
    assert_eq!(servers_of(&scheduler.memory, key(gone[0])), [0, 1]);
    // A key that comes seldom stays, and waits.
    let cold = (1_000..).find(|number| {
        candidates[0].load.set_active(0);
        candidates[1].load.set_active(1);
        scheduler.pick(&candidates, key(*number)) == Some(0)
    });
    candidates[0].load.set_active(12);
    candidates[1].load.set_active(0);
    assert_eq!(scheduler.pick(&candidates, key(cold.unwrap())), Some(0));
}

#[test]
fn keys_whose_home_is_out_come_back_with_it() {
    let mut candidates = pool(&[1; 4]);
    let mut scheduler = ByKey::of(&CBR, &candidates);
    let homes: Vec<usize> = (0..1_000).map(|number| scheduler.pick(&candidates, key(number)).unwrap()).collect();
    candidates[2].state = State::Down;
    let mut stand_ins = HashMap::new();
    for _ in 0..2 {
        for (number, home) in (0..).zip(&homes) {
            let now = scheduler.pick(&candidates, key(number)).unwrap();
            assert!(now == *home || *home == 2 && now != 2);
            assert_eq!(*stand_ins.entry(number).or_insert(now), now, "a key changes its stand-in");
        }
    }
    candidates[2].state = State::Up;
    let back: Vec<usize> = (0..1_000).map(|number| scheduler.pick(&candidates, key(number)).unwrap()).collect();
    assert_eq!(homes, back);
}

#[test]
fn homes_survive_another_list_of_servers() {
    let candidates = pool(&[1; 4]);
    let mut scheduler = ByKey::of(&LBLC, &candidates);
    let homes: Vec<usize> = (0..500).map(|number| scheduler.pick(&candidates, key(number)).unwrap()).collect();
    // The first is gone, the others have moved up.
    let left = candidates[1..].to_vec();
    let config = SchedulerConfig::from(LBLC);
    let servers = left.iter().map(|candidate| &*candidate.server);
    let memory = Arc::new(Memory::new(&config, servers, Some(&scheduler.memory)));
    let mut scheduler = ByKey { scheduler: build(&config, &memory, Phase::Start), memory, rng: Rng::new(1) };
    for (number, home) in (0..).zip(&homes) {
        let now = scheduler.pick(&left, key(number)).unwrap();
        assert!(*home == 0 || now + 1 == *home);
    }
}

#[test]
fn a_share_that_rises_brings_keys_little_by_little_and_takes_none_back() {
    for method in TABLES {
        let mut candidates = pool(&[8; 4]);
        let mut scheduler = ByKey::of(&method, &candidates);
        candidates[1].state = State::Recovering;
        let mut before: Vec<u64> = Vec::new();
        let mut last = 0;
        for part in [1, 2, 4, 8] {
            candidates[1].share = Share::from_units(Share::of(8).units() * part / 8);
            let has: Vec<u64> = (0..4_000)
                .filter(|number| {
                    // In its stead the least loaded is taken, which must not be this one by chance.
                    candidates[1].load.set_active(1);
                    scheduler.pick(&candidates, key(*number)) == Some(1)
                })
                .collect();
            assert!(before.iter().all(|number| has.contains(number)), "{}", method.name());
            assert!(has.len() > last, "{}: {} after {last}", method.name(), has.len());
            (last, before) = (has.len(), has);
        }
    }
}

proptest! {
    /// Whatever the states, places and keys: a pick is eligible, and where anybody is, there is one.
    #[test]
    fn picks_by_key_are_eligible_and_come_where_anybody_is(
        servers in prop::collection::vec((0u16..4, 0u8..4, 0u32..4, prop::option::of(1u32..4)), 1..12),
        keys in prop::collection::vec(0u64..30, 1..60),
        which in 0usize..9,
    ) {
        let of_two = Method::CostBounded { keys_max: 64, miss_cost: Duration::from_millis(10), choices: Some(2) };
        let mut methods = TABLES.into_iter().chain([CH_BL, LBLC, LBLCR, CBR, of_two]);
        let method = methods.nth(which).unwrap();
        let mut candidates: Vec<Candidate> =
            servers.iter().enumerate().map(|(number, (weight, _, _, max))| candidate(number, *weight, *max)).collect();
        let mut scheduler = ByKey::of(&method, &candidates);
        for (step, number) in keys.iter().enumerate() {
            for (candidate, (_, state, active, _)) in candidates.iter_mut().zip(&servers) {
                let turn = (step as u32 + u32::from(*state)) % 5;
                candidate.state = if turn == 0 { State::Down } else { State::Up };
                candidate.load.set_active((active + step as u32) % 5);
            }
            let view = changed(&candidates, &Tried::NONE);
            let pick = scheduler.scheduler.pick(&view, Some(key(*number)), Timestamp::ZERO, &mut scheduler.rng, &mut Trace::off());
            match pick {
                Pick::Server(index) => prop_assert!(view.is_eligible(index)),
                Pick::NoneEligible => prop_assert!((0..candidates.len()).all(|index| !view.is_eligible(index))),
            }
        }
    }
}

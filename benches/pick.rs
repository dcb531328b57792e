//! What a choice costs: by every scheduler among 4, 16, 64 and 5 000 servers, whose weights all differ or are all the same;
//! where half the servers are out; and for the scheduler that goes by it, where each was seen to work. Choices come ten
//! microseconds after each other.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pointsman::base::id::{ServerId, ServerSlot};
use pointsman::base::rng::Rng;
use pointsman::base::time::Timestamp;
use pointsman::pure::pool::{
    Address, Candidate, HashMode, Method, PoolView, Reports, SchedulerConfig, Server, Share, State, Ties, Tried,
    Wanted, WrrMode,
};
use pointsman::pure::scheduler::{Memory, Phase, Pick, build};
use pointsman::pure::trace::Trace;

fn pool(count: u32, weight_of: impl Fn(u32) -> u16, is_out: impl Fn(u32) -> bool) -> Vec<Candidate> {
    (0..count)
        .map(|number| Candidate {
            server: Arc::new(Server {
                id: ServerId { pool: "pool".into(), server: format!("server-{number}").into() },
                address: Address::Name("host".to_owned(), 80),
                weight: weight_of(number),
                max: Some(1_000_000),
                is_backup: false,
            }),
            slot: ServerSlot(number),
            incarnation: 0,
            state: if is_out(number) { State::Down } else { State::Up },
            share: Share::of(weight_of(number)),
            max: Some(1_000_000),
            load: Arc::default(),
        })
        .collect()
}

/// A pool whose servers were seen to work, each at a pace of its own.
fn measured(count: u32) -> Vec<Candidate> {
    let candidates = pool(count, |_| 1, |_| false);
    for (number, candidate) in (0..).zip(&candidates) {
        let took = Duration::from_micros(2_000 + 100 * (number % 64));
        candidate.load.pace.begins(Timestamp::ZERO);
        candidate.load.pace.ends(Timestamp::ZERO + took, true, 0);
    }
    candidates
}

/// Picks with some requests in flight, so that loads differ and change.
fn picks(criterion: &mut Criterion, name: &str, method: &Method) {
    let config = &SchedulerConfig::from(method.clone());
    let mut group = criterion.benchmark_group(name);
    for count in [4u32, 16, 64, 5_000] {
        let same = pool(count, |_| 1, |_| false);
        let distinct = pool(count, |number| u16::try_from(number % 5_000 + 1).unwrap_or(1), |_| false);
        let half_out = pool(count, |number| u16::try_from(number % 7 + 1).unwrap_or(1), |number| number % 2 == 0);
        for candidate in same.iter().chain(&distinct).chain(&half_out) {
            candidate.load.run_queue.hear(candidate.slot.0 % 8, Timestamp::NEVER);
        }
        let mut pools = vec![("same", same), ("distinct", distinct), ("half out", half_out)];
        if matches!(method, Method::SeenCapacity(_)) {
            pools.push(("measured", measured(count)));
        }
        for (kind, candidates) in pools {
            let view = PoolView {
                candidates: &candidates,
                generation: 1,
                wanted: Wanted::New,
                only_well: false,
                tried: &Tried::NONE,
            };
            let memory = Memory::new(config, candidates.iter().map(|candidate| &*candidate.server), None);
            let scheduler = build(config, &Arc::new(memory), Phase::Seeded(7));
            let (mut rng, mut keys, mut picked) = (Rng::new(7), Rng::new(8), 0);
            let mut in_flight = std::collections::VecDeque::with_capacity(256);
            group.bench_function(BenchmarkId::new(kind, count), |bencher| {
                bencher.iter(|| {
                    // One of 10 000 keys.
                    let key = (keys.next_u64() % 10_000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    // Ten seconds, again and again: what was seen holds for a minute.
                    picked = (picked + 1) % 1_000_000;
                    let now = Timestamp::from_nanos(1_000_000_000 + 10_000 * picked);
                    let pick = scheduler.pick(black_box(&view), Some(key), now, &mut rng, &mut Trace::off());
                    if let Pick::Server(index) = pick
                        && let Some(candidate) = candidates.get(index)
                    {
                        candidate.load.try_reserve(None);
                        in_flight.push_back(index);
                    }
                    if in_flight.len() > 200
                        && let Some(candidate) = in_flight.pop_front().and_then(|done| candidates.get(done))
                    {
                        candidate.load.release();
                    }
                    pick
                });
            });
        }
    }
    group.finish();
}

fn schedulers(criterion: &mut Criterion) {
    let while_ = Duration::from_secs(60);
    let methods = [
        Method::RoundRobin,
        Method::WeightedRoundRobin(WrrMode::Smooth),
        Method::LeastConnections(Ties::Rotate),
        Method::WeightedLeastConnections(Ties::Rotate),
        Method::ExpectedDelay(Ties::Rotate),
        Method::NeverQueue(Ties::Rotate),
        Method::SeenCapacity(Ties::Rotate),
        Method::TwoChoices,
        Method::PeakEwma,
        Method::Failover,
        Method::Overflow,
        Method::DestinationHash(HashMode::Maglev),
        Method::SourceHash(HashMode::Maglev),
        Method::Maglev,
        Method::Rendezvous,
        Method::BoundedHash { percent: 125 },
        Method::Locality { keys_max: 65_536 },
        Method::ReplicatedLocality { keys_max: 65_536, shrink_after: while_ },
        Method::CostBounded { keys_max: 65_536, miss_cost: while_, choices: None },
        Method::ShortestRunQueue(Reports::Push),
    ];
    for method in &methods {
        picks(criterion, method.name(), method);
    }
    picks(criterion, "wrr-ipvs", &Method::WeightedRoundRobin(WrrMode::Ipvs));
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(1)).sample_size(30);
    targets = schedulers
}
criterion_main!(benches);

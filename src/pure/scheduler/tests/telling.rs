//! What schedulers tell of servers that may not get a request, which no explanation at a start can show.

use std::time::Duration;

use super::*;
use crate::pure::pool::HashMode;
use crate::pure::scheduler::Memory;

const LBLC: Method = Method::Locality { keys_max: 64 };
const LBLCR: Method = Method::ReplicatedLocality { keys_max: 64, shrink_after: Duration::from_secs(60) };
const CBR: Method = Method::CostBounded { keys_max: 64, miss_cost: Duration::from_millis(10), choices: None };

/// What is told of two requests for one key: the first while all are idle, the second after `change` has made the server
/// of the key what it is then.
fn told(config: &SchedulerConfig, change: impl Fn(&mut [Candidate], usize)) -> String {
    let mut candidates = pool(&[1, 1, 1]);
    let memory = Arc::new(Memory::new(config, candidates.iter().map(|candidate| &*candidate.server), None));
    let scheduler = build(config, &memory, Phase::Start);
    let pick = |candidates: &[Candidate], trace: &mut Trace| {
        scheduler.pick(&changed(candidates, &Tried::NONE), Some(7), Timestamp::ZERO, &mut Rng::new(1), trace)
    };
    let Pick::Server(home) = pick(&candidates, &mut Trace::off()) else { panic!("all are idle") };
    change(&mut candidates, home);
    let mut trace = Trace::recording();
    pick(&candidates, &mut trace);
    let notes: Vec<&str> = trace.notes().iter().map(|note| note.text.as_str()).collect();
    // Whichever server is the key's, the text is the same.
    notes.join("\n").replace(&*candidates[home].server.id.server, "HOME") + "\n"
}

fn down(candidates: &mut [Candidate], home: usize) {
    candidates[home].state = State::Down;
}

fn busy(candidates: &mut [Candidate], home: usize) {
    candidates[home].load.set_active(50);
}

#[test]
fn a_server_that_is_out_is_named_with_the_reason() {
    let strict = SchedulerConfig { method: Method::DestinationHash(HashMode::Ipvs), fallback: Fallback::None };
    let by_sed = SchedulerConfig { method: Method::Maglev, fallback: Fallback::By(Method::ExpectedDelay(Ties::First)) };
    let configs = [
        by_sed,
        strict,
        Method::Rendezvous.into(),
        Method::BoundedHash { percent: 125 }.into(),
        LBLC.into(),
        LBLCR.into(),
        CBR.into(),
    ];
    insta::assert_snapshot!(configs.iter().map(|config| told(config, down)).collect::<String>(), @r#"
    mh: the key belongs to HOME (0 in flight, weight 1), which may not get it: it is down
    mh: the key gives no answer, so the fallback sed decides
    sed: s0 (0 in flight, weight 1) has the shortest expected delay
    dh: the key belongs to HOME (0 in flight, weight 1), which may not get it: it is down
    dh: the key gives no answer, and the fallback is "none"
    rendezvous: by score for this key: HOME, s1, s2
    rendezvous: s1 (0 in flight, weight 1) is the first that may get it
    ch-bl: the key belongs to HOME (0 in flight, weight 1): it is down; s2 (0 in flight, weight 1) is the next for the key and gets it
    lblc: the key's server HOME (0 in flight, weight 1) may not get it: it is down
    lblc: s2 (0 in flight, weight 1) has the least load for its weight and gets the key
    lblcr: the key's server HOME (0 in flight, weight 1) may not get it: it is down
    lblcr: s2 (0 in flight, weight 1) has the least load for its weight and is added to the key's servers
    cbr: no home of the key may get it: s1 (0 in flight, weight 1) stands in for this key
    "#);
}

#[test]
fn a_server_that_is_overloaded_is_named_with_the_reason() {
    let configs = [Method::BoundedHash { percent: 125 }.into(), LBLC.into(), LBLCR.into(), Method::Overflow.into()];
    insta::assert_snapshot!(configs.iter().map(|config| told(config, busy)).collect::<String>(), @r#"
    ch-bl: the key belongs to HOME (50 in flight, weight 1): it is over its bound; s2 (0 in flight, weight 1) is the next for the key and gets it
    lblc: the key's server HOME (50 in flight, weight 1) has more in flight than its weight, another is half idle
    lblc: s2 (0 in flight, weight 1) has the least load for its weight and gets the key
    lblcr: the key's server HOME (50 in flight, weight 1) has more in flight than its weight, another is half idle
    lblcr: s2 (0 in flight, weight 1) has the least load for its weight and is added to the key's servers
    ovf: s1 (0 in flight, weight 1) has the highest weight of those that are not over it
    "#);
    let everywhere = |candidates: &mut [Candidate], _: usize| candidates.iter().for_each(|one| one.load.set_active(5));
    insta::assert_snapshot!(told(&Method::Overflow.into(), everywhere), @r#"
    ovf: every server has more in flight than its weight
    wlc: HOME (5 in flight, weight 1) has the least load for its weight
    "#);
}

//! Choices over snapshots that change, repetitions, and what a trace says.

use std::sync::Arc;

use super::*;
use crate::base::id::ServerSlot;
use crate::pure::pool::{Method, State, Ties, WrrMode};
use crate::shared::snapshot::tests::{SUSPECT, TestServer, config_of, no_rules, pool_of, store_of};
use crate::shared::snapshot::{SnapshotStore, StateChange};

const SMOOTH: Method = Method::WeightedRoundRobin(WrrMode::Smooth);

fn choose(
    schedulers: &Schedulers,
    store: &SnapshotStore,
    pool: u32,
    tried: &Tried,
    trace: &mut Trace,
) -> Option<usize> {
    let snapshot = store.load();
    let ask = Ask { key: None, tried, now: Timestamp::ZERO, own: None };
    schedulers.choose(&Place::of(&snapshot, PoolIndex(pool)).unwrap(), &ask, trace)
}

fn set(store: &SnapshotStore, slot: u32, state: State) {
    store.set_states(&[StateChange { slot: ServerSlot(slot), state, share: None }]);
}

fn next(schedulers: &Schedulers, store: &SnapshotStore, pool: u32) -> Option<usize> {
    choose(schedulers, store, pool, &Tried::NONE, &mut Trace::off())
}

fn tried(slots: &[u32]) -> Tried {
    let mut tried = Tried::NONE;
    slots.iter().for_each(|slot| tried.add(ServerSlot(*slot)));
    tried
}

#[test]
fn a_scheduler_goes_on_where_it_was_when_states_change_and_pools_move() {
    let servers = [("a", 1, 5, None), ("b", 2, 1, None), ("c", 3, 1, None)];
    let one = pool_of("one", SMOOTH, &servers);
    let other = pool_of("other", SMOOTH, &servers);
    let store = store_of(vec![one.clone(), other.clone()]);
    let schedulers = Schedulers::from_start();
    let mut order = Vec::new();
    for round in 0..7 {
        // A change in the other pool, and a reload that swaps the two.
        let pool = u32::from(round >= 3);
        set(&store, 5, if round % 2 == 0 { SUSPECT } else { State::Up });
        if round == 3 {
            store.reload(config_of(vec![other.clone(), one.clone()]), no_rules());
        }
        order.push(next(&schedulers, &store, pool).unwrap());
        next(&schedulers, &store, 1 - pool);
    }
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn another_list_of_servers_gets_another_scheduler() {
    let store = store_of(vec![pool_of("p", Method::RoundRobin, &[("a", 1, 1, None), ("b", 2, 1, None)])]);
    let schedulers = Schedulers::from_start();
    assert_eq!(next(&schedulers, &store, 0), Some(0));
    store
        .reload(config_of(vec![pool_of("p", Method::RoundRobin, &[("b", 2, 1, None), ("c", 3, 1, None)])]), no_rules());
    assert_eq!(next(&schedulers, &store, 0), Some(0));
    assert_eq!(next(&schedulers, &store, 0), Some(1));
}

#[test]
fn a_repetition_goes_to_another_server_and_only_at_last_to_the_same() {
    for scheduler in [SMOOTH, Method::RoundRobin, Method::WeightedLeastConnections(Ties::Rotate)] {
        let store = store_of(vec![pool_of("p", scheduler, &[("a", 1, 1, None), ("b", 2, 1, None)])]);
        let schedulers = Schedulers::from_start();
        let pick = |slots: &[u32]| choose(&schedulers, &store, 0, &tried(slots), &mut Trace::off());
        for _ in 0..4 {
            assert_eq!(pick(&[0]), Some(1));
            assert_eq!(pick(&[1]), Some(0));
            assert!(pick(&[0, 1]).is_some());
        }
    }
}

#[test]
fn in_panic_a_repetition_asks_first_for_a_server_that_is_well() {
    let servers = [("a", 1, 1, None), ("b", 2, 1, None), ("c", 3, 1, None)];
    let store = store_of(vec![pool_of("p", SMOOTH, &servers)]);
    set(&store, 0, SUSPECT);
    set(&store, 1, SUSPECT);
    let schedulers = Schedulers::from_start();
    let first: Vec<_> = (0..3).map(|_| next(&schedulers, &store, 0).unwrap()).collect();
    assert_eq!(first, [0, 1, 2]);
    for _ in 0..5 {
        assert_eq!(choose(&schedulers, &store, 0, &tried(&[0]), &mut Trace::off()), Some(2));
        let both = choose(&schedulers, &store, 0, &tried(&[2]), &mut Trace::off());
        assert!(matches!(both, Some(0 | 1)), "{both:?}");
    }
}

#[test]
fn a_repetition_passes_by_a_server_to_which_the_last_connect_failed() {
    let servers = [("a", 1, 1, None), ("b", 2, 1, None), ("c", 3, 1, None)];
    let store = store_of(vec![pool_of("p", SMOOTH, &servers)]);
    let schedulers = Schedulers::from_start();
    let record = Arc::clone(&store.load().pools[0].endpoints[1].record);
    record.load.count_connect_failure();
    for _ in 0..5 {
        assert_eq!(choose(&schedulers, &store, 0, &tried(&[0]), &mut Trace::off()), Some(2));
        assert_eq!(choose(&schedulers, &store, 0, &tried(&[0, 2]), &mut Trace::off()), Some(1));
    }
    let first: Vec<_> = (0..30).filter_map(|_| next(&schedulers, &store, 0)).collect();
    assert!(first.contains(&1), "for a first attempt one failure is no reason");
}

#[test]
fn a_single_suspected_server_keeps_getting_requests() {
    let store = store_of(vec![pool_of("p", SMOOTH, &[("a", 1, 1, None)])]);
    set(&store, 0, SUSPECT);
    assert_eq!(next(&Schedulers::from_start(), &store, 0), Some(0));
    set(&store, 0, State::Down);
    assert_eq!(next(&Schedulers::from_start(), &store, 0), None);
}

#[test]
fn a_trace_lists_the_candidates_and_says_why() {
    let servers = [("a", 1, 1, None), ("b", 2, 0, None), ("c", 3, 1, Some(0)), ("d", 4, 1, None), ("e", 5, 1, None)];
    let store = store_of(vec![pool_of("p", SMOOTH, &servers)]);
    set(&store, 3, SUSPECT);
    let mut trace = Trace::recording();
    assert_eq!(choose(&Schedulers::from_start(), &store, 0, &tried(&[4]), &mut trace), Some(0));
    let texts: Vec<_> = trace.notes().iter().map(|note| (note.step, note.text.as_str())).collect();
    let expected = [
        ("server", "a at 127.0.0.1:1: weight 1, 0 in flight, eligible"),
        ("server", "b at 127.0.0.1:2: weight 0, 0 in flight, not eligible: its weight is 0"),
        ("server", "c at 127.0.0.1:3: weight 1, 0 in flight, not eligible: its 0 places are taken"),
        ("server", "d at 127.0.0.1:4: weight 1, 0 in flight, not eligible: it is suspect"),
        ("server", "e at 127.0.0.1:5: weight 1, 0 in flight, not eligible: this request has tried it"),
        ("scheduler", "wrr: a (0 in flight, weight 1) is next in turn"),
    ];
    assert_eq!(texts, expected);
}

#[test]
fn a_trace_of_a_large_pool_stays_short() {
    let names: Vec<String> = (0..1_000).map(|number| format!("s{number}")).collect();
    let servers: Vec<TestServer<'_>> =
        names.iter().enumerate().map(|(number, name)| (name.as_str(), 1, u16::from(number % 2 == 0), None)).collect();
    let store = store_of(vec![pool_of("p", SMOOTH, &servers)]);
    let mut trace = Trace::recording();
    choose(&Schedulers::from_start(), &store, 0, &Tried::NONE, &mut trace);
    assert_eq!(trace.notes().len(), 66);
    assert_eq!(trace.notes()[64].text, "and 936 more, of which 468 are eligible");
}

#[test]
fn a_choice_without_a_trace_notes_nothing() {
    let store = store_of(vec![pool_of("p", SMOOTH, &[("a", 1, 1, None)])]);
    let mut trace = Trace::off();
    choose(&Schedulers::seeded(1), &store, 0, &Tried::NONE, &mut trace);
    assert!(trace.notes().is_empty());
}

/// The choice for a client that belongs to server `own`, where the servers that are `slots` were tried.
fn choose_for(store: &SnapshotStore, own: u32, slots: &[u32], trace: &mut Trace) -> Option<usize> {
    let snapshot = store.load();
    let tried = tried(slots);
    let ask = Ask { key: None, tried: &tried, now: Timestamp::ZERO, own: Some(ServerSlot(own)) };
    Schedulers::from_start().choose(&Place::of(&snapshot, PoolIndex(0)).unwrap(), &ask, trace)
}

#[test]
fn a_client_gets_its_own_server_where_the_table_of_states_allows_it() {
    let servers = [("a", 1, 1, None), ("b", 2, 1, None), ("c", 3, 1, None)];
    let states = [
        (State::Up, true),
        (State::Recovering, true),
        (State::Drained, true),
        (State::Suspect { by_overload: true }, true),
        (SUSPECT, false),
        (State::Down, false),
        (State::Maintenance, false),
    ];
    for (state, is_own) in states {
        let store = store_of(vec![pool_of("p", SMOOTH, &servers)]);
        set(&store, 2, state);
        let chosen = choose_for(&store, 2, &[], &mut Trace::off());
        assert_eq!(chosen == Some(2), is_own, "{state}: {chosen:?}");
        assert!(chosen.is_some());
        assert_ne!(choose_for(&store, 2, &[2], &mut Trace::off()), Some(2), "a repetition goes elsewhere");
    }
}

#[test]
fn a_client_reaches_its_own_server_without_a_share_but_never_over_its_max() {
    let store = store_of(vec![pool_of("p", SMOOTH, &[("a", 1, 1, None), ("b", 2, 0, Some(1))])]);
    assert_eq!(choose_for(&store, 1, &[], &mut Trace::off()), Some(1), "quiesced");
    store.load().pools[0].endpoints[1].record.load.set_active(1);
    assert_eq!(choose_for(&store, 1, &[], &mut Trace::off()), Some(0), "full");
    assert_eq!(choose_for(&store, 77, &[], &mut Trace::off()), Some(0), "no longer configured");
}

#[test]
fn a_drained_server_that_is_the_only_one_still_gets_its_own_clients() {
    let store = store_of(vec![pool_of("p", SMOOTH, &[("a", 1, 1, None)])]);
    set(&store, 0, State::Drained);
    assert_eq!(choose_for(&store, 0, &[], &mut Trace::off()), Some(0));
    assert_eq!(choose_for(&store, 0, &[0], &mut Trace::off()), Some(0), "and on a fresh connection");
    assert_eq!(next(&Schedulers::from_start(), &store, 0), None);
}

#[test]
fn in_panic_suspicion_is_ignored_for_own_servers_too() {
    let store = store_of(vec![pool_of("p", SMOOTH, &[("a", 1, 1, None), ("b", 2, 1, None)])]);
    set(&store, 0, SUSPECT);
    assert_eq!(choose_for(&store, 0, &[], &mut Trace::off()), Some(1));
    set(&store, 1, SUSPECT);
    assert_eq!(choose_for(&store, 0, &[], &mut Trace::off()), Some(0));
}

#[test]
fn a_trace_says_why_a_client_did_not_get_its_own_server() {
    let store = store_of(vec![pool_of("p", SMOOTH, &[("a", 1, 1, None), ("b", 2, 1, None)])]);
    set(&store, 1, State::Down);
    let mut trace = Trace::recording();
    choose_for(&store, 1, &[], &mut trace);
    let note = trace.notes().iter().find(|note| note.step == "persistence").unwrap();
    assert_eq!(note.text, "the client belongs to b, which does not get the request: it is down");
    let mut trace = Trace::recording();
    choose_for(&store, 0, &[], &mut trace);
    let note = trace.notes().iter().find(|note| note.step == "persistence").unwrap();
    assert_eq!(note.text, "the client belongs to a, which gets the request: the scheduler is not asked");
    assert!(trace.notes().iter().all(|note| note.step != "scheduler"));
}

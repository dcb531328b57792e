//! Choices over snapshots that change, repetitions, and what a trace says.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::base::id::ServerSlot;
use crate::pure::pool::{Method, Pool, Server, State, Ties, WrrMode};
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
    let ask = Ask { key: None, own: None, tried, now: Timestamp::ZERO };
    schedulers.choose(&Place::of(&snapshot, PoolIndex(pool)).unwrap(), &ask, trace)
}

fn set(store: &SnapshotStore, slot: u32, state: State) {
    store.set_states(&[StateChange::new(ServerSlot(slot), state)]);
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

/// A pool of servers, some of them backups, with that scheduler.
fn with_backups(scheduler: Method, servers: &[(&str, bool, Option<u32>)]) -> SnapshotStore {
    let plain: Vec<_> = servers.iter().map(|(name, _, max)| (*name, 1, 1, *max)).collect();
    let pool = Pool::clone(&pool_of("p", scheduler, &plain));
    let marked = pool
        .servers
        .iter()
        .zip(servers)
        .map(|(server, (_, is_backup, _))| Arc::new(Server { is_backup: *is_backup, ..Server::clone(server) }));
    let servers = marked.collect();
    store_of(vec![Arc::new(Pool { servers, ..pool })])
}

#[test]
fn a_backup_is_used_only_where_no_other_server_may_get_the_request() {
    let schedulers = [
        Method::RoundRobin,
        Method::WeightedRoundRobin(WrrMode::Smooth),
        Method::WeightedRoundRobin(WrrMode::Ipvs),
        Method::WeightedLeastConnections(Ties::Rotate),
    ];
    for scheduler in schedulers {
        // The backup stands first in the file, and last in the snapshot.
        let store = with_backups(scheduler, &[("spare", true, None), ("a", false, None), ("b", false, None)]);
        let names = |store: &SnapshotStore, tried: &Tried| -> BTreeSet<String> {
            let schedulers = Schedulers::seeded(1);
            let mut trace = Trace::off();
            (0..20)
                .filter_map(|_| choose(&schedulers, store, 0, tried, &mut trace))
                .map(|index| store.load().pools[0].candidates[index].server.id.server.to_string())
                .collect()
        };
        let set = |slot, state| store.set_states(&[StateChange::new(ServerSlot(slot), state)]);
        let slot_of = |name: &str| {
            let snapshot = store.load();
            snapshot.pools[0].candidates.iter().find(|candidate| &*candidate.server.id.server == name).unwrap().slot.0
        };
        let (a, b, spare) = (slot_of("a"), slot_of("b"), slot_of("spare"));
        assert_eq!(names(&store, &Tried::NONE), ["a", "b"].map(str::to_owned).into());
        set(a, State::Down);
        assert_eq!(names(&store, &Tried::NONE), ["b".to_owned()].into());
        assert_eq!(names(&store, &tried(&[b])), ["spare".to_owned()].into(), "a repetition that has tried b");
        set(b, State::Suspect { by_overload: false });
        assert_eq!(names(&store, &Tried::NONE), ["spare".to_owned()].into(), "no panic where a backup is up");
        assert_eq!(names(&store, &tried(&[spare])), ["spare".to_owned()].into(), "better again than none");
        set(spare, State::Down);
        assert_eq!(names(&store, &Tried::NONE), ["b".to_owned()].into(), "and panic where none is");
        set(a, State::Recovering);
        set(spare, State::Up);
        assert_eq!(names(&store, &Tried::NONE), ["a".to_owned()].into());
    }
}

#[test]
fn a_backup_helps_where_all_places_of_the_others_are_taken() {
    let store = with_backups(Method::RoundRobin, &[("a", false, Some(1)), ("spare", true, None)]);
    let schedulers = Schedulers::from_start();
    let mut trace = Trace::recording();
    assert_eq!(choose(&schedulers, &store, 0, &Tried::NONE, &mut trace), Some(0));
    store.load().pools[0].candidates[0].load.try_reserve(None);
    assert_eq!(choose(&schedulers, &store, 0, &Tried::NONE, &mut trace), Some(1));
    let said = trace.notes().iter().any(|note| note.text.contains("no server but the backups"));
    assert!(said, "{:?}", trace.notes());
}

#[test]
fn a_pool_of_backups_alone_uses_them() {
    let one = with_backups(Method::RoundRobin, &[("spare", true, None)]);
    assert_eq!(choose(&Schedulers::seeded(1), &one, 0, &Tried::NONE, &mut Trace::off()), Some(0));
    let two = with_backups(Method::RoundRobin, &[("s", true, None), ("t", true, None)]);
    let schedulers = Schedulers::from_start();
    let mut picks = [0; 2].map(|_: i32| choose(&schedulers, &two, 0, &Tried::NONE, &mut Trace::off()).unwrap());
    picks.sort_unstable();
    assert_eq!(picks, [0, 1]);
}

#[test]
fn a_backup_is_the_home_of_no_key_until_the_others_are_gone() {
    let locality = Method::ReplicatedLocality { keys_max: 1000, shrink_after: std::time::Duration::from_secs(60) };
    for method in [Method::Maglev, Method::Rendezvous, Method::BoundedHash { percent: 125 }, locality] {
        let servers = [("spare", true, None), ("a", false, None), ("b", false, None), ("late", true, None)];
        let store = with_backups(method, &servers);
        let schedulers = Schedulers::seeded(1);
        let homes = || -> Vec<usize> {
            let snapshot = store.load();
            let place = Place::of(&snapshot, PoolIndex(0)).unwrap();
            let ask = |key| Ask { key: Some(key), own: None, tried: &Tried::NONE, now: Timestamp::ZERO };
            let key = |number: u64| crate::pure::rule::hash::hash(&number.to_le_bytes(), 0);
            (0..200).filter_map(|number| schedulers.choose(&place, &ask(key(number)), &mut Trace::off())).collect()
        };
        let among = |homes: &[usize]| homes.iter().copied().collect::<BTreeSet<_>>();
        let before = homes();
        assert_eq!((before.len(), among(&before)), (200, [0, 1].into()));
        let slots: Vec<u32> = store.load().pools[0].candidates.iter().map(|candidate| candidate.slot.0).collect();
        set(&store, slots[0], State::Down);
        assert_eq!(among(&homes()), [1].into());
        set(&store, slots[1], State::Down);
        // Among the backups, too, each key has a home of its own.
        let backups = homes();
        assert_eq!((among(&backups), &homes()), ([2, 3].into(), &backups));
        set(&store, slots[0], State::Up);
        set(&store, slots[1], State::Up);
        assert_eq!(homes().len(), 200);
        assert_eq!(among(&homes()), [0, 1].into());
    }
}

#[test]
fn a_client_that_belongs_to_a_server_gets_it_whatever_its_share_while_it_may() {
    let store = store_of(vec![pool_of("p", Method::RoundRobin, &[("a", 1, 1, Some(1)), ("b", 2, 1, None)])]);
    let own = |tried: &Tried, trace: &mut Trace| {
        let snapshot = store.load();
        let ask = Ask { key: None, own: Some(ServerSlot(0)), tried, now: Timestamp::ZERO };
        Schedulers::seeded(1).choose(&Place::of(&snapshot, PoolIndex(0)).unwrap(), &ask, trace)
    };
    let mut trace = Trace::recording();
    let share = Some(crate::pure::pool::Share::ZERO);
    for (state, index) in [
        (State::Up, 0),
        (State::Drained, 0),
        (State::Suspect { by_overload: true }, 0),
        (SUSPECT, 1),
        (State::Down, 1),
        (State::Maintenance, 1),
    ] {
        store.set_states(&[StateChange { share, ..StateChange::new(ServerSlot(0), state) }]);
        assert_eq!(own(&Tried::NONE, &mut trace), Some(index), "{state}");
    }
    set(&store, 0, State::Up);
    assert_eq!(own(&tried(&[0]), &mut trace), Some(1));
    store.load().pools[0].candidates[0].load.try_reserve(None);
    assert_eq!(own(&Tried::NONE, &mut trace), Some(1), "it is full");
    let notes: Vec<&str> =
        trace.notes().iter().filter(|note| note.step == "persistence").map(|note| &*note.text).collect();
    assert_eq!(
        (notes[0], notes.last().copied().unwrap()),
        (
            "the client belongs to a, which gets the request: the scheduler is not asked",
            "the client belongs to a, which does not get the request: its 1 places are taken"
        )
    );
    // Where suspicion is ignored, its own server comes first as well.
    store.load().pools[0].candidates[0].load.release();
    set(&store, 0, SUSPECT);
    set(&store, 1, State::Down);
    assert_eq!(own(&Tried::NONE, &mut trace), Some(0));
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

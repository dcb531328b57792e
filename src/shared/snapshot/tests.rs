//! Snapshots share what does not change, and reloads keep what stays. The pools of tests that need a snapshot are made here.

use super::*;
use crate::base::id::ServerId;
use crate::pure::config::{Places, ProcessLimits};
use crate::pure::persistence::Persistence;
use crate::pure::persistence::token::ServerTag;
use crate::pure::pool::{Address, Method, Passive, Retry, SchedulerConfig, Server, Timeouts, Upstream};

/// A server of a test's pool: name, port, weight, places.
pub(crate) type TestServer<'a> = (&'a str, u16, u16, Option<u32>);

pub(crate) fn pool_of(name: &str, scheduler: impl Into<SchedulerConfig>, servers: &[TestServer<'_>]) -> Arc<Pool> {
    let name: Arc<str> = name.into();
    let servers = servers.iter().map(|(server, port, weight, max)| {
        Arc::new(Server {
            id: ServerId { pool: Arc::clone(&name), server: (*server).into() },
            address: Address::Socket(([127, 0, 0, 1], *port).into()),
            weight: *weight,
            max: *max,
            is_backup: false,
        })
    });
    Arc::new(Pool {
        name: Arc::clone(&name),
        servers: servers.collect(),
        scheduler: scheduler.into(),
        key: None,
        persistence: None,
        key_normalize: None,
        check: None,
        agent_check: None,
        detection: crate::pure::detection::Detection::default(),
        feedback: None,
        passive: Passive::default(),
        orca: None,
        upstream: Upstream::default(),
        timeouts: Timeouts::default(),
        retry: Retry::default(),
        queue: None,
        recovery: None,
        slow_start: None,
    })
}

pub(crate) fn config_of(pools: Vec<Arc<Pool>>) -> Arc<Config> {
    Arc::new(Config {
        listeners: Vec::new(),
        pools,
        rules: Vec::new(),
        expects: Vec::new(),
        workers: None,
        resolvers: Vec::new(),
        user: None,
        secret: None,
        access_log: None,
        admin: None,
        feedback: None,
        alert: Arc::default(),
        machines: Arc::default(),
        process: ProcessLimits::default(),
        places: Places::default(),
    })
}

pub(crate) fn no_rules() -> Arc<RuleSet> {
    Arc::new(RuleSet::compile(Vec::new()).unwrap())
}

pub(crate) fn store_of(pools: Vec<Arc<Pool>>) -> SnapshotStore {
    SnapshotStore::new(config_of(pools), no_rules(), Arc::default())
}

pub(crate) const SUSPECT: State = State::Suspect { by_overload: false };

fn plain(name: &str, servers: &[TestServer<'_>]) -> Arc<Pool> {
    pool_of(name, Method::default(), servers)
}

fn set(store: &SnapshotStore, slot: u32, state: State) {
    store.set_states(&[StateChange::new(ServerSlot(slot), state)]);
}

fn states(pool: &PoolSnapshot) -> Vec<State> {
    pool.candidates.iter().map(|candidate| candidate.state).collect()
}

#[test]
fn a_change_of_state_makes_one_pool_anew_and_shares_the_rest() {
    let store =
        store_of(vec![plain("a", &[("a1", 1, 1, None)]), plain("b", &[("b1", 2, 1, None), ("b2", 3, 1, None)])]);
    let mut cache = store.cache();
    let before = Arc::clone(cache.load());
    set(&store, 2, SUSPECT);
    let after = Arc::clone(cache.load());
    assert!(Arc::ptr_eq(&before.pools[0], &after.pools[0]));
    assert!(Arc::ptr_eq(&before.rules, &after.rules) && Arc::ptr_eq(&before.config, &after.config));
    assert_eq!(states(&before.pools[1]), [State::Up, State::Up]);
    assert_eq!(states(&after.pools[1]), [State::Up, SUSPECT]);
    assert!(Arc::ptr_eq(&before.pools[1].endpoints[1], &after.pools[1].endpoints[1]));
    assert_eq!(before.pools[1].roster, after.pools[1].roster);
    assert!(after.pools[1].generation > before.pools[1].generation);
}

#[test]
fn nothing_is_published_where_nothing_changes() {
    let store = store_of(vec![plain("a", &[("a1", 1, 1, None)])]);
    let before = store.load();
    set(&store, 0, State::Up);
    set(&store, 77, SUSPECT);
    store.set_states(&[]);
    assert!(Arc::ptr_eq(&before, &store.load()));
}

#[test]
fn panic_is_found_when_the_snapshot_is_made() {
    let store = store_of(vec![plain("a", &[("a1", 1, 1, None), ("a2", 2, 1, None)])]);
    set(&store, 0, SUSPECT);
    assert!(!store.load().pools[0].in_panic);
    set(&store, 1, SUSPECT);
    assert!(store.load().pools[0].in_panic);
    assert_eq!(store.load().pools[0].view(&Tried::NONE).wanted, Wanted::InPanic);
    set(&store, 0, State::Up);
    assert!(!store.load().pools[0].in_panic);
}

#[test]
fn a_share_changes_with_its_state_or_by_itself() {
    let store = store_of(vec![plain("a", &[("a1", 1, 3, None)])]);
    let share = Some(Share::from_units(77));
    store.set_states(&[StateChange { share, ..StateChange::new(ServerSlot(0), State::Recovering) }]);
    let candidate = store.load().pools[0].candidates[0].clone();
    assert_eq!((candidate.state, candidate.share), (State::Recovering, Share::from_units(77)));
    set(&store, 0, State::Up);
    assert_eq!(store.load().pools[0].candidates[0].share, Share::from_units(77));
}

#[test]
fn a_reload_keeps_numbers_counters_and_unaffected_states() {
    let store = store_of(vec![
        plain("a", &[("a1", 1, 1, None), ("a2", 2, 1, None), ("a3", 3, 1, None)]),
        plain("b", &[("a1", 9, 1, None)]),
    ]);
    for slot in 0..3 {
        set(&store, slot, SUSPECT);
    }
    let before = store.load();
    for endpoint in &before.pools[0].endpoints {
        endpoint.record.count_request();
        endpoint.record.load.count_connect_failure();
        assert!(endpoint.record.load.try_reserve(None));
    }
    // b comes first, a1 is gone, a2 moves, a3 gets another weight, a4 is new.
    let servers = [("a4", 4, 1, None), ("a2", 22, 1, None), ("a3", 3, 7, None)];
    store.reload(config_of(vec![plain("b", &[("a1", 9, 1, None)]), plain("a", &servers)]), no_rules());
    let after = store.load();
    let [b, a] = after.pools.as_slice() else { panic!("two pools") };
    assert_eq!(b.candidates[0].slot, before.pools[1].candidates[0].slot);
    assert!(Arc::ptr_eq(&b.endpoints[0], &before.pools[1].endpoints[0]));
    assert_eq!(b.roster, before.pools[1].roster);
    assert_ne!(a.roster, before.pools[0].roster);
    let seen: Vec<_> = a.candidates.iter().map(|c| (c.slot.0, c.incarnation, c.state, c.share)).collect();
    let (one, seven) = (Share::of(1), Share::of(7));
    assert_eq!(seen, [(4, 0, State::Up, one), (1, 1, State::Up, one), (2, 0, SUSPECT, seven)]);
    let figures: Vec<_> = a.endpoints.iter().map(|endpoint| endpoint.record.figures()).collect();
    assert_eq!(figures.iter().map(|f| f.requests).collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(figures.iter().map(|f| f.active).collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(figures.iter().map(|f| f.connect_failures_in_a_row).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(a.endpoints[1].server.address, Address::Socket(([127, 0, 0, 1], 22).into()));
    assert!(Arc::ptr_eq(&a.record, &before.pools[0].record));
    // Places follow: a change finds the server where it now stands.
    set(&store, 2, State::Down);
    assert_eq!(states(&store.load().pools[1]), [State::Up, State::Up, State::Down]);
    // a1 comes back to its number.
    store.reload(config_of(vec![plain("a", &[("a1", 1, 1, None)])]), no_rules());
    assert_eq!(store.load().pools[0].candidates[0].slot, ServerSlot(0));
    assert_eq!(store.load().pools[0].endpoints[0].record.figures().requests, 1);
}

#[test]
fn new_addresses_of_a_name_keep_all_but_state_and_failures() {
    let pool = Pool::clone(&plain("a", &[("a1", 1, 3, None), ("a2", 2, 1, None)]));
    let servers = pool.servers.iter().map(|server| {
        let address = Address::Name("a.test".to_owned(), 80);
        Arc::new(Server { address, ..Server::clone(server) })
    });
    let servers: Vec<_> = servers.collect();
    let store = store_of(vec![Arc::new(Pool { servers, ..pool })]);
    let addresses = |lasts: &[u8]| -> Arc<[SocketAddr]> {
        lasts.iter().map(|last| SocketAddr::from(([127, 0, 0, *last], 80))).collect()
    };
    let publish = |lasts: &[u8]| {
        let found = addresses(lasts);
        store.set_addresses(&[
            (ServerSlot(0), Arc::clone(&found)),
            (ServerSlot(1), found),
            (ServerSlot(9), addresses(&[1])),
        ])
    };
    assert!(store.load().pools[0].endpoints[0].named().is_empty());
    assert!(publish(&[2, 3]));
    let first = store.load();
    first.pools[0].endpoints[0].record.count_outcome(crate::shared::outcome::Outcome::ConnectError);
    first.pools[0].endpoints[0].record.load.count_connect_failure();
    set(&store, 0, SUSPECT);
    set(&store, 1, State::Drained);
    let before = store.load();
    assert_eq!(before.whereabouts, first.whereabouts);
    assert!(!publish(&[3, 2]), "another order is no change");
    assert!(Arc::ptr_eq(&store.load(), &before));
    assert!(publish(&[3]));
    let after = store.load();
    let pool = &after.pools[0];
    assert_eq!(states(pool), [State::Up, State::Drained], "what an operator wants stays");
    assert_eq!((pool.roster, pool.candidates[0].share), (before.pools[0].roster, Share::of(3)));
    assert_eq!((pool.candidates[0].incarnation, pool.endpoints[0].incarnation), (2, 2));
    assert_eq!(pool.endpoints[0].named(), &*addresses(&[3]));
    let figures = pool.endpoints[0].record.figures();
    assert_eq!((figures.connect_errors, figures.connect_failures_in_a_row), (1, 0));
    assert_ne!((pool.generation, after.whereabouts), (before.pools[0].generation, before.whereabouts));
    // A reload that says the same keeps them.
    store.reload(Arc::clone(&after.config), no_rules());
    assert!(Arc::ptr_eq(&store.load().pools[0].endpoints[0], &pool.endpoints[0]));
}

#[test]
fn what_a_server_said_it_takes_lasts_until_it_moves_and_is_never_more_than_the_rule_file_says() {
    let store = store_of(vec![plain("a", &[("a1", 1, 1, Some(50))])]);
    let max = || store.load().pools[0].candidates[0].max;
    let says = |own| {
        store.set_states(&[StateChange { max: Some(own), ..StateChange::new(ServerSlot(0), State::Up) }]);
        max()
    };
    assert_eq!([says(Some(70)), says(None), says(Some(30))], [Some(50), Some(50), Some(30)]);
    set(&store, 0, SUSPECT);
    assert_eq!(max(), Some(30));
    assert!(store.set_addresses(&[(ServerSlot(0), [SocketAddr::from(([127, 0, 0, 2], 1))].into())]));
    assert_eq!(max(), Some(50), "who is there now has said nothing");
}

#[test]
fn another_scheduler_is_another_roster() {
    let servers = [("a1", 1, 1, None)];
    let store = store_of(vec![plain("a", &servers)]);
    let before = store.load().pools[0].roster;
    store.reload(config_of(vec![plain("a", &servers)]), no_rules());
    assert_eq!(store.load().pools[0].roster, before);
    store.reload(config_of(vec![pool_of("a", Method::RoundRobin, &servers)]), no_rules());
    assert_ne!(store.load().pools[0].roster, before);
}

#[test]
fn a_pool_is_found_again_by_its_name() {
    let store = store_of(vec![plain("a", &[]), plain("b", &[])]);
    let snapshot = store.load();
    let find = |index, name: &str| snapshot.find_again(PoolIndex(index), &Arc::from(name));
    assert_eq!(find(1, "b"), Some(PoolIndex(1)));
    assert_eq!(find(0, "b"), Some(PoolIndex(1)));
    assert_eq!(find(9, "a"), Some(PoolIndex(0)));
    assert_eq!(find(0, "c"), None);
}

#[test]
fn snapshots_that_nobody_holds_are_gone() {
    let store = store_of(vec![plain("a", &[("a1", 1, 1, None)])]);
    let held = store.load();
    for _ in 0..10 {
        set(&store, 0, SUSPECT);
        set(&store, 0, State::Up);
    }
    assert_eq!(store.process().snapshots_alive.get(), 2);
    drop(held);
    assert_eq!(store.process().snapshots_alive.get(), 1);
}

#[test]
fn large_pools_and_many_pools_are_assembled_and_reloaded() {
    let names: Vec<String> = (0..5_000).map(|number| format!("s{number}")).collect();
    let servers: Vec<TestServer<'_>> = names.iter().map(|name| (name.as_str(), 1, 1, None)).collect();
    let mut pools: Vec<_> = (0..1_024).map(|number| plain(&format!("p{number}"), &[("s", 1, 1, None)])).collect();
    pools.push(plain("large", &servers));
    let store = store_of(pools.clone());
    set(&store, 1_024 + 4_999, SUSPECT);
    pools.reverse();
    store.reload(config_of(pools), no_rules());
    let snapshot = store.load();
    assert_eq!(snapshot.pools[0].candidates[4_999].state, SUSPECT);
    assert_eq!(snapshot.pools.iter().map(|pool| pool.candidates.len()).sum::<usize>(), 6_024);
}

#[test]
fn servers_stand_in_the_order_in_which_persistence_names_them() {
    let mut pool = pool_of("p", Method::default(), &[("a", 1, 1, None), ("b", 2, 1, None), ("c", 3, 1, None)]);
    let changed = Arc::make_mut(&mut pool);
    Arc::make_mut(changed.servers.first_mut().unwrap()).is_backup = true;
    let named = Persistence::new("p", &changed.servers).servers;
    let store = store_of(vec![pool]);
    let snapshot = store.load();
    let candidates = snapshot.pools[0].candidates.iter();
    let seen: Vec<ServerTag> = candidates.map(|candidate| ServerTag::of(&candidate.server.id.server)).collect();
    assert_eq!(seen, named);
    assert_eq!(seen.last(), Some(&ServerTag::of("a")), "backups last");
}

//! Leases settle whatever happens, and places are never overrun.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;
use crate::pure::pool::{Method, Pool, State};
use crate::shared::counters::ServerFigures;
use crate::shared::snapshot::tests::{TestServer, config_of, no_rules, pool_of, store_of};
use crate::shared::snapshot::{SnapshotStore, StateChange};

mod queued;

const ANSWERED: Outcome = Outcome::Answered { status: 200, latency: Duration::from_millis(3) };

struct Bench {
    store: SnapshotStore,
    admission: Admission,
    name: Arc<str>,
}

impl Bench {
    fn new(servers: &[TestServer<'_>]) -> Self {
        Self::of(pool_of("p", Method::RoundRobin, servers))
    }

    fn of(pool: Arc<Pool>) -> Self {
        let store = store_of(vec![pool]);
        let admission = Admission::new(&store, 7);
        Self { store, admission, name: "p".into() }
    }

    fn admit(&self) -> Result<Lease, Refused> {
        let ask = Ask { key: None, own: None, tried: &Tried::NONE, now: Timestamp::ZERO };
        let pool = PoolRef { index: PoolIndex(0), name: &self.name };
        match self.admission.admit(pool, &ask, &mut Trace::off())? {
            Admitted::Place(lease) => Ok(lease),
            Admitted::Waits(_) => panic!("admission waits without a queue"),
        }
    }

    fn active(&self) -> u32 {
        self.store.load().pools[0].endpoints.iter().map(|endpoint| endpoint.record.load.active()).sum()
    }

    fn failed(&self) -> u64 {
        self.store.load().pools[0].endpoints.iter().map(|endpoint| endpoint.record.ended().failed).sum()
    }

    fn outstanding(&self) -> u32 {
        self.store.load().pools[0].endpoints.iter().map(|endpoint| endpoint.record.load.outstanding()).sum()
    }
}

#[test]
fn a_lease_counts_and_settles_with_its_outcome() {
    let bench = Bench::new(&[("a", 1, 1, None)]);
    let mut lease = bench.admit().unwrap();
    assert_eq!(bench.active(), 1);
    lease.outcome(Outcome::Reset);
    lease.outcome(ANSWERED);
    drop(lease);
    assert_eq!(bench.active(), 0);
    assert_eq!(bench.failed(), 0);
    let figures = bench.store.load().pools[0].endpoints[0].record.figures();
    assert_eq!((figures.requests, figures.answers[1], figures.resets), (1, 1, 0));
}

#[test]
fn a_dropped_lease_is_a_client_that_went_away_and_not_the_servers_fault() {
    let bench = Bench::new(&[("a", 1, 1, None)]);
    drop(bench.admit());
    assert_eq!(bench.active(), 0);
    assert_eq!(bench.failed(), 0);
    let figures = bench.store.load().pools[0].endpoints[0].record.figures();
    assert_eq!((figures.client_aborts, figures.connect_failures_in_a_row), (1, 0));
}

#[test]
fn a_lease_that_is_withdrawn_was_never_there() {
    let bench = Bench::new(&[("a", 1, 1, None)]);
    bench.admit().unwrap().withdraw();
    assert_eq!(bench.active(), 0);
    assert_eq!(bench.failed(), 0);
    assert_eq!(bench.store.load().pools[0].endpoints[0].record.figures(), ServerFigures::default());
}

#[test]
fn a_panic_settles_and_counts_against_nobody() {
    let bench = Bench::new(&[("a", 1, 1, None)]);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _lease = bench.admit();
        panic!("injected");
    }));
    assert!(caught.is_err());
    assert_eq!(bench.active(), 0);
    assert_eq!(bench.failed(), 0);
    assert_eq!(bench.store.load().pools[0].endpoints[0].record.figures().client_aborts, 0);
}

#[test]
fn a_full_server_gets_no_more_and_a_full_pool_refuses() {
    let bench = Bench::new(&[("a", 1, 1, Some(1)), ("b", 2, 1, Some(2))]);
    let mut leases: Vec<Lease> = (0..3).map(|_| bench.admit().unwrap()).collect();
    let at_a = leases.iter().filter(|lease| &*lease.endpoint().server.id.server == "a").count();
    assert_eq!(at_a, 1);
    assert_eq!(bench.admit().unwrap_err(), Refused::AllFull);
    leases.pop();
    assert!(bench.admit().is_ok());
}

#[test]
fn a_pool_without_available_servers_or_one_that_is_gone_says_so() {
    let bench = Bench::new(&[("a", 1, 1, Some(1))]);
    bench.store.set_states(&[StateChange::new(ServerSlot(0), State::Maintenance)]);
    assert_eq!(bench.admit().unwrap_err(), Refused::NoneAvailable);
    bench.store.reload(config_of(Vec::new()), no_rules());
    assert_eq!(bench.admit().unwrap_err(), Refused::PoolGone);
}

#[test]
fn a_pool_that_moved_is_found_by_its_name() {
    let bench = Bench::new(&[("a", 1, 1, None)]);
    let pools = vec![
        pool_of("new", Method::RoundRobin, &[("x", 9, 1, None)]),
        pool_of("p", Method::RoundRobin, &[("a", 1, 1, None)]),
    ];
    bench.store.reload(config_of(pools), no_rules());
    assert_eq!(&*bench.admit().unwrap().endpoint().server.id.pool, "p");
}

#[test]
fn a_made_connection_ends_a_row_of_failures() {
    let bench = Bench::new(&[("a", 1, 1, None)]);
    for _ in 0..3 {
        bench.admit().unwrap().outcome(Outcome::ConnectError);
    }
    let row = || bench.store.load().pools[0].endpoints[0].record.connect_failures_in_a_row();
    assert_eq!(row(), 3);
    bench.admit().unwrap().connected();
    assert_eq!(row(), 0);
}

#[test]
fn a_request_is_outstanding_until_its_answer_begins_and_while_its_client_sends_it_is_not() {
    let bench = Bench::new(&[("a", 1, 1, None)]);
    let mut lease = bench.admit().unwrap();
    assert_eq!(bench.outstanding(), 1);
    lease.excuse(true);
    lease.excuse(true);
    assert_eq!((bench.outstanding(), bench.active()), (0, 1), "the client is still sending it");
    lease.excuse(false);
    assert_eq!(bench.outstanding(), 1);
    lease.answers(ANSWERED, Timestamp::from_nanos(7), 1);
    lease.excuse(true);
    assert_eq!((bench.outstanding(), bench.active()), (0, 1), "the answer streams");
    let waits = bench.admit().unwrap();
    assert_eq!(bench.outstanding(), 1);
    drop(lease);
    drop(waits);
    assert_eq!((bench.outstanding(), bench.active()), (0, 0));
    let record = Arc::clone(&bench.store.load().pools[0].endpoints[0].record);
    assert_eq!(record.load.heard(), Timestamp::from_nanos(7));
}

#[test]
fn an_answer_that_breaks_off_is_a_failure_and_ends_a_row_of_timeouts_all_the_same() {
    let bench = Bench::new(&[("a", 1, 1, None)]);
    for _ in 0..2 {
        bench.admit().unwrap().outcome(Outcome::ResponseTimeout);
    }
    let record = Arc::clone(&bench.store.load().pools[0].endpoints[0].record);
    assert_eq!(record.load.failures_in_a_row(), 2);
    let mut lease = bench.admit().unwrap();
    lease.connected();
    assert_eq!(record.load.failures_in_a_row(), 2, "a connection is no answer");
    lease.answers(ANSWERED, Timestamp::ZERO, 1);
    lease.outcome(Outcome::ResponseTimeout);
    drop(lease);
    assert_eq!((record.load.failures_in_a_row(), bench.failed()), (0, 3));
}

/// Two workers on one server of three places: never more, and none is left over.
#[test]
fn places_are_never_overrun_by_several_workers() {
    let store = store_of(vec![pool_of("p", Method::RoundRobin, &[("a", 1, 1, Some(3))])]);
    let load = Arc::clone(&store.load().pools[0].candidates[0].load);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (store, load) = (&store, &load);
            scope.spawn(move || {
                let snapshot = store.load();
                for round in 0..2_000 {
                    let lease = Lease::take(&snapshot.pools[0].endpoints[0], None);
                    assert!(load.active() <= 3, "seed {seed}, round {round}");
                    drop(lease);
                }
            });
        }
    });
    assert_eq!(load.active(), 0);
}

#[test]
fn a_server_that_has_refused_three_times_in_a_row_is_passed_over_before_control_says_so() {
    let bench = Bench::new(&[("a", 1, 1, None), ("b", 2, 1, None), ("c", 3, 1, None)]);
    let endpoints = bench.store.load().pools[0].endpoints.clone();
    let refuse = |index: usize, times: usize| {
        (0..times).for_each(|_| endpoints[index].record.load.count_connect_failure());
    };
    let chosen = || -> Vec<usize> {
        let slot = || bench.admit().unwrap().endpoint().record.slot.0 as usize;
        let mut counts = vec![0; 3];
        (0..30).for_each(|_| counts[slot()] += 1);
        counts
    };
    refuse(0, 2);
    assert_eq!(chosen(), [10, 10, 10]);
    refuse(0, 1);
    assert_eq!(chosen()[0], 0);
    refuse(1, 3);
    assert_eq!(chosen(), [0, 0, 30]);
    // Better a server that may refuse than none.
    refuse(2, 3);
    assert_eq!(chosen().iter().sum::<usize>(), 30);
    endpoints[0].record.forget_failures();
    assert_eq!(chosen(), [30, 0, 0]);
}

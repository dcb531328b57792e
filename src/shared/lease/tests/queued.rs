//! Admission to a pool with a queue: who waits, what ends a wait, and what a change of the snapshot does to it.

use std::task::Waker;

use super::*;
use crate::pure::pool::{Fallback, QueueBounds, SchedulerConfig, Share};

const BOUNDS: QueueBounds = QueueBounds { max: 2, timeout: Duration::from_secs(1) };

fn pool(servers: &[TestServer<'_>]) -> Arc<Pool> {
    let pool = Pool::clone(&pool_of("p", Method::RoundRobin, servers));
    Arc::new(Pool { queue: Some(BOUNDS), ..pool })
}

fn bench(servers: &[TestServer<'_>]) -> Bench {
    Bench::of(pool(servers))
}

impl Bench {
    fn pool_ref(&self) -> PoolRef<'_> {
        PoolRef { index: PoolIndex(0), name: &self.name }
    }

    fn ask(&self, own: Option<u32>) -> Result<Admitted, Refused> {
        self.admission.admit(self.pool_ref(), &ask(own), &mut Trace::off())
    }

    fn place(&self, own: Option<u32>) -> Lease {
        match self.ask(own) {
            Ok(Admitted::Place(lease)) => lease,
            other => panic!("{other:?}"),
        }
    }

    fn wait(&self, own: Option<u32>) -> Wait {
        match self.ask(own) {
            Ok(Admitted::Waits(wait)) => wait,
            other => panic!("{other:?}"),
        }
    }

    fn last_try(&self, wait: Wait, own: Option<u32>) -> Result<Lease, Refused> {
        self.admission.last_try(wait, self.pool_ref(), &ask(own))
    }

    fn set(&self, slot: u32, state: State) {
        self.store.set_states(&[StateChange::new(ServerSlot(slot), state)]);
    }

    fn waiting(&self) -> u32 {
        self.store.load().pools[0].record.queue.figures().waiting
    }
}

fn ask(own: Option<u32>) -> Ask<'static> {
    Ask { key: None, own: own.map(ServerSlot), tried: &Tried::NONE, now: Timestamp::ZERO }
}

fn poll(wait: &mut Wait) -> Poll<Result<Lease, Again>> {
    wait.poll(&Context::from_waker(Waker::noop()))
}

fn server_of(lease: &Lease) -> &str {
    &lease.endpoint().server.id.server
}

#[test]
fn a_request_waits_for_a_place_and_gets_it_as_another_ends() {
    let bench = bench(&[("a", 1, 1, Some(1))]);
    let first = bench.place(None);
    let mut second = bench.wait(None);
    let mut third = bench.wait(None);
    assert_eq!(second.timeout, BOUNDS.timeout);
    assert!(poll(&mut second).is_pending());
    drop(first);
    let Poll::Ready(Ok(mut lease)) = poll(&mut second) else { panic!("a place is handed over") };
    assert_eq!((bench.active(), bench.waiting()), (1, 1));
    assert!(poll(&mut third).is_pending());
    lease.outcome(ANSWERED);
    drop(lease);
    assert!(matches!(poll(&mut third), Poll::Ready(Ok(_))));
    let figures = bench.store.load().pools[0].endpoints[0].record.figures();
    assert_eq!((figures.active, figures.requests, figures.answers[1]), (0, 3, 1));
}

#[test]
fn a_queue_that_is_full_refuses_at_once_and_a_wait_in_vain_at_its_end() {
    let bench = bench(&[("a", 1, 1, Some(1))]);
    let _first = bench.place(None);
    let (second, _third) = (bench.wait(None), bench.wait(None));
    assert_eq!(bench.ask(None).unwrap_err(), Refused::QueueFull);
    assert_eq!(bench.last_try(second, None).unwrap_err(), Refused::QueueTimedOut);
    assert_eq!(bench.waiting(), 1);
}

#[test]
fn where_no_server_is_to_be_had_requests_wait_until_one_comes_back() {
    let bench = bench(&[("a", 1, 1, None), ("b", 2, 1, Some(1))]);
    bench.set(0, State::Maintenance);
    bench.set(1, State::Down);
    let (mut first, mut second) = (bench.wait(None), bench.wait(None));
    bench.set(1, State::Recovering);
    let Poll::Ready(Ok(lease)) = poll(&mut first) else { panic!("b is back") };
    assert_eq!(server_of(&lease), "b");
    assert!(poll(&mut second).is_pending());
    bench.set(0, State::Up);
    assert!(matches!(poll(&mut second), Poll::Ready(Err(Again))), "a takes as many as come");
    assert_eq!(server_of(&bench.place(None)), "a");
}

#[test]
fn a_pool_without_bounds_that_comes_back_does_not_send_all_who_wait_to_its_first_server() {
    let bounds = QueueBounds { max: 9, ..BOUNDS };
    let servers = pool_of("p", Method::RoundRobin, &[("a", 1, 1, None), ("b", 2, 1, None), ("c", 3, 1, None)]);
    let bench = Bench::of(Arc::new(Pool { queue: Some(bounds), ..Pool::clone(&servers) }));
    let all = |state| [0, 1, 2].map(|slot| StateChange::new(ServerSlot(slot), state));
    bench.store.set_states(&all(State::Maintenance));
    let mut waits: Vec<Wait> = (0..9).map(|_| bench.wait(None)).collect();
    let late = waits.split_off(6);
    bench.store.set_states(&all(State::Up));
    let mut leases = Vec::new();
    for wait in &mut waits {
        assert!(matches!(poll(wait), Poll::Ready(Err(Again))));
        leases.push(bench.place(None));
    }
    // The time of some was up in that moment.
    leases.extend(late.into_iter().map(|wait| bench.last_try(wait, None).unwrap()));
    for server in ["a", "b", "c"] {
        assert_eq!(leases.iter().filter(|lease| server_of(lease) == server).count(), 3, "{server}");
    }
    assert_eq!(bench.waiting(), 0);
}

#[test]
fn who_was_sent_back_to_the_scheduler_does_not_wait_behind_one_that_has_tried_the_server() {
    let bench = bench(&[("a", 1, 1, None), ("b", 2, 1, Some(1))]);
    bench.set(0, State::Maintenance);
    let _at_b = bench.place(None);
    let mut tried = Tried::NONE;
    tried.add(ServerSlot(0));
    let asked = bench.admission.admit(bench.pool_ref(), &Ask { tried: &tried, ..ask(None) }, &mut Trace::off());
    let Ok(Admitted::Waits(mut repetition)) = asked else { panic!("b is full") };
    let mut second = bench.wait(None);
    bench.set(0, State::Up);
    assert!(matches!(poll(&mut second), Poll::Ready(Err(Again))));
    assert_eq!(server_of(&bench.place(None)), "a");
    assert!(poll(&mut repetition).is_pending());
    assert_eq!(bench.waiting(), 1);
}

#[test]
fn a_persistent_request_waits_for_its_own_server_and_moves_when_its_time_is_up() {
    let bench = bench(&[("a", 1, 1, Some(1)), ("b", 2, 1, Some(1))]);
    let at_a = bench.place(Some(0));
    assert_eq!(server_of(&at_a), "a");
    let mut own = bench.wait(Some(0));
    // It is in nobody's way.
    let at_b = bench.place(None);
    assert_eq!(server_of(&at_b), "b");
    drop(at_b);
    assert!(poll(&mut own).is_pending());
    let moved = bench.last_try(own, Some(0)).unwrap();
    assert_eq!(server_of(&moved), "b");
    // Where all is taken, its time is up like everybody's.
    let own = bench.wait(Some(0));
    assert_eq!(bench.last_try(own, Some(0)).unwrap_err(), Refused::QueueTimedOut);
    let mut own = bench.wait(Some(0));
    drop(at_a);
    assert!(matches!(poll(&mut own), Poll::Ready(Ok(lease)) if server_of(&lease) == "a"));
}

#[test]
fn without_a_queue_a_persistent_request_whose_server_is_full_goes_elsewhere_at_once() {
    let bench = Bench::new(&[("a", 1, 1, Some(1)), ("b", 2, 1, None)]);
    let at_a = bench.place(Some(0));
    let elsewhere = bench.place(Some(0));
    assert_eq!((server_of(&at_a), server_of(&elsewhere)), ("a", "b"));
    // Quiesced and drained it has its own clients still; in maintenance not even those.
    drop(at_a);
    for (state, server) in [(State::Drained, "a"), (State::Maintenance, "b")] {
        bench.store.set_states(&[StateChange { share: Some(Share::ZERO), ..StateChange::new(ServerSlot(0), state) }]);
        assert_eq!(server_of(&bench.place(Some(0))), server);
        assert_eq!(server_of(&bench.place(None)), "b");
    }
}

#[test]
fn a_reload_that_takes_the_queue_or_the_pool_away_ends_the_waits() {
    let bench = bench(&[("a", 1, 1, Some(1))]);
    let at_a = bench.place(None);
    let mut waiting = bench.wait(None);
    bench.store.reload(config_of(vec![pool_of("p", Method::RoundRobin, &[("a", 1, 1, Some(1))])]), no_rules());
    assert!(matches!(poll(&mut waiting), Poll::Ready(Err(Again))));
    assert_eq!(bench.ask(None).unwrap_err(), Refused::AllFull);
    bench.store.reload(config_of(vec![pool(&[("a", 1, 1, Some(1))])]), no_rules());
    let mut waiting = bench.wait(None);
    bench.store.reload(config_of(Vec::new()), no_rules());
    assert!(matches!(poll(&mut waiting), Poll::Ready(Err(Again))));
    assert_eq!(bench.ask(None).unwrap_err(), Refused::PoolGone);
    // The place of before is given back to a pool that has come again.
    bench.store.reload(config_of(vec![pool(&[("a", 1, 1, Some(1))])]), no_rules());
    let mut waiting = bench.wait(None);
    drop(at_a);
    assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(_))));
    assert_eq!((bench.active(), bench.waiting()), (0, 0));
}

#[test]
fn a_reload_that_brings_a_server_or_more_places_serves_those_who_wait() {
    let bench = bench(&[("a", 1, 1, Some(1))]);
    let _at_a = bench.place(None);
    let (mut first, mut second) = (bench.wait(None), bench.wait(None));
    bench.store.reload(config_of(vec![pool(&[("a", 1, 1, Some(2))])]), no_rules());
    let Poll::Ready(Ok(_lease)) = poll(&mut first) else { panic!("a has another place") };
    bench.store.reload(config_of(vec![pool(&[("a", 1, 1, Some(2)), ("b", 2, 1, Some(1))])]), no_rules());
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(lease)) if server_of(&lease) == "b"));
}

#[test]
fn a_place_of_a_queue_that_a_reload_has_brought_is_found_when_the_time_is_up() {
    let bench = Bench::new(&[("a", 1, 1, Some(1))]);
    let before = bench.place(None);
    bench.store.reload(config_of(vec![pool(&[("a", 1, 1, Some(1))])]), no_rules());
    let wait = bench.wait(None);
    // Whoever took this place knows of no queue.
    drop(before);
    assert!(bench.last_try(wait, None).is_ok());
}

#[test]
fn a_panic_passes_the_place_on() {
    let bench = bench(&[("a", 1, 1, Some(1))]);
    let at_a = bench.place(None);
    let mut waiting = bench.wait(None);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _lease = at_a;
        panic!("injected");
    }));
    assert!(caught.is_err());
    assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(_))));
    assert_eq!(bench.active(), 0);
}

#[test]
fn a_client_of_a_server_that_takes_nobody_new_keeps_it_while_others_wait() {
    for state in [State::Up, State::Drained, State::Suspect { by_overload: true }] {
        let bench = bench(&[("a", 1, 1, Some(2)), ("b", 2, 1, Some(1))]);
        bench.store.set_states(&[StateChange { share: Some(Share::ZERO), ..StateChange::new(ServerSlot(0), state) }]);
        let at_b = bench.place(None);
        let (mut first, mut second) = (bench.wait(None), bench.wait(None));
        // There are as many as may wait, and two places at a, which is its clients' alone.
        let (at_a, another) = (bench.place(Some(0)), bench.place(Some(0)));
        assert_eq!((server_of(&at_a), server_of(&another)), ("a", "a"), "{state}");
        drop(at_b);
        assert!(matches!(poll(&mut first), Poll::Ready(Ok(lease)) if server_of(&lease) == "b"));
        // The place at b has passed to the second; who waits for a is in nobody's way.
        let mut own = bench.wait(Some(0));
        drop(another);
        assert!(matches!(poll(&mut own), Poll::Ready(Ok(lease)) if server_of(&lease) == "a"), "{state}");
        assert!(poll(&mut second).is_ready());
    }
}

#[test]
fn a_client_whose_own_server_refuses_connections_does_not_wait_for_it() {
    let bench = bench(&[("a", 1, 1, Some(1)), ("b", 2, 1, Some(1))]);
    let _at_a = bench.place(Some(0));
    let record = Arc::clone(&bench.store.load().pools[0].endpoints[0].record);
    (0..CONNECT_FAILURES_MAX).for_each(|_| record.load.count_connect_failure());
    assert_eq!(server_of(&bench.place(Some(0))), "b");
}

fn strict(method: Method, servers: &[TestServer<'_>]) -> Bench {
    let pool = Pool::clone(&pool(servers));
    Bench::of(Arc::new(Pool { scheduler: SchedulerConfig { method, fallback: Fallback::None }, ..pool }))
}

#[test]
fn a_key_that_leads_nowhere_is_refused_and_not_handed_to_another_server_by_the_queue() {
    let bench = strict(Method::Maglev, &[("a", 1, 1, Some(1)), ("b", 2, 1, Some(1))]);
    let ask_for =
        |key| bench.admission.admit(bench.pool_ref(), &Ask { key: Some(key), ..ask(None) }, &mut Trace::off());
    let Ok(Admitted::Place(lease)) = ask_for(7) else { panic!("there is a place for the key") };
    let (its, other) = if server_of(&lease) == "a" { (0, 1) } else { (1, 0) };
    // Full, or down, while the other server has a place.
    assert_eq!(ask_for(7).unwrap_err(), Refused::NoneAvailable);
    drop(lease);
    bench.set(its, State::Maintenance);
    assert_eq!(ask_for(7).unwrap_err(), Refused::NoneAvailable);
    // Also where others wait, of whom one has no key and takes any server.
    let _elsewhere = bench.place(None);
    let mut keyless = bench.wait(None);
    assert_eq!(ask_for(7).unwrap_err(), Refused::NoneAvailable);
    bench.set(its, State::Up);
    let Poll::Ready(Ok(lease)) = poll(&mut keyless) else { panic!("the server is back") };
    assert_eq!(lease.endpoint().record.slot, ServerSlot(its));
    assert_eq!((bench.waiting(), bench.store.load().pools[0].endpoints[other as usize].record.load.active()), (0, 1));
}

#[test]
fn a_request_beyond_all_weights_is_refused_although_there_is_a_queue() {
    let bench = strict(Method::Overflow, &[("a", 1, 1, Some(3)), ("b", 2, 1, None)]);
    // One more than its weight, as in the kernel.
    let mut leases: Vec<Lease> = (0..4).map(|_| bench.place(None)).collect();
    assert_eq!(bench.ask(None).unwrap_err(), Refused::NoneAvailable);
    leases.pop();
    leases.push(bench.place(None));
    // Where no server has a place it waits like any other.
    let bench = strict(Method::Overflow, &[("a", 1, 1, Some(1)), ("b", 2, 1, Some(1))]);
    let places = [bench.place(None), bench.place(None)];
    let mut waiting = bench.wait(None);
    drop(places);
    assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(_))));
}

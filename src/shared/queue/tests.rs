//! The queue held against a naive one that looks at everybody, and by several threads at once.

use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::base::id::ServerId;
use crate::base::rng::Rng;
use crate::pure::pool::{Address, Server, Share};
use crate::shared::counters::ServerRecord;

fn endpoint(number: u32, max: Option<u32>) -> Arc<Endpoint> {
    weighty(number, 1, max)
}

fn weighty(number: u32, weight: u16, max: Option<u32>) -> Arc<Endpoint> {
    let id = ServerId { pool: "p".into(), server: format!("s{number}").into() };
    let address = Address::Socket(([127, 0, 0, 1], 80).into());
    let record = Arc::new(ServerRecord::new(id.clone(), ServerSlot(number)));
    let server = Server { id, address, weight, max, is_backup: false };
    Arc::new(Endpoint::new(Arc::new(server), record, 0, Arc::default()))
}

fn seat(endpoint: &Arc<Endpoint>) -> Seat {
    let share = Share::of(endpoint.server.weight);
    Seat { endpoint: Arc::clone(endpoint), share, takes_new: true, takes_back: true }
}

fn queue_of(endpoints: &[Arc<Endpoint>]) -> Arc<Queue> {
    let queue = Arc::new(Queue::default());
    queue.follow(endpoints.iter().map(seat));
    queue
}

fn reserve(endpoint: &Arc<Endpoint>) -> bool {
    endpoint.record.load.try_reserve(endpoint.server.max)
}

/// Joins without looking for a place.
fn wait(queue: &Arc<Queue>, own: Option<u32>) -> Waiting {
    match queue.join(own.map(ServerSlot), &Tried::NONE, 100, || None::<()>) {
        Joined::Waits(waiting) => waiting,
        other => panic!("{other:?}"),
    }
}

fn poll(waiting: &mut Waiting) -> Poll<Turn> {
    waiting.poll(&Context::from_waker(Waker::noop()))
}

/// The number of the server that the waiter has got a place at.
fn place_of(waiting: &mut Waiting) -> Option<u32> {
    match poll(waiting) {
        Poll::Ready(Turn::Place(endpoint)) => Some(endpoint.record.slot.0),
        Poll::Ready(Turn::LooksAgain) => panic!("nothing has changed"),
        Poll::Pending => None,
    }
}

fn active(endpoint: &Endpoint) -> u32 {
    endpoint.record.load.active()
}

#[test]
fn a_place_passes_to_the_oldest_and_is_never_free_in_between() {
    let a = endpoint(0, Some(1));
    let queue = queue_of(std::slice::from_ref(&a));
    assert!(reserve(&a));
    let (mut first, mut second) = (wait(&queue, None), wait(&queue, None));
    queue.give_back(&a);
    assert_eq!(active(&a), 1);
    assert_eq!((place_of(&mut first), place_of(&mut second)), (Some(0), None));
    queue.give_back(&a);
    assert_eq!(place_of(&mut second), Some(0));
    assert!(queue.is_empty());
    queue.give_back(&a);
    assert_eq!(active(&a), 0);
}

#[test]
fn who_waits_for_a_server_of_its_own_is_in_nobodys_way() {
    let (a, b) = (endpoint(0, Some(1)), endpoint(1, Some(1)));
    let queue = queue_of(&[Arc::clone(&a), Arc::clone(&b)]);
    assert!(reserve(&a) && reserve(&b));
    let (mut own, mut any) = (wait(&queue, Some(0)), wait(&queue, None));
    queue.give_back(&b);
    assert_eq!((place_of(&mut own), place_of(&mut any)), (None, Some(1)));
    // Somebody new finds a place at b: only a is waited for.
    queue.give_back(&b);
    assert!(matches!(queue.join(None, &Tried::NONE, 100, || reserve(&b).then_some(())), Joined::Place(())));
    let mut younger = wait(&queue, None);
    queue.give_back(&a);
    assert_eq!((place_of(&mut own), place_of(&mut younger)), (Some(0), None));
}

#[test]
fn a_place_of_a_waiter_that_went_away_passes_on() {
    let a = endpoint(0, Some(1));
    let queue = queue_of(std::slice::from_ref(&a));
    assert!(reserve(&a));
    let (gone, handed, mut third) = (wait(&queue, None), wait(&queue, None), wait(&queue, None));
    drop(gone);
    queue.give_back(&a);
    assert_eq!(place_of(&mut third), None);
    drop(handed);
    assert_eq!(place_of(&mut third), Some(0));
    queue.give_back(&a);
    assert_eq!(active(&a), 0);
    assert_eq!(queue.figures(), QueueFigures { waited: 3, left: 2, ..QueueFigures::default() });
}

#[test]
fn as_many_wait_as_may_and_no_more() {
    let a = endpoint(0, Some(1));
    let queue = queue_of(std::slice::from_ref(&a));
    assert!(reserve(&a));
    let join = || queue.join(None, &Tried::NONE, 2, || None::<()>);
    let (Joined::Waits(first), Joined::Waits(_second)) = (join(), join()) else { panic!("there is room for two") };
    assert!(matches!(join(), Joined::Full));
    drop(first);
    let Joined::Waits(_third) = join() else { panic!("there is room again") };
    assert_eq!(queue.figures().turned_away, 1);
}

#[test]
fn who_waits_gets_a_place_when_a_server_comes_back_and_when_it_gets_more() {
    let (a, b) = (endpoint(0, Some(1)), endpoint(1, Some(2)));
    let queue = Arc::new(Queue::default());
    let down = |endpoint| Seat { takes_new: false, takes_back: false, ..seat(endpoint) };
    queue.follow([down(&a), down(&b)].into_iter());
    let mut waiting: Vec<_> = (0..4).map(|_| wait(&queue, None)).collect();
    let mut places = || -> Vec<_> { waiting.iter_mut().map(|one| poll(one).is_ready()).collect() };
    assert_eq!(places(), [false; 4]);
    queue.follow([down(&a), seat(&b)].into_iter());
    assert_eq!(places(), [true, true, false, false]);
    // Another configuration gives the server three places.
    let record = Arc::clone(&b.record);
    let server = Server { max: Some(3), ..Server::clone(&b.server) };
    let more = Arc::new(Endpoint::new(Arc::new(server), record, 0, Arc::default()));
    queue.follow([down(&a), seat(&more)].into_iter());
    assert_eq!(active(&b), 3);
    // And another one only one: places that come back are too many, until there is room.
    let server = Server { max: Some(1), ..Server::clone(&b.server) };
    let fewer = Arc::new(Endpoint::new(Arc::new(server), Arc::clone(&b.record), 0, Arc::default()));
    queue.follow([down(&a), seat(&fewer)].into_iter());
    for left in [2, 1] {
        queue.give_back(&b);
        assert_eq!((active(&b), queue.figures().waiting), (left, 1));
    }
    queue.give_back(&b);
    assert_eq!((active(&b), queue.figures().waiting), (1, 0));
}

#[test]
fn who_waits_for_a_server_that_is_lost_takes_any_in_its_turn() {
    let (a, b) = (endpoint(0, Some(1)), endpoint(1, Some(1)));
    let queue = queue_of(&[Arc::clone(&a), Arc::clone(&b)]);
    assert!(reserve(&a) && reserve(&b));
    let (mut own, mut younger) = (wait(&queue, Some(0)), wait(&queue, None));
    queue.follow([Seat { takes_new: false, takes_back: false, ..seat(&a) }, seat(&b)].into_iter());
    queue.give_back(&b);
    assert_eq!((place_of(&mut own), place_of(&mut younger)), (Some(1), None));
    drop(own);
    queue.give_back(&a);
    assert_eq!((active(&a), place_of(&mut younger)), (0, None), "nobody may go to a");
}

#[test]
fn a_drained_server_is_waited_for_by_its_own_clients_alone() {
    let a = endpoint(0, Some(1));
    let queue = Arc::new(Queue::default());
    queue.follow(std::iter::once(Seat { takes_new: false, ..seat(&a) }));
    assert!(reserve(&a));
    let (mut older, mut own) = (wait(&queue, None), wait(&queue, Some(0)));
    queue.give_back(&a);
    assert_eq!((place_of(&mut older), place_of(&mut own)), (None, Some(0)));
}

#[test]
fn a_queue_that_is_closed_sends_everybody_to_look_again_and_takes_nobody() {
    let a = endpoint(0, Some(1));
    let queue = queue_of(std::slice::from_ref(&a));
    assert!(reserve(&a));
    let mut waiting = [wait(&queue, None), wait(&queue, Some(0))];
    queue.close();
    for one in &mut waiting {
        assert!(matches!(poll(one), Poll::Ready(Turn::LooksAgain)));
    }
    assert!(matches!(queue.join(None, &Tried::NONE, 9, || Some(())), Joined::Closed));
    queue.give_back(&a);
    assert_eq!((active(&a), queue.figures().waiting), (0, 0));
    queue.follow(std::iter::once(seat(&a)));
    assert!(matches!(queue.join(None, &Tried::NONE, 9, || Some(())), Joined::Place(())));
}

#[test]
fn a_server_that_refuses_everybody_does_not_drain_the_queue() {
    let (a, b) = (endpoint(0, Some(1)), endpoint(1, Some(1)));
    let queue = queue_of(&[Arc::clone(&a), Arc::clone(&b)]);
    assert!(reserve(&a) && reserve(&b));
    let (mut first, mut second) = (wait(&queue, None), wait(&queue, None));
    (0..CONNECT_FAILURES).for_each(|_| a.record.load.count_connect_failure());
    queue.give_back(&a);
    assert_eq!((place_of(&mut first), active(&a)), (None, 0));
    queue.give_back(&b);
    assert_eq!(place_of(&mut first), Some(1));
    // As soon as it takes connections again, its place is remembered.
    a.record.forget_failures();
    queue.give_back(&b);
    assert!(place_of(&mut second).is_some());
    assert!(queue.is_empty());
}

#[test]
fn where_all_refuse_any_will_do() {
    let a = endpoint(0, Some(1));
    let queue = queue_of(std::slice::from_ref(&a));
    assert!(reserve(&a));
    let mut first = wait(&queue, None);
    (0..CONNECT_FAILURES).for_each(|_| a.record.load.count_connect_failure());
    queue.give_back(&a);
    assert_eq!(place_of(&mut first), Some(0));
}

const CONNECT_FAILURES: u32 = crate::pure::control::watch::CONNECT_FAILURES_MAX;

#[test]
fn a_wait_whose_time_is_up_ends_with_what_there_is() {
    let (a, b) = (endpoint(0, Some(1)), endpoint(1, Some(1)));
    let queue = queue_of(&[Arc::clone(&a), Arc::clone(&b)]);
    assert!(reserve(&a));
    // Its own server is taken and another is free: in time it goes there.
    let own = wait(&queue, Some(0));
    assert!(matches!(own.expire(|| reserve(&b).then_some(1)), Some(Expired::Found(1))));
    // What was handed to it a moment before is its.
    let handed = wait(&queue, Some(0));
    queue.give_back(&a);
    assert!(matches!(handed.expire(|| None::<()>), Some(Expired::Handed(_))));
    let in_vain = wait(&queue, None);
    assert!(in_vain.expire(|| None::<()>).is_none());
    assert_eq!(queue.figures(), QueueFigures { waited: 3, timed_out: 1, ..QueueFigures::default() });
    assert_eq!((active(&a), active(&b)), (1, 1));
}

#[test]
fn a_pool_that_comes_back_does_not_send_all_who_wait_to_its_first_server() {
    let endpoints = [weighty(0, 1, Some(100)), weighty(1, 2, Some(100)), weighty(2, 3, Some(1))];
    let queue = Arc::new(Queue::default());
    queue.follow(endpoints.iter().map(|endpoint| Seat { takes_new: false, ..seat(endpoint) }));
    let waiting: Vec<_> = (0..31).map(|_| wait(&queue, None)).collect();
    queue.follow(endpoints.iter().map(seat));
    assert_eq!(endpoints.each_ref().map(|endpoint| active(endpoint)), [10, 20, 1]);
    drop(waiting);
}

mod naive;

/// Several threads, few places: never more in flight than there are places, everybody gets one, and none is left over.
#[test]
fn several_threads_never_overrun_the_places_and_nobody_is_forgotten() {
    const ROUNDS: u64 = 3_000;
    let endpoints = [endpoint(0, Some(1)), endpoint(1, Some(2))];
    let queue = queue_of(&endpoints);
    let served = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (queue, endpoints, served) = (&queue, &endpoints, &served);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..ROUNDS {
                    if let Some(endpoint) = one_request(queue, endpoints, &mut rng) {
                        assert!(active(&endpoint) <= endpoint.server.max.unwrap());
                        served.fetch_add(1, Ordering::Relaxed);
                        if rng.below(2) == 0 {
                            thread::yield_now();
                        }
                        queue.give_back(&endpoint);
                    }
                }
            });
        }
    });
    assert_eq!(endpoints.each_ref().map(|endpoint| active(endpoint)), [0, 0]);
    let figures = queue.figures();
    assert_eq!((figures.waiting, served.load(Ordering::Relaxed) + figures.left), (0, 4 * ROUNDS));
}

/// Several threads and one place: it goes from each to the next in the order in which they came.
#[test]
fn a_place_goes_through_all_threads_in_the_order_of_arrival() {
    let a = endpoint(0, Some(1));
    let queue = queue_of(std::slice::from_ref(&a));
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    if !queue.is_empty() || !reserve(&a) {
                        let joined = queue.join(None, &Tried::NONE, 100, || reserve(&a).then_some(()));
                        if let Joined::Waits(mut waiting) = joined {
                            let ticket = waiting.ticket;
                            until_handed(&mut waiting);
                            // Whoever holds the only place is alone here.
                            order.lock().unwrap().push(ticket);
                        }
                    }
                    assert_eq!(active(&a), 1);
                    // So that somebody comes meanwhile.
                    thread::yield_now();
                    queue.give_back(&a);
                }
            });
        }
    });
    let order = order.into_inner().unwrap();
    assert!(order.is_sorted(), "somebody was passed over");
    println!("{} of 8000 waited", order.len());
    assert!(!order.is_empty(), "nobody has waited");
}

/// One gives its place back in the very moment in which the other begins to wait, and nobody else comes who would notice.
#[test]
fn who_begins_to_wait_while_a_place_is_given_back_is_not_forgotten() {
    const ROUNDS: u32 = 50_000;
    let a = endpoint(0, Some(1));
    let queue = queue_of(std::slice::from_ref(&a));
    // Even: the giver holds the place and may give it back. Odd: the taker has had it.
    let round = AtomicU32::new(0);
    let spin_until = |number: u32| {
        let began = crate::base::time::now();
        while round.load(Ordering::SeqCst) < number {
            assert!(crate::base::time::now().since(began) < PATIENCE, "the other has ended");
            std::hint::spin_loop();
        }
    };
    assert!(reserve(&a));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(1);
            for number in 0..ROUNDS {
                spin_until(2 * number);
                (0..rng.below(200)).for_each(|_| std::hint::spin_loop());
                queue.give_back(&a);
                spin_until(2 * number + 1);
                assert!(reserve(&a));
                round.store(2 * number + 2, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            for number in 0..ROUNDS {
                spin_until(2 * number);
                match queue.join(None, &Tried::NONE, 1, || reserve(&a).then_some(())) {
                    Joined::Place(()) => {}
                    Joined::Waits(mut waiting) => drop(until_handed(&mut waiting)),
                    other => panic!("{other:?}"),
                }
                queue.give_back(&a);
                round.store(2 * number + 1, Ordering::SeqCst);
            }
        });
    });
    assert_eq!((active(&a), queue.figures().waiting), (1, 0));
    println!("{} of {ROUNDS} waited", queue.figures().waited);
}

/// Takes a place as an admission does; waits as long as it takes, or goes away.
fn one_request(queue: &Arc<Queue>, endpoints: &[Arc<Endpoint>; 2], rng: &mut Rng) -> Option<Arc<Endpoint>> {
    let own = (rng.below(3) == 0).then_some(0);
    let choose = || match own {
        Some(own) => reserve(&endpoints[own]).then(|| Arc::clone(&endpoints[own])),
        None => endpoints.iter().find(|endpoint| reserve(endpoint)).map(Arc::clone),
    };
    if queue.is_empty()
        && let Some(endpoint) = choose()
    {
        return Some(endpoint);
    }
    let mut waiting = match queue.join(own.map(|_| ServerSlot(0)), &Tried::NONE, 100, choose) {
        Joined::Place(endpoint) => return Some(endpoint),
        Joined::Waits(waiting) => waiting,
        other => panic!("{other:?}"),
    };
    if rng.below(5) == 0 {
        return None;
    }
    Some(until_handed(&mut waiting))
}

/// Waits until a place is handed over.
fn until_handed(waiting: &mut Waiting) -> Arc<Endpoint> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match waiting.poll(&Context::from_waker(&waker)) {
            Poll::Ready(Turn::Place(endpoint)) => return endpoint,
            Poll::Ready(Turn::LooksAgain) => panic!("nothing has changed"),
            Poll::Pending => {
                let began = crate::base::time::now();
                thread::park_timeout(PATIENCE);
                assert!(crate::base::time::now().since(began) < PATIENCE, "a waiter was forgotten");
            }
        }
    }
}

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Unpark(thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

//! Slow start: who begins it, how the share rises, and what ends it.

use super::*;

const TAKES: Duration = Duration::from_secs(10);

fn slow(number: u32) -> Watched {
    Watched { slow_start: Some(TAKES), ..watched(number) }
}

fn bench() -> Bench {
    let mut control = Control::new(1);
    control.handle(Timestamp::ZERO, Event::Reload(&[slow(0), slow(1)]), &mut Vec::new());
    Bench { control, now: Timestamp::ZERO }
}

impl Bench {
    /// Lets time pass, every check with this result. Gives back the states and shares of server 0 that were published.
    fn pass(&mut self, span: Duration, result: Result<Duration, CheckFailure>) -> Vec<(Timestamp, Effect)> {
        let end = self.now + span;
        let mut published = Vec::new();
        while self.now < end {
            self.now = self.now + TICK;
            let mut effects = self.handle(Event::Tick);
            while let Some(effect) = effects.pop() {
                match effect {
                    Effect::RunCheck(check) => {
                        effects.extend(self.handle(Event::CheckDone(check.id, check.server, result)))
                    }
                    Effect::SetState(S0, _) | Effect::SetShare(S0, _) => published.push((self.now, effect)),
                    _ => {}
                }
            }
        }
        published
    }

    /// Makes server 0 fail and come back as far as to the beginning of its slow start.
    fn recover(&mut self, from: State) {
        self.handle(Event::Outcomes(S0, row(3)));
        if from == State::Down {
            self.pass(CHECK_INTERVAL, REFUSED);
        }
        assert_eq!(self.state(0), from);
        while self.state(0) == from {
            self.pass(TICK, PASS);
        }
        assert_eq!(self.state(0), State::Recovering);
    }
}

#[test]
fn a_server_that_comes_back_climbs_from_a_tenth_to_its_whole_share_and_is_up_then() {
    for from in [SUSPECT, State::Down] {
        let mut bench = bench();
        bench.recover(from);
        let began = bench.now;
        let published = bench.pass(TAKES + TICK * 2, PASS);
        let shares: Vec<_> = published
            .iter()
            .filter_map(|(at, effect)| match effect {
                Effect::SetShare(_, share) => Some((*at, *share)),
                _ => None,
            })
            .collect();
        assert_eq!(shares.len(), usize::from(climb::STEPS), "the first share comes with the state");
        assert!(shares.is_sorted_by_key(|(_, share)| *share));
        for (at, share) in &shares {
            let hundred = u128::from(share.units()) * 100 / u128::from(Share::of(100).units());
            let due = 10 + 90 * at.since(began).as_millis() / TAKES.as_millis();
            assert!(hundred <= due && hundred + 6 >= due, "{hundred} where {due} is due");
        }
        let (at, last) = published.iter().rfind(|(_, effect)| matches!(effect, Effect::SetState(..))).unwrap();
        assert_eq!(*last, Effect::SetState(S0, State::Up));
        assert!(at.since(began) >= TAKES);
        assert_eq!(shares.last().unwrap().1, Share::of(100));
        assert_eq!(bench.checks_within(Duration::from_secs(1)), [], "a server that is up is not checked");
    }
}

#[test]
fn the_first_share_is_published_with_the_state() {
    let mut bench = bench();
    bench.handle(Event::Outcomes(S0, row(3)));
    bench.pass(CHECK_INTERVAL, REFUSED);
    let published = bench.pass(CHECK_INTERVAL * 4, PASS);
    let of_state = published.iter().find(|(_, effect)| *effect == Effect::SetState(S0, State::Recovering)).unwrap();
    let of_share = published.iter().find(|(_, effect)| *effect == Effect::SetShare(S0, Share::of(10))).unwrap();
    assert_eq!(of_state.0, of_share.0);
}

#[test]
fn one_failure_on_the_way_makes_it_again_what_it_was() {
    let by_request = Event::Outcomes(S0, row(1));
    for (from, expected) in [(State::Down, State::Down), (SUSPECT, SUSPECT)] {
        let mut bench = bench();
        bench.recover(from);
        bench.handle(by_request.clone());
        assert_eq!(bench.state(0), expected, "a connect that failed, from {from}");
    }
    for (from, result, expected) in [
        (State::Down, REFUSED, State::Down),
        (State::Down, Err(CheckFailure::Unreachable), State::Down),
        (State::Down, Err(CheckFailure::TimedOut), SUSPECT),
        (State::Down, Err(CheckFailure::NotRun), State::Recovering),
        (SUSPECT, REFUSED, SUSPECT),
        (SUSPECT, Err(CheckFailure::TimedOut), SUSPECT),
    ] {
        let mut bench = bench();
        bench.recover(from);
        bench.pass(Duration::from_secs(3), PASS);
        let check = bench.control.servers.keys().count();
        assert_eq!(check, 2);
        while bench.state(0) == State::Recovering {
            let before = bench.now;
            bench.pass(TICK, result);
            if expected == State::Recovering && before.since(Timestamp::ZERO) > Duration::from_secs(8) {
                break;
            }
        }
        assert_eq!(bench.state(0), expected, "{result:?} from {from}");
    }
}

#[test]
fn a_fall_on_the_way_gives_the_whole_share_back() {
    let mut bench = bench();
    bench.recover(State::Down);
    bench.pass(Duration::from_secs(3), PASS);
    let effects = bench.handle(Event::Outcomes(S0, row(1)));
    assert!(effects.contains(&Effect::SetShare(S0, Share::of(100))), "its state is what bars it");
    // The next climb begins at the foot.
    let published = bench.pass(Duration::from_secs(2), PASS);
    assert!(published.iter().any(|(_, effect)| *effect == Effect::SetShare(S0, Share::of(10))));
}

#[test]
fn the_last_server_of_a_pool_that_fails_on_its_way_back_stays_suspect() {
    let mut bench = bench();
    bench.recover(State::Down);
    bench.handle(Event::Order(ServerSlot(1), Order::Maintain));
    bench.handle(Event::Outcomes(S0, row(1)));
    assert_eq!(bench.state(0), SUSPECT);
}

#[test]
fn a_server_from_maintenance_climbs_and_a_drained_one_does_not() {
    let mut bench = bench();
    for (order, state) in [(Order::Maintain, State::Recovering), (Order::Drain, State::Up)] {
        bench.handle(Event::Order(S0, order));
        bench.handle(Event::Order(S0, Order::Enable));
        assert_eq!(bench.state(0), state);
    }
}

#[test]
fn an_order_ends_a_slow_start() {
    let mut bench = bench();
    bench.recover(State::Down);
    let effects = bench.handle(Event::Order(S0, Order::Drain));
    assert!(effects.contains(&Effect::SetShare(S0, Share::of(100))));
    assert_eq!(bench.pass(TAKES * 2, PASS), []);
    assert_eq!(bench.state(0), State::Drained);
}

#[test]
fn a_server_of_a_start_does_not_climb_and_one_that_a_reload_brings_does() {
    let mut bench = bench();
    assert_eq!((bench.state(0), bench.state(1)), (State::Up, State::Up));
    let effects = bench.handle(Event::Reload(&[slow(0), slow(1), slow(2), watched(3)]));
    let new = ServerSlot(2);
    let change = Change { server: slow(2).id, from: State::Up, to: State::Recovering, because: Sign::Configured };
    assert_eq!(
        effects,
        [
            Effect::SetState(new, State::Recovering),
            Effect::SetShare(new, Share::of(10)),
            Effect::ForgetConnectFailures(new),
            Effect::Tell(change),
        ]
    );
    bench.pass(TAKES + TICK, PASS);
    assert_eq!(bench.state(2), State::Up);
}

#[test]
fn new_addresses_do_not_end_a_slow_start_and_do_not_begin_one() {
    let mut bench = bench();
    bench.recover(State::Down);
    bench.pass(Duration::from_secs(5), PASS);
    // As the snapshot has them after a change of their names' addresses.
    let moved = |number, state, share| Watched { incarnation: 1, state, share, ..slow(number) };
    let now = [moved(0, State::Recovering, Share::of(55)), moved(1, State::Up, Share::of(100))];
    assert_eq!(bench.handle(Event::Reload(&now)), []);
    assert_eq!((bench.state(0), bench.state(1)), (State::Recovering, State::Up));
    // As it has them after a change of the rule file: everything is as at a start.
    let now = [Watched { incarnation: 2, ..slow(0) }, Watched { incarnation: 2, ..slow(1) }];
    let effects = bench.handle(Event::Reload(&now));
    assert_eq!(effects[..2], [Effect::SetState(S0, State::Recovering), Effect::SetShare(S0, Share::of(55))]);
    bench.pass(Duration::from_secs(5) + TICK, PASS);
    assert_eq!(bench.state(0), State::Up);
}

#[test]
fn a_reload_that_changes_the_weight_or_takes_slow_start_away_is_followed_at_once() {
    let mut bench = bench();
    bench.recover(SUSPECT);
    let heavy = Watched { state: State::Recovering, share: Share::of(200), whole: Share::of(200), ..slow(0) };
    assert_eq!(bench.handle(Event::Reload(&[heavy.clone(), slow(1)])), [Effect::SetShare(S0, Share::of(20))]);
    bench.handle(Event::Reload(&[Watched { slow_start: None, share: Share::of(20), ..heavy }, slow(1)]));
    let published: Vec<_> = bench.pass(TICK, PASS).into_iter().map(|(_, effect)| effect).collect();
    assert!(published.contains(&Effect::SetShare(S0, Share::of(200))));
    assert_eq!(bench.state(0), State::Up);
}

//! Choices that are kept, moved and made once, held against a list that is looked through.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(300);
const SUSPECT: State = State::Suspect { by_overload: false };

fn key(number: u64) -> Key {
    // Spread over the shards.
    Key { hash: number.wrapping_mul(0x9E37_79B9_7F4A_7C15), ttl: TTL }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds + 1)
}

fn header(number: u64) -> Claim {
    Claim { keys: [None, Some(key(number)), None, None], ..Claim::default() }
}

const A: ServerSlot = ServerSlot(1);
const B: ServerSlot = ServerSlot(2);
const C: ServerSlot = ServerSlot(3);

fn by(form: Form, slot: ServerSlot) -> Option<Own> {
    Some(Own { slot, form })
}

#[test]
fn a_choice_is_kept_while_it_is_in_use() {
    let choices = Choices::with_capacity(64);
    choices.assign(key(1), None, A, at(0)).unwrap();
    for round in 1..10 {
        assert_eq!(choices.look_up(key(1), at(round * 299)), Some(A));
    }
    assert_eq!(choices.look_up(key(1), at(9 * 299 + 300)), None);
}

#[test]
fn the_first_choice_for_a_client_is_made_once_by_however_many_threads() {
    let choices = Choices::default();
    for client in 0..200 {
        let barrier = std::sync::Barrier::new(4);
        let got: Vec<ServerSlot> = std::thread::scope(|scope| {
            let one = |thread: u32| {
                let (choices, barrier) = (&choices, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let picked = ServerSlot(thread);
                    match choices.settle(&header(client), None, picked, None, false, at(0)) {
                        Settled::Elsewhere(own) => own.slot,
                        Settled::Belongs | Settled::Stays => picked,
                    }
                })
            };
            let threads: Vec<_> = (0..4).map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(got.iter().all(|server| *server == got[0]), "{got:?}");
        assert_eq!(choices.look_up(key(client), at(0)), Some(got[0]));
    }
}

#[test]
fn a_client_stays_with_a_suspect_server_and_moves_from_one_that_is_down() {
    let choices = Choices::with_capacity(64);
    choices.set(key(1), A, at(0));
    let own = choices.own(&header(1), at(1));
    assert_eq!(own, by(Form::Header, A));
    for state in [SUSPECT, State::Up, State::Drained] {
        assert_eq!(choices.settle(&header(1), own, B, Some(state), false, at(1)), Settled::Stays);
        assert_eq!(choices.look_up(key(1), at(1)), Some(A));
    }
    assert_eq!(choices.settle(&header(1), own, B, Some(State::Down), false, at(1)), Settled::Belongs);
    assert_eq!(choices.look_up(key(1), at(1)), Some(B));
    // Another request of the same client had seen the old server too.
    assert_eq!(
        choices.settle(&header(1), own, C, Some(State::Down), false, at(1)),
        Settled::Elsewhere(Own { slot: B, form: Form::Header })
    );
}

#[test]
fn a_server_that_never_answered_a_new_client_does_not_keep_it() {
    let choices = Choices::with_capacity(64);
    assert_eq!(choices.settle(&header(1), None, A, None, false, at(0)), Settled::Belongs);
    let own = choices.own(&header(1), at(0));
    assert_eq!(choices.settle(&header(1), own, B, Some(State::Up), true, at(0)), Settled::Belongs);
    assert_eq!(choices.look_up(key(1), at(0)), Some(B));
}

#[test]
fn the_surest_form_decides_and_those_before_it_learn() {
    let choices = Choices::with_capacity(64);
    let all = Claim { keys: [Some(key(1)), Some(key(2)), None, Some(key(4))], ..Claim::default() };
    choices.set(key(2), A, at(0));
    choices.set(key(4), B, at(0));
    let own = choices.own(&all, at(0));
    assert_eq!(own, by(Form::Header, A));
    assert_eq!(choices.settle(&all, own, A, None, false, at(0)), Settled::Belongs);
    assert_eq!(choices.look_up(key(1), at(0)), Some(A), "the application's cookie, which was not known");
    assert_eq!(choices.look_up(key(4), at(0)), Some(B), "the address, which is many clients'");
    let with_cookie = Claim { cookie: Some((C, false)), ..all };
    let own = choices.own(&with_cookie, at(0));
    assert_eq!(own, by(Form::Cookie, C));
    assert_eq!(choices.settle(&with_cookie, own, C, None, false, at(0)), Settled::Belongs);
    assert_eq!(choices.look_up(key(1), at(0)), Some(A));
}

#[test]
fn of_tls_sessions_only_deviations_are_remembered() {
    let choices = Choices::with_capacity(64);
    let claim = Claim { keys: [None, None, Some(key(3)), None], session_home: Some(A), ..Claim::default() };
    let own = choices.own(&claim, at(0));
    assert_eq!(own, by(Form::TlsSession, A));
    assert_eq!(choices.settle(&claim, own, A, None, false, at(0)), Settled::Belongs);
    assert_eq!(choices.usage().entries, 0);
    assert_eq!(choices.settle(&claim, own, B, Some(State::Down), false, at(0)), Settled::Belongs);
    assert_eq!(choices.own(&claim, at(1)), by(Form::TlsSession, B));
    assert_eq!(choices.own(&claim, at(301)), by(Form::TlsSession, A), "home again when nobody asks");
}

#[test]
fn a_full_table_stays_at_its_bound_and_keeps_who_comes_back() {
    let choices = Choices::with_capacity(1024);
    choices.set(key(u64::MAX), A, at(0));
    for number in 0..100_000 {
        assert_eq!(choices.look_up(key(u64::MAX), at(0)), Some(A), "after {number}");
        choices.assign(key(number), None, B, at(0)).unwrap();
    }
    let usage = choices.usage();
    assert!(usage.entries <= 1024 && usage.capacity == 1024 && usage.evictions > 90_000, "{usage:?}");
}

/// What may be done to a table: to which client, with which server, how much later.
type Step = (u64, u32, u8, u64);

proptest! {
    #[test]
    fn choices_are_those_of_a_list_with_times(steps in prop::collection::vec((0_u64..20, 0_u32..4, 0_u8..4, 0_u64..200), 0..200)) {
        // Room for all: what has to go when there is none is the table's below.
        let choices = Choices::with_capacity(64 * 20);
        let mut naive: HashMap<u64, (ServerSlot, u64)> = HashMap::new();
        let mut now = 0;
        for (client, server, what, later) in steps {
            let step: Step = (client, server, what, later);
            now += later;
            let server = ServerSlot(server);
            let known = naive.get(&client).copied().filter(|(_, until)| *until > now).map(|(server, _)| server);
            match what {
                0 => {
                    prop_assert_eq!(choices.look_up(key(client), at(now)), known, "{:?}", step);
                    if let Some(server) = known {
                        naive.insert(client, (server, now + 300));
                    }
                }
                1 => {
                    choices.set(key(client), server, at(now));
                    naive.insert(client, (server, now + 300));
                }
                _ => {
                    let before = (what == 2).then_some(A);
                    let result = choices.assign(key(client), before, server, at(now));
                    match known {
                        Some(other) if Some(other) != before && other != server => prop_assert_eq!(result, Err(other)),
                        Some(_) | None => {
                            prop_assert_eq!(result, Ok(()));
                            naive.insert(client, (server, now + 300));
                        }
                    }
                }
            }
        }
    }
}

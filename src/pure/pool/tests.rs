//! The table of states, and who is eligible.

use super::*;
use crate::base::id::ServerSlot;

#[test]
fn the_state_table_says_who_may_get_what() {
    let table = [
        (State::Up, [true, true, true]),
        (State::Recovering, [true, true, true]),
        (State::Suspect { by_overload: false }, [false, false, true]),
        (State::Suspect { by_overload: true }, [false, true, true]),
        (State::Down, [false, false, false]),
        (State::Drained, [false, true, false]),
        (State::Maintenance, [false, false, false]),
    ];
    for (state, expected) in table {
        let said = [Wanted::New, Wanted::Persistent, Wanted::InPanic].map(|wanted| state.allows(wanted));
        assert_eq!(said, expected, "{state}");
    }
}

#[test]
fn tried_servers_beyond_the_bound_push_out_the_earliest() {
    let mut tried = Tried::NONE;
    assert!(tried.is_empty());
    for slot in 0..20 {
        tried.add(ServerSlot(slot));
        tried.add(ServerSlot(slot));
        assert!(tried.contains(ServerSlot(slot)));
    }
    let remembered: Vec<u32> = (0..30).filter(|slot| tried.contains(ServerSlot(*slot))).collect();
    assert_eq!(remembered, (12..20).collect::<Vec<_>>());
}

#[test]
fn slot_zero_is_not_tried_before_it_was() {
    assert!(!Tried::NONE.contains(ServerSlot(0)));
}

#[test]
fn places_are_taken_up_to_max_and_no_further() {
    let load = Load::default();
    assert!(load.try_reserve(Some(2)) && load.try_reserve(Some(2)));
    assert!(!load.try_reserve(Some(2)));
    load.release();
    assert!(load.try_reserve(Some(2)));
    assert!(!load.try_reserve(Some(0)));
    assert!(load.try_reserve(None));
    assert_eq!(load.active(), 3);
}

#[test]
fn shares_read_like_weights() {
    assert_eq!(Share::of(3).to_string(), "3");
    assert_eq!(Share::from_units(26).to_string(), "0.10");
    assert_eq!(Share::from_units(u32::MAX), Share::of(65_535));
    assert!(Share::of(0).is_zero());
}

fn candidates(states: &[(State, u16)]) -> Vec<Candidate> {
    states
        .iter()
        .zip(0..)
        .map(|((state, weight), number)| Candidate {
            server: Arc::new(Server {
                id: ServerId { pool: "p".into(), server: format!("s{number}").into() },
                address: Address::Name("host".to_owned(), 80),
                weight: *weight,
                max: Some(1),
                is_backup: false,
            }),
            slot: ServerSlot(number),
            incarnation: 0,
            state: *state,
            share: Share::of(*weight),
            max: Some(1),
            load: Arc::default(),
        })
        .collect()
}

const SUSPECT: State = State::Suspect { by_overload: false };

#[test]
fn panic_means_fewer_than_half_available_of_those_that_count() {
    let check = |states: &[(State, u16)], expected: bool| assert_eq!(is_in_panic(&candidates(states)), expected);
    check(&[], false);
    check(&[(State::Up, 1)], false);
    check(&[(SUSPECT, 1)], true);
    check(&[(SUSPECT, 1), (State::Up, 1)], false);
    check(&[(SUSPECT, 1), (State::Up, 1), (State::Down, 1)], true);
    check(&[(State::Drained, 1), (State::Maintenance, 1), (State::Up, 1), (SUSPECT, 0)], false);
}

#[test]
fn backups_are_no_part_of_the_half_and_spare_a_pool_the_panic() {
    let check = |regular: &[(State, u16)], backups: &[(State, u16)], expected: bool| {
        let mut all = candidates(&[regular, backups].concat());
        for candidate in all.iter_mut().skip(regular.len()) {
            Arc::make_mut(&mut candidate.server).is_backup = true;
        }
        assert_eq!(is_in_panic(&all), expected, "{regular:?} {backups:?}");
    };
    let (up, down, suspect) = ((State::Up, 1), (State::Down, 1), (SUSPECT, 1));
    check(&[up, suspect], &[suspect, suspect], false);
    check(&[up, suspect, suspect], &[up, up], true);
    check(&[suspect, down], &[up, down, down], false);
    check(&[suspect, down], &[suspect], true);
    check(&[suspect, down], &[(State::Maintenance, 1), (State::Up, 0)], true);
    check(&[(State::Drained, 1)], &[suspect], true);
    check(&[(State::Drained, 1)], &[up, suspect], false);
}

#[test]
fn a_part_of_a_share_is_rounded_down_and_never_nothing() {
    assert_eq!(Share::of(1).part(1, 10), Share::from_units(25));
    assert_eq!(Share::from_units(3).part(1, 10), Share::from_units(1));
    assert_eq!(Share::ZERO.part(1, 10), Share::ZERO);
    assert_eq!(Share::MAX.part(1_999, 2_000), Share::from_units(16_776_960 / 2_000 * 1_999 + 960 * 1_999 / 2_000));
    assert_eq!(Share::of(7).part(3, 2), Share::of(7));
    for numerator in 0..=200 {
        let exact = u64::from(Share::MAX.units()) * u64::from(numerator) / 200;
        assert_eq!(u64::from(Share::MAX.part(numerator, 200).units()), exact.max(1));
    }
}

#[test]
fn every_objection_is_what_makes_a_candidate_ineligible() {
    let all = candidates(&[(State::Up, 1), (SUSPECT, 1), (State::Up, 0), (State::Up, 1), (State::Up, 1)]);
    all[3].load.try_reserve(None);
    let mut tried = Tried::NONE;
    tried.add(ServerSlot(4));
    let mut view = PoolView { candidates: &all, generation: 1, wanted: Wanted::New, only_well: false, tried: &tried };
    let objections = |view: &PoolView<'_>| all.iter().map(|candidate| view.objection(candidate)).collect::<Vec<_>>();
    let expected = [
        None,
        Some(Ineligible::State(SUSPECT)),
        Some(Ineligible::NoShare),
        Some(Ineligible::Full(1)),
        Some(Ineligible::Tried),
    ];
    assert_eq!(objections(&view), expected);
    view.wanted = Wanted::InPanic;
    assert_eq!(objections(&view)[1], None);
    view.only_well = true;
    assert_eq!(objections(&view)[..2], [None, Some(Ineligible::Doubtful)]);
    all[0].load.count_connect_failure();
    assert_eq!(objections(&view)[0], Some(Ineligible::Doubtful));
    for view in [view, PoolView { only_well: false, ..view }, PoolView { wanted: Wanted::Persistent, ..view }] {
        for (index, objection) in objections(&view).iter().enumerate() {
            assert_eq!(view.is_eligible(index), objection.is_none());
        }
    }
    assert!(!view.is_eligible(5));
}

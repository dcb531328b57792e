//! Tests of what counts and what is obeyed: replays, restarts of either side, clocks that differ.

use super::*;
use crate::pure::feedback::report::Report;
use proptest::prelude::*;

const OURS: Challenge = Challenge([1; 16]);
const EARLIER: Challenge = Challenge([2; 16]);
const START: UnixNanos = UnixNanos(1_800_000_000_000_000_000);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn message(boot: u64, sequence: u64, sent: UnixNanos, heard: Option<Challenge>) -> SignedReport {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&sequence.to_be_bytes());
    let report = Report { boot, sequence, ..Report::default() };
    SignedReport { report, sent, nonce: Nonce(nonce), heard, restart: None }
}

#[test]
fn only_what_is_newer_counts() {
    let mut acceptance = Acceptance::new(OURS);
    let mut accept = |boot, sequence| acceptance.accept(&message(boot, sequence, START, Some(OURS)), START);
    assert_eq!(accept(5, 1), Ok(()));
    assert_eq!(accept(5, 1), Err(Refusal::Replayed));
    assert_eq!(accept(5, 7), Ok(()));
    assert_eq!(accept(5, 6), Err(Refusal::Old), "reordered on the way");
    assert_eq!(accept(6, 1), Ok(()), "the agent has begun anew");
    assert_eq!(accept(5, 8), Err(Refusal::Old), "of the agent before");
}

#[test]
fn what_was_sent_30_seconds_ago_or_will_be_does_not_count() {
    let mut acceptance = Acceptance::new(OURS);
    let mut at = |sequence, now| acceptance.accept(&message(1, sequence, START + seconds(100), Some(OURS)), now);
    assert_eq!(at(1, START + seconds(131)), Err(Refusal::Stale));
    assert_eq!(at(1, START + seconds(69)), Err(Refusal::Future));
    assert_eq!(at(1, START + seconds(130)), Ok(()));
    assert_eq!(at(2, START + seconds(70)), Ok(()));
}

#[test]
fn old_packets_are_worthless_after_the_balancer_restarts() {
    let mut before = Acceptance::new(EARLIER);
    let captured = message(1, 9, START, Some(EARLIER));
    assert_eq!(before.accept(&captured, START), Ok(()));
    let mut after = Acceptance::new(OURS);
    assert_eq!(after.accept(&captured, START + seconds(1)), Err(Refusal::Unheard));
    // It is answered by a question, which an agent obeys only if the nonce is one of its last: whoever replays gains nothing.
    let question = after.introduction(&captured, 1);
    let mut agent = Obedience::default();
    agent.sends(captured.nonce, START);
    assert_eq!(agent.obey(&question, START + seconds(1)), Ok(()));
    assert_eq!(after.accept(&message(1, 10, START + seconds(1), agent.heard()), START + seconds(1)), Ok(()));
}

#[test]
fn nobody_is_ordered_before_a_report_counted() {
    let mut acceptance = Acceptance::new(OURS);
    assert_eq!(acceptance.accept(&message(1, 1, START, None), START), Err(Refusal::Unheard));
    assert_eq!(acceptance.order(OrderKind::Restart, 1, START), None);
}

#[test]
fn an_agent_whose_clock_was_set_back_is_heard_again_after_a_new_challenge() {
    let mut acceptance = Acceptance::new(EARLIER);
    assert_eq!(acceptance.accept(&message(9, 1, START, Some(EARLIER)), START), Ok(()));
    assert_eq!(acceptance.accept(&message(8, 1, START, Some(EARLIER)), START), Err(Refusal::Old));
    acceptance.renew(OURS);
    assert_eq!(acceptance.accept(&message(8, 2, START, Some(EARLIER)), START), Err(Refusal::Unheard));
    assert_eq!(acceptance.accept(&message(8, 3, START, Some(OURS)), START), Ok(()));
}

#[test]
fn an_order_is_obeyed_once_and_for_5_seconds_whatever_the_balancers_clock_says() {
    for skew in [0, 20] {
        let mut acceptance = Acceptance::new(OURS);
        let sent = message(1, 1, START, Some(OURS));
        let mut agent = Obedience::default();
        agent.sends(sent.nonce, START);
        let balancer = START + seconds(skew);
        acceptance.accept(&sent, balancer).unwrap();
        let order = acceptance.order(OrderKind::Restart, 3, balancer + seconds(2)).unwrap();
        assert_eq!(order.expires, START + seconds(7));
        assert_eq!(agent.clone().obey(&order, START + seconds(8)), Err(Disobedience::Expired));
        assert_eq!(agent.obey(&order, START + seconds(3)), Ok(()));
        assert_eq!(agent.obey(&order, START + seconds(4)), Err(Disobedience::Replayed));
        let longer = SignedOrder { number: 4, expires: START + seconds(60), ..order };
        assert_eq!(agent.obey(&longer, START + seconds(4)), Err(Disobedience::TooLong));
    }
}

#[test]
fn a_nonce_is_good_while_it_is_the_latest_and_5_seconds_more() {
    let mut agent = Obedience::default();
    let [first, second] = [Nonce([1; 16]), Nonce([2; 16])];
    agent.sends(first, START);
    let order = |nonce, number, now: UnixNanos| SignedOrder {
        kind: OrderKind::Question,
        number,
        nonce,
        challenge: OURS,
        expires: now + seconds(4),
    };
    let late = START + seconds(40);
    assert_eq!(agent.obey(&order(first, 1, late), late), Ok(()), "the paper's agents speak every 15 to 20 s");
    agent.sends(second, late);
    assert_eq!(agent.obey(&order(first, 2, late), late + seconds(3)), Ok(()), "both crossed on the way");
    let later = late + seconds(6);
    assert_eq!(agent.obey(&order(first, 3, later), later), Err(Disobedience::UnknownNonce));
    assert_eq!(agent.obey(&order(second, 3, later), later), Ok(()));
    assert_eq!(agent.obey(&order(Nonce([3; 16]), 4, later), later), Err(Disobedience::UnknownNonce));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut agent = Obedience::default();
    let mut refused = 0;
    for number in 0..2 * OBEYED_MAX as u64 {
        let nonce = Nonce([(number % 251) as u8; 16]);
        agent.sends(nonce, START);
        let order =
            SignedOrder { kind: OrderKind::Question, number, nonce, challenge: OURS, expires: START + ORDER_LIFE };
        refused += usize::from(agent.obey(&order, START) == Err(Disobedience::TooMany));
    }
    assert!(agent.sent.len() <= NONCES_MAX && agent.obeyed.len() <= OBEYED_MAX);
    assert_eq!(refused, OBEYED_MAX);
}

proptest! {
    /// However reports are lost, doubled and reordered: each counts at most once, and those that count only ever get newer.
    #[test]
    fn reports_that_count_only_get_newer(came in prop::collection::vec((1u64..4, 0u64..12), 0..64)) {
        let mut acceptance = Acceptance::new(OURS);
        let mut counted = Vec::new();
        for (boot, sequence) in came {
            let expected = counted.last().is_none_or(|last| *last < (boot, sequence));
            let result = acceptance.accept(&message(boot, sequence, START, Some(OURS)), START);
            prop_assert_eq!(result.is_ok(), expected);
            if expected {
                counted.push((boot, sequence));
            }
        }
    }
}

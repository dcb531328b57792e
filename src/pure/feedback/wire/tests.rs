//! Tests of the wire form: what is written is read back, and nothing else is read.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::pure::feedback::keys::{AgentKeys, MasterKey};
use crate::pure::feedback::report::{Figures, Service, Use};

fn keys(name: &str) -> AgentKeys {
    MasterKey::from_bytes(&[7; 32]).pair(&name.parse().unwrap()).unwrap()
}

fn a_report() -> SignedReport {
    let figures = Figures {
        cpu: Some(Use { amount: 1250.5, capacity: 9600.0 }),
        memory: Some(Use { amount: 1e9, capacity: 8e9 }),
        run_queue: Some(3),
        connections: Some(120),
        connections_max: Some(500),
        ..Figures::default()
    };
    SignedReport {
        report: Report {
            boot: 1_800_000_000_000_000_001,
            sequence: 17,
            promised_next: Some(Duration::from_millis(480)),
            figures,
            is_overloaded: false,
            service: Service::Up,
        },
        sent: UnixNanos(1_800_000_123_000_000_007),
        nonce: Nonce([0xAB; 16]),
        heard: Some(Challenge([0x01; 16])),
        restart: Some(RestartNews { number: 4, progress: RestartProgress::Done }),
    }
}

fn an_order() -> SignedOrder {
    SignedOrder {
        kind: OrderKind::Restart,
        number: 4,
        nonce: Nonce([0xAB; 16]),
        challenge: Challenge([1; 16]),
        expires: UnixNanos(1_800_000_128_000_000_000),
    }
}

/// A datagram of this content, rightly signed by the agent.
fn signed(keys: &AgentKeys, content: &[u8]) -> Vec<u8> {
    seal(keys.server(), &keys.report().0, content).unwrap()
}

#[test]
fn the_form_is_the_documented_one() {
    let keys = keys("origin/o1");
    let datagram = seal_report(keys.server(), keys.report(), &a_report()).unwrap();
    assert_eq!(&datagram[..11], b"\x01\x09origin/o1");
    let (tag, content) = datagram[11..].split_at(TAG_LENGTH);
    assert_eq!(
        std::str::from_utf8(content).unwrap(),
        concat!(
            r#"{"boot":1800000000000000001,"sequence":17,"sent":1800000123000000007,"#,
            r#""nonce":"abababababababababababababababab","heard":"01010101010101010101010101010101","#,
            r#""promised-next":480,"service":"up","overloaded":false,"#,
            r#""figures":{"cpu":[1250.5,9600.0],"memory":[1000000000.0,8000000000.0],"run-queue":3,"#,
            r#""connections":120,"connections-max":500},"restart":{"number":4,"progress":"done"}}"#
        )
    );
    let made = aws_lc_rs::hmac::sign(&keys.report().0.mac, &[&datagram[..11], content].concat());
    assert_eq!(made.as_ref(), tag, "the tag is over all other bytes as sent");
}

#[test]
fn a_captured_key_can_neither_speak_for_another_server_nor_order_a_restart() {
    let [captured, other] = [keys("origin/o1"), keys("origin/o2")];
    let lie = seal_report(other.server(), captured.report(), &a_report()).unwrap();
    assert_eq!(open(&lie).unwrap().name(), "origin/o2");
    assert_eq!(open(&lie).unwrap().report(other.report()), Err(WireError::Forged));
    // Neither with its own order key, nor with its report key in the order key's place.
    let order = seal_order(other.server(), captured.order(), &an_order()).unwrap();
    assert_eq!(open(&order).unwrap().order(other.order()), Err(WireError::Forged));
    let order = seal(captured.server(), &captured.report().0, &json::write_order(&an_order()).unwrap()).unwrap();
    assert_eq!(open(&order).unwrap().order(captured.order()), Err(WireError::Forged));
}

#[test]
fn a_report_is_no_order_and_an_order_no_report() {
    let keys = keys("origin/o1");
    let report = seal_report(keys.server(), keys.report(), &a_report()).unwrap();
    let order = seal_order(keys.server(), keys.order(), &an_order()).unwrap();
    assert_eq!(open(&report).unwrap().report(keys.report()), Ok(a_report()));
    assert_eq!(open(&order).unwrap().order(keys.order()), Ok(an_order()));
    assert_eq!(open(&report).unwrap().order(keys.order()), Err(WireError::Forged));
    assert_eq!(open(&order).unwrap().report(keys.report()), Err(WireError::Forged));
}

#[test]
fn whatever_is_wrong_with_a_datagram_has_a_name() {
    for (datagram, error) in [
        (vec![], WireError::Truncated),
        (vec![1], WireError::Truncated),
        (vec![2, 0], WireError::Version(2)),
        (vec![b'{'; 40], WireError::Version(b'{')),
        ([&[1, 3][..], b"a/b", &[0; 31]].concat(), WireError::Truncated),
        ([&[1, 2][..], &[0xC3, 0x28], &[0; 32]].concat(), WireError::NameNotText),
        (vec![1; DATAGRAM_MAX + 1], WireError::TooLong),
    ] {
        assert_eq!(open(&datagram).unwrap_err(), error);
    }
    assert_eq!(open(&[&[1, 3][..], b"a/b", &[0; 32]].concat()).unwrap().name(), "a/b");
}

#[test]
fn signed_nonsense_is_refused_by_the_member_that_is_wrong() {
    let keys = keys("origin/o1");
    let good = String::from_utf8(json::write_report(&a_report()).unwrap()).unwrap();
    for (from, to, member) in [
        ("abababababababab", "abababab", "nonce"),
        ("0101010101010101", "01010101010101zz", "heard"),
        (":480", ":3600001", "promised-next"),
        ("[1250.5,", "[-1.0,", "cpu"),
        ("8000000000.0]", "-8e9]", "memory"),
        (r#""run-queue":3"#, r#""wanted-share":1.5"#, "wanted-share"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good);
        let result = open(&signed(&keys, bad.as_bytes())).unwrap().report(keys.report());
        assert_eq!(result, Err(WireError::Member(member)), "{bad}");
    }
    let nested = "[".repeat(1000);
    for bad in ["", "{}", "null", "{\"boot\":1", nested.as_str(), &good.replacen("1250.5", "1e999", 1)] {
        let result = open(&signed(&keys, bad.as_bytes())).unwrap().report(keys.report());
        assert!(matches!(result, Err(WireError::Content(_))), "{bad}: {result:?}");
    }
    let newer = good.replacen("{", r#"{"keys-held":["a"],"#, 1);
    assert_eq!(open(&signed(&keys, newer.as_bytes())).unwrap().report(keys.report()), Ok(a_report()));
}

#[test]
fn what_cannot_be_sent_is_not_sent() {
    let keys = keys("origin/o1");
    let mut message = a_report();
    message.report.figures.disk = Some(Use { amount: f64::NAN, capacity: 1.0 });
    assert_eq!(seal_report(keys.server(), keys.report(), &message), Err(WireError::Member("disk")));
    let mut message = a_report();
    message.report.promised_next = Some(PROMISE_MAX + Duration::from_millis(1));
    assert_eq!(seal_report(keys.server(), keys.report(), &message), Err(WireError::Member("promised-next")));
}

#[test]
fn names_are_pool_and_server() {
    for (text, error) in [
        ("", ServerNameError::NoPool),
        ("o1", ServerNameError::NoPool),
        ("/o1", ServerNameError::NoPool),
        ("origin/", ServerNameError::NoPool),
        ("a/\n", ServerNameError::Control),
        (&format!("a/{}", "b".repeat(254)), ServerNameError::TooLong),
    ] {
        assert_eq!(text.parse::<ServerName>(), Err(error), "{text:?}");
    }
    let longest = format!("a/{}", "b".repeat(253));
    assert_eq!(longest.parse::<ServerName>().unwrap().as_str(), longest);
    let keys = keys(&longest);
    assert!(seal_report(keys.server(), keys.report(), &a_report()).is_ok());
}

/// Whole numbers of a size that the reader of JSON keeps to the last digit.
fn any_use() -> impl Strategy<Value = Option<Use>> {
    let amount = || (0u64..1 << 40).prop_map(|amount| amount as f64);
    prop::option::of((amount(), amount()).prop_map(|(amount, capacity)| Use { amount, capacity }))
}

prop_compose! {
    fn any_figures()(
        (cpu, memory, disk, network) in (any_use(), any_use(), any_use(), any_use()),
        run_queue in any::<Option<u32>>(),
        connections in any::<Option<u32>>(),
        connections_max in any::<Option<u32>>(),
        wanted_share in prop::option::of((0u16..=1024).prop_map(|part| f64::from(part) / 1024.0)),
    ) -> Figures {
        Figures { cpu, memory, disk, network, run_queue, connections, connections_max, wanted_share }
    }
}

fn any_news() -> impl Strategy<Value = Option<RestartNews>> {
    let progress = prop::sample::select(vec![
        RestartProgress::Running,
        RestartProgress::Done,
        RestartProgress::Failed,
        RestartProgress::Refused,
    ]);
    prop::option::of((any::<u64>(), progress).prop_map(|(number, progress)| RestartNews { number, progress }))
}

prop_compose! {
    fn any_report()(
        (boot, sequence, sent, is_overloaded) in any::<(u64, u64, u64, bool)>(),
        promise in prop::option::of(0u64..=3_600_000),
        figures in any_figures(),
        service in prop::sample::select(
            vec![Service::Up, Service::Abnormal, Service::Down, Service::Leaving, Service::Maintenance],
        ),
        nonce in any::<[u8; 16]>(),
        heard in any::<Option<[u8; 16]>>(),
        restart in any_news(),
    ) -> SignedReport {
        let promised_next = promise.map(Duration::from_millis);
        let report = Report { boot, sequence, promised_next, figures, is_overloaded, service };
        SignedReport { report, sent: UnixNanos(sent), nonce: Nonce(nonce), heard: heard.map(Challenge), restart }
    }
}

proptest! {
    /// Any report fits a datagram, and comes back as it was; a byte changed anywhere, or cut off, and it does not.
    #[test]
    fn reports_come_back_and_changed_ones_do_not(
        message in any_report(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..=255,
    ) {
        let keys = keys("origin/o1");
        let mut datagram = seal_report(keys.server(), keys.report(), &message).unwrap();
        prop_assert_eq!(open(&datagram).unwrap().report(keys.report()).unwrap(), message);
        let cut = at.index(datagram.len());
        prop_assert!(open(&datagram[..cut]).and_then(|sealed| sealed.report(keys.report())).is_err());
        datagram[cut] ^= flip;
        prop_assert!(open(&datagram).and_then(|sealed| sealed.report(keys.report())).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        let keys = keys("origin/o1");
        prop_assert!(open(&bytes).and_then(|sealed| sealed.report(keys.report())).is_err());
        let content = &bytes[..bytes.len().min(1300)];
        let _ = open(&signed(&keys, content)).unwrap().report(keys.report());
    }

    #[test]
    fn orders_come_back(number in any::<u64>(), nonce in any::<[u8; 16]>(), expires in any::<u64>()) {
        let keys = keys("origin/o1");
        let order = SignedOrder { number, nonce: Nonce(nonce), expires: UnixNanos(expires), ..an_order() };
        let datagram = seal_order(keys.server(), keys.order(), &order).unwrap();
        prop_assert_eq!(open(&datagram).unwrap().order(keys.order()).unwrap(), order);
    }
}

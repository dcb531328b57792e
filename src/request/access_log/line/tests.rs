//! Lines held against their wording, and hostile bytes against a reader of JSON.

use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::base::time::Timestamp;
use crate::pure::config::LogFormat;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

fn clock(format: LogFormat) -> CivilClock {
    CivilClock::new(format, Timestamp::ZERO, SystemTime::UNIX_EPOCH + Duration::from_micros(1_767_323_045_000_042))
}

fn json(record: &AccessRecord<'_>, dropped_before: u64) -> String {
    let mut line = Vec::new();
    push_json(&mut line, record, &mut clock(LogFormat::Json), dropped_before);
    String::from_utf8(line).unwrap()
}

fn combined(record: &AccessRecord<'_>) -> String {
    let mut line = Vec::new();
    push_combined(&mut line, record, &mut clock(LogFormat::Combined));
    String::from_utf8(line).unwrap()
}

fn full() -> AccessRecord<'static> {
    AccessRecord {
        method: b"GET",
        host: b"www.example.test",
        path: b"/img/a.png",
        query: Some(b"size=2"),
        status: 200,
        bytes_out: 5_120,
        bytes_in: 17,
        total: Duration::from_micros(1_234_567),
        connect: Some(Duration::from_micros(250)),
        queue: Some(Duration::from_millis(3)),
        first_byte: Some(Duration::from_nanos(999_999)),
        rule: Some("images"),
        pool: Some("image-servers"),
        server: Some("i1"),
        attempts: 2,
        reason: Some("response-timeout"),
        request_id: Some(b"r-17"),
        tls: Some("TLSv1.3"),
        client_subject: Some(b"CN=robot"),
        user_agent: Some(b"curl/8.0 \"x\""),
        referer: Some(b"https://other.test/"),
        decision: Some(77),
        key_hash: Some(0xFFFF_0123_4567_89AB),
        cache_status: Some(b"edge; hit"),
        ..AccessRecord::new(Timestamp::from_nanos(8_000), CLIENT, "127.0.0.1:8443")
    }
}

#[test]
fn a_full_record_has_every_field_in_its_place() {
    insta::assert_snapshot!(json(&full(), 3).trim_end(), @r#"{"time":"2026-01-02T03:04:05.000050Z","client":"192.0.2.7","listener":"127.0.0.1:8443","protocol":"HTTP/1.1","method":"GET","host":"www.example.test","path":"/img/a.png","status":200,"bytes_out":5120,"bytes_in":17,"total_us":1234567,"connect_us":250,"first_byte_us":999,"rule":"images","pool":"image-servers","server":"i1","attempts":2,"reason":"response-timeout","request_id":"r-17","tls":"TLSv1.3","queue_us":3000,"query":"size=2","client_subject":"CN=robot","decision":77,"key_hash":"ffff0123456789ab","cache_status":"edge; hit","dropped_before":3}"#);
    insta::assert_snapshot!(combined(&full()).trim_end(), @r#"192.0.2.7 - - [02/Jan/2026:03:04:05 +0000] "GET /img/a.png?size=2 HTTP/1.1" 200 5120 "https://other.test/" "curl/8.0 \"x\"""#);
}

#[test]
fn what_is_not_known_is_left_out() {
    let bare =
        AccessRecord { status: 400, ..AccessRecord::new(Timestamp::ZERO, "2001:db8::1".parse().unwrap(), "[::]:80") };
    insta::assert_snapshot!(json(&bare, 0).trim_end(), @r#"{"time":"2026-01-02T03:04:05.000042Z","client":"2001:db8::1","listener":"[::]:80","protocol":"HTTP/1.1","method":"","host":"","path":"","status":400,"bytes_out":0,"bytes_in":0,"total_us":0,"attempts":0}"#);
    insta::assert_snapshot!(combined(&bare).trim_end(), @r#"2001:db8::1 - - [02/Jan/2026:03:04:05 +0000] "" 400 0 "-" "-""#);
}

#[test]
fn the_longest_line_is_within_its_bound() {
    let (hostile, name) = (vec![0; 100_000], "\0".repeat(10_000));
    let record = AccessRecord {
        method: &hostile,
        host: &hostile,
        path: &hostile,
        query: Some(&hostile),
        request_id: Some(&hostile),
        cache_status: Some(&hostile),
        client_subject: Some(&hostile),
        user_agent: Some(&hostile),
        referer: Some(&hostile),
        rule: Some(&name),
        pool: Some(&name),
        server: Some(&name),
        total: Duration::MAX,
        ..AccessRecord::new(Timestamp::NEVER, CLIENT, &name)
    };
    assert!(json(&record, u64::MAX).len() <= LINE_MAX);
    assert!(combined(&record).len() <= LINE_MAX);
    let line: Value = serde_json::from_str(&json(&record, u64::MAX)).unwrap();
    assert_eq!(line["total_us"], u64::MAX);
    assert!(line["path"].as_str().unwrap().ends_with("\0..."));
}

/// Bytes with those that matter to a format among them often.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b"\"\\\n\r\t\0\x1b\x7f\x80\xff'{}[],:".to_vec())];
    prop::collection::vec(byte, 0..60)
}

fn as_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

proptest! {
    #[test]
    fn hostile_bytes_stay_inside_their_field(
        method in hostile(), host in hostile(), path in hostile(), query in prop::option::of(hostile()),
        id in hostile(), agent in hostile(), referer in hostile(), name in "\\PC{0,20}",
    ) {
        let record = AccessRecord {
            method: &method,
            host: &host,
            path: &path,
            query: query.as_deref(),
            request_id: Some(&id),
            user_agent: Some(&agent),
            referer: Some(&referer),
            rule: Some(&name),
            ..AccessRecord::new(Timestamp::ZERO, CLIENT, &name)
        };
        let json = json(&record, 0);
        prop_assert_eq!(json.find('\n'), Some(json.len() - 1));
        let line: Value = serde_json::from_str(&json).unwrap();
        for (field, bytes) in [("method", &method), ("host", &host), ("path", &path), ("request_id", &id)] {
            prop_assert_eq!(line[field].as_str(), Some(&*as_text(bytes)));
        }
        prop_assert_eq!(line["query"].as_str().map(str::to_owned), query.as_deref().map(as_text));
        prop_assert_eq!(line["rule"].as_str(), Some(&*name));

        let combined = combined(&record);
        prop_assert!(combined.trim_end_matches('\n').bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        prop_assert_eq!(unescaped_quotes(&combined), 6, "{}", combined);
    }
}

fn unescaped_quotes(line: &str) -> usize {
    let mut bytes = line.bytes();
    let mut quotes = 0;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => quotes += 1,
            _ => {}
        }
    }
    quotes
}

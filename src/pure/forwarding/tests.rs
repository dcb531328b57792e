//! Heads as they are passed on, byte for byte.

use super::*;
use crate::base::id::ListenerIndex;
use crate::base::rng::Rng;
use crate::pure::config::{AmbiguousPaths, load_text};
use crate::pure::decision::{Changed, Question, Seen, decide};
use crate::pure::h1::request::{HeadLimits, Parsed, parse_request_head};
use crate::pure::rule::captures::Captures;
use crate::pure::rule::compile::RuleSet;
use crate::pure::trace::Trace;

const LIMITS: HeadLimits = HeadLimits { bytes: 65_536, fields: 128 };

fn origin(peer: &str, is_trusted: bool, is_tls: bool) -> Origin {
    Origin {
        peer: format!("{peer}:4711").parse().unwrap(),
        local: "192.0.2.9:8080".parse().unwrap(),
        is_trusted,
        is_tls,
        is_http2: false,
        via: true,
    }
}

fn forwarded(head: &str, origin: Origin) -> String {
    let mut parsed = RequestHead::default();
    assert_eq!(parse_request_head(head.as_bytes(), LIMITS, &mut parsed), Ok(Parsed::Complete));
    let mut out = Vec::new();
    let request = ForwardedRequest {
        head: &parsed,
        bytes: head.as_bytes(),
        target: None,
        origin,
        request_id: None,
        upgrade: None,
        edits: &FieldEdits::default(),
    };
    push_request_head(&mut out, &request);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_strangers_forwarding_fields_are_replaced_and_the_rest_stays_as_it_was() {
    let head = "GET /a?b HTTP/1.1\r\nHost: a.test:80\r\nx-FORWARDED-for: 9.9.9.9\r\nX-Odd:  b \r\nForwarded: for=1.1.1.1\r\n\
                Connection: close, X-Gone\r\nX-Gone: 1\r\nAccept: */*\r\n\r\n";
    assert_eq!(
        forwarded(head, origin("127.0.0.1", false, false)),
        "GET /a?b HTTP/1.1\r\nHost: a.test:80\r\nX-Odd:  b \r\nAccept: */*\r\nX-Forwarded-For: 127.0.0.1\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: a.test:80\r\nX-Forwarded-Port: 8080\r\n\
         Forwarded: for=127.0.0.1;host=\"a.test:80\";proto=http\r\nVia: 1.1 pointsman\r\n\r\n"
    );
}

#[test]
fn a_trusted_proxys_fields_are_appended_to() {
    let head = "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-For: 8.8.8.8\r\n\
                X-Forwarded-Proto: https\r\nForwarded: for=9.9.9.9\r\n\r\n";
    assert_eq!(
        forwarded(head, origin("[2001:db8::1]", true, false)),
        "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 9.9.9.9, 8.8.8.8, 2001:db8::1\r\n\
         X-Forwarded-Host: a.test\r\nX-Forwarded-Port: 8080\r\n\
         Forwarded: for=9.9.9.9, for=\"[2001:db8::1]\";host=\"a.test\";proto=http\r\nVia: 1.1 pointsman\r\n\r\n"
    );
}

/// The lines on where a request came from that a server gets of `lines` from a trusted proxy.
fn told(lines: &str) -> Vec<String> {
    let head = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let sent = forwarded(&head, origin("127.0.0.1", true, false));
    let is_told = |line: &&str| line.starts_with("X-Forwarded-") || line.starts_with("Forwarded");
    sent.lines().filter(is_told).filter(|line| !line.starts_with("X-Forwarded-Port")).map(str::to_owned).collect()
}

#[test]
fn what_a_trusted_proxy_says_in_one_family_is_told_in_the_other() {
    assert_eq!(
        told("X-Forwarded-For: 8.8.8.8\r\nX-Forwarded-Proto: https\r\n"),
        [
            "X-Forwarded-Proto: https",
            "X-Forwarded-For: 8.8.8.8, 127.0.0.1",
            "X-Forwarded-Host: a.test",
            "Forwarded: for=8.8.8.8;proto=https, for=127.0.0.1;host=\"a.test\";proto=http",
        ]
    );
    assert_eq!(
        told("X-Forwarded-For: [2001:db8::1]:80, 8.8.8.8:99\r\nX-Forwarded-Host: b.test:8\r\n").last().unwrap(),
        "Forwarded: for=\"[2001:db8::1]\";host=\"b.test:8\", for=8.8.8.8, for=127.0.0.1;host=\"a.test\";proto=http"
    );
    // Without an address before it, ours is the first element.
    assert_eq!(
        told("X-Forwarded-Proto: https\r\n").last().unwrap(),
        "Forwarded: for=127.0.0.1;host=\"a.test\";proto=https"
    );
    let line = "For=\"[2001:db8::1]:80\";Proto=https;host=\"b.test:8\", for=8.8.8.8";
    assert_eq!(
        told(&format!("Forwarded: {line}\r\n")),
        [
            "X-Forwarded-For: 2001:db8::1, 8.8.8.8, 127.0.0.1".to_owned(),
            "X-Forwarded-Proto: https".to_owned(),
            "X-Forwarded-Host: b.test:8".to_owned(),
            format!("Forwarded: {line}, for=127.0.0.1;host=\"a.test\";proto=http"),
        ]
    );
}

#[test]
fn what_cannot_be_told_in_the_other_family_is_not_contradicted_there() {
    for lines in ["X-Forwarded-For: 8.8.8.8, unknown", "X-Forwarded-Proto: a b", "X-Forwarded-Host: a\"b"] {
        assert!(told(&format!("{lines}\r\n")).iter().all(|line| !line.starts_with("Forwarded")), "{lines}");
    }
    for value in ["for=_hidden", "proto=https", "for=8.8.8.8, by=1.1.1.1", "for=\"8.8.8.\\8\""] {
        let lines = told(&format!("Forwarded: {value}\r\n"));
        assert_eq!(lines, [format!("Forwarded: {value}, for=127.0.0.1;host=\"a.test\";proto=http")]);
    }
}

/// A trusted peer that says nothing goes the general way and must get what a stranger gets by the usual one.
#[test]
fn the_usual_fields_are_those_of_the_general_way() {
    for address in ["0.0.0.0", "9.10.99.100", "255.255.255.255", "127.0.0.1"] {
        for is_tls in [false, true] {
            for via in [false, true] {
                for port in [1, 80, 443, 65_535] {
                    let mut asked = origin(address, false, is_tls);
                    asked.via = via;
                    asked.local.set_port(port);
                    let head = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
                    let general = Origin { is_trusted: true, ..asked };
                    assert_eq!(forwarded(head, asked), forwarded(head, general));
                }
            }
        }
    }
}

/// The field lines of that name in what a server gets of `request` under a rule; `None` where it gets nothing.
fn forwarded_by(rule: &str, request: &str, name: &str) -> Option<Vec<String>> {
    let text = format!("listen \"127.0.0.1:80\"\npool \"a\" {{ server \"s\" \"127.0.0.1:1\" }}\n{rule}");
    let rules = RuleSet::compile(load_text(&text).unwrap().rules).unwrap();
    let bytes = request.as_bytes();
    let mut head = RequestHead::default();
    assert_eq!(parse_request_head(bytes, LIMITS, &mut head), Ok(Parsed::Complete));

    let origin = origin("192.0.2.1", false, false);
    let seen = Seen::of(&head, bytes, origin.peer.ip(), &[]);
    let mut scratch = String::new();
    let path = seen.path(AmbiguousPaths::RejectUnsafe, &mut scratch).unwrap();
    let view = seen.view(ListenerIndex(0), path, None);
    let mut changed = Changed::default();
    let question = Question { view: &view, scheme: "http", rng: &mut Rng::new(1) };
    decide(&rules, question, &mut Captures::new(), &mut changed, &mut Trace::off()).ok()?;

    let mut out = Vec::new();
    let edits = &changed.request;
    let request_id = Some("made-here");
    push_request_head(
        &mut out,
        &ForwardedRequest { head: &head, bytes, target: None, origin, request_id, upgrade: None, edits },
    );
    let lines = String::from_utf8(out).unwrap();
    let is_named = |line: &&str| line.split(':').next().unwrap().eq_ignore_ascii_case(name);
    Some(lines.lines().filter(is_named).map(str::to_owned).collect())
}

#[test]
fn a_request_never_leaves_without_a_host_because_its_rule_set_one() {
    let own = "rule path=\"/{site}/{*rest}\" use=\"a\" { set-request-header \"Host\" \"{site}\" }";
    let host = |rule, request| forwarded_by(rule, request, "host");
    assert_eq!(host(own, "GET /b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n"), Some(vec!["Host: b.test".to_owned()]));
    assert_eq!(host(own, "GET /a%20b/x HTTP/1.1\r\nHost: a.test\r\n\r\n"), None);
    assert_eq!(host(own, "GET /u@b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n"), None);

    // The host without its trailing dot, and the host of a request that has none, are empty.
    let same = "rule use=\"a\" { set-request-header \"Host\" \"{host}\" }";
    assert_eq!(host(same, "GET / HTTP/1.1\r\nHost: A.test.\r\n\r\n"), Some(vec!["Host: a.test".to_owned()]));
    assert_eq!(host(same, "GET / HTTP/1.1\r\nHost: .\r\n\r\n"), None);
    assert_eq!(host(same, "GET / HTTP/1.0\r\n\r\n"), None);
}

#[test]
fn a_request_has_one_id_where_its_rule_sets_one() {
    let id = |rule| forwarded_by(rule, "GET / HTTP/1.1\r\nHost: a.test\r\nX-Request-Id:\r\n\r\n", "x-request-id");
    assert_eq!(id("rule use=\"a\""), Some(vec!["X-Request-Id: made-here".to_owned()]));
    let own = "rule use=\"a\" { set-request-header \"X-Request-Id\" \"of {client}\" }";
    assert_eq!(id(own), Some(vec!["X-Request-Id: of 192.0.2.1".to_owned()]));
    assert_eq!(id("rule use=\"a\" { remove-request-header \"X-Request-Id\" }"), Some(Vec::new()));
}

#[test]
fn a_quote_that_a_trusted_proxy_leaves_open_does_not_swallow_what_we_say() {
    for line in ["for=9.9.9.9;host=\"a", "for=9.9.9.9;host=\"a\\\""] {
        let head = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 9.9.9.9\r\nForwarded: {line}\r\n\r\n");
        let out = forwarded(&head, origin("127.0.0.1", true, false));
        assert!(out.contains("\r\nForwarded: for=127.0.0.1;host=\"a.test\";proto=http\r\n"), "{out}");
    }
}

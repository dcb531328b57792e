//! Servers that are asked how they are: what a check finds decides who gets requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::queue::proxy;
use crate::support::{DEADLINE, Origin, Proxy, wait_for};

/// An origin whose `/health` answers 200 or 500, as the switch says.
fn with_health(name: &'static str) -> (Origin, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&is_well);
    let origin = Origin::with(move |exchange| {
        let is_health = exchange.head.target() == "/health";
        let status = if is_health && !asked.load(Ordering::SeqCst) { 500 } else { 200 };
        exchange.respond(status, &[], name.as_bytes());
    });
    (origin, is_well)
}

fn is_back(proxy: &Proxy) -> bool {
    ["is up", "is recovering"].iter().any(|state| proxy.has_said(&["p/s0 was", state]))
}

const CHECK: &str =
    "check \"http\" path=\"/health\" host=\"app.test\" every=\"100ms\" timeout=\"5s\" { header \"X-Check\" \"yes\" }";

#[test]
fn a_server_that_takes_connections_again_and_is_not_well_stays_away_until_it_is() {
    let (one, is_well) = with_health("one");
    let other = Origin::new("other");
    let proxy = proxy(1, "", &[(&one, ""), (&other, "")], CHECK);
    one.stop();
    proxy.ask_until_it_says("/", "p/s0 was up and is suspect");
    is_well.store(false, Ordering::SeqCst);
    one.start();
    proxy.ask_until_it_says("/", "p/s0 was suspect and is down");
    let seen = one.requests().len();
    let asked = one.wait_for_that("checks that get 500", |requests| requests.len() > seen + 4);
    assert!(!is_back(&proxy), "{:?}", proxy.errors());
    let (health, rest): (Vec<_>, Vec<_>) = asked[seen..].iter().partition(|request| request.head.target() == "/health");
    assert!(rest.is_empty(), "it gets no requests: {rest:?}");
    for request in health {
        let head = &request.head;
        assert_eq!((head.method(), head.field("host"), head.field("x-check")), ("GET", Some("app.test"), Some("yes")));
        assert_eq!((head.field("user-agent"), head.field("connection")), (Some("pointsman-check"), Some("close")));
    }
    is_well.store(true, Ordering::SeqCst);
    wait_for("the server is back", DEADLINE, || is_back(&proxy).then_some(()));
    let mut client = proxy.client();
    wait_for("an answer of the server that is back", DEADLINE, || (client.get("/").text() == "one").then_some(()));
}

#[test]
fn a_server_that_answers_500_to_its_check_is_found_without_a_request_and_comes_back() {
    let (one, is_well) = with_health("one");
    let other = Origin::new("other");
    let proxy = proxy(1, "", &[(&one, ""), (&other, "")], CHECK);
    one.wait_for_requests(2);
    assert!(!proxy.has_said(&["p/s0 was up"]), "{:?}", proxy.errors());
    is_well.store(false, Ordering::SeqCst);
    wait_for("the server is found ill", DEADLINE, || proxy.has_said(&["p/s0 was up and is"]).then_some(()));
    let mut client = proxy.client();
    for _ in 0..20 {
        assert_eq!(client.get("/").text(), "other");
    }
    is_well.store(true, Ordering::SeqCst);
    wait_for("the server is back", DEADLINE, || is_back(&proxy).then_some(()));
    wait_for("an answer of the server that is back", DEADLINE, || (client.get("/").text() == "one").then_some(()));
}

#[test]
fn a_check_of_a_port_of_its_own_decides_for_the_port_of_requests() {
    let (health, is_well) = with_health("health");
    let (one, other) = (Origin::new("one"), Origin::new("other"));
    let check = format!("check \"http\" path=\"/health\" port={} every=\"100ms\"", health.address.port());
    let proxy = proxy(1, "", &[(&one, ""), (&other, "")], &check);
    is_well.store(false, Ordering::SeqCst);
    one.stop();
    proxy.ask_until_it_says("/", "p/s0 was up and is");
    one.start();
    let seen = health.requests().len();
    health.wait_for_that("further checks", |requests| requests.len() > seen + 6);
    assert!(!is_back(&proxy), "{:?}", proxy.errors());
    is_well.store(true, Ordering::SeqCst);
    wait_for("the server is back", DEADLINE, || is_back(&proxy).then_some(()));
}

//! The queue of a pool: who waits is served in the order of arrival, on whatever worker and over whichever protocol; who can't
//! wait, waits too long or goes away is told so, or logged, and costs the others nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::h2;
use crate::support::deadline::{Gate, now};
use crate::support::frames::{FrameClient, StreamEnd};
use crate::support::{Client, DEADLINE, Origin, Proxy, wait_for};

/// An origin that answers with the target once its gate is open, and counts how many requests it has at a time.
struct Slow {
    origin: Origin,
    gate: Arc<Gate>,
    most: Arc<AtomicUsize>,
}

impl Slow {
    fn new() -> Self {
        let (gate, most, now) = (Arc::new(Gate::default()), Arc::<AtomicUsize>::default(), AtomicUsize::new(0));
        let (opened, counted) = (Arc::clone(&gate), Arc::clone(&most));
        let origin = Origin::with(move |exchange| {
            counted.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            opened.wait();
            let target = exchange.head.target().to_owned();
            now.fetch_sub(1, Ordering::SeqCst);
            exchange.respond(200, &[], target.as_bytes());
        });
        Self { origin, gate, most }
    }

    fn targets(&self) -> Vec<String> {
        self.origin.requests().iter().map(|request| request.head.target().to_owned()).collect()
    }
}

/// A pool of these servers, a rule for everything, and one by which a client learns that what it sent before has been read.
pub fn proxy(workers: u32, listen: &str, servers: &[(&Origin, &str)], pool: &str) -> Proxy {
    let servers: String = servers
        .iter()
        .enumerate()
        .map(|(at, (origin, settings))| format!("server \"s{at}\" \"{}\" {settings}\n", origin.address))
        .collect();
    Proxy::start(&format!(
        "workers {workers}\nlisten \"127.0.0.1:0\" {listen}\npool \"p\" {{\n{servers}{pool}\n}}\n\
         rule path=\"/read\" respond=204\nrule use=\"p\"\naccess-log \"access.log\"\n"
    ))
}

fn ask(client: &mut Client, target: &str) {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
}

/// Clients of a proxy with one worker, whose requests come one after the other.
struct Crowd {
    clients: Vec<Client>,
    probe: Client,
}

impl Crowd {
    fn new(proxy: &Proxy, count: usize) -> Self {
        let mut clients: Vec<Client> = (0..=count).map(|_| proxy.client()).collect();
        // Each is known to the worker before its request comes.
        clients.iter_mut().for_each(|client| assert_eq!(client.get("/read").status(), 204));
        let probe = clients.pop().unwrap();
        Self { clients, probe }
    }

    /// Has each ask for its own number, from `first` on; a request has been read when the next is sent.
    fn ask(&mut self, first: usize) {
        for (number, client) in self.clients.iter_mut().enumerate().skip(first) {
            ask(client, &format!("/{number}"));
            assert_eq!(self.probe.get("/read").status(), 204);
        }
    }
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("/{number}")).collect()
}

/// The reasons of all records but those of the clients' first looks.
fn reasons(proxy: &Proxy, count: usize) -> Vec<(u64, String)> {
    let is_read = |record: &serde_json::Value| record["path"] == "/read";
    let records = wait_for("the records", DEADLINE, || {
        let mut records = proxy.wait_for_records("access.log", 1);
        records.retain(|record| !is_read(record));
        (records.len() >= count).then_some(records)
    });
    let told = records.iter().filter(|record| !record["reason"].is_null());
    told.map(|record| (record["status"].as_u64().unwrap(), record["reason"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn twenty_clients_of_a_server_with_one_place_are_served_in_the_order_of_arrival() {
    let slow = Slow::new();
    let proxy = proxy(1, "", &[(&slow.origin, "max=1")], "queue timeout=\"1m\"");
    let mut crowd = Crowd::new(&proxy, 20);
    crowd.ask(0);
    slow.gate.open();
    for (number, client) in crowd.clients.iter_mut().enumerate() {
        assert_eq!(client.response().text(), format!("/{number}"));
    }
    assert_eq!(slow.targets(), numbers(20));
    assert_eq!(slow.most.load(Ordering::SeqCst), 1);
    assert_eq!(slow.origin.accepted(), 1, "the connection passes on with the place");
}

#[test]
fn a_place_passes_to_the_oldest_request_on_whatever_worker_it_waits() {
    let slow = Slow::new();
    let proxy = proxy(2, "{ protocols \"h2c\" }", &[(&slow.origin, "max=1")], "queue timeout=\"1m\"");
    let clients: Vec<FrameClient> = (0..20)
        .map(|number| {
            let mut client = FrameClient::connect(proxy.address());
            client.get(1, &format!("/{number}"));
            // The streams of a connection are taken up in their order.
            client.get(3, "/read");
            assert_eq!(client.end_of(3), StreamEnd::Answered(204, Vec::new()));
            client
        })
        .collect();
    slow.gate.open();
    for (number, mut client) in clients.into_iter().enumerate() {
        assert_eq!(client.end_of(1), StreamEnd::Answered(200, format!("/{number}").into_bytes()));
    }
    assert_eq!(slow.targets(), numbers(20));
    assert_eq!(slow.most.load(Ordering::SeqCst), 1);
}

#[test]
fn many_clients_on_two_workers_share_few_places_and_all_are_answered() {
    let (one, other) = (Slow::new(), Slow::new());
    one.gate.open();
    other.gate.open();
    let servers = [(&one.origin, "max=1"), (&other.origin, "max=2")];
    let proxy = proxy(2, "", &servers, "queue timeout=\"1m\"; upstream idle-max=0");
    let address = proxy.address();
    let clients: Vec<_> = (0..20)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for round in 0..20 {
                    let target = format!("/{number}/{round}");
                    assert_eq!(client.get(&target).text(), target);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(one.most.load(Ordering::SeqCst) <= 1 && other.most.load(Ordering::SeqCst) <= 2);
}

#[test]
fn limit_queue_max_is_503_at_once_for_who_comes_too_many() {
    let slow = Slow::new();
    let proxy = proxy(1, "", &[(&slow.origin, "max=1")], "queue max=2 timeout=\"1m\"");
    let mut crowd = Crowd::new(&proxy, 4);
    crowd.ask(0);
    let refused = crowd.clients[3].response();
    assert_eq!((refused.status(), refused.field("retry-after")), (503, Some("1")));
    slow.gate.open();
    for (number, client) in crowd.clients.iter_mut().enumerate().take(3) {
        assert_eq!(client.response().text(), format!("/{number}"));
    }
    assert_eq!(crowd.clients[3].get("/again").text(), "/again", "its connection is kept");
    assert_eq!(reasons(&proxy, 5), [(503, "queue-full".to_owned())]);
}

#[test]
fn limit_queue_timeout_is_503_for_who_waits_in_vain() {
    let slow = Slow::new();
    let proxy = proxy(1, "", &[(&slow.origin, "max=1")], "queue timeout=\"300ms\"");
    let mut crowd = Crowd::new(&proxy, 2);
    crowd.ask(0);
    let started = now();
    let refused = crowd.clients[1].response();
    assert!(started.elapsed() >= Duration::from_millis(200), "{:?}", started.elapsed());
    assert_eq!((refused.status(), refused.field("retry-after")), (503, Some("1")));
    slow.gate.open();
    assert_eq!(crowd.clients[0].response().text(), "/0");
    assert_eq!(crowd.clients[1].get("/again").text(), "/again");
    assert_eq!(reasons(&proxy, 3), [(503, "queue-timeout".to_owned())]);
    let records = proxy.wait_for_records("access.log", 1);
    let waits: Vec<_> = records.iter().filter_map(|record| record["queue_us"].as_u64()).collect();
    assert!(matches!(waits.as_slice(), [one] if *one >= 200_000), "{waits:?}");
}

#[test]
fn a_client_that_goes_away_while_it_waits_leaves_its_turn_to_the_next() {
    for by_reset in [false, true] {
        let slow = Slow::new();
        let proxy = proxy(1, "", &[(&slow.origin, "max=1")], "queue timeout=\"1m\"");
        let mut crowd = Crowd::new(&proxy, 3);
        crowd.ask(0);
        let gone = crowd.clients.remove(1);
        if by_reset {
            gone.reset()
        } else {
            drop(gone)
        }
        assert_eq!(reasons(&proxy, 1), [(499, "client-gone".to_owned())]);
        slow.gate.open();
        assert_eq!(crowd.clients[0].response().text(), "/0");
        assert_eq!(crowd.clients[1].response().text(), "/2");
        assert_eq!(slow.targets(), ["/0", "/2"]);
    }
}

#[test]
fn a_stream_that_its_client_resets_while_it_waits_leaves_its_turn_to_the_next() {
    let slow = Slow::new();
    let proxy = proxy(1, "{ protocols \"h2c\" }", &[(&slow.origin, "max=1")], "queue timeout=\"1m\"");
    let mut client = FrameClient::connect(proxy.address());
    for stream in [1, 3, 5] {
        client.get(stream, &format!("/{stream}"));
    }
    slow.origin.wait_for_requests(1);
    client.cancel(3);
    assert_eq!(reasons(&proxy, 1), [(499, "client-gone".to_owned())]);
    slow.gate.open();
    for stream in [1, 5] {
        assert_eq!(client.end_of(stream), StreamEnd::Answered(200, format!("/{stream}").into_bytes()));
    }
    assert_eq!(slow.targets(), ["/1", "/5"]);
}

#[test]
fn a_body_that_comes_while_its_request_waits_comes_whole() {
    let slow = Slow::new();
    let proxy = proxy(1, "", &[(&slow.origin, "max=1")], "queue timeout=\"1m\"");
    let mut crowd = Crowd::new(&proxy, 2);
    ask(&mut crowd.clients[0], "/0");
    slow.origin.wait_for_requests(1);
    slow.origin.handle(|exchange| {
        exchange.read_body();
        exchange.respond(200, &[], b"read");
    });
    let body = "x".repeat(100_000);
    crowd.clients[1].send(format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len()));
    assert_eq!(crowd.probe.get("/read").status(), 204);
    std::thread::scope(|scope| {
        let client = &mut crowd.clients[1];
        let sends = scope.spawn(|| client.send(&body));
        slow.gate.open();
        sends.join().unwrap();
    });
    assert_eq!(crowd.clients[1].response().text(), "read");
    let requests =
        slow.origin.wait_for_that("the body", |requests| requests.last().is_some_and(|last| last.is_complete));
    assert_eq!(requests.last().unwrap().body_length, 100_000);
}

#[test]
fn who_waits_when_a_drain_begins_is_answered() {
    let slow = Slow::new();
    let mut proxy = proxy(1, "", &[(&slow.origin, "max=1")], "queue timeout=\"1m\"");
    let mut crowd = Crowd::new(&proxy, 3);
    crowd.ask(0);
    proxy.signal(Signal::SIGTERM);
    proxy.wait_for_error("draining");
    slow.gate.open();
    for (number, client) in crowd.clients.iter_mut().enumerate() {
        let answer = client.response();
        assert_eq!((answer.text(), answer.field("connection")), (format!("/{number}"), Some("close")));
    }
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
}

#[test]
fn who_waits_when_the_process_stops_is_told_so() {
    let slow = Slow::new();
    let mut proxy = proxy(1, "", &[(&slow.origin, "max=1")], "queue timeout=\"1m\"");
    let mut crowd = Crowd::new(&proxy, 2);
    crowd.ask(0);
    proxy.signal(Signal::SIGTERM);
    proxy.wait_for_error("draining");
    proxy.signal(Signal::SIGTERM);
    assert_eq!(crowd.clients[1].response().status(), 503);
    proxy.wait_for_exit();
    assert_eq!(reasons(&proxy, 2).iter().filter(|(_, reason)| reason == "stopped").count(), 2);
    slow.gate.open();
}

#[test]
fn where_no_server_may_get_requests_they_wait_as_long_as_they_may() {
    let origin = Origin::new("one");
    let proxy = proxy(1, "", &[(&origin, "weight=0")], "queue timeout=\"300ms\"");
    let started = now();
    let answer = proxy.client().get("/");
    assert_eq!((answer.status(), answer.field("retry-after")), (503, Some("1")));
    assert!(started.elapsed() >= Duration::from_millis(200), "{:?}", started.elapsed());
    assert_eq!(reasons(&proxy, 1), [(503, "queue-timeout".to_owned())]);
}

#[test]
fn a_pool_without_a_queue_refuses_at_once() {
    let slow = Slow::new();
    let proxy = proxy(1, "", &[(&slow.origin, "max=1")], "");
    let mut crowd = Crowd::new(&proxy, 2);
    crowd.ask(0);
    assert_eq!(crowd.clients[1].response().status(), 503);
    slow.gate.open();
    assert_eq!(crowd.clients[0].response().text(), "/0");
    assert_eq!(reasons(&proxy, 2), [(503, "pool-full".to_owned())]);
}

#[test]
fn requests_of_http2_wait_for_places_like_others() {
    let slow = Slow::new();
    let proxy = proxy(1, "{ protocols \"h2c\" }", &[(&slow.origin, "max=1")], "queue max=1 timeout=\"300ms\"");
    h2::run(async {
        let mut client = h2::connect(proxy.address()).await;
        let mut others = [client.clone(), client.clone()];
        let gate = &slow.gate;
        let (first, second, third) = {
            let [second, third] = &mut others;
            let second = async {
                let answer = h2::get(second, "/2").await.unwrap();
                gate.open();
                answer
            };
            tokio::join!(h2::get(&mut client, "/1"), second, h2::get(third, "/3"))
        };
        assert_eq!(first.unwrap().1, b"/1");
        for (head, _) in [second, third.unwrap()] {
            assert_eq!((head.status().as_u16(), &head.headers()["retry-after"]), (503, &"1".parse().unwrap()));
        }
    });
    let mut told = reasons(&proxy, 3);
    told.sort();
    assert_eq!(told, [(503, "queue-full".to_owned()), (503, "queue-timeout".to_owned())]);
}

#[test]
fn a_repetition_whose_time_in_the_queue_is_up_takes_a_place_that_is_free() {
    let (own, gate, asked) = (Origin::new("own"), Arc::new(Gate::default()), AtomicUsize::new(0));
    let other = Origin::with(move |exchange| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => {
            exchange.read_body();
            exchange.reset();
        }
        _ => {
            exchange.respond(200, &[], b"other");
        }
    });
    let servers = [(&own, "max=1"), (&other, "max=1")];
    let proxy = proxy(1, "", &servers, "scheduler \"wlc\" ties=\"first\"; persist source; queue timeout=\"50ms\"");
    let (mut client, mut holder) = (proxy.client(), proxy.client());
    assert_eq!(client.get("/").text(), "own");
    let opened = Arc::clone(&gate);
    own.handle(move |exchange| {
        opened.wait();
        exchange.respond(200, &[], b"late");
    });
    ask(&mut holder, "/");
    own.wait_for_requests(2);
    // It waits for its own server, is sent to the other, and when it comes to the queue again its time has passed.
    assert_eq!(client.get("/").text(), "other");
    assert_eq!(other.requests().len(), 2);
    gate.open();
    assert_eq!(holder.response().text(), "late");
}

#[test]
fn a_key_that_leads_to_a_server_that_is_full_is_503_at_once_where_the_scheduler_has_no_fallback() {
    let slow = Slow::new();
    let other = Origin::new("other");
    let pool = "scheduler \"mh\" key=\"uri\" fallback=\"none\"; queue timeout=\"1m\"";
    let proxy = proxy(1, "", &[(&other, "weight=0"), (&slow.origin, "max=1")], pool);
    let mut crowd = Crowd::new(&proxy, 2);
    crowd.ask(0);
    assert_eq!(crowd.clients[1].response().status(), 503);
    slow.gate.open();
    assert_eq!(crowd.clients[0].response().text(), "/0");
    assert_eq!(reasons(&proxy, 2), [(503, "no-server".to_owned())]);
    assert_eq!(other.requests().len(), 0);
}

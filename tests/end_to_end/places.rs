//! `max`, the places at a server; and `half-close`, which says whether a client that has ended its side still waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::pools::{Server, all_to};
use crate::support::deadline::Gate;
use crate::support::{Client, DEADLINE, End, Origin, Proxy, wait_for};

/// An origin that notes the most requests it has had at the same time.
fn watched(gate: &Arc<Gate>) -> (Origin, Arc<AtomicUsize>) {
    let most = Arc::new(AtomicUsize::new(0));
    let (now, noted, opened) = (AtomicUsize::new(0), Arc::clone(&most), Arc::clone(gate));
    let origin = Origin::with(move |exchange| {
        let in_flight = now.fetch_add(1, Ordering::SeqCst) + 1;
        noted.fetch_max(in_flight, Ordering::SeqCst);
        if exchange.head.target() == "/wait" {
            opened.wait();
        }
        // Its place is free as soon as the answer is there.
        now.fetch_sub(1, Ordering::SeqCst);
        exchange.respond(200, &[], b"ok");
    });
    (origin, most)
}

#[test]
fn a_pool_whose_servers_are_all_full_answers_503_until_a_place_is_free() {
    let gate = Arc::new(Gate::default());
    let (one, two) = (watched(&gate), watched(&gate));
    let servers = [Server::with(&one.0, "max=2"), Server::with(&two.0, "max=3")];
    let proxy = Proxy::start(&all_to(servers, "retry count=3"));
    let mut waiting: Vec<Client> = (0..5).map(|_| proxy.client()).collect();
    for client in &mut waiting {
        client.send("GET /wait HTTP/1.1\r\nHost: a.test\r\n\r\n");
    }
    one.0.wait_for_requests(2);
    two.0.wait_for_requests(3);
    for method in ["GET", "POST"] {
        let mut client = proxy.client();
        let answer = client.request(format!("{method} / HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        assert_eq!((answer.status(), answer.field("retry-after")), (503, Some("1")));
        // The connection is as good as before.
        assert_eq!(client.get("/").status(), 503);
    }
    gate.open();
    for client in &mut waiting {
        assert_eq!(client.response().status(), 200);
    }
    let records = proxy.wait_for_records("access.log", 4);
    assert!(records[..4].iter().all(|record| record["reason"] == "pool-full"), "{records:?}");
    wait_for("a free place", DEADLINE, || (proxy.client().get("/").status() == 200).then_some(()));
    assert_eq!((one.1.load(Ordering::SeqCst), two.1.load(Ordering::SeqCst)), (2, 3));
}

#[test]
fn a_full_server_is_passed_over_where_another_has_a_place() {
    let gate = Arc::new(Gate::default());
    let (one, two) = (watched(&gate), watched(&gate));
    let proxy = Proxy::start(&all_to([Server::with(&one.0, "max=1"), Server::from(&two.0)], ""));
    let mut waiting: Vec<Client> = (0..10).map(|_| proxy.client()).collect();
    for client in &mut waiting {
        client.send("GET /wait HTTP/1.1\r\nHost: a.test\r\n\r\n");
    }
    one.0.wait_for_requests(1);
    two.0.wait_for_requests(9);
    gate.open();
    for client in &mut waiting {
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn several_workers_together_never_have_more_than_max_in_flight() {
    let gate = Arc::new(Gate::default());
    gate.open();
    let (one, two) = (watched(&gate), watched(&gate));
    let rules = all_to([Server::with(&one.0, "max=3"), Server::with(&two.0, "max=2")], "scheduler \"wlc\"");
    let proxy = Proxy::start(&rules.replace("workers 1", "workers 4"));
    let address = proxy.address();
    let clients: Vec<_> = (0..12)
        .map(|_| {
            thread::spawn(move || {
                let mut counts = [0, 0];
                for _ in 0..25 {
                    let mut client = Client::connect(address);
                    for _ in 0..8 {
                        match client.get("/").status() {
                            200 => counts[0] += 1,
                            503 => counts[1] += 1,
                            other => panic!("{other}"),
                        }
                    }
                }
                counts
            })
        })
        .collect();
    let counts: Vec<[usize; 2]> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let answered: usize = counts.iter().map(|counts| counts[0]).sum();
    let most = (one.1.load(Ordering::SeqCst), two.1.load(Ordering::SeqCst));
    assert!(answered > 0 && most.0 <= 3 && most.1 <= 2, "{answered} answered, at most {most:?} in flight");
    // The answers that were let through are those that the servers gave.
    assert_eq!(one.0.requests().len() + two.0.requests().len(), answered);
}

const HALF_CLOSED: [&str; 3] = [
    "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody",
    "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
];

/// A server that answers, piece by piece, once the gate is open.
fn patient(gate: &Arc<Gate>) -> Origin {
    let opened = Arc::clone(gate);
    Origin::with(move |exchange| {
        exchange.read_body();
        opened.wait();
        exchange.respond(200, &[], &[b'x'; 100_000]);
    })
}

#[test]
fn a_client_that_has_ended_its_side_still_gets_its_answer_with_half_close() {
    let gate = Arc::new(Gate::default());
    let origin = patient(&gate);
    let rules = all_to([&origin], "").replace("via \"off\"", "half-close #true");
    let proxy = Proxy::start(&rules);
    let mut clients = Vec::new();
    for request in HALF_CLOSED {
        let mut client = proxy.client();
        // Two of them: the second is answered behind the first.
        client.send(request.repeat(2));
        client.finish_writing();
        clients.push(client);
    }
    origin.wait_for_requests(3);
    gate.open();
    for mut client in clients {
        for _ in 0..2 {
            assert_eq!(client.response().body.len(), 100_000);
        }
        assert_eq!(client.end(), End::Closed);
    }
}

#[test]
fn a_client_that_has_ended_its_side_counts_as_gone_without_half_close() {
    let origin = Origin::with(|exchange| {
        exchange.read_body();
        exchange.wait_for_end();
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    for (index, request) in HALF_CLOSED.into_iter().enumerate() {
        let mut client = proxy.client();
        client.send(request);
        origin.wait_for_that("the request", |requests| requests.len() == index + 1 && requests[index].is_complete);
        client.finish_writing();
        wait_for("the server's connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
        assert!(matches!(client.end(), End::Closed | End::Reset));
        let record = proxy.wait_for_records("access.log", index + 1).remove(index);
        assert_eq!((&record["status"], &record["reason"]), (&499.into(), &"client-gone".into()));
    }
}

/// With `half-close` too, a body that ends before its end is no request.
#[test]
fn a_client_that_ends_its_side_in_the_middle_of_a_body_counts_as_gone_with_half_close_too() {
    let origin = Origin::new("one");
    let rules = all_to([&origin], "").replace("via \"off\"", "half-close #true");
    let proxy = Proxy::start(&rules);
    for request in ["Content-Length: 10\r\n\r\nbody", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"] {
        let mut client = proxy.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a.test\r\n{request}"));
        client.finish_writing();
        assert!(matches!(client.end(), End::Closed | End::Reset));
        let requests = origin.wait_for_that("the cut", |requests| requests.iter().all(|one| one.broken.is_some()));
        assert!(requests.iter().all(|request| !request.is_complete));
    }
}

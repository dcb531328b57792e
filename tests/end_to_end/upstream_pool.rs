//! Idle connections to servers: used again where that is safe, bounded in number and time, and never used when something has
//! come, or ended, while they were idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pools::all_to;
use crate::support::{Client, DEADLINE, Origin, Proxy, wait_for};

fn wait_for_open(origin: &Origin, count: usize) {
    wait_for(&format!("{count} connections to the server"), DEADLINE, || {
        (origin.open_connections() == count).then_some(())
    });
}

#[test]
fn many_clients_one_after_the_other_share_one_connection() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    for number in 0..50 {
        let mut client = proxy.client();
        let answer = match number % 3 {
            0 => client.get("/"),
            1 => client.request("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"),
            _ => client.request("GET / HTTP/1.0\r\n\r\n"),
        };
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(origin.accepted(), 1);
}

#[test]
fn an_idle_connection_ends_after_idle_timeout_and_not_before() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], "upstream \"http/1.1\" idle-timeout=\"300ms\""));
    let mut client = proxy.client();
    assert_eq!(client.get("/").status(), 200);
    let begun = crate::support::deadline::now();
    wait_for_open(&origin, 0);
    let lived = begun.elapsed();
    assert!(lived > std::time::Duration::from_millis(250), "{lived:?}");
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(origin.accepted(), 2);
    // One that is used lives on.
    let begun = crate::support::deadline::now();
    while begun.elapsed() < std::time::Duration::from_millis(600) && origin.accepted() == 2 {
        assert_eq!(client.get("/").status(), 200);
    }
    assert_eq!(origin.accepted(), 2);
}

#[test]
fn a_server_that_says_close_or_http_1_0_is_asked_on_a_fresh_connection_next_time() {
    for answer in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nconnection: x, CLOSE\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ] {
        let origin = Origin::with(move |exchange| {
            exchange.write(answer);
        });
        let proxy = Proxy::start(&all_to([&origin], ""));
        let mut client = proxy.client();
        for round in 1..=3 {
            assert_eq!(client.get("/").text(), "ok");
            assert_eq!(origin.accepted(), round);
        }
        wait_for_open(&origin, 0);
    }
    let origin = Origin::with(|exchange| {
        exchange.write("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok");
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    (0..3).for_each(|_| assert_eq!(client.get("/").text(), "ok"));
    assert_eq!(origin.accepted(), 1);
}

/// The server answers before it has the whole upload, and the client goes away with the rest of it.
#[test]
fn a_connection_with_half_an_upload_on_it_is_never_used_again() {
    let origin = Origin::with(|exchange| {
        if exchange.head.method() == "GET" {
            exchange.respond(200, &[], b"got");
            return;
        }
        exchange.piece();
        exchange.respond(200, &[], b"early");
        exchange.read_body();
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    for round in 1..=5 {
        let mut client = proxy.client();
        client.send(
            "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: 100\r\n\r\nGET / HTTP/1.1\r\n",
        );
        assert_eq!(client.response().text(), "early");
        drop(client);
        assert_eq!(proxy.client().get("/").text(), "got");
        let requests = origin.requests();
        assert_eq!(requests.len(), 2 * round);
        assert_ne!(requests[2 * round - 1].connection, requests[2 * round - 2].connection);
    }
}

#[test]
fn a_connection_on_which_more_than_its_answer_came_is_never_used_again() {
    // All at once, so that the surplus is read with the answer.
    let origin = Origin::with(|exchange| {
        exchange
            .write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray");
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for round in 1..=20 {
        let answer = client.get("/");
        assert_eq!((answer.text().as_str(), origin.accepted()), ("ok", round));
    }
}

/// The server answers, waits until the client has its answer, and writes a whole second one.
#[test]
fn an_answer_that_comes_on_an_idle_connection_is_never_anybodys() {
    let answered = Arc::new(AtomicUsize::new(0));
    let read = Arc::clone(&answered);
    let chattered = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&chattered);
    let origin = Origin::with(move |exchange| {
        let target = exchange.head.target().to_owned();
        exchange.respond(200, &[], target.as_bytes());
        if target.starts_with("/stray") {
            wait_for("the answer to be read", DEADLINE, || (read.load(Ordering::SeqCst) > 0).then_some(()));
            read.fetch_sub(1, Ordering::SeqCst);
            exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray");
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut clients: Vec<Client> = (0..4).map(|_| proxy.client()).collect();
    for round in 0..200 {
        assert_eq!(clients[0].get("/stray").text(), "/stray");
        answered.fetch_add(1, Ordering::SeqCst);
        wait_for("the stray answer", DEADLINE, || (chattered.load(Ordering::SeqCst) == round + 1).then_some(()));
        for client in &mut clients {
            let target = format!("/own-{round}");
            assert_eq!(client.get(&target).text(), target);
        }
    }
}

/// Whatever becomes of the idle connection in the moment it is used, the client gets an answer. One request of six needs a
/// repetition at most, which the budget allows.
#[test]
fn a_server_that_closes_while_a_request_is_on_its_way_is_asked_again() {
    let origin = Origin::with(|exchange| {
        let target = exchange.head.target().to_owned();
        exchange.respond(200, &[], b"ok");
        if target == "/last" {
            exchange.close();
        }
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for round in 0..100 {
        for target in ["/last", "/", "/", "/", "/", "/"] {
            let answer = client.get(target);
            assert_eq!((round, answer.status()), (round, 200));
        }
    }
}

#[test]
fn each_worker_keeps_its_own() {
    let origin = Origin::new("one");
    let rules = all_to([&origin], "").replace("workers 1", "workers 4");
    let proxy = Proxy::start(&rules);
    for _ in 0..100 {
        assert_eq!(proxy.client().get("/").status(), 200);
    }
    assert!(origin.accepted() <= 4, "{}", origin.accepted());
}

//! The end of the process: signals, what is in flight, what waits to be accepted, and what comes too late.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::client::Options;
use crate::support::deadline::{Gate, now};
use crate::support::{Client, DEADLINE, End, Origin, Proxy, wait_for};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

fn rules(settings: &str, origin: &Origin) -> String {
    format!(
        "listen \"127.0.0.1:0\"\npool \"o\" {{ server \"o1\" \"{}\"; }}\nrule use=\"o\"\naccess-log \"access.log\"\n{settings}\n",
        origin.address
    )
}

fn wait_until_refused(proxy: &Proxy) {
    wait_for("connects to be refused", DEADLINE, || Options::default().try_connect(proxy.address()).err());
}

/// How many records there are once the proxy has ended.
fn records(proxy: &Proxy) -> usize {
    fs::read_to_string(proxy.path("access.log")).unwrap().lines().count()
}

#[test]
fn what_is_in_flight_is_finished_and_says_that_the_connection_ends() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (origin, gate) = Origin::gated();
        let mut proxy = Proxy::start(&rules("", &origin));
        let mut busy: Vec<Client> = (0..4).map(|_| proxy.client()).collect();
        busy.iter_mut().for_each(|client| client.send(GET));
        origin.wait_for_requests(4);
        proxy.signal(signal);
        proxy.wait_for_error("draining");
        wait_until_refused(&proxy);
        assert!(proxy.is_running());
        gate.open();
        for client in &mut busy {
            let answer = client.response();
            assert_eq!((answer.text().as_str(), answer.field("connection")), ("late", Some("close")));
            assert_eq!(client.end(), End::Closed);
        }
        assert_eq!(proxy.wait_for_exit().code(), Some(0));
        proxy.wait_for_error("drained");
        assert_eq!(records(&proxy), 4, "every record is written before the end");
    }
}

#[test]
fn a_body_on_its_way_in_either_direction_is_passed_to_its_end() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
        let whole = exchange.read_body();
        opened.wait();
        exchange.write(format!("5\r\n{whole:5}\r\n0\r\n\r\n"));
    });
    let mut proxy = Proxy::start(&rules("", &origin));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 8\r\n\r\nhalf");
    let head = client.head();
    let mut body = client.body_of(&head, "POST");
    assert_eq!(client.piece(&mut body), Ok(Some(b"half".to_vec())));
    proxy.signal(Signal::SIGTERM);
    wait_until_refused(&proxy);
    client.send("half");
    origin.wait_for_that("the whole body", |requests| requests[0].is_complete);
    gate.open();
    assert_eq!(client.piece(&mut body), Ok(Some(b"true ".to_vec())));
    assert_eq!(client.piece(&mut body), Ok(None));
    assert_eq!(client.end(), End::Closed);
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
}

#[test]
fn idle_connections_are_closed_at_once() {
    let origin = Origin::new("one");
    let mut proxy = Proxy::start(&rules("limits { idle-timeout \"1h\"; header-timeout \"1h\"; }", &origin));
    let mut idle: Vec<Client> = (0..8).map(|_| proxy.client()).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.get("/").field("connection"), None));
    // Of one that has not asked for anything yet the kernel has told nobody, and holds up nothing.
    let mut fresh = proxy.client();
    let started = now();
    proxy.signal(Signal::SIGTERM);
    idle.iter_mut().for_each(|client| assert_eq!(client.end(), End::Closed));
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
    let _ = fresh.try_send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(fresh.end(), End::Reset);
    assert!(started.elapsed() < DEADLINE);
    wait_for("the server's connections to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
}

/// Browsers connect ahead of what they ask for.
#[test]
fn a_handshake_that_does_not_go_on_holds_up_no_end() {
    let origin = Origin::new("one");
    let tls = "listen \"127.0.0.1:0\" { tls { certificate \"site.crt\" key=\"site.key\"; } }";
    let mut proxy =
        Proxy::start(&rules(&format!("{tls}\nlimits {{ header-timeout \"1h\"; drain-timeout \"1h\"; }}"), &origin));
    let _silent = Client::connect(proxy.addresses[1]);
    let mut begun = Client::connect(proxy.addresses[1]);
    // The head of a record, of which the rest never comes.
    begun.send([22, 3, 1, 1, 0]);
    assert_eq!(Client::connect_tls(proxy.addresses[1], "a.test").get("/").text(), "one");
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
    proxy.wait_for_error("drained");
    assert!(matches!(begun.end(), End::Closed | End::Reset));
}

#[test]
fn what_waits_to_be_accepted_is_still_served() {
    let origin = Origin::new("one");
    let mut proxy = Proxy::start(&rules("workers 2", &origin));
    let mut kept = proxy.client();
    assert_eq!(kept.get("/").text(), "one");
    // A process that is stopped accepts nothing: all these wait in the kernel's queue when the signal is seen.
    proxy.signal(Signal::SIGSTOP);
    let mut waiting: Vec<Client> = (0..50).map(|_| proxy.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(GET));
    kept.send(GET);
    proxy.signal(Signal::SIGTERM);
    proxy.signal(Signal::SIGCONT);
    for client in waiting.iter_mut().chain([&mut kept]) {
        let answer = client.response();
        assert_eq!(answer.text(), "one");
        if answer.field("connection").is_none() {
            // Answered before the worker saw the order: then the connection is closed for being idle.
            assert_eq!(client.end(), End::Closed);
        }
    }
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
    assert_eq!(records(&proxy), 52);
}

#[test]
fn requests_that_came_along_are_answered_up_to_the_one_that_says_close() {
    let (origin, gate) = Origin::gated();
    let mut proxy = Proxy::start(&rules("", &origin));
    let mut client = proxy.client();
    client.send(GET.repeat(3));
    origin.wait_for_requests(1);
    proxy.signal(Signal::SIGTERM);
    wait_until_refused(&proxy);
    gate.open();
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.field("connection")), ("late", Some("close")));
    assert_eq!(client.end(), End::Closed);
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
    assert_eq!(origin.requests().len(), 1, "what is not answered was not begun");
}

#[test]
fn a_tunnel_counts_as_in_flight() {
    let origin = Origin::with(|exchange| {
        exchange.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        while let Ok(bytes) = exchange.raw() {
            exchange.write(bytes);
        }
        exchange.close();
    });
    let mut proxy = Proxy::start(&rules("", &origin));
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.head().status(), 101);
    proxy.signal(Signal::SIGTERM);
    wait_until_refused(&proxy);
    client.send("ping");
    assert_eq!(client.exactly(4), b"ping");
    assert!(proxy.is_running());
    client.finish_writing();
    assert_eq!(client.end(), End::Closed);
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once() {
    for second in [Signal::SIGTERM, Signal::SIGINT] {
        let (origin, _gate) = Origin::gated();
        let mut proxy = Proxy::start(&rules("limits { drain-timeout \"1h\"; }", &origin));
        let mut client = proxy.client();
        client.send(GET);
        origin.wait_for_requests(1);
        proxy.signal(Signal::SIGTERM);
        proxy.wait_for_error("draining");
        proxy.signal(Signal::SIGHUP);
        proxy.signal(Signal::SIGUSR2);
        assert!(proxy.is_running());
        proxy.signal(second);
        assert_eq!(proxy.wait_for_exit().code(), Some(0));
        assert_eq!(client.response().status(), 503);
        proxy.wait_for_error("still in flight");
    }
}

#[test]
fn signals_that_do_nothing_yet_are_said_and_change_nothing() {
    let (origin, gate) = Origin::gated();
    let mut proxy = Proxy::start(&rules("", &origin));
    let mut client = proxy.client();
    client.send(GET);
    origin.wait_for_requests(1);
    for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
        proxy.signal(signal);
        assert!(proxy.wait_for_error(signal.as_str()).contains("not supported yet"));
    }
    gate.open();
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.field("connection")), ("late", None));
    assert_eq!((client.get("/").text(), proxy.client().get("/").text()), ("late".to_owned(), "late".to_owned()));
    assert!(proxy.is_running());
}

/// A signal that comes as soon as the proxy says that it listens finds somebody who waits for it.
#[test]
fn a_signal_just_after_the_start_is_not_the_end_without_a_drain() {
    let origin = Origin::new("one");
    let signals = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGTERM];
    for _ in 0..5 {
        let mut proxy = Proxy::start(&rules("", &origin));
        signals.into_iter().for_each(|signal| proxy.signal(signal));
        assert_eq!(proxy.wait_for_exit().code(), Some(0));
        proxy.wait_for_error("drained");
    }
}

/// The signals that a process catches, by /proc: a bit for each.
#[test]
fn signals_are_caught_before_anything_is_listened_on() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("", &origin));
    let caught = proxy.caught_signals();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1] {
        assert!(caught & (1 << (signal as i32 - 1)) != 0, "{signal} is not caught: {caught:x}");
    }
}

/// Asks on one connection after the other until connects are refused, and counts the answers. A connection that was idle
/// may end in the moment in which its next request is sent (RFC 9112 9.3.1), and so may one that has been silent for a while.
/// One whose handshake the system finishes between the last accept and the close is reset by the system: its request was
/// never taken, and is in no log.
fn ask_until_refused(address: SocketAddr) -> usize {
    let mut answered = 0;
    loop {
        let started = now();
        let Ok(mut client) = Options::default().try_connect(address) else { return answered };
        for request in 0.. {
            let sent = client.try_send(GET);
            let is_late = started.elapsed() > Duration::from_millis(300);
            let answer = match sent.and_then(|()| client.try_response_to("GET")) {
                Err(End::Closed | End::Reset) if request > 0 || is_late => break,
                Err(End::Reset) => break,
                answer => answer.unwrap_or_else(|end| panic!("request {request}: {end:?}")),
            };
            assert_eq!((answer.text().as_str(), answer.is_complete()), ("one", true));
            answered += 1;
            if answer.field("connection").is_some() {
                break;
            }
        }
    }
}

#[test]
fn under_load_every_request_that_was_taken_is_answered() {
    let origin = Origin::new("one");
    let mut proxy = Proxy::start(&rules("workers 2", &origin));
    let address = proxy.address();
    let loops: Vec<_> = (0..4).map(|_| thread::spawn(move || ask_until_refused(address))).collect();
    origin.wait_for_requests(100);
    proxy.signal(Signal::SIGTERM);
    let answered: usize = loops.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
    assert!(answered >= 100 && records(&proxy) == answered, "{answered} answers, {} records", records(&proxy));
}

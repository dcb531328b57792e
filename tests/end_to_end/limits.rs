//! The limits of listeners and of the process, each in tests that are named after it: what it stops, what the client is
//! told, and that the proxy goes on. A limit of the table without such a test fails tidy.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::client::Options;
use crate::support::deadline::{Gate, now};
use crate::support::{Client, DEADLINE, End, Origin, Proxy, wait_for};

/// A time bound that is short for a test and long for the proxy.
const SHORT: Duration = Duration::from_millis(300);
/// How long nothing may come before a test believes that nothing comes.
const SILENCE: Duration = Duration::from_millis(300);

/// One listener, one worker, one server, and these limits at the top.
fn rules(limits: &str, origin: &Origin) -> String {
    format!(
        "listen \"127.0.0.1:0\"\nworkers 1\nlimits {{ {limits} }}\n\
         pool \"o\" {{ server \"o1\" \"{}\"; }}\nrule use=\"o\"\naccess-log \"access.log\"\n",
        origin.address
    )
}

/// The same with a TLS listener beside the plain one.
fn both(limits: &str, origin: &Origin) -> String {
    let tls = "listen \"127.0.0.1:0\" { tls { certificate \"site.crt\" key=\"site.key\"; } }\n";
    rules(limits, origin) + tls
}

fn proxy(limits: &str, origin: &Origin) -> Proxy {
    Proxy::start(&rules(limits, origin))
}

/// Shows that the connection ends in silence, and no earlier than this.
fn assert_ends_after(client: &mut Client, started: std::time::Instant, least: Duration) {
    assert_eq!(client.end(), End::Closed);
    assert!(started.elapsed() >= least, "{:?}", started.elapsed());
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// Shows that nothing comes, and that the connection is not ended.
fn assert_silent(client: &mut Client) {
    client.patience = SILENCE;
    assert_eq!(client.try_head(), Err(End::TimedOut));
    client.patience = DEADLINE;
}

#[test]
fn limit_header_timeout_is_408_for_a_head_that_has_begun() {
    let origin = Origin::new("one");
    let proxy = proxy("header-timeout \"300ms\"", &origin);
    let started = now();
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.");
    let answer = client.response();
    assert!(started.elapsed() >= SHORT, "{:?}", started.elapsed());
    assert_eq!((answer.status(), answer.field("connection")), (408, Some("close")));
    assert_eq!(answer.text(), "408 Request Timeout\n");
    assert_eq!(client.end(), End::Closed);

    // The second head of a connection has no more time than the first.
    let mut client = proxy.client();
    assert_eq!(client.get("/").text(), "one");
    client.send("G");
    assert_eq!(client.response().status(), 408);
    let records = proxy.wait_for_records("access.log", 3);
    assert_eq!((records[0]["status"].as_u64(), records[0]["reason"].as_str()), (Some(408), Some("head-timeout")));
    assert!(records[0]["total_us"].as_u64() >= Some(290_000), "{}", records[0]);
}

#[test]
fn limit_header_timeout_is_not_put_off_by_a_byte_now_and_then() {
    let origin = Origin::new("one");
    let proxy = proxy("header-timeout \"300ms\"", &origin);
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nX: ");
    client.patience = Duration::from_millis(20);
    let head = wait_for("an answer", DEADLINE, || {
        client.try_send("x").ok();
        match client.try_head() {
            Err(End::TimedOut) => None,
            head => Some(head.unwrap()),
        }
    });
    assert_eq!(head.status(), 408);
}

#[test]
fn limit_header_timeout_is_a_silent_close_where_nothing_came() {
    let origin = Origin::new("one");
    let proxy = proxy("header-timeout \"1500ms\"", &origin);
    let started = now();
    assert_ends_after(&mut proxy.client(), started, Duration::from_millis(1500));
}

#[test]
fn limit_idle_timeout_is_a_silent_close_between_requests() {
    let origin = Origin::new("one");
    let proxy = proxy("idle-timeout \"300ms\"; header-timeout \"1h\"", &origin);
    let mut client = proxy.client();
    for _ in 0..2 {
        assert_eq!(client.get("/").text(), "one");
    }
    let started = now();
    assert_eq!(client.end(), End::Closed);
    assert!(started.elapsed() >= SHORT - Duration::from_millis(50), "{:?}", started.elapsed());
}

/// Of several tries one at least is not held up by a busy machine.
#[test]
fn limit_idle_timeout_is_not_put_off_by_what_happens_in_the_pause() {
    let origin = Origin::new("one");
    let proxy = proxy("idle-timeout \"400ms\"", &origin);
    let soonest = (0..5).map(|_| {
        let mut client = proxy.client();
        assert_eq!(client.get("/").text(), "one");
        let started = now();
        assert_eq!(client.end(), End::Closed);
        started.elapsed()
    });
    let soonest = soonest.min().unwrap();
    assert!(soonest < Duration::from_millis(600), "{soonest:?}");
}

#[test]
fn limit_idle_timeout_is_408_for_a_body_that_stops_coming() {
    let (origin, _gate) = Origin::gated();
    let proxy = proxy("idle-timeout \"300ms\"; header-timeout \"1h\"", &origin);
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nhalf ");
    let answer = client.response();
    assert_eq!((answer.status(), answer.field("connection")), (408, Some("close")));
    assert_eq!(client.end(), End::Closed);
    let requests = origin.wait_for_that("the cut", |requests| requests.first().is_some_and(|r| r.broken.is_some()));
    assert!(!requests[0].is_complete);
    let records = proxy.wait_for_records("access.log", 1);
    assert_eq!(records[0]["reason"], "client-timeout");
}

#[test]
fn limit_idle_timeout_is_the_end_of_a_client_that_does_not_read_its_answer() {
    let origin = Origin::with(|exchange| {
        exchange.respond(200, &[], &vec![b'x'; 64 << 20]);
    });
    let proxy = proxy("idle-timeout \"300ms\"", &origin);
    let mut client = Options { receive_buffer: Some(4096), ..Options::default() }.connect(proxy.address());
    client.send(GET);
    let records = proxy.wait_for_records("access.log", 1);
    assert_eq!((records[0]["status"].as_u64(), records[0]["reason"].as_str()), (Some(200), Some("client-timeout")));
    wait_for("the server's connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
    assert!(!client.response().is_complete());
}

#[test]
fn limit_body_max_is_413_for_a_length_above_it_and_no_server_is_asked() {
    let origin = Origin::new("one");
    let proxy = proxy("body-max \"10B\"", &origin);
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 11\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.status(), answer.field("connection")), (413, Some("close")));
    assert_eq!(answer.text(), "413 Payload Too Large\n");
    assert_eq!(client.end(), End::Closed);
    assert!(origin.requests().is_empty());
    let answer = proxy.client().request("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\n0123456789");
    assert_eq!(answer.text(), "one");
    let records = proxy.wait_for_records("access.log", 2);
    assert_eq!(records[0]["reason"], "body-too-large");
}

#[test]
fn limit_body_max_is_413_for_chunks_above_it() {
    let origin = Origin::new("one");
    let proxy = proxy("body-max \"10B\"", &origin);
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    let whole = proxy.client().request(format!("{head}a\r\n0123456789\r\n0\r\n\r\n"));
    assert_eq!(whole.text(), "one");
    for (first, second) in [("b\r\n0123456789a\r\n0\r\n\r\n", ""), ("a\r\n0123456789\r\n", "1\r\na\r\n0\r\n\r\n")] {
        let before = origin.requests().len();
        let mut client = proxy.client();
        client.send(format!("{head}{first}"));
        if !second.is_empty() {
            origin.wait_for_that("the first chunk", |all| all.get(before).is_some_and(|r| r.body_length == 10));
            client.send(second);
        }
        assert_eq!(client.response().status(), 413);
        assert_eq!(client.end(), End::Closed);
    }
    // The server that was sent the first chunk sees that it is not all.
    let cut = |requests: &[crate::support::origin::Recorded]| requests.last().is_some_and(|r| r.broken.is_some());
    assert!(!origin.wait_for_that("the cut", cut).last().unwrap().is_complete);
}

#[test]
fn limit_body_max_is_the_rules_before_the_listeners_before_the_tops() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&format!(
        "listen \"127.0.0.1:0\" {{ limits {{ body-max \"20B\"; }} }}\nlisten \"127.0.0.2:0\"\n\
         limits {{ body-max \"10B\"; }}\npool \"o\" {{ server \"o1\" \"{}\"; }}\n\
         rule path=\"/large\" use=\"o\" {{ body-max \"30B\" }}\nrule path=\"/none\" use=\"o\" {{ limits {{ body-max \"0B\"; }} }}\n\
         rule use=\"o\"\n",
        origin.address
    ));
    let status = |listener: usize, path: &str, length: usize| {
        let body = "x".repeat(length);
        let request = format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{body}");
        Client::connect(proxy.addresses[listener]).request(request).status()
    };
    for (listener, path, most) in
        [(0, "/", 20), (1, "/", 10), (0, "/large", 30), (1, "/large", 30), (0, "/none", 0), (1, "/none", 0)]
    {
        assert_eq!(status(listener, path, most), 200, "{listener} {path}");
        assert_eq!(status(listener, path, most + 1), 413, "{listener} {path}");
    }
}

/// A client that writes 100 MiB and a byte, and reads meanwhile: it gets the whole answer and a proper end.
#[test]
fn limit_body_max_is_413_that_a_client_reads_while_it_writes() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&both("", &origin));
    let total: u64 = (100 << 20) + 1;
    let clients = [Client::connect(proxy.addresses[0]), Client::connect_tls(proxy.addresses[1], "a.test")];
    for mut client in clients {
        client.send(format!("PUT /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: {total}\r\n\r\n"));
        let (sent, end) = client.send_until_answered(&[b'x'; 65_536], total);
        assert!(end.is_none() && sent < total, "{sent} {end:?}");
        let answer = client.response();
        assert_eq!((answer.status(), answer.is_complete()), (413, true));
        assert_eq!(client.end(), End::Closed);
    }
    assert!(origin.requests().is_empty());
}

/// A client that reads only when it can write no more: the answer is there, and the wait for it is bounded.
#[test]
fn limit_body_max_is_413_that_is_not_lost_to_a_client_that_only_writes() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("", &origin));
    let mut client = proxy.client();
    let started = now();
    client.send("PUT /x HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n10000000\r\n");
    let piece = vec![b'x'; 1 << 20];
    let sent = (0..256).take_while(|_| client.try_send(&piece).is_ok()).count();
    assert!((100..256).contains(&sent), "{sent} MiB");
    assert_eq!(client.response().status(), 413);
    assert!(started.elapsed() < DEADLINE);
}

/// What such a client still sends is read for 2 s and for 1 MiB at most; then the connection is gone.
#[test]
fn limit_body_max_is_413_and_the_end_for_a_client_that_goes_on_for_ever() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&both("body-max \"10B\"", &origin));
    let clients = [Client::connect(proxy.addresses[0]), Client::connect_tls(proxy.addresses[1], "a.test")];
    for mut client in clients {
        client.send("PUT /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000000\r\n\r\n");
        assert_eq!(client.response().status(), 413);
        let (before, started) = (proxy.open_descriptors(), now());
        wait_for("the end of a client that sends a byte now and then", DEADLINE, || client.try_send("x").err());
        assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
        wait_for("its descriptor to be free", DEADLINE, || (proxy.open_descriptors() < before).then_some(()));
    }
}

#[test]
fn limit_head_max_is_431_for_fields_and_414_for_a_target() {
    let origin = Origin::new("one");
    let proxy = proxy("head-max \"2KiB\"", &origin);
    let frame = "GET / HTTP/1.1\r\nHost: a.test\r\nX: \r\n\r\n".len();
    let with_field = |length: usize| format!("GET / HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n", "x".repeat(length));
    assert_eq!(proxy.client().request(with_field(2048 - frame)).text(), "one");
    let mut client = proxy.client();
    assert_eq!(client.request(with_field(2049 - frame)).status(), 431);
    assert_eq!(client.end(), End::Closed);
    let mut client = proxy.client();
    client.send(format!("GET /{}", "x".repeat(2048)));
    assert_eq!(client.response().status(), 414);
    assert_eq!(client.end(), End::Closed);
    let records = proxy.wait_for_records("access.log", 3);
    assert_eq!(records[1]["reason"], "head-too-large");
}

#[test]
fn limit_head_max_is_kept_to_for_heads_larger_than_any_buffer() {
    let origin = Origin::new("one");
    let proxy = proxy("head-max \"1MiB\"; buffer-memory \"8MiB\"", &origin);
    let with_field = |length: usize| format!("GET / HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n", "x".repeat(length));
    assert_eq!(proxy.client().request(with_field(1_000_000)).text(), "one");
    assert_eq!(origin.requests()[0].head.field("x").map(str::len), Some(1_000_000));
    assert_eq!(proxy.client().request(with_field(1 << 20)).status(), 431);
}

#[test]
fn limit_fields_max_is_431_for_one_field_more() {
    let origin = Origin::new("one");
    let proxy = proxy("fields-max 5", &origin);
    let with_fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a.test\r\n{}\r\n", "X: y\r\n".repeat(count));
    assert_eq!(proxy.client().request(with_fields(4)).text(), "one");
    let mut client = proxy.client();
    assert_eq!(client.request(with_fields(5)).status(), 431);
    assert_eq!(client.end(), End::Closed);
}

#[test]
fn limit_connections_max_is_a_pause_of_accepting_that_ends() {
    let origin = Origin::new("one");
    let proxy = proxy("connections-max 2", &origin);
    let mut first = proxy.client();
    let mut second = proxy.client();
    assert_eq!((first.get("/").text(), second.get("/").text()), ("one".to_owned(), "one".to_owned()));
    let mut third = proxy.client();
    third.send(GET);
    assert_silent(&mut third);
    assert_eq!(second.get("/").text(), "one");
    drop(first);
    assert_eq!(third.response().text(), "one");
}

#[test]
fn limit_connections_max_is_not_exceeded_by_many_listeners_and_workers() {
    let (origin, gate) = Origin::gated();
    let proxy = Proxy::start(&format!(
        "listen \"127.0.0.1:0\"\nlisten \"127.0.0.2:0\"\nworkers 4\nlimits {{ connections-max 2; }}\n\
         pool \"o\" {{ server \"o1\" \"{}\"; }}\nrule use=\"o\"\n",
        origin.address
    ));
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    let mut clients: Vec<Client> = (0..16).map(|at| Client::connect(proxy.addresses[at % 2])).collect();
    clients.iter_mut().for_each(|client| client.send(request));
    origin.wait_for_requests(2);
    let mut other = proxy.client();
    assert_silent(&mut other);
    drop(other);
    assert_eq!(origin.requests().len(), 2);
    gate.open();
    for mut client in clients {
        assert_eq!(client.response().text(), "late");
    }
}

#[test]
fn limit_connections_per_client_max_is_429_and_a_close() {
    let origin = Origin::new("one");
    let proxy = proxy("connections-per-client-max 2", &origin);
    let mut first = proxy.client();
    let mut second = proxy.client();
    assert_eq!((first.get("/").text(), second.get("/").text()), ("one".to_owned(), "one".to_owned()));
    let mut third = proxy.client();
    let answer = third.get("/");
    assert_eq!((answer.status(), answer.field("connection")), (429, Some("close")));
    assert_eq!((answer.text().as_str(), answer.field("retry-after")), ("429 Too Many Requests\n", Some("1")));
    assert_eq!(third.end(), End::Closed);

    let from = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)));
    let mut other = Options { from, ..Options::default() }.connect(proxy.address());
    assert_eq!(other.get("/").text(), "one");

    drop(first);
    wait_for("the place to be free", DEADLINE, || (proxy.client().get("/").status() == 200).then_some(()));
    let records = proxy.wait_for_records("access.log", 3);
    assert_eq!(records[2]["reason"], "connections-per-client");
}

#[test]
fn limit_requests_per_connection_max_is_a_close_with_the_last_answer() {
    let origin = Origin::new("one");
    let proxy = proxy("requests-per-connection-max 2", &origin);
    let mut client = proxy.client();
    assert_eq!(client.get("/").field("connection"), None);
    let last = client.get("/");
    assert_eq!((last.text().as_str(), last.field("connection")), ("one", Some("close")));
    assert_eq!(client.end(), End::Closed);
    // A request more that came along is not answered, and does not spoil the answers before it.
    let mut client = proxy.client();
    client.send(GET.repeat(3));
    assert_eq!((client.response().text(), client.response().text()), ("one".to_owned(), "one".to_owned()));
    assert_eq!(client.end(), End::Closed);
    assert_eq!(origin.requests().len(), 4);
}

/// A request that comes just after the last answer must not turn the end into a reset, which could take the answer away.
#[test]
fn limit_requests_per_connection_max_is_no_reset_where_a_request_more_comes_late() {
    let origin = Origin::new("one");
    let proxy = proxy("requests-per-connection-max 1", &origin);
    let mut client = proxy.client();
    assert_eq!(client.get("/").text(), "one");
    assert_eq!(client.end(), End::Closed);
    for _ in 0..20 {
        assert_eq!(client.try_send(GET), Ok(()));
        crate::support::deadline::between_looks();
    }
}

#[test]
fn limit_buffer_memory_is_a_pause_of_reading_heads() {
    // 32 exchanges with two buffers of 20 KiB each.
    let (origin, gate) = Origin::gated();
    let proxy = proxy("buffer-memory \"1280KiB\"", &origin);
    let mut idle = proxy.client();
    let mut busy: Vec<Client> = (0..32).map(|_| proxy.client()).collect();
    busy.iter_mut().for_each(|client| client.send(GET));
    origin.wait_for_requests(32);
    let mut waiting = proxy.client();
    waiting.send(GET);
    idle.send(GET);
    assert_silent(&mut waiting);
    assert_eq!(origin.requests().len(), 32);
    gate.open();
    for client in busy.iter_mut().chain([&mut waiting, &mut idle]) {
        assert_eq!(client.response().text(), "late");
    }
    assert_eq!(waiting.get("/").text(), "late");
}

/// Bodies that would like larger buffers get along without them.
#[test]
fn limit_buffer_memory_is_enough_for_large_bodies_side_by_side() {
    let length = 2 << 20;
    let origin = Origin::with(move |exchange| {
        exchange.read_body();
        exchange.respond(200, &[], &vec![b'x'; length]);
    });
    let proxy = proxy("buffer-memory \"1280KiB\"", &origin);
    let address = proxy.address();
    let one = move || {
        let mut client = Client::connect(address);
        client.send(format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n"));
        client.send(vec![b'y'; length]);
        client.response().body.len()
    };
    let clients: Vec<_> = (0..40).map(|_| std::thread::spawn(one)).collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap() == length));
    assert!(origin.requests().iter().all(|request| request.is_complete && request.body_length == length as u64));
}

#[test]
fn limit_buffer_memory_is_503_for_a_servers_head_that_finds_none() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| match exchange.head.target() {
        "/" => {
            opened.wait();
            exchange.respond(200, &[], b"late");
        }
        _ => {
            exchange.respond(200, &[("X", &"x".repeat(30_000))], b"large");
        }
    });
    let proxy = proxy("buffer-memory \"1280KiB\"", &origin);
    let mut busy: Vec<Client> = (0..31).map(|_| proxy.client()).collect();
    busy.iter_mut().for_each(|client| client.send(GET));
    origin.wait_for_requests(31);
    assert_eq!(proxy.client().get("/large").status(), 503);
    let records = proxy.wait_for_records("access.log", 1);
    assert_eq!(records[0]["reason"], "no-memory");
    gate.open();
    busy.iter_mut().for_each(|client| assert_eq!(client.response().text(), "late"));
    drop(busy);
    wait_for("memory", DEADLINE, || (proxy.client().get("/large").text() == "large").then_some(()));
}

#[test]
fn limit_buffer_memory_is_503_where_none_comes_in_the_time_of_a_head() {
    let (origin, gate) = Origin::gated();
    let proxy = proxy("buffer-memory \"1280KiB\"; header-timeout \"300ms\"", &origin);
    let mut busy: Vec<Client> = (0..32).map(|_| proxy.client()).collect();
    busy.iter_mut().for_each(|client| client.send(GET));
    origin.wait_for_requests(32);
    let mut waiting = proxy.client();
    waiting.send(GET);
    let answer = waiting.response();
    assert_eq!((answer.status(), answer.field("connection")), (503, Some("close")));
    assert_eq!((answer.field("retry-after"), waiting.end()), (Some("1"), End::Closed));
    let records = proxy.wait_for_records("access.log", 1);
    assert_eq!((records[0]["status"].as_u64(), records[0]["reason"].as_str()), (Some(503), Some("no-memory")));
    gate.open();
    busy.iter_mut().for_each(|client| assert_eq!(client.response().text(), "late"));
    assert_eq!(proxy.client().get("/").text(), "late");
}

#[test]
fn limit_drain_timeout_is_the_end_of_what_is_in_flight() {
    let (origin, _gate) = Origin::gated();
    let mut proxy = proxy("drain-timeout \"300ms\"", &origin);
    let mut client = proxy.client();
    client.send(GET);
    origin.wait_for_requests(1);
    let started = now();
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
    assert!(started.elapsed() >= SHORT, "{:?}", started.elapsed());
    assert_eq!(client.response().status(), 503);
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "stopped");
    assert!(proxy.wait_for_error("still in flight").contains("WARN"));
}

#[test]
fn limit_ambiguous_paths_is_400_as_far_as_its_mode_goes() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&format!(
        "listen \"127.0.0.1:0\"\nlisten \"127.0.0.2:0\" {{ limits {{ ambiguous-paths \"reject\"; }} }}\n\
         listen \"127.0.0.3:0\" {{ limits {{ ambiguous-paths \"allow\"; }} }}\n\
         pool \"o\" {{ server \"o1\" \"{}\"; }}\nrule use=\"o\"\n",
        origin.address
    ));
    // What is answered in the modes `reject-unsafe`, `reject` and `allow`.
    let cases = [
        ("/a/../b?x=%2F%5C", [200, 200, 200]),
        ("/a%5Cb", [400, 400, 200]),
        ("/a\\b", [400, 400, 200]),
        ("/a%00b", [400, 400, 200]),
        ("/a/..;/b", [400, 400, 200]),
        ("/a%2F..%2Fb", [400, 400, 200]),
        ("/a/..%2fb", [400, 400, 200]),
        ("/a%2Fb", [200, 400, 200]),
        ("/a/%2E%2e/b", [200, 400, 200]),
        ("/a//b", [200, 400, 200]),
    ];
    for (target, statuses) in cases {
        for (address, status) in proxy.addresses.iter().zip(statuses) {
            let before = origin.requests().len();
            assert_eq!(Client::connect(*address).get(target).status(), status, "{target} at {address}");
            let sent = &origin.requests()[before..];
            assert!(sent.iter().all(|request| request.head.target() == target), "{target} is passed on as it is");
            assert_eq!(sent.len(), usize::from(status == 200));
        }
    }
}

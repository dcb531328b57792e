//! When a request is sent again: any method while nothing of it was written, an idempotent one while no byte of the answer
//! has come, nothing else ever; another server each time if one is eligible; within the pool's budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pools::all_to;
use crate::support::deadline::Gate;
use crate::support::{Client, DEADLINE, Exchange, Origin, Proxy, Response, refused_address, wait_for};

const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
const NOT_IDEMPOTENT: [&str; 4] = ["POST", "PATCH", "PROPFIND", "get"];

/// An origin whose handler is called with how many requests came before.
fn counting(handler: impl Fn(&mut Exchange<'_>, usize) + Send + Sync + 'static) -> Origin {
    let count = AtomicUsize::new(0);
    Origin::with(move |exchange| handler(exchange, count.fetch_add(1, Ordering::Relaxed)))
}

/// Reads the request and resets the connection.
fn resetting() -> Origin {
    Origin::with(|exchange| {
        exchange.read_body();
        exchange.reset();
    })
}

fn ask(client: &mut Client, method: &str, target: &str) -> Response {
    client.request(format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
}

fn count_with(origin: &Origin, target: &str) -> usize {
    origin.requests().iter().filter(|request| request.head.target() == target).count()
}

#[test]
fn a_request_whose_server_refuses_goes_to_another_whatever_its_method() {
    for method in IDEMPOTENT.into_iter().chain(NOT_IDEMPOTENT) {
        let (_keeper, refused) = refused_address();
        let origin = Origin::new("live");
        let proxy = Proxy::start(&all_to([refused, origin.address], ""));
        let mut client = proxy.client();
        for round in 1..=4 {
            assert_eq!((method, ask(&mut client, method, "/").status()), (method, 200));
            assert_eq!(origin.requests().len(), round);
        }
    }
}

/// The body was begun to be sent to nobody: the server that takes the request gets it once, and whole.
#[test]
fn the_body_of_a_post_whose_first_server_refuses_comes_exactly_once_and_whole() {
    let (_keeper, refused) = refused_address();
    let origin = Origin::with(|exchange| {
        exchange.read_body();
        exchange.respond(200, &[], b"ok");
    });
    let proxy = Proxy::start(&all_to([refused, origin.address], "scheduler \"wlc\" ties=\"first\""));
    let mut client = proxy.client();
    let large: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_be_bytes).collect();
    let chunked =
        [b"40000\r\n", &large[..0x40000], b"\r\nc0000\r\n", &large[0x40000..], b"\r\n0\r\nT: 1\r\n\r\n"].concat();
    let bodies: [(&str, &[u8], &[u8]); 4] = [
        ("Content-Length: 2", b"ab", b"ab"),
        ("Content-Length: 1048576", &large, &large),
        ("Transfer-Encoding: chunked", b"2\r\nab\r\n0\r\n\r\n", b"ab"),
        ("Transfer-Encoding: chunked", &chunked, &large),
    ];
    for (index, (framing, sent, body)) in bodies.into_iter().enumerate() {
        // Once with the head, and once behind it.
        for together in [true, false] {
            let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n\r\n");
            if together {
                client.send([head.as_bytes(), sent].concat());
            } else {
                client.send(head);
                client.send(sent);
            }
            assert_eq!(client.response().status(), 200);
            let count = 2 * index + if together { 1 } else { 2 };
            let requests = origin.wait_for_requests(count);
            assert_eq!(requests.len(), count);
            let request = requests.last().unwrap();
            assert!(request.is_complete && request.body == body, "{framing}, {} bytes", request.body_length);
        }
    }
}

#[test]
pub fn a_request_whose_server_resets_before_it_answers_is_repeated_where_it_is_idempotent_and_else_never() {
    for method in IDEMPOTENT {
        let (broken, live) = (resetting(), Origin::new("live"));
        let proxy = Proxy::start(&all_to([&broken, &live], "scheduler \"wlc\" ties=\"first\""));
        assert_eq!((method, ask(&mut proxy.client(), method, "/").status()), (method, 200));
        assert_eq!((broken.requests().len(), live.requests().len()), (1, 1));
    }
    for method in NOT_IDEMPOTENT {
        let (broken, live) = (resetting(), Origin::new("live"));
        let proxy = Proxy::start(&all_to([&broken, &live], "scheduler \"wlc\" ties=\"first\"; retry count=10"));
        assert_eq!((method, ask(&mut proxy.client(), method, "/").status()), (method, 502));
        assert_eq!((broken.requests().len(), live.requests().len()), (1, 0));
    }
}

#[test]
fn nothing_is_repeated_after_a_byte_of_the_answer() {
    for beginning in [
        "H",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 102 Processing\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1",
    ] {
        for reset in [false, true] {
            let gate = Arc::new(Gate::default());
            let opened = Arc::clone(&gate);
            let broken = Origin::with(move |exchange| {
                exchange.write(beginning);
                if reset {
                    opened.wait();
                    exchange.reset();
                } else {
                    exchange.close();
                }
            });
            let live = Origin::new("live");
            let proxy = Proxy::start(&all_to([&broken, &live], "scheduler \"wlc\" ties=\"first\"; retry count=10"));
            let mut client = proxy.client();
            client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
            if beginning.contains("102") {
                // It has been read by now: the reset can't overtake it.
                assert_eq!(client.head().status(), 102);
            }
            gate.open();
            assert_eq!((beginning, client.response().status()), (beginning, 502));
            let mut client = proxy.client();
            assert_eq!(live.requests().len(), 0, "{beginning:?}, reset {reset}");
            drop(client.get("/"));
        }
    }
}

#[test]
fn a_stale_idle_connection_is_passed_over_or_the_request_repeated_on_a_fresh_one() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for round in 1..=200 {
        for method in ["GET", "POST"] {
            assert_eq!((round, ask(&mut client, method, "/").status()), (round, 200));
        }
        origin.close_connections();
    }
    assert_eq!(origin.requests().len(), 400);
}

/// The connection looks well until the request is on it.
#[test]
fn a_request_on_an_idle_connection_that_breaks_is_repeated_on_a_fresh_one_where_no_other_server_is_there() {
    let origin = counting(|exchange, _| {
        if exchange.head.target() == "/break" {
            exchange.respond(200, &[], b"ok");
            // The next request on this connection is reset.
            let next = exchange.raw();
            assert!(next.is_ok());
            exchange.reset();
        } else {
            exchange.respond(200, &[], b"ok");
        }
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for round in 1..=8 {
        assert_eq!(ask(&mut client, "GET", "/break").status(), 200);
        assert_eq!(ask(&mut client, "GET", "/again").status(), 200);
        assert_eq!(count_with(&origin, "/again"), round);
    }
    // A POST has been written, and may have been done.
    assert_eq!(ask(&mut client, "GET", "/break").status(), 200);
    assert_eq!(ask(&mut client, "POST", "/again").status(), 502);
}

#[test]
pub fn count_is_the_most_repetitions_and_each_goes_to_another_server() {
    for count in 0..=3 {
        let origins = [resetting(), resetting(), resetting(), Origin::new("live")];
        let lines = format!("scheduler \"wlc\" ties=\"first\"; retry count={count}");
        let proxy = Proxy::start(&all_to(&origins, lines));
        let status = if count == 3 { 200 } else { 502 };
        assert_eq!((count, proxy.client().get("/").status()), (count, status));
        let seen: Vec<usize> = origins.iter().map(|origin| origin.requests().len()).collect();
        let expected: Vec<usize> = (0..4).map(|index| usize::from(index <= count)).collect();
        assert_eq!(seen, expected);
        let record = proxy.wait_for_records("access.log", 1).remove(0);
        assert_eq!(record["attempts"], count + 1);
    }
}

#[test]
fn what_retry_does_not_name_is_not_repeated() {
    let (_keeper, refused) = refused_address();
    let live = Origin::new("live");
    let first = "scheduler \"wlc\" ties=\"first\"";
    let proxy = Proxy::start(&all_to([refused, live.address], format!("{first}; retry on=\"reset\"")));
    assert_eq!(proxy.client().get("/").status(), 502);
    let broken = resetting();
    let proxy = Proxy::start(&all_to([&broken, &live], format!("{first}; retry on=\"connect\"")));
    assert_eq!(proxy.client().get("/").status(), 502);
    assert_eq!(live.requests().len(), 0);
}

#[test]
pub fn a_status_that_is_to_be_repeated_is_held_back_until_another_server_has_answered() {
    let failing = Origin::with(|exchange| {
        exchange.read_body();
        exchange.respond(503, &[("X-Origin", "failing")], b"no");
    });
    let live = Origin::new("live");
    let first = "scheduler \"wlc\" ties=\"first\"";
    let proxy = Proxy::start(&all_to([&failing, &live], format!("{first}; retry on=\"connect 503\"")));
    for method in IDEMPOTENT {
        let answer = ask(&mut proxy.client(), method, "/");
        assert_eq!((method, answer.status(), answer.field("x-origin")), (method, 200, Some("live")));
    }
    let repeated = failing.requests().len();
    for method in NOT_IDEMPOTENT {
        let answer = ask(&mut proxy.client(), method, "/");
        assert_eq!((method, answer.status(), answer.field("x-origin")), (method, 503, Some("failing")));
    }
    assert_eq!(repeated + NOT_IDEMPOTENT.len(), failing.requests().len());
    // Another status passes.
    failing.handle(|exchange| {
        exchange.respond(502, &[], b"no");
    });
    assert_eq!(proxy.client().get("/").status(), 502);
}

#[test]
pub fn the_last_answer_is_passed_on_where_all_servers_fail_alike() {
    let failing: Vec<Origin> = (0..2)
        .map(|number| {
            Origin::with(move |exchange| {
                exchange.respond(503, &[("X-Origin", &number.to_string())], b"all of the body");
            })
        })
        .collect();
    let proxy = Proxy::start(&all_to(&failing, "scheduler \"wlc\" ties=\"first\"; retry count=3 on=\"503\""));
    let answer = proxy.client().get("/");
    assert_eq!((answer.status(), answer.text().as_str()), (503, "all of the body"));
    // First both, then whichever.
    let seen: Vec<usize> = failing.iter().map(|origin| origin.requests().len()).collect();
    assert_eq!(seen.iter().sum::<usize>(), 4);
    assert!(seen.iter().all(|count| *count >= 1), "{seen:?}");
}

#[test]
pub fn a_put_of_64_kib_is_repeated_whole_and_a_larger_one_is_not() {
    for (framing, length, status) in [
        ("length", 65_536, 200),
        ("length", 65_537, 502),
        ("length", 1_000_000, 502),
        ("chunked", 60_000, 200),
        ("chunked", 70_000, 502),
    ] {
        let (broken, live) = (resetting(), Origin::new("live"));
        let proxy = Proxy::start(&all_to([&broken, &live], "scheduler \"wlc\" ties=\"first\""));
        let body: Vec<u8> = (0_usize..length).map(|index| (index / 7 % 251) as u8).collect();
        let mut client = proxy.client();
        if framing == "length" {
            client.send(format!("PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n"));
            client.send(&body);
        } else {
            client.send("PUT / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in body.chunks(1000) {
                client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
            }
            client.send("0\r\nT: 1\r\n\r\n");
        }
        assert_eq!((framing, length, client.response().status()), (framing, length, status));
        let requests = live.requests();
        if status == 200 {
            assert!(requests.len() == 1 && requests[0].is_complete && requests[0].body == body);
            assert_eq!(requests[0].trailers.len(), usize::from(framing == "chunked"));
        } else {
            assert!(requests.is_empty());
        }
    }
}

/// The server breaks off in the middle of a body: what was sent is sent again, and then the rest.
#[test]
fn a_put_that_breaks_off_half_way_comes_whole_to_the_next_server() {
    let broken = Origin::with(|exchange| {
        exchange.piece();
        exchange.reset();
    });
    let live = Origin::new("live");
    let proxy = Proxy::start(&all_to([&broken, &live], "scheduler \"wlc\" ties=\"first\""));
    for (head, first, second, end) in [
        ("Content-Length: 10", "01234", "56789", ""),
        ("Transfer-Encoding: chunked", "5\r\n01234\r\n3\r\n567", "89\r\n2\r\n89\r\n", "0\r\n\r\n"),
    ] {
        let second = second.strip_prefix("89").filter(|_| !end.is_empty()).unwrap_or(second);
        let mut client = proxy.client();
        client.send(format!("PUT / HTTP/1.1\r\nHost: a.test\r\n{head}\r\n\r\n{first}"));
        let before = live.requests().len();
        live.wait_for_requests(before + 1);
        client.send(second);
        client.send(end);
        assert_eq!(client.response().status(), 200);
        let requests = live.requests();
        assert!(requests[before].is_complete);
        assert_eq!(String::from_utf8_lossy(&requests[before].body), "0123456789");
    }
}

#[test]
fn repetitions_are_at_most_ten_or_a_fifth_of_the_requests_of_the_last_ten_seconds() {
    // Both always break: each request that may be repeated costs one.
    let broken = [resetting(), resetting()];
    let proxy = Proxy::start(&all_to(&broken, "retry count=1 on=\"reset\""));
    let mut client = proxy.client();
    for _ in 0..40 {
        assert_eq!(client.get("/").status(), 502);
    }
    let attempts: usize = broken.iter().map(|origin| origin.requests().len()).sum();
    assert_eq!(attempts - 40, 10);
    // As many again and again: a fifth of 100 by the end.
    for _ in 0..60 {
        assert_eq!(client.get("/").status(), 502);
    }
    let attempts: usize = broken.iter().map(|origin| origin.requests().len()).sum();
    // The window may have moved on a slow machine, never backwards.
    assert!((20..=30).contains(&(attempts - 100)), "{} repetitions", attempts - 100);
}

#[test]
pub fn a_slow_request_is_never_repeated_for_being_slow() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let slow = Origin::with(move |exchange| {
        if exchange.head.target() == "/begun" {
            exchange.write("HTTP/1.1 102 Processing\r\n\r\n");
        }
        opened.wait();
    });
    let live = Origin::new("live");
    let lines = "scheduler \"wlc\" ties=\"first\"; timeout response=\"50ms\"; retry count=10 on=\"connect reset 504\"";
    let proxy = Proxy::start(&all_to([&slow, &live], lines));
    for target in ["/", "/begun"] {
        let answer = proxy.client().get(target);
        assert_eq!((target, answer.status()), (target, 504));
    }
    assert_eq!((slow.wait_for_requests(2).len(), live.requests().len()), (2, 0));
    gate.open();
}

/// Three connects in a row that fail make a server suspect: it is asked no more, until it listens again.
#[test]
fn a_server_that_refuses_three_times_is_left_alone_and_comes_back_when_it_listens_again() {
    let origins = [Origin::new("one"), Origin::new("two")];
    let proxy = Proxy::start(&all_to(&origins, "slow-start \"0s\""));
    let mut client = proxy.client();
    // Their fifth is what the budget allows until the server is found out.
    for _ in 0..2000 {
        assert_eq!(client.get("/").status(), 200);
    }
    origins[0].stop();
    wait_for("suspicion", DEADLINE, || {
        assert_eq!(client.get("/").text(), "two");
        proxy.errors().iter().any(|line| line.contains("p/o1") && line.contains("suspect")).then_some(())
    });
    for _ in 0..100 {
        assert_eq!(client.get("/after").text(), "two");
    }
    // None of them needed a second attempt: nobody asked the first server.
    let attempts = wait_for("their records", DEADLINE, || {
        let records = proxy.wait_for_records("access.log", 2100);
        let after = records.iter().filter(|record| record["path"] == "/after");
        let attempts: Vec<u64> = after.map(|record| record["attempts"].as_u64().unwrap()).collect();
        (attempts.len() == 100).then_some(attempts)
    });
    assert_eq!(attempts, [1; 100]);
    origins[0].start();
    let (mut seen, started) = ([0, 0], crate::support::deadline::now());
    wait_for("the server's return", DEADLINE, || {
        let answer = client.get("/").text();
        seen[usize::from(answer == "two")] += 1;
        (answer == "one").then_some(())
    });
    // Two checks 250 ms apart; ten times that on a machine that is busy.
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "it took {:?}", started.elapsed());
    let counts = (0..100).filter(|_| client.get("/").text() == "one").count();
    assert_eq!(counts, 50);
}

/// Nobody notices that a server has gone, however fast requests come: those before control has weighed the evidence are
/// repeated, and those that can't be are few.
#[test]
fn two_hundred_requests_at_once_after_a_server_has_stopped_are_all_answered_by_the_other() {
    for _ in 0..5 {
        let origins = [Origin::new("one"), Origin::new("two")];
        let proxy = Proxy::start(&all_to(&origins, ""));
        let mut client = proxy.client();
        let first = client.get("/").text();
        let (dead, live) = if first == "one" { (0, "two") } else { (1, "one") };
        origins[dead].stop();
        for round in 0..200 {
            let answer = client.get("/");
            assert_eq!((round, answer.status(), answer.text().as_str()), (round, 200, live));
        }
    }
}

#[test]
fn a_pool_whose_only_server_is_suspect_still_asks_it() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    origin.stop();
    for _ in 0..10 {
        assert_eq!(client.get("/").status(), 502);
    }
    proxy.wait_for_error("suspect");
    origin.start();
    assert_eq!(client.get("/").status(), 200);
}

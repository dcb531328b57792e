//! The life of an HTTP/2 connection: what it waits for and how long, what ends it and how its client is told.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::h2::{connect, get, h2c, run};
use crate::support::deadline::now;
use crate::support::frames::{
    END_HEADERS, END_STREAM, FrameClient, PREFACE, StreamEnd, block, code, frame, kind, request,
};
use crate::support::{DEADLINE, End, Origin, Proxy, wait_for};

const SHORT: Duration = Duration::from_millis(300);

fn served(client: &mut FrameClient, stream: u32) {
    client.get(stream, "/");
    assert_eq!(client.end_of(stream), StreamEnd::Answered(200, b"one".to_vec()));
}

#[test]
fn limit_header_timeout_ends_a_preface_that_does_not_come() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { header-timeout \"300ms\"; idle-timeout \"1h\" }"));
    for bytes in [&b""[..], b"PRI * HT"] {
        let started = now();
        let mut client = proxy.client();
        client.send(bytes);
        assert!(matches!(client.rest().1, End::Closed | End::Reset));
        assert!(started.elapsed() >= SHORT && started.elapsed() < DEADLINE);
    }
}

/// Of a head whatever is missing: a part of the frame's header, of its payload, or its last frame.
#[test]
fn limit_header_timeout_ends_a_head_that_does_not_end() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { header-timeout \"300ms\"; idle-timeout \"1h\" }"));
    let head = block(&request("GET", "/", &[]));
    let whole = frame(kind::HEADERS, END_HEADERS | END_STREAM, 3, &head);
    let open = frame(kind::HEADERS, END_STREAM, 3, &head);
    for bytes in [&whole[..4], &whole[..20], &open] {
        let mut client = FrameClient::connect(proxy.address());
        served(&mut client, 1);
        let started = now();
        client.client.send(bytes);
        assert_eq!(client.goaway(), Some(code::ENHANCE_YOUR_CALM));
        assert!(started.elapsed() >= SHORT - Duration::from_millis(50));
    }
    // Nor is it put off by a piece now and then.
    let mut client = FrameClient::connect(proxy.address());
    served(&mut client, 1);
    client.client.send(&open);
    client.client.patience = Duration::from_millis(20);
    let told = wait_for("GOAWAY", DEADLINE, || {
        client.send(kind::CONTINUATION, 0, 3, &block(&[("x-a", "b")]));
        match client.next() {
            Err(End::TimedOut) => None,
            Ok(frame) if frame.kind == kind::GOAWAY => Some(Some(frame.code())),
            Ok(_) => None,
            Err(_) => Some(None),
        }
    });
    assert!(matches!(told, None | Some(code::ENHANCE_YOUR_CALM)), "{told:?}");
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn limit_idle_timeout_is_a_goaway_without_an_error() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { idle-timeout \"300ms\"; header-timeout \"1h\" }"));
    let mut client = FrameClient::connect(proxy.address());
    served(&mut client, 1);
    served(&mut client, 3);
    let started = now();
    assert_eq!(client.goaway(), Some(code::NO_ERROR));
    assert!(started.elapsed() >= SHORT - Duration::from_millis(50), "{:?}", started.elapsed());
    assert!(started.elapsed() < DEADLINE / 2);
    assert_eq!(client.client.end(), End::Closed);
}

#[test]
fn a_connection_with_a_request_in_flight_is_not_idle() {
    let (origin, gate) = Origin::gated();
    let proxy = Proxy::start(&h2c(&origin, "limits { idle-timeout \"200ms\" }"));
    let mut client = FrameClient::connect(proxy.address());
    client.get(1, "/");
    client.client.patience = Duration::from_millis(800);
    assert_eq!(client.next(), Err(End::TimedOut));
    client.client.patience = DEADLINE;
    gate.open();
    assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"late".to_vec()));
}

#[test]
fn limit_idle_timeout_is_408_for_an_upload_over_http2_that_stalls() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { idle-timeout \"300ms\" }"));
    let mut client = FrameClient::connect(proxy.address());
    client.post(1, "/", &[]);
    client.data(1, b"part", false);
    assert!(matches!(client.end_of(1), StreamEnd::Answered(408, _)), "{:?}", client.seen);
    let records = proxy.wait_for_records("access.log", 1);
    assert_eq!((records[0]["status"].as_u64(), records[0]["reason"].as_str()), (Some(408), Some("client-timeout")));
    assert!(!origin.requests()[0].is_complete);
}

/// Refused like those of HTTP/1.1, with a line in the log, and at the cost of their stream.
#[test]
fn limits_of_heads_hold_over_http2_and_are_logged() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { head-max \"8KiB\"; fields-max 10 }"));
    let long = "v".repeat(3000);
    let large: Vec<_> = ["x-a", "x-b", "x-c"].into_iter().map(|name| (name, long.as_str())).collect();
    let many = [("x-a", "b"); 20];
    let path = format!("/{}", "a".repeat(9000));
    let cases = [
        (request("GET", "/large", &large), 431),
        (request("GET", "/many", &many), 431),
        (request("GET", &path, &[]), 414),
    ];
    for (fields, status) in cases {
        let mut client = FrameClient::connect(proxy.address());
        client.head(1, &fields, true);
        match client.end_of(1) {
            StreamEnd::Answered(came, _) => assert_eq!(came, status),
            other => panic!("{status}: {other:?}"),
        }
        served(&mut client, 3);
    }
    let records = proxy.wait_for_records("access.log", 6);
    let refused: Vec<_> = records.iter().filter_map(|record| record["status"].as_u64()).filter(|s| *s != 200).collect();
    assert_eq!(refused, [431, 431, 414]);
}

#[test]
fn limit_requests_per_connection_max_ends_an_http2_connection_after_so_many() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { requests-per-connection-max 3 }"));
    let mut client = FrameClient::connect(proxy.address());
    for stream in [1, 3, 5] {
        served(&mut client, stream);
    }
    assert_eq!(client.goaway(), Some(code::NO_ERROR));
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn limit_connections_per_client_max_is_429_over_http2() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { connections-per-client-max 1 }"));
    let mut first = FrameClient::connect(proxy.address());
    served(&mut first, 1);
    let mut second = FrameClient::connect(proxy.address());
    second.get(1, "/");
    assert!(matches!(second.end_of(1), StreamEnd::Answered(429, _)), "{:?}", second.seen);
    served(&mut first, 3);
}

#[test]
fn a_drain_sends_goaway_and_finishes_what_is_in_flight() {
    let (origin, gate) = Origin::gated();
    let mut proxy = Proxy::start(&h2c(&origin, ""));
    let mut busy = FrameClient::connect(proxy.address());
    busy.get(1, "/");
    busy.post(3, "/", &[]);
    busy.data(3, b"half", false);
    let mut idle = FrameClient::connect(proxy.address());
    origin.wait_for_requests(2);
    idle.send(kind::PING, 0, 0, b"pingping");
    idle.next_that(|frame| frame.kind == kind::PING).unwrap();
    proxy.signal(Signal::SIGTERM);
    assert_eq!(idle.goaway(), Some(code::NO_ERROR));
    let told = busy.next_that(|frame| frame.kind == kind::GOAWAY).unwrap();
    assert_eq!(told.code(), code::NO_ERROR);
    busy.data(3, b"half", true);
    gate.open();
    let mut answered = 0;
    while answered < 2 {
        let frame = busy.next().unwrap();
        assert_ne!(frame.kind, kind::RST_STREAM);
        answered += usize::from(frame.ends_stream());
    }
    assert!(origin.requests().iter().all(|request| request.is_complete));
    assert_eq!(busy.goaway(), Some(code::NO_ERROR));
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
}

/// A client that is about to go says so, and gets what it has asked for.
#[test]
fn a_goaway_of_the_client_ends_the_connection_behind_its_last_answer() {
    let (origin, gate) = Origin::gated();
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::connect(proxy.address());
    client.get(1, "/");
    origin.wait_for_requests(1);
    client.send(kind::GOAWAY, 0, 0, &[0; 8]);
    gate.open();
    assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"late".to_vec()));
}

/// A client whose windows are shut at first, and which opens them in several ways (RFC 9113 6.9.2).
#[test]
fn an_answer_keeps_to_the_windows_as_they_change() {
    let origin = Origin::with(|exchange| {
        exchange.respond(200, &[], &[b'w'; 100_000]);
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::with(proxy.client(), &[(4, 0)]);
    client.get(1, "/");
    let head = client.next_that(|frame| frame.kind == kind::HEADERS).unwrap();
    assert_eq!(head.status(), Some(200));
    let read = |client: &mut FrameClient, wanted: usize| {
        let mut length = 0;
        while length < wanted {
            length += client.next_that(|frame| frame.kind == kind::DATA).unwrap().payload.len();
        }
        assert_eq!(length, wanted);
        client.client.patience = Duration::from_millis(50);
        assert!(client.next().is_err(), "more than there is room for");
        client.client.patience = DEADLINE;
    };
    client.give_room(1, 10);
    read(&mut client, 10);
    client.send(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0x75, 0x30]);
    read(&mut client, 30_000);
    client.give_room(1, 1_000_000);
    read(&mut client, 35_525);
    client.give_room(0, 1_000_000);
    let rest = client.end_of(1);
    assert_eq!(rest, StreamEnd::Answered(0, vec![b'w'; 100_000 - 65_535]));
}

/// Many requests at once on one connection, each with its own answer, beside others of other connections.
#[test]
fn two_hundred_requests_at_once_each_get_their_own_answer() {
    let origin = Origin::with(|exchange| {
        let target = exchange.head.target().to_owned();
        exchange.respond(200, &[], target.as_bytes());
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    let address = proxy.address();
    run(async {
        let connections = (0..4).map(|connection| async move {
            let client = connect(address).await;
            let asks = (0..50).map(|number| {
                let mut client = client.clone();
                tokio::task::spawn_local(async move {
                    let path = format!("/{connection}/{number}");
                    assert_eq!(get(&mut client, &path).await.unwrap().1, path.as_bytes());
                })
            });
            for ask in asks.collect::<Vec<_>>() {
                ask.await.unwrap();
            }
        });
        for connection in connections.map(tokio::task::spawn_local).collect::<Vec<_>>() {
            connection.await.unwrap();
        }
    });
}

/// The preface may come in any pieces, and together with what follows it.
#[test]
fn the_first_bytes_may_come_in_any_pieces() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    let bytes = [
        PREFACE,
        &frame(kind::SETTINGS, 0, 0, &[]),
        &frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &block(&request("GET", "/", &[]))),
    ]
    .concat();
    for size in [1, 7, bytes.len()] {
        let mut client = proxy.client();
        for piece in bytes.chunks(size) {
            client.send(piece);
        }
        let mut client = FrameClient { client, seen: Vec::new() };
        assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"one".to_vec()));
    }
}

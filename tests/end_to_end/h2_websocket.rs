//! WebSocket over HTTP/2 (RFC 8441) to servers that speak HTTP/1.1: the tunnel, its ends, and who gets none.

use std::sync::Arc;

use crate::h2::h2c;
use crate::support::deadline::Gate;
use crate::support::frames::{END_STREAM, FrameClient, StreamEnd, code, kind};
use crate::support::h2_frames::{ENABLE_CONNECT_PROTOCOL, H2Server};
use crate::support::{DEADLINE, End, Exchange, Origin, Proxy, wait_for};

const ACCEPT: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\n";

fn connect<'a>(path: &'a str, protocol: &'a str) -> [(&'a str, &'a str); 6] {
    [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a.test"),
        ("sec-websocket-version", "13"),
    ]
}

fn open(client: &mut FrameClient, stream: u32) {
    client.head(stream, &connect("/chat?x", "websocket"), false);
    let head = client.next_that(|frame| frame.kind == kind::HEADERS && frame.stream == stream).unwrap();
    assert_eq!((head.status(), head.ends_stream()), (Some(200), false));
}

/// Exactly so many bytes of a stream.
fn read(client: &mut FrameClient, stream: u32, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let data = client.next_that(|frame| frame.kind == kind::DATA && frame.stream == stream).unwrap();
        assert!(!data.ends_stream(), "the tunnel ended");
        bytes.extend(data.payload);
    }
    bytes
}

fn echo(exchange: &mut Exchange<'_>) -> End {
    loop {
        match exchange.raw() {
            Ok(bytes) => {
                if !exchange.write(bytes) {
                    return End::Reset;
                }
            }
            Err(end) => return end,
        }
    }
}

#[test]
fn a_websocket_over_http2_is_an_upgrade_to_an_http1_server_and_carries_any_bytes() {
    let origin = Origin::with(|exchange| {
        if exchange.head.field("upgrade").is_some() {
            exchange.write(format!("{ACCEPT}glued"));
            echo(exchange);
            exchange.close();
        } else {
            exchange.respond(200, &[], b"one");
        }
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::connect(proxy.address());
    open(&mut client, 1);
    assert_eq!(read(&mut client, 1, 5), b"glued");
    let request = &origin.requests()[0].head;
    assert_eq!((request.start.as_str(), request.field("host")), ("GET /chat?x HTTP/1.1", Some("a.test")));
    assert_eq!((request.field("connection"), request.field("upgrade")), (Some("Upgrade"), Some("websocket")));
    assert_eq!(request.field("sec-websocket-version"), Some("13"));
    assert_eq!(request.field("sec-websocket-key").map(str::len), Some(24));
    let all: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    for _ in 0..5 {
        client.data(1, &all, false);
        assert!(read(&mut client, 1, all.len()) == all);
    }
    // Other streams of the connection are served meanwhile, and other tunnels are others.
    client.get(3, "/");
    assert_eq!(client.end_of(3), StreamEnd::Answered(200, b"one".to_vec()));
    open(&mut client, 5);
    assert_eq!(read(&mut client, 5, 5), b"glued");
    client.data(5, b"five", false);
    assert_eq!(read(&mut client, 5, 4), b"five");
    client.data(1, b"one", false);
    assert_eq!(read(&mut client, 1, 3), b"one");
}

#[test]
fn each_direction_of_a_tunnel_over_http2_ends_by_itself() {
    // The client ends first, and still gets what the server says then.
    let origin = Origin::with(|exchange| {
        exchange.write(ACCEPT);
        let mut said = Vec::new();
        while let Ok(bytes) = exchange.raw() {
            said.extend(bytes);
        }
        exchange.write(format!("{} bytes", said.len()));
        exchange.close();
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::connect(proxy.address());
    open(&mut client, 1);
    client.data(1, b"hello", true);
    assert_eq!(client.end_of(1), StreamEnd::Answered(0, b"5 bytes".to_vec()));

    // The server ends first, and still gets what the client says then.
    let origin = Origin::with(|exchange| {
        exchange.write(format!("{ACCEPT}bye"));
        exchange.finish_writing();
        while exchange.raw().is_ok() {}
        exchange.close();
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::connect(proxy.address());
    open(&mut client, 1);
    assert_eq!(client.end_of(1), StreamEnd::Answered(0, b"bye".to_vec()));
    assert_eq!(origin.open_connections(), 1);
    client.data(1, b"late", true);
    wait_for("the server's connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
    let records = proxy.wait_for_records("access.log", 1);
    assert!(records[0]["reason"].is_null(), "{}", records[0]);
}

#[test]
fn a_tunnel_that_one_side_breaks_off_is_broken_off_at_the_other() {
    let origin = Origin::with(|exchange| {
        exchange.write(ACCEPT);
        if exchange.head.target().contains("reset") {
            exchange.reset();
        } else {
            echo(exchange);
            exchange.close();
        }
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::connect(proxy.address());
    open(&mut client, 1);
    client.cancel(1);
    wait_for("the server's connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
    client.head(3, &connect("/reset", "websocket"), false);
    match client.end_of(3) {
        StreamEnd::Reset(code, _) => assert!(matches!(code, code::INTERNAL_ERROR | code::CANCEL), "{code}"),
        other => panic!("{other:?}"),
    }
    open(&mut client, 5);
}

/// Nothing is read any more of a client that has ended its side: its reset is noticed all the same.
#[test]
fn a_tunnel_whose_client_has_ended_its_side_and_then_resets_it_frees_the_servers_place() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        if exchange.head.field("upgrade").is_some() {
            exchange.write(ACCEPT);
            while exchange.raw().is_ok() {}
            opened.wait();
            exchange.close();
        } else {
            exchange.respond(200, &[], b"one");
        }
    });
    let proxy = Proxy::start(&format!(
        "listen \"127.0.0.1:0\" {{ protocols \"h2c\" }}\n\
         pool \"p\" {{ server \"o\" \"{}\" max=1; queue max=1 timeout=\"20s\" }}\nrule use=\"p\"\n",
        origin.address
    ));
    let mut client = FrameClient::connect(proxy.address());
    open(&mut client, 1);
    client.data(1, &[], true);
    client.send(kind::PING, 0, 0, b"pingpong");
    assert!(client.next_that(|frame| frame.kind == kind::PING).is_ok());
    client.cancel(1);
    client.get(3, "/");
    assert_eq!(client.end_of(3), StreamEnd::Answered(200, b"one".to_vec()));
    gate.open();
}

#[test]
fn a_tunnel_that_a_server_of_http2_resets_is_reset_with_its_code() {
    let server = H2Server::new(&[(ENABLE_CONNECT_PROTOCOL, 1)], |frames, _| {
        while let Some(frame) = frames.next() {
            if frame.kind == kind::HEADERS {
                frames.headers(frame.stream, 0, &[(":status", "200")]);
                if frame.stream > 1 {
                    frames.write(kind::DATA, END_STREAM, frame.stream, b"bye");
                }
                frames.reset(frame.stream, code::STREAM_CLOSED);
            }
        }
    });
    let proxy = Proxy::start(&format!(
        "listen \"127.0.0.1:0\" {{ protocols \"h2c\" }}\n\
         pool \"p\" {{ server \"o\" \"{}\"; upstream \"h2c\" }}\nrule use=\"p\"\n",
        server.address
    ));
    let mut client = FrameClient::connect(proxy.address());
    client.head(1, &connect("/", "websocket"), false);
    assert_eq!(client.end_of(1), StreamEnd::Reset(code::STREAM_CLOSED, Some(200)));
    // Also behind the end of its own side.
    client.head(3, &connect("/", "websocket"), false);
    assert_eq!(client.end_of(3), StreamEnd::Answered(200, b"bye".to_vec()));
    let reset = client.next_that(|frame| frame.kind == kind::RST_STREAM && frame.stream == 3).unwrap();
    assert_eq!(reset.code(), code::STREAM_CLOSED);
}

/// Who does not get the tunnel it asks for gets no 2xx: it would take it for one.
#[test]
fn a_tunnel_that_there_is_not_is_refused() {
    let origin = Origin::with(|exchange| match exchange.head.target() {
        "/403" => drop(exchange.respond(403, &[], b"no")),
        _ => drop(exchange.respond(200, &[], b"no tunnel")),
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    for (path, protocol, status) in
        [("/", "websocket", 502), ("/403", "websocket", 403), ("/", "connect-udp", 501), ("/", "x, websocket", 400)]
    {
        let mut client = FrameClient::connect(proxy.address());
        client.head(1, &connect(path, protocol), false);
        match client.end_of(1) {
            StreamEnd::Answered(came, _) => assert_eq!(came, status, "{path} {protocol}"),
            other => panic!("{path} {protocol}: {other:?}"),
        }
    }
    assert_eq!(origin.requests().len(), 2, "the others were not sent on");
    let records = proxy.wait_for_records("access.log", 4);
    assert_eq!(records[0]["reason"], "no-upgrade");
}

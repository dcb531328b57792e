//! Tunnels: who may have one, and that both sides' bytes pass as they are, to the end of each direction.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::pools::{all_to, assert_accepted, pool};
use crate::support::deadline::Gate;
use crate::support::{Client, DEADLINE, End, Exchange, Origin, Proxy, wait_for};
use crate::tls::{open, trickle_until_the_end};

const ACCEPT: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

fn ask(target: &str, token: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: {token}\r\nSec-WebSocket-Key: x\r\n\r\n"
    )
}

/// Sends back whatever comes until it ends, and says how it did.
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

fn echoing() -> Origin {
    Origin::with(|exchange| {
        if exchange.head.field("upgrade").is_none() {
            exchange.respond(200, &[], b"no tunnel");
            return;
        }
        exchange.write(ACCEPT);
        echo(exchange);
        exchange.close();
    })
}

#[test]
fn a_websocket_becomes_a_tunnel_that_carries_any_bytes_both_ways() {
    let origin = echoing();
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.send(ask("/chat?x", "WebSocket"));
    let head = client.head();
    assert_eq!(head.start, "HTTP/1.1 101 Switching Protocols");
    assert_eq!((head.field("connection"), head.field("upgrade")), (Some("Upgrade"), Some("websocket")));
    let request = &origin.requests()[0].head;
    assert_eq!((request.field("connection"), request.field("upgrade")), (Some("Upgrade"), Some("WebSocket")));
    assert_eq!((request.target(), request.field("sec-websocket-key")), ("/chat?x", Some("x")));
    let all: Vec<u8> = (0..=255).collect();
    for length in [1, 100, 5000, 100_000] {
        let sent: Vec<u8> = all.iter().copied().cycle().take(length).collect();
        client.send(&sent);
        assert_eq!(client.exactly(length), sent);
    }
    let text = b"GET /inside HTTP/1.1\r\nHost: a.test\r\n\r\n";
    client.send(text);
    assert_eq!(client.exactly(text.len()), text);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
pub fn a_tunnel_carries_large_streams_both_ways_at_once() {
    let origin = echoing();
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.send(ask("/", "websocket"));
    client.head();
    let piece: Vec<u8> = (0..65_536_u32).map(|index| (index % 251) as u8).collect();
    let (sent, end) = client.send_all_while_reading(&piece, 32 << 20);
    assert_eq!((sent, end), (32 << 20, None));
    for _ in 0..512 {
        assert!(client.exactly(65_536) == piece);
    }
    client.finish_writing();
    assert_eq!(client.end(), End::Closed);
}

/// The first frame comes in one segment with the 101, and the client's answer to it at once. 1000 tries.
fn glued(clients: usize, is_busy: bool) {
    let origin = Origin::with(|exchange| {
        if exchange.head.target() == "/busy" {
            exchange.respond(200, &[], b"ok");
            return;
        }
        exchange.write(format!("{ACCEPT}first frame"));
        echo(exchange);
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let address = proxy.address();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        if is_busy {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(client.get("/busy").status(), 200);
                }
            });
        }
        let upgrade = || {
            for _ in 0..1000 / clients {
                let mut client = Client::connect(address);
                client.send(ask("/", "websocket"));
                assert_eq!(client.head().status(), 101);
                client.send("frame");
                assert_eq!(client.exactly(16), b"first frameframe");
            }
        };
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(upgrade)).collect();
        let ended: Vec<_> = clients.into_iter().map(|client| client.join().is_ok()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|well| well));
    });
}

#[test]
pub fn an_answer_glued_to_the_101_reaches_the_client_every_time() {
    glued(1, false);
}

#[test]
fn an_answer_glued_to_the_101_reaches_the_client_every_time_under_load() {
    glued(4, true);
}

#[test]
pub fn bytes_that_a_client_sends_before_the_101_reach_the_server_behind_it() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        opened.wait();
        exchange.write(ACCEPT);
        echo(exchange);
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    for length in [5, 10_000] {
        let mut client = proxy.client();
        let early = vec![b'e'; length];
        client.send([ask("/", "websocket").as_bytes(), &early].concat());
        client.send(&early);
        gate.open();
        assert_eq!(client.head().status(), 101);
        assert_eq!(client.exactly(2 * length), early.repeat(2));
        client.send("late");
        assert_eq!(client.exactly(4), b"late");
    }
}

#[test]
pub fn each_direction_of_a_tunnel_ends_by_itself() {
    // The client first: the server still answers.
    let origin = Origin::with(|exchange| {
        exchange.write(ACCEPT);
        let end = echo(exchange);
        exchange.write(format!("{end:?}").repeat(10_000));
        exchange.close();
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.send(ask("/", "websocket"));
    client.head();
    client.send("last");
    client.finish_writing();
    let (bytes, end) = client.rest();
    assert_eq!((String::from_utf8(bytes).unwrap(), end), (format!("last{}", "Closed".repeat(10_000)), End::Closed));
    // The server first: the client still answers.
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&heard);
    origin.handle(move |exchange| {
        exchange.write(ACCEPT);
        exchange.write("bye");
        exchange.finish_writing();
        while let Ok(bytes) = exchange.raw() {
            kept.lock().unwrap().extend_from_slice(&bytes);
        }
        exchange.close();
    });
    let mut client = proxy.client();
    client.send(ask("/", "websocket"));
    client.head();
    assert_eq!(client.rest(), (b"bye".to_vec(), End::Closed));
    for _ in 0..100 {
        client.send(vec![b'x'; 1000]);
    }
    client.finish_writing();
    wait_for("what the client still said", DEADLINE, || (heard.lock().unwrap().len() == 100_000).then_some(()));
    wait_for("the tunnel's end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
}

#[test]
pub fn a_tunnel_that_one_side_breaks_ends_for_the_other() {
    let origin = Origin::with(|exchange| {
        exchange.write(ACCEPT);
        match exchange.raw().as_deref() {
            Ok(b"reset") => exchange.reset(),
            Ok(_) => {
                exchange.wait_for_end();
            }
            Err(_) => exchange.close(),
        }
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.send(ask("/", "websocket"));
    client.head();
    client.send("reset");
    assert_eq!(client.end(), End::Reset);
    let mut client = proxy.client();
    client.send(ask("/", "websocket"));
    client.head();
    client.send("stay");
    client.reset();
    wait_for("the tunnel's end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
}

/// What is not read any more says nothing by itself of a reset.
#[test]
fn a_tunnel_whose_side_ends_its_direction_and_then_resets_frees_its_place() {
    for by_client in [true, false] {
        let gates = [Gate::default(), Gate::default()].map(Arc::new);
        let [ended, over] = gates.clone();
        let origin = Origin::with(move |exchange| {
            if exchange.head.field("upgrade").is_none() {
                exchange.respond(200, &[], b"one");
                return;
            }
            exchange.write(ACCEPT);
            if by_client {
                while exchange.raw().is_ok() {}
                ended.open();
                over.wait();
                exchange.close();
            } else {
                exchange.finish_writing();
                over.wait();
                exchange.reset();
            }
        });
        let proxy = Proxy::start(&format!(
            "workers 1\nlisten \"127.0.0.1:0\"\n\
             pool \"p\" {{ server \"o\" \"{}\" max=1; queue max=1 timeout=\"20s\" }}\nrule use=\"p\"\n",
            origin.address
        ));
        let mut client = proxy.client();
        client.send(ask("/", "websocket"));
        assert_eq!(client.head().status(), 101);
        let [ended, over] = gates;
        if by_client {
            client.finish_writing();
            ended.wait();
            client.reset();
            assert_eq!(proxy.client().get("/").text(), "one");
            over.open();
        } else {
            // The end of the server's direction has come.
            assert!(client.rest().0.is_empty());
            over.open();
            assert_eq!(proxy.client().get("/").text(), "one");
        }
    }
}

#[test]
fn idle_tunnels_cost_no_buffers() {
    // Memory comes in pieces of 4 MiB: so many that one of them makes no difference.
    const COUNT: usize = 1_000;
    let origin = echoing();
    let proxy = Proxy::start(&all_to([&origin], ""));
    let open = |count: usize| -> Vec<Client> {
        (0..count)
            .map(|_| {
                let mut client = proxy.client();
                client.send(ask("/", "websocket"));
                client.head();
                client.send(vec![b'x'; 10_000]);
                client.exactly(10_000);
                client
            })
            .collect()
    };
    let warm = open(50);
    let before = proxy.rss_bytes();
    let mut tunnels = open(COUNT);
    let each = proxy.rss_bytes().saturating_sub(before) / COUNT as u64;
    // A buffer is 16 KiB, and each would have two.
    println!("an idle tunnel costs {each} bytes");
    assert!(each < 12 * 1024, "an idle tunnel costs {each} bytes");
    for client in &mut tunnels {
        client.send("still there");
        assert_eq!(client.exactly(11), b"still there");
    }
    drop(warm);
}

#[test]
fn a_token_that_no_rule_allows_makes_no_tunnel() {
    let origin = echoing();
    let proxy = Proxy::start(&all_to([&origin], ""));
    for token in ["h2c", "TLS/1.0", "foo", "websocket2", "h2c, foo"] {
        let answer = proxy.client().request(ask("/", token));
        assert_eq!((token, answer.status(), answer.text().as_str()), (token, 200, "no tunnel"));
    }
    // A body makes it an ordinary request; so does the version.
    let with_body = ask("/", "websocket").replace("\r\n\r\n", "\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(proxy.client().request(with_body).text(), "no tunnel");
    assert_eq!(proxy.client().request(ask("/", "websocket").replace("HTTP/1.1", "HTTP/1.0")).text(), "no tunnel");
    // What Connection does not name is not asked for.
    let unnamed = ask("/", "websocket").replace("Connection: Upgrade", "Connection: keep-alive");
    assert_eq!(proxy.client().request(unnamed).text(), "no tunnel");
}

#[test]
fn a_rule_allows_other_tokens() {
    let origin = Origin::with(|exchange| {
        let Some(token) = exchange.head.field("upgrade").map(ToOwned::to_owned) else {
            exchange.respond(200, &[], b"no tunnel");
            return;
        };
        exchange.write(format!("HTTP/1.1 101 Fine\r\nUpgrade: {token}\r\nConnection: upgrade\r\n\r\n"));
        echo(exchange);
    });
    let rules = format!(
        "workers 1\nlisten \"127.0.0.1:0\"\n{}rule path=\"/foo\" use=\"p\" {{ upgrade \"foo\" \"bar/2\" }}\nrule use=\"p\"\n",
        pool([&origin], "")
    );
    let proxy = Proxy::start(&rules);
    for (target, token, becomes) in [
        ("/foo", "foo", Some("foo")),
        ("/foo", "h2c, BAR/2", Some("BAR/2")),
        ("/foo", "websocket", None),
        ("/", "websocket", Some("websocket")),
        ("/", "foo", None),
    ] {
        let mut client = proxy.client();
        client.send(ask(target, token));
        let head = client.head();
        assert_eq!((target, token, head.field("upgrade")), (target, token, becomes));
        if becomes.is_some() {
            client.send("in");
            assert_eq!(client.exactly(2), b"in");
        }
    }
}

#[test]
fn a_101_that_was_not_asked_for_or_is_to_another_protocol_is_502() {
    for (asked, accepted) in [
        ("", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
        ("websocket", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
        ("websocket", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n"),
        ("websocket", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"),
    ] {
        let origin = Origin::with(move |exchange| {
            exchange.write(accepted);
            exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ninner");
            exchange.wait_for_end();
        });
        let proxy = Proxy::start(&all_to([&origin], ""));
        let request =
            if asked.is_empty() { "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned() } else { ask("/", asked) };
        let mut client = proxy.client();
        let answer = client.request(request);
        assert_eq!((accepted, answer.status()), (accepted, 502));
        // The connection to that server is not used again.
        wait_for("the server's connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
        origin.handle(|exchange| {
            exchange.respond(200, &[], b"clean");
        });
        assert_eq!(client.get("/").text(), "clean");
    }
}

#[test]
pub fn a_server_that_refuses_a_tunnel_is_asked_on_as_before() {
    let origin = Origin::with(|exchange| {
        exchange.respond(426, &[("Connection", "Upgrade"), ("Upgrade", "websocket")], b"no");
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for _ in 0..3 {
        let answer = client.request(ask("/", "websocket"));
        assert_eq!((answer.status(), answer.text().as_str()), (426, "no"));
    }
    assert_accepted(&origin, 1);
}

/// A TLS listener in front of the origin.
fn over_tls(origin: &Origin, lines: &str) -> Proxy {
    Proxy::start(&format!(
        "workers 1\nlisten \"127.0.0.1:0\" {{ tls {{ certificate \"site.crt\" key=\"site.key\" }} }}\n{}rule use=\"p\"\n\
         access-log \"access.log\"\n",
        pool([origin], lines)
    ))
}

#[test]
fn a_tunnel_over_tls_ends_each_direction_too() {
    let origin = Origin::with(|exchange| {
        exchange.write(format!("{ACCEPT}first"));
        let end = echo(exchange);
        exchange.write(format!("{end:?}"));
        exchange.close();
    });
    let proxy = over_tls(&origin, "");
    let mut client = Client::connect_tls(proxy.address(), "a.test");
    client.send(ask("/", "websocket"));
    assert_eq!(client.head().status(), 101);
    assert_eq!(client.exactly(5), b"first");
    let piece = vec![b'x'; 100_000];
    let (sent, end) = client.send_all_while_reading(&piece, 1_000_000);
    assert_eq!((sent, end), (1_000_000, None));
    assert_eq!(client.exactly(1_000_000).len(), 1_000_000);
    client.finish_writing();
    assert_eq!(client.rest(), (b"Closed".to_vec(), End::Closed));
}

#[test]
fn a_slow_tls_client_of_a_tunnel_gets_the_last_bytes_before_anybody_speaks_again() {
    let written = Arc::new(AtomicUsize::new(0));
    let writes = Arc::clone(&written);
    let origin = Origin::with(move |exchange| {
        let length = exchange.head.target().trim_start_matches('/').parse().unwrap_or(0);
        exchange.write([ACCEPT.as_bytes(), &vec![b'x'; length]].concat());
        writes.store(length, Ordering::Release);
        exchange.wait_for_end();
    });
    let proxy = over_tls(&origin, "");
    // Of what the system does not take for a client that does not read, the last lies in the TLS layer.
    let taken = taken_unread();
    for length in (0..30).map(|step| taken - 200_000 + step * 20_000) {
        let mut stream = open(proxy.address());
        stream.write_all(ask(&format!("/{length}"), "websocket").as_bytes()).unwrap();
        wait_for("the origin to have written", DEADLINE, || (written.load(Ordering::Acquire) == length).then_some(()));
        // The proxy reads that at once, and what it can't pass on then comes to lie where it does.
        let mut looks = 0..100;
        wait_for("the proxy to have read", DEADLINE, || looks.next().is_none().then_some(()));
        let mut left = length + ACCEPT.len();
        let mut piece = vec![0; 65_536];
        while left > 0 {
            let count =
                stream.read(&mut piece).unwrap_or_else(|error| panic!("{left} of {length} did not come: {error}"));
            assert_ne!(count, 0, "{left} of {length} did not come");
            left = left.saturating_sub(count);
        }
    }
}

/// How many bytes the system takes for a peer that reads none of them.
fn taken_unread() -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut taken, mut looks) = (0, 0);
    wait_for("a socket to take no more", DEADLINE, || {
        match socket.write(&[0; 16_384]) {
            Ok(count) => (taken, looks) = (taken + count, 0),
            Err(_) => looks += 1,
        }
        (looks > 20).then_some(taken)
    })
}

#[test]
fn a_record_that_comes_a_byte_at_a_time_keeps_no_tunnel_open() {
    let origin = echoing();
    let proxy = over_tls(&origin, "timeout tunnel=\"1s\"");
    let mut stream = open(proxy.address());
    stream.write_all(ask("/", "websocket").as_bytes()).unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
    trickle_until_the_end(stream.sock);
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "tunnel-timeout");
}

#[test]
fn a_tunnel_that_finds_no_memory_ends_with_its_timeout() {
    // Memory for 32 exchanges; a tunnel in a pause has given its part back.
    const OTHERS: usize = 32;
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        if exchange.head.field("upgrade").is_some() {
            exchange.write(ACCEPT);
            echo(exchange);
            exchange.close();
        } else {
            opened.wait();
            exchange.respond(200, &[], b"late");
        }
    });
    let limits = "limits { buffer-memory \"1280KiB\"; }\n";
    let proxy = Proxy::start(&(all_to([&origin], "timeout tunnel=\"2s\"") + limits));
    let mut tunnel = proxy.client();
    tunnel.send(ask("/", "websocket"));
    assert_eq!(tunnel.head().status(), 101);
    let mut others: Vec<Client> = (0..OTHERS).map(|_| proxy.client()).collect();
    others.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    origin.wait_for_requests(1 + OTHERS);
    // On a very slow machine its time is up already.
    let _ = tunnel.try_send("more");
    assert!(matches!(tunnel.rest().1, End::Closed | End::Reset));
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "tunnel-timeout");
    gate.open();
    others.iter_mut().for_each(|client| assert_eq!(client.response().text(), "late"));
}

//! The limits of pools, each in tests that are named after it: what it bounds, what the client is told, and that a limit
//! which is not reached changes nothing. A limit of the table without such a test fails tidy.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::support::deadline::{Gate, now};
use crate::support::{Client, DEADLINE, End, Origin, Proxy, refused_address, wait_for};

/// A time bound that is short for a test and long for the proxy.
const SHORT: Duration = Duration::from_millis(300);

/// One listener, one worker, and a pool of these servers with these settings.
fn proxy(settings: &str, servers: &[SocketAddr]) -> Proxy {
    let servers: String =
        servers.iter().enumerate().map(|(at, address)| format!("server \"s{at}\" \"{address}\"\n")).collect();
    Proxy::start(&format!(
        "listen \"127.0.0.1:0\"\nworkers 1\npool \"p\" {{\n{servers}{settings}\n}}\nrule use=\"p\"\naccess-log \"access.log\"\n"
    ))
}

/// A port whose connects stay without an answer: nobody accepts, and the queue is full.
pub struct Silent {
    pub address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl Silent {
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.bind(&SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            queued.push(stream);
        }
        Self { address, _listener: socket.into(), _queued: queued }
    }
}

#[test]
fn limit_timeout_connect_is_504_where_no_connection_is_made_in_time() {
    let silent = Silent::new();
    let proxy = proxy("timeout connect=\"300ms\"\nretry count=0", &[silent.address]);
    let started = now();
    let answer = proxy.client().get("/");
    assert!(started.elapsed() >= SHORT, "{:?}", started.elapsed());
    assert_eq!((answer.status(), answer.text().as_str()), (504, "504 Gateway Timeout\n"));
    let records = proxy.wait_for_records("access.log", 1);
    assert_eq!((records[0]["reason"].as_str(), records[0]["attempts"].as_u64()), (Some("connect-timeout"), Some(1)));
}

#[test]
pub fn limit_timeout_response_is_504_for_a_head_and_a_cut_for_a_body() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        if exchange.head.target() == "/body" {
            exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf ");
        }
        opened.wait();
    });
    let proxy = proxy("timeout response=\"300ms\"", &[origin.address]);
    let mut client = proxy.client();
    let started = now();
    let answer = client.get("/head");
    assert!(started.elapsed() >= SHORT, "{:?}", started.elapsed());
    assert_eq!((answer.status(), answer.text().as_str()), (504, "504 Gateway Timeout\n"));
    let answer = client.get("/body");
    assert_eq!((answer.status(), answer.text().as_str(), answer.is_complete()), (200, "half ", false));
    assert!(started.elapsed() >= 2 * SHORT, "{:?}", started.elapsed());
    gate.open();
    let records = proxy.wait_for_records("access.log", 2);
    for (record, status) in records.iter().zip([504, 200]) {
        assert_eq!((record["status"].as_u64(), record["reason"].as_str()), (Some(status), Some("response-timeout")));
    }
}

#[test]
pub fn limit_timeout_response_is_not_reached_by_a_body_that_goes_on() {
    let (pieces, each) = (6, Duration::from_millis(100));
    let origin = Origin::with(move |exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n");
        let started = now();
        for piece in 1..=pieces {
            wait_for("the time of a piece", DEADLINE, || (started.elapsed() >= each * piece).then_some(()));
            exchange.write("x");
        }
    });
    let proxy = proxy("timeout response=\"400ms\"", &[origin.address]);
    let answer = proxy.client().get("/");
    assert_eq!((answer.text().as_str(), answer.is_complete()), ("xxxxxx", true));
}

#[test]
fn limit_timeout_tunnel_is_the_end_of_a_tunnel_in_which_no_byte_moves() {
    let origin = Origin::with(|exchange| {
        exchange.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        while let Ok(bytes) = exchange.raw() {
            exchange.write(bytes);
        }
        exchange.close();
    });
    let proxy = proxy("timeout tunnel=\"300ms\"", &[origin.address]);
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.head().status(), 101);
    client.send("ping");
    assert_eq!(client.exactly(4), b"ping");
    let started = now();
    assert!(matches!(client.end(), End::Closed | End::Reset));
    assert!(started.elapsed() >= SHORT - Duration::from_millis(50), "{:?}", started.elapsed());
    wait_for("the server's end of the tunnel", DEADLINE, || (origin.open_connections() == 0).then_some(()));
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "tunnel-timeout");
}

/// How many connections stay when `count` requests at once have been answered, waited for to be `kept`.
fn kept_of(settings: &str, count: usize, kept: usize) {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        opened.wait();
        exchange.respond(200, &[], b"one");
    });
    let proxy = proxy(settings, &[origin.address]);
    let mut clients: Vec<Client> = (0..count).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    origin.wait_for_requests(count);
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "one"));
    wait_for(&format!("{kept} connections to be kept"), DEADLINE, || (origin.open_connections() == kept).then_some(()));
    // One request more takes a kept one, where there is one.
    assert_eq!(proxy.client().get("/").text(), "one");
    assert_eq!(origin.accepted(), if kept == 0 { count + 1 } else { count });
}

#[test]
fn limit_upstream_idle_max_is_the_number_of_connections_kept() {
    let long = "idle-timeout=\"1h\"";
    kept_of(&format!("upstream idle-max=2 {long}"), 5, 2);
    kept_of(&format!("upstream idle-max=0 {long}"), 2, 0);
}

#[test]
fn limit_upstream_idle_timeout_is_the_end_of_a_kept_connection() {
    let origin = Origin::new("one");
    let proxy = proxy("upstream idle-timeout=\"500ms\"", &[origin.address]);
    let mut client = proxy.client();
    let started = now();
    assert_eq!(client.get("/").text(), "one");
    wait_for("the kept connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
    assert!(started.elapsed() >= Duration::from_millis(500), "{:?}", started.elapsed());
    assert_eq!(client.get("/").text(), "one");
    assert_eq!(origin.accepted(), 2);
}

#[test]
pub fn limit_retry_count_is_the_number_of_repetitions() {
    for (count, attempts) in [(0, 1), (2, 3)] {
        let refused: Vec<_> = (0..4).map(|_| refused_address()).collect();
        let servers: Vec<SocketAddr> = refused.iter().map(|(_, address)| *address).collect();
        let proxy = proxy(&format!("retry count={count}"), &servers);
        assert_eq!(proxy.client().get("/").status(), 502);
        let records = proxy.wait_for_records("access.log", 1);
        assert_eq!(records[0]["attempts"].as_u64(), Some(attempts), "{}", records[0]);
        assert_eq!(records[0]["reason"], "connect-refused");
    }
}

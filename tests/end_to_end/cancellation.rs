//! Clients that vanish, by FIN or by RST, at every stage of a request: what was held for them is free at once, and nothing
//! is left after hundreds of them.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;

use crate::pool_limits::Silent;
use crate::pools::{Server, all_to};
use crate::support::deadline::Gate;
use crate::support::{Client, DEADLINE, Exchange, Origin, Proxy, Setup, refused_address, wait_for};

fn leave(client: Client, by_reset: bool) {
    if by_reset { client.reset() } else { drop(client) }
}

/// How many descriptors the proxy has when nothing is in flight: once it has served somebody, so that all it starts with is
/// there, and its connection to the server has timed out.
fn descriptors_at_rest(proxy: &Proxy) -> usize {
    drop(proxy.client().get("/"));
    let (mut last, mut looks) = (0, 0);
    wait_for("the proxy to rest", DEADLINE, || {
        let now = proxy.open_descriptors();
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        (looks == 300).then_some(now)
    })
}

fn wait_for_no_connection(origin: &Origin) {
    wait_for("the server's connections to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
}

/// Plays the server's part of each stage, by the request's target.
fn play(exchange: &mut Exchange<'_>, moved: &AtomicU64) {
    match exchange.head.target() {
        "/head" | "/up" => {
            while exchange.piece().is_some() {}
            exchange.wait_for_end();
        }
        "/interim" => {
            exchange.write("HTTP/1.1 102 Processing\r\n\r\n");
            exchange.wait_for_end();
        }
        "/down" => {
            exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n");
            while exchange.write([b'x'; 65_536]) {
                moved.fetch_add(65_536, Ordering::Relaxed);
            }
        }
        "/quiet" => {
            exchange.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            exchange.wait_for_end();
        }
        "/early" => {
            exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly");
            while exchange.piece().is_some() {}
        }
        "/tunnel" => {
            exchange.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
            exchange.wait_for_end();
            exchange.close();
        }
        _ => {
            exchange.respond(200, &[], b"ok");
        }
    }
}

fn playing() -> Origin {
    let moved = AtomicU64::new(0);
    Origin::with(move |exchange| play(exchange, &moved))
}

/// The stages at which a client can leave a server alone, and what it sends to come there.
const STAGES: [(&str, &str); 7] = [
    ("/head", "GET /head HTTP/1.1\r\nHost: a.test\r\n\r\n"),
    ("/up", "POST /up HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nbody"),
    ("/interim", "GET /interim HTTP/1.1\r\nHost: a.test\r\n\r\n"),
    ("/down", "GET /down HTTP/1.1\r\nHost: a.test\r\n\r\n"),
    ("/quiet", "GET /quiet HTTP/1.1\r\nHost: a.test\r\n\r\n"),
    ("/early", "POST /early HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\nbody"),
    ("/tunnel", "GET /tunnel HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
];

/// Brings a client to a stage.
fn at_stage(proxy: &Proxy, origin: &Origin, target: &str, request: &str) -> Client {
    let mut client = proxy.client();
    let before = origin.requests().len();
    client.send(request);
    origin.wait_for_requests(before + 1);
    match target {
        "/interim" | "/down" | "/quiet" | "/early" | "/tunnel" => drop(client.head()),
        "/up" => drop(origin.wait_for_that("the body's begin", |requests| requests[before].body_length == 4)),
        _ => {}
    }
    client
}

#[test]
pub fn a_client_that_goes_away_frees_the_connection_to_its_server_at_once() {
    let origin = playing();
    // Far longer than the test: only the client's going can end it.
    let proxy = Proxy::start(&all_to([&origin], "timeout response=\"1h\" tunnel=\"1h\""));
    for (target, request) in STAGES {
        for by_reset in [false, true] {
            leave(at_stage(&proxy, &origin, target, request), by_reset);
            wait_for_no_connection(&origin);
        }
    }
}

#[test]
pub fn a_client_that_goes_away_is_logged_and_not_held_against_the_server() {
    let origin = playing();
    let proxy = Proxy::start(&all_to([&origin], ""));
    for (index, by_reset) in [false, true, false, true].into_iter().enumerate() {
        leave(at_stage(&proxy, &origin, STAGES[0].0, STAGES[0].1), by_reset);
        let record = proxy.wait_for_records("access.log", index + 1).remove(index);
        assert_eq!((&record["status"], &record["reason"]), (&499.into(), &"client-gone".into()));
    }
    let asked = origin.requests().len();
    assert_eq!(proxy.client().get("/").status(), 200);
    assert_eq!(origin.requests().len(), asked + 1);
    assert!(!proxy.errors().iter().any(|line| line.contains("suspect")), "{:?}", proxy.errors());
}

#[test]
fn a_client_that_goes_away_while_its_server_is_dialled_ends_the_dialling() {
    let silent = Silent::new();
    let rules = all_to([silent.address], "timeout connect=\"1h\"");
    let proxy =
        Proxy::start(&rules.replace("rule use", "rule path=\"/\" { respond 204; not { query \"dial\" } }\nrule use"));
    let before = descriptors_at_rest(&proxy);
    let requests = [
        "GET /?dial HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "PUT /?dial HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\nhalf",
    ];
    let cases = requests.into_iter().flat_map(|request| [(request, false), (request, true)]);
    for (index, (request, by_reset)) in cases.enumerate() {
        let mut client = proxy.client();
        client.send(request);
        wait_for("both connections", DEADLINE, || (proxy.open_descriptors() >= before + 2).then_some(()));
        leave(client, by_reset);
        wait_for("no connection", DEADLINE, || (proxy.open_descriptors() == before).then_some(()));
        let record = proxy.wait_for_records("access.log", index + 2).remove(index + 1);
        assert_eq!((&record["status"], &record["reason"]), (&499.into(), &"client-gone".into()));
    }
}

#[test]
fn a_client_that_leaves_an_idle_connection_has_asked_nothing() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    for by_reset in [false, true] {
        leave(proxy.client(), by_reset);
        let mut client = proxy.client();
        assert_eq!(client.get("/asked").status(), 200);
        leave(client, by_reset);
    }
    assert_eq!(proxy.client().get("/last").status(), 200);
    let records = proxy.wait_for_records("access.log", 3);
    let paths: Vec<_> = records.iter().map(|record| record["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/asked", "/asked", "/last"]);
}

/// The places at a server are counted; a place that is not given back would be missed at the end.
#[test]
pub fn places_at_a_server_are_all_back_after_hundreds_of_clients_have_vanished() {
    const PLACES: usize = 10;
    let origin = playing();
    let proxy = Proxy::start(&all_to([Server::with(&origin, "max=10")], "retry count=0"));
    for (target, request) in STAGES {
        for round in 0..3 {
            let clients: Vec<Client> = (0..PLACES).map(|_| at_stage(&proxy, &origin, target, request)).collect();
            // All places are taken: the lease is held as long as the request is.
            assert_eq!((target, proxy.client().get("/").status()), (target, 503));
            for (index, client) in clients.into_iter().enumerate() {
                leave(client, (round + index) % 2 == 0);
            }
            wait_for_no_connection(&origin);
            wait_for("a free place", DEADLINE, || (proxy.client().get("/").status() == 200).then_some(()));
            wait_for("the idle connection alone", DEADLINE, || (origin.open_connections() <= 1).then_some(()));
            origin.close_connections();
            wait_for_no_connection(&origin);
        }
    }
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    origin.handle(move |exchange| {
        opened.wait();
        exchange.respond(200, &[], b"ok");
    });
    let before = origin.requests().len();
    let mut clients: Vec<Client> = (0..PLACES).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    }
    origin.wait_for_requests(before + PLACES);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
}

/// Whatever a request fails by, its place is free again.
#[test]
pub fn places_at_a_server_are_all_back_after_requests_that_failed() {
    let origin = Origin::with(|exchange| match exchange.head.target() {
        "/reset" => exchange.reset(),
        "/nonsense" => {
            exchange.write("nonsense\r\n\r\n");
        }
        "/cut" => {
            exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123");
            exchange.close();
        }
        "/slow" => {
            exchange.wait_for_end();
        }
        _ => {
            exchange.respond(200, &[], b"ok");
        }
    });
    let lines = "timeout response=\"1s\"; retry count=0";
    let proxy = Proxy::start(&all_to([Server::with(&origin, "max=1")], lines));
    for target in ["/reset", "/nonsense", "/cut", "/slow", "/good"].repeat(4) {
        let mut client = proxy.client();
        let answer = client.get(target);
        let expected = match target {
            "/slow" => 504,
            "/good" | "/cut" => 200,
            _ => 502,
        };
        assert_eq!((target, answer.status()), (target, expected));
        if target == "/cut" {
            // Its lease ends with the connection.
            drop(client.rest());
        }
    }
    let (_keeper, refused) = refused_address();
    let proxy = Proxy::start(&all_to([refused], "").replace("\" \n", "\" max=1\n"));
    for _ in 0..20 {
        assert_eq!(proxy.client().get("/").status(), 502);
    }
}

/// 2000 clients ask once each and vanish, half by FIN and half by RST.
#[test]
pub fn memory_and_descriptors_level_out_when_clients_come_and_vanish_for_long() {
    let origin = Origin::new("one");
    let rules = all_to([&origin], "upstream \"http/1.1\" idle-timeout=\"100ms\"");
    let proxy = Setup::new(&rules).variable("MIMALLOC_ALLOW_THP", "0").start();
    let before = descriptors_at_rest(&proxy);
    let mut levels = Vec::new();
    for _ in 0..30 {
        let mut clients: Vec<Client> = (0..100).map(|_| proxy.client()).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.response().status(), 200);
        }
        clients.into_iter().enumerate().for_each(|(index, client)| leave(client, index % 2 == 0));
        wait_for("all descriptors", DEADLINE, || (proxy.open_descriptors() == before).then_some(()));
        levels.push(proxy.rss_bytes() / 1024);
    }
    println!("KiB after each round: {levels:?}");
    // In the first rounds the allocator finds its level.
    assert!(levels[29] < levels[11] + 512, "KiB after each round: {levels:?}");
}

/// The same with clients that leave in the middle.
#[test]
fn memory_and_descriptors_level_out_when_clients_vanish_in_the_middle_of_requests() {
    let origin = playing();
    let rules = all_to([&origin], "upstream \"http/1.1\" idle-timeout=\"100ms\"");
    let proxy = Setup::new(&rules).variable("MIMALLOC_ALLOW_THP", "0").start();
    let before = descriptors_at_rest(&proxy);
    let mut levels = Vec::new();
    for round in 0..10 {
        for (target, request) in STAGES {
            let clients: Vec<Client> = (0..10).map(|_| at_stage(&proxy, &origin, target, request)).collect();
            clients.into_iter().enumerate().for_each(|(index, client)| leave(client, (round + index) % 2 == 0));
        }
        wait_for("all descriptors", DEADLINE, || (proxy.open_descriptors() == before).then_some(()));
        levels.push(proxy.rss_bytes() / 1024);
    }
    println!("KiB after each round: {levels:?}");
    assert!(levels[9] < levels[2] + 1024, "KiB after each round: {levels:?}");
}

/// Nothing is read of such a client, so that no read tells.
#[test]
fn a_client_that_vanishes_while_its_server_takes_nothing_frees_the_servers_place() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |_| opened.wait());
    let rules = all_to([&origin], "timeout response=\"1h\"; retry count=0");
    let proxy = Proxy::start(&format!("{rules}admin \"unix:admin.sock\"\n"));
    let in_flight = || proxy.status()["pools"][0]["servers"][0]["in_flight"].as_u64();
    let mut socket = TcpStream::connect(proxy.address()).expect("a connection");
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 50000000\r\n\r\n";
    socket.write_all(head.as_bytes()).expect("a head that fits");
    wait_for("the request", DEADLINE, || (in_flight() == Some(1)).then_some(()));
    socket.set_nonblocking(true).expect("a socket");
    while socket.write(&[0; 65_536]).is_ok() {}
    SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(socket);
    wait_for("the place to be free", DEADLINE, || (in_flight() == Some(0)).then_some(()));
    gate.open();
}

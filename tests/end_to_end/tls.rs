//! TLS towards clients: which certificate a name gets, versions, resumption, and clients that do not finish their
//! handshake or speak no TLS at all.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, HandshakeKind, ProtocolVersion};

use crate::support::client::Options;
use crate::support::deadline::{Gate, now};
use crate::support::tls::{self, Certificate};
use crate::support::{Client, DEADLINE, End, Origin, Proxy, Setup};

/// One TLS listener with these certificates, in this order, in front of `origin`.
fn proxy(certificates: &[(&str, &Certificate)], settings: &str, origin: &Origin) -> Proxy {
    let lines: String =
        certificates.iter().map(|(stem, _)| format!("certificate \"{stem}.crt\" key=\"{stem}.key\"\n")).collect();
    let rules = format!(
        "listen \"127.0.0.1:0\" {{ tls {{\n{lines}}} }}\n{settings}\n\
         pool \"o\" {{ server \"o1\" \"{}\"; }}\nrule use=\"o\"\naccess-log \"access.log\"\n",
        origin.address
    );
    let setup = Setup::new(&rules);
    certificates.iter().fold(setup, |setup, (stem, certificate)| setup.certificate(stem, certificate)).start()
}

fn single(settings: &str, origin: &Origin) -> Proxy {
    proxy(&[("site", &Certificate::for_names(&["a.test"]))], settings, origin)
}

/// The bytes with which a TLS 1.2 client begins that asks for `name`. The name goes in as it is, whatever a client would
/// make of it.
fn hello(name: &str) -> Vec<u8> {
    let stand_in = "a".repeat(name.len());
    let server = ServerName::try_from(stand_in.clone()).unwrap();
    let mut client = ClientConnection::new(tls::client_config(&[&TLS12], &["http/1.1"]), server).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    let at = bytes.windows(name.len()).position(|window| window == stand_in.as_bytes()).unwrap();
    bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// What comes back for these bytes until `is_enough` of it or the end.
fn answer_to(address: SocketAddr, bytes: &[u8], is_enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.write_all(bytes).unwrap();
    let mut read = Vec::new();
    let mut piece = [0; 4096];
    while !is_enough(&read) {
        match socket.read(&mut piece) {
            Ok(length @ 1..) => read.extend_from_slice(&piece[..length]),
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    read
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_name_gets_the_most_specific_certificate_in_whatever_order_they_stand() {
    let names = ["default.test", "*.example.test", "*.sub.example.test", "exact.sub.example.test", "example.test"];
    let made: Vec<Certificate> = names.iter().map(|name| Certificate::for_names(&[name])).collect();
    let origin = Origin::new("one");
    for order in [[0, 1, 2, 3, 4], [0, 4, 3, 2, 1], [0, 2, 4, 1, 3]] {
        let stems: Vec<String> = order.iter().map(|at| format!("certificate-{at}")).collect();
        let certificates: Vec<(&str, &Certificate)> =
            order.iter().zip(&stems).map(|(at, stem)| (stem.as_str(), &made[*at])).collect();
        let proxy = proxy(&certificates, "", &origin);
        for (asked, expected) in [
            ("x.example.test", 1),
            ("sub.example.test", 1),
            ("x.sub.example.test", 2),
            ("exact.sub.example.test", 3),
            ("example.test", 4),
            ("x.y.example.test", 0),
            ("x.x.sub.example.test", 0),
            ("other.test", 0),
            ("default.test", 0),
            ("X.SUB.Example.TEST", 2),
            ("EXAMPLE.test", 4),
            ("x.sub.example.test.", 2),
            ("Exact.Sub.Example.Test.", 3),
            ("example.test.", 4),
        ] {
            let is_any = |read: &[u8]| made.iter().any(|certificate| contains(read, &certificate.der));
            let read = answer_to(proxy.address(), &hello(asked), is_any);
            let got: Vec<usize> = (0..made.len()).filter(|at| contains(&read, &made[*at].der)).collect();
            assert_eq!(got, [expected], "for {asked} in the order {order:?}");
        }
        // An address is no name: the first certificate.
        let client = Client::connect_tls(proxy.address(), "127.0.0.1");
        assert_eq!(client.handshake.unwrap().certificate, made[0].der);
    }
}

#[test]
fn a_client_that_names_no_host_gets_the_certificate_of_the_address() {
    let (site, address) = (Certificate::for_names(&["a.test"]), Certificate::for_names(&["127.0.0.1"]));
    let origin = Origin::new("one");
    let proxy = proxy(&[("site", &site), ("address", &address)], "", &origin);
    let client = Client::connect_tls(proxy.address(), "127.0.0.1");
    assert_eq!(client.handshake.unwrap().certificate, address.der);
    let client = Client::connect_tls(proxy.address(), "a.test");
    assert_eq!(client.handshake.unwrap().certificate, site.der);
}

#[test]
fn both_versions_are_spoken_logged_and_told_the_server() {
    let origin = Origin::new("one");
    let proxy = single("workers 1", &origin);
    for (version, protocol, name) in
        [(&TLS12, ProtocolVersion::TLSv1_2, "TLSv1.2"), (&TLS13, ProtocolVersion::TLSv1_3, "TLSv1.3")]
    {
        let before = origin.requests().len();
        let tls = Some(("a.test".to_owned(), tls::client_config(&[version], &["http/1.1"])));
        let mut client = Options { tls, ..Options::default() }.connect(proxy.address());
        let handshake = client.handshake.clone().unwrap();
        assert_eq!((handshake.version, handshake.protocol.as_deref()), (protocol, Some("http/1.1")));
        for _ in 0..2 {
            assert_eq!(client.get("/").text(), "one");
        }
        let head = &origin.requests()[before].head;
        assert_eq!(head.field("x-forwarded-proto"), Some("https"));
        assert!(head.field("forwarded").unwrap().ends_with(";proto=https"));
        let records = proxy.wait_for_records("access.log", before + 2);
        assert_eq!((records[before]["tls"].as_str(), records[before + 1]["tls"].as_str()), (Some(name), Some(name)));
    }
}

#[test]
fn an_older_version_is_refused_with_an_alert() {
    let origin = Origin::new("one");
    let proxy = single("", &origin);
    let mut bytes = hello("a.test");
    // The client's own version stands behind the record's and the message's heads, and all that it speaks in an extension.
    let extension = [0, 43, 0, 3, 2, 3, 3];
    let at = bytes.windows(extension.len()).position(|window| window == extension).unwrap();
    bytes[at + 6] = 2;
    assert_eq!((&bytes[..3], &bytes[9..11]), (&[22, 3, 1][..], &[3, 3][..]));
    bytes[10] = 2;
    let read = answer_to(proxy.address(), &bytes, |_| false);
    // An alert, fatal, protocol_version (RFC 8446 6.2).
    assert_eq!((read[0], &read[5..]), (21, &[2, 70][..]));
}

#[test]
fn a_protocol_that_is_not_spoken_is_refused_and_none_is_fine() {
    let origin = Origin::new("one");
    let proxy = single("", &origin);
    let connect = |protocols: &[&str]| {
        let tls = Some(("a.test".to_owned(), tls::client_config(rustls::ALL_VERSIONS, protocols)));
        Options { tls, ..Options::default() }.try_connect(proxy.address())
    };
    let error = connect(&["h3"]).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
    let mut client = connect(&[]).unwrap();
    assert_eq!(client.handshake.clone().unwrap().protocol, None);
    assert_eq!(client.get("/").text(), "one");
    assert_eq!(connect(&["h3", "http/1.1"]).unwrap().handshake.unwrap().protocol.as_deref(), Some("http/1.1"));
}

/// With four workers, forty connections in a row reach several of them: tickets are good at all.
#[test]
fn a_session_is_resumed_whichever_worker_takes_the_connection() {
    let origin = Origin::new("one");
    let proxy = single("workers 4", &origin);
    for version in [&TLS12, &TLS13] {
        let config = tls::client_config(&[version], &["http/1.1"]);
        for at in 0..40 {
            let tls = Some(("a.test".to_owned(), Arc::clone(&config)));
            let mut client = Options { tls, ..Options::default() }.connect(proxy.address());
            let kind = client.handshake.clone().unwrap().kind;
            assert_eq!(kind == HandshakeKind::Resumed, at > 0, "connection {at}: {kind:?}");
            // A TLS 1.3 ticket comes behind the handshake.
            assert_eq!(client.get("/").text(), "one");
        }
    }
}

#[test]
fn a_handshake_that_does_not_end_is_ended_and_says_nothing() {
    let origin = Origin::new("one");
    let proxy = single("limits { header-timeout \"300ms\"; }", &origin);
    let whole = hello("a.test");
    for part in [0, 1, 5, whole.len() - 1, whole.len()] {
        let started = now();
        let read = answer_to(proxy.address(), &whole[..part], |_| false);
        let (least, most) = (Duration::from_millis(300), DEADLINE);
        assert!((least..most).contains(&started.elapsed()), "{part} bytes: {:?}", started.elapsed());
        assert_eq!(read.is_empty(), part < whole.len());
    }
    assert_eq!(Client::connect_tls(proxy.address(), "a.test").get("/").text(), "one");
}

#[test]
fn a_client_that_speaks_no_tls_is_refused_at_once_and_costs_nothing_else() {
    let origin = Origin::new("one");
    let proxy = single("workers 1", &origin);
    let mut other = Client::connect_tls(proxy.address(), "a.test");
    assert_eq!(other.get("/").text(), "one");
    for bytes in [&b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"[..], &[0; 100], &[22, 3, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]]
    {
        let started = now();
        let read = answer_to(proxy.address(), bytes, |_| false);
        assert!(started.elapsed() < Duration::from_secs(8), "not before the header-timeout");
        // At most an alert.
        assert!(read.is_empty() || read[0] == 21, "{read:?}");
        assert_eq!(other.get("/").text(), "one");
    }
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn requests_in_one_record_and_a_head_in_many_are_read() {
    let origin = Origin::new("one");
    let proxy = single("", &origin);
    let mut client = Client::connect_tls(proxy.address(), "a.test");
    let request = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc";
    client.send(request.repeat(5));
    (0..5).for_each(|_| assert_eq!(client.response().text(), "one"));
    for byte in request.as_bytes() {
        client.send([*byte]);
    }
    assert_eq!(client.response().text(), "one");
    let requests = origin.wait_for_that("six whole bodies", |all| all.iter().filter(|r| r.is_complete).count() == 6);
    assert!(requests.iter().all(|request| request.body == b"abc"));
    client.finish_writing();
    assert_eq!(client.end(), End::Closed);
}

/// A TLS 1.3 peer may change its keys whenever it likes (RFC 8446 4.6.3), and ask the other side to do so too.
#[test]
fn a_client_may_change_its_keys_between_and_within_requests() {
    let origin = Origin::new("one");
    let proxy = single("", &origin);
    let name = ServerName::try_from("a.test").unwrap();
    let mut client = ClientConnection::new(tls::client_config(&[&TLS13], &["http/1.1"]), name).unwrap();
    let mut socket = TcpStream::connect(proxy.address()).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut socket).unwrap();
    }
    let mut stream = rustls::Stream::new(&mut client, &mut socket);
    for _ in 0..3 {
        stream.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nab").unwrap();
        stream.conn.refresh_traffic_keys().unwrap();
        stream.write_all(b"cd").unwrap();
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        while !answer.ends_with(b"\r\n\r\none") {
            let length = stream.read(&mut piece).unwrap();
            assert_ne!(length, 0, "{answer:?}");
            answer.extend_from_slice(&piece[..length]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{answer:?}");
        stream.conn.refresh_traffic_keys().unwrap();
    }
    assert!(origin.requests().iter().all(|request| request.is_complete && request.body == b"abcd"));
}

#[test]
fn a_client_that_ended_its_side_gets_its_answer_where_half_close_is_on() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        opened.wait();
        exchange.respond(200, &[], b"late");
    });
    let rules = format!(
        "listen \"127.0.0.1:0\" {{ half-close #true; tls {{ certificate \"site.crt\" key=\"site.key\"; }} }}\n\
         pool \"o\" {{ server \"o1\" \"{}\"; }}\nrule use=\"o\"\n",
        origin.address
    );
    let proxy = Proxy::start(&rules);
    let mut client = Client::connect_tls(proxy.address(), "a.test");
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.finish_writing();
    origin.wait_for_requests(1);
    gate.open();
    assert_eq!(client.response().text(), "late");
    assert_eq!(client.end(), End::Closed);
}

#[test]
fn large_bodies_pass_through_tls_in_both_directions() {
    let origin = Origin::with(|exchange| {
        let mut body = Vec::new();
        while let Some(piece) = exchange.piece() {
            body.extend_from_slice(&piece);
        }
        exchange.respond(200, &[], &body);
    });
    let proxy = single("", &origin);
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut client = Client::connect_tls(proxy.address(), "a.test");
    for _ in 0..2 {
        client.send(format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len()));
        client.send(&body);
        let answer = client.response();
        assert!(answer.is_complete() && answer.body == body);
    }
}

/// To a client of HTTP/1.0 the end of the connection is the end of the body: only a proper one has a `close_notify`.
#[test]
fn a_body_that_ends_with_the_connection_ends_with_close_notify_only_where_it_is_whole() {
    let origin = Origin::with(|exchange| {
        let is_whole = exchange.head.target() == "/whole";
        exchange.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n");
        if is_whole {
            exchange.write("0\r\n\r\n");
        }
        exchange.close();
    });
    let proxy = single("", &origin);
    for (target, is_whole) in [("/whole", true), ("/cut", false)] {
        let mut client = Client::connect_tls(proxy.address(), "a.test");
        let answer = client.request(format!("GET {target} HTTP/1.0\r\nHost: a.test\r\n\r\n"));
        assert_eq!(answer.field("transfer-encoding"), None);
        assert_eq!(answer.is_complete(), is_whole, "{target}: {:?}", answer.broken);
        assert!(is_whole || matches!(answer.broken, Some(End::Cut | End::Reset)));
    }
}

#[test]
fn a_rule_sees_the_name_that_the_handshake_asked_for() {
    let origin = Origin::new("one");
    let certificate = Certificate::for_names(&["a.test", "*.a.test"]);
    let rules = format!(
        "listen \"127.0.0.1:0\" {{ tls {{ certificate \"site.crt\" key=\"site.key\"; }} }}\n\
         pool \"o\" {{ server \"o1\" \"{}\"; }}\nrule sni=\"*.a.test\" use=\"o\"\nrule respond=403\n",
        origin.address
    );
    let proxy = Setup::new(&rules).certificate("site", &certificate).start();
    assert_eq!(Client::connect_tls(proxy.address(), "x.a.test").get("/").text(), "one");
    assert_eq!(Client::connect_tls(proxy.address(), "a.test").get("/").status(), 403);
    assert_eq!(Client::connect_tls(proxy.address(), "127.0.0.1").get("/").status(), 403);
}

#[test]
fn an_idle_client_that_leaves_without_a_word_leaves_no_record() {
    let origin = Origin::new("one");
    let proxy = single("workers 1", &origin);
    for _ in 0..3 {
        let mut client = Client::connect_tls(proxy.address(), "a.test");
        assert_eq!(client.get("/gone").text(), "one");
        drop(client);
        let mut client = Client::connect_tls(proxy.address(), "a.test");
        assert_eq!(client.get("/reset").text(), "one");
        client.reset();
    }
    assert_eq!(Client::connect_tls(proxy.address(), "a.test").get("/last").text(), "one");
    let records = proxy.wait_for_records("access.log", 7);
    assert!(records.iter().all(|record| record["status"] == 200), "{records:?}");
}

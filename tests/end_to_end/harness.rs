//! The harness against itself, without a proxy between: what is a fault here must not be taken for one of the product.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use crate::support::deadline::Gate;
use crate::support::tls::{self, Certificate};
use crate::support::{Client, DEADLINE, End, Head, Origin, Proxy, Setup, client, refused_address, wait_for};

#[test]
fn a_client_and_an_origin_understand_each_other() {
    let origin = Origin::new("one");
    let mut client = Client::connect(origin.address);
    let answer = client.get("/a?b");
    assert_eq!((answer.status(), answer.text().as_str(), answer.field("x-origin")), (200, "one", Some("one")));
    let answer = client.request("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((answer.body.len(), answer.field("content-length")), (0, Some("3")));
    client.send("POST /c HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nbo");
    client.send("dy\r\n0\r\nA: b\r\n\r\nGET /d HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.response().status(), 200);
    assert_eq!(client.response().status(), 200);
    let requests = origin.wait_for_requests(4);
    assert_eq!(requests[0].head.target(), "/a?b");
    assert_eq!((requests[2].body.as_slice(), requests[2].is_complete), (&b"body"[..], true));
    assert_eq!(requests[2].trailers, [("A".to_owned(), "b".to_owned())]);
    assert!(requests.iter().all(|request| request.connection == 1));
    assert_eq!((origin.accepted(), origin.open_connections()), (1, 1));
    drop(client);
    wait_for("the connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
}

#[test]
fn an_origin_sees_a_body_that_is_cut_short() {
    let origin = Origin::new("one");
    for (framing, sent) in [("Content-Length: 10", "1234"), ("Transfer-Encoding: chunked", "a\r\n1234")] {
        let mut client = Client::connect(origin.address);
        client.send(format!("POST / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n\r\n{sent}"));
        client.finish_writing();
        let requests = origin.wait_for_that("the cut", |requests| requests.last().is_some_and(|r| r.broken.is_some()));
        let request = requests.last().unwrap();
        assert_eq!((request.is_complete, request.body_length, &request.broken), (false, 4, &Some(End::Closed)));
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn a_client_sees_a_body_that_is_cut_short_and_how() {
    for (framing, body) in [("Content-Length: 10", "1234"), ("Transfer-Encoding: chunked", "4\r\n1234\r\n")] {
        for reset in [false, true] {
            let gate = Arc::new(Gate::default());
            let opened = Arc::clone(&gate);
            let origin = Origin::with(move |exchange| {
                exchange.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}"));
                opened.wait();
                if reset { exchange.reset() } else { exchange.close() }
            });
            let mut client = Client::connect(origin.address);
            client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let head = client.head();
            let mut reader = client.body_of(&head, "GET");
            assert_eq!(client.piece(&mut reader), Ok(Some(b"1234".to_vec())));
            gate.open();
            assert_eq!(client.piece(&mut reader), Err(if reset { End::Reset } else { End::Closed }));
        }
    }
}

#[test]
fn interim_answers_trailers_and_a_body_until_the_end_are_read() {
    let origin = Origin::with(|exchange| {
        exchange.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n");
        match exchange.head.target() {
            "/chunked" => exchange
                .write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: 1\r\nT: 2\r\n\r\n"),
            _ => exchange.write("HTTP/1.0 200 OK\r\n\r\nuntil the end"),
        };
        exchange.close();
    });
    let answer = Client::connect(origin.address).get("/chunked");
    assert_eq!(answer.interim.iter().map(Head::status).collect::<Vec<_>>(), [100, 103]);
    assert_eq!((answer.text().as_str(), answer.trailers.len()), ("abc", 2));
    let mut client = Client::connect(origin.address);
    let answer = client.get("/");
    assert_eq!((answer.text().as_str(), answer.is_complete()), ("until the end", true));
    assert_eq!(client.end(), End::Closed);
}

#[test]
fn an_origin_dies_and_lives_again_on_its_port() {
    let origin = Origin::new("one");
    let mut client = Client::connect(origin.address);
    assert_eq!(client.get("/").status(), 200);
    for _ in 0..20 {
        origin.stop();
        assert!(client::Options::default().try_connect(origin.address).is_err());
        origin.start();
        assert_eq!(Client::connect(origin.address).get("/").status(), 200);
    }
    assert!(matches!(client.end(), End::Closed | End::Reset));
    let (_keeper, refused) = refused_address();
    assert!(client::Options::default().try_connect(refused).is_err());
}

#[test]
fn an_origin_sees_how_its_client_left() {
    let origin = Origin::with(|exchange| {
        let end = format!("{:?}", exchange.wait_for_end());
        exchange.write(end);
    });
    let mut client = Client::connect(origin.address);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\nmore");
    client.finish_writing();
    assert_eq!(client.rest(), (b"Closed".to_vec(), End::Closed));
    let mut client = Client::connect(origin.address);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    origin.wait_for_requests(2);
    client.reset();
    wait_for("the connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
}

#[test]
fn a_client_that_is_answered_early_stops_sending() {
    let origin = Origin::with(|exchange| {
        exchange.piece();
        exchange.respond(413, &[], b"too much");
        exchange.read_body();
    });
    let mut client = Client::connect(origin.address);
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 104857600\r\n\r\n");
    let (sent, end) = client.send_until_answered(&[b'x'; 65_536], 100 << 20);
    assert_eq!(end, None);
    assert_eq!(client.response().text(), "too much");
    let (more, end) = client.send_all_while_reading(&[b'x'; 65_536], (100 << 20) - sent);
    assert_eq!((sent + more, end), (100 << 20, None));
    let requests = origin.wait_for_that("the body", |requests| requests[0].is_complete);
    assert_eq!(requests[0].body_length, 100 << 20);
}

#[test]
fn a_small_receive_buffer_stalls_the_sender() {
    let origin = Origin::with(|exchange| {
        exchange.respond(200, &[], &vec![b'x'; 16 << 20]);
    });
    let mut client = client::Options { receive_buffer: Some(4096), ..Default::default() }.connect(origin.address);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    origin.wait_for_requests(1);
    let head = client.head();
    assert_eq!(head.field("content-length"), Some("16777216"));
    let mut reader = client.body_of(&head, "GET");
    let mut length = 0;
    while let Some(piece) = client.piece(&mut reader).unwrap() {
        length += piece.len();
    }
    assert_eq!(length, 16 << 20);
}

#[test]
fn a_tls_client_tells_versions_certificates_and_ends() {
    let certificate = Certificate::for_names(&["a.test"]);
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der.clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        for clean in [true, false] {
            let (socket, _) = listener.accept().unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), socket);
            let mut request = [0; 1024];
            std::io::Read::read(&mut stream, &mut request).unwrap();
            std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\n\r\nbody").unwrap();
            if clean {
                stream.conn.send_close_notify();
                stream.conn.complete_io(&mut stream.sock).unwrap();
            }
        }
    });
    for (versions, clean) in [(vec![&rustls::version::TLS13], true), (vec![&rustls::version::TLS12], false)] {
        let tls = Some(("a.test".to_owned(), tls::client_config(&versions, &[])));
        let mut client = client::Options { tls, ..Default::default() }.connect(address);
        let handshake = client.handshake.clone().unwrap();
        assert_eq!(handshake.version, versions[0].version);
        assert!(matches!(handshake.kind, HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest));
        assert_eq!(handshake.certificate, certificate.der);
        let answer = client.get("/");
        assert_eq!((answer.text().as_str(), answer.broken), ("body", (!clean).then_some(End::Cut)));
    }
    server.join().unwrap();
}

#[test]
fn patience_has_an_end() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |_| opened.wait());
    let mut client = Client::connect(origin.address);
    client.patience = Duration::from_millis(50);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.try_head(), Err(End::TimedOut));
    gate.open();
}

#[test]
#[should_panic(expected = "instead of listening")]
fn a_proxy_that_does_not_start_is_noticed() {
    Proxy::start("listen \"127.0.0.1:0\"\nthis is no rule");
}

#[test]
fn files_stand_beside_the_rules() {
    let setup = Setup::new("").file("more/x.kdl", "x").certificate("site", &Certificate::for_names(&["a.test"]));
    assert!(setup.folder().join("more/x.kdl").is_file() && setup.folder().join("site.key").is_file());
}

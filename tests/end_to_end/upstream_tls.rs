//! TLS towards servers, with Python's ssl and OpenSSL as servers: whom they have to be, what they are shown, what the end of a
//! connection means, and what a handshake that fails costs.

use serde_json::Value;

use crate::support::tls::{Authority, Certificate};
use crate::support::tls_server::{TlsServer, TlsServerSetup};
use crate::support::{Client, DEADLINE, Origin, Proxy, Setup, pointsman};

const NAME: &str = "app.internal";

/// Rules that send everything to these servers, spoken to as `tls` says.
fn rules(addresses: &[std::net::SocketAddr], tls: &str, more: &str) -> String {
    let servers: String =
        addresses.iter().enumerate().map(|(at, address)| format!("server \"s{at}\" \"{address}\"\n")).collect();
    format!(
        "workers 1\nlisten \"127.0.0.1:0\"\npool \"o\" {{\n{servers}upstream \"http/1.1\" {{\n{tls}\n}}\n{more}\n}}\n\
         rule use=\"o\"\naccess-log \"access.log\"\n"
    )
}

/// A proxy that trusts `authority` alone and asks for `app.internal`.
fn verifying(server: &TlsServer, authority: &Authority) -> Proxy {
    let rules = rules(&[server.address], "tls { ca \"ca.crt\"; server-name \"app.internal\"; }", "");
    Setup::new(&rules).file("ca.crt", &authority.certificate).start()
}

fn told(client: &mut Client, target: &str) -> Value {
    let answer = client.get(target);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// Asks once and gives the status and the reason that is logged.
fn refused(proxy: &Proxy) -> (u16, String) {
    let status = proxy.client().get("/").status();
    let record = proxy.wait_for_records("access.log", 1).remove(0);
    (status, record["reason"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_verified_server_gets_its_name_and_the_protocol_and_is_kept_and_resumed() {
    let authority = Authority::new("ours");
    let server = TlsServer::start(&authority.issue(&[NAME]));
    let proxy = verifying(&server, &authority);
    let mut client = proxy.client();
    let first = told(&mut client, "/");
    assert_eq!((&first["sni"], &first["alpn"]), (&NAME.into(), &"http/1.1".into()));
    assert_eq!((&first["version"], &first["resumed"]), (&"TLSv1.3".into(), &false.into()));
    assert!(first["head"].as_str().unwrap().starts_with("GET / HTTP/1.1\r\n"), "{first}");
    let second = told(&mut client, "/last");
    assert_eq!(second["connection"], 1, "the connection is kept");
    let third = told(&mut client, "/");
    assert_eq!((&third["connection"], &third["resumed"]), (&2.into(), &true.into()));
}

#[test]
fn openssl_is_spoken_to_as_well() {
    let authority = Authority::new("ours");
    let server = TlsServer::openssl(&authority.issue(&[NAME]));
    let answer = verifying(&server, &authority).client().get("/");
    assert_eq!(answer.status(), 200);
    assert!(answer.text().contains("Protocol  : TLSv1.3"), "{}", answer.text());
}

#[test]
fn a_wrong_authority_a_wrong_name_and_an_expired_certificate_are_refused() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let expired = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    };
    for (certificate, wrong) in [
        (others.issue(&[NAME]), "authority"),
        (ours.issue(&["other.internal"]), "name"),
        (ours.issue_with(&[NAME], expired), "time"),
        (Certificate::for_names(&[NAME]), "signature"),
    ] {
        let server = TlsServer::start(&certificate);
        let found = refused(&verifying(&server, &ours));
        assert_eq!(found, (502, "upstream-tls".to_owned()), "a wrong {wrong}");
    }
}

#[test]
fn the_address_is_the_name_where_none_is_given() {
    let authority = Authority::new("ours");
    let rules_for = |server: &TlsServer| rules(&[server.address], "tls { ca \"ca.crt\"; }", "");
    let server = TlsServer::start(&authority.issue(&["127.0.0.1"]));
    let proxy = Setup::new(&rules_for(&server)).file("ca.crt", &authority.certificate).start();
    assert_eq!(told(&mut proxy.client(), "/")["sni"], Value::Null, "an address is never asked for");
    let server = TlsServer::start(&authority.issue(&[NAME]));
    let proxy = Setup::new(&rules_for(&server)).file("ca.crt", &authority.certificate).start();
    assert_eq!(refused(&proxy), (502, "upstream-tls".to_owned()));
}

#[test]
fn the_authorities_of_the_system_count_where_no_ca_is_named() {
    let authority = Authority::new("ours");
    let server = TlsServer::start(&authority.issue(&[NAME]));
    let rules = rules(&[server.address], "tls server-name=\"app.internal\"", "");
    let with = |ca: &Authority| {
        let setup = Setup::new(&rules).file("system.crt", &ca.certificate);
        let file = setup.folder().join("system.crt").display().to_string();
        setup.variable("SSL_CERT_FILE", &file).variable("SSL_CERT_DIR", "/nowhere").start()
    };
    assert_eq!(told(&mut with(&authority).client(), "/")["sni"], NAME);
    assert_eq!(refused(&with(&Authority::new("others"))), (502, "upstream-tls".to_owned()));
}

#[test]
fn insecure_takes_anybody_and_says_so() {
    let server = TlsServer::start(&Certificate::for_names(&["whoever.test"]));
    let proxy = Setup::new(&rules(&[server.address], "tls { insecure #true; }", "")).start();
    proxy.wait_for_error("are not verified");
    assert_eq!(told(&mut proxy.client(), "/")["version"], "TLSv1.3");
    let checked = pointsman(proxy.folder(), &["check", "rules.kdl"]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(0), "{said}");
    assert!(said.contains("the servers' certificates are not verified"), "{said}");
}

#[test]
fn a_server_that_asks_for_a_certificate_is_shown_ours() {
    let (authority, for_clients) = (Authority::new("ours"), Authority::new("clients"));
    let setup = || TlsServerSetup {
        client_ca: Some(for_clients.certificate.clone()),
        requires: true,
        ..TlsServerSetup::default()
    };
    let server = setup().start(&authority.issue(&[NAME]));
    let mine = for_clients.issue_with(&["proxy.internal"], |params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "the proxy");
    });
    let tls = "tls { ca \"ca.crt\"; server-name \"app.internal\"; certificate \"mine.crt\" key=\"mine.key\"; }";
    let with = Setup::new(&rules(&[server.address], tls, "")).file("ca.crt", &authority.certificate);
    let proxy = with.certificate("mine", &mine).start();
    let mut client = proxy.client();
    assert!(told(&mut client, "/last")["subject"].as_str().unwrap().ends_with("=the proxy"));
    // A resumed session carries the certificate.
    let again = told(&mut client, "/");
    assert!(again["resumed"] == true && again["subject"].as_str().unwrap().ends_with("=the proxy"), "{again}");
    // Without one, TLS 1.3 tells of it only after the request has gone.
    let proxy = verifying(&server, &authority);
    assert_eq!(refused(&proxy), (502, "upstream-tls".to_owned()));
    proxy.wait_for_error("CertificateRequired");
}

#[test]
fn a_body_that_ends_with_the_connection_is_whole_only_where_the_server_says_so() {
    let authority = Authority::new("ours");
    let server = TlsServer::start(&authority.issue(&[NAME]));
    let proxy = verifying(&server, &authority);
    let whole = proxy.client().get("/until-close");
    assert_eq!((whole.status(), whole.is_complete(), whole.text().as_str()), (200, true, "all that there is"));
    let cut = proxy.client().get("/cut");
    assert_eq!((cut.status(), cut.is_complete()), (200, false));
    let records = proxy.wait_for_records("access.log", 2);
    assert_eq!(records[1]["reason"], "truncated");
    // An HTTP/1.0 client has nothing but the connection's end to see it by.
    let mut old = proxy.client();
    old.send("GET /cut HTTP/1.0\r\n\r\n");
    assert!(!old.response().is_complete());
}

#[test]
fn large_bodies_pass_both_ways_unchanged() {
    let authority = Authority::new("ours");
    let server = TlsServer::start(&authority.issue(&[NAME]));
    let proxy = verifying(&server, &authority);
    let expected: Vec<u8> = (0..=250).cycle().take(9_000_001).collect();
    let mut client = proxy.client();
    let answer = client.get("/bytes/9000001");
    assert!(answer.is_complete() && answer.body == expected);
    let mut client = proxy.client();
    client.send(format!("POST /echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", expected.len()));
    client.send(&expected);
    let answer = client.response();
    assert!(answer.is_complete() && answer.body == expected);
}

#[test]
fn a_tunnel_goes_through_tls() {
    let authority = Authority::new("ours");
    let server = TlsServer::start(&authority.issue(&[NAME]));
    let proxy = verifying(&server, &authority);
    let mut client = proxy.client();
    client.send("GET /tunnel HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.head().status(), 101);
    for _ in 0..3 {
        client.send("spoken softly");
        assert_eq!(client.exactly(13), b"SPOKEN SOFTLY");
    }
    client.finish_writing();
    assert_eq!(client.rest().1, crate::support::End::Closed);
}

#[test]
fn a_handshake_that_fails_has_sent_nothing_so_that_any_request_goes_elsewhere() {
    let authority = Authority::new("ours");
    let good = TlsServer::start(&authority.issue(&[NAME]));
    let stranger = TlsServer::start(&Certificate::for_names(&[NAME]));
    // It speaks no TLS: a hello is no request.
    let plain = Origin::new("plain");
    for bad in [stranger.address, plain.address] {
        let rules =
            rules(&[bad, good.address], "tls { ca \"ca.crt\"; server-name \"app.internal\"; }", "scheduler \"rr\"");
        let proxy = Setup::new(&rules).file("ca.crt", &authority.certificate).start();
        for _ in 0..2 {
            let post = "POST /echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc";
            assert_eq!(proxy.client().request(post).text(), "abc");
        }
    }
    assert!(plain.requests().is_empty());
}

#[test]
fn a_server_whose_handshakes_fail_does_not_come_back_for_taking_connections() {
    let authority = Authority::new("ours");
    let good = TlsServer::start(&authority.issue(&[NAME]));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bad = listener.local_addr().unwrap();
    let (tell, taken) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Whoever comes is sent away at once.
        while listener.accept().is_ok_and(|_| tell.send(()).is_ok()) {}
    });
    let tls = "tls { ca \"ca.crt\"; server-name \"app.internal\"; }";
    let rules = rules(&[bad, good.address], tls, "scheduler \"rr\"");
    let proxy = Setup::new(&rules).file("ca.crt", &authority.certificate).start();
    proxy.ask_until_it_says("/", "o/s0 was up and is suspect");
    // What was tried by requests is behind us.
    taken.try_iter().for_each(drop);
    (0..6).for_each(|_| taken.recv_timeout(DEADLINE).unwrap());
    let is_back = ["is up", "is recovering"].iter().any(|state| proxy.has_said(&["o/s0 was", state]));
    assert!(!is_back, "{:?}", proxy.errors());
}

#[test]
fn a_proxy_header_comes_before_tls() {
    let authority = Authority::new("ours");
    let server = TlsServerSetup { is_announced: true, ..TlsServerSetup::default() }.start(&authority.issue(&[NAME]));
    let tls = "tls { ca \"ca.crt\"; server-name \"app.internal\"; }";
    let rules = rules(&[server.address], tls, "").replace("\"http/1.1\" {", "\"http/1.1\" proxy-protocol=\"v1\" {");
    let proxy = Setup::new(&rules).file("ca.crt", &authority.certificate).start();
    let mut client = proxy.client();
    let (local, called) = (client.local.port(), proxy.address().port());
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {local} {called}");
    assert_eq!(told(&mut client, "/")["announced"], expected);
}

#[test]
fn the_connect_timeout_bounds_the_handshake() {
    let authority = Authority::new("ours");
    let silent = TlsServerSetup { is_silent: true, ..TlsServerSetup::default() }.start(&authority.issue(&[NAME]));
    let rules = rules(
        &[silent.address],
        "tls { ca \"ca.crt\"; server-name \"app.internal\"; }",
        "timeout connect=\"300ms\"\nretry count=0",
    );
    let proxy = Setup::new(&rules).file("ca.crt", &authority.certificate).start();
    assert_eq!(refused(&proxy), (504, "connect-timeout".to_owned()));
}

#[test]
fn files_that_can_not_be_used_are_errors_that_name_them() {
    let (one, other) = (Certificate::for_names(&[NAME]), Certificate::for_names(&[NAME]));
    let address = "127.0.0.1:1".parse().unwrap();
    for (tls, parts) in [
        ("tls { ca \"missing.crt\"; }", ["rules.kdl:6", "missing.crt"]),
        ("tls { ca \"one.key\"; }", ["rules.kdl:6", "one.key holds no certificate of an authority"]),
        (
            "tls { ca \"one.crt\"; certificate \"one.crt\" key=\"other.key\"; }",
            ["rules.kdl:6", "other.key does not belong to the certificate in"],
        ),
        ("tls { ca \"one.crt\"; certificate \"one.crt\" key=\"missing.key\"; }", ["rules.kdl:6", "missing.key"]),
    ] {
        let setup = Setup::new(&rules(&[address], tls, "")).certificate("one", &one).certificate("other", &other);
        for command in ["check", "run"] {
            let output = setup.run_to_end(&[command]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{command}: {said}");
            assert!(said.contains(parts[1]), "{command}: no {} in\n{said}", parts[1]);
            assert!(command == "run" || said.contains(parts[0]), "no {} in\n{said}", parts[0]);
        }
    }
}

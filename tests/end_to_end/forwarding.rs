//! Heads as they are passed on, both ways: what stays as it was sent, what goes, what comes; interim answers and trailers;
//! messages without a body.

use std::net::SocketAddr;

use crate::pools::{all_to, assert_accepted};
use crate::support::{Client, Head, Origin, Proxy};

fn answering(bytes: &'static str) -> Origin {
    Origin::with(move |exchange| {
        exchange.read_body();
        exchange.write(bytes);
    })
}

#[test]
fn order_case_and_spacing_of_fields_stay_as_they_were_sent() {
    let origin = answering(
        "HTTP/1.1 299 Odd  Reason\r\nsErver:x\r\nB:  2 \r\nSet-Cookie: a=1\r\nA: 1\r\nset-cookie: b=2\r\nContent-Length: 2\r\nE:\r\n\r\nok",
    );
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    let sent = "User-AGENT:x\r\nZ:  1 \r\naccept: */*\r\nCookie: a\r\nCOOKIE: b\r\nEmpty:\r\nz: 2\r\n";
    let answer = client.request(format!("GET /p?q HTTP/1.1\r\nHost: A.test:80\r\n{sent}\r\n"));
    let request = &origin.requests()[0].head;
    let raw = String::from_utf8(request.raw.clone()).unwrap();
    assert!(raw.starts_with(&format!("GET /p?q HTTP/1.1\r\nHost: A.test:80\r\n{sent}")), "{raw:?}");
    assert_eq!(
        String::from_utf8(answer.head.raw.clone()).unwrap(),
        "HTTP/1.1 299 Odd  Reason\r\nsErver:x\r\nB:  2 \r\nSet-Cookie: a=1\r\nA: 1\r\nset-cookie: b=2\r\nContent-Length: 2\r\nE:\r\n\r\n"
    );
}

#[test]
fn a_target_is_passed_on_as_the_client_wrote_it() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    let targets = [
        "/",
        "/a/../b/./c",
        "//a//b",
        "/%41%7e%2Fx",
        "/a%zz%",
        "/a?b?c=%20&&=",
        "/?",
        "/a;b=c/d",
        "/{x}|\"<>^`",
        "/%c3%bc",
    ];
    for target in targets {
        let answer = client.get(target);
        assert_eq!((target, answer.status()), (target, 200));
    }
    let seen: Vec<String> = origin.requests().iter().map(|request| request.head.target().to_owned()).collect();
    assert_eq!(seen, targets);
}

#[test]
pub fn an_absolute_target_becomes_a_path_and_its_authority_the_host() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.request("GET http://b.test:81/x?y HTTP/1.1\r\nHost: a.test\r\nA: 1\r\n\r\n");
    client.request("GET http://b.test HTTP/1.1\r\nA: 1\r\nHost: a.test\r\n\r\n");
    client.request("OPTIONS http://b.test HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.request("OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let seen: Vec<_> = origin.requests();
    let seen: Vec<_> = seen.iter().map(|one| (one.head.start.as_str(), one.head.field("host").unwrap())).collect();
    assert_eq!(
        seen,
        [
            ("GET /x?y HTTP/1.1", "b.test:81"),
            ("GET / HTTP/1.1", "b.test"),
            ("OPTIONS * HTTP/1.1", "b.test"),
            ("OPTIONS * HTTP/1.1", "a.test"),
        ]
    );
}

#[test]
fn fields_of_one_connection_stay_on_it_both_ways() {
    let origin = answering(
        "HTTP/1.1 200 OK\r\nConnection: X-One, keep-alive, Set-Cookie2\r\nX-One: 1\r\nX-Two: 2\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Connection: keep-alive\r\nUpgrade: h2c\r\nSet-Cookie2: a\r\nContent-Length: 2\r\n\r\nok",
    );
    let proxy = Proxy::start(&all_to([&origin], ""));
    let answer = proxy.client().request(
        "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: x-one, TE, close-not\r\nconnection: X-THREE\r\nX-One: 1\r\nX-Two: 2\r\n\
         x-three: 3\r\nKeep-Alive: 5\r\nProxy-Connection: close\r\nUpgrade: foo\r\nTE: trailers, gzip\r\nClose-Not: 1\r\n\r\n",
    );
    let names = |head: &Head| head.fields.iter().map(|(name, _)| name.to_ascii_lowercase()).collect::<Vec<_>>();
    assert_eq!(names(&answer.head), ["x-two", "content-length"]);
    let request = &origin.requests()[0].head;
    let forwarded = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "forwarded"];
    let expected = [&["host", "x-two"], forwarded.as_slice(), &["te", "connection"]].concat();
    assert_eq!(names(request), expected);
    // Only what we understand ourselves is asked of the server (RFC 9110 10.1.4).
    assert_eq!((request.field("te"), request.field("connection")), (Some("trailers"), Some("TE")));
}

#[test]
pub fn a_client_cannot_remove_host_framing_or_our_own_fields_by_naming_them_in_connection() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.request(
        "POST / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Forwarded-Proto: https\r\n\
         Connection: Host, Content-Length, X-Forwarded-For, Forwarded, X-Forwarded-Proto, Via, X-Request-Id\r\n\
         Content-Length: 4\r\n\r\nbody",
    );
    client.request(
        "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: Transfer-Encoding, Trailer\r\nTransfer-Encoding: chunked\r\n\r\n\
         4\r\nbody\r\n0\r\n\r\n",
    );
    for request in origin.requests() {
        assert_eq!((request.head.field("host"), request.body.as_slice()), (Some("a.test"), &b"body"[..]));
        assert_eq!(request.head.field("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(request.head.field("x-forwarded-proto"), Some("http"));
        assert_eq!(request.head.field("forwarded"), Some("for=127.0.0.1;host=\"a.test\";proto=http"));
    }
}

#[test]
pub fn an_upgrade_that_is_not_allowed_is_left_out_and_the_request_goes_on() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for upgrade in ["h2c", "TLS/1.2", "foo", "HTTP/2.0"] {
        let answer = client.request(format!(
            "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
        ));
        assert_eq!(answer.status(), 200);
        let head = &origin.requests().last().unwrap().head.clone();
        assert_eq!((head.field("upgrade"), head.field("http2-settings"), head.field("connection")), (None, None, None));
    }
}

#[test]
fn trailers_pass_both_ways_without_those_that_are_forbidden() {
    let trailers = "X-Sum: 1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\nHost: b\r\nAuthorization: x\r\n\
                    Set-Cookie: a=b\r\nX-Forwarded-For: 6.6.6.6\r\nTrailer: y\r\nConnection: close\r\nx-sum:  2\r\n";
    let origin = Origin::with(move |exchange| {
        exchange.read_body();
        exchange.write(format!(
            "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n4;ext=1\r\nbody\r\n0\r\n{trailers}\r\n"
        ));
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    let kept = [("X-Sum".to_owned(), "1".to_owned()), ("x-sum".to_owned(), "2".to_owned())];
    for _ in 0..2 {
        let answer = client.request(format!(
            "POST / HTTP/1.1\r\nHost: a.test\r\nTrailer: X-Sum\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
             4;ext=1\r\nbody\r\n0\r\n{trailers}\r\n"
        ));
        assert_eq!((answer.text().as_str(), answer.trailers.as_slice()), ("body", &kept[..]));
    }
    for request in origin.requests() {
        assert_eq!((request.body.as_slice(), request.trailers.as_slice()), (&b"body"[..], &kept[..]));
    }
    // A client of HTTP/1.0 can't have any: they go with the chunks.
    let mut client = proxy.client();
    let answer = client.request("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
    assert_eq!((answer.text().as_str(), answer.head.all("transfer-encoding").len()), ("body", 0));
}

#[test]
pub fn interim_answers_are_passed_on_in_order_and_never_to_http_1_0() {
    let origin = answering(
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\nLink: </b>\r\n\r\n\
         HTTP/1.1 103 Early Hints\r\nLink: </c>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for _ in 0..3 {
        let answer = client.get("/");
        let interim: Vec<_> = answer.interim.iter().map(|head| (head.status(), head.all("link"))).collect();
        assert_eq!(interim, [(102, vec![]), (103, vec!["</a>; rel=preload", "</b>"]), (103, vec!["</c>"])]);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    }
    let answer = proxy.client().request("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
    assert_eq!((answer.status(), answer.interim.len(), answer.text().as_str()), (200, 0, "ok"));
    assert_accepted(&origin, 1);
}

#[test]
pub fn an_interim_answer_reaches_the_client_before_the_server_goes_on() {
    let gate = std::sync::Arc::new(crate::support::deadline::Gate::default());
    let opened = std::sync::Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        exchange.write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        opened.wait();
        exchange.respond(200, &[], b"ok");
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.head().status(), 103);
    gate.open();
    assert_eq!(client.response().status(), 200);
}

#[test]
pub fn sixteen_interim_answers_pass_and_one_more_is_502() {
    for (count, status) in [(16, 200), (17, 502)] {
        let origin = Origin::with(move |exchange| {
            let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(count);
            exchange.write(format!("{interim}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
        });
        let proxy = Proxy::start(&all_to([&origin], ""));
        let answer = proxy.client().get("/");
        assert_eq!((answer.interim.len(), answer.status()), (16, status));
        // It is not the request's fault, and it is not sent again.
        assert_eq!(origin.requests().len(), 1);
    }
}

/// The client waits for leave to send; the origin gives it once or twice, and answers.
#[test]
pub fn a_client_that_expects_100_gets_exactly_one_and_then_its_answer() {
    for leaves in [1, 2, 3] {
        let origin = Origin::with(move |exchange| {
            exchange.write("HTTP/1.1 100 Continue\r\n\r\n".repeat(leaves));
            exchange.read_body();
            exchange.respond(201, &[], b"made");
        });
        let proxy = Proxy::start(&all_to([&origin], ""));
        let mut client = proxy.client();
        for framing in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
            client.send(format!("POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\n{framing}\r\n\r\n"));
            assert_eq!(client.head().status(), 100);
            if framing.starts_with('T') {
                client.send("f4240\r\n");
            }
            client.send(vec![b'x'; 1_000_000]);
            if framing.starts_with('T') {
                client.send("\r\n0\r\n\r\n");
            }
            let answer = client.response();
            assert_eq!((answer.interim.len(), answer.status(), answer.text().as_str()), (0, 201, "made"));
        }
        let requests = origin.requests();
        assert!(requests.iter().all(|request| request.is_complete && request.body_length == 1_000_000));
        assert!(requests.iter().all(|request| request.head.field("expect") == Some("100-continue")));
        assert_eq!(requests.len(), 2);
    }
}

#[test]
pub fn a_final_answer_in_place_of_100_ends_the_connection_for_the_body_may_never_come() {
    let origin = Origin::with(|exchange| {
        exchange.respond(401, &[], b"no");
        exchange.wait_for_end();
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 60\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.status(), answer.field("connection"), answer.text().as_str()), (401, Some("close"), "no"));
    client.send("GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.finish_writing();
    client.end();
    crate::support::wait_for("the server's connection to end", crate::support::DEADLINE, || {
        (origin.open_connections() == 0).then_some(())
    });
    assert_eq!(origin.requests().len(), 1);
}

#[test]
pub fn answers_without_a_body_leave_the_connection_where_the_next_begins() {
    let origin = Origin::with(|exchange| {
        let answer = match exchange.head.target() {
            "/204" => "HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n",
            "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: \"x\"\r\n\r\n",
            "/304c" => "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
            "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
            "/headc" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "/headu" => "HTTP/1.1 200 OK\r\n\r\n",
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        };
        exchange.write(answer);
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for (method, target, status, length) in [
        ("GET", "/204", 204, None),
        ("GET", "/304", 304, Some("500")),
        ("GET", "/304c", 304, None),
        ("HEAD", "/head", 200, Some("500")),
        ("HEAD", "/headc", 200, None),
        ("HEAD", "/headu", 200, None),
        ("HEAD", "/304", 304, Some("500")),
        ("GET", "/empty", 200, Some("0")),
        ("POST", "/empty", 200, Some("0")),
    ] {
        let answer = client.request(format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        let seen = (answer.status(), answer.field("content-length"), answer.body.len());
        assert_eq!((method, target, seen), (method, target, (status, length, 0)));
    }
    assert_accepted(&origin, 1);
}

#[test]
pub fn pipelined_requests_are_answered_in_order_whatever_their_bodies() {
    let origin = Origin::with(|exchange| {
        exchange.read_body();
        let target = exchange.head.target().to_owned();
        exchange.respond(200, &[], target.as_bytes());
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    let mut sent = String::new();
    for number in 0..100 {
        sent.push_str(&match number % 3 {
            0 => format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\n\r\n"),
            1 => format!("POST /{number} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5000\r\n\r\n{}", "x".repeat(5000)),
            _ => format!(
                "PUT /{number} HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            ),
        });
    }
    client.send(&sent);
    for number in 0..100 {
        assert_eq!(client.response().text(), format!("/{number}"));
    }
    assert_accepted(&origin, 1);
}

#[test]
pub fn a_client_of_http_1_0_keeps_its_connection_where_it_asks_and_the_length_is_known() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    for _ in 0..3 {
        let answer = client.request("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        assert_eq!((answer.text().as_str(), answer.field("connection")), ("one", Some("keep-alive")));
    }
    let answer = client.request("GET / HTTP/1.0\r\n\r\n");
    assert_eq!((answer.text().as_str(), answer.field("connection")), ("one", Some("close")));
    client.end();
    // To the server it is an ordinary request of HTTP/1.1, to the address that the client has called.
    let head = &origin.requests()[0].head.clone();
    assert_eq!((head.start.as_str(), head.field("connection")), ("GET / HTTP/1.1", None));
    assert_eq!(head.field("host"), Some(proxy.address().to_string().as_str()));
}

#[test]
fn via_is_signed_both_ways_unless_it_is_switched_off() {
    let origin = answering("HTTP/1.1 200 OK\r\nVia: 1.1 cache\r\nContent-Length: 0\r\n\r\n");
    let rules = all_to([&origin], "").replace("via \"off\"", "");
    let answer = Proxy::start(&rules).client().request("GET / HTTP/1.1\r\nHost: a.test\r\nVia: 1.0 fred\r\n\r\n");
    assert_eq!(answer.head.all("via"), ["1.1 cache", "1.1 pointsman"]);
    assert_eq!(origin.requests()[0].head.all("via"), ["1.0 fred", "1.1 pointsman"]);
}

/// Heads larger than any buffer, both ways, and a body behind each.
#[test]
pub fn large_heads_pass_both_ways_up_to_64_kib() {
    let fields = |bytes: usize| format!("X-Large: {}\r\n", "x".repeat(7980)).repeat(bytes / 8000);
    let answer_fields = fields(60_000);
    let origin = Origin::with(move |exchange| {
        exchange.read_body();
        if exchange.head.target() == "/interim" {
            exchange.write(format!("HTTP/1.1 103 Early Hints\r\n{answer_fields}\r\n"));
        }
        let fields = if exchange.head.target() == "/larger" { answer_fields.repeat(2) } else { answer_fields.clone() };
        exchange.write(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 50000\r\n\r\n{}", "y".repeat(50_000)));
    });
    let proxy = Proxy::start(&all_to([&origin], "retry count=0"));
    let mut client = proxy.client();
    for target in ["/", "/interim", "/"] {
        let answer = client.request(format!(
            "POST {target} HTTP/1.1\r\nHost: a.test\r\n{}Content-Length: 50000\r\n\r\n{}",
            fields(60_000),
            "z".repeat(50_000)
        ));
        assert_eq!((answer.status(), answer.head.all("x-large").len(), answer.body.len()), (200, 7, 50_000));
        assert!(answer.interim.iter().all(|head| head.all("x-large").len() == 7));
        let requests = origin.requests();
        let request = requests.last().unwrap();
        assert_eq!((request.head.all("x-large").len(), request.body_length), (7, 50_000));
    }
    assert_eq!(client.get("/larger").status(), 502);
    assert_eq!(client.get("/").status(), 200);
}

#[test]
fn a_request_without_a_host_to_a_listener_for_all_addresses_gets_the_address_that_was_called() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], "").replace("127.0.0.1:0\" { via", "0.0.0.0:0\" { via"));
    let called = SocketAddr::from(([127, 0, 0, 1], proxy.address().port()));
    assert_eq!(Client::connect(called).request("GET / HTTP/1.0\r\n\r\n").status(), 200);
    assert_eq!(origin.requests()[0].head.all("host"), [called.to_string()]);
}

#[test]
pub fn an_absolute_target_with_a_query_and_no_path_asks_for_the_root() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(
        &all_to([&origin], "").replace("rule use=\"p\"", "rule path=\"/\" use=\"p\" { query \"q\" \"1\" }"),
    );
    let answer = proxy.client().request("GET http://a.test?q=1 HTTP/1.1\r\nHost: b.test\r\n\r\n");
    assert_eq!(answer.status(), 200);
    let head = &origin.requests()[0].head;
    assert_eq!((head.target(), head.all("host")), ("/?q=1", vec!["a.test"]));
}

#[test]
fn options_and_trace_go_no_further_than_max_forwards_says() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    let mut ask = |method: &str, field: &str| {
        let before = origin.requests().len();
        let answer = client.request(format!("{method} / HTTP/1.1\r\nHost: a.test\r\n{field}\r\n"));
        let requests = origin.requests();
        let sent = requests.get(before).map(|request| request.head.all("max-forwards").join("|"));
        (answer.status(), sent)
    };
    assert_eq!(ask("OPTIONS", "Max-Forwards: 0\r\n"), (204, None));
    assert_eq!(ask("TRACE", "max-forwards: 00\r\n"), (501, None));
    for method in ["OPTIONS", "TRACE"] {
        assert_eq!(ask(method, "Max-Forwards: 1\r\n"), (200, Some("0".to_owned())));
        assert_eq!(ask(method, "Max-Forwards: 7\r\nMax-Forwards: 3\r\n"), (200, Some("2".to_owned())));
        assert_eq!(ask(method, "Max-Forwards: 99999999999\r\n"), (200, Some("4294967294".to_owned())));
        assert_eq!(ask(method, "Max-Forwards: many\r\n"), (200, Some("many".to_owned())));
        assert_eq!(ask(method, ""), (200, Some(String::new())));
    }
    assert_eq!(ask("GET", "Max-Forwards: 0\r\n"), (200, Some("0".to_owned())));
    let records = proxy.wait_for_records("access.log", 2);
    assert!(records[..2].iter().all(|record| record["reason"] == "max-forwards"), "{records:?}");
}

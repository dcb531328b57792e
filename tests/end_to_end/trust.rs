//! Who a client is and what servers are told of it: forwarding fields of strangers are replaced, those of trusted proxies
//! continued, and nobody can take ours away.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::support::client::Options;
use crate::support::{Client, Head, Origin, Proxy};

/// One listener with these settings, and rules that send everything to `origin` but the clients of 203.0.113.0/24.
fn proxy(settings: &str, origin: &Origin) -> Proxy {
    Proxy::start(&format!(
        "listen \"127.0.0.1:0\" {{ {settings} }}\nworkers 1\npool \"o\" {{ server \"o1\" \"{}\"; }}\n\
         rule client=\"203.0.113.0/24\" respond=403\nrule use=\"o\"\naccess-log \"access.log\"\n",
        origin.address
    ))
}

const TRUSTED: &str = "trusted-proxies \"127.0.0.1\" \"10.0.0.0/8\" \"2001:db8::/32\"";

/// Sends a request with these field lines, and gives back its answer's status and, where it got there, what the server saw.
fn pass(client: &mut Client, origin: &Origin, fields: &str) -> (u16, Option<Head>) {
    let before = origin.requests().len();
    let status = client.request(format!("GET / HTTP/1.1\r\nHost: a.test:81\r\n{fields}\r\n")).status();
    (status, origin.requests().get(before).map(|request| request.head.clone()))
}

/// What the server saw of a request with these field lines.
fn seen(client: &mut Client, origin: &Origin, fields: &str) -> Head {
    pass(client, origin, fields).1.unwrap()
}

const FORGED: &str = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.test\r\n\
                      X-Forwarded-Port: 1\r\nForwarded: for=203.0.113.9;proto=https\r\n";

/// Every forwarding field is there once, and says what this connection shows.
fn assert_ours(head: &Head, proxy: &Proxy) {
    assert_eq!(head.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(head.all("x-forwarded-proto"), ["http"]);
    assert_eq!(head.all("x-forwarded-host"), ["a.test:81"]);
    assert_eq!(head.all("x-forwarded-port"), [proxy.address().port().to_string().as_str()]);
    assert_eq!(head.all("forwarded"), ["for=127.0.0.1;host=\"a.test:81\";proto=http"]);
}

#[test]
fn what_a_stranger_says_of_its_origin_is_replaced() {
    let origin = Origin::new("one");
    let proxy = proxy("", &origin);
    let mut client = proxy.client();
    for fields in ["", FORGED, &FORGED.repeat(3), &FORGED.to_uppercase()] {
        assert_ours(&seen(&mut client, &origin, fields), &proxy);
    }
    let records = proxy.wait_for_records("access.log", 4);
    assert!(records.iter().all(|record| record["client"] == "127.0.0.1" && record["status"] == 200), "{records:?}");
}

#[test]
fn no_client_takes_our_fields_away_by_naming_them_in_connection() {
    let origin = Origin::new("one");
    let names =
        "Connection: X-Forwarded-For, x-forwarded-proto, X-Forwarded-Host, X-Forwarded-Port, Forwarded, Via, Host\r\n";
    let strict = proxy("", &origin);
    let mut client = strict.client();
    for fields in [names.to_owned(), format!("{names}{FORGED}"), format!("{FORGED}{names}")] {
        let head = seen(&mut client, &origin, &fields);
        assert_ours(&head, &strict);
        assert_eq!((head.field("host"), head.field("via")), (Some("a.test:81"), Some("1.1 pointsman")));
        assert_eq!(head.field("connection"), None);
    }
    // Not even what a trusted proxy says of its clients.
    let trusting = proxy(TRUSTED, &origin);
    let mut client = trusting.client();
    let head = seen(&mut client, &origin, names);
    assert_ours(&head, &trusting);
    let from = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n";
    let head = seen(&mut client, &origin, &format!("{names}{from}"));
    assert_eq!(head.all("x-forwarded-for"), ["192.0.2.1, 127.0.0.1"]);
    assert_eq!(head.all("x-forwarded-proto"), ["https"]);
}

#[test]
fn what_a_trusted_proxy_says_is_continued() {
    let origin = Origin::new("one");
    let proxy = proxy(TRUSTED, &origin);
    let mut client = proxy.client();
    assert_ours(&seen(&mut client, &origin, ""), &proxy);
    let said = "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b.test\r\n\
                X-Forwarded-Port: 443\r\nForwarded: for=198.51.100.7;proto=https\r\nX-Forwarded-For: 10.1.2.3\r\n";
    let head = seen(&mut client, &origin, said);
    assert_eq!(head.all("x-forwarded-for"), ["198.51.100.7, 10.1.2.3, 127.0.0.1"]);
    assert_eq!(head.all("x-forwarded-proto"), ["https"]);
    assert_eq!(head.all("x-forwarded-host"), ["b.test"]);
    assert_eq!(head.all("x-forwarded-port"), ["443"]);
    let ours = "for=127.0.0.1;host=\"a.test:81\";proto=http";
    assert_eq!(head.all("forwarded"), [format!("for=198.51.100.7;proto=https, {ours}").as_str()]);
    // An empty list has no elements.
    let head = seen(&mut client, &origin, "X-Forwarded-For: \r\nForwarded:\r\n");
    assert_eq!((head.all("x-forwarded-for"), head.all("forwarded")), (vec!["127.0.0.1"], vec![ours]));
}

#[test]
fn trust_is_a_matter_of_the_peers_address() {
    let origin = Origin::new("one");
    let proxy = proxy("trusted-proxies \"127.0.0.9\"", &origin);
    let mut stranger = proxy.client();
    assert_ours(&seen(&mut stranger, &origin, FORGED), &proxy);
    let from = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)));
    let mut friend = Options { from, ..Options::default() }.connect(proxy.address());
    assert_eq!(pass(&mut friend, &origin, FORGED).0, 403);
    let head = seen(&mut friend, &origin, "X-Forwarded-For: 198.51.100.7\r\n");
    assert_eq!(head.all("x-forwarded-for"), ["198.51.100.7, 127.0.0.9"]);
}

#[test]
fn an_ipv4_peer_of_a_socket_for_both_families_is_trusted_as_one() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&format!(
        "listen \"[::]:0\" {{ trusted-proxies \"127.0.0.1\"; }}\npool \"o\" {{ server \"o1\" \"{}\"; }}\nrule use=\"o\"\n",
        origin.address
    ));
    let port = proxy.address().port();
    for (peer, chain) in [("127.0.0.1", "198.51.100.7, 127.0.0.1"), ("::1", "::1")] {
        let mut client = Client::connect(SocketAddr::new(peer.parse().unwrap(), port));
        let head = seen(&mut client, &origin, "X-Forwarded-For: 198.51.100.7\r\n");
        assert_eq!(head.all("x-forwarded-for"), [chain]);
        // The other family tells the same chain.
        let told = if peer == "::1" { "for=\"[::1]\";" } else { "for=198.51.100.7, for=127.0.0.1;" };
        assert!(head.field("forwarded").unwrap().starts_with(told), "{:?}", head.fields);
    }
}

#[test]
fn the_client_of_rules_and_logs_is_the_rightmost_untrusted_address() {
    let origin = Origin::new("one");
    let proxy = proxy(TRUSTED, &origin);
    let mut client = proxy.client();
    let cases = [
        ("", 200, "127.0.0.1"),
        ("X-Forwarded-For: 203.0.113.9\r\n", 403, "203.0.113.9"),
        ("X-Forwarded-For: 203.0.113.9, 10.0.0.1\r\n", 403, "203.0.113.9"),
        ("X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 10.0.0.1\r\n", 403, "203.0.113.9"),
        // Left of the first stranger stands what the stranger says.
        ("X-Forwarded-For: 203.0.113.9, 198.51.100.7\r\n", 200, "198.51.100.7"),
        ("X-Forwarded-For: 203.0.113.9, unknown, 10.0.0.1\r\n", 200, "10.0.0.1"),
        ("X-Forwarded-For: 203.0.113.9:4711,[2001:db8::1]:80\r\n", 403, "203.0.113.9"),
        ("X-Forwarded-For: [2001:db9::1]:80\r\n", 200, "2001:db9::1"),
        ("X-Forwarded-For: ::ffff:203.0.113.9\r\n", 403, "203.0.113.9"),
        ("X-Forwarded-For: 10.0.0.2, 10.0.0.1\r\n", 200, "10.0.0.2"),
        ("Forwarded: for=203.0.113.9\r\n", 403, "203.0.113.9"),
        ("Forwarded: proto=https;For=\"203.0.113.9:81\", for=10.0.0.1\r\n", 403, "203.0.113.9"),
        ("Forwarded: for=203.0.113.9, for=_hidden\r\n", 200, "127.0.0.1"),
        ("Forwarded: for=203.0.113.9\r\nX-Forwarded-For: 198.51.100.7\r\n", 200, "198.51.100.7"),
    ];
    for (fields, status, _) in cases {
        assert_eq!(pass(&mut client, &origin, fields).0, status, "{fields:?}");
    }
    let records = proxy.wait_for_records("access.log", cases.len());
    for ((fields, status, address), record) in cases.iter().zip(records) {
        assert_eq!(
            (record["client"].as_str(), record["status"].as_u64()),
            (Some(*address), Some(u64::from(*status))),
            "{fields:?}"
        );
    }
}

#[test]
fn via_is_added_in_both_directions_unless_it_is_off() {
    let origin = Origin::with(|exchange| {
        exchange.respond(200, &[("Via", "1.0 cache")], b"one");
    });
    for (settings, of_request, of_answer, behind_others) in [
        ("", vec!["1.1 pointsman"], vec!["1.0 cache", "1.1 pointsman"], vec!["1.1 edge", "1.1 pointsman"]),
        ("via \"off\"", vec![], vec!["1.0 cache"], vec!["1.1 edge"]),
    ] {
        let proxy = proxy(settings, &origin);
        let mut client = proxy.client();
        let answer = client.get("/");
        assert_eq!(answer.head.all("via"), of_answer);
        assert_eq!(origin.requests().last().unwrap().head.all("via"), of_request);
        assert_eq!(seen(&mut client, &origin, "Via: 1.1 edge\r\n").all("via"), behind_others);
    }
    let proxy = proxy("", &origin);
    proxy.client().request("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
    assert_eq!(origin.requests().last().unwrap().head.all("via"), ["1.0 pointsman"]);
}

#[test]
fn a_request_id_is_kept_or_made_where_it_is_wanted() {
    let origin = Origin::new("one");
    let proxy = proxy("request-id #true", &origin);
    let mut client = proxy.client();
    assert_eq!(seen(&mut client, &origin, "X-Request-Id: abc-1\r\n").all("x-request-id"), ["abc-1"]);
    let mut made: Vec<String> = Vec::new();
    for fields in ["", "", "X-Request-Id:\r\n", "X-Request-Id: \r\n"] {
        let head = seen(&mut client, &origin, fields);
        let id = head.all("x-request-id");
        assert_eq!(id.len(), 1, "{:?}", head.fields);
        assert!(id[0].len() >= 16 && id[0].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{id:?}");
        assert!(!made.contains(&id[0].to_owned()), "{made:?}");
        made.push(id[0].to_owned());
    }
    let records = proxy.wait_for_records("access.log", 5);
    let logged: Vec<&str> = records.iter().filter_map(|record| record["request_id"].as_str()).collect();
    assert_eq!(logged, [&["abc-1".to_owned()], made.as_slice()].concat());
}

#[test]
fn a_request_id_passes_as_it_is_and_none_is_made_where_that_is_off() {
    let origin = Origin::new("one");
    let proxy = proxy("", &origin);
    let mut client = proxy.client();
    assert_eq!(seen(&mut client, &origin, "X-Request-Id: abc-1\r\n").all("x-request-id"), ["abc-1"]);
    assert_eq!(seen(&mut client, &origin, "").all("x-request-id"), Vec::<&str>::new());
}

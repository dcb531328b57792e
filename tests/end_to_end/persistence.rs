//! Persistence: clients stay with their servers by a sealed cookie, the application's own, a field, the address or the TLS
//! session; what survives a restart, and who moves when a server goes.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::Request;
use pointsman::base::time::{UnixTime, wall_clock};
use pointsman::pure::persistence::token::{PoolTag, ServerTag};
use pointsman::shared::cookie_sealer::CookieSealer;
use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};

use crate::h2;
use crate::pools::{Server, all_to};
use crate::support::client::Options;
use crate::support::tls::{Certificate, client_config};
use crate::support::{Client, DEADLINE, Origin, Proxy, Response, Setup, pointsman, wait_for};

const SECRET: &[u8] = b"a secret of at least 32 bytes, as it has to be";

/// Three origins that say their names.
fn origins() -> [Origin; 3] {
    ["o1", "o2", "o3"].map(Origin::new)
}

/// A proxy in front of these servers with `lines` in its pool and a secret.
fn node(servers: impl IntoIterator<Item = impl Into<Server>>, lines: &str) -> Proxy {
    let rules = format!("secret file=\"secret\"\n{}", all_to(servers, lines));
    Setup::new(&rules).file("secret", SECRET).start()
}

/// The answer to a GET with these fields.
fn get(client: &mut Client, path: &str, fields: &[(&str, &str)]) -> Response {
    let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    client.request(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n"))
}

fn name_of(answer: &Response) -> String {
    assert_eq!(answer.status(), 200);
    answer.field("x-origin").unwrap().to_owned()
}

/// The cookie `N=..` that an answer brings.
fn cookie_of(answer: &Response) -> Option<String> {
    let lines = answer.head.all("set-cookie");
    let line = lines.iter().find(|line| line.starts_with("N="))?;
    Some(line.split(';').next().unwrap().to_owned())
}

fn with_cookie(client: &mut Client, cookie: &str) -> Response {
    get(client, "/", &[("Cookie", cookie)])
}

/// A token of this secret for the server `name` of the pool `p`, made `age` seconds ago.
fn token(secret: &[u8], name: &str, age: u64) -> String {
    let made = UnixTime(UnixTime::of(wall_clock()).0 - age);
    let token = CookieSealer::new(secret).seal(PoolTag::of("p"), ServerTag::of(name), made).unwrap();
    format!("N={}", std::str::from_utf8(&token).unwrap())
}

#[test]
pub fn a_cookie_keeps_its_client_and_tells_nothing() {
    let origins = origins();
    let proxy = node(&origins, "persist cookie=\"N\" ttl=\"8h\"");
    let mut client = proxy.client();
    for _ in 0..6 {
        let first = client.get("/");
        let line = first.head.all("set-cookie")[0].to_owned();
        assert!(line.ends_with("; Path=/; Max-Age=28800; HttpOnly; SameSite=Lax"), "{line}");
        let cookie = cookie_of(&first).unwrap();
        assert_eq!(cookie.len(), 66, "always as long");
        for _ in 0..4 {
            let again = with_cookie(&mut client, &format!("a=b; {cookie}"));
            assert_eq!((name_of(&again), cookie_of(&again)), (name_of(&first), None));
        }
    }
    let seen = origins.iter().filter(|origin| !origin.requests().is_empty()).count();
    assert_eq!(seen, 3, "new clients are spread as ever");
}

#[test]
fn the_application_keeps_its_own_cookies_and_rules_their_changes() {
    let origin = Origin::with(|exchange| {
        exchange.respond(200, &[("Set-Cookie", "S=1"), ("X-Origin", "o1")], b"");
    });
    let proxy =
        node([&origin], "persist cookie=\"N\" domain=\"a.test\" path=\"/app\" same-site=\"none\" http-only=#false");
    let answer = proxy.client().get("/");
    let lines = answer.head.all("set-cookie");
    assert_eq!((lines.len(), lines[0]), (2, "S=1"));
    assert!(lines[1].ends_with("; Path=/app; Domain=a.test; Max-Age=28800; SameSite=None; Secure"), "{}", lines[1]);
}

#[test]
fn what_is_no_cookie_of_ours_is_absent_and_replaced() {
    let origins = origins();
    let proxy = node(&origins, "persist cookie=\"N\" ttl=\"8h\"");
    let mut client = proxy.client();
    let good = cookie_of(&client.get("/")).unwrap();
    let mut forged = good.clone().into_bytes();
    forged[40] = if forged[40] == b'A' { b'B' } else { b'A' };
    let foreign_pool = {
        let made = UnixTime::of(wall_clock());
        let token = CookieSealer::new(SECRET).seal(PoolTag::of("q"), ServerTag::of("o1"), made).unwrap();
        format!("N={}", std::str::from_utf8(&token).unwrap())
    };
    let bad = [
        String::from_utf8(forged).unwrap(),
        good[..good.len() - 1].to_owned(),
        "N=".to_owned(),
        "N=o1".to_owned(),
        token(b"a foreign secret of at least 32 bytes too", "o1", 0),
        token(SECRET, "o1", 8 * 3600),
        token(SECRET, "gone", 0),
        foreign_pool,
    ];
    for cookie in bad {
        let answer = with_cookie(&mut client, &cookie);
        assert_eq!(answer.status(), 200);
        let new = cookie_of(&answer).unwrap_or_else(|| panic!("{cookie} is not replaced"));
        assert_eq!(name_of(&with_cookie(&mut client, &new)), name_of(&answer));
    }
}

#[test]
fn a_cookie_is_renewed_at_half_its_life() {
    let origins = origins();
    let proxy = node(&origins, "persist cookie=\"N\" ttl=\"8h\"");
    let mut client = proxy.client();
    for (age, is_renewed) in [(3 * 3600, false), (5 * 3600, true)] {
        let answer = with_cookie(&mut client, &token(SECRET, "o2", age));
        assert_eq!((name_of(&answer).as_str(), cookie_of(&answer).is_some()), ("o2", is_renewed));
    }
}

#[test]
pub fn hidden_the_cookie_does_not_reach_the_server() {
    let origin = Origin::new("o1");
    for (lines, seen) in [("hide=#true", "a=b; c=d"), ("", "a=b; N=1; c=d")] {
        let proxy = node([&origin], &format!("persist cookie=\"N\" {lines}"));
        get(&mut proxy.client(), "/", &[("Cookie", "a=b; N=1; c=d")]);
        assert_eq!(origin.requests().last().unwrap().head.all("cookie"), [seen]);
    }
    let proxy = node([&origin], "persist cookie=\"N\" hide=#true");
    get(&mut proxy.client(), "/", &[("Cookie", "N=1")]);
    assert!(origin.requests().last().unwrap().head.all("cookie").is_empty());
}

#[test]
pub fn a_websocket_gets_its_cookie_with_the_101() {
    let origin = |name: &'static str| {
        Origin::with(move |exchange| {
            let accept = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
            exchange.write(format!("{accept}X-Origin: {name}\r\n\r\n"));
            exchange.close();
        })
    };
    let origins = ["o1", "o2", "o3"].map(origin);
    let proxy = node(&origins, "persist cookie=\"N\"");
    let open = |cookie: &str| {
        let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n";
        let mut client = proxy.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: a.test\r\n{fields}Cookie: {cookie}\r\n\r\n"));
        let head = client.head();
        assert_eq!(head.status(), 101);
        (head.field("x-origin").unwrap().to_owned(), head.field("set-cookie").map(str::to_owned))
    };
    for _ in 0..3 {
        let (first, line) = open("a=b");
        let line = line.unwrap();
        let cookie = line.split(';').next().unwrap();
        for _ in 0..3 {
            assert_eq!(open(cookie), (first.clone(), None));
        }
    }
}

#[test]
fn over_http2_a_cookie_keeps_its_client_too() {
    let origins = origins();
    let rules = all_to(&origins, "persist cookie=\"N\" hide=#true");
    let rules = rules.replacen("via \"off\"", "via \"off\"; protocols \"h2c\"", 1);
    let proxy = Setup::new(&format!("secret file=\"secret\"\n{rules}")).file("secret", SECRET).start();
    h2::run(async {
        let mut client = h2::connect(proxy.address()).await;
        for _ in 0..6 {
            let (head, name) = h2::get(&mut client, "/").await.unwrap();
            let line = head.headers()["set-cookie"].to_str().unwrap().to_owned();
            let cookie = line.split(';').next().unwrap();
            for _ in 0..3 {
                // In crumbs, as clients of HTTP/2 may send them.
                let request = Request::get("http://a.test/").header("cookie", "a=b").header("cookie", cookie);
                let (again, body, _) = h2::send(&mut client, request.body(()).unwrap(), &[], None).await.unwrap();
                assert_eq!((&body, again.headers().get("set-cookie")), (&name, None));
            }
        }
    });
    let cookies: Vec<_> = origins.iter().flat_map(Origin::requests).map(|r| r.head.all("cookie").join("|")).collect();
    assert!(cookies.iter().all(|cookie| cookie.is_empty() || cookie == "a=b"), "{cookies:?}");
}

/// A thousand clients with cookies, each asked once over HTTP/1.1 or HTTP/2: the server that it got, and the cookie that it has
/// from now on.
fn ask_all(proxy: &Proxy, clients: &mut [(String, Option<String>)]) -> usize {
    let mut moved = 0;
    let (over_h1, over_h2) = clients.split_at_mut(500);
    let mut connection = Client::connect(proxy.addresses[0]);
    for (server, cookie) in over_h1 {
        let fields: Vec<_> = cookie.iter().map(|cookie| ("Cookie", cookie.as_str())).collect();
        let answer = get(&mut connection, "/", &fields);
        moved += usize::from(cookie_of(&answer).is_some());
        *server = name_of(&answer);
        *cookie = cookie_of(&answer).or_else(|| cookie.take());
    }
    h2::run(async {
        let mut connection = h2::connect(proxy.addresses[1]).await;
        for (server, cookie) in over_h2 {
            let request = Request::get("http://a.test/").header("cookie", cookie.as_deref().unwrap_or("none=1"));
            let (head, body, _) = h2::send(&mut connection, request.body(()).unwrap(), &[], None).await.unwrap();
            assert_eq!(head.status(), 200);
            *server = String::from_utf8(body).unwrap();
            if let Some(line) = head.headers().get("set-cookie") {
                moved += 1;
                *cookie = Some(line.to_str().unwrap().split(';').next().unwrap().to_owned());
            }
        }
    });
    moved
}

#[test]
fn a_thousand_clients_keep_their_servers_over_restarts_nodes_drains_and_deaths() {
    let origins = origins();
    let start = |servers: Vec<Server>| {
        let rules = all_to(servers, "persist cookie=\"N\"");
        let rules = format!("secret file=\"secret\"\nlisten \"127.0.0.1:0\" {{ protocols \"h2c\"; }}\n{rules}");
        // The plain listener is the first.
        let mut lines: Vec<&str> = rules.lines().collect();
        let plain = lines.iter().position(|line| line.contains("via")).unwrap();
        let line = lines.remove(plain);
        lines.insert(0, line);
        Setup::new(&lines.join("\n")).file("secret", SECRET).start()
    };
    let all = || origins.iter().map(Server::from).collect::<Vec<_>>();
    let mut clients = vec![(String::new(), None); 1000];
    let first = start(all());
    assert_eq!(ask_all(&first, &mut clients), 1000);
    let belongs: Vec<String> = clients.iter().map(|(server, _)| server.clone()).collect();
    let of = |name: &str| belongs.iter().filter(|server| *server == name).count();
    assert!(["o1", "o2", "o3"].iter().all(|name| (320..350).contains(&of(name))));
    let stay = |clients: &[(String, Option<String>)], but: &str| {
        let kept = |((server, _), before): (&(String, Option<String>), &String)| server == before || before == but;
        assert!(clients.iter().zip(&belongs).all(kept));
    };
    // A second node, then a restart of the first.
    let second = start(all());
    assert_eq!(ask_all(&second, &mut clients), 0);
    drop(first);
    let first = start(all());
    assert_eq!(ask_all(&first, &mut clients), 0);
    stay(&clients, "");
    // One server gets no new clients, and keeps its own.
    let drained = start(vec![Server::with(&origins[0], "weight=0"), (&origins[1]).into(), (&origins[2]).into()]);
    assert_eq!(ask_all(&drained, &mut clients), 0);
    stay(&clients, "");
    let mut new = vec![(String::new(), None); 1000];
    assert_eq!(ask_all(&drained, &mut new), 1000);
    assert!(new.iter().all(|(server, _)| server != "o1"));
    // One server dies. As long as it is only suspected its clients keep it; when it is down each moves once.
    origins[1].stop();
    let sample = clients.iter().find(|(server, _)| server == "o2").unwrap().1.clone().unwrap();
    let mut connection = second.client();
    wait_for("the dead server to be given up", DEADLINE, || {
        let answer = with_cookie(&mut connection, &sample);
        assert_ne!(name_of(&answer), "o2");
        cookie_of(&answer).map(|_| ())
    });
    assert_eq!(ask_all(&second, &mut clients), of("o2"), "each of its clients, and nobody else");
    stay(&clients, "o2");
    assert!(clients.iter().all(|(server, _)| server != "o2"));
    let moved: Vec<String> = clients.iter().map(|(server, _)| server.clone()).collect();
    assert_eq!(ask_all(&second, &mut clients), 0);
    assert!(clients.iter().zip(&moved).all(|((server, _), before)| server == before));
}

#[test]
fn a_suspected_servers_clients_are_served_elsewhere_and_come_back() {
    let origins = origins();
    let proxy = node(&origins, "persist cookie=\"N\"");
    let mut client = proxy.client();
    let cookie = token(SECRET, "o1", 0);
    assert_eq!(name_of(&with_cookie(&mut client, &cookie)), "o1");
    origins[0].stop();
    // The first failures are no proof: nobody moves, and the request is repeated elsewhere.
    let answer = with_cookie(&mut client, &cookie);
    assert_ne!(name_of(&answer), "o1");
    assert_eq!(cookie_of(&answer), None);
    origins[0].start();
    wait_for("its own server to get the client again", DEADLINE, || {
        let answer = with_cookie(&mut client, &cookie);
        // Where control was quicker and has given the server up, the client has moved, which is right as well.
        (name_of(&answer) == "o1" || cookie_of(&answer).is_some()).then_some(())
    });
}

#[test]
fn two_first_requests_of_one_client_get_the_same_server() {
    let origins = origins();
    let rules = all_to(&origins, "persist header=\"X-User\" ttl=\"5m\"").replacen("workers 1", "workers 2", 1);
    let proxy = Proxy::start(&rules);
    let mut clients: Vec<Client> = (0..4).map(|_| proxy.client()).collect();
    let mut got: HashMap<String, usize> = HashMap::new();
    for user in 0..60 {
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-User: u{user}\r\n\r\n");
        clients.iter_mut().for_each(|client| client.send(&request));
        let names: Vec<String> = clients.iter_mut().map(|client| name_of(&client.response())).collect();
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
        *got.entry(names[0].clone()).or_default() += 1;
    }
    assert_eq!(got.len(), 3, "{got:?}");
    // Requests without the field are nobody's.
    let nobody: Vec<String> = (0..6).map(|_| name_of(&clients[0].get("/"))).collect();
    assert!(nobody.iter().any(|name| *name != nobody[0]));
}

#[test]
pub fn the_applications_cookie_is_learned_and_found_in_cookie_and_path() {
    let origin = |name: &'static str| {
        Origin::with(move |exchange| {
            exchange.read_body();
            let session = format!("JSESSIONID={name}-{}; Path=/", exchange.head.target().len());
            let given = exchange.head.target().starts_with("/login").then_some(("Set-Cookie", session.as_str()));
            let fields: Vec<_> = given.into_iter().chain([("X-Origin", name)]).collect();
            exchange.respond(200, &fields, b"");
        })
    };
    let origins = ["o1", "o2", "o3"].map(origin);
    let proxy = Proxy::start(&all_to(&origins, "persist learn=\"JSESSIONID\" ttl=\"30m\""));
    let mut client = proxy.client();
    for round in 0..9 {
        let login = get(&mut client, &format!("/login{}", "x".repeat(round)), &[]);
        let session = login.field("set-cookie").unwrap().split(['=', ';']).nth(1).unwrap().to_owned();
        let by_cookie = get(&mut client, "/", &[("Cookie", &format!("JSESSIONID={session}"))]);
        let by_path = get(&mut client, &format!("/page;jsessionid={session}?q"), &[]);
        assert_eq!((name_of(&by_cookie), name_of(&by_path)), (name_of(&login), name_of(&login)));
    }
}

#[test]
fn a_client_is_known_by_its_network() {
    let origins = origins();
    let ask = |proxy: &Proxy, from: &str| {
        let from: IpAddr = from.parse().unwrap();
        name_of(&Options { from: Some(from), ..Options::default() }.connect(proxy.address()).get("/"))
    };
    let proxy = Proxy::start(&all_to(&origins, "persist source mask=24 mask6=56 ttl=\"5m\""));
    for network in 1..4 {
        let names: Vec<_> = (1..6).map(|host| ask(&proxy, &format!("127.0.{network}.{host}"))).collect();
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    }
    let mut seen: Vec<_> = (1..20).map(|network| ask(&proxy, &format!("127.0.{network}.1"))).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3);
}

#[test]
fn the_cookie_comes_before_the_address() {
    let origins = origins();
    // The order in the file means nothing.
    let proxy = node(&origins, "persist source; persist cookie=\"N\"");
    let mut client = proxy.client();
    let first = client.get("/");
    let others: Vec<&str> = ["o1", "o2", "o3"].into_iter().filter(|name| *name != name_of(&first)).collect();
    // Another client behind the same address, which has a cookie of its own.
    let other = with_cookie(&mut client, &token(SECRET, others[0], 0));
    assert_eq!((name_of(&other).as_str(), cookie_of(&other)), (others[0], None));
    // One that has none yet comes by its address, and gets one.
    let third = client.get("/");
    assert_eq!(name_of(&third), name_of(&first));
    assert!(cookie_of(&third).is_some());
}

#[test]
fn a_new_client_does_not_stay_with_a_server_that_never_answered_it() {
    let origins = origins();
    let proxy = node(&origins, "persist header=\"X-User\"");
    origins[0].stop();
    let mut client = proxy.client();
    for user in 0..12 {
        let user = format!("u{user}");
        let names: Vec<_> = (0..3).map(|_| name_of(&get(&mut client, "/", &[("X-User", &user)]))).collect();
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    }
}

#[test]
fn explain_says_where_a_cookie_leads_and_why_it_does_not() {
    let origins = origins();
    let rules =
        format!("secret file=\"secret\"\n{}", all_to(&origins, "persist cookie=\"N\"; persist header=\"X-User\""));
    let proxy = Setup::new(&rules).file("secret", SECRET).start();
    let explain = |fields: &[&str]| {
        let mut arguments = vec!["explain", "rules.kdl", "GET", "http://a.test/"];
        fields.iter().for_each(|field| arguments.extend(["-H", field]));
        let output = pointsman(proxy.folder(), &arguments);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let cookie = cookie_of(&proxy.client().get("/")).unwrap();
    let name = name_of(&with_cookie(&mut proxy.client(), &cookie));
    let told = explain(&[&format!("Cookie: {cookie}")]);
    assert!(told.contains(&format!("persists   the cookie N names the server {name}\n")), "{told}");
    assert!(told.contains(&format!("the client belongs to {name}, which gets the request")), "{told}");
    assert!(told.contains("by the field X-User, which the request does not have"), "{told}");
    assert!(explain(&["Cookie: N=junk"]).contains("is foreign, forged or expired: it counts as absent"));
    assert!(explain(&["X-User: ann"]).contains("the request has no cookie N: the answer brings one"));
    let without = rules.replace(&format!("\"{name}\""), "\"another\"");
    std::fs::write(proxy.path("rules.kdl"), without).unwrap();
    let told = explain(&[&format!("Cookie: {cookie}")]);
    assert!(told.contains("the cookie N names a server that is not in this pool: it counts as absent"), "{told}");
    std::fs::remove_file(proxy.path("secret")).unwrap();
    assert!(explain(&[&format!("Cookie: {cookie}")]).contains("can't be opened here: the secret"));
}

#[test]
fn a_secret_that_is_none_is_an_error_and_its_absence_a_warning() {
    let origin = Origin::new("o1");
    let rules = all_to([&origin], "persist cookie=\"N\"");
    let with_secret = format!("secret file=\"secret\"\n{rules}");
    let cases: [(Option<&[u8]>, &str); 2] =
        [(None, "No such file"), (Some(b"short\n"), "it has 6 bytes, and needs at least 32")];
    for (content, why) in cases {
        let setup = Setup::new(&with_secret);
        let setup = if let Some(content) = content { setup.file("secret", content) } else { setup };
        for command in ["check", "run"] {
            let output = setup.run_to_end(&[command]);
            assert_eq!(output.status.code(), Some(1), "{command}");
            let said = String::from_utf8(output.stderr).unwrap();
            let plain = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(plain.contains(why), "{command}: {said}");
        }
    }
    let output = Setup::new(&rules).run_to_end(&["check"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("the pool `p` persists, and there is no `secret`"));
    let proxy = Proxy::start(&rules);
    proxy.wait_for_error("the pool `p` persists, and there is no `secret`");
    // It works all the same, for as long as the process lives.
    let answer = proxy.client().get("/");
    let cookie = cookie_of(&answer).unwrap();
    assert_eq!(cookie_of(&with_cookie(&mut proxy.client(), &cookie)), None);
}

/// A node that knows its clients by their TLS sessions.
fn tls_node(origins: &[Origin], certificate: &Certificate) -> Proxy {
    let tls = "listen \"127.0.0.1:0\" {\n    tls { certificate \"site.crt\" key=\"site.key\" }\n";
    let rules = all_to(origins, "persist tls-session").replacen("listen \"127.0.0.1:0\" {", tls, 1);
    let setup = Setup::new(&format!("secret file=\"secret\"\n{rules}")).file("secret", SECRET);
    setup.certificate("site", certificate).start()
}

fn ask_over_tls(address: SocketAddr, config: &Arc<rustls::ClientConfig>, from: u8) -> (HandshakeKind, String) {
    let from = Some(IpAddr::from([127, 0, 0, from]));
    let tls = Some(("a.test".to_owned(), Arc::clone(config)));
    let mut client = Options { tls, from, ..Options::default() }.connect(address);
    let name = name_of(&client.get("/"));
    (client.handshake.unwrap().kind, name)
}

#[test]
fn a_tls_session_stays_over_resumptions_addresses_nodes_and_versions() {
    let origins = origins();
    let certificate = Certificate::for_names(&["a.test"]);
    let nodes = [tls_node(&origins, &certificate), tls_node(&origins, &certificate)];
    for version in [&TLS12, &TLS13] {
        for _ in 0..12 {
            let config = client_config(&[version], &["http/1.1"]);
            let (_, first) = ask_over_tls(nodes[0].address(), &config, 1);
            for round in 0..5 {
                let (kind, again) = ask_over_tls(nodes[round % 2].address(), &config, 2 + (round % 2) as u8);
                assert_eq!((kind, &again), (HandshakeKind::Resumed, &first), "{:?}, round {round}", version.version);
            }
        }
    }
}

#[test]
fn a_thousand_tls_sessions_of_one_address_are_spread_over_the_servers() {
    let origins = origins();
    let certificate = Certificate::for_names(&["a.test"]);
    let node = tls_node(&origins, &certificate);
    let mut shares = BTreeMap::new();
    for version in [&TLS12, &TLS13] {
        for _ in 0..500 {
            let config = client_config(&[version], &["http/1.1"]);
            *shares.entry(ask_over_tls(node.address(), &config, 1).1).or_insert(0) += 1;
        }
    }
    // A third each, and six standard deviations.
    assert!(shares.len() == 3 && shares.values().all(|share| (243..=423).contains(share)), "{shares:?}");
}

#[test]
fn a_tls_session_moves_from_a_dead_server_and_survives_a_restart() {
    let origins = origins();
    let certificate = Certificate::for_names(&["a.test"]);
    let node = tls_node(&origins, &certificate);
    let config = client_config(&[&TLS13], &["http/1.1"]);
    let (_, first) = ask_over_tls(node.address(), &config, 1);
    drop(node);
    let node = tls_node(&origins, &certificate);
    assert_eq!(ask_over_tls(node.address(), &config, 1), (HandshakeKind::Resumed, first.clone()));
    let own = origins.iter().find(|origin| !origin.requests().is_empty()).unwrap();
    own.stop();
    let mut last = String::new();
    wait_for("the same server three times", DEADLINE, || {
        let names: Vec<_> = (0..3).map(|_| ask_over_tls(node.address(), &config, 1).1).collect();
        assert!(names.iter().all(|name| *name != first));
        last.clone_from(&names[0]);
        names.iter().all(|name| *name == names[0]).then_some(())
    });
    for _ in 0..5 {
        assert_eq!(ask_over_tls(node.address(), &config, 1).1, last);
    }
}

#[test]
fn tls_sessions_of_every_listener_outlive_a_restart_given_a_secret() {
    let origin = Origin::new("o1");
    let certificate = Certificate::for_names(&["a.test"]);
    let tls = "listen \"127.0.0.1:0\" {\n    tls { certificate \"site.crt\" key=\"site.key\" }\n";
    let rules = all_to([&origin], "").replacen("listen \"127.0.0.1:0\" {", tls, 1);
    for (line, kind) in [("secret file=\"secret\"\n", HandshakeKind::Resumed), ("", HandshakeKind::Full)] {
        let config = client_config(&[&TLS13], &["http/1.1"]);
        let start =
            || Setup::new(&format!("{line}{rules}")).file("secret", SECRET).certificate("site", &certificate).start();
        ask_over_tls(start().address(), &config, 1);
        assert_eq!(ask_over_tls(start().address(), &config, 1).0, kind);
    }
}

#[test]
fn a_client_waits_for_its_own_server_and_is_served_elsewhere_when_its_time_is_up() {
    for (timeout, elsewhere) in [("30s", false), ("50ms", true)] {
        let (own, gate) = Origin::gated();
        let other = Origin::new("o2");
        let lines = format!("persist cookie=\"N\"; queue max=10 timeout=\"{timeout}\"");
        let proxy = node([Server::with(&own, "max=1"), (&other).into()], &lines);
        let cookie = token(SECRET, "o1", 0);
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\nCookie: {cookie}\r\n\r\n");
        let (mut first, mut second) = (proxy.client(), proxy.client());
        first.send(&request);
        own.wait_for_requests(1);
        second.send(&request);
        // Others do not wait for what they do not need.
        assert_eq!(proxy.client().get("/").text(), "o2");
        if !elsewhere {
            gate.open();
        }
        let answer = second.response();
        assert_eq!(answer.text(), if elsewhere { "o2" } else { "late" });
        assert_eq!(cookie_of(&answer), None, "the client still belongs to its server");
        gate.open();
        assert_eq!(first.response().text(), "late");
        assert_eq!(with_cookie(&mut second, &cookie).text(), "late");
    }
}

#[test]
fn a_backup_keeps_the_clients_that_it_has_got() {
    let [first, second, spare] = origins();
    let servers = || [Server::with(&spare, "backup=#true"), (&first).into(), (&second).into()];
    let proxy = node(servers(), "persist cookie=\"N\"");
    let mut client = proxy.client();
    // The servers of the pool are called o1, the backup, then o2 and o3.
    for (name, text) in [("o1", "o3"), ("o2", "o1"), ("o3", "o2")] {
        let answer = with_cookie(&mut client, &token(SECRET, name, 0));
        assert_eq!((answer.text().as_str(), cookie_of(&answer)), (text, None), "{name}");
    }
    let new: Vec<_> = (0..6).map(|_| client.get("/").text()).collect();
    assert!(new.iter().all(|text| text != "o3"), "{new:?}");
}

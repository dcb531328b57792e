//! `check ..`: what is asked of a pool's servers, and how often. One kind for each pool; what belongs to another kind is an
//! error that says where it belongs. It refuses what could never be asked of the servers of this pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::uri::{Authority, PathAndQuery};

use super::address;
use super::field::{self, is_token, is_value};
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use crate::pure::check::{ANSWER_MAX, BodyRegex, CheckConfig, CheckKind, CheckTimes, GrpcCheck, HttpCheck, StatusSet};
use crate::pure::pool::{Address, Server, Upstream, UpstreamProtocol};

/// The settings, and nodes, that belong to some kinds alone.
const OWN_SETTINGS: [(&str, &[&str]); 10] = [
    ("method", &["http"]),
    ("path", &["http"]),
    ("header", &["http"]),
    ("status", &["http"]),
    ("body", &["http"]),
    ("body-regex", &["http"]),
    ("host", &["http", "grpc"]),
    ("service", &["grpc"]),
    ("port", &["tcp", "tls", "http", "grpc"]),
    ("plain", &["tcp", "http", "grpc"]),
];

/// The checks of a pool with these servers, which are spoken to like that; `None`: it has none of its own.
pub(super) fn read(
    pool: Node<'_>,
    upstream: &Upstream,
    servers: &[Arc<Server>],
    problems: &mut Problems,
) -> Option<Arc<CheckConfig>> {
    let Some(node) = pool.child("check") else {
        for value in pool.children("server").filter_map(|server| server.setting("check-address")) {
            let problem = Problem::at(&value.place(), "this pool has no `check`").label("nothing would be asked there");
            problems.add(problem.help(r#"say what is asked: check "http" path="/health""#));
        }
        return None;
    };
    let word = node.argument(0).map_or(Some("tcp"), |value| value.text())?;
    let port = node.setting("port");
    let mut config = CheckConfig {
        kind: CheckKind::Tcp,
        port: port.and_then(|value| value.whole()),
        addresses: read_addresses(pool, problems),
        is_plain: node.setting("plain").and_then(|value| value.switch()).unwrap_or(false),
        times: read_times(node),
    };
    config.kind = match word {
        "tcp" => CheckKind::Tcp,
        "tls" => CheckKind::Tls,
        "http" => CheckKind::Http(Box::new(read_http(node, problems))),
        "grpc" => CheckKind::Grpc(read_grpc(node, problems)),
        "icmp" => CheckKind::Icmp,
        // Other words have been reported.
        _ => return None,
    };
    check_settings(node, word, problems);
    check_protocol(node, &config, upstream, problems);
    let is_unix = |server: &&Arc<Server>| match config.addresses.get(&server.id.server) {
        Some(own) => matches!((own, &config.kind), (Address::Unix(_), CheckKind::Icmp)),
        None => matches!(server.address, Address::Unix(_)),
    };
    if let Some(server) = servers.iter().find(is_unix) {
        check_unix(node, &config.kind, port, server, problems);
    }
    Some(Arc::new(config))
}

/// The addresses of servers that are asked elsewhere.
fn read_addresses(pool: Node<'_>, problems: &mut Problems) -> BTreeMap<Arc<str>, Address> {
    let mut addresses = BTreeMap::new();
    for server in pool.children("server") {
        let name = server.argument(0).and_then(|name| name.text());
        let Some((name, value)) = name.zip(server.setting("check-address")) else { continue };
        match address::server(value, problems) {
            Some(Address::Name(host, _)) => {
                let problem = Problem::at(&value.place(), format!("`{host}` is a name, and checks look none up"));
                problems.add(
                    problem
                        .label("not this")
                        .help("write the IP address, or leave it out: the server's own name is known"),
                );
            }
            Some(found) => _ = addresses.insert(Arc::from(name), found),
            // What is wrong with it has been reported.
            None => {}
        }
    }
    addresses
}

fn read_times(node: Node<'_>) -> CheckTimes {
    let duration = |name| node.setting(name).and_then(|value| value.duration());
    let count = |name| node.setting(name).and_then(|value| value.whole());
    let usual = CheckTimes::configured();
    CheckTimes {
        every: duration("every").or(usual.every),
        timeout: duration("timeout").unwrap_or(usual.timeout),
        fall: count("fall").unwrap_or(usual.fall),
        rise: count("rise").unwrap_or(usual.rise),
    }
}

fn check_settings(node: Node<'_>, word: &str, problems: &mut Problems) {
    for (name, owners) in OWN_SETTINGS.into_iter().filter(|(_, owners)| !owners.contains(&word)) {
        let place = match name {
            "header" => node.child(name).map(|child| child.name_place()),
            _ => node.setting(name).map(|value| value.place()),
        };
        if let Some(place) = place {
            let problem = Problem::at(&place, format!("`check \"{word}\"` has no `{name}`")).label("not here");
            let owners: Vec<String> = owners.iter().map(|owner| format!("`check \"{owner}\"`")).collect();
            problems.add(problem.help(format!("`{name}` belongs to {}", owners.join(", "))));
        }
    }
}

/// Whether the servers, as they are spoken to, can be asked so.
fn check_protocol(node: Node<'_>, config: &CheckConfig, upstream: &Upstream, problems: &mut Problems) {
    let place = || node.argument(0).map_or_else(|| node.place(), |value| value.place());
    match &config.kind {
        CheckKind::Tls if upstream.tls.is_none() => {
            let problem = Problem::at(&place(), "no TLS is spoken with the servers of this pool").label("no handshake");
            problems.add(problem.help("`check \"tcp\"` connects; TLS to servers is `upstream \"http/1.1\" { tls }`"));
        }
        CheckKind::Grpc(_) if upstream.protocol == UpstreamProtocol::Http1 && !config.is_plain => {
            let problem =
                Problem::at(&place(), "gRPC is HTTP/2, and the servers of this pool are spoken to by HTTP/1.1");
            problems.add(problem.label("not by HTTP/1.1").help(
                "write `upstream \"h2\"` or `upstream \"h2c\"`; `plain=#true` asks by HTTP/2 without TLS, at a `port` of its own it may be",
            ));
        }
        CheckKind::Tcp | CheckKind::Tls | CheckKind::Http(_) | CheckKind::Grpc(_) | CheckKind::Icmp => {}
    }
}

fn check_unix(node: Node<'_>, kind: &CheckKind, port: Option<Value<'_>>, server: &Server, problems: &mut Problems) {
    let name = &server.id.server;
    if let (CheckKind::Icmp, Some(value)) = (kind, node.argument(0)) {
        let problem = Problem::at(
            &value.place(),
            format!("checks reach the server `{name}` by a unix socket, behind which is no machine to ask"),
        );
        problems.add(problem.label("not at a socket").help("`check \"tcp\"` connects to it"));
    }
    if let Some(port) = port {
        let problem =
            Problem::at(&port.place(), format!("the server `{name}` is at a unix socket, which has no ports"));
        problems.add(problem.label("no port").help("put servers that are checked otherwise into a pool of their own"));
    }
}

fn read_http(node: Node<'_>, problems: &mut Problems) -> HttpCheck {
    let mut check = HttpCheck::get("/");
    if let Some(value) = node.setting("path") {
        check.path = read_path(value, problems).unwrap_or(check.path);
    }
    let method = node.setting("method");
    if let Some(value) = method {
        check.method = read_method(value, problems).unwrap_or(check.method);
    }
    if let Some(value) = node.setting("status") {
        check.statuses = read_statuses(value, problems).unwrap_or_default();
    }
    check.host = read_host(node, problems);
    check.body = node.setting("body").and_then(|value| read_body(value, problems));
    check.body_regex = node.setting("body-regex").and_then(|value| read_body_regex(value, problems));
    check.fields = node.children("header").filter_map(|header| read_field(header, problems)).collect();
    let body = node.setting("body").or_else(|| node.setting("body-regex"));
    if let (Some(method), Some(body), "HEAD") = (method, body, check.method.as_str()) {
        let problem = Problem::at(&body.place(), "an answer to HEAD has no body").label("never there");
        problems.add(problem.also(&method.place(), "the method").help("ask with GET"));
    }
    check
}

fn read_grpc(node: Node<'_>, problems: &mut Problems) -> GrpcCheck {
    let service = node.setting("service").and_then(|value| {
        let text = value.text()?;
        if text.is_empty() || text.len() > 1024 || !is_value(text) {
            let problem = Problem::at(&value.place(), "this is no name of a service").label("not this");
            problems.add(problem.help("such as \"app.v1.Users\"; without `service` the whole server is asked for"));
            return None;
        }
        Some(text.to_owned())
    });
    GrpcCheck { service: service.unwrap_or_default(), host: read_host(node, problems) }
}

fn read_path(value: Value<'_>, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    let is_good = text.starts_with('/')
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
        && PathAndQuery::try_from(text).is_ok();
    if !is_good {
        let problem =
            Problem::at(&value.place(), format!("`{text}` is no path that can be asked for")).label("not this");
        problems.add(
            problem.help(
                "it begins with `/`, and what is no letter, digit or sign in it is escaped: \"/health?full=%20\"",
            ),
        );
        return None;
    }
    Some(text.to_owned())
}

fn read_method(value: Value<'_>, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    if !is_token(text) || text == "CONNECT" {
        let problem = Problem::at(&value.place(), format!("`{text}` is no method of a check")).label("not this");
        problems.add(problem.help("such as \"GET\", \"HEAD\" or \"OPTIONS\""));
        return None;
    }
    Some(text.to_owned())
}

fn read_statuses(value: Value<'_>, problems: &mut Problems) -> Option<StatusSet> {
    let wrong = |error: crate::pure::check::StatusSetError| {
        problems.add(Problem::at(&value.place(), error.to_string()).label("not this").help("such as \"200-299,404\""));
    };
    value.text()?.parse().map_err(wrong).ok()
}

fn read_host(node: Node<'_>, problems: &mut Problems) -> Option<String> {
    let value = node.setting("host")?;
    let text = value.text()?;
    if text.contains('@') || Authority::try_from(text).is_err() {
        let problem = Problem::at(&value.place(), format!("`{text}` is no host")).label("not this");
        problems.add(problem.help("such as \"a.test\" or \"a.test:8080\""));
        return None;
    }
    Some(text.to_owned())
}

fn read_body(value: Value<'_>, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    if text.is_empty() {
        let problem = Problem::at(&value.place(), "every body has nothing in it").label("nothing to look for");
        problems.add(problem.help("leave it out, or write what has to be in the body"));
        return None;
    }
    if text.len() > ANSWER_MAX {
        let message = format!("a check looks at {} KiB of a body, and this is longer", ANSWER_MAX / 1024);
        problems.add(Problem::at(&value.place(), message).label("never found").help("write a part of it"));
        return None;
    }
    Some(text.to_owned())
}

fn read_body_regex(value: Value<'_>, problems: &mut Problems) -> Option<BodyRegex> {
    let wrong = |error: regex::Error| {
        let message = match error {
            regex::Error::CompiledTooBig(limit) => {
                format!("it takes more than {} KiB of memory when compiled", limit / 1024)
            }
            // The library draws over several lines, of which the last says what is wrong.
            error => error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        };
        problems.add(Problem::at(&value.place(), "this is no regular expression").label(message));
    };
    let text = value.text()?;
    if text.is_empty() {
        let problem = Problem::at(&value.place(), "every body matches this").label("nothing to look for");
        problems.add(problem.help("leave it out, or write what the body has to match"));
        return None;
    }
    BodyRegex::new(text).map_err(wrong).ok()
}

fn read_field(node: Node<'_>, problems: &mut Problems) -> Option<(String, String)> {
    let (name, value) = (node.argument(0)?, node.argument(1)?);
    let (name_text, value_text) = (name.text()?, value.text()?);
    let refusal = if name_text.eq_ignore_ascii_case("host") {
        Some("`host` of the `check` says it")
    } else {
        field::refusal(name_text, false)
    };
    if !is_token(name_text) {
        problems.add(Problem::at(&name.place(), "this is no name of a field").label("not this"));
    } else if let Some(why) = refusal {
        let problem = Problem::at(&name.place(), format!("a check can't send the field {name_text}")).label("not this");
        problems.add(problem.help(why));
    } else if !is_value(value_text) || value_text.trim() != value_text {
        let problem = Problem::at(&value.place(), "this can't be the value of a field").label("not this");
        problems.add(problem.help("no control characters, and no spaces at its ends"));
    } else {
        return Some((name_text.to_owned(), value_text.to_owned()));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pure::config::{MemoryFiles, load};

    /// What a pool of `a1` (an address) and `a2` (a name) with this `check` is asked.
    fn read(check: &str) -> CheckConfig {
        let text = format!(
            "listen \"127.0.0.1:1\"\npool \"p\" {{\nserver \"a1\" \"10.0.0.1:80\"\n\
             server \"a2\" \"a.test:80\"\nserver \"a3\" \"10.0.0.3:80\" check-address=\"10.0.0.9:99\"\n{check}\n}}\n"
        );
        let config = load(&MemoryFiles::one("p.kdl", &text), "p.kdl".as_ref());
        CheckConfig::clone(config.unwrap_or_else(|errors| panic!("{errors}")).pools[0].check.as_deref().unwrap())
    }

    #[test]
    fn a_check_that_says_nothing_else_has_the_usual_times() {
        let check = read("check");
        assert_eq!((&check.kind, check.port, check.is_plain), (&CheckKind::Tcp, None, false));
        let times = CheckTimes {
            every: Some(Duration::from_millis(500)),
            timeout: Duration::from_millis(300),
            fall: 3,
            rise: 2,
        };
        assert_eq!(check.times, times);
    }

    #[test]
    fn what_is_written_is_what_is_asked() {
        let check = read(
            r##"check "http" method="OPTIONS" host="b.test:8080" every="2s" timeout="1s" fall=5 rise=1 port=81 plain=#true {
    path "/health?x=1"
    status "2xx 404"
    body "ok"
    body-regex #"^o"#
    header "X-A" "1"
    header "X-A" "2"
}"##,
        );
        let CheckKind::Http(http) = &check.kind else { panic!("{:?}", check.kind) };
        assert_eq!(
            (http.method.as_str(), http.path.as_str(), http.host.as_deref()),
            ("OPTIONS", "/health?x=1", Some("b.test:8080"))
        );
        assert!(http.statuses.contains(404) && !http.statuses.contains(302));
        assert_eq!((http.body.as_deref(), http.body_regex.clone()), (Some("ok"), BodyRegex::new("^o").ok()));
        let field = |value: &str| ("X-A".to_owned(), value.to_owned());
        assert_eq!(http.fields, [field("1"), field("2")]);
        let times =
            CheckTimes { every: Some(Duration::from_secs(2)), timeout: Duration::from_secs(1), fall: 5, rise: 1 };
        assert_eq!((check.times, check.port, check.is_plain), (times, Some(81), true));
        assert_eq!(
            read("upstream \"h2c\"; check \"grpc\" service=\"a.B\"").kind,
            CheckKind::Grpc(GrpcCheck { service: "a.B".to_owned(), host: None })
        );
        assert_eq!(read("upstream \"h2\"; check \"tls\"").kind, CheckKind::Tls);
        assert_eq!(read("check \"icmp\"").kind, CheckKind::Icmp);
    }

    #[test]
    fn a_body_that_could_never_be_found_or_always_is_refused() {
        let refused = |setting: &str| {
            let text = format!(
                "listen \"127.0.0.1:1\"\npool \"p\" {{ server \"a\" \"127.0.0.1:2\"; check \"http\" {setting} }}\nrule use=\"p\""
            );
            crate::pure::config::load_text(&text).err().map(|errors| errors.to_string()).unwrap_or_default()
        };
        assert!(refused(&format!("body={:?}", "x".repeat(ANSWER_MAX + 1))).contains("looks at 64 KiB of a body"));
        assert_eq!(refused(&format!("body={:?}", "x".repeat(ANSWER_MAX))), "");
        assert!(refused("body-regex=\"\"").contains("every body matches this"));
    }

    #[test]
    fn a_port_of_the_pool_and_an_address_of_the_server_say_where() {
        let server = |name: &str, address| Server {
            id: crate::base::id::ServerId { pool: "p".into(), server: name.into() },
            address,
            weight: 1,
            max: None,
            is_backup: false,
        };
        let at = |check: &CheckConfig, name: &str, address: &Address| {
            check.address_of(&server(name, address.clone())).map(|address| address.to_string())
        };
        let (socket, name) = (Address::Socket(([10, 0, 0, 1], 80).into()), Address::Name("a.test".to_owned(), 80));
        let (usual, elsewhere) = (read("check"), read("check port=81"));
        for (check, expected) in [(&usual, [None, None]), (&elsewhere, [Some("10.0.0.1:81"), Some("a.test:81")])] {
            let found = [at(check, "a1", &socket), at(check, "a2", &name)];
            assert_eq!(found, expected.map(|text| text.map(str::to_owned)));
            assert_eq!(at(check, "a3", &socket).as_deref(), Some("10.0.0.9:99"));
        }
    }
}

//! `pointsman explain`: what it says of the example rule files, that it decides as requests are decided, and what it says
//! of wrong input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use pointsman::base::id::ListenerIndex;
use pointsman::base::rng::Rng;
use pointsman::operator::check::Style;
use pointsman::operator::explain::{ExplainError, ExplainOptions, Explanation, explain, rehearsal_of};
use pointsman::operator::rehearsal::{Outcome, Rehearsal, RequestDescription};
use pointsman::pure::config::{Config, MemoryFiles, load_text};
use pointsman::pure::decision::{Changed, Destination, Passage, Question, Seen, decide};
use pointsman::pure::h1::request::{Parsed, RequestHead, parse_request_head};
use pointsman::pure::refusal::Refusal;
use pointsman::pure::rule::captures::Captures;
use pointsman::pure::rule::compile::RuleSet;
use pointsman::pure::trace::Trace;

#[path = "support/random_rules.rs"]
mod random_rules;

use random_rules::{Draw, Request};

const POOLS: [&str; 4] = ["p0", "p1", "p2", "p3"];
const LISTENERS: [&str; 3] = ["127.0.0.1:8080", "*:8081", "127.0.0.1:8443"];

/// A rule file with rules of this seed.
fn random_file(draw: &mut Draw) -> String {
    let mut text = r#"
listen "127.0.0.1:8080" { trusted-proxies "127.0.0.2" "10.0.0.0/8"; request-id #true }
listen "*:8081" { limits { ambiguous-paths "reject"; body-max "2KiB" }; via "off" }
listen "127.0.0.1:8443" { tls { certificate "a.crt" key="a.key" } }
"#
    .to_owned();
    for (number, pool) in POOLS.iter().enumerate() {
        let scheduler = if number == 1 { "scheduler \"rr\"" } else { "" };
        text.push_str(&format!("pool \"{pool}\" {{ server \"s\" \"127.0.0.1:900{number}\"; {scheduler} }}\n"));
    }
    let count = 1 + draw.below(24);
    text + &random_rules::rules(draw, count, &POOLS, &LISTENERS)
}

/// What the exchange makes of a request, step by step, without a trace.
#[derive(Debug, PartialEq)]
struct Decided {
    rule: Option<String>,
    /// Pool, upgrade and key; or the status of a redirect or an answer; or the refusal.
    end: Result<End, Refusal>,
    target: Vec<u8>,
    request_lines: Vec<u8>,
    response_lines: Vec<u8>,
}

#[derive(Debug, PartialEq)]
enum End {
    Pool(u32, Option<String>, Option<u64>, u64),
    Redirect(u16),
    Respond(u16),
}

fn decided(config: &Config, rules: &RuleSet, request: &Request, listener: usize) -> Decided {
    let settings = &config.listeners[listener];
    let bytes = request.bytes();
    let mut head = RequestHead::default();
    assert_eq!(parse_request_head(&bytes, settings.limits.of_heads(), &mut head), Ok(Parsed::Complete));
    let seen = Seen::of(&head, &bytes, client(request), &settings.trusted_proxies);
    let (mut scratch, mut captures, mut changed) = (String::new(), Captures::new(), Changed::default());
    let mut name = None;
    let end = (|| {
        let path = seen.path(settings.limits.ambiguous_paths, &mut scratch).map_err(|_| Refusal::AmbiguousPath)?;
        let host = request.host().to_ascii_lowercase();
        let server_name = settings.tls.is_some().then_some(host.as_str());
        let view = seen.view(ListenerIndex(listener as u32), path, server_name);
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        let question = Question { view: &view, scheme, rng: &mut Rng::new(0) };
        let (rule, destination) = decide(rules, question, &mut captures, &mut changed, &mut Trace::off())?;
        name = Some(rule.name.to_string());
        let pool = match destination {
            Destination::Redirect(status) => return Ok(End::Redirect(status)),
            Destination::Respond(status) => return Ok(End::Respond(status)),
            Destination::Pool(pool) => pool,
        };
        let settings_of_pool = &config.pools[pool.0 as usize];
        let passage = Passage::of(&rule, settings_of_pool, &settings.limits, &head, &view, &captures)?;
        let upgrade = passage.upgrade.map(|token| String::from_utf8(token.to_vec()).unwrap());
        Ok(End::Pool(pool.0, upgrade, passage.key, passage.body_max.0))
    })();
    Decided {
        rule: name,
        end,
        target: changed.target.clone(),
        request_lines: changed.request.added().to_vec(),
        response_lines: changed.response.added().to_vec(),
    }
}

fn client(request: &Request) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, request.client).into()
}

fn rehearsed(rehearsal: &Rehearsal, description: &RequestDescription<'_>) -> Decided {
    let rehearsed = rehearsal.decide(description, &mut Trace::recording());
    Decided {
        rule: rehearsed.rule.map(|rule| rule.name.to_string()),
        end: match rehearsed.outcome {
            Outcome::Forward(forward) => {
                Ok(End::Pool(forward.pool.0, forward.upgrade, forward.key, forward.body_max.0))
            }
            Outcome::Redirect(status) => Ok(End::Redirect(status)),
            Outcome::Respond(status) => Ok(End::Respond(status)),
            Outcome::Refused(refusal) => Err(refusal),
        },
        target: rehearsed.changed.target.clone(),
        request_lines: rehearsed.changed.request.added().to_vec(),
        response_lines: rehearsed.changed.response.added().to_vec(),
    }
}

#[test]
fn ten_thousand_requests_are_explained_as_they_are_decided() {
    let (mut forwarded, mut refused, mut answered) = (0, 0, 0);
    for seed in 0..500 {
        let mut draw = Draw::new(seed);
        let text = random_file(&mut draw);
        let config = Arc::new(load_text(&text).unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}")));
        let rules = Arc::new(RuleSet::compile(config.rules.clone()).unwrap());
        let rehearsal = Rehearsal::new(Arc::clone(&config), Arc::clone(&rules));
        for number in 0..20 {
            let request = random_rules::request(&mut draw);
            let listener = draw.below(LISTENERS.len());
            let url = request.url(if listener == 2 { "https" } else { "http" });
            let description = RequestDescription {
                method: request.method,
                url: &url,
                headers: &request.fields,
                client: client(&request),
                listener: Some(ListenerIndex(listener as u32)),
            };
            let wanted = decided(&config, &rules, &request, listener);
            let found = rehearsed(&rehearsal, &description);
            assert_eq!(found, wanted, "seed {seed}, request {number}: {request:?} at {listener}\n{text}");
            let explanation = Explanation::of(&rehearsal, &description);
            assert_eq!(explanation.rule.as_ref().map(|rule| &rule.name), wanted.rule.as_ref());
            match wanted.end {
                Ok(End::Pool(pool, ..)) => {
                    forwarded += 1;
                    let forward = explanation.forward.expect("where it goes to");
                    assert_eq!(forward.pool, POOLS[pool as usize]);
                    assert_eq!(forward.server.expect("a server").address, format!("127.0.0.1:900{pool}"));
                    assert_eq!((explanation.outcome, explanation.answer), ("forward", None));
                }
                Ok(End::Redirect(status) | End::Respond(status)) => {
                    answered += 1;
                    assert_eq!(explanation.answer.map(|answer| answer.status), Some(status));
                }
                Err(refusal) => {
                    refused += 1;
                    assert_eq!(explanation.answer.map(|answer| answer.reason), Some(refusal.reason()));
                }
            }
        }
    }
    // Otherwise nothing would have been shown.
    assert!(forwarded > 3000 && refused > 500 && answered > 500, "{forwarded}, {refused}, {answered}");
}

fn options(rules: &str, url: &str, headers: &[&str], client: &str) -> ExplainOptions {
    ExplainOptions {
        rules: Path::new("rules").join(rules),
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: headers.iter().map(|header| (*header).to_owned()).collect(),
        client: client.to_owned(),
        listen: None,
    }
}

/// What people are told of a GET by an example file.
fn told(rules: &str, url: &str, headers: &[&str], client: &str) -> String {
    explain(&options(rules, url, headers, client)).unwrap().text(Style::Plain)
}

#[test]
fn a_rewritten_request_to_the_api() {
    let text = told("site.kdl", "http://site.test/api/v1/users?page=2", &["Accept: application/json"], "127.0.0.1");
    insta::assert_snapshot!(text, @r#"
    GET http://site.test/api/v1/users?page=2
    goes to the server `app-1` at 127.0.0.1:9301 of the pool `app`, by the rule `old-api` at rules/site.kdl:31

    listener   [::]:8080, http: the first listener that speaks http
    request    method GET, host site.test, path /api/v1/users, query page=2
               the client is 127.0.0.1
               the media type is application/json, says Accept
    rules      2 rules before: 1 of other paths, 1 whose path-regex does not match
               rule `old-api` at rules/site.kdl:31 matches
    captures   {rest} is "users"
    changes    the target becomes /v2/users?page=2
    body       at most 10MiB, the limit at rules/site.kdl:6
    pool       app: the rule names it
    key        none: neither the rule nor the pool names one that the scheduler goes by
    servers    app-1 at 127.0.0.1:9301: weight 1, 0 in flight, eligible
               app-2 at 127.0.0.1:9302: weight 1, 0 in flight, eligible
    scheduler  wlc: app-1 (0 in flight, weight 1) has the least load for its weight
    server     app-1 at 127.0.0.1:9301 (states and loads as at a start)
    spoken     HTTP/1.1 without TLS
    sends      GET /v2/users?page=2 HTTP/1.1
               Host: site.test
               Accept: application/json
               X-Forwarded-For: 127.0.0.1
               X-Forwarded-Proto: http
               X-Forwarded-Host: site.test
               X-Forwarded-Port: 8080
               Forwarded: for=127.0.0.1;host="site.test";proto=http
               Via: 1.1 pointsman
               X-Request-Id: (a new one)
    "#);
}

#[test]
fn an_image_without_an_extension() {
    let text =
        told("site.kdl", "http://site.test/thumbnail/17", &["Accept: image/avif,image/webp,*/*;q=0.8"], "127.0.0.1");
    insta::assert_snapshot!(text, @r#"
    GET http://site.test/thumbnail/17
    goes to the server `images-2` at 127.0.0.1:9202 of the pool `images`, by the rule `images` at rules/site.kdl:38

    listener   [::]:8080, http: the first listener that speaks http
    request    method GET, host site.test, path /thumbnail/17
               the client is 127.0.0.1
               the media type is image/avif, says Accept
    rules      5 rules before: 4 of other paths, 1 whose path-regex does not match
               rule `images` at rules/site.kdl:38 matches
    changes    none
    body       at most 10MiB, the limit at rules/site.kdl:6
    pool       images: the rule names it
    key        none: neither the rule nor the pool names one that the scheduler goes by
    servers    images-1 at 127.0.0.1:9201: weight 1, 0 in flight, eligible
               images-2 at 127.0.0.1:9202: weight 2, 0 in flight, eligible
    scheduler  wrr: images-2 (0 in flight, weight 2) is next in turn
    server     images-2 at 127.0.0.1:9202 (states and loads as at a start)
    spoken     HTTP/1.1 without TLS
    sends      GET /thumbnail/17 HTTP/1.1
               Host: site.test
               Accept: image/avif,image/webp,*/*;q=0.8
               X-Forwarded-For: 127.0.0.1
               X-Forwarded-Proto: http
               X-Forwarded-Host: site.test
               X-Forwarded-Port: 8080
               Forwarded: for=127.0.0.1;host="site.test";proto=http
               Via: 1.1 pointsman
               X-Request-Id: (a new one)
    "#);
}

#[test]
fn a_redirect_to_https() {
    let text = told("hosts.kdl", "http://a.test/%2e%2e/cart?x=1", &[], "127.0.0.1");
    insta::assert_snapshot!(text, @r"
    GET http://a.test/%2e%2e/cart?x=1
    is sent to https://a.test:8443/cart?x=1 with 308, by the rule `secure` at rules/hosts.kdl:18

    listener   [::]:8080, http: the first listener that speaks http
    request    method GET, host a.test, path /cart (sent as /%2e%2e/cart), query x=1
               the client is 127.0.0.1
               the media type is unknown: neither the path's extension nor Sec-Fetch-Dest nor Accept tells it
    rules      no rule before
               rule `secure` at rules/hosts.kdl:18 matches
    changes    none
    answer     308, reason `rule` in the access log: the rule redirects
               Location: https://a.test:8443/cart?x=1
    ");
}

#[test]
fn a_canary_by_share() {
    let text = told("canary.kdl", "http://a.test/", &["Cookie: session=17"], "127.0.0.1");
    insta::assert_snapshot!(text, @r#"
    GET http://a.test/
    goes to the server `stable-1` at 127.0.0.1:9101 of the pool `stable`, by the rule `share` at rules/canary.kdl:24

    listener   [::]:8080, http: the first listener that speaks http
    request    method GET, host a.test, path /
               the client is 127.0.0.1
               the media type is unknown: neither the path's extension nor Sec-Fetch-Dest nor Accept tells it
    rules      4 rules before: 1 of other paths, 3 asked for the rest
               rule `opt-out` at rules/canary.kdl:16: cookie canary is absent
               rule `opt-in-field` at rules/canary.kdl:17: header X-Canary is absent
               rule `opt-in-cookie` at rules/canary.kdl:18: cookie canary is absent
               rule `share` at rules/canary.kdl:24 matches
    changes    the answer gets `Vary: Cookie`, in place of its own
    body       at most 100MiB, the default limit
    pool       stable: the split's key cookie:session hashes to a5894796fbe54a51, which stays with one pool
               the weights are: stable 95, canary 5
    key        none: neither the rule nor the pool names one that the scheduler goes by
    servers    stable-1 at 127.0.0.1:9101: weight 1, 0 in flight, eligible
               stable-2 at 127.0.0.1:9102: weight 1, 0 in flight, eligible
    scheduler  wrr: stable-1 (0 in flight, weight 1) is next in turn
    server     stable-1 at 127.0.0.1:9101 (states and loads as at a start)
    spoken     HTTP/1.1 without TLS
    sends      GET / HTTP/1.1
               Host: a.test
               Cookie: session=17
               X-Forwarded-For: 127.0.0.1
               X-Forwarded-Proto: http
               X-Forwarded-Host: a.test
               X-Forwarded-Port: 8080
               Forwarded: for=127.0.0.1;host="a.test";proto=http
               Via: 1.1 pointsman
    "#);
}

#[test]
fn a_websocket() {
    let text = told(
        "websocket.kdl",
        "http://a.test/chat",
        &["Connection: upgrade", "Upgrade: websocket", "Origin: https://a.test"],
        "127.0.0.1",
    );
    insta::assert_snapshot!(text, @r#"
    GET http://a.test/chat
    goes to the server `chat-1` at 127.0.0.1:9101 of the pool `chat`, by the rule `chat` at rules/websocket.kdl:18

    listener   [::]:8080, http: the first listener that speaks http
    request    method GET, host a.test, path /chat
               the client is 127.0.0.1
               the media type is unknown: neither the path's extension nor Sec-Fetch-Dest nor Accept tells it
    rules      no rule before
               rule `chat` at rules/websocket.kdl:18 matches
    changes    the connection may become a tunnel: websocket
    body       at most 100MiB, the default limit
    pool       chat: the rule names it
    key        none: neither the rule nor the pool names one that the scheduler goes by
    servers    chat-1 at 127.0.0.1:9101: weight 1, 0 in flight, eligible
               chat-2 at 127.0.0.1:9102: weight 1, 0 in flight, eligible
    scheduler  wlc: chat-1 (0 in flight, weight 1) has the least load for its weight
    server     chat-1 at 127.0.0.1:9101 (states and loads as at a start)
    spoken     HTTP/1.1 without TLS
    sends      GET /chat HTTP/1.1
               Host: a.test
               Origin: https://a.test
               X-Forwarded-For: 127.0.0.1
               X-Forwarded-Proto: http
               X-Forwarded-Host: a.test
               X-Forwarded-Port: 8080
               Forwarded: for=127.0.0.1;host="a.test";proto=http
               Via: 1.1 pointsman
               Connection: Upgrade
               Upgrade: websocket
    "#);
}

#[test]
fn an_answer_by_a_rule() {
    let text = told("site.kdl", "http://site.test/metrics", &[], "192.0.2.1");
    insta::assert_snapshot!(text, @r"
    GET http://site.test/metrics
    is answered with 403, by the rule `metrics` at rules/site.kdl:28: the rule answers

    listener   [::]:8080, http: the first listener that speaks http
    request    method GET, host site.test, path /metrics
               the client is 192.0.2.1
               the media type is unknown: neither the path's extension nor Sec-Fetch-Dest nor Accept tells it
               a running proxy would also know what this host and path last answered with
    rules      1 rule before: 1 whose path-regex does not match
               rule `metrics` at rules/site.kdl:28 matches
    changes    none
    answer     403, reason `rule` in the access log: the rule answers
               Not from here.
    ");
}

#[test]
fn a_path_that_is_refused() {
    let text = told("site.kdl", "http://site.test/..%5Cx", &[], "127.0.0.1");
    insta::assert_snapshot!(text, @r"
    GET http://site.test/..%5Cx
    is answered with 400: ambiguous path

    listener   [::]:8080, http: the first listener that speaks http
    request    method GET, host site.test, path /..%5Cx
               the path holds a backslash
               the client is 127.0.0.1
               the media type is unknown: neither the path's extension nor Sec-Fetch-Dest nor Accept tells it
    answer     400, reason `ambiguous-path` in the access log: ambiguous path
    ");
}

fn refused(change: impl FnOnce(&mut ExplainOptions)) -> String {
    let mut options = options("hosts.kdl", "http://a.test/", &[], "127.0.0.1");
    change(&mut options);
    let error = explain(&options).unwrap_err();
    assert!(matches!(error, ExplainError::Request(_)), "{error}");
    error.render(Style::Plain)
}

#[test]
fn what_no_client_could_send_is_wrong_input() {
    let list = [
        refused(|options| options.method = "GE T".to_owned()),
        refused(|options| options.url = "a.test/x".to_owned()),
        refused(|options| options.url = "http://a.test/a b".to_owned()),
        refused(|options| options.url = "http:///x".to_owned()),
        refused(|options| options.url = "http://a.test/#top".to_owned()),
        refused(|options| options.headers = vec!["X-Canary".to_owned()]),
        refused(|options| options.headers = vec!["X Canary: 1".to_owned()]),
        refused(|options| options.headers = vec!["X-Canary: 1\r\nX: 2".to_owned()]),
        refused(|options| options.client = "localhost".to_owned()),
        refused(|options| options.listen = Some("*:80".to_owned())),
    ];
    insta::assert_snapshot!(list.concat(), @r"
    `GE T` is no method: such as GET
    `a.test/x`: the URL must be whole: begin it with http:// or https://
    `http://a.test/a b`: a URL holds no spaces and nothing beyond ASCII: escape it
    `http:///x`: the URL has no host: which host?
    `http://a.test/#top`: what follows `#` never reaches a server: leave `#` and the rest out
    `X-Canary` is no field: it has no colon, such as -H 'X-Canary: 1'
    `X Canary: 1` is no field: what stands before the colon is no name, such as -H 'X-Canary: 1'
    `X-Canary: 1\r\nX: 2` is no field: its value is not one line, such as -H 'X-Canary: 1'
    `localhost` is no IP address: such as --client 192.0.2.1
    nothing listens on `*:80`; there is: [::]:8080, [::]:8443
    ");
}

#[test]
fn what_a_client_could_send_and_the_proxy_refuses_is_explained() {
    for (url, headers, status, reason) in [
        ("http://a@b/", &[][..], 400, "malformed"),
        ("http://a.test/", &["Content-Length: 5", "Transfer-Encoding: chunked"], 400, "malformed"),
        ("http://a.test/", &["Expect: tea"], 417, "expectation"),
        ("http://a.test/..;/", &[], 400, "ambiguous-path"),
    ] {
        let explanation = explain(&options("site.kdl", url, headers, "127.0.0.1")).unwrap();
        let answer = explanation.answer.clone().unwrap();
        assert_eq!((explanation.outcome, answer.status, answer.reason), ("refuse", status, reason), "{url}");
        assert!(explanation.text(Style::Plain).contains(&format!("is answered with {status}: {}", answer.because)));
    }
    let long = format!("http://a.test/{}", "x".repeat(70_000));
    let explanation = explain(&options("site.kdl", &long, &[], "127.0.0.1")).unwrap();
    assert_eq!(explanation.answer.unwrap().status, 414);
}

#[test]
fn a_listener_is_named_as_rules_name_it_and_a_host_may_be_another() {
    for name in ["*:8443", "[::]:8443"] {
        let mut asked = options("hosts.kdl", "http://a.test/", &["Host: blog.b.test."], "::1");
        asked.listen = Some(name.to_owned());
        let explanation = explain(&asked).unwrap();
        assert_eq!(explanation.listener.scheme, "https");
        assert_eq!(explanation.listener.reason, "it was named, and it does not speak http");
        let seen = explanation.seen.unwrap();
        assert_eq!((seen.host.as_str(), seen.server_name.as_deref()), ("blog.b.test", Some("a.test")));
        assert_eq!(explanation.rule.unwrap().name, "blog");
    }
}

#[test]
fn all_keys_of_the_object_are_always_there() {
    let keys = |url: &str| {
        let value = serde_json::to_value(explain(&options("site.kdl", url, &[], "127.0.0.1")).unwrap()).unwrap();
        value.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let all = keys("http://a.test/x.png");
    assert_eq!(all, keys("http://a.test/%00"));
    assert_eq!(all, keys("http://a@b/"));
    let expected =
        ["answer", "captures", "changes", "forward", "listener", "outcome", "request", "rule", "seen", "steps"];
    assert!(expected.iter().all(|key| all.iter().any(|found| found == key)) && all.len() == expected.len(), "{all:?}");
}

/// What is explained of a GET by this text of a rule file.
fn explained(text: &str) -> Explanation {
    let config = load_text(text).unwrap();
    let rules = RuleSet::compile(config.rules.clone()).unwrap();
    let rehearsal = Rehearsal::new(Arc::new(config), Arc::new(rules));
    let request = RequestDescription {
        method: "GET",
        url: "http://a.test",
        headers: &[],
        client: [127, 0, 0, 1].into(),
        listener: None,
    };
    Explanation::of(&rehearsal, &request)
}

#[test]
fn a_pool_without_a_server_that_may_is_told() {
    for (queue, reason) in [("", "no-server"), ("; queue", "queue-timeout")] {
        let pool = format!("pool \"p\" {{ server \"s\" \"127.0.0.1:1\" weight=0{queue}; }}");
        let explanation = explained(&format!("listen \"127.0.0.1:80\"\n{pool}\nrule \"r\" use=\"p\"\n"));
        assert_eq!(explanation.answer.as_ref().map(|answer| (answer.status, answer.reason)), Some((503, reason)));
        let text = explanation.text(Style::Plain);
        for part in [
            "is answered with 503, by the rule `r`",
            "s at 127.0.0.1:1: weight 0, 0 in flight, not eligible: its weight is 0",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}

#[test]
fn nothing_reaches_the_terminal_as_a_control_character() {
    let text = "listen \"127.0.0.1:80\"\nrule \"r\" respond=403 body=\"\\u{1b}[2J\"\n";
    let config = load_text(text).unwrap();
    let rules = RuleSet::compile(config.rules.clone()).unwrap();
    let rehearsal = Rehearsal::new(Arc::new(config), Arc::new(rules));
    let headers = [("X".to_owned(), "\u{9b}1m".to_owned())];
    let request = RequestDescription {
        method: "GET",
        url: "http://a.test",
        headers: &headers,
        client: [127, 0, 0, 1].into(),
        listener: None,
    };
    let text = Explanation::of(&rehearsal, &request).text(Style::Plain);
    assert!(
        text.contains("\\u{1b}[2J") && !text.contains(|letter: char| letter.is_control() && letter != '\n'),
        "{text}"
    );
}

/// The text between two marks.
fn between<'t>(text: &'t str, front: &str, back: &str) -> &'t str {
    text.split_once(front).and_then(|(_, rest)| rest.split_once(back)).map_or("", |(found, _)| found)
}

#[test]
fn the_manuals_show_what_is_printed() {
    let manual = std::fs::read_to_string("docs/operations.md").unwrap();
    let shown =
        between(&manual, "$ pointsman explain rules/site.kdl GET 'http://site.test/api/v1/users?page=2' -H", "```");
    let (_, shown) = shown.split_once('\n').unwrap();
    let url = "http://site.test/api/v1/users?page=2";
    assert_eq!(shown, told("site.kdl", url, &["Accept: application/json"], "127.0.0.1"));

    let readme = std::fs::read_to_string("README.md").unwrap();
    let shown = between(&readme, "begins like this", "\n\n`rules/`");
    let (_, shown) = shown.split_once("\n\n").unwrap();
    let shown: String = shown.lines().map(|line| line.strip_prefix("    ").unwrap_or(line).to_owned() + "\n").collect();
    let rehearsal =
        rehearsal_of(&MemoryFiles::one("rules.kdl", between(&readme, "```kdl\n", "```")), Path::new("rules.kdl"));
    let url = "http://www.example.test/logo.png";
    let client = [127, 0, 0, 1].into();
    let request = RequestDescription { method: "GET", url, headers: &[], client, listener: None };
    let printed = Explanation::of(&rehearsal.unwrap(), &request).text(Style::Plain);
    assert!(shown.lines().count() > 5 && printed.starts_with(&shown), "{shown}\n{printed}");
}

#[test]
fn a_split_that_is_drawn_says_so_first_and_a_method_in_lower_case_is_noted() {
    let text = "listen \"*:80\"\npool \"a\" { server \"s\" \"127.0.0.1:1\" }\npool \"b\" { server \"s\" \"127.0.0.1:2\" }\n\
                rule \"half\" { split { use \"a\" weight=1; use \"b\" weight=1 } }\n";
    let config = Arc::new(load_text(text).unwrap());
    let rules = Arc::new(RuleSet::compile(config.rules.clone()).unwrap());
    let description = RequestDescription {
        method: "get",
        url: "http://a.test/",
        headers: &[],
        client: Ipv4Addr::LOCALHOST.into(),
        listener: None,
    };
    let told = Explanation::of(&Rehearsal::new(config, rules), &description).text(Style::Plain);
    for part in [
        "goes to one of the pools `a`, `b` at random, by the rule `half` at rules.kdl:4; this time to the server `s` at ",
        "get is not GET: the case of a method counts",
        "at most 100MiB, the default limit",
    ] {
        assert!(told.contains(part), "{part} in\n{told}");
    }
}

#[test]
fn programs_are_told_of_errors_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.kdl");
    std::fs::write(&file, "listen \"*:80\"\nrule use=\"nowhere\"\n").unwrap();
    let asked = std::process::Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(["explain", "--json"])
        .arg(&file)
        .args(["GET", "http://a.test/"])
        .output()
        .unwrap();
    assert_eq!(asked.status.code(), Some(1));
    let told: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(told["errors"][0]["place"], format!("{}:2", file.display()));
    assert!(told["errors"][0]["message"].as_str().unwrap().contains("nowhere"));
}

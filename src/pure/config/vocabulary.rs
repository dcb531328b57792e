//! The whole language as data: every node with its arguments, settings and children. What is not in here is an error.

use std::time::Duration;

use super::form::{Kind, NodeForm, Setting};
use super::limit_table;

const fn text(what: &'static str) -> Kind {
    Kind::Text { what }
}

const ADDRESS: Kind = text("an address with a port");
const FIELD_NAME: Kind = text("a field's name");
const FIELD_VALUE: Kind = text("a field's value");
const POOL_NAME: Kind = text("a pool's name");
const FILE: Kind = text("a file");

static CERTIFICATE: NodeForm = NodeForm::new("certificate", r#"certificate "certs/site.crt" key="certs/site.key""#)
    .taking(&[FILE], 1)
    .with(&[Setting::one("key", FILE)])
    .holding(&[&CLIENT_CA])
    .repeated();
static CLIENT_CA: NodeForm = NodeForm::new("client-ca", r#"client-ca "certs/clients.crt" mode="required""#)
    .taking(&[FILE], 1)
    .with(&[Setting::one("mode", Kind::Word { now: &["required", "optional"], later: &[] })]);
static TLS: NodeForm = NodeForm::new("tls", r#"tls { certificate "certs/site.crt" key="certs/site.key" }"#)
    .holding(&[&CERTIFICATE, &CLIENT_CA]);
static PROXY_PROTOCOL: NodeForm = NodeForm::new("proxy-protocol", "proxy-protocol");

static LIMIT_SETTINGS: [Setting; 12] = limit_table::settings("limits");
static LIMITS: NodeForm =
    NodeForm::new("limits", r#"limits { header-timeout "10s"; body-max "100MiB" }"#).with(&LIMIT_SETTINGS).repeated();

static LISTEN: NodeForm = NodeForm::new("listen", r#"listen "0.0.0.0:80""#)
    .taking(&[ADDRESS], 1)
    .with(&[
        Setting::list("protocols", Kind::Word { now: &["http/1.1", "h2", "h2c"], later: &[] }),
        Setting::list("trusted-proxies", text("an address range, or `unix`")),
        Setting::one("via", Kind::Word { now: &["on", "off"], later: &[] }),
        Setting::one("request-id", Kind::Switch),
        Setting::one("half-close", Kind::Switch),
        Setting::text("mode", "permissions such as `0660`"),
    ])
    .holding(&[&TLS, &LIMITS, &PROXY_PROTOCOL])
    .repeated();

static SERVER: NodeForm = NodeForm::new("server", r#"server "o1" "10.0.0.1:9000" weight=2"#)
    .taking(&[text("the server's name"), ADDRESS], 2)
    .with(&[
        Setting::one("weight", Kind::Whole { min: 0, max: 65_535 }),
        Setting::one("max", Kind::Whole { min: 1, max: 4_294_967_295 }),
        Setting::one("backup", Kind::Switch),
        Setting::one("check-address", ADDRESS),
        Setting::one("agent-port", PORT),
        Setting::text("agent-address", "an IP address"),
    ])
    .holding(&[&MACHINE])
    .repeated();
static MACHINE: NodeForm = NodeForm::new("machine", r#"machine "web1" mac="00:1b:21:aa:bb:cc" ipmi="10.0.9.1""#)
    .taking(&[text("the machine's name")], 0)
    .with(&[
        Setting::text("mac", "the address of a network interface"),
        Setting::text("ipmi", "a host, or an IP address"),
        Setting::text("user", "a user's name"),
        Setting::one("password-file", FILE),
    ]);
const PORT: Kind = Kind::Whole { min: 1, max: 65_535 };

/// The schedulers that work.
pub const SCHEDULERS: &[&str] = &[
    "rr",
    "wrr",
    "lc",
    "wlc",
    "sed",
    "nq",
    "fb-wlc",
    "p2c",
    "peak-ewma",
    "fo",
    "ovf",
    "dh",
    "sh",
    "mh",
    "rendezvous",
    "ch-bl",
    "lblc",
    "lblcr",
    "cbr",
    "run-queue",
];
const FALLBACKS: &[&str] = &["wlc", "none", "rr", "wrr", "lc", "sed", "nq", "fb-wlc", "p2c", "peak-ewma", "fo"];
static SCHEDULER: NodeForm = NodeForm::new("scheduler", r#"scheduler "wrr""#)
    .taking(&[Kind::Word { now: SCHEDULERS, later: &[] }], 1)
    .with(&[
        Setting::text("key", "what is hashed"),
        Setting::one("mode", Kind::Word { now: &["smooth", "maglev", "ipvs"], later: &[] }),
        Setting::one("ties", Kind::Word { now: &["rotate", "first"], later: &[] }),
        Setting::one("fallback", Kind::Word { now: FALLBACKS, later: &[] }),
        Setting::one("bound", Kind::Whole { min: 101, max: 10_000 }),
        Setting::one("keys-max", Kind::Whole { min: 64, max: 16_777_216 }),
        Setting::one("shrink-after", WHILE),
        Setting::one("miss-cost", WHILE),
        Setting::one("choices", Kind::Whole { min: 1, max: 65_535 }),
        Setting::one("reports", Kind::Word { now: &["push", "pull"], later: &[] }),
    ])
    .holding(&[&KEY_NORMALIZE]);
const WHILE: Kind = Kind::Duration { min: Duration::from_millis(1), max: Duration::from_secs(30 * 24 * 3600) };
static KEY_NORMALIZE: NodeForm =
    NodeForm::new("key-normalize", r#"key-normalize sort-query=#true { drop "utm_*" "fbclid" }"#).with(&[
        Setting::one("sort-query", Kind::Switch),
        Setting::list("drop", text("a parameter's name, in which `*` is any text")),
    ]);

static UPSTREAM_SETTINGS: [Setting; 3] = {
    let [idle_max, idle_timeout] = limit_table::settings("upstream");
    [idle_max, idle_timeout, Setting::one("proxy-protocol", Kind::Word { now: &["v1", "v2"], later: &[] })]
};
static UPSTREAM: NodeForm = NodeForm::new("upstream", r#"upstream "http/1.1" idle-max=128 idle-timeout="4s""#)
    .taking(&[Kind::Word { now: &["http/1.1", "h2", "h2c"], later: &[] }], 0)
    .with(&UPSTREAM_SETTINGS)
    .holding(&[&UPSTREAM_TLS]);
static UPSTREAM_TLS: NodeForm = NodeForm::new("tls", r#"tls { ca "certs/ca.crt"; server-name "app.internal" }"#)
    .with(&[
        Setting::one("ca", FILE),
        Setting::text("server-name", "a host, or an IP address"),
        Setting::one("insecure", Kind::Switch),
    ])
    .holding(&[&UPSTREAM_CERTIFICATE]);
static UPSTREAM_CERTIFICATE: NodeForm =
    NodeForm::new("certificate", r#"certificate "certs/client.crt" key="certs/client.key""#)
        .taking(&[FILE], 1)
        .with(&[Setting::one("key", FILE)]);

static TIMEOUT_SETTINGS: [Setting; 3] = limit_table::settings("timeout");
static TIMEOUT: NodeForm =
    NodeForm::new("timeout", r#"timeout connect="2s" response="60s" tunnel="1h""#).with(&TIMEOUT_SETTINGS);

static RETRY_SETTINGS: [Setting; 2] =
    [RETRY_COUNT_SETTING, Setting::text("on", "`connect`, `reset`, `500` and the like")];
const RETRY_COUNT_SETTING: Setting = {
    let [count] = limit_table::settings::<1>("retry");
    count
};
static RETRY: NodeForm = NodeForm::new("retry", r#"retry count=1 on="connect reset""#).with(&RETRY_SETTINGS);

static QUEUE_SETTINGS: [Setting; 2] = limit_table::settings("queue");
static QUEUE: NodeForm = NodeForm::new("queue", r#"queue max=1024 timeout="5s""#).with(&QUEUE_SETTINGS);

/// 0 turns it off, also for servers that were down; in longer than a day nobody believes.
const SLOW_START_TIME: Kind = Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(86_400) };

static POOL: NodeForm = NodeForm::new("pool", r#"pool "origin" { server "o1" "10.0.0.1:9000" }"#)
    .taking(&[text("the pool's name")], 1)
    .with(&[Setting::one("slow-start", SLOW_START_TIME), Setting::one("feedback-dry-run", Kind::Switch)])
    .holding(&[
        &SERVER,
        &SCHEDULER,
        &UPSTREAM,
        &TIMEOUT,
        &RETRY,
        &QUEUE,
        &PERSIST,
        &CHECK,
        &AGENT_CHECK,
        &PASSIVE,
        &ORCA,
        &DETECT,
        &POOL_FEEDBACK,
        &RECOVERY,
    ])
    .repeated();
/// Oftener it would be a load of its own; seldomer it would say nothing of now.
const AGENT_CHECK_EVERY: Kind = Kind::Duration { min: Duration::from_millis(100), max: Duration::from_secs(3600) };
static AGENT_CHECK: NodeForm = NodeForm::new("agent-check", r#"agent-check port=9777 every="2s""#).with(&[
    Setting::one("port", PORT),
    Setting::one("every", AGENT_CHECK_EVERY),
    Setting::one("timeout", Kind::Duration { min: Duration::from_millis(10), max: Duration::from_secs(60) }),
    Setting::text("send", "a text"),
]);
static PERSIST: NodeForm = NodeForm::new("persist", r#"persist cookie="NAME" ttl="8h""#)
    .taking(&[Kind::Word { now: &["source", "tls-session"], later: &[] }], 0)
    .with(&[
        Setting::text("cookie", "a cookie's name"),
        Setting::text("learn", "the name of the application's cookie"),
        Setting::one("header", FIELD_NAME),
        Setting::one("ttl", Kind::Duration { min: Duration::from_secs(1), max: Duration::from_secs(365 * 86_400) }),
        Setting::one("hide", Kind::Switch),
        Setting::text("domain", "a domain"),
        Setting::text("path", "a path"),
        Setting::one("same-site", Kind::Word { now: &["lax", "strict", "none"], later: &[] }),
        Setting::one("secure", Kind::Switch),
        Setting::one("http-only", Kind::Switch),
        Setting::one("mask", Kind::Whole { min: 0, max: 32 }),
        Setting::one("mask6", Kind::Whole { min: 0, max: 128 }),
    ])
    .repeated();
static DETECT: NodeForm = NodeForm::new("detect", r#"detect "evidence" silence=#false"#)
    .taking(&[Kind::Word { now: &["evidence", "classic"], later: &[] }], 0)
    .with(&[Setting::one("silence", Kind::Switch)]);
static POOL_FEEDBACK: NodeForm = NodeForm::new("feedback", r#"feedback "capacity" preset="web""#)
    .taking(&[Kind::Word { now: &["capacity", "classic"], later: &[] }], 1)
    .with(&[
        Setting::one("preset", Kind::Word { now: &["web", "ftp"], later: &[] }),
        Setting::one("cpu", PERCENT),
        Setting::one("memory", PERCENT),
        Setting::one("disk", PERCENT),
        Setting::one("network", PERCENT),
        Setting::one("load-max", PERCENT),
        Setting::one("use-max", PERCENT),
        Setting::one("on-threshold", Kind::Word { now: &["halve", "exclude"], later: &[] }),
    ]);
const PERCENT: Kind = Kind::Whole { min: 0, max: 100 };
static PASSIVE: NodeForm = NodeForm::new("passive", r#"passive status="500 502 503 504""#)
    .with(&[Setting::text("status", "statuses, or `5xx`")]);
static ORCA: NodeForm = NodeForm::new("orca", "orca").with(&[Setting::one("pass-on", Kind::Switch)]);

/// Shorter than a tick of control it would be no other, and in more than a day nobody waits for.
const CHECK_TIME: Kind = Kind::Duration { min: Duration::from_millis(50), max: Duration::from_secs(86_400) };
const CHECK_TIMEOUT: Kind = Kind::Duration { min: Duration::from_millis(1), max: Duration::from_secs(3_600) };
const CHECK_COUNT: Kind = Kind::Whole { min: 1, max: 1000 };
static CHECK: NodeForm = NodeForm::new("check", r#"check "http" path="/health""#)
    .taking(&[Kind::Word { now: &["tcp", "http", "tls", "grpc", "icmp"], later: &[] }], 0)
    .with(&[
        Setting::one("every", CHECK_TIME),
        Setting::one("timeout", CHECK_TIMEOUT),
        Setting::one("fall", CHECK_COUNT),
        Setting::one("rise", CHECK_COUNT),
        Setting::one("port", Kind::Whole { min: 1, max: 65_535 }),
        Setting::one("plain", Kind::Switch),
        Setting::text("method", "a method"),
        Setting::text("path", "a path"),
        Setting::text("host", "a host"),
        Setting::text("status", "statuses such as `200-299,404`"),
        Setting::text("body", "a text"),
        Setting::text("body-regex", "a regular expression"),
        Setting::text("service", "the name of a gRPC service"),
    ])
    .holding(&[&SENT_HEADER]);
static RECOVERY: NodeForm = NodeForm::new("recovery", "recovery { wake-on-lan; ipmi }")
    .with(&[Setting::one("restart", Kind::Switch), Setting::one("dry-run", Kind::Switch)])
    .holding(&[&WAKE_ON_LAN, &IPMI]);
static WAKE_ON_LAN: NodeForm = NodeForm::new("wake-on-lan", r#"wake-on-lan broadcast="10.0.0.255""#)
    .with(&[Setting::text("broadcast", "an IP address")]);
static IPMI: NodeForm =
    NodeForm::new("ipmi", r#"ipmi program="/usr/bin/ipmitool""#).with(&[Setting::one("program", FILE)]);

const HOST: Kind = text("a host, or `*.` and a domain");
const MEDIA_TYPE: Kind = text("a media type such as `image/png` or `image/*`");

/// The predicates that are settings, in a `rule` as in its `not`.
const PREDICATES: [Setting; 10] = [
    Setting::list("listen", text("a listener's address")),
    Setting::list("host", HOST),
    Setting::list("path", text("a path pattern")),
    Setting::list("path-regex", text("a regular expression")),
    Setting::list("method", text("a method")),
    Setting::list("content-type", MEDIA_TYPE),
    Setting::list("accept", MEDIA_TYPE),
    Setting::list("media-type", MEDIA_TYPE),
    Setting::list("client", text("an address or address range")),
    Setting::list("sni", HOST),
];
static NOT_SETTINGS: [Setting; 10] = PREDICATES;

/// What else a rule has that is a setting.
const RULE_OWN: [Setting; 10] = [
    Setting::one("use", POOL_NAME),
    Setting::text("redirect", "a URL"),
    Setting::one("status", Kind::Whole { min: 100, max: 599 }),
    Setting::one("respond", Kind::Whole { min: 200, max: 599 }),
    Setting::text("body", "the answer's text"),
    Setting::text("key", "what is hashed"),
    Setting::text("strip-prefix", "a path"),
    Setting::text("rewrite", "a path with captures"),
    Setting::list("upgrade", text("an upgrade token")),
    Setting::one("body-max", RULE_BODY_MAX),
];
const RULE_BODY_MAX: Kind = {
    let [_, _, body_max, ..] = limit_table::settings::<12>("limits");
    body_max.kind
};
static RULE_SETTINGS: [Setting; 20] = joined();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
const fn joined() -> [Setting; 20] {
    let mut all = [Setting::later(""); 20];
    let mut at = 0;
    while at < 10 {
        all[at] = PREDICATES[at];
        all[at + 10] = RULE_OWN[at];
        at += 1;
    }
    all
}

static HEADER: NodeForm = named_predicate("header", r#"header "X-Canary" "1""#);
static QUERY: NodeForm = named_predicate("query", r#"query "version" "2""#);
static COOKIE: NodeForm = named_predicate("cookie", r#"cookie "beta" "yes""#);
const NAME_AND_VALUES: &[Kind] = &[text("a name"), text("a value, in which `*` is any text")];
const fn named_predicate(name: &'static str, usage: &'static str) -> NodeForm {
    NodeForm::new(name, usage).taking(NAME_AND_VALUES, 1).open().repeated()
}
static NOT: NodeForm = NodeForm::new("not", r#"not { method "GET" "HEAD" }"#)
    .with(&NOT_SETTINGS)
    .holding(&[&HEADER, &QUERY, &COOKIE])
    .repeated();

static ARM: NodeForm = NodeForm::new("use", r#"use "a" weight=95"#)
    .taking(&[POOL_NAME], 1)
    .with(&[Setting::one("weight", Kind::Whole { min: 0, max: 65_535 })])
    .repeated();
static SPLIT: NodeForm = NodeForm::new("split", r#"split { use "a" weight=95; use "b" weight=5 }"#)
    .with(&[Setting::text("key", "what is hashed")])
    .holding(&[&ARM]);

const fn field_change(name: &'static str, usage: &'static str) -> NodeForm {
    NodeForm::new(name, usage).taking(&[FIELD_NAME, FIELD_VALUE], 2).repeated()
}
const fn field_removal(name: &'static str, usage: &'static str) -> NodeForm {
    NodeForm::new(name, usage).taking(&[FIELD_NAME], 1).repeated()
}
static SET_REQUEST: NodeForm = field_change("set-request-header", r#"set-request-header "X-Site" "main""#);
static ADD_REQUEST: NodeForm = field_change("add-request-header", r#"add-request-header "X-Site" "main""#);
static REMOVE_REQUEST: NodeForm = field_removal("remove-request-header", r#"remove-request-header "X-Debug""#);
static SET_RESPONSE: NodeForm = field_change("set-response-header", r#"set-response-header "X-Site" "main""#);
static ADD_RESPONSE: NodeForm = field_change("add-response-header", r#"add-response-header "X-Site" "main""#);
static REMOVE_RESPONSE: NodeForm = field_removal("remove-response-header", r#"remove-response-header "X-Powered-By""#);

static RULE: NodeForm = NodeForm::new("rule", r#"rule "images" path="/img/{*rest}" use="images""#)
    .taking(&[text("the rule's name")], 0)
    .with(&RULE_SETTINGS)
    .holding(&[
        &HEADER,
        &QUERY,
        &COOKIE,
        &NOT,
        &SPLIT,
        &SET_REQUEST,
        &ADD_REQUEST,
        &REMOVE_REQUEST,
        &SET_RESPONSE,
        &ADD_RESPONSE,
        &REMOVE_RESPONSE,
        &LIMITS,
    ])
    .repeated();

static SENT_HEADER: NodeForm =
    NodeForm::new("header", r#"header "X-Canary" "1""#).taking(&[FIELD_NAME, FIELD_VALUE], 2).repeated();
static EXPECT: NodeForm = NodeForm::new("expect", r#"expect "GET http://a.test/img/x.png" use="images""#)
    .taking(&[text("a method and a URL")], 1)
    .with(&[
        Setting::text("client", "an address"),
        Setting::text("listen", "a listener's address"),
        Setting::one("use", POOL_NAME),
        Setting::text("redirect", "the Location"),
        Setting::one("respond", Kind::Whole { min: 200, max: 599 }),
        Setting::text("rule", "a rule's name"),
    ])
    .holding(&[&SENT_HEADER])
    .repeated();

static WORKERS: NodeForm = NodeForm::new("workers", "workers 4").taking(&[Kind::Whole { min: 1, max: 1024 }], 1);
static USER: NodeForm = NodeForm::new("user", r#"user "www-data""#).taking(&[text("a user's name")], 1);
static ACCESS_LOG: NodeForm = NodeForm::new("access-log", r#"access-log "access.log" format="json""#)
    .taking(&[FILE], 1)
    .with(&[Setting::one("format", Kind::Word { now: &["json", "combined"], later: &[] })]);
static INCLUDE: NodeForm = NodeForm::new("include", r#"include "more/*.kdl""#).taking(&[FILE], 1).repeated();

static ADMIN: NodeForm = NodeForm::new("admin", r#"admin "unix:/run/pointsman/admin.sock""#)
    .taking(&[text("a unix socket")], 1)
    .with(&[Setting::later("token-file"), Setting::later("hosts")])
    .holding(&[&ADMIN_TLS]);
static ADMIN_TLS: NodeForm = NodeForm::later("tls");
static ALERT: NodeForm =
    NodeForm::new("alert", r#"alert { webhook "https://hooks.a.test/x" }"#).holding(&[&WEBHOOK, &MAIL]);
static WEBHOOK: NodeForm = NodeForm::new("webhook", r#"webhook "https://hooks.a.test/x" secret-file="secrets/hook""#)
    .taking(&[text("a URL")], 1)
    .with(&[Setting::one("secret-file", FILE), Setting::one("ca", FILE)])
    .repeated();
static MAIL: NodeForm = NodeForm::new("mail", r#"mail to="ops@a.test" from="pointsman@a.test" smtp="mail.a.test""#)
    .with(&[
        Setting::list("to", text("an address of mail")),
        Setting::text("from", "an address of mail"),
        Setting::text("smtp", "a mail server"),
        Setting::one("tls", Kind::Word { now: &["starttls", "implicit", "none"], later: &[] }),
        Setting::text("user", "a user's name"),
        Setting::one("password-file", FILE),
        Setting::one("ca", FILE),
    ])
    .repeated();
static FEEDBACK: NodeForm =
    NodeForm::new("feedback", r#"feedback "10.0.0.1:9787" { key-file "/etc/pointsman/agents.key" }"#)
        .taking(&[ADDRESS], 1)
        .with(&[Setting::one("key-file", FILE), Setting::list("sources", text("an address range"))]);
static SECRET: NodeForm =
    NodeForm::new("secret", r#"secret file="/etc/pointsman/secret""#).with(&[Setting::one("file", FILE)]);
static RESOLVER: NodeForm =
    NodeForm::new("resolver", r#"resolver "10.0.0.53""#).taking(&[text("a DNS server's address")], 1).open();

/// A rule file; its children are what stands at the top.
pub static FILE_FORM: NodeForm = NodeForm::new("", "").holding(&[
    &LISTEN,
    &LIMITS,
    &POOL,
    &RULE,
    &EXPECT,
    &ACCESS_LOG,
    &WORKERS,
    &USER,
    &INCLUDE,
    &ADMIN,
    &ALERT,
    &FEEDBACK,
    &SECRET,
    &RESOLVER,
]);

/// Every name that the language knows: nodes, settings, words, also those that are not supported yet. For the test that
/// holds the reference against the language.
pub fn all_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    collect(&FILE_FORM, &mut names);
    names.sort_unstable();
    names.dedup();
    names
}

fn collect(form: &'static NodeForm, names: &mut Vec<&'static str>) {
    let kinds = form.arguments.iter().chain(form.settings.iter().map(|setting| &setting.kind));
    for kind in kinds {
        if let Kind::Word { now, later } = kind {
            names.extend(now.iter().chain(*later));
        }
    }
    names.extend(form.settings.iter().map(|setting| setting.name));
    for child in form.children {
        names.push(child.name);
        collect(child, names);
    }
}

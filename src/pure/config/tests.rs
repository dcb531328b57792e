//! Whole files: what they become, and what is said of those that are wrong.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::base::id::PoolIndex;
use crate::pure::pool::{Method, Pool, WrrMode};
use crate::pure::rule::{Action, HostPattern};

fn loaded(text: &str) -> Config {
    match load(&MemoryFiles::one("site.kdl", text), "site.kdl".as_ref()) {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    }
}

#[test]
fn the_smallest_useful_file_becomes_what_it_says() {
    let config = loaded(
        r#"
listen "127.0.0.1:8080"
listen "127.0.0.1:8443" {
    tls { certificate "certs/site.crt" key="certs/site.key" }   // several: the most specific SNI match wins
}
limits { header-timeout "3s"; idle-timeout "20s"; body-max "100MiB"; head-max "64KiB"; drain-timeout "30s" }

pool "origin" {
    server "o1" "127.0.0.1:9000" weight=2
    server "o2" "127.0.0.1:9001"
    scheduler "wrr"
    timeout connect="2s" response="6s" tunnel="60s"
}
rule use="origin"
"#,
    );
    assert_eq!(config.listeners.len(), 2);
    assert_eq!(config.listeners[0].limits.header_timeout, Duration::from_secs(3));
    let tls = config.listeners[1].tls.as_ref().unwrap();
    assert_eq!(tls.certificates[0].files.key, std::path::Path::new("certs/site.key"));
    let pool = &config.pools[0];
    assert_eq!(pool.servers.iter().map(|server| server.weight).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(pool.scheduler.method, Method::WeightedRoundRobin(WrrMode::Smooth));
    assert_eq!(pool.timeouts.response, Duration::from_secs(6));
    assert_eq!(config.rules[0].action, Action::Use(PoolIndex(0)));
    assert_eq!(&*config.rules[0].name, "rule-1");
    assert_eq!(config.rules[0].place, "site.kdl:14");
}

#[test]
fn predicates_are_read_from_properties_and_from_nodes() {
    let config = loaded(
        r#"
listen "[::1]:80"
pool "a" { server "s" "[::1]:9000" }
rule "all" host="A.test." path="/u/{id}" use="a" {
    method "GET" "HEAD"
    header "X-Canary" "1"
    header "x-canary" "2"
    cookie "beta"
    client "10.0.0.0/8" "::1"
    not { host "*.b.test"; media-type "Image/*" }
    set-request-header "X-User" "{id}"
    rewrite "/users/{id}"
    limits { body-max "1MiB" }
}
"#,
    );
    let rule = &config.rules[0];
    assert_eq!(rule.when.hosts, [HostPattern::Exact("a.test".to_owned())]);
    assert_eq!(rule.when.methods, ["GET", "HEAD"]);
    assert_eq!(rule.when.headers.len(), 1);
    assert_eq!(rule.when.headers[0].values.len(), 2);
    assert!(rule.when.cookies[0].values.is_empty());
    assert_eq!(rule.when.clients.len(), 2);
    assert_eq!(rule.unless.hosts, [HostPattern::Suffix(".b.test".to_owned())]);
    assert_eq!(rule.unless.media_types[0].0, "image/*");
    assert_eq!(rule.body_max, Some(Bytes::mib(1)));
    assert!(rule.changes.upgrades.is_empty());
}

#[test]
fn queue_backups_and_slow_start_are_what_a_pool_says() {
    let config = loaded(
        r#"
listen "[::1]:80"
pool "plain" { server "s" "[::1]:9000" }
pool "queued" { server "s" "[::1]:9000" max=2; server "t" "[::1]:9001" backup=#true; queue; slow-start "10s" }
pool "bounded" slow-start="500ms" { server "s" "[::1]:9000" backup=#false; queue max=7 timeout="20ms" }
"#,
    );
    let told = |pool: &Pool| {
        let backups: Vec<bool> = pool.servers.iter().map(|server| server.is_backup).collect();
        (backups, pool.queue.map(|queue| (queue.max, queue.timeout.as_millis())), pool.slow_start)
    };
    let all: Vec<_> = config.pools.iter().map(|pool| told(pool)).collect();
    assert_eq!(
        all,
        [
            (vec![false], None, None),
            (vec![false, true], Some((1024, 5_000)), Some(Duration::from_secs(10))),
            (vec![false], Some((7, 20)), Some(Duration::from_millis(500))),
        ]
    );
}

#[test]
fn feedback_agent_checks_and_run_queues_are_what_a_file_says() {
    use crate::pure::feedback::agent_check::AskedAt;
    use crate::pure::pool::{Method, Reports};
    let config = loaded(
        r#"listen "127.0.0.1:80"
feedback "*:7946" { key-file "agents.key"; sources "10.0.0.0/8" "2001:db8::1" }
pool "p" {
    server "a" "10.0.0.1:80"
    server "b" "unix:/run/b.sock" agent-address="10.0.0.2" agent-port=2
    agent-check port=1 every="500ms" send="p\n"
    scheduler "run-queue" reports="pull"
}
pool "q" { server "a" "10.0.0.1:80"; agent-check port=9; scheduler "run-queue" }
"#,
    );
    let feedback = config.feedback.as_ref().unwrap();
    assert_eq!((feedback.address.to_string().as_str(), feedback.sources.len()), ("[::]:7946", 2));
    assert!(feedback.key_file.ends_with("agents.key"));
    let check = |pool: usize| config.pools[pool].agent_check.as_ref().unwrap();
    assert_eq!((check(0).every, check(0).timeout), (Duration::from_millis(500), Duration::from_millis(500)));
    assert_eq!((check(1).every, check(1).timeout), (Duration::from_secs(2), Duration::from_secs(1)));
    assert_eq!((&*check(0).send, &*check(1).send), (&b"p\n"[..], &b""[..]));
    assert_eq!(check(0).places["a"], AskedAt { address: None, port: 1 });
    assert_eq!(check(0).places["b"], AskedAt { address: Some([10, 0, 0, 2].into()), port: 2 });
    let methods: Vec<&Method> = config.pools.iter().map(|pool| &pool.scheduler.method).collect();
    assert_eq!(methods, [&Method::ShortestRunQueue(Reports::Pull), &Method::ShortestRunQueue(Reports::Push)]);
}

#[test]
fn machines_recovery_and_alerts_are_read() {
    let config = loaded(
        r#"
listen "[::1]:80"
pool "a" {
    server "s" "10.0.0.1:9000" { machine mac="00:1b:21:aa:bb:cc" ipmi="10.0.9.1" user="me" password-file="p" }
    server "t" "10.0.0.1:9001"
    server "u" "b.test:9001" { machine "blade" }
    recovery { wake-on-lan broadcast="10.0.0.255:7"; ipmi program="bin/ipmi"; dry-run #true }
}
pool "b" { server "s" "unix:/s" ; server "t" "127.0.0.1:1"; recovery }
alert {
    webhook "https://a.test/x" secret-file="s"
    mail from="p@a.test" smtp="[::1]" tls="implicit" { to "o@a.test" "q@a.test" }
}
rule respond=404
"#,
    );
    let (first, second) = (&config.pools[0], &config.pools[1]);
    let plan = first.recovery.as_ref().unwrap();
    assert!(plan.restart && plan.is_dry_run);
    assert_eq!(plan.wake_on_lan, Some("10.0.0.255:7".parse().unwrap()));
    assert_eq!(plan.ipmi.as_deref(), Some(Path::new("bin/ipmi")));
    let plan = second.recovery.as_ref().unwrap();
    assert!(plan.restart && !plan.is_dry_run && plan.wake_on_lan.is_none() && plan.ipmi.is_none());
    let machine = |pool: &crate::pure::pool::Pool, index: usize| config.machines.name_of(&pool.servers[index].id);
    assert_eq!([0, 1, 2].map(|index| machine(first, index)), ["10.0.0.1", "10.0.0.1", "blade"].map(Arc::from));
    assert_eq!([0, 1].map(|index| machine(second, index)), ["localhost", "localhost"].map(Arc::from));
    let board = config.machines.get("10.0.0.1").unwrap().ipmi.as_ref().unwrap();
    assert_eq!((board.user.as_deref(), board.password_file.as_deref()), (Some("me"), Some(Path::new("p"))));
    assert_eq!(config.places.secret_files.len(), 2);
    assert_eq!(config.alert.webhooks[0].secret_file.as_deref(), Some(Path::new("s")));
    let mail = &config.alert.mails[0];
    assert_eq!((mail.to.len(), mail.host.as_str(), mail.port), (2, "::1", 465));
}

/// Else `a/b` of the pool `c` and `b` of the pool `c/a` would have one name on the wire, and one key.
#[test]
fn names_of_pools_and_servers_have_no_slash() {
    for (pool, server) in [("a/b", "s"), ("a", "s/t"), ("/", "s"), ("a", "/")] {
        let text = format!(
            "listen \"127.0.0.1:80\"\npool \"{pool}\" {{ server \"{server}\" \"[::1]:9000\" }}\nrule use=\"{pool}\"\n"
        );
        let errors = load(&MemoryFiles::one("site.kdl", &text), "site.kdl".as_ref()).unwrap_err().to_string();
        assert!(errors.contains("this is no name of a"), "{pool} {server}: {errors}");
    }
}

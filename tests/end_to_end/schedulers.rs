//! Schedulers in the whole product: each answers, keys stay with their servers on every worker, and what a server that goes
//! takes with it.

use std::collections::{BTreeMap, BTreeSet};

use pointsman::pure::config::vocabulary::SCHEDULERS;

use crate::pools::{Server, pool};
use crate::support::{Client, DEADLINE, Origin, Proxy, wait_for};

/// Four workers, so that requests on several connections meet several of them.
fn rules(origins: &[Origin], lines: &str, rule: &str) -> String {
    // With weights above what is in flight here, so that no server is ever overloaded.
    let pool = pool(origins.iter().map(|origin| Server::with(origin, "weight=16")), lines);
    format!("workers 4\nlisten \"127.0.0.1:0\"\n{pool}rule {rule} use=\"p\"\n")
}

fn origins(count: usize) -> Vec<Origin> {
    (0..count)
        .map(|number| {
            Origin::with(move |exchange| {
                exchange.read_body();
                exchange.respond(200, &[("Cache-Status", "c; hit")], number.to_string().as_bytes());
            })
        })
        .collect()
}

/// The server that answers each target, asked on a connection of its own.
fn servers_of(proxy: &Proxy, targets: &[String]) -> Vec<String> {
    let ask = |target: &String| {
        let response = Client::connect(proxy.address()).get(target);
        assert_eq!(response.status(), 200, "{target}");
        response.text()
    };
    targets.iter().map(ask).collect()
}

#[test]
fn every_scheduler_answers_on_every_worker() {
    for name in SCHEDULERS.iter().copied() {
        let origins = origins(3);
        let proxy = Proxy::start(&rules(&origins, &format!("scheduler \"{name}\""), ""));
        let targets: Vec<String> = (0..24).map(|number| format!("/{}", number % 8)).collect();
        let servers: BTreeSet<String> = servers_of(&proxy, &targets).into_iter().collect();
        let stays = matches!(name, "fo" | "ovf" | "sh");
        assert!(servers.len() > 1 || stays, "{name} gave everything to one");
    }
}

#[test]
fn a_path_has_one_server_on_all_workers_and_others_do_not_move_when_one_goes() {
    for name in ["dh", "mh", "rendezvous", "ch-bl", "lblc", "lblcr", "cbr"] {
        let origins = origins(4);
        let proxy = Proxy::start(&rules(&origins, &format!("scheduler \"{name}\""), ""));
        let targets: Vec<String> = (0..60).map(|number| format!("/page/{number}?at={number}")).collect();
        let first = servers_of(&proxy, &targets);
        assert_eq!(servers_of(&proxy, &targets), first, "{name}");
        let gone = first[0].clone();
        origins[gone.parse::<usize>().unwrap()].stop();
        for (target, (before, after)) in targets.iter().zip(first.iter().zip(servers_of(&proxy, &targets))) {
            assert!(*before == after || *before == gone, "{name} moved {target}, which was another server's");
        }
    }
}

#[test]
fn a_rules_key_beats_the_pools() {
    let origins = origins(8);
    let rule = r##"path-regex=#"^/users/([^/]+)/"# key="$1""##;
    let proxy = Proxy::start(&rules(&origins, "scheduler \"mh\" key=\"path\"", rule));
    let mut by_user: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for user in 0..12 {
        let targets: Vec<String> = (0..4).map(|page| format!("/users/u{user}/{page}")).collect();
        by_user.entry(user).or_default().extend(servers_of(&proxy, &targets));
    }
    assert!(by_user.values().all(|servers| servers.len() == 1), "{by_user:?}");
    assert!(by_user.values().collect::<BTreeSet<_>>().len() > 1);
}

#[test]
fn of_a_query_only_what_is_wanted_counts() {
    let origins = origins(8);
    let lines = r#"scheduler "mh" key="uri" { key-normalize sort-query=#true { drop "utm_*" } }"#;
    let proxy = Proxy::start(&rules(&origins, lines, ""));
    for number in 0..12 {
        let same = [format!("/?a={number}&b=2"), format!("/?utm_x={number}&b=2&a={number}")];
        let servers = servers_of(&proxy, &same);
        assert_eq!(servers[0], servers[1]);
    }
}

/// The kernel's way: a key whose server is out is answered with 503, and no other server is asked.
#[test]
fn with_no_fallback_a_key_whose_server_is_out_leads_nowhere() {
    let origins = origins(2);
    let lines = "scheduler \"mh\" fallback=\"none\"\n    retry count=0";
    let proxy = Proxy::start(&rules(&origins, lines, ""));
    let targets: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
    let servers = servers_of(&proxy, &targets);
    let place = servers.iter().position(|server| server == "0").unwrap();
    let other = servers.iter().position(|server| server == "1").unwrap();
    origins[0].stop();
    let ask = |place: usize| Client::connect(proxy.address()).get(&targets[place]).status();
    wait_for("the server is suspected", DEADLINE, || (ask(place) == 503).then_some(()));
    assert_eq!(ask(other), 200);
}

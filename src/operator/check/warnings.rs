//! What is allowed and surely not meant.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::base::id::PoolIndex;
use crate::pure::config::{Config, PoolPlaces, Problem};
use crate::pure::detection::DetectMode;
use crate::pure::pool::Method;
use crate::pure::rule::compile::RuleSet;
use crate::pure::rule::cover::{Shadow, regex_is_prefix};
use crate::pure::rule::{Action, FieldChange, HostPattern};

/// What helps where nobody listens to agents.
const HOW_AGENTS_REPORT: &str =
    "agents report where `feedback` stands at the top: feedback \"10.0.0.1:7946\" { key-file \"agents.key\" }";

/// Adds all warnings of `config`.
pub(super) fn find(config: &Config, warnings: &mut Vec<Problem>) {
    unused_pools(config, warnings);
    powerless_pools(config, warnings);
    pools_of_backups(config, warnings);
    choices_of_one_process(config, warnings);
    cookies_of_two_pools(config, warnings);
    queues_that_nobody_tells(config, warnings);
    reports_that_nobody_sends(config, warnings);
    restarts_that_nobody_is_told_of(config, warnings);
    users_without_passwords(config, warnings);
    idle_keys(config, warnings);
    overlapping_listeners(config, warnings);
    unserved_listeners(config, warnings);
    unknown_clients(config, warnings);
}

/// Adds the warnings of rules that others hide, and of expressions that a path pattern could say.
pub(super) fn find_in_rules(config: &Config, rules: &RuleSet, warnings: &mut Vec<Problem>) {
    for shadow in rules.shadows() {
        warnings.extend(hidden(config, &shadow));
    }
    for (rule, places) in config.rules.iter().zip(&config.places.rules) {
        for (expression, place) in rule.when.path_regexes.iter().zip(&places.path_regexes) {
            if let Some(pattern) = regex_is_prefix(expression) {
                let problem = Problem::at(place, "this expression is a path pattern in disguise").as_warning();
                warnings
                    .push(problem.label(format!("write path=\"{pattern}\"")).help("a path pattern is found faster"));
            }
        }
    }
}

fn hidden(config: &Config, shadow: &Shadow) -> Option<Problem> {
    let earlier = config.places.rules.get(shadow.earlier)?;
    let later = config.places.rules.get(shadow.later)?;
    let (name, earlier_name) = (&config.rules.get(shadow.later)?.name, &config.rules.get(shadow.earlier)?.name);
    let hosts = &config.rules.get(shadow.later)?.when.hosts;
    let is_host = |pattern: &HostPattern| matches!((pattern, &shadow.host), (HostPattern::Exact(name), Some(host)) if name == host);
    let host_place = hosts.iter().position(is_host).and_then(|position| later.hosts.get(position));
    let problem = match (&shadow.host, shadow.is_whole) {
        (Some(host), false) => {
            Problem::at(host_place.unwrap_or(&later.node), format!("the rule `{name}` never sees the host {host}"))
        }
        (Some(_) | None, _) => Problem::at(&later.node, format!("the rule `{name}` can never match")),
    };
    let problem = problem.as_warning().label("hidden").also(&earlier.node, "by this rule, which comes first");
    Some(match &shadow.host {
        Some(host) => problem.help(format!("a wildcard of `{earlier_name}` takes {host}: put the exact host above it")),
        None => problem.help(format!("`{earlier_name}` takes every request that it asks for: change their order")),
    })
}

/// The pools that a rule may send requests to.
pub(super) fn pools_of(action: &Action) -> Vec<PoolIndex> {
    match action {
        Action::Use(pool) => vec![*pool],
        Action::Split { arms, .. } => arms.iter().map(|(pool, _)| *pool).collect(),
        Action::Redirect { .. } | Action::Respond { .. } => Vec::new(),
    }
}

fn unused_pools(config: &Config, warnings: &mut Vec<Problem>) {
    let used: HashSet<PoolIndex> = config.rules.iter().flat_map(|rule| pools_of(&rule.action)).collect();
    for (index, (pool, PoolPlaces { node: place, .. })) in config.pools.iter().zip(&config.places.pools).enumerate() {
        let is_used = u32::try_from(index).is_ok_and(|index| used.contains(&PoolIndex(index)));
        if !is_used {
            let problem = Problem::at(place, format!("no rule uses the pool `{}`", pool.name)).as_warning();
            warnings.push(problem.label("it gets no request").help(format!("rule .. use=\"{}\"", pool.name)));
        }
    }
}

/// Pools whose agents should restart services, where there is no way to any agent.
fn restarts_that_nobody_is_told_of(config: &Config, warnings: &mut Vec<Problem>) {
    if config.feedback.is_some() {
        return;
    }
    for (pool, places) in config.pools.iter().zip(&config.places.pools) {
        let restarts = pool.recovery.as_ref().is_some_and(|plan| plan.restart);
        if let Some(place) = places.recovery.as_ref().filter(|_| restarts) {
            let message = format!("no agent can be told to restart the services of `{}`", pool.name);
            let problem = Problem::at(place, message).as_warning().label("there is no `feedback` at the top");
            warnings.push(
                problem.help(
                    "add: feedback \"10.0.0.100:7946\" { key-file \"agents.key\" }, or write `restart #false` here",
                ),
            );
        }
    }
}

/// Boards of machines at which we are somebody who has no password.
fn users_without_passwords(config: &Config, warnings: &mut Vec<Problem>) {
    let mut seen = HashSet::new();
    for (pool, places) in config.pools.iter().zip(&config.places.pools) {
        for (server, place) in pool.servers.iter().zip(&places.servers) {
            let machine = config.machines.get(&config.machines.name_of(&server.id));
            let Some((machine, board)) = machine.and_then(|machine| Some((machine, machine.ipmi.as_ref()?))) else {
                continue;
            };
            let Some(user) = board.user.as_ref().filter(|_| board.password_file.is_none()) else { continue };
            if seen.insert(&machine.name) {
                let message = format!("the user `{user}` of the machine `{}` has no password", machine.name);
                let problem = Problem::at(place, message).as_warning().label("few boards let such a user in");
                warnings.push(problem.help("machine ipmi=\"10.0.9.1\" user=\"me\" password-file=\"FILE\""));
            }
        }
    }
}

fn powerless_pools(config: &Config, warnings: &mut Vec<Problem>) {
    for (pool, PoolPlaces { node: place, .. }) in config.pools.iter().zip(&config.places.pools) {
        if pool.servers.iter().all(|server| server.weight == 0) {
            let problem = Problem::at(place, format!("all servers of `{}` have weight 0", pool.name)).as_warning();
            warnings.push(problem.label("every request gets 503").help("a weight of 0 gets nothing"));
        }
    }
}

/// Pools in which nobody is there to be stood by for.
fn pools_of_backups(config: &Config, warnings: &mut Vec<Problem>) {
    for (pool, PoolPlaces { node: place, .. }) in config.pools.iter().zip(&config.places.pools) {
        if !pool.servers.is_empty() && pool.servers.iter().all(|server| server.is_backup) {
            let problem = Problem::at(place, format!("all servers of `{}` are backups", pool.name)).as_warning();
            let problem = problem.label("each gets requests as if it were none");
            warnings.push(problem.help("a backup stands by for servers without `backup=#true`"));
        }
    }
}

/// Pools whose clients' choices end with the process, for want of a secret.
fn choices_of_one_process(config: &Config, warnings: &mut Vec<Problem>) {
    if config.secret.is_some() {
        return;
    }
    for (pool, places) in config.pools.iter().zip(&config.places.pools) {
        let Some(place) = &places.needs_secret else { continue };
        let problem = Problem::at(place, format!("the pool `{}` persists, and there is no `secret`", pool.name));
        let problem = problem.as_warning().label("a restart forgets it, and no second node knows it");
        warnings.push(problem.help(
            "every client then chooses anew: head -c 32 /dev/urandom > secret, and at the top: secret file=\"secret\"",
        ));
    }
}

/// Pools that give one cookie: a client of both would be given another with each change from one to the other.
fn cookies_of_two_pools(config: &Config, warnings: &mut Vec<Problem>) {
    let mut first_of = std::collections::HashMap::new();
    for (pool, places) in config.pools.iter().zip(&config.places.pools) {
        let cookie = pool.persistence.as_ref().and_then(|persistence| persistence.cookie.as_ref());
        let (Some(cookie), Some(place)) = (cookie, &places.needs_secret) else { continue };
        let (first, first_place) =
            *first_of.entry((&cookie.name, &cookie.domain, &cookie.path)).or_insert((pool, place));
        if !std::ptr::eq(first, pool) {
            let message = format!("the pools `{}` and `{}` give the same cookie", first.name, pool.name);
            let problem = Problem::at(place, message).as_warning().label("each would replace the other's");
            warnings.push(problem.also(first_place, "the first").help("give each pool's cookie a name of its own"));
        }
    }
}

/// Pools that go by run queues, which nobody could tell.
fn queues_that_nobody_tells(config: &Config, warnings: &mut Vec<Problem>) {
    if config.feedback.is_some() {
        return;
    }
    for (pool, places) in config.pools.iter().zip(&config.places.pools) {
        if matches!(pool.scheduler.method, Method::ShortestRunQueue(_)) {
            let place = places.scheduler.as_ref().unwrap_or(&places.node);
            let problem = Problem::at(place, format!("nobody can tell the run queues of the pool `{}`", pool.name));
            let problem = problem.as_warning().label("it goes by `wlc`");
            warnings.push(problem.help(HOW_AGENTS_REPORT));
        }
    }
}

/// Pools that go by reports which nobody could send, and settings that nobody looks at.
fn reports_that_nobody_sends(config: &Config, warnings: &mut Vec<Problem>) {
    let listens = config.feedback.is_some();
    for (pool, places) in config.pools.iter().zip(&config.places.pools) {
        let is_classic = pool.detection.mode == DetectMode::Classic;
        let has_others = pool.orca.is_some() || pool.agent_check.is_some();
        let mut warn = |what: String, label: &str| {
            let problem = Problem::at(&places.node, what).as_warning().label(label.to_owned());
            warnings.push(problem.help(HOW_AGENTS_REPORT));
        };
        if is_classic && !listens {
            warn(
                format!("nobody reports to `detect \"classic\"` of the pool `{}`", pool.name),
                "its servers are never suspected",
            );
        } else if pool.feedback.is_some() && !listens && !has_others {
            warn(format!("nobody reports to `feedback` of the pool `{}`", pool.name), "the weights stay as they are");
        }
        if is_classic && pool.check.is_some() {
            let problem = Problem::at(&places.node, format!("the `check` of the pool `{}` is never run", pool.name));
            let problem = problem.as_warning().label("`detect \"classic\"` goes by agents alone");
            warnings.push(problem.help("leave one of them out"));
        }
    }
}

/// Rules whose key nobody hashes.
fn idle_keys(config: &Config, warnings: &mut Vec<Problem>) {
    for (rule, place) in config.rules.iter().zip(&config.places.rules) {
        let Some(key) = &rule.key else { continue };
        let pools = pools_of(&rule.action);
        let hashes =
            |pool: &PoolIndex| config.pools.get(pool.0 as usize).is_some_and(|pool| pool.scheduler.method.is_keyed());
        if !pools.iter().any(hashes) {
            let problem = Problem::at(
                place.key.as_ref().unwrap_or(&place.node),
                format!("nothing hashes the key {key} of this rule"),
            )
            .as_warning();
            let problem = problem.label("its pool goes without a key");
            warnings.push(problem.help(r#"give the pool a scheduler that goes by a key: scheduler "mh""#));
        }
    }
}

/// Listeners of which one takes the other's addresses as well: which of them a connection reaches is the system's choice.
fn overlapping_listeners(config: &Config, warnings: &mut Vec<Problem>) {
    let covers = |wide: IpAddr, narrow: IpAddr| match wide {
        IpAddr::V4(wide) => wide.is_unspecified() && narrow.is_ipv4(),
        IpAddr::V6(wide) => wide.is_unspecified(),
    };
    let mut wide_ports = std::collections::HashMap::<u16, Vec<usize>>::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        let address = listener.address.socket();
        if let Some(address) = address.filter(|address| address.ip().is_unspecified() && address.port() != 0) {
            wide_ports.entry(address.port()).or_default().push(index);
        }
    }
    for (index, (listener, places)) in config.listeners.iter().zip(&config.places.listeners).enumerate() {
        let Some(address) = listener.address.socket() else { continue };
        let others = wide_ports.get(&address.port()).map(Vec::as_slice).unwrap_or_default();
        for other in others.iter().filter(|other| **other != index) {
            let (Some(wide), Some(wide_places)) = (config.listeners.get(*other), config.places.listeners.get(*other))
            else {
                continue;
            };
            if covers(wide.address.stand_in().ip(), address.ip()) {
                let problem = Problem::at(&places.node, format!("{address} is an address of {} too", wide.address));
                let problem = problem.as_warning().label("two listeners for one address");
                warnings.push(problem.also(&wide_places.node, "this one takes every address").help(
                    "the system may refuse to open both; keep the wide one, or list its other addresses one by one",
                ));
            }
        }
    }
}

/// Rules that tell servers who the client is where no client is ever asked.
fn unknown_clients(config: &Config, warnings: &mut Vec<Problem>) {
    let certificates = config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    if certificates.flat_map(|tls| &tls.certificates).any(|certificate| certificate.clients.is_some()) {
        return;
    }
    let tells = |change: &FieldChange| match change {
        FieldChange::Set(_, value) | FieldChange::Add(_, value) => value.tells_identity(),
        FieldChange::Remove(_) => false,
    };
    for (rule, places) in config.rules.iter().zip(&config.places.rules) {
        if rule.changes.request.iter().chain(&rule.changes.response).any(tells) {
            let problem = Problem::at(&places.node, "no listener asks clients for a certificate").as_warning();
            let problem = problem.label("this rule tells of them");
            warnings.push(problem.help("ask: listen .. { tls { client-ca \"FILE\" mode=\"optional\"; .. } }"));
        }
    }
}

fn unserved_listeners(config: &Config, warnings: &mut Vec<Problem>) {
    if config.rules.is_empty() {
        if let Some(places) = config.places.listeners.first() {
            let problem = Problem::at(&places.node, "there is no rule").as_warning();
            warnings.push(problem.label("every request gets 404").help("rule use=\"POOL\""));
        }
        return;
    }
    if config.rules.iter().any(|rule| rule.when.listeners.is_empty()) {
        return;
    }
    let served: HashSet<u32> = config.rules.iter().flat_map(|rule| &rule.when.listeners).map(|index| index.0).collect();
    for (index, places) in (0..).zip(&config.places.listeners) {
        if !served.contains(&index) {
            let problem = Problem::at(&places.node, "no rule serves this listener: each names another").as_warning();
            warnings.push(problem.label("every request gets 404").help("a rule without `listen` serves all listeners"));
        }
    }
}

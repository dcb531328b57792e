//! Warnings of values that are right by themselves and surely meant otherwise.

use std::collections::HashMap;

use crate::pure::config::source::Place;
use crate::pure::config::{Config, Problem};

/// Adds all of them.
pub(super) fn find(config: &Config, warnings: &mut Vec<Problem>) {
    stars_in_paths(config, warnings);
    idle_prefixes(config, warnings);
    doubled_servers(config, warnings);
    trust_in_everybody(config, warnings);
}

/// A `*` outside braces is a letter in a pattern, and the rest of the path to whoever knows other proxies.
fn stars_in_paths(config: &Config, warnings: &mut Vec<Problem>) {
    for place in config.places.rules.iter().flat_map(|places| &places.paths) {
        let mut depth = 0_usize;
        let has_star = place.text().bytes().any(|byte| {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            byte == b'*' && depth == 0
        });
        if has_star {
            let written = place.text().trim_matches(['"', '#']);
            let meant = match written.strip_suffix("/*") {
                Some(start) if !start.contains('*') => format!("write \"{start}/{{*rest}}\", if that is meant"),
                Some(_) | None => "not a wildcard".to_owned(),
            };
            let problem =
                Problem::at(place, "this `*` is a letter of the path and stands for nothing else").as_warning();
            warnings.push(problem.label(meant).help("{name} is one segment, {*rest} is all that follow"));
        }
    }
}

/// A `strip-prefix` that no path of its rule begins with.
fn idle_prefixes(config: &Config, warnings: &mut Vec<Problem>) {
    for (rule, places) in config.rules.iter().zip(&config.places.rules) {
        let (Some(prefix), Some(place)) = (&rule.changes.strip_prefix, &places.strip_prefix) else { continue };
        let paths = &rule.when.paths;
        if paths.is_empty() || paths.iter().any(|path| may_begin(path, prefix)) {
            continue;
        }
        let problem = Problem::at(place, format!("no path of this rule begins with {prefix}")).as_warning();
        warnings.push(problem.label("nothing to strip").help(format!("the rule asks for {}", paths.join(", "))));
    }
}

fn may_begin(path: &str, prefix: &str) -> bool {
    match path.split_once('{') {
        Some((literal, _)) => literal.starts_with(prefix) || prefix.starts_with(literal),
        None => path.starts_with(prefix),
    }
}

/// Two servers of one pool at one address: it gets the share of both, and its limits count twice.
fn doubled_servers(config: &Config, warnings: &mut Vec<Problem>) {
    for (pool, places) in config.pools.iter().zip(&config.places.pools) {
        let mut first_at: HashMap<String, &Place> = HashMap::new();
        for (server, place) in pool.servers.iter().zip(&places.servers) {
            let address = server.address.to_string();
            match first_at.get(&address) {
                Some(first) => {
                    let message = format!("two servers of `{}` have the address {address}", pool.name);
                    let problem = Problem::at(place, message).as_warning().label("again here");
                    warnings.push(problem.also(first, "first here").help("for a larger share, give one a `weight`"));
                }
                None => _ = first_at.insert(address, place),
            }
        }
    }
}

/// Whoever trusts every address lets every client choose who it is.
fn trust_in_everybody(config: &Config, warnings: &mut Vec<Problem>) {
    for (listener, places) in config.listeners.iter().zip(&config.places.listeners) {
        for (_, place) in
            listener.trusted_proxies.iter().zip(&places.trusted_proxies).filter(|(range, _)| range.prefix == 0)
        {
            let problem = Problem::at(place, "every address is a trusted proxy").as_warning();
            let problem = problem.label("any client may say who it is");
            warnings.push(problem.help("name the addresses of your own proxies alone"));
        }
    }
}

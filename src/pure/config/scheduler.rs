//! `scheduler NAME ..` of a pool: the scheduler, its options, its key and its fallback. An option that the scheduler does not
//! have is an error; it refuses to guess whose it was meant to be.

use std::time::Duration;

use super::key;
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use crate::pure::pool::{Fallback, HashMode, KeyNormalize, Method, Reports, SchedulerConfig, Ties, WrrMode};
use crate::pure::rule::KeySource;

/// The keys that are remembered where nothing is said.
const KEYS_MAX: u32 = 65_536;

/// What of all requests `ch-bl` gives a server at most, in percent of its part.
const BOUND: u32 = 125;

/// How long a set of `lblcr` stays as it is. (The kernel: 24 hours.)
const SHRINK_AFTER: Duration = Duration::from_secs(60);

/// What a miss costs, where no server says.
const MISS_COST: Duration = Duration::from_millis(10);

/// Which schedulers have an option.
const OPTIONS: &[(&str, &[&str])] = &[
    ("mode", &["wrr", "dh", "sh"]),
    ("ties", &["lc", "wlc", "sed", "nq", "fb-wlc"]),
    ("bound", &["ch-bl"]),
    ("keys-max", &["lblc", "lblcr", "cbr"]),
    ("shrink-after", &["lblcr"]),
    ("miss-cost", &["cbr"]),
    ("choices", &["cbr"]),
    ("reports", &["run-queue"]),
    ("key", &["dh", "sh", "mh", "rendezvous", "ch-bl", "lblc", "lblcr", "cbr"]),
    ("key-normalize", &["dh", "sh", "mh", "rendezvous", "ch-bl", "lblc", "lblcr", "cbr"]),
    ("fallback", &["ovf", "dh", "sh", "mh", "rendezvous", "ch-bl", "lblc", "lblcr", "cbr"]),
];

/// A pool's scheduler, and what it goes by.
#[derive(Debug, Default)]
pub(super) struct Scheduling {
    pub(super) scheduler: SchedulerConfig,
    pub(super) key: Option<KeySource>,
    pub(super) key_normalize: Option<KeyNormalize>,
}

/// What a pool says of its scheduler.
pub(super) fn read(node: Node<'_>, problems: &mut Problems) -> Scheduling {
    let name = node.argument(0).and_then(|value| value.text()).unwrap_or_default();
    refuse_others_options(node, name, problems);
    let Some(method) = method(node, name, problems) else { return Scheduling::default() };
    let fallback = match node.setting("fallback").and_then(|value| value.text()) {
        None => Fallback::default(),
        Some("none") => Fallback::None,
        Some(name) => plain(name, Ties::Rotate).map_or_else(Fallback::default, Fallback::By),
    };
    let key = node.setting("key").and_then(|value| key::read(value, problems));
    let key = key.or_else(|| default_key(&method));
    let key_normalize = node.child("key-normalize").map(|child| read_normalize(child, key.as_ref(), problems));
    Scheduling { scheduler: SchedulerConfig { method, fallback }, key, key_normalize }
}

/// The key of a pool that says nothing of it.
fn default_key(method: &Method) -> Option<KeySource> {
    match method {
        Method::SourceHash(_) => Some(KeySource::Client),
        method if method.is_keyed() => Some(KeySource::Path),
        _ => None,
    }
}

fn method(node: Node<'_>, name: &str, problems: &mut Problems) -> Option<Method> {
    let mode = node.setting("mode").and_then(|value| Some((value, value.text()?)));
    let ties = match node.setting("ties").and_then(|value| value.text()) {
        Some("first") => Ties::First,
        _ => Ties::Rotate,
    };
    let keys_max = node.setting("keys-max").and_then(|value| value.whole()).unwrap_or(KEYS_MAX);
    Some(match name {
        "wrr" => Method::WeightedRoundRobin(match mode {
            Some((_, "ipvs")) => WrrMode::Ipvs,
            Some((value, "maglev")) => return refuse_mode(value, name, "smooth", problems),
            _ => WrrMode::Smooth,
        }),
        "dh" | "sh" => {
            let mode = match mode {
                Some((_, "ipvs")) => HashMode::Ipvs,
                Some((value, "smooth")) => return refuse_mode(value, name, "maglev", problems),
                _ => HashMode::Maglev,
            };
            if name == "dh" { Method::DestinationHash(mode) } else { Method::SourceHash(mode) }
        }
        "mh" => Method::Maglev,
        "rendezvous" => Method::Rendezvous,
        "ovf" => Method::Overflow,
        "ch-bl" => {
            Method::BoundedHash { percent: node.setting("bound").and_then(|value| value.whole()).unwrap_or(BOUND) }
        }
        "lblc" => Method::Locality { keys_max },
        "lblcr" => {
            let shrink_after = node.setting("shrink-after").and_then(|value| value.duration());
            Method::ReplicatedLocality { keys_max, shrink_after: shrink_after.unwrap_or(SHRINK_AFTER) }
        }
        "cbr" => Method::CostBounded {
            keys_max,
            miss_cost: node.setting("miss-cost").and_then(|value| value.duration()).unwrap_or(MISS_COST),
            choices: node.setting("choices").and_then(|value| value.whole()),
        },
        "run-queue" => Method::ShortestRunQueue(match node.setting("reports").and_then(|value| value.text()) {
            Some("pull") => Reports::Pull,
            _ => Reports::Push,
        }),
        // What is not known has been reported.
        name => plain(name, ties).unwrap_or_default(),
    })
}

/// A scheduler that needs no key.
fn plain(name: &str, ties: Ties) -> Option<Method> {
    Some(match name {
        "rr" => Method::RoundRobin,
        "wrr" => Method::WeightedRoundRobin(WrrMode::Smooth),
        "lc" => Method::LeastConnections(ties),
        "wlc" => Method::WeightedLeastConnections(ties),
        "sed" => Method::ExpectedDelay(ties),
        "nq" => Method::NeverQueue(ties),
        "fb-wlc" => Method::SeenCapacity(ties),
        "p2c" => Method::TwoChoices,
        "peak-ewma" => Method::PeakEwma,
        "fo" => Method::Failover,
        _ => return None,
    })
}

fn refuse_mode(value: Value<'_>, name: &str, ours: &str, problems: &mut Problems) -> Option<Method> {
    let written = value.written();
    let problem =
        Problem::at(&value.place(), format!("the scheduler `{name}` has no mode {written}")).label("not here");
    problems.add(problem.help(format!("`{name}` takes mode=\"{ours}\", which is the default, and mode=\"ipvs\"")));
    None
}

fn refuse_others_options(node: Node<'_>, name: &str, problems: &mut Problems) {
    let is_known = super::vocabulary::SCHEDULERS.contains(&name);
    for (option, owners) in OPTIONS {
        if !is_known || owners.contains(&name) {
            continue;
        }
        let place = node.setting(option).map(|value| value.place());
        let place = place
            .or_else(|| Some(node.children("key-normalize").next().filter(|_| *option == "key-normalize")?.place()));
        let Some(place) = place else { continue };
        let problem = Problem::at(&place, format!("the scheduler `{name}` has no `{option}`")).label("not here");
        let owners: Vec<String> = owners.iter().map(|owner| format!("`{owner}`")).collect();
        problems.add(problem.help(format!("`{option}` belongs to {}", owners.join(", "))));
    }
}

fn read_normalize(node: Node<'_>, key: Option<&KeySource>, problems: &mut Problems) -> KeyNormalize {
    let drop: Vec<String> = node.settings("drop").filter_map(|value| value.text()).map(str::to_owned).collect();
    let sort_query = node.setting("sort-query").and_then(|value| value.switch()).unwrap_or(false);
    let is_idle = drop.is_empty() && !sort_query;
    if is_idle {
        let problem = Problem::at(&node.name_place(), "this `key-normalize` changes nothing").label("nothing to do");
        problems.add(problem.help(r#"key-normalize sort-query=#true { drop "utm_*" "fbclid" }"#));
    } else if key.is_some_and(|key| *key != KeySource::Uri) {
        let problem =
            Problem::at(&node.name_place(), "`key-normalize` is about the query of a URI").label("not of this key");
        problems.add(problem.help("it goes with key=\"uri\" of this scheduler"));
    }
    KeyNormalize { sort_query, drop }
}

//! What a recording trace is told of the search for a rule: of the rules before the winner, how many were never candidates
//! and why, and of each candidate what it asked for in vain.
//!
//! It runs after the search and can't change its result.

use std::fmt::Write;

use super::Predicates;
use super::compile::RuleSet;
use super::find::Miss;
use super::parts::{cookies, parameters};
use super::predicate::{Facts, Test};
use crate::pure::head::Known;
use crate::pure::trace::Trace;

/// How many candidates are told one by one; the others are counted.
const TOLD_MAX: usize = 32;

pub(super) fn explain(
    set: &RuleSet,
    facts: &Facts<'_>,
    missed: &[(usize, Miss<'_>)],
    winner: Option<usize>,
    trace: &mut Trace,
) {
    trace.note("rule", || never_candidates(set, facts, winner.unwrap_or(set.len())));
    for (index, miss) in missed.iter().take(TOLD_MAX) {
        trace.note("rule", || format!("{}: {}", title(set, *index), describe(miss, facts)));
    }
    if missed.len() > TOLD_MAX {
        trace.note("rule", || {
            format!("{} more that match by host and path do not by the rest", missed.len() - TOLD_MAX)
        });
    }
    if let Some(told) = facts.media_type_if_asked() {
        trace.note("media-type", || match told {
            Some((media_type, source)) => format!("the media type is {media_type}, says {}", source.name()),
            None => "the media type is unknown: no source speaks".to_owned(),
        });
    }
    trace.note("rule", || match winner {
        Some(index) => format!("{} matches", title(set, index)),
        None => "no rule matches".to_owned(),
    });
}

fn title(set: &RuleSet, index: usize) -> String {
    set.rules().nth(index).map(|rule| format!("rule `{}` at {}", rule.name, rule.place)).unwrap_or_default()
}

/// How many of the first `count` rules the index left out, and why.
fn never_candidates(set: &RuleSet, facts: &Facts<'_>, count: usize) -> String {
    let (mut by_host, mut by_listener, mut by_path, mut by_expression) = (0_usize, 0_usize, 0_usize, 0_usize);
    let view = &facts.view;
    for compiled in set.rules.iter().take(count) {
        let Predicates { hosts, listeners, .. } = &compiled.rule.when;
        if !hosts.is_empty() && !hosts.iter().any(|host| host.matches(view.host)) {
            by_host += 1;
        } else if hosts.is_empty() && !listeners.is_empty() && !listeners.contains(&view.listener) {
            by_listener += 1;
        } else if !compiled.paths.is_empty() && !compiled.paths.iter().any(|pattern| pattern.matches(view.path)) {
            by_path += 1;
        } else if compiled.paths.is_empty()
            && !compiled.expressions.is_empty()
            && !compiled.expressions.iter().any(|expression| expression.is_match(view.path.as_bytes()))
        {
            by_expression += 1;
        }
    }
    let mut text = match count {
        0 if set.is_empty() => return "there is no rule".to_owned(),
        0 => return "no rule before".to_owned(),
        1 => "1 rule before: ".to_owned(),
        _ => format!("{count} rules before: "),
    };
    if count == set.len() {
        text = text.replace(" before", "");
    }
    let candidates = count - by_host - by_listener - by_path - by_expression;
    for (number, kind) in [
        (by_host, "of other hosts"),
        (by_listener, "of other listeners"),
        (by_path, "of other paths"),
        (by_expression, "whose path-regex does not match"),
        (candidates, "asked for the rest"),
    ] {
        if number > 0 {
            let _ = write!(text, "{number} {kind}, ");
        }
    }
    text.truncate(text.trim_end_matches(", ").len());
    text
}

/// What the request has in place of what a predicate asks for.
fn describe(miss: &Miss<'_>, facts: &Facts<'_>) -> String {
    let view = &facts.view;
    let text = match miss.test {
        Test::Listeners(_) => "it came in by another listener".to_owned(),
        Test::Methods(_) => format!("the method is {}", view.method),
        Test::Hosts(_) => format!("the host is {}", view.host),
        Test::Clients(_) => format!("the client is {}", view.client),
        Test::ServerNames(_) => match view.server_name {
            Some(name) => format!("the TLS server name is {name}"),
            None => "there is no TLS server name".to_owned(),
        },
        Test::Header(test) => values("header", &test.name, view.fields.named(&test.name)),
        Test::Cookie(test) => values("cookie", &test.name, cookies(view.fields, &test.name)),
        Test::Query(test) => values("query parameter", &test.name, parameters(view.query, &test.name)),
        Test::ContentTypes(_) => values("header", "Content-Type", view.fields.known(Known::ContentType)),
        Test::Accepts(_) => values("header", "Accept", view.fields.known(Known::Accept)),
        Test::MediaTypes(_) => match facts.media_type_if_asked().flatten() {
            Some((media_type, _)) => format!("the media type is {media_type}"),
            None => "the media type is unknown".to_owned(),
        },
        Test::Paths(_) | Test::Expressions(_) => format!("the path is {}", view.path),
    };
    if miss.is_not { format!("its `not` holds: {text}") } else { text }
}

fn values<V: AsRef<[u8]>>(kind: &str, name: &str, values: impl Iterator<Item = V>) -> String {
    let list: Vec<_> = values.map(|value| format!("\"{}\"", value.as_ref().escape_ascii())).collect();
    if list.is_empty() { format!("{kind} {name} is absent") } else { format!("{kind} {name} is {}", list.join(", ")) }
}

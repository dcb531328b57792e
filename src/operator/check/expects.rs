//! The `expect` lines, run through the codec, the path rules and the search that requests go through.
//!
//! Nothing is sent. No server has answered yet, so `media-type` knows no learned types here.

use std::fmt::Write;

use super::CheckReport;
use crate::base::id::ListenerIndex;
use crate::pure::config::{Config, Expect, Problem};
use crate::pure::h1::request::{HeadLimits, Parsed, RequestHead, parse_request_head};
use crate::pure::rule::captures::Captures;
use crate::pure::rule::change::{self, Values};
use crate::pure::rule::compile::RuleSet;
use crate::pure::rule::path::{normalize_host, read_path, split_query};
use crate::pure::rule::{Action, RequestView, Rule};
use crate::pure::trace::Trace;

/// How many notes of a search a failure tells.
const NOTES_TOLD: usize = 8;

/// Runs all `expect` lines; each that fails is an error.
pub(super) fn run(config: &Config, rules: &RuleSet, report: &mut CheckReport) {
    for (expect, place) in config.expects.iter().zip(&config.places.expects) {
        report.expects_run += 1;
        let mut trace = Trace::recording();
        let outcome = decide(config, rules, expect, &mut trace);
        let Some(wanted) = unmet(config, expect, &outcome) else { continue };
        report.expects_failed += 1;
        let problem = Problem::at(place, format!("this is not so: {wanted}")).label(outcome.describe(config));
        report.errors.push(match told(&trace) {
            Some(notes) => problem.help(notes),
            None => problem,
        });
    }
}

/// What comes of a request.
enum Outcome<'r> {
    /// A rule decides; the last is where a redirect leads to.
    Rule(&'r Rule, Option<String>),
    /// No rule matches: 404.
    NoRule,
    /// It is refused before the rules see it.
    Refused(u16, String),
}

impl Outcome<'_> {
    fn describe(&self, config: &Config) -> String {
        let (rule, location) = match self {
            Self::Rule(rule, location) => (rule, location),
            Self::NoRule => return "no rule matches: the answer is 404".to_owned(),
            Self::Refused(status, reason) => return format!("the request is refused with {status}: {reason}"),
        };
        let action = match &rule.action {
            Action::Use(_) | Action::Split { .. } => {
                let names: Vec<String> = pools(config, rule).map(|name| format!("\"{name}\"")).collect();
                format!("use={}", names.join(" or "))
            }
            Action::Redirect { status, .. } => {
                format!("redirect=\"{}\" ({status})", location.as_deref().unwrap_or_default())
            }
            Action::Respond { status, .. } => format!("respond={status}"),
        };
        format!("rule `{}` at {} decides: {action}", rule.name, rule.place)
    }

    fn status(&self) -> Option<u16> {
        match self {
            Self::Rule(rule, _) => match rule.action {
                Action::Respond { status, .. } => Some(status),
                Action::Use(_) | Action::Split { .. } | Action::Redirect { .. } => None,
            },
            Self::NoRule => Some(404),
            Self::Refused(status, _) => Some(*status),
        }
    }
}

/// The names of the pools that a rule may send requests to.
fn pools<'c>(config: &'c Config, rule: &'c Rule) -> impl Iterator<Item = &'c str> {
    let list = super::warnings::pools_of(&rule.action).into_iter();
    list.filter_map(|pool| config.pools.get(pool.0 as usize).map(|pool| &*pool.name))
}

/// The first demand that is not met.
fn unmet(config: &Config, expect: &Expect, outcome: &Outcome<'_>) -> Option<String> {
    let wanted = &expect.outcome;
    let rule = match outcome {
        Outcome::Rule(rule, _) => Some(*rule),
        Outcome::NoRule | Outcome::Refused(..) => None,
    };
    if let Some(pool) = &wanted.pool
        && !rule.is_some_and(|rule| pools(config, rule).any(|name| name == pool))
    {
        return Some(format!("use=\"{pool}\""));
    }
    if let Some(location) = &wanted.redirect
        && !matches!(outcome, Outcome::Rule(_, Some(found)) if found == location)
    {
        return Some(format!("redirect=\"{location}\""));
    }
    if let Some(status) = wanted.respond
        && outcome.status() != Some(status)
    {
        return Some(format!("respond={status}"));
    }
    match &wanted.rule {
        Some(name) if rule.is_none_or(|rule| *rule.name != **name) => Some(format!("rule=\"{name}\"")),
        Some(_) | None => None,
    }
}

fn told(trace: &Trace) -> Option<String> {
    let notes = trace.notes();
    let mut text = String::new();
    for note in notes.iter().take(NOTES_TOLD) {
        let _ = write!(text, "{}{}", if text.is_empty() { "" } else { "\n" }, note.text);
    }
    if notes.len() > NOTES_TOLD {
        let _ = write!(text, "\n.. and {} notes more", notes.len() - NOTES_TOLD);
    }
    (!text.is_empty()).then_some(text)
}

/// Sends the request of an `expect` line through everything that decides.
fn decide<'r>(config: &Config, rules: &'r RuleSet, expect: &Expect, trace: &mut Trace) -> Outcome<'r> {
    let is_tls = expect.url.starts_with("https://");
    let Some((listener_index, listener)) = listener_of(config, expect, is_tls) else {
        return Outcome::Refused(404, "there is no listener".to_owned());
    };
    let bytes = head_of(expect);
    let mut head = RequestHead::default();
    let limits = HeadLimits { bytes: listener.limits.head_max.as_usize(), fields: listener.limits.fields_max as usize };
    match parse_request_head(&bytes, limits, &mut head) {
        Ok(Parsed::Complete) => {}
        Ok(Parsed::Partial) => return Outcome::Refused(400, "the head has no end".to_owned()),
        Err(error) => return Outcome::Refused(error.status(), error.to_string()),
    }
    let host = normalize_host(head.authority.of(&bytes));
    let (raw_path, query) = split_query(head.path_and_query.of(&bytes));
    let mut scratch = String::new();
    let path = match read_path(raw_path, listener.limits.ambiguous_paths, &mut scratch) {
        Ok(path) => path,
        Err(error) => return Outcome::Refused(400, error.to_string()),
    };
    let view = RequestView {
        listener: listener_index,
        method: &expect.method,
        host: &host,
        path,
        query,
        fields: crate::pure::head::Fields { bytes: &bytes, list: &head.fields },
        client: expect.client,
        server_name: is_tls.then_some(&*host),
        learned_media_type: None,
    };
    let mut captures = Captures::new();
    match rules.find(&view, &mut captures, trace) {
        None => Outcome::NoRule,
        Some(found) => {
            let values = Values { request: &view, captures: &captures, scheme: if is_tls { "https" } else { "http" } };
            follow(found.rule, &values)
        }
    }
}

/// What the rule makes of the request.
fn follow<'r>(rule: &'r Rule, values: &Values<'_>) -> Outcome<'r> {
    let mut text = Vec::new();
    match &rule.action {
        Action::Redirect { location, .. } => {
            change::location(location, values, &mut text);
            Outcome::Rule(rule, Some(String::from_utf8_lossy(&text).into_owned()))
        }
        Action::Use(_) | Action::Split { .. } => match change::rewritten_target(&rule.changes, values, &mut text) {
            Ok(_) => Outcome::Rule(rule, None),
            Err(error) => Outcome::Refused(400, error.to_string()),
        },
        Action::Respond { .. } => Outcome::Rule(rule, None),
    }
}

/// The listener that a line names, else the first that speaks the URL's scheme, else the first.
fn listener_of<'c>(
    config: &'c Config,
    expect: &Expect,
    is_tls: bool,
) -> Option<(ListenerIndex, &'c crate::pure::config::Listener)> {
    let speaks = || config.listeners.iter().position(|listener| listener.tls.is_some() == is_tls).unwrap_or(0);
    let index = expect.listen.map_or_else(speaks, |index| index.0 as usize);
    Some((ListenerIndex(u32::try_from(index).ok()?), config.listeners.get(index)?))
}

/// The request as a client would send it.
fn head_of(expect: &Expect) -> Vec<u8> {
    let rest = expect.url.split_once("://").map_or("", |(_, rest)| rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let slash = if target.starts_with('/') { "" } else { "/" };
    let mut head = format!("{} {slash}{target} HTTP/1.1\r\nHost: {authority}\r\n", expect.method);
    for (name, value) in &expect.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

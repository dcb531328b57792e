//! The `expect` lines, each rehearsed and held against what it demands.
//!
//! Nothing is sent. No server has answered yet, so `media-type` knows no learned types here.

use std::fmt::Write;
use std::sync::Arc;

use super::CheckReport;
use crate::operator::rehearsal::{Outcome, Rehearsal, Rehearsed};
use crate::pure::config::{Config, Expect, Problem};
use crate::pure::refusal::Refusal;
use crate::pure::rule::Rule;
use crate::pure::rule::compile::RuleSet;
use crate::pure::trace::Trace;

/// How many notes of a search a failure tells.
const NOTES_TOLD: usize = 8;

/// Runs all `expect` lines; each that fails is an error.
pub(super) fn run(config: &Arc<Config>, rules: &Arc<RuleSet>, report: &mut CheckReport) {
    if config.expects.is_empty() {
        return;
    }
    let rehearsal = Rehearsal::new(Arc::clone(config), Arc::clone(rules));
    for (expect, place) in config.expects.iter().zip(&config.places.expects) {
        report.expects_run += 1;
        let mut trace = Trace::recording();
        let rehearsed = rehearsal.decide(&expect.into(), &mut trace);
        let Some(wanted) = unmet(config, expect, &rehearsed) else { continue };
        report.expects_failed += 1;
        let problem = Problem::at(place, format!("this is not so: {wanted}")).label(describe(config, &rehearsed));
        report.errors.push(match told(&trace, &rehearsed.outcome) {
            Some(notes) => problem.help(notes),
            None => problem,
        });
    }
}

fn describe(config: &Config, rehearsed: &Rehearsed) -> String {
    let action = match &rehearsed.outcome {
        Outcome::Refused(Refusal::NoRule) => return "no rule matches: the answer is 404".to_owned(),
        Outcome::Refused(refusal) => return format!("the request is refused with {}: {refusal}", refusal.status()),
        Outcome::Forward(_) => {
            let names: Vec<String> = pools(config, rehearsed).map(|name| format!("\"{name}\"")).collect();
            format!("use={}", names.join(" or "))
        }
        Outcome::Redirect(status) => format!("redirect=\"{}\" ({status})", location(rehearsed)),
        Outcome::Respond(status) => format!("respond={status}"),
    };
    match rehearsed.rule.as_deref() {
        Some(Rule { name, place, .. }) => format!("rule `{name}` at {place} decides: {action}"),
        None => action,
    }
}

fn location(rehearsed: &Rehearsed) -> String {
    String::from_utf8_lossy(&rehearsed.changed.target).into_owned()
}

/// The names of the pools that the rule may send requests to.
fn pools<'c>(config: &'c Config, rehearsed: &Rehearsed) -> impl Iterator<Item = &'c str> {
    let list = rehearsed.rule.as_ref().map(|rule| super::warnings::pools_of(&rule.action)).unwrap_or_default();
    list.into_iter().filter_map(|pool| config.pools.get(pool.0 as usize).map(|pool| &*pool.name))
}

/// The first demand that is not met.
fn unmet(config: &Config, expect: &Expect, rehearsed: &Rehearsed) -> Option<String> {
    let wanted = &expect.outcome;
    let outcome = &rehearsed.outcome;
    if let Some(pool) = &wanted.pool
        && !(matches!(outcome, Outcome::Forward(_)) && pools(config, rehearsed).any(|name| name == pool))
    {
        return Some(format!("use=\"{pool}\""));
    }
    if let Some(wanted) = &wanted.redirect
        && !(matches!(outcome, Outcome::Redirect(_)) && location(rehearsed) == *wanted)
    {
        return Some(format!("redirect=\"{wanted}\""));
    }
    let status = match outcome {
        Outcome::Respond(status) => Some(*status),
        Outcome::Refused(refusal) => Some(refusal.status()),
        Outcome::Forward(_) | Outcome::Redirect(_) => None,
    };
    if let Some(wanted) = wanted.respond
        && status != Some(wanted)
    {
        return Some(format!("respond={wanted}"));
    }
    match &wanted.rule {
        Some(name) if rehearsed.rule.as_ref().is_none_or(|rule| *rule.name != **name) => {
            Some(format!("rule=\"{name}\""))
        }
        Some(_) | None => None,
    }
}

fn told(trace: &Trace, outcome: &Outcome) -> Option<String> {
    // How large a body may be matters to one that is too large alone.
    let is_told = |step: &str| step != "body" || matches!(outcome, Outcome::Refused(Refusal::BodyTooLarge));
    let notes: Vec<_> = trace.notes().iter().filter(|note| is_told(note.step)).collect();
    let mut text = String::new();
    for note in notes.iter().take(NOTES_TOLD) {
        let _ = write!(text, "{}{}", if text.is_empty() { "" } else { "\n" }, note.text);
    }
    if notes.len() > NOTES_TOLD {
        let _ = write!(text, "\n.. and {} notes more", notes.len() - NOTES_TOLD);
    }
    (!text.is_empty()).then_some(text)
}

//! What a rule does: `use`, `split`, `redirect` or `respond`; exactly one of them.

use super::captures::Captures;
use super::names::Names;
use super::node::Node;
use super::problem::{Problem, Problems};
use super::source::Place;
use super::{changes, field, key};
use crate::base::id::PoolIndex;
use crate::pure::rule::{Action, Template};

/// The longest body of an answer.
const BODY_MAX: usize = 64 * 1024;

/// The action of a rule; `None` where there is not exactly one that is right, which `problems` then says.
pub(super) fn read(node: Node<'_>, names: &Names, captures: &Captures, problems: &mut Problems) -> Option<Action> {
    let places: Vec<(&str, Place)> = ["use", "redirect", "respond"]
        .into_iter()
        .filter_map(|name| node.setting(name).map(|value| (name, value.place())))
        .chain(node.child("split").map(|split| ("split", split.name_place())))
        .collect();
    for (option, owner) in [("status", "redirect"), ("body", "respond")] {
        if let Some(value) = node.setting(option).filter(|_| node.setting(owner).is_none()) {
            let problem = Problem::at(&value.place(), format!("`{option}` belongs to `{owner}`"));
            problems.add(problem.label(format!("there is no `{owner}` here")));
        }
    }
    match places.as_slice() {
        // The second argument has been reported: it was meant to be the action, or something like it.
        [] if node.argument(1).is_some() => None,
        [] => {
            let problem = Problem::at(&node.place(), "this rule does nothing").label("no action");
            problems.add(problem.help(
                "give it one: use=\"POOL\", split { use \"POOL\" weight=95; .. }, redirect=\"URL\" or respond=403",
            ));
            None
        }
        [(name, _)] => match *name {
            "use" => names.pool(node.setting("use")?, problems).map(Action::Use),
            "redirect" => redirect(node, captures, problems),
            "respond" => respond(node, problems),
            _ => split(node.child("split")?, names, captures, problems),
        },
        [(first, first_place), (second, place), ..] => {
            let problem =
                Problem::at(place, format!("a rule does one thing, and this one has `{first}` and `{second}`"));
            problems.add(problem.label("a second action").also(first_place, "the first"));
            None
        }
    }
}

fn split(node: Node<'_>, names: &Names, captures: &Captures, problems: &mut Problems) -> Option<Action> {
    let mut arms: Vec<(PoolIndex, u32)> = Vec::new();
    let mut count = 0;
    for arm in node.children("use") {
        count += 1;
        let Some(value) = arm.argument(0) else { continue };
        let Some(pool) = names.pool(value, problems) else { continue };
        if arms.iter().any(|(found, _)| *found == pool) {
            let problem = Problem::at(&value.place(), "this pool has a share already").label("again here");
            problems.add(problem.help("give it one share with the sum of both"));
            continue;
        }
        arms.push((pool, arm.setting("weight").and_then(|value| value.whole()).unwrap_or(1)));
    }
    if count == 0 {
        let problem = Problem::at(&node.name_place(), "`split` has no pools").label("between whom?");
        problems.add(problem.help("split { use \"a\" weight=95; use \"b\" weight=5 }"));
    } else if arms.len() == count && arms.iter().all(|(_, weight)| *weight == 0) {
        let problem = Problem::at(&node.name_place(), "all shares are 0").label("nobody would get a request");
        problems.add(problem.help("give at least one pool a weight above 0"));
    }
    let key = node.setting("key").and_then(|value| {
        let key = key::read(value, problems);
        captures.check_key(key.as_ref(), &value.place(), problems);
        key
    });
    Some(Action::Split { key, arms })
}

fn redirect(node: Node<'_>, captures: &Captures, problems: &mut Problems) -> Option<Action> {
    let value = node.setting("redirect")?;
    let location = changes::template(value, "place to redirect to", Template::parse_location, captures, problems);
    let status = node.setting("status");
    let code: Option<u16> = status.map_or(Some(308), |value| value.whole());
    if let (Some(value), Some(code)) = (status, code.filter(|code| !matches!(code, 301 | 302 | 303 | 307 | 308))) {
        let problem = Problem::at(&value.place(), format!("{code} is no redirect")).label("not this");
        problems.add(problem.help("301, 302, 303, 307 or 308; the last two keep the method and the body"));
    }
    Some(Action::Redirect { location: location?, status: code? })
}

fn respond(node: Node<'_>, problems: &mut Problems) -> Option<Action> {
    let status: u16 = node.setting("respond")?.whole()?;
    let body = node.setting("body").and_then(|value| Some((value, value.text()?)));
    if let Some((value, text)) = body {
        if text.len() > BODY_MAX {
            problems.add(Problem::at(&value.place(), "this body is longer than 64 KiB").label("too long"));
        }
        if matches!(status, 204 | 205 | 304) && !text.is_empty() {
            let problem = Problem::at(&value.place(), format!("an answer {status} has no body")).label("leave it out");
            problems.add(problem);
        }
    }
    Some(Action::Respond { status, body: body.map(|(_, text)| text.to_owned()).unwrap_or_default() })
}

/// The tokens of `upgrade`, in lower case; none where the rule names none.
pub(super) fn upgrades(node: Node<'_>, problems: &mut Problems) -> Vec<String> {
    let mut tokens = Vec::new();
    for value in node.settings("upgrade") {
        let Some(token) = value.text().map(str::to_ascii_lowercase) else { continue };
        let carries_http = token == "h2c" || token == "http2-settings" || token == "tls" || token.starts_with("tls/");
        let is_protocol = token.split('/').count() <= 2 && token.split('/').all(field::is_token);
        if carries_http {
            let problem = Problem::at(&value.place(), format!("`{token}` can't be allowed")).label("never");
            problems.add(problem.help("it would carry requests past the rules"));
        } else if is_protocol {
            tokens.push(token);
        } else {
            let problem = Problem::at(&value.place(), format!("`{token}` is no upgrade token"));
            problems.add(problem.label("such as \"websocket\""));
        }
    }
    tokens
}

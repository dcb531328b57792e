//! What a rule changes in passing: the path, and fields of the request and of the answer.

use super::action;
use super::captures::Captures;
use super::field;
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use crate::pure::rule::change::normal_prefix;
use crate::pure::rule::template::TemplateError;
use crate::pure::rule::{Action, Changes, FieldChange, Template};

/// The changes of a rule. `action` is `None` where it is wrong, which has been said.
pub(super) fn read(node: Node<'_>, action: Option<&Action>, captures: &Captures, problems: &mut Problems) -> Changes {
    check_use(node, action, problems);
    let strip_prefix = node.setting("strip-prefix").and_then(|value| strip_prefix(value, problems));
    let rewrite = node.setting("rewrite");
    if let (Some(value), Some(_)) = (rewrite, node.setting("strip-prefix")) {
        let problem = Problem::at(&value.place(), "`rewrite` and `strip-prefix` both say what the path becomes");
        problems.add(problem.label("which of the two?"));
    }
    let mut changes = Changes {
        strip_prefix,
        rewrite: rewrite.and_then(|value| template(value, "new path", Template::parse_target, captures, problems)),
        request: Vec::new(),
        response: Vec::new(),
        upgrades: action::upgrades(node, problems),
    };
    for child in node.all_children() {
        let Some((verb, message)) = child.name().strip_suffix("-header").and_then(|name| name.split_once('-')) else {
            continue;
        };
        let Some(change) = field_change(child, verb, message == "request", captures, problems) else { continue };
        if message == "request" { changes.request.push(change) } else { changes.response.push(change) }
    }
    changes
}

/// Reports changes of a request that is not passed on.
fn check_use(node: Node<'_>, action: Option<&Action>, problems: &mut Problems) {
    let own = match action {
        Some(Action::Redirect { .. }) => "redirect",
        Some(Action::Respond { .. }) => "respond",
        Some(Action::Use(_) | Action::Split { .. }) | None => return,
    };
    let settings = ["strip-prefix", "rewrite", "upgrade", "key"].into_iter();
    let settings = settings.filter_map(|name| node.setting(name).map(|value| (name, value.place())));
    let nodes = ["set-request-header", "add-request-header", "remove-request-header"].into_iter();
    let nodes = nodes.filter_map(|name| node.child(name).map(|child| (name, child.name_place())));
    for (name, place) in settings.chain(nodes) {
        let problem = Problem::at(&place, format!("`{name}` would do nothing in a rule with `{own}`"));
        problems.add(problem.label("no server gets this request").help("leave it out"));
    }
}

fn strip_prefix(value: Value<'_>, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    let is_plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '?' | '#' | '{' | '}' | '\\');
    let is_dots = text.split('/').any(|segment| segment == "." || segment == "..");
    if text.len() > 1 && text.starts_with('/') && !text.ends_with('/') && text.chars().all(is_plain) && !is_dots {
        return normal_prefix(text);
    }
    let problem = Problem::at(&value.place(), format!("`{text}` can't be taken from the front of a path"));
    let trimmed = text.trim_matches('/');
    let is_almost = !trimmed.is_empty() && trimmed.chars().all(is_plain) && !is_dots;
    problems.add(if is_almost {
        problem.label(format!("write \"/{trimmed}\"")).help("whole segments: a `/` at the front and none at the end")
    } else {
        problem.label("not a plain path").help("whole segments without captures, such as \"/api\"")
    });
    None
}

/// A text with captures that the rule has, read by `parse`; where that fails, it is no `noun`.
pub(super) fn template(
    value: Value<'_>,
    noun: &str,
    parse: impl Fn(&str) -> Result<Template, TemplateError>,
    captures: &Captures,
    problems: &mut Problems,
) -> Option<Template> {
    match parse(value.text()?) {
        Ok(template) => {
            captures.check_template(&template, &value.place(), problems);
            Some(template)
        }
        Err(error) => {
            let problem = Problem::at(&value.part(error.at..error.at + error.length), format!("this is no {noun}"));
            problems.add(problem.label(error.problem.to_string()));
            None
        }
    }
}

fn field_change(
    node: Node<'_>,
    verb: &str,
    is_request: bool,
    captures: &Captures,
    problems: &mut Problems,
) -> Option<FieldChange> {
    let value = node.argument(0)?;
    let name = value.text()?;
    if !field::is_token(name) {
        let problem =
            Problem::at(&value.place(), format!("`{name}` is no name of a field")).label("such as \"X-Site\"");
        problems.add(problem);
        return None;
    }
    let content = node.argument(1).and_then(|value| Some((value, value.text()?)));
    let is_set = verb == "set" && is_request && content.is_some_and(|(_, text)| !text.is_empty());
    if let Some(reason) = field::refusal(name, is_set) {
        let problem = Problem::at(&value.place(), format!("a rule can't {verb} the field `{name}`"));
        problems.add(problem.label("not this one").help(reason));
        return None;
    }
    if verb == "remove" {
        return Some(FieldChange::Remove(name.to_owned()));
    }
    let (value, text) = content?;
    if !field::is_value(text) || text.trim() != text {
        let problem = Problem::at(&value.place(), "a field's value is one line without spaces around it");
        problems.add(problem.label("not this"));
        return None;
    }
    let template = template(value, "value of a field", Template::parse_value, captures, problems)?;
    if verb == "add" && is_request && template.tells_identity() {
        let problem = Problem::at(&value.place(), "a client could send this field too, with the name of its choice");
        problems.add(problem.label("not beside others").help(format!("set-request-header \"{name}\" replaces it")));
        return None;
    }
    match verb {
        "set" => Some(FieldChange::Set(name.to_owned(), template)),
        _ if text.is_empty() => {
            let problem = Problem::at(&value.place(), format!("`{}` has nothing to add", node.name())).label("empty");
            problems.add(problem);
            None
        }
        _ => Some(FieldChange::Add(name.to_owned(), template)),
    }
}

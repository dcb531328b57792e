//! The one walk that holds rule files against the forms of the language: unknown names, what is missing, repeated or too
//! much, wrong kinds of values, and what is not supported yet. What passed it, readers can take as it is.

use std::collections::HashMap;
use std::sync::Arc;

use kdl::{KdlEntry, KdlIdentifier};

use super::fit;
use super::form::{NodeForm, Setting};
use super::misplaced::belongs;
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use super::source::Place;
use super::suggest::did_you_mean;
use super::vocabulary::FILE_FORM;

/// What to do about authorities in several files.
const ONE_FILE: &str = "put the certificates of both into one PEM file";

/// Checks a node that stands at the top of a file.
pub(super) fn check_top(node: Node<'_>, problems: &mut Problems) {
    check_child(node, &FILE_FORM, problems);
}

/// Checks `node`, a child of a node of the form `parent`.
pub(super) fn check_child(node: Node<'_>, parent: &'static NodeForm, problems: &mut Problems) {
    let name = node.name();
    if let Some(form) = parent.child(name) {
        check_node(node, form, problems);
    } else if let Some(setting) = parent.setting(name) {
        check_setting_node(node, setting, problems);
    } else {
        problems.add(unknown_node(node, parent));
    }
}

fn unknown_node(node: Node<'_>, parent: &'static NodeForm) -> Problem {
    let name = node.name();
    let place = node.name_place();
    if parent.name.is_empty() {
        let problem = Problem::at(&place, format!("`{name}` is no node of rule files"));
        if let Some(home) = belongs(name, parent) {
            return problem.label("not at the top").help(home);
        }
        return match (did_you_mean(name, parent.names()), home_of(name)) {
            (Some(guess), _) => problem.label(guess),
            (None, Some(home)) => problem.label("not at the top").help(format!("`{name}` belongs into a `{home}`")),
            (None, None) => {
                problem.label("unknown").help(format!("at the top of a file stand: {}", list(parent.names())))
            }
        };
    }
    let problem = Problem::at(&place, format!("`{name}` means nothing in `{}`", parent.name));
    if let Some(home) = belongs(name, parent) {
        return problem.label("not here").help(home);
    }
    if let Some(guess) = did_you_mean(name, parent.names()) {
        return problem.label(guess);
    }
    let problem = problem.label("unknown here");
    if FILE_FORM.child(name).is_some() {
        return problem.help(format!("`{name}` stands at the top of a file"));
    }
    match parent.names().next() {
        Some(_) => problem.help(format!("`{}` takes: {}", parent.name, list(parent.names()))),
        None => problem.help(format!("`{}` has no block: {}", parent.name, parent.usage)),
    }
}

/// The top node whose block or settings have that name.
fn home_of(name: &str) -> Option<&'static str> {
    let has = |form: &&&NodeForm| form.child(name).is_some() || form.setting(name).is_some();
    FILE_FORM.children.iter().find(has).map(|form| form.name)
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn not_yet(place: &Place, name: &str) -> Problem {
    Problem::at(place, format!("`{name}` is not supported yet"))
        .label("not in this version")
        .help("it belongs to the language, but nothing would act on it: leave it out until a version supports it")
}

fn check_node(node: Node<'_>, form: &'static NodeForm, problems: &mut Problems) {
    if form.is_later {
        problems.add(not_yet(&node.name_place(), form.name));
        return;
    }
    check_annotation(node, node.kdl.ty(), problems);
    check_arguments(node, form, problems);
    let mut seen = HashMap::new();
    for entry in node.kdl.entries() {
        check_property(node, form, entry, &mut seen, problems);
    }
    for child in node.all_children() {
        let known = form.child(child.name()).map(|found| (found.name, found.is_list));
        let known = known.or_else(|| form.setting(child.name()).map(|found| (found.name, found.is_list)));
        if let Some((name, is_list)) = known {
            note_repeated(name, child.name_place(), is_list, &mut seen, problems);
        }
        check_child(child, form, problems);
    }
}

fn note_repeated(
    name: &'static str,
    place: Place,
    is_list: bool,
    seen: &mut HashMap<&'static str, Place>,
    problems: &mut Problems,
) {
    match seen.get(name) {
        Some(_) if is_list => {}
        Some(first) => {
            let problem = Problem::at(&place, format!("`{name}` is given twice")).label("again here");
            problems.add(problem.also(first, "first here").help(match name {
                "ca" | "client-ca" => ONE_FILE,
                _ => "keep one of them",
            }));
        }
        None => {
            seen.insert(name, place);
        }
    }
}

fn check_annotation(node: Node<'_>, annotation: Option<&KdlIdentifier>, problems: &mut Problems) {
    if let Some(found) = annotation {
        let span = found.span();
        let place = Place { source: Arc::clone(node.source), span: span.offset()..span.offset() + span.len() };
        let problem = Problem::at(&place, format!("the type annotation `({})` means nothing here", found.value()));
        problems.add(problem.label("leave it out"));
    }
}

fn check_arguments(node: Node<'_>, form: &'static NodeForm, problems: &mut Problems) {
    let mut count = 0;
    let mut before = None;
    let mut arguments = node.arguments().peekable();
    while let Some(value) = arguments.next() {
        let last = if form.is_open { form.arguments.last() } else { None };
        match form.arguments.get(count).or(last) {
            Some(kind) => fit::check(value, form.name, kind, problems),
            // A property without its `=`: the value behind it is told of.
            None if arguments.peek().is_some() && value.text().is_some_and(|name| form.setting(name).is_some()) => {}
            None => problems.add(extra_argument(value, before, form)),
        }
        check_annotation(node, value.kdl.ty(), problems);
        before = Some(value);
        count += 1;
    }
    if count < form.required {
        let missing = form.arguments.get(count).map_or_else(|| "a value".to_owned(), fit::wanted);
        let problem = Problem::at(&node.name_place(), format!("`{}` lacks {missing}", form.name));
        problems.add(problem.label("something is missing behind this").help(format!("write: {}", form.usage)));
    }
}

/// An argument too many; often a property without its `=`.
fn extra_argument(value: Value<'_>, before: Option<Value<'_>>, form: &'static NodeForm) -> Problem {
    let written = value.written();
    if let Some((name, before)) = before.and_then(|before| Some((before.text()?, before)))
        && form.setting(name).is_some()
    {
        let mut place = before.place();
        place.span.end = value.place().span.end;
        let problem = Problem::at(&place, format!("between `{name}` and its value stands a `=`"));
        return problem.label(format!("write {name}={}", value.place().text()));
    }
    let problem = Problem::at(&value.place(), format!("`{}` has no place for `{written}`", form.name));
    let problem = problem.label("too much");
    match form.name {
        "client-ca" => problem.help(ONE_FILE),
        _ => problem.help(format!("write: {}", form.usage)),
    }
}

fn check_property(
    node: Node<'_>,
    form: &'static NodeForm,
    entry: &KdlEntry,
    seen: &mut HashMap<&'static str, Place>,
    problems: &mut Problems,
) {
    let Some(identifier) = entry.name() else { return };
    let name = identifier.value();
    let span = identifier.span();
    let place = Place { source: Arc::clone(node.source), span: span.offset()..span.offset() + span.len() };
    check_annotation(node, entry.ty(), problems);
    let Some(setting) = form.setting(name) else {
        problems.add(unknown_property(&place, name, form));
        return;
    };
    if setting.is_later {
        problems.add(not_yet(&place, name));
        return;
    }
    if let (Some(first), true) = (seen.get(setting.name), setting.is_list) {
        let problem = Problem::at(&place, format!("the property `{name}` is given twice")).label("again here");
        problems.add(problem.also(first, "first here").help(format!("several values: {{ {name} \"..\" \"..\" }}")));
    } else {
        note_repeated(setting.name, place, setting.is_list, seen, problems);
    }
    fit::check(Value::new(node.source, entry), name, &setting.kind, problems);
}

fn unknown_property(place: &Place, name: &str, form: &'static NodeForm) -> Problem {
    if let Some(child) = form.child(name) {
        if child.is_later {
            return not_yet(place, name);
        }
        return Problem::at(place, format!("`{name}` is a node of its own and no property"))
            .label("write it in the block")
            .help(format!("{} {{ {} }}", form.name, child.usage));
    }
    let problem = Problem::at(place, format!("`{name}` is no property of `{}`", form.name));
    if let Some(home) = belongs(name, form) {
        return problem.label("not here").help(home);
    }
    let known = form.settings.iter().filter(|setting| !setting.is_later).map(|setting| setting.name);
    match did_you_mean(name, form.names()) {
        Some(guess) => problem.label(guess),
        None if form.settings.is_empty() => problem.label("unknown").help(format!("write: {}", form.usage)),
        None => problem.label("unknown").help(format!("its properties are: {}", list(known))),
    }
}

/// Checks a setting that is written as a child node.
fn check_setting_node(node: Node<'_>, setting: &'static Setting, problems: &mut Problems) {
    if setting.is_later {
        problems.add(not_yet(&node.name_place(), setting.name));
        return;
    }
    check_annotation(node, node.kdl.ty(), problems);
    let mut count = 0;
    for value in node.arguments() {
        count += 1;
        check_annotation(node, value.kdl.ty(), problems);
        if count > 1 && !setting.is_list {
            let problem = Problem::at(&value.place(), format!("`{}` has one value only", setting.name));
            let problem = problem.label("one too many");
            problems.add(if setting.name == "ca" { problem.help(ONE_FILE) } else { problem });
        } else {
            fit::check(value, setting.name, &setting.kind, problems);
        }
    }
    if count == 0 {
        let wanted = fit::wanted(&setting.kind);
        let problem = Problem::at(&node.name_place(), format!("`{}` lacks {wanted}", setting.name));
        problems.add(problem.label("something is missing behind this"));
    }
    for entry in node.kdl.entries().iter().filter(|entry| entry.name().is_some()) {
        let span = entry.span();
        let place = Place { source: Arc::clone(node.source), span: span.offset()..span.offset() + span.len() };
        let problem = Problem::at(&place, format!("`{}` has no properties here", setting.name)).label("not here");
        problems.add(problem.help("put it beside, as a property or a node of its own"));
    }
    for child in node.all_children() {
        let problem = Problem::at(&child.name_place(), format!("`{}` has no block", setting.name)).label("not here");
        problems.add(problem);
    }
}

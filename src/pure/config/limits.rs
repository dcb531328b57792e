//! `limits { .. }` at the top, in a listener and in a rule: which limit may stand where, and what it sets.

use std::collections::HashMap;

use super::limit_table::{LIMITS, LimitEntry, LimitValue, Scope, Settings, ambiguous_paths};
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use super::source::Place;

/// Where a `limits` stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// At the top of a file.
    Top,
    /// In a `listen`.
    Listener,
    /// In a `rule`.
    Rule,
}

/// Sets what all `nodes` say, which stand at one `site`: several are read as one.
pub(super) fn read<'a>(
    nodes: impl IntoIterator<Item = Node<'a>>,
    site: Site,
    all: &mut Settings,
    problems: &mut Problems,
) {
    let mut seen: HashMap<&str, Place> = HashMap::new();
    for node in nodes {
        for entry in LIMITS.iter().filter(|entry| entry.node == "limits") {
            let Some(value) = node.setting(entry.name) else { continue };
            let place = value.place();
            if let Some(first) = seen.get(entry.name) {
                // Twice in one node has been said by the walk over the forms.
                if !node.settings(entry.name).any(|value| value.place() == *first) {
                    let problem = Problem::at(&place, format!("`{}` is given twice", entry.name)).label("again here");
                    problems.add(problem.also(first, "first here").help("keep one of them"));
                }
                continue;
            }
            seen.insert(entry.name, place);
            if allows(site, entry.scope) {
                set(entry, value, all);
            } else {
                problems.add(misplaced(entry, value, site));
            }
        }
    }
}

/// Sets what a pool's node says.
pub(super) fn read_pool_node(node: Node<'_>, all: &mut Settings) {
    for entry in LIMITS.iter().filter(|entry| entry.node == node.name()) {
        if let Some(value) = node.setting(entry.name) {
            set(entry, value, all);
        }
    }
}

const fn allows(site: Site, scope: Scope) -> bool {
    match (site, scope) {
        (Site::Top, Scope::Process | Scope::Listener | Scope::Rule)
        | (Site::Listener, Scope::Listener | Scope::Rule)
        | (Site::Rule, Scope::Rule) => true,
        (Site::Listener | Site::Rule, Scope::Process) | (Site::Rule, Scope::Listener) | (_, Scope::Pool) => false,
    }
}

fn misplaced(entry: &LimitEntry, value: Value<'_>, site: Site) -> Problem {
    let name = entry.name;
    match (entry.scope, site) {
        (Scope::Process, _) => Problem::at(&value.place(), format!("`{name}` holds for the whole process"))
            .label("not here")
            .help(format!("put it into the `limits` at the top: limits {{ {name} {} }}", value.place().text())),
        (_, Site::Rule) => Problem::at(&value.place(), format!("a rule can't set `{name}`"))
            .label("not here")
            .help(format!("a rule takes `body-max` only: put `{name}` into the `limits` of a `listen` or at the top")),
        _ => Problem::at(&value.place(), format!("`{name}` can't stand here")).label("not here"),
    }
}

fn set(entry: &LimitEntry, value: Value<'_>, all: &mut Settings) {
    match entry.value {
        LimitValue::Duration(_, field) => assign(field(all), value.duration()),
        LimitValue::Size(_, _, field) => assign(field(all), value.size()),
        LimitValue::Count(_, _, field) => assign(field(all), value.whole()),
        LimitValue::CountOrBound(_, field) => assign(field(all), value.whole().map(Some)),
        LimitValue::CountOrOff(field) => {
            let is_off = value.text() == Some("off");
            assign(field(all), if is_off { Some(None) } else { value.whole().map(Some) });
        }
        LimitValue::AmbiguousPaths(_, field) => assign(field(all), value.text().and_then(ambiguous_paths)),
    }
}

/// What does not fit is an error that has been said, and changes nothing.
fn assign<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

//! `rule [NAME] PREDICATES ACTION { .. }`: what it asks, does and changes. Captures must exist wherever they are used; it
//! refuses to compare rules with each other.

use std::sync::Arc;

use super::captures::Captures;
use super::limit_table::Settings;
use super::limits::{self, Site};
use super::names::Names;
use super::node::Node;
use super::problem::{Problem, Problems};
use super::{action, changes, key, predicates};
use crate::base::units::Bytes;
use crate::pure::rule::{Predicates, Rule};

/// The rule of a node; `None` where it has no action.
pub(super) fn read(node: Node<'_>, name: &Arc<str>, names: &Names, problems: &mut Problems) -> Option<Rule> {
    let mut captures = Captures::default();
    let when = predicates::read(node, names, &mut captures, problems);
    let unless = read_not(node, names, problems);
    let action = action::read(node, names, &captures, problems);
    let changes = changes::read(node, action.as_ref(), &captures, problems);
    let key = node.setting("key").and_then(|value| {
        let key = key::read(value, problems);
        captures.check_key(key.as_ref(), &value.place(), problems);
        key
    });
    let body_max = read_body_max(node, problems);
    Some(Rule {
        name: Arc::clone(name),
        place: node.name_place().to_string(),
        when,
        unless,
        action: action?,
        changes,
        key,
        body_max,
    })
}

/// Several `not` are read as one: none of what they hold may be true.
fn read_not(node: Node<'_>, names: &Names, problems: &mut Problems) -> Predicates {
    let mut all = Predicates::default();
    for child in node.children("not") {
        let is_empty = child.kdl.entries().is_empty() && child.all_children().next().is_none();
        if is_empty {
            let problem = Problem::at(&child.name_place(), "this `not` forbids nothing").label("not what?");
            problems.add(problem.help("not { method \"GET\" \"HEAD\" }"));
        }
        let one = predicates::read(child, names, &mut Captures::default(), problems);
        all.listeners.extend(one.listeners);
        all.hosts.extend(one.hosts);
        all.paths.extend(one.paths);
        all.path_regexes.extend(one.path_regexes);
        all.methods.extend(one.methods);
        all.headers.extend(one.headers);
        all.queries.extend(one.queries);
        all.cookies.extend(one.cookies);
        all.content_types.extend(one.content_types);
        all.accepts.extend(one.accepts);
        all.media_types.extend(one.media_types);
        all.clients.extend(one.clients);
        all.server_names.extend(one.server_names);
    }
    all
}

/// `body-max`, as a setting of the rule or in its `limits`.
fn read_body_max(node: Node<'_>, problems: &mut Problems) -> Option<Bytes> {
    let mut settings = Settings::default();
    limits::read(node.children("limits"), Site::Rule, &mut settings, problems);
    let inner = node.children("limits").find_map(|limits| limits.setting("body-max"));
    let own = node.setting("body-max");
    if let (Some(own), Some(inner)) = (own, inner) {
        let problem = Problem::at(&inner.place(), "`body-max` is given twice").label("again here");
        problems.add(problem.also(&own.place(), "first here").help("keep one of them"));
    }
    own.or(inner).and_then(|value| value.size())
}

//! `key=".."`: the part of a request that a split or a scheduler hashes. It refuses captures nobody could name, and says which keys there
//! are.

use super::node::Value;
use super::problem::{Problem, Problems};
use super::suggest::did_you_mean;
use crate::pure::rule::KeySource;
use crate::pure::rule::key::is_number;

const PLAIN: &[(&str, KeySource)] = &[
    ("path", KeySource::Path),
    ("uri", KeySource::Uri),
    ("host", KeySource::Host),
    ("host+path", KeySource::HostAndPath),
    ("client", KeySource::Client),
    ("media-type", KeySource::MediaType),
];

/// The key that a value names.
pub(super) fn read(value: Value<'_>, problems: &mut Problems) -> Option<KeySource> {
    let text = value.text()?;
    if let Some((_, key)) = PLAIN.iter().find(|(name, _)| *name == text) {
        return Some(key.clone());
    }
    if let Some(key) = named(text).or_else(|| capture(text)) {
        return Some(key);
    }
    let problem = Problem::at(&value.place(), format!("`key` does not know \"{text}\""));
    let names = PLAIN.iter().map(|(name, _)| *name).chain(["header:NAME", "cookie:NAME", "query:NAME"]);
    let problem = match did_you_mean(text, names) {
        Some(guess) => problem.label(guess),
        None => problem.label("unknown"),
    };
    problems.add(problem.help(
        "a key is path, uri, host, host+path, client, media-type, header:NAME, cookie:NAME, query:NAME, or a capture: $1 or {name}",
    ));
    None
}

fn named(text: &str) -> Option<KeySource> {
    let (kind, name) = text.split_once(':')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    match kind {
        _ if !is_name => None,
        "header" => Some(KeySource::Header(name.to_owned())),
        "cookie" => Some(KeySource::Cookie(name.to_owned())),
        "query" => Some(KeySource::Query(name.to_owned())),
        _ => None,
    }
}

/// `$1` or `{id}`.
fn capture(text: &str) -> Option<KeySource> {
    let number = text.strip_prefix('$').filter(|digits| is_number(digits));
    let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let name = name.filter(|name| !name.is_empty() && !name.contains(['{', '}', '*']));
    number.or(name).map(|capture| KeySource::Capture(capture.to_owned()))
}

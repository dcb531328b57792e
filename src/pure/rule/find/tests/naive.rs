//! The reference of the rule language as a program: every rule asked in turn, nothing prepared, nothing shared with what it
//! is compared with.

use std::net::IpAddr;
use std::sync::Arc;

use crate::pure::head::Fields;
use crate::pure::rule::{Glob, HostPattern, Named, Predicates, RequestView, Rule};

type Captured = Vec<(String, String)>;

/// The first rule, and the named captures of its first matching pattern and expression.
pub(super) fn find(rules: &[Arc<Rule>], view: &RequestView<'_>) -> Option<(usize, Captured)> {
    let index = rules.iter().position(|rule| {
        answers(&rule.when, view).into_iter().all(|holds| holds)
            && !answers(&rule.unless, view).into_iter().any(|holds| holds)
    })?;
    let when = &rules[index].when;
    let mut captured = when.paths.iter().find_map(|pattern| path(pattern, view.path)).unwrap_or_default();
    for text in &when.path_regexes {
        let regex = expression(text);
        if let Some(groups) = regex.captures(view.path) {
            for name in regex.capture_names().flatten() {
                captured.extend(groups.name(name).map(|group| (name.to_owned(), group.as_str().to_owned())));
            }
            break;
        }
    }
    Some((index, captured))
}

/// One answer for each thing that is asked.
fn answers(asked: &Predicates, view: &RequestView<'_>) -> Vec<bool> {
    let mut answers = Vec::new();
    let mut ask = |is_asked: bool, holds: bool| {
        if is_asked {
            answers.push(holds);
        }
    };
    ask(!asked.listeners.is_empty(), asked.listeners.contains(&view.listener));
    ask(!asked.hosts.is_empty(), asked.hosts.iter().any(|pattern| host(pattern, view.host)));
    ask(!asked.paths.is_empty(), asked.paths.iter().any(|pattern| path(pattern, view.path).is_some()));
    let matches = |text: &String| expression(text).is_match(view.path);
    ask(!asked.path_regexes.is_empty(), asked.path_regexes.iter().any(matches));
    ask(!asked.methods.is_empty(), asked.methods.iter().any(|method| method == view.method));
    let in_range = |range: &crate::pure::rule::Cidr| match (range.address, view.client.to_canonical()) {
        (IpAddr::V4(net), IpAddr::V4(client)) => {
            bits(&net.octets(), range.prefix) == bits(&client.octets(), range.prefix)
        }
        (IpAddr::V6(net), IpAddr::V6(client)) => {
            bits(&net.octets(), range.prefix) == bits(&client.octets(), range.prefix)
        }
        _ => false,
    };
    ask(!asked.clients.is_empty(), asked.clients.iter().any(in_range));
    let served = |pattern: &HostPattern| view.server_name.is_some_and(|name| host(pattern, name));
    ask(!asked.server_names.is_empty(), asked.server_names.iter().any(served));
    let lower = |text: &str| text.to_ascii_lowercase();
    named(&mut answers, &asked.headers, &fields(view.fields), lower);
    named(&mut answers, &asked.cookies, &cookies(view.fields), str::to_owned);
    named(&mut answers, &asked.queries, &parameters(view.query), str::to_owned);
    let mut ask_types = |globs: &[Glob], types: Vec<String>| {
        if !globs.is_empty() {
            let is_any = |media_type: &String| globs.iter().any(|glob| media(glob, media_type));
            answers.push(types.iter().any(is_any));
        }
    };
    let sent = fields(view.fields).into_iter().filter(|(name, _)| lower(name) == "content-type");
    ask_types(&asked.content_types, sent.map(|(_, value)| value).collect());
    ask_types(&asked.accepts, accepted(view.fields).into_iter().map(|(range, _)| range).collect());
    ask_types(&asked.media_types, media_type(view).into_iter().collect());
    answers
}

/// Different names must all hold; of one name, any.
fn named(answers: &mut Vec<bool>, asked: &[Named], there: &[(String, String)], key: impl Fn(&str) -> String) {
    let mut names: Vec<_> = asked.iter().map(|entry| key(&entry.name)).collect();
    names.sort();
    names.dedup();
    for name in names {
        let alternatives = asked.iter().filter(|entry| key(&entry.name) == name);
        let mut values = there.iter().filter(|(other, _)| key(other) == name).map(|(_, value)| value);
        let globs: Vec<_> = alternatives.map(|entry| entry.values.clone()).collect();
        answers.push(values.any(|value| {
            globs
                .iter()
                .any(|list| list.is_empty() || list.iter().any(|wanted| glob(wanted.0.as_bytes(), value.as_bytes())))
        }));
    }
}

fn bits(octets: &[u8], prefix: u8) -> String {
    octets.iter().map(|octet| format!("{octet:08b}")).collect::<String>()[..usize::from(prefix)].to_owned()
}

fn host(pattern: &HostPattern, host: &str) -> bool {
    match pattern {
        HostPattern::Exact(exact) => host == exact,
        HostPattern::Suffix(suffix) => host.strip_suffix(suffix.as_str()).is_some_and(|before| !before.is_empty()),
    }
}

fn glob(pattern: &[u8], value: &[u8]) -> bool {
    match pattern.split_first() {
        None => value.is_empty(),
        Some((b'*', rest)) => (0..=value.len()).any(|skip| glob(rest, &value[skip..])),
        Some((byte, rest)) => value.first() == Some(byte) && glob(rest, &value[1..]),
    }
}

fn media(pattern: &Glob, media_type: &str) -> bool {
    let essence = |text: &str| text.split(';').next().unwrap().trim().to_ascii_lowercase();
    glob(essence(&pattern.0).as_bytes(), essence(media_type).as_bytes())
}

fn fields(fields: Fields<'_>) -> Vec<(String, String)> {
    let text = |span: crate::pure::head::Span| String::from_utf8_lossy(span.of(fields.bytes)).into_owned();
    fields.list.iter().map(|field| (text(field.name), text(field.value))).collect()
}

fn cookies(from: Fields<'_>) -> Vec<(String, String)> {
    let lines = fields(from).into_iter().filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
    lines
        .flat_map(|(_, line)| {
            let pairs = line.split("; ").filter_map(|pair| pair.split_once('='));
            pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect::<Vec<_>>()
        })
        .collect()
}

fn parameters(query: Option<&[u8]>) -> Vec<(String, String)> {
    let text = String::from_utf8(query.unwrap_or_default().to_vec()).unwrap();
    let plain = |part: &str| part.replace('+', " ").replace("%62", "b").replace("%71", "q");
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (plain(name), plain(value)))
        .collect()
}

/// Ranges and weights in thousandths, those of weight 0 left out.
fn accepted(from: Fields<'_>) -> Vec<(String, u32)> {
    let lines = fields(from).into_iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
    lines
        .flat_map(|(_, line)| line.split(',').map(|range| range.trim().to_owned()).collect::<Vec<_>>())
        .map(|range| match range.split_once(";q=") {
            Some((range, quality)) => (range.to_owned(), (quality.parse::<f64>().unwrap() * 1000.0) as u32),
            None => (range, 1000),
        })
        .filter(|(_, quality)| *quality > 0)
        .collect()
}

fn media_type(view: &RequestView<'_>) -> Option<String> {
    let last = view.path.rsplit('/').next().unwrap();
    let extension =
        last.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, extension)| extension.to_ascii_lowercase());
    let by_extension = extension.and_then(|extension| match extension.as_str() {
        "jpg" => Some("image/jpeg"),
        "png" => Some("image/png"),
        "css" => Some("text/css"),
        _ => None,
    });
    let destination = fields(view.fields).into_iter().any(|(name, value)| name == "Sec-Fetch-Dest" && value == "style");
    let by_destination = destination.then_some("text/css");
    let by_accept = accepted(view.fields)
        .into_iter()
        .filter(|(range, _)| range != "*/*")
        .rev()
        .max_by_key(|(range, quality)| (*quality, !range.ends_with("/*")));
    let first = by_extension.or(by_destination).map(str::to_owned);
    first.or(by_accept.map(|(range, _)| range)).or(view.learned_media_type.map(str::to_owned))
}

/// The captures of a pattern in a path, where it matches: segment by segment, trying every length of every capture.
pub(super) fn path(pattern: &str, path: &str) -> Option<Captured> {
    let spelled = pattern.replace("caf%c3%a9", "caf%C3%A9").replace("é", "%C3%A9").replace("%61", "a");
    let spelled = spelled.replace("{{", "%7B").replace("}}", "%7D");
    try_at(&spelled, path)
}

fn try_at(pattern: &str, path: &str) -> Option<Captured> {
    let Some(after) = pattern.strip_prefix('{') else {
        return match pattern.chars().next() {
            None => path.is_empty().then(Vec::new),
            Some(first) => try_at(&pattern[first.len_utf8()..], path.strip_prefix(first)?),
        };
    };
    let (name, after) = after.split_once('}').unwrap();
    if let Some(name) = name.strip_prefix('*') {
        return Some(vec![(name.to_owned(), path.to_owned())]);
    }
    let longest = path.find('/').unwrap_or(path.len());
    (1..=longest).find_map(|length| {
        let mut captured = try_at(after, &path[length..])?;
        captured.insert(0, (name.to_owned(), path[..length].to_owned()));
        Some(captured)
    })
}

/// An expression, compiled once in a test.
fn expression(text: &str) -> regex::Regex {
    thread_local! {
        static KNOWN: std::cell::RefCell<std::collections::HashMap<String, regex::Regex>> = std::cell::RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        known.entry(text.to_owned()).or_insert_with(|| regex::Regex::new(text).unwrap()).clone()
    })
}

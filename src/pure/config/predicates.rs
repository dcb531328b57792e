//! The predicates of a `rule` and of its `not`: texts become the types that matching works on, so that no rule is loaded
//! whose host, path, expression, address or media type could never be right.

use std::net::IpAddr;

use super::captures::Captures;
use super::names::Names;
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use super::{address, field, patterns};
use crate::pure::head::is_token_byte;
use crate::pure::rule::{Glob, HostPattern, Named, Predicates};

/// What a node asks of a request; captures of paths and expressions go to `captures`.
pub(super) fn read(node: Node<'_>, names: &Names, captures: &mut Captures, problems: &mut Problems) -> Predicates {
    Predicates {
        listeners: node.settings("listen").flat_map(|value| names.listeners(value, problems)).collect(),
        hosts: node.settings("host").filter_map(|value| host(value, problems)).collect(),
        paths: node.settings("path").filter_map(|value| path(value, captures, problems)).collect(),
        path_regexes: node.settings("path-regex").filter_map(|value| regex(value, captures, problems)).collect(),
        methods: node.settings("method").filter_map(|value| method(value, problems)).collect(),
        headers: named(node, "header", problems),
        queries: named(node, "query", problems),
        cookies: named(node, "cookie", problems),
        content_types: node.settings("content-type").filter_map(|value| media_type(value, problems)).collect(),
        accepts: node.settings("accept").filter_map(|value| media_type(value, problems)).collect(),
        media_types: node.settings("media-type").filter_map(|value| media_type(value, problems)).collect(),
        clients: node.settings("client").filter_map(|value| address::range(value, problems)).collect(),
        server_names: node.settings("sni").filter_map(|value| host(value, problems)).collect(),
    }
}

/// A host as requests are compared with it: lower case, without a trailing dot, an IPv6 address in brackets.
fn host(value: Value<'_>, problems: &mut Problems) -> Option<HostPattern> {
    let text = value.text()?;
    let bad = |message: String, label: String| Problem::at(&value.place(), message).label(label);
    let lower = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let (name, is_suffix) = match lower.strip_prefix("*.") {
        Some(domain) => (domain, true),
        None => (lower.as_str(), false),
    };
    let is_address =
        name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
    if is_address && !is_suffix {
        return Some(HostPattern::Exact(lower));
    }
    if address::is_host_name(name) {
        return Some(if is_suffix { HostPattern::Suffix(format!(".{name}")) } else { HostPattern::Exact(lower) });
    }
    problems.add(if lower == "*" {
        bad("`*` alone is no host".to_owned(), "leave `host` out for any host".to_owned())
    } else if let Some((_, rest)) = lower.split_once("://") {
        let authority = rest.split('/').next().unwrap_or_default();
        let host = authority.split_once(':').map_or(authority, |(host, _)| host);
        bad("a host has no scheme".to_owned(), format!("write \"{host}\""))
            .help("what comes by one listener only: listen=\"ADDRESS\"; for the path there is `path`")
    } else if let Some((host, port)) = name.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) {
        let problem = bad("a host is compared without its port".to_owned(), format!("write \"{host}\""));
        problem.help(format!("for one port only: listen=\"ADDRESS:{port}\""))
    } else if name.contains('*') {
        let problem = bad("a `*` stands only at the front of a host, as `*.`".to_owned(), "not here".to_owned());
        problem.help("\"*.a.test\" is any host below a.test, at any depth")
    } else if name.contains('/') {
        bad(format!("`{text}` is no host"), "the host alone".to_owned()).help("for the path there is `path`")
    } else if !name.is_ascii() {
        let problem = bad(format!("`{text}` is not how requests spell this host"), "letters beyond ASCII".to_owned());
        problem.help("write the name as DNS has it, which begins with xn--")
    } else {
        bad(format!("`{text}` is no host"), "letters, digits, `-` and dots".to_owned())
    });
    None
}

fn path(value: Value<'_>, captures: &mut Captures, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    match patterns::path_captures(text) {
        Ok(names) => {
            captures.add_path(names);
            Some(text.to_owned())
        }
        Err((message, span)) => {
            captures.is_incomplete = true;
            let problem = Problem::at(&value.part(span), "this is no path pattern").label(message);
            problems.add(problem.help("such as \"/img/{*rest}\" or \"/users/{id}\""));
            None
        }
    }
}

fn regex(value: Value<'_>, captures: &mut Captures, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    match patterns::regex_captures(text) {
        Ok(names) => {
            captures.add_regex(names);
            Some(text.to_owned())
        }
        Err(reason) => {
            captures.is_incomplete = true;
            problems.add(Problem::at(&value.place(), "this is no regular expression").label(reason));
            None
        }
    }
}

/// The methods of RFC 9110, for those who write them in lower case.
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

fn method(value: Value<'_>, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    let upper = text.to_ascii_uppercase();
    if upper != text && METHODS.contains(&upper.as_str()) {
        let problem = Problem::at(&value.place(), format!("no request has the method `{text}`: case counts"));
        problems.add(problem.label(format!("write \"{upper}\"")));
        return None;
    }
    if !field::is_token(text) {
        let problem = Problem::at(&value.place(), format!("`{text}` is no method")).label("such as \"GET\"");
        problems.add(problem.help("several methods are several values: { method \"GET\" \"HEAD\" }"));
        return None;
    }
    Some(text.to_owned())
}

fn media_type(value: Value<'_>, problems: &mut Problems) -> Option<Glob> {
    let text = value.text()?;
    let problem = Problem::at(&value.place(), format!("`{text}` is no media type"));
    if text.contains(';') {
        let bare = text.split(';').next().unwrap_or_default().trim();
        problems.add(problem.label(format!("write \"{bare}\"")).help("parameters are not compared"));
        return None;
    }
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte == b'*' || is_token_byte(byte));
    match text.split_once('/') {
        Some((kind, subtype)) if is_part(kind) && is_part(subtype) => Some(Glob(text.to_ascii_lowercase())),
        Some(_) => {
            problems.add(problem.label("type/subtype"));
            None
        }
        None => {
            problems.add(problem.label("its second half is missing").help("such as \"image/png\" or \"image/*\""));
            None
        }
    }
}

/// The predicates of one node name, those with the same name made one: its values are alternatives.
fn named(node: Node<'_>, kind: &'static str, problems: &mut Problems) -> Vec<Named> {
    let mut list: Vec<Named> = Vec::new();
    for child in node.children(kind) {
        let Some((value, name)) = child.argument(0).and_then(|value| Some((value, value.text()?))) else { continue };
        let is_good = if kind == "query" { !name.is_empty() } else { field::is_token(name) };
        if !is_good {
            problems.add(Problem::at(&value.place(), format!("`{name}` is no name of a {kind}")).label("not this"));
            continue;
        }
        let values: Vec<Glob> =
            child.arguments().skip(1).filter_map(|value| value.text()).map(|text| Glob(text.to_owned())).collect();
        let is_same = |found: &&mut Named| {
            if kind == "header" { found.name.eq_ignore_ascii_case(name) } else { found.name == name }
        };
        match list.iter_mut().find(is_same) {
            // One of the two asks only that it is there, which the other's values can't narrow.
            Some(found) if found.values.is_empty() || values.is_empty() => found.values.clear(),
            Some(found) => found.values.extend(values),
            None => list.push(Named { name: name.to_owned(), values }),
        }
    }
    list
}

//! `expect "METHOD URL" ..`: tests that live beside the rules.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::names::Names;
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use super::suggest::did_you_mean;
use super::{Expect, ExpectedOutcome, address, field};

/// The test of a node; `None` where it is wrong.
pub(super) fn read(
    node: Node<'_>,
    names: &Names,
    rules: &HashSet<Arc<str>>,
    problems: &mut Problems,
) -> Option<Expect> {
    let outcome = read_outcome(node, names, rules, problems);
    let headers = node.children("header").filter_map(|header| read_header(header, problems)).collect();
    let client = match node.setting("client") {
        Some(value) => address::client(value, problems),
        None => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    };
    let listen = node.setting("listen").map(|value| names.listeners(value, problems));
    let (method, url) = read_request(node.argument(0)?, problems)?;
    Some(Expect {
        place: node.name_place().to_string(),
        method,
        url,
        headers,
        client: client?,
        listen: listen.and_then(|found| found.first().copied()),
        outcome,
    })
}

fn read_outcome(node: Node<'_>, names: &Names, rules: &HashSet<Arc<str>>, problems: &mut Problems) -> ExpectedOutcome {
    let text = |name| node.setting(name).and_then(|value| value.text()).map(str::to_owned);
    if let Some(value) = node.setting("use") {
        names.pool(value, problems);
    }
    if let Some((value, name)) = node.setting("rule").and_then(|value| Some((value, value.text()?)))
        && !rules.contains(name)
        && !names.is_incomplete
    {
        let problem = Problem::at(&value.place(), format!("there is no rule `{name}`"));
        problems.add(match did_you_mean(name, rules.iter().map(AsRef::as_ref)) {
            Some(guess) => problem.label(guess),
            None => problem
                .label("unknown")
                .help("a rule's name stands behind `rule`; without one it is rule-N, counted from 1"),
        });
    }
    let given: Vec<_> = ["use", "redirect", "respond"].into_iter().filter_map(|name| node.setting(name)).collect();
    if let [first, second, ..] = given.as_slice() {
        let problem = Problem::at(&second.place(), "a request has one outcome").label("a second one");
        problems.add(problem.also(&first.place(), "the first"));
    }
    if given.is_empty() && node.setting("rule").is_none() {
        let problem = Problem::at(&node.place(), "this line expects nothing").label("what should come of it?");
        problems.add(problem.help("add use=\"POOL\", redirect=\"URL\", respond=403 or rule=\"NAME\""));
    }
    ExpectedOutcome {
        pool: text("use"),
        redirect: text("redirect"),
        respond: node.setting("respond").and_then(|value| value.whole()),
        rule: text("rule"),
    }
}

fn read_header(node: Node<'_>, problems: &mut Problems) -> Option<(String, String)> {
    let (name, content) = (node.argument(0)?, node.argument(1)?);
    let (name_text, content_text) = (name.text()?, content.text()?);
    if !field::is_token(name_text) {
        let problem = Problem::at(&name.place(), format!("`{name_text}` is no name of a field"));
        problems.add(problem.label("such as \"X-Canary\""));
        return None;
    }
    if !field::is_value(content_text) {
        problems.add(Problem::at(&content.place(), "a field's value is one line").label("not this"));
        return None;
    }
    Some((name_text.to_owned(), content_text.to_owned()))
}

/// `GET http://a.test/x`, in its two parts.
fn read_request(value: Value<'_>, problems: &mut Problems) -> Option<(String, String)> {
    let text = value.text()?;
    let problem = |message: &str, label: &str| Problem::at(&value.place(), message).label(label);
    let found = match text.split_once(' ') {
        None => Err(problem("`expect` wants a method and a URL", "such as \"GET http://a.test/\"")),
        Some((method, _)) if !field::is_token(method) => {
            Err(problem("this does not begin with a method", "such as GET"))
        }
        Some((method, url)) => match url_trouble(url) {
            Some((message, label)) => Err(problem(message, label)),
            None => Ok((method.to_owned(), url.to_owned())),
        },
    };
    found.map_err(|problem| problems.add(problem)).ok()
}

/// Why a text is no URL of a request, and what to do about it; `None` where it is one.
pub fn url_trouble(url: &str) -> Option<(&'static str, &'static str)> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest {
        None => Some(("the URL must be whole", "begin it with http:// or https://")),
        Some(rest) if rest.contains(|letter: char| !letter.is_ascii_graphic()) => {
            Some(("a URL holds no spaces and nothing beyond ASCII", "escape it"))
        }
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '?', '#']) => {
            Some(("the URL has no host", "which host?"))
        }
        Some(rest) if rest.contains('#') => {
            Some(("what follows `#` never reaches a server", "leave `#` and the rest out"))
        }
        Some(_) => None,
    }
}

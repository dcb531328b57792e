//! An explanation as text for people: what comes of the request in one sentence, then every step with its reason.
//!
//! Colour only where it is asked for; nothing of a request or a file reaches the terminal as a control character.

use std::fmt::Write as _;

use super::explanation::{Changes, Explanation, FieldChanges, ForwardTold, KeyTold, OwnAnswer, SeenTold, ServerTold};
use crate::operator::check::Style;
use crate::pure::rule::key::is_number;

/// Where the text of a step begins.
const INDENT: usize = 11;

/// The steps, one below the other.
struct Page {
    text: String,
    style: Style,
}

impl Page {
    /// Adds a step: its name before its first line.
    fn step<T: AsRef<str>>(&mut self, name: &str, lines: impl IntoIterator<Item = T>) {
        for (number, line) in lines.into_iter().enumerate() {
            let label = if number == 0 { name } else { "" };
            // Into a string, writing can't fail.
            let _ = match self.style {
                Style::Colour => write!(self.text, "\u{1b}[1m{label:INDENT$}\u{1b}[0m"),
                Style::Plain => write!(self.text, "{label:INDENT$}"),
            };
            self.line(line.as_ref());
        }
    }

    fn line(&mut self, line: &str) {
        for letter in line.chars() {
            if letter.is_control() {
                self.text.extend(letter.escape_default());
            } else {
                self.text.push(letter);
            }
        }
        self.text.push('\n');
    }
}

impl Explanation {
    /// For people.
    pub fn text(&self, style: Style) -> String {
        let mut page = Page { text: String::new(), style };
        page.line(&format!("{} {}", self.request.method, self.request.url));
        page.line(&self.summary());
        page.text.push('\n');
        let listener = &self.listener;
        page.step("listener", [format!("{}, {}: {}", listener.address, listener.scheme, listener.reason)]);
        if let Some(seen) = &self.seen {
            page.step("request", self.seen_lines(seen));
        }
        page.step("rules", self.notes("rule"));
        page.step(
            "captures",
            self.captures.iter().map(|capture| {
                let is_group = is_number(&capture.name);
                let name = if is_group { format!("${}", capture.name) } else { format!("{{{}}}", capture.name) };
                format!("{name} is \"{}\"", capture.value)
            }),
        );
        if let Some(changes) = &self.changes {
            page.step("changes", change_lines(changes, self.forward.as_ref()));
        }
        page.step("", self.notes("change"));
        page.step("body", self.notes("body"));
        if let Some(forward) = &self.forward {
            self.forward_steps(forward, &mut page);
        }
        if let Some(answer) = &self.answer {
            page.step("answer", answer_lines(answer));
        }
        page.text
    }

    fn summary(&self) -> String {
        let by = match &self.rule {
            Some(rule) => format!(", by the rule `{}` at {}", rule.name, rule.place),
            None => String::new(),
        };
        match (&self.forward, &self.answer) {
            (_, Some(OwnAnswer { status, location: Some(location), .. })) => {
                format!("is sent to {location} with {status}{by}")
            }
            (_, Some(answer)) => format!("is answered with {}{by}: {}", answer.status, answer.because),
            (Some(forward @ ForwardTold { pool, server: Some(ServerTold { name, address }), .. }), None) => {
                let server = format!("the server `{name}` at {address} of the pool `{pool}`");
                let pools = drawn_from(forward);
                if pools.is_empty() {
                    format!("goes to {server}{by}")
                } else {
                    format!("goes to one of the pools {pools} at random{by}; this time to {server}")
                }
            }
            (Some(_) | None, None) => "goes nowhere".to_owned(),
        }
    }

    fn seen_lines(&self, seen: &SeenTold) -> Vec<String> {
        let mut lines = Vec::new();
        let mut first = format!("method {}, host {}", self.request.method, seen.host);
        match &seen.path {
            Some(path) if *path == seen.raw_path => _ = write!(first, ", path {path}"),
            Some(path) => _ = write!(first, ", path {path} (sent as {})", seen.raw_path),
            None => _ = write!(first, ", path {}", seen.raw_path),
        }
        if let Some(query) = &seen.query {
            _ = write!(first, ", query {query}");
        }
        lines.push(first);
        lines.extend(self.notes("method").map(str::to_owned));
        lines.extend(self.notes("path").map(str::to_owned));
        lines.push(if seen.client == self.request.peer {
            format!("the client is {}", seen.client)
        } else {
            format!("the client is {}, says the trusted proxy {}", seen.client, self.request.peer)
        });
        lines.extend(seen.server_name.iter().map(|name| format!("the TLS server name is {name}")));
        lines.push(match &seen.media_type {
            Some(media_type) => format!("the media type is {}, says {}", media_type.value, media_type.source),
            None => "the media type is unknown: neither the path's extension nor Sec-Fetch-Dest nor Accept tells it"
                .to_owned(),
        });
        if seen.wants_learned_type {
            lines.push("a running proxy would also know what this host and path last answered with".to_owned());
        }
        lines
    }

    fn forward_steps(&self, forward: &ForwardTold, page: &mut Page) {
        let arms = forward.split.iter().map(|arm| format!("{} {}", arm.pool, arm.weight)).collect::<Vec<_>>();
        let weights = (!arms.is_empty()).then(|| format!("the weights are: {}", arms.join(", ")));
        page.step("pool", std::iter::once(format!("{}: {}", forward.pool, forward.reason)).chain(weights));
        page.step(
            "key",
            [match &forward.key {
                None => "none: neither the rule nor the pool names one that the scheduler goes by".to_owned(),
                Some(KeyTold { source, named_by, hash: Some(hash) }) => {
                    format!("{source}, named by the {named_by}, hashes to {hash}")
                }
                Some(KeyTold { source, named_by, hash: None }) => {
                    format!("none: the {named_by} names {source}, which the request does not have")
                }
            }],
        );
        page.step("persists", self.notes("persistence"));
        page.step("servers", self.notes("server"));
        page.step("scheduler", self.notes("scheduler"));
        let chosen =
            |server: &ServerTold| format!("{} at {} (states and loads as at a start)", server.name, server.address);
        page.step("server", forward.server.iter().map(chosen));
        page.step("spoken", &forward.spoken);
        page.step("sends", forward.head.lines().filter(|line| !line.is_empty()));
    }
}

/// The pools that another request like this one may get; empty where the pool is certain.
fn drawn_from(forward: &ForwardTold) -> String {
    if !forward.is_drawn {
        return String::new();
    }
    let arms = forward.split.iter().filter(|arm| arm.weight > 0);
    arms.map(|arm| format!("`{}`", arm.pool)).collect::<Vec<_>>().join(", ")
}

fn change_lines(changes: &Changes, forward: Option<&ForwardTold>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(target) = &changes.target {
        lines.push(format!("the target becomes {target}"));
    }
    if let Some(token) = forward.and_then(|forward| forward.upgrade.as_ref()) {
        lines.push(format!("the connection may become a tunnel: {token}"));
    }
    if forward.is_some() {
        lines.extend(field_lines("the request", &changes.request));
    }
    lines.extend(field_lines("the answer", &changes.answer));
    if lines.is_empty() {
        lines.push("none".to_owned());
    }
    lines
}

fn field_lines(message: &str, changes: &FieldChanges) -> Vec<String> {
    let name_of = |line: &str| line.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let comes = |name: &str| changes.added.iter().any(|line| name_of(line) == name.to_ascii_lowercase());
    let goes = |line: &str| changes.removed.iter().any(|name| name.to_ascii_lowercase() == name_of(line));
    let removed = changes.removed.iter().filter(|name| !comes(name)).map(|name| format!("{message} loses {name}"));
    let added = changes.added.iter().map(|line| {
        let instead = if goes(line) { ", in place of its own" } else { "" };
        format!("{message} gets `{line}`{instead}")
    });
    removed.chain(added).collect()
}

fn answer_lines(answer: &OwnAnswer) -> Vec<String> {
    let mut lines =
        vec![format!("{}, reason `{}` in the access log: {}", answer.status, answer.reason, answer.because)];
    lines.extend(answer.location.iter().map(|location| format!("Location: {location}")));
    lines.extend(answer.body.iter().flat_map(|body| body.lines()).map(str::to_owned));
    lines
}

//! `pool NAME { .. }`: its servers, scheduler, time bounds and repetitions. Names are unique and a pool is never empty; it
//! refuses to look whether anybody answers.

use std::sync::Arc;

use super::limit_table::Settings;
use super::names::Unique;
use super::node::Node;
use super::problem::{Problem, Problems};
use super::suggest::did_you_mean;
use super::{
    address, agent_check, answers, check, detection, feedback, limits, persist, recovery, scheduler, upstream_tls,
};
use crate::base::id::ServerId;
use crate::base::letters::is_deceptive;
use crate::pure::pool::{Pool, Server, UpstreamProtocol};
use crate::pure::proxy_protocol::Version;

/// A pool of that name.
pub(super) fn read(node: Node<'_>, name: &Arc<str>, problems: &mut Problems) -> Pool {
    let mut settings = Settings::default();
    for child in ["timeout", "upstream", "retry", "queue"] {
        if let Some(child) = node.child(child) {
            limits::read_pool_node(child, &mut settings);
        }
    }
    if let Some(upstream) = node.child("upstream") {
        read_upstream(upstream, &mut settings, problems);
    }
    if let Some(retry) = node.child("retry") {
        read_retry(retry, &mut settings, problems);
    }
    let scheduling = node.child("scheduler").map(|node| scheduler::read(node, problems)).unwrap_or_default();
    let servers = read_servers(node, name, problems);
    let check = check::read(node, &settings.upstream, &servers, problems);
    Pool {
        name: Arc::clone(name),
        persistence: persist::read(node, name, &servers, problems),
        agent_check: agent_check::read(node, &servers, problems).map(Arc::new),
        servers,
        scheduler: scheduling.scheduler,
        key: scheduling.key,
        key_normalize: scheduling.key_normalize,
        check,
        detection: detection::read(node),
        feedback: feedback::read(node, problems),
        passive: answers::passive(node, problems),
        orca: answers::orca(node),
        upstream: settings.upstream,
        timeouts: settings.timeouts,
        retry: settings.retry,
        queue: node.child("queue").map(|_| settings.queue),
        recovery: recovery::read(node, problems).map(Arc::new),
        slow_start: node.setting("slow-start").and_then(|value| value.duration()),
    }
}

fn read_servers(node: Node<'_>, pool: &Arc<str>, problems: &mut Problems) -> Vec<Arc<Server>> {
    let mut unique = Unique::new("server", "give one of them another name");
    let mut servers = Vec::new();
    for server in node.children("server") {
        let name = server.argument(0).and_then(|value| Some((value, value.text()?)));
        let address = server.argument(1).and_then(|value| address::server(value, problems));
        let Some((value, name)) = name else { continue };
        let is_new = is_name(name, value.place(), "server", problems) && unique.note(name, value.place(), problems);
        let Some(address) = address.filter(|_| is_new) else { continue };
        servers.push(Arc::new(Server {
            id: ServerId { pool: Arc::clone(pool), server: name.into() },
            address,
            weight: server.setting("weight").and_then(|value| value.whole()).unwrap_or(1),
            max: server.setting("max").and_then(|value| value.whole()),
            is_backup: server.setting("backup").and_then(|value| value.switch()).unwrap_or(false),
        }));
    }
    if node.children("server").next().is_none() {
        let problem =
            Problem::at(&node.place(), format!("the pool `{pool}` has no server")).label("nobody would answer");
        problems.add(problem.help(r#"server "o1" "10.0.0.1:9000""#));
    }
    servers
}

/// Whether a text can be a name: not empty, not long, nothing in it that would spoil logs and orders.
pub(super) fn is_name(name: &str, place: super::source::Place, noun: &str, problems: &mut Problems) -> bool {
    let is_plain = |letter: char| !is_deceptive(letter) && !letter.is_whitespace() && letter != '/';
    let is_good = !name.is_empty() && name.len() <= 128 && name.chars().all(is_plain);
    if !is_good {
        let problem = Problem::at(&place, format!("this is no name of a {noun}")).label("not this");
        problems.add(
            problem
                .help("a name has 1 to 128 letters, none of them a space, `/` or one that turns the order of letters"),
        );
    }
    is_good
}

fn read_upstream(node: Node<'_>, settings: &mut Settings, problems: &mut Problems) {
    let tls = node.child("tls");
    let upstream = &mut settings.upstream;
    let proxy_protocol = node.setting("proxy-protocol");
    upstream.proxy_protocol = match proxy_protocol.and_then(|value| value.text()) {
        Some("v1") => Some(Version::V1),
        Some("v2") => Some(Version::V2),
        // Other words have been reported.
        _ => None,
    };
    upstream.tls = tls.map(|tls| upstream_tls::read(tls, problems));
    let Some(value) = node.argument(0) else { return };
    match value.text() {
        Some("h2") => {
            upstream.protocol = UpstreamProtocol::Http2;
            upstream.tls.get_or_insert_default();
        }
        Some("h2c") => {
            upstream.protocol = UpstreamProtocol::Http2;
            if let Some(tls) = tls {
                let problem = Problem::at(&value.place(), "\"h2c\" is HTTP/2 without TLS").label("write \"h2\"");
                problems.add(problem.also(&tls.place(), "and this is TLS"));
            }
        }
        // What else there is has been reported.
        Some(_) | None => return,
    }
    if let Some(header) = proxy_protocol.filter(|_| upstream.protocol == UpstreamProtocol::Http2) {
        let problem = Problem::at(&header.place(), "`proxy-protocol` with HTTP/2 is not supported yet");
        let problem = problem.label("not in this version").also(&value.place(), "all clients share a connection");
        problems.add(problem.help("`X-Forwarded-For` and `Forwarded` name the client"));
    }
}

fn read_retry(node: Node<'_>, settings: &mut Settings, problems: &mut Problems) {
    let Some((value, text)) = node.setting("on").and_then(|value| Some((value, value.text()?))) else { return };
    let retry = &mut settings.retry;
    (retry.on_connect, retry.on_reset) = (false, false);
    for word in text.split_whitespace() {
        match word {
            "connect" => retry.on_connect = true,
            "reset" => retry.on_reset = true,
            "500" | "502" | "503" | "504" => retry.on_status.extend(word.parse::<u16>().ok()),
            _ => {
                let problem = Problem::at(&value.place(), format!("`on` does not know \"{word}\""));
                let problem = match did_you_mean(word, ["connect", "reset", "500", "502", "503", "504"]) {
                    Some(guess) => problem.label(guess),
                    None => problem.label("unknown"),
                };
                problems.add(problem.help("it takes any of connect, reset, 500, 502, 503, 504, with spaces between"));
            }
        }
    }
    retry.on_status.sort_unstable();
    retry.on_status.dedup();
}

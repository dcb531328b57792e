//! `agent-check ..` of a pool, and `agent-port` and `agent-address` of its servers: how servers are asked what they say of
//! themselves. A server that could not be asked is an error; it refuses to guess a port.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::node::Node;
use super::problem::{Problem, Problems};
use crate::pure::feedback::agent_check::{AgentCheck, AskedAt, SEND_MAX};
use crate::pure::pool::{Address, Server};

/// Between two questions. (HAProxy: `inter`, 2 s.)
const EVERY: Duration = Duration::from_secs(2);

/// The longest that a question may take, where nothing is said.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How the pool's servers are asked; `None`: they are not.
pub(super) fn read(pool: Node<'_>, servers: &[Arc<Server>], problems: &mut Problems) -> Option<AgentCheck> {
    let Some(node) = pool.child("agent-check") else {
        refuse_idle_settings(pool, problems);
        return None;
    };
    let every = node.setting("every").and_then(|value| value.duration()).unwrap_or(EVERY);
    let timeout = node.setting("timeout").and_then(|value| Some((value.place(), value.duration()?)));
    if let Some((place, _)) = timeout.as_ref().filter(|(_, timeout)| *timeout > every) {
        let problem = Problem::at(place, "a question may not take longer than until the next").label("too long");
        problems.add(problem.help(format!("`every` is {every:?}: a server is asked one question at a time")));
    }
    let send = node.setting("send").and_then(|value| Some((value.place(), value.text()?)));
    if let Some((place, _)) = send.as_ref().filter(|(_, text)| text.len() > SEND_MAX) {
        problems.add(Problem::at(place, format!("at most {SEND_MAX} bytes can be sent")).label("too long"));
    }
    let port = node.setting("port").and_then(|value| value.whole());
    Some(AgentCheck {
        every,
        timeout: timeout.map_or_else(|| TIMEOUT.min(every), |(_, timeout)| timeout),
        send: send.map(|(_, text)| text.as_bytes().into()).unwrap_or_default(),
        places: places(pool, node, port, servers, problems),
    })
}

fn places(
    pool: Node<'_>,
    check: Node<'_>,
    port: Option<u16>,
    servers: &[Arc<Server>],
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, AskedAt> {
    let mut places = BTreeMap::new();
    for node in pool.children("server") {
        let name = node.argument(0).and_then(|value| value.text());
        let server = servers.iter().find(|server| Some(&*server.id.server) == name);
        // What is wrong with another has been reported.
        let Some(server) = server else { continue };
        let address = node.setting("agent-address").and_then(|value| Some((value.place(), value.text()?)));
        let address = address.and_then(|(place, text)| match text.parse::<IpAddr>() {
            Ok(address) if !address.is_unspecified() => Some(address),
            _ => {
                let problem = Problem::at(&place, format!("`{text}` is no address of a server")).label("an IP address");
                problems.add(problem.help("its port is `agent-port`"));
                None
            }
        });
        let own_port = node.setting("agent-port").and_then(|value| value.whole());
        if matches!(server.address, Address::Unix(_)) && node.setting("agent-address").is_none() {
            let problem = Problem::at(&node.place(), "a server at a unix socket can't be asked over TCP");
            let problem = problem.label("where is it asked?").also(&check.name_place(), "asks each server");
            problems.add(problem.help(r#"say where: agent-address="127.0.0.1" agent-port=9777"#));
            continue;
        }
        match own_port.or(port) {
            Some(port) => {
                places.insert(Arc::clone(&server.id.server), AskedAt { address, port });
            }
            None => {
                let problem = Problem::at(&node.place(), format!("at which port is `{}` asked?", server.id.server));
                let problem = problem.label("no `agent-port`").also(&check.name_place(), "and no `port` here");
                problems.add(problem.help("write: agent-check port=9777"));
            }
        }
    }
    places
}

/// Settings of servers that nothing would act on.
fn refuse_idle_settings(pool: Node<'_>, problems: &mut Problems) {
    for node in pool.children("server") {
        for name in ["agent-port", "agent-address"] {
            let Some(value) = node.setting(name) else { continue };
            let problem = Problem::at(&value.place(), format!("`{name}` without an `agent-check` does nothing"));
            problems.add(problem.label("nobody asks").help(r#"in the pool: agent-check port=9777 every="2s""#));
        }
    }
}

//! `feedback ADDR { key-file "F"; sources .. }`: where servers' agents report. It refuses to look into the key's file.

use super::Feedback;
use super::address;
use super::node::Node;
use super::problem::{Problem, Problems};
use super::source::Place;

/// What a file says of it. `None` where it could not be listened on.
pub(super) fn read(node: Node<'_>, problems: &mut Problems) -> Option<Feedback> {
    let value = node.argument(0)?;
    let listened = address::listener(value, problems);
    let socket = listened.as_ref().map(super::ListenAddress::socket);
    if socket == Some(None) {
        let problem = Problem::at(&value.place(), "reports come over UDP, and not to a unix socket");
        problems.add(problem.label("an IP address and a port").help("such as \"10.0.0.1:9787\""));
    }
    let sources = node.settings("sources").filter_map(|value| address::range(value, problems)).collect();
    let key = node.setting("key-file").and_then(|value| Some((value, value.text()?)));
    let Some((key, file)) = key else {
        if node.setting("key-file").is_none() {
            let problem = Problem::at(&node.place(), "`feedback` has no key").label("`key-file` is missing");
            problems.add(problem.help("make one: pointsman agent-key --new FILE"));
        }
        return None;
    };
    if file.is_empty() {
        problems.add(Problem::at(&key.place(), "the key has no file").label("empty"));
    }
    Some(Feedback { address: socket??, key_file: key.beside(file), sources })
}

/// Where its key's file is named.
pub(super) fn key_place(node: Node<'_>) -> Option<Place> {
    node.setting("key-file").map(|value| value.place())
}

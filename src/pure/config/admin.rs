//! `admin "unix:FILE"`: where operators ask the running proxy how it is. It refuses IP addresses, with or without TLS: at a
//! unix socket the system says who may ask, and nothing else would yet.

use std::path::PathBuf;

use super::node::Node;
use super::problem::{Problem, Problems};
use super::{ListenAddress, Listener, address};

/// The socket's file. `None` where there is none that could be listened on.
pub(super) fn read(node: Node<'_>, listeners: &[Listener], problems: &mut Problems) -> Option<PathBuf> {
    let value = node.argument(0)?;
    let text = value.text()?;
    // What looks like a file gets the hint that listeners get.
    let is_file = text.starts_with("unix:") || text.starts_with(['/', '.']);
    let address = if is_file { Some(address::listener(value, problems)?) } else { None };
    let Some(ListenAddress::Unix(path)) = address else {
        let problem = Problem::at(&value.place(), "`admin` at an IP address is not supported yet");
        let problem = problem.label("not in this version");
        problems.add(problem.help(r#"a unix socket is: admin "unix:/run/pointsman/admin.sock""#));
        return None;
    };
    let is_taken = |listener: &Listener| matches!(&listener.address, ListenAddress::Unix(taken) if *taken == path);
    if listeners.iter().any(is_taken) {
        let problem = Problem::at(&value.place(), "a listener has this socket already").label("taken");
        problems.add(problem.help("clients and operators can't come by the same socket: name another file"));
        return None;
    }
    Some(path)
}

//! `tls { .. }` of a pool's `upstream`: whom the servers have to be, and what they are shown. Files are named here and read by
//! others.

use std::net::IpAddr;

use super::address::is_host_name;
use super::listener::read_certificate;
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use crate::pure::pool::{UpstreamTls, Verification};

/// What the node says.
pub(super) fn read(node: Node<'_>, problems: &mut Problems) -> UpstreamTls {
    let is_insecure = node.setting("insecure").and_then(|value| value.switch()).unwrap_or(false);
    let ca = node.setting("ca");
    if let Some(ca) = ca.filter(|_| is_insecure) {
        let problem =
            Problem::at(&ca.place(), "`insecure` verifies nothing, so `ca` would not be used").label("not both");
        problems.add(problem.help("leave `insecure` out: then the certificates of `ca` decide"));
    }
    let file = ca.and_then(|ca| ca.text());
    let verification = match file {
        _ if is_insecure => Verification::Insecure,
        Some(file) => Verification::Authorities(node.source.beside(file)),
        None => Verification::System,
    };
    UpstreamTls {
        verification,
        server_name: node.setting("server-name").and_then(|value| read_name(value, problems)),
        certificate: node.child("certificate").and_then(|node| read_certificate(node, problems)),
    }
}

fn read_name(value: Value<'_>, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    let name = text.strip_suffix('.').unwrap_or(text);
    if is_host_name(name) || name.parse::<IpAddr>().is_ok() {
        return Some(name.to_ascii_lowercase());
    }
    let problem = Problem::at(&value.place(), format!("`{text}` is no name that a certificate can be for"));
    problems.add(problem.label("a host, or an IP address").help("without scheme, port and path: \"app.internal\""));
    None
}

//! `listen ADDRESS { .. }`: a listener with its TLS and its limits. Certificates are named here and read by others.

use super::address;
use super::limit_table::Settings;
use super::limits::{self, Site};
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use super::{CertificateFiles, ClientAuthorities, ListenAddress, Listener, Protocols, SiteCertificate, Tls};
use crate::pure::rule::Cidr;

/// The permissions of a unix socket where none are given: its owner's and group's.
const MODE: u32 = 0o660;

/// A listener, with the limits of the top where it has none of its own. `None` where its address is wrong.
pub(super) fn read(node: Node<'_>, top: &Settings, problems: &mut Problems) -> Option<Listener> {
    let tls = node.child("tls").map(|tls| read_tls(tls, problems));
    let mut settings = top.clone();
    limits::read(node.children("limits"), Site::Listener, &mut settings, problems);
    let protocols = read_protocols(node, tls.is_some(), problems);
    let proxy_protocol = node.child("proxy-protocol");
    if let Some(proxy_protocol) = proxy_protocol.filter(|_| node.settings("trusted-proxies").next().is_none()) {
        problems.add(
            Problem::at(&proxy_protocol.place(), "`proxy-protocol` lacks `trusted-proxies`")
                .label("nobody is believed, so every connection would be closed")
                .help(r#"name the proxies in front: trusted-proxies "10.0.0.0/8""#),
        );
    }
    let switch = |name| node.setting(name).and_then(|value| value.switch()).unwrap_or(false);
    let address = address::listener(node.argument(0)?, problems);
    let mode = node.setting("mode").and_then(|value| read_mode(value, address.as_ref(), problems));
    let trusted_proxies = read_trusted(node, address.as_ref(), problems);
    let address = address?;
    if let (ListenAddress::Unix(_), Some(tls)) = (&address, node.child("tls")) {
        let problem = Problem::at(&tls.name_place(), "TLS on a unix socket is not supported yet");
        problems.add(
            problem.label("not in this version").help("who can connect is said by the socket's permissions: `mode`"),
        );
    }
    Some(Listener {
        address,
        mode: mode.unwrap_or(MODE),
        tls,
        protocols,
        trusted_proxies,
        proxy_protocol: proxy_protocol.is_some(),
        via: node.setting("via").and_then(|value| value.text()) != Some("off"),
        request_id: switch("request-id"),
        half_close: switch("half-close"),
        limits: settings.listener,
    })
}

fn read_protocols(node: Node<'_>, is_tls: bool, problems: &mut Problems) -> Protocols {
    let mut values = node.settings("protocols").peekable();
    if values.peek().is_none() {
        return Protocols::usual(is_tls);
    }
    let mut protocols = Protocols { http1: false, http2: false };
    for value in values {
        match (value.text(), is_tls) {
            (Some("http/1.1"), _) => protocols.http1 = true,
            (Some("h2"), true) | (Some("h2c"), false) => protocols.http2 = true,
            (Some("h2"), false) => problems.add(
                Problem::at(&value.place(), "`h2` is HTTP/2 over TLS, and this listener has no `tls`")
                    .label("without TLS")
                    .help(r#"add TLS: tls { certificate "certs/site.crt" key="certs/site.key" }"#)
                    .help("HTTP/2 without TLS, which no browser speaks, is `h2c`"),
            ),
            (Some("h2c"), true) => problems.add(
                Problem::at(&value.place(), "`h2c` is HTTP/2 without TLS, and this listener has `tls`")
                    .label("over TLS")
                    .help("over TLS it is `h2`"),
            ),
            _ => {}
        }
    }
    protocols
}

/// Whose forwarding fields are believed. `unix` is every peer of a unix socket, and nobody else's.
fn read_trusted(node: Node<'_>, address: Option<&ListenAddress>, problems: &mut Problems) -> Vec<Cidr> {
    let is_unix = matches!(address, Some(ListenAddress::Unix(_)));
    let mut names_unix = false;
    let mut trusted = Vec::new();
    for value in node.settings("trusted-proxies") {
        if value.text() != Some("unix") {
            trusted.extend(address::range(value, problems));
            continue;
        }
        names_unix = true;
        trusted.push(Cidr { address: ListenAddress::peer(), prefix: 32 });
        if address.is_some() && !is_unix {
            let problem = Problem::at(&value.place(), "nobody comes here by a unix socket").label("not this one");
            problems.add(problem.help("`unix` belongs to a listener such as \"unix:/run/pointsman.sock\""));
        }
    }
    if is_unix
        && !names_unix
        && let Some(value) = node.settings("trusted-proxies").next()
    {
        let problem = Problem::at(&value.place(), "who comes by a unix socket has no address").label("nobody has this");
        problems.add(problem.help("add \"unix\": it is whoever may connect to the socket"));
    }
    trusted
}

fn read_mode(value: Value<'_>, address: Option<&ListenAddress>, problems: &mut Problems) -> Option<u32> {
    let text = value.text()?;
    if matches!(address, Some(ListenAddress::Socket(_))) {
        let problem = Problem::at(&value.place(), "only a unix socket has permissions").label("not here");
        problems.add(problem.help("`mode` belongs to a listener such as \"unix:/run/pointsman.sock\""));
        return None;
    }
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && text.len() <= 4);
    if mode.is_none() {
        let problem = Problem::at(&value.place(), format!("`{text}` is no mode")).label("three octal digits");
        problems.add(problem.help("\"0660\" lets the owner and the group connect, \"0666\" everybody"));
    }
    mode
}

fn read_tls(node: Node<'_>, problems: &mut Problems) -> Tls {
    let clients = node.child("client-ca").and_then(read_client_ca);
    let mut certificates = Vec::new();
    for certificate in node.children("certificate") {
        let own = certificate.child("client-ca").and_then(read_client_ca);
        let files = read_certificate(certificate, problems);
        let clients = own.or_else(|| clients.clone());
        certificates.extend(files.map(|files| SiteCertificate { files, clients }));
    }
    if node.children("certificate").next().is_none() {
        let problem = Problem::at(&node.place(), "TLS needs a certificate").label("there is none in here");
        problems.add(problem.help(r#"tls { certificate "certs/site.crt" key="certs/site.key" }"#));
    }
    Tls { certificates }
}

/// `client-ca FILE mode=".."`.
fn read_client_ca(node: Node<'_>) -> Option<ClientAuthorities> {
    let file = node.source.beside(node.argument(0)?.text()?);
    let mode = node.setting("mode").and_then(|value| value.text());
    Some(ClientAuthorities { file, is_required: mode != Some("optional") })
}

/// `certificate FILE key=FILE`. `None` where one of the two is missing.
pub(super) fn read_certificate(node: Node<'_>, problems: &mut Problems) -> Option<CertificateFiles> {
    let file = node.argument(0)?.text()?;
    let Some(key) = node.setting("key") else {
        let problem = Problem::at(&node.place(), "this certificate has no key").label("`key` is missing");
        problems.add(problem.help(r#"certificate "certs/site.crt" key="certs/site.key""#));
        return None;
    };
    Some(CertificateFiles { certificate: node.source.beside(file), key: node.source.beside(key.text()?) })
}

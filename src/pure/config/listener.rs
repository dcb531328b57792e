//! `listen ADDRESS { .. }`: a listener with its TLS and its limits. Certificates are named here and read by others.

use super::address;
use super::limit_table::Settings;
use super::limits::{self, Site};
use super::node::Node;
use super::problem::{Problem, Problems};
use super::{CertificateFiles, ClientAuthorities, Listener, Protocols, SiteCertificate, Tls};

/// A listener, with the limits of the top where it has none of its own. `None` where its address is wrong.
pub(super) fn read(node: Node<'_>, top: &Settings, problems: &mut Problems) -> Option<Listener> {
    let tls = node.child("tls").map(|tls| read_tls(tls, problems));
    let trusted_proxies =
        node.settings("trusted-proxies").filter_map(|value| address::range(value, problems)).collect();
    let mut settings = top.clone();
    limits::read(node.children("limits"), Site::Listener, &mut settings, problems);
    let protocols = read_protocols(node, tls.is_some(), problems);
    let switch = |name| node.setting(name).and_then(|value| value.switch()).unwrap_or(false);
    Some(Listener {
        address: address::listener(node.argument(0)?, problems)?,
        tls,
        protocols,
        trusted_proxies,
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

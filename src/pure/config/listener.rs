//! `listen ADDRESS { .. }`: a listener with its TLS and its limits. Certificates are named here and read by others.

use super::address;
use super::limit_table::Settings;
use super::limits::{self, Site};
use super::node::Node;
use super::problem::{Problem, Problems};
use super::{CertificateFiles, Listener, Tls};

/// A listener, with the limits of the top where it has none of its own. `None` where its address is wrong.
pub(super) fn read(node: Node<'_>, top: &Settings, problems: &mut Problems) -> Option<Listener> {
    let tls = node.child("tls").map(|tls| read_tls(tls, problems));
    let trusted_proxies =
        node.settings("trusted-proxies").filter_map(|value| address::range(value, problems)).collect();
    let mut settings = top.clone();
    limits::read(node.children("limits"), Site::Listener, &mut settings, problems);
    let proxy_protocol = node.child("proxy-protocol");
    if let Some(proxy_protocol) = proxy_protocol.filter(|_| node.settings("trusted-proxies").next().is_none()) {
        problems.add(
            Problem::at(&proxy_protocol.place(), "`proxy-protocol` lacks `trusted-proxies`")
                .label("nobody is believed, so every connection would be closed")
                .help(r#"name the proxies in front: trusted-proxies "10.0.0.0/8""#),
        );
    }
    let switch = |name| node.setting(name).and_then(|value| value.switch()).unwrap_or(false);
    Some(Listener {
        address: address::listener(node.argument(0)?, problems)?,
        tls,
        trusted_proxies,
        proxy_protocol: proxy_protocol.is_some(),
        via: node.setting("via").and_then(|value| value.text()) != Some("off"),
        request_id: switch("request-id"),
        half_close: switch("half-close"),
        limits: settings.listener,
    })
}

fn read_tls(node: Node<'_>, problems: &mut Problems) -> Tls {
    let mut certificates = Vec::new();
    for certificate in node.children("certificate") {
        let Some(file) = certificate.argument(0).and_then(|value| value.text()) else { continue };
        let Some(key) = certificate.setting("key") else {
            let problem = Problem::at(&certificate.place(), "this certificate has no key").label("`key` is missing");
            problems.add(problem.help(r#"certificate "certs/site.crt" key="certs/site.key""#));
            continue;
        };
        let Some(key) = key.text() else { continue };
        certificates.push(CertificateFiles { certificate: node.source.beside(file), key: node.source.beside(key) });
    }
    if node.children("certificate").next().is_none() {
        let problem = Problem::at(&node.place(), "TLS needs a certificate").label("there is none in here");
        problems.add(problem.help(r#"tls { certificate "certs/site.crt" key="certs/site.key" }"#));
    }
    Tls { certificates }
}

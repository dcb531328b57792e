//! What to say of names that stand in the wrong place, or that other proxies have for something that is called otherwise here:
//! TLS and HTTP/2 above all, which are said of listeners and of pools in different ways.
//!
//! It refuses to judge: whoever asks has found that the name means nothing where it stands.

use super::form::NodeForm;

/// Whose connections a node is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Clients,
    Servers,
    /// Of neither, or of both.
    Unknown,
}

/// Names, and where what they mean is written for either side.
struct Meaning {
    names: &'static [&'static str],
    clients: Option<&'static str>,
    servers: Option<&'static str>,
}

const TLS_TO_CLIENTS: &str =
    r#"TLS to clients is `tls { certificate "certs/site.crt" key="certs/site.key" }` in `listen`"#;
const TLS_TO_SERVERS: &str = r#"TLS to servers is `upstream "http/1.1" { tls }` in the pool"#;

const MEANINGS: &[Meaning] = &[
    Meaning { names: &["tls", "ssl", "https"], clients: Some(TLS_TO_CLIENTS), servers: Some(TLS_TO_SERVERS) },
    Meaning {
        names: &["certificate", "cert"],
        clients: Some(TLS_TO_CLIENTS),
        servers: Some(
            r#"what servers are shown belongs into `upstream`: `tls { certificate "certs/proxy.crt" key="certs/proxy.key" }`"#,
        ),
    },
    Meaning {
        names: &["client-ca"],
        clients: Some(
            r#"`client-ca` belongs into the `tls` of `listen`: `tls { client-ca "certs/clients.crt"; certificate .. }`"#,
        ),
        servers: Some(
            r#"the authorities of servers are `upstream "http/1.1" { tls { ca "certs/ca.crt" } }` in the pool"#,
        ),
    },
    Meaning {
        names: &["ca", "ca-file"],
        clients: Some(
            r#"the authorities of clients are `tls { client-ca "certs/clients.crt"; certificate .. }` in `listen`"#,
        ),
        servers: Some(
            r#"the authorities of servers are `upstream "http/1.1" { tls { ca "certs/ca.crt" } }` in the pool"#,
        ),
    },
    Meaning {
        names: &["server-name", "sni"],
        clients: None,
        servers: Some(
            r#"whom servers have to be is said by `upstream "http/1.1" { tls { server-name "app.internal" } }` in the pool"#,
        ),
    },
    Meaning {
        names: &["verify", "insecure"],
        clients: Some(
            r#"clients have to show a certificate by `tls { client-ca "certs/clients.crt" mode="required"; certificate .. }`"#,
        ),
        servers: Some(
            "servers are verified by default, against the system's authorities or `ca` in the `tls` of `upstream`; \
             `insecure #true` in there verifies nothing",
        ),
    },
    Meaning {
        names: &["http2", "h2", "alpn"],
        clients: Some(r#"HTTP/2 to clients is `protocols "h2" "http/1.1"` in `listen`, and the default with `tls`"#),
        servers: Some(r#"HTTP/2 to servers is `upstream "h2"` over TLS, or `upstream "h2c"` without it"#),
    },
    Meaning {
        names: &["h2c"],
        clients: Some(r#"HTTP/2 without TLS to clients is `protocols "h2c" "http/1.1"` in `listen`"#),
        servers: Some(r#"HTTP/2 without TLS to servers is `upstream "h2c"` in the pool"#),
    },
    Meaning {
        names: &["accept-proxy", "send-proxy", "send-proxy-v2", "proxy-protocol"],
        clients: Some(
            r#"a PROXY header from a proxy in front is `proxy-protocol; trusted-proxies "10.0.0.0/8"` in the block of `listen`"#,
        ),
        servers: Some(r#"a PROXY header to servers is `upstream "http/1.1" proxy-protocol="v2"` in the pool"#),
    },
];

/// What other proxies call the settings of a `check`, and what they are called here.
const OF_CHECKS: &[(&[&str], &str)] = &[
    (&["interval", "inter", "period"], "`every` says how often"),
    (&["fails", "unhealthy-threshold", "max-fails"], "`fall` says how many bad checks in a row count"),
    (&["passes", "healthy-threshold"], "`rise` says how many good checks in a row bring a server back"),
    (&["uri", "url"], "`path` says what is asked for, and `host` of whom"),
    (
        &["expect", "expected-statuses", "expect-status", "rstatus", "match"],
        "`status`, `body` and `body-regex` say what a good answer is",
    ),
    (&["rstring", "expect-body"], "`body` is a text, `body-regex` an expression that the body has to match"),
    (&["service-name"], "`service` names it"),
    (&["headers"], "each field is a node in the block: header \"X-Check\" \"yes\""),
    (
        &["address", "addr"],
        "`port` says another port; another address belongs to its server: server .. check-address=\"10.0.0.9:9100\"",
    ),
];

/// Where what `name` means in a node of the form `parent` is written; `None`: nothing is known of it.
pub(super) fn belongs(name: &str, parent: &NodeForm) -> Option<String> {
    let lower = name.to_ascii_lowercase().replace('_', "-");
    if parent.name == "check"
        && let Some((_, ours)) = OF_CHECKS.iter().find(|(names, _)| names.contains(&lower.as_str()))
    {
        return Some((*ours).to_owned());
    }
    let meaning = MEANINGS.iter().find(|meaning| meaning.names.contains(&lower.as_str()))?;
    match side_of(parent) {
        Side::Clients => meaning.clients.or(meaning.servers).map(str::to_owned),
        Side::Servers => meaning.servers.or(meaning.clients).map(str::to_owned),
        Side::Unknown => Some([meaning.clients, meaning.servers].into_iter().flatten().collect::<Vec<_>>().join("; ")),
    }
}

/// Two nodes are called `tls`, and two `certificate`; what they may hold tells them apart.
fn side_of(form: &NodeForm) -> Side {
    match form.name {
        "listen" | "client-ca" => Side::Clients,
        "pool" | "server" | "upstream" => Side::Servers,
        "tls" | "certificate" if form.child("client-ca").is_some() => Side::Clients,
        "tls" | "certificate" => Side::Servers,
        _ => Side::Unknown,
    }
}

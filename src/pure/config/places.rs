//! Where in the rule files things stand, so that a warning about them can show the text. Each list runs beside the one of
//! the same name in [`super::Config`].

use std::path::PathBuf;

use super::node::Node;
use super::source::Place;

/// The places of everything that a warning may be about.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Those of listeners.
    pub listeners: Vec<ListenerPlaces>,
    /// Each `pool`, without its block.
    pub pools: Vec<PoolPlaces>,
    /// Those of rules.
    pub rules: Vec<RulePlaces>,
    /// Those of `expect` lines.
    pub expects: Vec<Place>,
    /// That of `user`.
    pub user: Option<Place>,
    /// That of `secret`.
    pub secret: Option<Place>,
    /// That of the `key-file` of `feedback`.
    pub feedback_key: Option<Place>,
    /// That of `access-log`.
    pub access_log: Option<Place>,
    /// The files with passwords and the secrets of webhooks.
    pub secret_files: Vec<SecretFile>,
}

/// A file with a secret, and where it is named.
#[derive(Clone, Debug)]
pub struct SecretFile {
    /// The file.
    pub file: PathBuf,
    /// Where it is named.
    pub place: Place,
}

/// A listener's places.
#[derive(Clone, Debug)]
pub struct ListenerPlaces {
    /// The `listen`, without its block.
    pub node: Place,
    /// Its certificates in order.
    pub certificates: Vec<Place>,
    /// The `client-ca` of each of them, its own or the listener's.
    pub client_cas: Vec<Option<Place>>,
    /// Its trusted ranges in order.
    pub trusted_proxies: Vec<Place>,
    /// The `body-max` that holds for it, its own or that of the top; none where it is the default.
    pub body_max: Option<Place>,
}

/// A pool's places.
#[derive(Clone, Debug)]
pub struct PoolPlaces {
    /// The `pool`, without its block.
    pub node: Place,
    /// Its servers in order.
    pub servers: Vec<Place>,
    /// The first `persist` whose choices outlive the process only with a `secret`.
    pub needs_secret: Option<Place>,
    /// Its `check`, if it has one.
    pub check: Option<Place>,
    /// The `tls` of its `upstream`, if it has one.
    pub tls: Option<UpstreamTlsPlaces>,
    /// Its `scheduler`, if it has one.
    pub scheduler: Option<Place>,
    /// Its `recovery`, if it has one.
    pub recovery: Option<Place>,
}

/// The places of TLS towards a pool's servers.
#[derive(Clone, Debug)]
pub struct UpstreamTlsPlaces {
    /// The `tls`, without its block; where there is none, the protocol that implies it.
    pub node: Place,
    /// Its authorities.
    pub ca: Option<Place>,
    /// Its certificate.
    pub certificate: Option<Place>,
    /// Where it says that nothing is verified.
    pub insecure: Option<Place>,
}

impl UpstreamTlsPlaces {
    /// Those of TLS that goes without saying, with the protocol at `protocol`.
    pub(super) const fn implied(protocol: Place) -> Self {
        Self { node: protocol, ca: None, certificate: None, insecure: None }
    }

    /// Those of a node.
    pub(super) fn of(node: Node<'_>) -> Self {
        let setting = |name| node.setting(name).map(|value| value.place());
        Self {
            node: node.place(),
            ca: setting("ca"),
            certificate: node.child("certificate").map(|node| node.place()),
            insecure: setting("insecure"),
        }
    }
}

/// A rule's places.
#[derive(Clone, Debug)]
pub struct RulePlaces {
    /// The `rule`, without its block.
    pub node: Place,
    /// Its hosts in order.
    pub hosts: Vec<Place>,
    /// Its expressions in order.
    pub path_regexes: Vec<Place>,
    /// Its path patterns in order.
    pub paths: Vec<Place>,
    /// Its `strip-prefix`, if it has one.
    pub strip_prefix: Option<Place>,
    /// Its key, if it has one.
    pub key: Option<Place>,
}

impl RulePlaces {
    /// Those of a node.
    pub(super) fn of(node: Node<'_>) -> Self {
        let all = |name| node.settings(name).map(|value| value.place()).collect();
        Self {
            node: node.place(),
            hosts: all("host"),
            path_regexes: all("path-regex"),
            paths: all("path"),
            strip_prefix: node.setting("strip-prefix").map(|value| value.place()),
            key: node.setting("key").map(|value| value.place()),
        }
    }
}

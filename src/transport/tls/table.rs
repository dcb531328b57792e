//! Which certificate a client gets: by the name it asks for (SNI, RFC 6066 section 3).
//!
//! An exact name comes before a wildcard, and `*.` stands for one label only (RFC 9525 section 6.3), so at most one
//! wildcard can match. Several certificates for one name are alternatives (ECDSA beside RSA): the cheapest that the
//! client can verify. The order in which certificates were loaded decides one thing only: the first is the default, for
//! clients that ask for no name or for one that nobody has.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::SignatureAlgorithm;
use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::transport::tls::certificate::{CertificateName, certificate_names, expiry};

/// The longest host name that is looked up, in bytes (RFC 1035 section 2.3.4).
const NAME_MAX: usize = 253;

/// The certificates of one listener, found by name.
#[derive(Debug)]
pub struct CertificateTable {
    /// In the order they were loaded; never empty.
    certificates: Vec<Arc<CertifiedKey>>,
    /// The first of them.
    default: Arc<CertifiedKey>,
    /// Exact names, and wildcards as the `.suffix` behind their `*`, each with its alternatives, best first.
    hosts: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    /// Addresses, each with its alternatives, best first.
    addresses: HashMap<IpAddr, Vec<Arc<CertifiedKey>>>,
    /// The address that clients reach the listener by, where it has one of its own.
    own_address: Option<IpAddr>,
}

/// A table has to have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a TLS listener needs at least one certificate")]
pub struct NoCertificates;

impl CertificateTable {
    /// A table of these certificates, of which the first is the default. `listening` is the listener's address: clients
    /// that connect to an IP address send no name, so where the listener has an address of its own, they get the
    /// certificate that is for that address.
    ///
    /// # Errors
    /// [`NoCertificates`] where there is none.
    pub fn new(certificates: Vec<Arc<CertifiedKey>>, listening: IpAddr) -> Result<Self, NoCertificates> {
        let default = Arc::clone(certificates.first().ok_or(NoCertificates)?);
        let mut by_rank = certificates.clone();
        by_rank.sort_by_cached_key(|certificate| rank(certificate));
        let mut hosts: HashMap<Box<str>, Vec<_>> = HashMap::new();
        let mut addresses: HashMap<IpAddr, Vec<_>> = HashMap::new();
        for certificate in by_rank {
            for name in certificate.cert.first().map(|der| certificate_names(der)).unwrap_or_default() {
                let alternatives = match name {
                    CertificateName::Host(host) => {
                        let key = host.strip_prefix('*').unwrap_or(&host);
                        hosts.entry(key.into()).or_default()
                    }
                    CertificateName::Address(address) => addresses.entry(address).or_default(),
                };
                alternatives.push(Arc::clone(&certificate));
            }
        }
        let own_address = (!listening.is_unspecified()).then_some(listening);
        Ok(Self { certificates, default, hosts, addresses, own_address })
    }

    /// The certificate for a client that asks for `name` (a host, or an address as text) and can verify signatures of
    /// these `schemes`.
    pub fn find(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let alternatives = self.alternatives_for(name);
        let usable = |certificate: &&Arc<CertifiedKey>| certificate.key.choose_scheme(schemes).is_some();
        alternatives
            .iter()
            .find(usable)
            .or_else(|| self.certificates.iter().find(usable))
            .or_else(|| self.certificates.first())
            .cloned()
    }

    /// The best certificate for a client that asks for `name`, whatever it can verify.
    pub(super) fn first_for(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        self.alternatives_for(name).first().unwrap_or(&self.default)
    }

    /// Each name with the certificates for it.
    pub(super) fn names(&self) -> impl Iterator<Item = (String, &[Arc<CertifiedKey>])> {
        let host = |name: &str| if name.starts_with('.') { format!("*{name}") } else { name.to_owned() };
        let hosts = self.hosts.iter().map(move |(name, keys)| (host(name), keys.as_slice()));
        hosts.chain(self.addresses.iter().map(|(address, keys)| (address.to_string(), keys.as_slice())))
    }

    /// The certificates in the order they were loaded; the first is the default.
    pub fn certificates(&self) -> &[Arc<CertifiedKey>] {
        &self.certificates
    }

    fn alternatives_for(&self, name: Option<&str>) -> &[Arc<CertifiedKey>] {
        match name {
            Some(name) => self.alternatives_of(name),
            None => self.own_address.and_then(|address| self.addresses.get(&address)).map_or(&[][..], Vec::as_slice),
        }
    }

    fn alternatives_of(&self, name: &str) -> &[Arc<CertifiedKey>] {
        let name = name.strip_suffix('.').unwrap_or(name);
        let mut lower = [0; NAME_MAX];
        let Some(lower) = lower.get_mut(..name.len()) else { return &[] };
        lower.copy_from_slice(name.as_bytes());
        lower.make_ascii_lowercase();
        let Ok(lower) = std::str::from_utf8(lower) else { return &[] };
        // Keys that begin with a dot are wildcards, and no name does.
        if lower.starts_with('.') {
            return &[];
        }
        let wildcard = || lower.find('.').and_then(|dot| lower.get(dot..)).and_then(|suffix| self.hosts.get(suffix));
        let address = || lower.parse().ok().and_then(|address: IpAddr| self.addresses.get(&address));
        self.hosts.get(lower).or_else(address).or_else(wildcard).map_or(&[], Vec::as_slice)
    }
}

thread_local! {
    /// The name in the hello that rustls has worked on last in this thread.
    static ASKED_NAME: Cell<Option<Box<str>>> = const { Cell::new(None) };
}

/// The name in the hello that rustls has just worked on, in lower case without trailing dot. Of a session that it does not
/// keep the buffers of, rustls tells the name to nobody else: whoever wants it takes it here right after, and before as well, so
/// that it is no other session's.
pub(super) fn take_asked_name() -> Option<Box<str>> {
    ASKED_NAME.take()
}

impl ResolvesServerCert for CertificateTable {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(|name| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase());
        ASKED_NAME.set(name.map(String::into_boxed_str));
        self.find(hello.server_name(), hello.signature_schemes())
    }
}

/// What orders the alternatives for one name, whatever order they were loaded in: cheap signatures first, then the one
/// that lasts longest, then their bytes.
fn rank(certificate: &CertifiedKey) -> (u8, std::cmp::Reverse<Option<std::time::SystemTime>>, Vec<u8>) {
    let cost = match certificate.key.algorithm() {
        SignatureAlgorithm::ECDSA => 0,
        SignatureAlgorithm::ED25519 => 1,
        _ => 2,
    };
    let bytes = certificate.cert.first().map(|der| der.to_vec()).unwrap_or_default();
    (cost, std::cmp::Reverse(expiry(certificate)), bytes)
}

#[cfg(test)]
mod tests;

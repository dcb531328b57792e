//! The certificates of a listener by what they demand of clients: the name that a client asks for decides which demand its
//! handshake has to meet, and the authority of a request whether the connection's will do.
//!
//! Certificates of one name demand the same; otherwise what a client has to show would depend on the signatures that it can
//! verify.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::sign::CertifiedKey;

use crate::transport::tls::client_policy::ClientPolicy;
use crate::transport::tls::table::{CertificateTable, NoCertificates};

/// A certificate of a listener with what it demands of clients.
pub type Demanding = (Arc<CertifiedKey>, ClientPolicy);

/// Why certificates can't be those of one listener.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is none.
    #[error(transparent)]
    NoCertificates(#[from] NoCertificates),
    /// Two of them are for one name and differ in what they demand of clients.
    #[error("two certificates are for {0} and differ in their `client-ca`: give both the same")]
    Conflict(String),
}

/// Which demand holds for which name. There is an entry for each demand; positions count them.
#[derive(Debug)]
pub(super) struct Policies {
    pub(super) entries: Vec<PolicyEntry>,
    all: CertificateTable,
    /// The position of the demand of each certificate, by its address in memory, which `all` keeps.
    positions: HashMap<usize, usize>,
}

/// The certificates that demand the same.
#[derive(Debug)]
pub(super) struct PolicyEntry {
    pub(super) policy: ClientPolicy,
    pub(super) table: Arc<CertificateTable>,
}

impl Policies {
    /// Those of a listener at that address. Its first certificate is the default.
    pub(super) fn new(certificates: &[Demanding], listening: IpAddr) -> Result<Self, PolicyError> {
        let mut groups: Vec<(ClientPolicy, Vec<Arc<CertifiedKey>>)> = Vec::new();
        let mut positions = HashMap::new();
        for (key, policy) in certificates {
            let known = groups.iter().position(|(other, _)| other.kind == policy.kind);
            let position = known.unwrap_or(groups.len());
            match groups.get_mut(position) {
                Some((_, keys)) => keys.push(Arc::clone(key)),
                None => groups.push((policy.clone(), vec![Arc::clone(key)])),
            }
            positions.insert(address_of(key), position);
        }
        let all = CertificateTable::new(certificates.iter().map(|(key, _)| Arc::clone(key)).collect(), listening)?;
        for (name, alternatives) in all.names() {
            let mut demands = alternatives.iter().map(|key| positions.get(&address_of(key)));
            let first = demands.next();
            if demands.any(|demand| Some(demand) != first) {
                return Err(PolicyError::Conflict(name));
            }
        }
        let entry = |(policy, keys)| {
            Ok::<_, NoCertificates>(PolicyEntry { policy, table: Arc::new(CertificateTable::new(keys, listening)?) })
        };
        Ok(Self { entries: groups.into_iter().map(entry).collect::<Result<_, _>>()?, all, positions })
    }

    /// The position of the demand that holds for `name`.
    pub(super) fn position(&self, name: Option<&str>) -> usize {
        self.positions.get(&address_of(self.all.first_for(name))).copied().unwrap_or(0)
    }
}

/// Whether these certificates can be those of one listener at that address.
///
/// # Errors
/// [`PolicyError`].
pub fn check_policies(certificates: &[Demanding], listening: IpAddr) -> Result<(), PolicyError> {
    Policies::new(certificates, listening).map(|_| ())
}

fn address_of(key: &Arc<CertifiedKey>) -> usize {
    Arc::as_ptr(key).addr()
}

#[cfg(test)]
mod tests;

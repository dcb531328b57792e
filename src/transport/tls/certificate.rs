//! Certificate chains and keys from PEM files: read, and checked against each other, before anything listens.
//!
//! Every error names the file and says what to do. It refuses to look for a private key anywhere but in the key's file,
//! to ask for a passphrase, and to judge a chain: whether clients trust it is theirs to say.

use std::io::{self, Read};
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::InconsistentKeys;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::base::ordinary_file::open_ordinary;
use crate::pure::config::CertificateFiles;
use crate::transport::tls::provider;

/// The largest certificate or key file that is read, in bytes: a chain takes a few KiB.
const FILE_MAX: u64 = 1024 * 1024;

/// Why a certificate and its key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file can't be read.
    #[error("can't read {}: {source}{}", .file.display(), hint_of(.source))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is no PEM, or its PEM is broken.
    #[error("{} is not valid PEM: {reason}; copy the file again, whole", .file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificate file has no certificate.
    #[error("{} holds no certificate: it needs a block that begins with -----BEGIN CERTIFICATE-----, the site's own first{}",
        .file.display(),
        if *.is_der { "; it looks like DER, which `openssl x509 -inform der -in FILE -out FILE.crt` turns into PEM" } else { "" })]
    NoCertificate {
        /// The file.
        file: PathBuf,
        /// Whether its first bytes are those of a DER certificate.
        is_der: bool,
    },
    /// A file of certificate authorities has none.
    #[error("{} holds no certificate of an authority: it needs blocks that begin with -----BEGIN CERTIFICATE-----{}", .file.display(),
        if *.is_der { "; it looks like DER, which `openssl x509 -inform der -in FILE -out FILE.crt` turns into PEM" } else { "" })]
    NoAuthority {
        /// The file.
        file: PathBuf,
        /// Whether its first bytes are those of a DER certificate.
        is_der: bool,
    },
    /// The key file has no private key.
    #[error("{} holds no private key: it needs a block that begins with -----BEGIN PRIVATE KEY----- (or EC, or RSA PRIVATE KEY)",
        .file.display())]
    NoKey {
        /// The file.
        file: PathBuf,
    },
    /// The private key is protected by a passphrase, which nobody could type at a restart.
    #[error("the private key in {} has a passphrase: `openssl pkey -in FILE -out FILE.key` makes a copy without one", .file.display())]
    EncryptedKey {
        /// The file.
        file: PathBuf,
    },
    /// A certificate can't be read as X.509 version 3.
    #[error("certificate {position} in {} can't be used: {reason}", .file.display())]
    BadCertificate {
        /// The file.
        file: PathBuf,
        /// Which certificate of the file, from 1.
        position: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The private key is of a kind or size that TLS here can't sign with.
    #[error("the private key in {} can't be used: {reason}; an ECDSA P-256 key will do", .file.display())]
    BadKey {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The private key belongs to another certificate.
    #[error("the key in {} does not belong to the certificate in {}{}", .key.display(), .certificate.display(),
        match .belongs_to {
            Some(position) => format!(": it belongs to certificate {position} of that file, which must stand first"),
            None => "; name the key that the certificate was made for".to_owned(),
        })]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The certificate of the file that the key does belong to, from 1.
        belongs_to: Option<usize>,
    },
}

fn hint_of(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; relative names start at the folder of the rule file that names them",
        io::ErrorKind::PermissionDenied => "; the user that Pointsman starts as must be able to read it",
        _ => "",
    }
}

/// Reads a chain and its key and checks that they belong together. The key may stand in the certificate's file.
///
/// # Errors
/// [`CertificateError`] where a file can't be read, holds nothing of what it should, or the two do not match.
pub fn load_certificate(files: &CertificateFiles) -> Result<Arc<CertifiedKey>, CertificateError> {
    let chain = read_chain(&files.certificate)?;
    let key = read_key(&files.key)?;
    let signing_key = provider()
        .key_provider
        .load_private_key(key)
        .map_err(|error| CertificateError::BadKey { file: files.key.clone(), reason: error.to_string() })?;
    match belongs(&signing_key, chain.first()) {
        Ok(true) => Ok(Arc::new(CertifiedKey::new(chain, signing_key))),
        Ok(false) => Err(CertificateError::Mismatch {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            belongs_to: chain
                .iter()
                .position(|other| matches!(belongs(&signing_key, Some(other)), Ok(true)))
                .map(|i| i + 1),
        }),
        Err(error) => Err(CertificateError::BadCertificate {
            file: files.certificate.clone(),
            position: 1,
            reason: error.to_string(),
        }),
    }
}

/// Whether `key` is the private half of `certificate`'s key.
fn belongs(key: &Arc<dyn SigningKey>, certificate: Option<&CertificateDer<'static>>) -> Result<bool, rustls::Error> {
    let chain = certificate.into_iter().cloned().collect();
    match CertifiedKey::new(chain, Arc::clone(key)).keys_match() {
        Ok(()) => Ok(true),
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Ok(false),
        Err(error) => Err(error),
    }
}

fn read_file(file: &Path) -> Result<Vec<u8>, CertificateError> {
    let unreadable = |source| CertificateError::Unreadable { file: file.to_owned(), source };
    let mut bytes = Vec::new();
    open_ordinary(file).map_err(unreadable)?.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(unreadable(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "more than 1 MiB is no certificate or key",
        )));
    }
    Ok(bytes)
}

/// The PEM sections of a file that TLS knows, in order.
fn sections(file: &Path, bytes: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, CertificateError> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| CertificateError::Pem { file: file.to_owned(), reason: error.to_string() })
}

/// The certificates of a PEM file, in order, at least one.
pub(super) fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let bytes = read_file(file)?;
    let chain: Vec<_> = sections(file, &bytes)?
        .into_iter()
        .filter(|(kind, _)| *kind == SectionKind::Certificate)
        .map(|(_, der)| CertificateDer::from(der))
        .collect();
    if chain.is_empty() {
        return Err(CertificateError::NoCertificate { file: file.to_owned(), is_der: parse(&bytes).is_ok() });
    }
    for (index, der) in chain.iter().enumerate() {
        parse(der).map_err(|reason| CertificateError::BadCertificate {
            file: file.to_owned(),
            position: index + 1,
            reason,
        })?;
    }
    Ok(chain)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let bytes = read_file(file)?;
    let is_encrypted = |marker: &[u8]| memchr::memmem::find(&bytes, marker).is_some();
    if is_encrypted(b"BEGIN ENCRYPTED PRIVATE KEY") || is_encrypted(b"Proc-Type: 4,ENCRYPTED") {
        return Err(CertificateError::EncryptedKey { file: file.to_owned() });
    }
    sections(file, &bytes)?
        .into_iter()
        .find_map(|(kind, der)| PrivateKeyDer::from_pem(kind, der))
        .ok_or_else(|| CertificateError::NoKey { file: file.to_owned() })
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    match X509Certificate::from_der(der) {
        Ok((_, certificate)) => Ok(certificate),
        Err(error) => Err(error.to_string()),
    }
}

/// A name that a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CertificateName {
    /// A host name in lower case without trailing dot, or `*.` and one.
    Host(String),
    /// An address.
    Address(IpAddr),
}

/// The names that a certificate is for: its DNS and IP subject alternative names (RFC 9525 section 2: the common name
/// does not count). Names of other kinds, and any with a `*` elsewhere than as the whole first label, are left out: no client
/// would accept the certificate for them.
pub fn certificate_names(der: &[u8]) -> Vec<CertificateName> {
    let Ok(certificate) = parse(der) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    names.value.general_names.iter().filter_map(name_of).collect()
}

fn name_of(name: &GeneralName<'_>) -> Option<CertificateName> {
    match name {
        GeneralName::DNSName(host) => {
            let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
            let labels = host.strip_prefix("*.").unwrap_or(&host);
            let is_host = !labels.is_empty() && !labels.contains('*');
            is_host.then_some(CertificateName::Host(host))
        }
        GeneralName::IPAddress(octets) => match octets.len() {
            4 => <[u8; 4]>::try_from(*octets).ok().map(|octets| CertificateName::Address(octets.into())),
            16 => <[u8; 16]>::try_from(*octets).ok().map(|octets| CertificateName::Address(octets.into())),
            _ => None,
        },
        _ => None,
    }
}

/// When the last certificate of the chain begins to be valid, and the first expires: before and behind that clients refuse the
/// site. `None` where that can't be told.
pub fn validity(key: &CertifiedKey) -> Option<Range<SystemTime>> {
    let validities = key.cert.iter().filter_map(|der| {
        let certificate = parse(der).ok()?;
        let validity = certificate.validity();
        Some((time_of(&validity.not_before)?, time_of(&validity.not_after)?))
    });
    let (begins, ends): (Vec<_>, Vec<_>) = validities.unzip();
    Some(begins.into_iter().max()?..ends.into_iter().min()?)
}

/// The end of its [`validity`].
pub fn expiry(key: &CertifiedKey) -> Option<SystemTime> {
    validity(key).map(|valid| valid.end)
}

fn time_of(time: &ASN1Time) -> Option<SystemTime> {
    match u64::try_from(time.timestamp()) {
        Ok(seconds) => SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
        Err(_) => Some(SystemTime::UNIX_EPOCH),
    }
}

/// Whether no certificate of a PEM file can vouch for one: each is somebody's own, and was issued by somebody else.
pub fn vouch_for_nobody(file: &Path) -> bool {
    let is_issued = |der: &CertificateDer<'_>| {
        let is_own = |certificate: X509Certificate<'_>| {
            !certificate.is_ca() && certificate.issuer().as_raw() != certificate.subject().as_raw()
        };
        parse(der).is_ok_and(is_own)
    };
    read_chain(file).is_ok_and(|certificates| certificates.iter().all(is_issued))
}

#[cfg(test)]
mod tests;

//! Certificate authorities: those of a file, and those of the system.
//!
//! It refuses to take a file of which one certificate can't be used: whoever wrote it there meant it.

use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::RootCertStore;

use crate::transport::tls::certificate::{CertificateError, read_chain};

/// The authorities of a file.
#[derive(Clone, Debug)]
pub struct Authorities {
    /// As rustls verifies against them.
    pub roots: Arc<RootCertStore>,
    /// SHA-256 over the certificates, sorted, each once: the same for the same authorities in whatever file.
    pub digest: [u8; 32],
}

/// Reads the authorities in a PEM file.
///
/// # Errors
/// [`CertificateError`] where the file can't be read, has no certificate, or one that can't be an authority.
pub fn read_authorities(file: &Path) -> Result<Authorities, CertificateError> {
    let mut certificates = read_chain(file).map_err(|error| match error {
        CertificateError::NoCertificate { file, is_der } => CertificateError::NoAuthority { file, is_der },
        error => error,
    })?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates.iter().enumerate() {
        roots.add(certificate.clone()).map_err(|error| CertificateError::BadCertificate {
            file: file.to_owned(),
            position: index + 1,
            reason: error.to_string(),
        })?;
    }
    certificates.sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
    certificates.dedup();
    let mut context = Context::new(&SHA256);
    for certificate in &certificates {
        context.update(&(certificate.len() as u64).to_be_bytes());
        context.update(certificate);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    Ok(Authorities { roots: Arc::new(roots), digest })
}

/// The system's authorities, read when they are first asked for.
#[derive(Debug, Default)]
pub struct SystemAuthorities {
    read: Option<Arc<RootCertStore>>,
}

impl SystemAuthorities {
    /// The authorities that the system trusts, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    ///
    /// # Errors
    /// Where there is none, what went wrong, as the end of a sentence; it may be empty.
    pub(super) fn get(&mut self) -> Result<Arc<RootCertStore>, String> {
        if let Some(roots) = &self.read {
            return Ok(Arc::clone(roots));
        }
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        // Some systems have certificates that nothing can verify against; the others are no worse for that.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default());
        }
        let roots = Arc::new(roots);
        self.read = Some(Arc::clone(&roots));
        Ok(roots)
    }
}

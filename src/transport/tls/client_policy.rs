//! What a listener's certificates demand of clients, and who a client with a certificate is.
//!
//! It refuses to judge certificates: rustls verifies them, and what is read here has been verified.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::asn1_rs::{Any, Tag};
use x509_parser::prelude::FromDer;
use x509_parser::x509::AttributeTypeAndValue;

use crate::base::hex::push_hex;
use crate::pure::config::{ClientAuthorities, SiteCertificate};
use crate::pure::identity::{ClientIdentity, push_name_value};
use crate::transport::tls::ClientCertificates;
use crate::transport::tls::authorities::read_authorities;
use crate::transport::tls::certificate::{CertificateError, load_certificate};
use crate::transport::tls::policies::Demanding;

/// The longest subject, as text: it is copied into requests.
const SUBJECT_MAX: usize = 4 * 1024;

/// What is demanded of clients.
#[derive(Clone, Debug)]
pub struct ClientPolicy {
    /// What tells policies apart.
    pub kind: ClientCertificates,
    pub(super) roots: Option<Arc<RootCertStore>>,
}

impl ClientPolicy {
    /// No certificate is asked for.
    pub const NONE: Self = Self { kind: ClientCertificates::None, roots: None };

    /// What the rule file demands; the authorities are read now.
    ///
    /// # Errors
    /// [`CertificateError`] where their file can't be used.
    pub fn load(clients: Option<&ClientAuthorities>) -> Result<Self, CertificateError> {
        let Some(clients) = clients else { return Ok(Self::NONE) };
        let authorities = read_authorities(&clients.file)?;
        let kind = if clients.is_required {
            ClientCertificates::Required { authorities: authorities.digest }
        } else {
            ClientCertificates::Optional { authorities: authorities.digest }
        };
        Ok(Self { kind, roots: Some(authorities.roots) })
    }

    /// What rustls asks and verifies.
    pub(super) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        let Some(roots) = &self.roots else { return Ok(WebPkiClientVerifier::no_client_auth()) };
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
        let builder = match self.kind {
            ClientCertificates::Required { .. } => builder,
            ClientCertificates::Optional { .. } | ClientCertificates::None => builder.allow_unauthenticated(),
        };
        builder.build().map_err(|error| rustls::Error::General(error.to_string()))
    }
}

/// Reads a listener's certificate and what it demands of clients.
///
/// # Errors
/// [`CertificateError`] where a file can't be used.
pub fn load_demanding(certificate: &SiteCertificate) -> Result<Demanding, CertificateError> {
    Ok((load_certificate(&certificate.files)?, ClientPolicy::load(certificate.clients.as_ref())?))
}

/// Who a client is that has shown this chain. `None`: its subject can't be read, or is longer than a field should be.
pub(super) fn identity_of(chain: &[CertificateDer<'_>]) -> Option<ClientIdentity> {
    let leaf = chain.first()?;
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let mut subject = String::new();
    // Read as a name, a sequence of attributes has its most specific part last; written, first.
    let parts: Vec<_> = certificate.subject().iter().collect();
    for (at, part) in parts.iter().rev().enumerate() {
        let attributes: Vec<_> = part.iter().collect();
        for (inner, attribute) in attributes.iter().rev().enumerate() {
            if inner > 0 {
                subject.push('+');
            } else if at > 0 {
                subject.push(',');
            }
            push_attribute(attribute, &mut subject)?;
        }
        if subject.len() > SUBJECT_MAX {
            return None;
        }
    }
    let mut fingerprint = String::with_capacity(64);
    push_hex(digest(&SHA256, leaf).as_ref(), false, &mut fingerprint);
    Some(ClientIdentity { subject, fingerprint })
}

fn push_attribute(attribute: &AttributeTypeAndValue<'_>, out: &mut String) -> Option<()> {
    let kind = attribute.attr_type().to_id_string();
    match (short_name(&kind), text_of(attribute.attr_value())) {
        (Some(name), Some(text)) => {
            out.push_str(name);
            out.push('=');
            push_name_value(&text, out);
        }
        (name, _) => {
            out.push_str(name.unwrap_or(&kind));
            out.push_str("=#");
            push_hex(&der_of(attribute.attr_value())?, true, out);
        }
    }
    Some(())
}

/// The names that RFC 4514 section 3 has, and those that OpenSSL writes besides.
fn short_name(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "street",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "title",
        "2.5.4.42" => "GN",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        "1.2.840.113549.1.9.1" => "emailAddress",
        _ => return None,
    })
}

/// The text of a string of one of the kinds that names are made of (RFC 5280 section 4.1.2.4).
fn text_of(value: &Any<'_>) -> Option<String> {
    match value.tag() {
        Tag::Utf8String => std::str::from_utf8(value.data).ok().map(str::to_owned),
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::VisibleString => {
            value.data.is_ascii().then(|| value.data.iter().copied().map(char::from).collect())
        }
        // In practice Latin-1.
        Tag::T61String => Some(value.data.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let units = value.data.as_chunks::<2>();
            let units = units.1.is_empty().then(|| units.0.iter().map(|unit| u16::from_be_bytes(*unit)))?;
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        Tag::UniversalString => {
            let letters = value.data.as_chunks::<4>();
            let letters = letters.1.is_empty().then(|| letters.0.iter().map(|four| u32::from_be_bytes(*four)))?;
            letters.map(char::from_u32).collect()
        }
        _ => None,
    }
}

/// The value as it stands in the certificate: tag, length, content. `None` for tags that no attribute has.
fn der_of(value: &Any<'_>) -> Option<Vec<u8>> {
    let tag = u8::try_from(value.tag().0).ok().filter(|tag| *tag < 31)?;
    let mut der = vec![(value.class() as u8) << 6 | u8::from(value.header.is_constructed()) << 5 | tag];
    match u8::try_from(value.data.len()) {
        Ok(length @ ..128) => der.push(length),
        Ok(length) => der.extend([0x81, length]),
        Err(_) => {
            let [high, low] = u16::try_from(value.data.len()).ok()?.to_be_bytes();
            der.extend([0x82, high, low]);
        }
    }
    der.extend_from_slice(value.data);
    Some(der)
}

#[cfg(test)]
mod tests;

//! TLS for tests: certificates made on the spot, and client configurations that accept any certificate but still check
//! that the server holds its key.
//!
//! It refuses to be a model for anything but tests.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion};

/// A self-signed certificate and its key, as PEM and as DER.
pub struct Certificate {
    /// The certificate's PEM.
    pub certificate: String,
    /// The key's PEM.
    pub key: String,
    /// The certificate, as a client sees it.
    pub der: CertificateDer<'static>,
}

impl Certificate {
    /// A certificate for these names (ECDSA P-256).
    pub fn for_names(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Self::from_params(CertificateParams::new(names).expect("names fit a certificate"))
    }

    /// A certificate as `params` say.
    pub fn from_params(params: CertificateParams) -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.self_signed(&key).expect("a certificate can be signed");
        Self { certificate: certificate.pem(), key: key.serialize_pem(), der: certificate.der().clone() }
    }
}

/// A certificate authority, made for one test.
pub struct Authority {
    /// Its certificate, as PEM.
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// An authority of this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.self_signed(&key).expect("a certificate can be signed").pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate for these names, signed by it.
    pub fn issue(&self, names: &[&str]) -> Certificate {
        self.issue_with(names, |_| ())
    }

    /// A certificate for these names, as `change` makes it, signed by it.
    pub fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names fit a certificate");
        change(&mut params);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate can be signed");
        Certificate { certificate: certificate.pem(), key: key.serialize_pem(), der: certificate.der().clone() }
    }
}

/// Accepts every chain; signatures of the handshake are verified all the same.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A client's configuration: these TLS versions, these ALPN protocols (none offered where empty). Connections that share
/// it resume sessions.
pub fn client_config(versions: &[&'static SupportedProtocolVersion], protocols: &[&str]) -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .expect("the provider speaks these versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A client that speaks TLS 1.2 and 1.3 and HTTP/1.1.
pub fn default_config() -> Arc<ClientConfig> {
    client_config(rustls::ALL_VERSIONS, &["http/1.1"])
}

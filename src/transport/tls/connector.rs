//! TLS towards servers: what a pool demands of its servers' certificates, what it shows them, and the handshake.
//!
//! Certificates are verified unless the rule file says `insecure`: against the system's authorities or those of `ca`, and for
//! `server-name` or else the name or address by which the server is reached. Sessions are resumed from a small memory.
//! It refuses 0-RTT (RFC 8446 section 8: requests could be replayed) and all below TLS 1.2.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme, WantsVerifier};

use crate::base::time;
use crate::pure::pool::{Address, Pool, UpstreamProtocol, UpstreamTls, Verification};
use crate::pure::proxy_protocol::{Source, Version};
use crate::shared::endpoint::Endpoint;
use crate::transport::dial::{DialError, Dialled, dial_announced};
use crate::transport::tls::authorities::{SystemAuthorities, read_authorities};
use crate::transport::tls::certificate::{CertificateError, load_certificate};
use crate::transport::tls::server_stream::ServerTlsStream;
use crate::transport::tls::{HTTP1, HTTP2, provider};

/// Sessions that a connector remembers for resumption: rustls keeps 8 for each of an eighth as many names.
const SESSIONS: usize = 256;

/// Why TLS towards the servers of a pool can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamTlsError {
    /// The authorities of `ca` can't be used.
    #[error(transparent)]
    Authorities(CertificateError),
    /// There is nothing to verify against.
    #[error("this system has no certificate authorities{0}: name a file of them with `ca`")]
    NoSystemAuthorities(String),
    /// The certificate for the servers, or its key, can't be used.
    #[error(transparent)]
    Certificate(CertificateError),
    /// A server's certificate can't be verified for that name.
    #[error("no certificate can be for `{0}`: say with `server-name` whom the servers' certificate is for")]
    Name(String),
    /// rustls refuses.
    #[error("TLS can't be set up: {0}")]
    Rustls(#[from] rustls::Error),
}

/// Shakes hands with the servers of a pool.
#[derive(Clone, Debug)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    /// `None`: that of the server's address.
    server_name: Option<ServerName<'static>>,
}

impl TlsConnector {
    /// For servers that are spoken to as `tls` says. `alpn` has the protocols that are offered, most wanted first; empty, none
    /// is. Files are read now.
    ///
    /// # Errors
    /// [`UpstreamTlsError`] where a file or a name can't be used.
    pub fn new(tls: &UpstreamTls, system: &mut SystemAuthorities, alpn: &[&[u8]]) -> Result<Self, UpstreamTlsError> {
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(provider())).with_protocol_versions(&[&TLS13, &TLS12])?;
        let certificate = tls.certificate.as_ref().map(load_certificate).transpose();
        let certificate = certificate.map_err(UpstreamTlsError::Certificate)?;
        let mut config = match &tls.verification {
            Verification::System => {
                finish(builder, system.get().map_err(UpstreamTlsError::NoSystemAuthorities)?, certificate)
            }
            Verification::Authorities(file) => {
                let authorities = read_authorities(file).map_err(UpstreamTlsError::Authorities)?;
                finish(builder, authorities.roots, certificate)
            }
            Verification::Insecure => {
                let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified));
                match certificate {
                    Some(key) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
                    None => builder.with_no_client_auth(),
                }
            }
        };
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        let name = tls.server_name.as_ref();
        let server_name = name.map(|name| name_of(name).ok_or_else(|| UpstreamTlsError::Name(name.clone())));
        Ok(Self { config: Arc::new(config), server_name: server_name.transpose()? })
    }

    /// For the servers of `pool`, with its protocol alone on offer; `None` where they do not speak TLS.
    ///
    /// # Errors
    /// [`UpstreamTlsError`] where a file or a name can't be used.
    pub fn of_pool(pool: &Pool, system: &mut SystemAuthorities) -> Result<Option<Self>, UpstreamTlsError> {
        let Some(tls) = &pool.upstream.tls else { return Ok(None) };
        let connector = Self::new(tls, system, alpn_of(pool.upstream.protocol))?;
        for server in &pool.servers {
            connector.name_for(&server.address).ok_or_else(|| UpstreamTlsError::Name(server.address.to_string()))?;
        }
        Ok(Some(connector))
    }

    /// The same with a memory of sessions of its own: two threads that share one would wait for each other.
    #[must_use]
    pub fn with_own_sessions(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Self { config: Arc::new(config), server_name: self.server_name.clone() }
    }

    /// The same without any memory of sessions: each handshake is a whole one, in which the server shows its certificate.
    #[must_use]
    pub fn without_sessions(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config), server_name: self.server_name.clone() }
    }

    /// Shakes hands with the server of that address on a connection to it. There is no bound in time.
    ///
    /// # Errors
    /// [`DialError::Handshake`].
    pub async fn shake_hands(&self, address: &Address, dialled: Dialled) -> Result<ServerTlsStream, DialError> {
        let nameless = || DialError::Handshake(std::io::ErrorKind::InvalidInput.into());
        let name = self.name_for(address).ok_or_else(nameless)?;
        let handshake = tokio_rustls::TlsConnector::from(Arc::clone(&self.config)).connect(name, dialled);
        handshake.await.map(ServerTlsStream::new).map_err(DialError::Handshake)
    }

    /// The name that a server's certificate has to be for, and that it is asked for (SNI; never for an address).
    fn name_for(&self, address: &Address) -> Option<ServerName<'static>> {
        if let Some(name) = &self.server_name {
            return Some(name.clone());
        }
        match address {
            Address::Socket(address) => Some(ServerName::IpAddress(address.ip().to_canonical().into())),
            Address::Name(host, _) => name_of(host),
            Address::Unix(_) => None,
        }
    }
}

/// What a client demands that verifies whom it speaks with, and shows no certificate; `alpn` has the protocols that are offered.
///
/// # Errors
/// [`UpstreamTlsError`] where the authorities can't be used.
pub fn client_config(
    verification: &Verification,
    system: &mut SystemAuthorities,
    alpn: &[&[u8]],
) -> Result<ClientConfig, UpstreamTlsError> {
    let tls = UpstreamTls { verification: verification.clone(), ..UpstreamTls::default() };
    let connector = TlsConnector::new(&tls, system, alpn)?;
    Ok(Arc::unwrap_or_clone(connector.config))
}

/// The connectors of the pools whose servers speak TLS, by the pools' names.
pub type Connectors = HashMap<Arc<str>, TlsConnector>;

/// The connectors of `pools`.
///
/// # Errors
/// The first pool whose TLS can't be set up, and why.
pub fn connectors<'a>(
    pools: impl IntoIterator<Item = &'a Arc<Pool>>,
) -> Result<Connectors, (Arc<str>, UpstreamTlsError)> {
    let mut system = SystemAuthorities::default();
    let mut connectors = Connectors::new();
    for pool in pools {
        let connector = TlsConnector::of_pool(pool, &mut system).map_err(|error| (Arc::clone(&pool.name), error))?;
        connectors.extend(connector.map(|connector| (Arc::clone(&pool.name), connector)));
    }
    Ok(connectors)
}

/// The same connectors with memories of sessions of their own, for another thread.
pub fn with_own_sessions(connectors: &Connectors) -> Connectors {
    connectors.iter().map(|(pool, connector)| (Arc::clone(pool), connector.with_own_sessions())).collect()
}

/// Connects to a server, sends the PROXY header where there is one, and shakes hands, all within `timeout`.
/// [`ServerTlsStream::protocol`] says which protocol the server has chosen of those offered.
///
/// # Errors
/// [`DialError`] where no connection came about, [`DialError::Handshake`] where one did and the handshake failed. Nothing of
/// a request was written in either case.
pub async fn dial_tls(
    endpoint: &Endpoint,
    connector: &TlsConnector,
    header: Option<(Version, Source)>,
    timeout: Duration,
) -> Result<ServerTlsStream, DialError> {
    let begun = time::now();
    let dialled = dial_announced(endpoint, header, timeout).await?;
    let left = timeout.saturating_sub(time::now().since(begun));
    let handshake = connector.shake_hands(&endpoint.server.address, dialled);
    tokio::time::timeout(left, handshake).await.unwrap_or(Err(DialError::TimedOut))
}

/// What is offered to servers that are spoken to by `protocol`.
const fn alpn_of(protocol: UpstreamProtocol) -> &'static [&'static [u8]] {
    match protocol {
        UpstreamProtocol::Http1 => &[HTTP1],
        UpstreamProtocol::Http2 => &[HTTP2],
    }
}

fn finish(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    roots: Arc<RootCertStore>,
    certificate: Option<Arc<CertifiedKey>>,
) -> ClientConfig {
    let builder = builder.with_root_certificates(roots);
    match certificate {
        Some(key) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
        None => builder.with_no_client_auth(),
    }
}

fn name_of(text: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(text.strip_suffix('.').unwrap_or(text).to_owned()).ok()
}

/// Takes every certificate: what `insecure` asks for.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    // A signature by a key that anybody could have says nothing.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;

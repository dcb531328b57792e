//! The handshake with a client: a TCP connection in, a TLS connection out.
//!
//! Which AES suite is used is ours to say: AES-128-GCM with SHA-256 costs a handshake a sixth less than AES-256-GCM with
//! SHA-384, which clients name first that have no opinion. A client that names ChaCha20 first has one, since it has no AES
//! in hardware: it is heard. A client that offers AES-256 alone gets it.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, ServerConfig};
use tokio::net::TcpStream;

use crate::transport::tls::hello::prefers_chacha;
use crate::transport::tls::session::Session;
use crate::transport::tls::stream::TlsStream;
use crate::transport::tls::{CertificateTable, Ticketer, configure, provider};

/// What is read of a client before a session is made for it, in bytes: most hellos fit.
const FIRST_READ: usize = 4 * 1024;

/// Accepts the TLS connections of a listener.
#[derive(Clone, Debug)]
pub struct TlsAcceptor {
    /// For clients that have AES in hardware, or do not say.
    ours: Arc<ServerConfig>,
    /// For clients that would rather have ChaCha20.
    clients: Arc<ServerConfig>,
}

impl TlsAcceptor {
    /// Accepts with these certificates and tickets, and offers the protocols in `alpn`, most wanted first. A client that
    /// offers protocols of which none stands there is refused (RFC 7301 section 3.2).
    ///
    /// # Errors
    /// [`rustls::Error`] where the provider has no suite for TLS 1.2 or 1.3, which [`provider`] rules out.
    pub fn new(
        certificates: &Arc<CertificateTable>,
        tickets: &Arc<Ticketer>,
        alpn: &[&[u8]],
    ) -> Result<Self, rustls::Error> {
        let mut suites = provider().cipher_suites.clone();
        suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
        let ours = CryptoProvider { cipher_suites: suites, ..CryptoProvider::clone(provider()) };
        let mut ours = configure(Arc::new(ours), certificates, tickets, alpn)?;
        ours.ignore_client_order = true;
        let clients = configure(Arc::clone(provider()), certificates, tickets, alpn)?;
        Ok(Self { ours: Arc::new(ours), clients: Arc::new(clients) })
    }

    /// Shakes hands. It takes as long as the client does: the caller sets a bound.
    ///
    /// # Errors
    /// Where the client goes away, breaks the protocol or has nothing in common with us; it has been told why, if it took
    /// that at once.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<TlsStream> {
        let mut first = Vec::new();
        while first.is_empty() {
            tcp.readable().await?;
            first = read_first(&tcp)?;
        }
        let config = if prefers_chacha(&first) == Some(true) { &self.clients } else { &self.ours };
        let session = Session::new(Arc::clone(config)).map_err(io::Error::other)?;
        let mut stream = TlsStream::new(tcp, session);
        stream.receive_first(&mut first)?;
        drop(first);
        poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok(stream)
    }
}

/// What a client has sent first; empty where nothing has come after all.
fn read_first(tcp: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = [0; FIRST_READ];
    match tcp.try_read(&mut bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => Ok(bytes.get(..count).unwrap_or_default().to_vec()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

const fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

//! TLS towards clients: certificates, which of them a client gets, session tickets, and the rustls configuration of a
//! listener; and towards servers: whom they have to be, and the handshake with them.
//!
//! A listener's [`ServerConfig`] is built with its snapshot and never changed: a reload builds another, and connections
//! keep the one they began with. It refuses to keep sessions in memory (tickets carry them), to accept 0-RTT (RFC 8446
//! section 8: an idempotent-looking request can be replayed), and to fall below TLS 1.2.
mod acceptor;
mod authorities;
mod certificate;
mod client_policy;
mod connector;
mod hello;
mod policies;
mod said;
mod server_stream;
mod session;
mod session_tickets;
mod stream;
mod table;
mod ticket;

use std::sync::{Arc, LazyLock};

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};

pub use acceptor::{AcceptorError, TlsAcceptor};
pub use authorities::{Authorities, SystemAuthorities, read_authorities};
pub use certificate::{
    CertificateError, CertificateName, certificate_names, expiry, load_certificate, validity, vouch_for_nobody,
};
pub use client_policy::{ClientPolicy, load_demanding};
pub use connector::{
    Connectors, TlsConnector, UpstreamTlsError, client_config, connectors, dial_tls, with_own_sessions,
};
pub use policies::{Demanding, PolicyError, check_policies};
pub use said::said;
pub use server_stream::ServerTlsStream;
pub use stream::TlsStream;
pub use table::{CertificateTable, NoCertificates};
pub use ticket::{ClientCertificates, EPOCH, TicketSecret, Ticketer};

/// The protocol name of HTTP/1.1 (RFC 7301 section 6).
pub const HTTP1: &[u8] = b"http/1.1";
/// The protocol name of HTTP/2 over TLS (RFC 9113 3.2).
pub const HTTP2: &[u8] = b"h2";

/// TLS 1.3 tickets per full or resumed handshake. One is enough for a client that opens its connections one after the
/// other, and each costs a derivation, a sealing and a few hundred bytes of every new connection.
const TICKETS_PER_HANDSHAKE: usize = 1;

/// The cryptography of all TLS connections: aws-lc-rs, its suites, and the groups named here.
///
/// The order of the groups is what our client side prefers. On the server side rustls takes the first group of the
/// client's list that stands here, so a client that wants X25519MLKEM768 gets it, and one that can't loses nothing.
pub fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            kx_groups: vec![
                aws_lc_rs::kx_group::X25519MLKEM768,
                aws_lc_rs::kx_group::X25519,
                aws_lc_rs::kx_group::SECP256R1,
                aws_lc_rs::kx_group::SECP384R1,
            ],
            ..aws_lc_rs::default_provider()
        })
    });
    &PROVIDER
}

/// The configuration of a TLS listener: its certificates, its tickets, and the protocols it speaks, most wanted first.
/// A client that offers protocols of which none stands in `alpn` is refused (RFC 7301 section 3.2).
///
/// # Errors
/// [`rustls::Error`] where the provider has no suite for TLS 1.2 or 1.3, which [`provider`] rules out.
pub fn server_config(
    certificates: Arc<CertificateTable>,
    tickets: Arc<Ticketer>,
    alpn: &[&[u8]],
) -> Result<Arc<ServerConfig>, rustls::Error> {
    configure(Arc::clone(provider()), &certificates, &tickets, &ClientPolicy::NONE, alpn).map(Arc::new)
}

fn configure(
    provider: Arc<CryptoProvider>,
    certificates: &Arc<CertificateTable>,
    tickets: &Arc<Ticketer>,
    clients: &ClientPolicy,
    alpn: &[&[u8]],
) -> Result<ServerConfig, rustls::Error> {
    let verifier = clients.verifier(&provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::<CertificateTable>::clone(certificates));
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Arc::<Ticketer>::clone(tickets);
    config.send_tls13_tickets = TICKETS_PER_HANDSHAKE;
    config.max_early_data_size = 0;
    // Clients speak first in HTTP, so nothing could be sent before their Finished anyway.
    config.send_half_rtt_data = false;
    Ok(config)
}

#[cfg(test)]
mod tests;

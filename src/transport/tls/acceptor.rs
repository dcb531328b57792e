//! The handshake with a client: a TCP connection in, a TLS connection out.
//!
//! Which AES suite is used is ours to say: AES-128-GCM with SHA-256 costs a handshake a sixth less than AES-256-GCM with
//! SHA-384, which clients name first that have no opinion. A client that names ChaCha20 first has one, since it has no AES
//! in hardware: it is heard. A client that offers AES-256 alone gets it.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::server::Acceptor;
use rustls::{CipherSuite, ServerConfig};
use tokio::net::TcpStream;

use crate::pure::proxy_protocol;
use crate::transport::tls::client_policy::ClientPolicy;
use crate::transport::tls::hello::prefers_chacha;
use crate::transport::tls::policies::{Demanding, Policies, PolicyError};
use crate::transport::tls::session::Session;
use crate::transport::tls::session_tickets::SessionTickets;
use crate::transport::tls::stream::TlsStream;
use crate::transport::tls::{CertificateTable, ClientCertificates, TicketSecret, Ticketer, configure, provider};

/// What is read of a client before a session is made for it, in bytes: most hellos fit.
const FIRST_READ: usize = 4 * 1024;

/// The most that is read of a client before its hello is whole: more than rustls takes for one.
const HELLO_MAX: usize = 64 * 1024;

/// What is said of a connection that begins with a PROXY header before its handshake.
const ANNOUNCED: &str = "it begins with a PROXY header, for which the listener has no `proxy-protocol`";

/// How often, and for how long, a client that was refused is read on.
const WASTE_MAX: usize = 16;
const WASTE_TIME: Duration = Duration::from_millis(500);

/// Accepts the TLS connections of a listener.
#[derive(Clone, Debug)]
pub struct TlsAcceptor {
    /// By the position of the demand in `policies`, or one alone.
    configs: Arc<[Configs]>,
    /// Where certificates differ in what they demand of clients.
    policies: Option<Arc<Policies>>,
}

/// How a handshake goes that has to meet one demand.
#[derive(Debug)]
struct Configs {
    demand: ClientCertificates,
    /// For clients that have AES in hardware, or do not say.
    ours: Arc<ServerConfig>,
    /// For clients that would rather have ChaCha20.
    clients: Arc<ServerConfig>,
    /// The tickets that carry an identity, where sessions have one.
    identities: Option<Arc<Ticketer>>,
}

impl Configs {
    fn new(
        certificates: &Arc<CertificateTable>,
        tickets: &Arc<Ticketer>,
        policy: &ClientPolicy,
        alpn: &[&[u8]],
    ) -> Result<Self, rustls::Error> {
        let mut suites = provider().cipher_suites.clone();
        suites.sort_by_key(|suite| !is_aes_128(suite.suite()));
        let ours = CryptoProvider { cipher_suites: suites, ..CryptoProvider::clone(provider()) };
        let mut ours = configure(Arc::new(ours), certificates, tickets, policy, alpn)?;
        ours.ignore_client_order = true;
        let clients = configure(Arc::clone(provider()), certificates, tickets, policy, alpn)?;
        Ok(Self { demand: policy.kind, ours: Arc::new(ours), clients: Arc::new(clients), identities: None })
    }

    /// How one handshake goes, with tickets of its own where sessions have an identity.
    fn of_handshake(&self, prefers_chacha: bool) -> (Arc<ServerConfig>, Option<Arc<SessionTickets>>) {
        let config = if prefers_chacha { &self.clients } else { &self.ours };
        let Some(identities) = &self.identities else { return (Arc::clone(config), None) };
        let tickets = Arc::new(SessionTickets::new(Arc::clone(identities)));
        let mut config = ServerConfig::clone(config);
        config.ticketer = Arc::<SessionTickets>::clone(&tickets);
        (Arc::new(config), Some(tickets))
    }
}

/// Why a listener can't speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum AcceptorError {
    /// Its certificates do not go together.
    #[error(transparent)]
    Policies(#[from] PolicyError),
    /// rustls refuses.
    #[error("TLS can't be set up: {0}")]
    Rustls(#[from] rustls::Error),
}

impl TlsAcceptor {
    /// Accepts with these certificates and tickets, asks clients for no certificate, and offers the protocols in `alpn`, most
    /// wanted first. A client that offers protocols of which none stands there is refused (RFC 7301 section 3.2).
    ///
    /// # Errors
    /// [`rustls::Error`] where the provider has no suite for TLS 1.2 or 1.3, which [`provider`] rules out.
    pub fn new(
        certificates: &Arc<CertificateTable>,
        tickets: &Arc<Ticketer>,
        alpn: &[&[u8]],
    ) -> Result<Self, rustls::Error> {
        let configs = Configs::new(certificates, tickets, &ClientPolicy::NONE, alpn)?;
        Ok(Self { configs: Arc::new([configs]), policies: None })
    }

    /// Accepts for a listener at the address `listening` with these certificates, the first of which is the default, each with
    /// what it demands of clients. The tickets of each demand are of their own; with `has_identities` they carry an identity from
    /// connection to connection.
    ///
    /// # Errors
    /// [`AcceptorError`] where there is no certificate, or two for one name demand different things.
    pub fn with_policies(
        certificates: &[Demanding],
        listening: IpAddr,
        secret: &TicketSecret,
        alpn: &[&[u8]],
        has_identities: bool,
    ) -> Result<Self, AcceptorError> {
        let policies = Policies::new(certificates, listening)?;
        let configs = policies
            .entries
            .iter()
            .map(|entry| {
                let tickets = secret.ticketer(entry.policy.kind);
                let mut configs = Configs::new(&entry.table, &tickets, &entry.policy, alpn)?;
                configs.identities = has_identities.then(|| secret.session_ticketer(entry.policy.kind));
                Ok(configs)
            })
            .collect::<Result<Arc<[_]>, rustls::Error>>()?;
        let policies = (configs.len() > 1).then(|| Arc::new(policies));
        Ok(Self { configs, policies })
    }

    /// Whether a connection that has met `demand` will do for requests to `host`: a client that asked for that name would have
    /// had to meet the same.
    pub fn will_do(&self, demand: ClientCertificates, host: &str) -> bool {
        let Some(policies) = &self.policies else { return true };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let position = policies.position(Some(host).filter(|host| !host.is_empty()));
        self.configs.get(position).is_some_and(|configs| configs.demand == demand)
    }

    /// Shakes hands. It takes as long as the client does: the caller sets a bound.
    ///
    /// # Errors
    /// Where the client goes away, breaks the protocol, shows no certificate that it should or has nothing in common with us;
    /// it has been told why, if it took that at once.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<TlsStream> {
        let mut first = Vec::new();
        while first.is_empty() {
            tcp.readable().await?;
            first = read_first(&tcp)?;
        }
        let position = match &self.policies {
            None => 0,
            Some(policies) => read_name(&tcp, &mut first).await?.map_or(0, |name| policies.position(name.as_deref())),
        };
        let configs = self.configs.get(position).ok_or(io::ErrorKind::InvalidData)?;
        let (config, tickets) = configs.of_handshake(prefers_chacha(&first) == Some(true));
        let session = Session::new(config).map_err(io::Error::other)?;
        let mut stream = TlsStream::new(tcp, session, configs.demand).with_tickets(tickets);
        let is_announced = proxy_protocol::begins(&first);
        let mut shaken = stream.receive_first(&mut first);
        drop(first);
        if shaken.is_ok() {
            shaken = poll_fn(|context| stream.poll_handshake(context)).await.and_then(|()| stream.identify());
        }
        match shaken {
            Ok(()) => Ok(stream),
            Err(error) => {
                hear_out(stream.tcp()).await;
                Err(if is_announced { io::Error::new(io::ErrorKind::InvalidData, ANNOUNCED) } else { error })
            }
        }
    }
}

/// Ends our side and reads on for a moment: to close on what a client still sends would reset, and the alert that tells it
/// what was wrong could be lost.
async fn hear_out(tcp: &TcpStream) {
    let _ = socket2::SockRef::from(tcp).shutdown(std::net::Shutdown::Write);
    let reading = async {
        for _ in 0..WASTE_MAX {
            if tcp.readable().await.is_err() {
                return;
            }
            match tcp.try_read(&mut [0; FIRST_READ]) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
            }
        }
    };
    let _ = tokio::time::timeout(WASTE_TIME, reading).await;
}

/// The name that a client asks for, once its hello is whole; what is read of it is put behind `first`. `None`: it is no hello,
/// which the handshake will tell the client. rustls reads it, as it will in the handshake, so that both see the same name.
async fn read_name(tcp: &TcpStream, first: &mut Vec<u8>) -> io::Result<Option<Option<String>>> {
    let mut acceptor = Acceptor::default();
    let mut done = 0;
    loop {
        let mut rest = first.get(done..).unwrap_or_default();
        done = first.len();
        while !rest.is_empty() {
            acceptor.read_tls(&mut rest)?;
            match acceptor.accept() {
                Ok(Some(accepted)) => return Ok(Some(accepted.client_hello().server_name().map(str::to_owned))),
                Ok(None) => {}
                Err(_) => return Ok(None),
            }
        }
        if first.len() > HELLO_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        tcp.readable().await?;
        first.extend(read_first(tcp)?);
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

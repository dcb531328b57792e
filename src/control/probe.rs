//! Active checks: what a pool's `check` asks of one server, over the same transport that requests use: the pool's protocol,
//! TLS and PROXY header, and each address of a name.
//!
//! A check is one attempt on a connection of its own, with one deadline over all of it; when and how often is the control
//! core's to say. What it holds of a server's bytes is bounded by [`ANSWER_MAX`]. It refuses to keep connections, and to blame
//! a server for what we lack: that is [`NotRun`], which says nothing of the server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use crate::base::time;
use crate::pure::check::{ANSWER_MAX, CheckConfig, CheckKind, WrongAnswer};
use crate::pure::control::CheckFailure;
use crate::pure::pool::{Address, Pool, Server, Upstream, UpstreamProtocol};
use crate::pure::proxy_protocol::{Endpoints, Source, Version};
use crate::shared::endpoint::Endpoint;
use crate::transport::dial::{DialError, Dialled, dial};
use crate::transport::h2::Link;
use crate::transport::proxy_header;
use crate::transport::tls::{HTTP2, ServerTlsStream, TlsConnector};

mod http1;
mod http2;
mod ping;
#[cfg(test)]
mod tests;

pub(super) use ping::ping;

/// Why a check did not pass.
#[derive(Debug)]
pub enum ProbeError {
    /// By the server's fault.
    Failed(CheckFailure),
    /// It was not made.
    NotRun(NotRun),
}

/// Why a check was not made.
#[derive(Debug, thiserror::Error)]
pub enum NotRun {
    /// We have no descriptor, port or memory left.
    #[error("this machine is out of descriptors, ports or memory: {0}")]
    Exhausted(io::Error),
    /// The system lets us send no echo requests.
    #[error(
        "this process may not ping: put its group into the sysctl net.ipv4.ping_group_range, or give it CAP_NET_RAW ({0})"
    )]
    PingForbidden(io::Error),
    /// The system lets nothing of ours out to there: by a firewall of its own, or for want of an address or a route.
    #[error("this machine lets nothing out to there: {0}")]
    NoWay(io::Error),
    /// Nobody could say yet what the server's name means.
    #[error("the server's name has not been resolved yet")]
    Unresolved,
    /// The pool has come by a reload that brought no TLS with it.
    #[error("there is no TLS for this pool yet")]
    NoConnector,
}

impl ProbeError {
    /// The same as the control core knows it.
    pub const fn as_failure(&self) -> CheckFailure {
        match self {
            Self::Failed(failure) => *failure,
            Self::NotRun(_) => CheckFailure::NotRun,
        }
    }
}

impl From<WrongAnswer> for ProbeError {
    fn from(wrong: WrongAnswer) -> Self {
        Self::Failed(CheckFailure::Answer(wrong))
    }
}

impl From<DialError> for ProbeError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Refused => Self::Failed(CheckFailure::Refused),
            DialError::TimedOut => Self::Failed(CheckFailure::TimedOut),
            DialError::Unreachable(cause) if cause.kind() == io::ErrorKind::NotFound => {
                Self::Failed(CheckFailure::Absent)
            }
            DialError::Unreachable(_) => Self::Failed(CheckFailure::Unreachable),
            DialError::Unresolved => Self::NotRun(NotRun::Unresolved),
            DialError::Handshake(cause) => handshake_failure(&cause).into(),
            DialError::NotHttp2 => WrongAnswer::NotHttp2.into(),
            DialError::ClosedEarly => WrongAnswer::Cut.into(),
            DialError::Exhausted(cause) => Self::NotRun(NotRun::Exhausted(cause)),
            // Of shared connections, of which a check has none.
            error @ (DialError::Full | DialError::Moved) => Self::NotRun(NotRun::Exhausted(io::Error::other(error))),
        }
    }
}

/// Why the PROXY header could not be written: the server closed at once, or there is no room on our side.
fn not_announced(cause: io::Error) -> ProbeError {
    match cause.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
            ProbeError::Failed(CheckFailure::Unreachable)
        }
        _ => ProbeError::NotRun(NotRun::Exhausted(cause)),
    }
}

/// What a handshake failed by.
fn handshake_failure(cause: &io::Error) -> WrongAnswer {
    let cause = cause.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => WrongAnswer::Certificate,
        Some(_) | None => WrongAnswer::Handshake,
    }
}

/// Runs the check of `pool` on one of its servers, within `timeout`; `connector` shakes hands with the servers, where they
/// speak TLS. Returns how long it took. It must be called on a local runtime.
///
/// # Errors
/// [`ProbeError`].
pub async fn check(
    endpoint: &Endpoint,
    pool: &Pool,
    connector: Option<&TlsConnector>,
    timeout: Duration,
) -> Result<Duration, ProbeError> {
    let unasked = CheckConfig::default();
    let config = pool.check.as_deref().unwrap_or(&unasked);
    let elsewhere = config.address_of(&endpoint.server).map(|address| endpoint_at(endpoint, address));
    let endpoint = elsewhere.as_ref().unwrap_or(endpoint);
    let is_unasked = pool.check.is_none();
    let probe = Probe { endpoint, config, is_unasked, upstream: &pool.upstream, connector, timeout };
    let begun = time::now();
    match tokio::time::timeout(timeout, probe.run()).await {
        Ok(ended) => ended.map(|()| time::now().since(begun)),
        Err(_elapsed) => Err(ProbeError::Failed(CheckFailure::TimedOut)),
    }
}

/// The same server at another address. At another port of its name, the addresses are tried from the one on that is good for
/// requests.
fn endpoint_at(endpoint: &Endpoint, address: Address) -> Endpoint {
    let named = match address {
        Address::Name(_, port) => {
            endpoint.named_from_last_good().map(|(_, address)| SocketAddr::new(address.ip(), port)).collect()
        }
        Address::Socket(_) | Address::Unix(_) => Arc::default(),
    };
    let server = Arc::new(Server { address, ..Server::clone(&endpoint.server) });
    Endpoint::new(server, Arc::clone(&endpoint.record), endpoint.incarnation, named)
}

/// One check of one server.
struct Probe<'a> {
    endpoint: &'a Endpoint,
    config: &'a CheckConfig,
    /// Whether nobody has said what it is to be asked.
    is_unasked: bool,
    upstream: &'a Upstream,
    connector: Option<&'a TlsConnector>,
    timeout: Duration,
}

impl Probe<'_> {
    async fn run(&self) -> Result<(), ProbeError> {
        match &self.config.kind {
            // A server that is tried unasked has failed requests, it may be in its TLS or its HTTP/2, and takes connections all
            // the same.
            CheckKind::Tcp if self.is_unasked && (self.speaks_tls() || self.is_http2()) => self.greet().await,
            CheckKind::Tcp => self.connect().await,
            CheckKind::Icmp => ping::ping(self.endpoint, self.timeout).await,
            CheckKind::Tls => self.greet().await,
            CheckKind::Http(http) => {
                let authority = self.config.authority(self.upstream, &self.endpoint.server.address);
                let connection = self.dial(self.connector()?).await?;
                if self.is_http2() {
                    let link = connection.into_http2().await?;
                    return http2::ask(&link, http, self.http2_target(&authority)).await;
                }
                match connection {
                    Connection::Plain(mut stream) => http1::ask(&mut stream, http, &authority).await,
                    Connection::Tls(mut stream) => {
                        http1::ask(&mut *stream, http, &authority).await?;
                        close(Connection::Tls(stream)).await;
                        Ok(())
                    }
                }
            }
            CheckKind::Grpc(grpc) => {
                let authority = self.config.authority(self.upstream, &self.endpoint.server.address);
                let link = self.dial(self.connector()?).await?.into_http2().await?;
                http2::ask_health(&link, &grpc.service, self.http2_target(&authority), self.timeout).await
            }
        }
    }

    /// Connects and closes the connection again, after the PROXY header that the server waits for, where it does.
    async fn connect(&self) -> Result<(), ProbeError> {
        let dialled = dial(self.endpoint, self.timeout).await?;
        // Whether the server takes connections is known by now: the header only spares it an error in its log.
        let _ = self.announce(&dialled);
        Ok(())
    }

    /// Connects as far as requests would before the first of them, and ends the connection again.
    async fn greet(&self) -> Result<(), ProbeError> {
        // A session that is resumed shows no certificate.
        let connector = self.connector()?.map(TlsConnector::without_sessions);
        let connection = self.dial(connector.as_ref()).await?;
        if self.is_http2() {
            connection.into_http2().await?;
        } else {
            close(connection).await;
        }
        Ok(())
    }

    /// A connection as the pool's requests have it, or a plain one.
    async fn dial(&self, connector: Option<&TlsConnector>) -> Result<Connection, ProbeError> {
        let dialled = dial(self.endpoint, self.timeout).await?;
        self.announce(&dialled).map_err(not_announced)?;
        Ok(match connector {
            None => Connection::Plain(dialled),
            Some(connector) => {
                Connection::Tls(Box::new(connector.shake_hands(&self.endpoint.server.address, dialled).await?))
            }
        })
    }

    fn announce(&self, dialled: &Dialled) -> io::Result<()> {
        let version = self.upstream.proxy_protocol.filter(|_| !self.config.is_plain);
        version.map_or(Ok(()), |version| proxy_header::send(dialled, version, checker(dialled, version)))
    }

    const fn speaks_tls(&self) -> bool {
        self.upstream.tls.is_some() && !self.config.is_plain
    }

    fn connector(&self) -> Result<Option<&TlsConnector>, ProbeError> {
        if !self.speaks_tls() {
            return Ok(None);
        }
        self.connector.ok_or(ProbeError::NotRun(NotRun::NoConnector)).map(Some)
    }

    fn http2_target<'a>(&self, authority: &'a str) -> http2::Target<'a> {
        http2::Target { scheme: self.scheme(), authority }
    }

    fn is_http2(&self) -> bool {
        self.upstream.protocol == UpstreamProtocol::Http2 && !self.config.is_plain
    }

    const fn scheme(&self) -> &'static str {
        if self.speaks_tls() { "https" } else { "http" }
    }
}

/// A connection that was made for a check.
enum Connection {
    Plain(Dialled),
    Tls(Box<ServerTlsStream>),
}

impl Connection {
    /// HTTP/2 on it: over TLS the server has to have agreed to that (RFC 9113 3.2).
    async fn into_http2(self) -> Result<Link, ProbeError> {
        Ok(match self {
            Self::Plain(stream) => Link::open(stream, || ()).await?,
            Self::Tls(stream) if stream.protocol() == Some(HTTP2) => Link::open(*stream, || ()).await?,
            Self::Tls(_) => return Err(WrongAnswer::NotHttp2.into()),
        })
    }
}

/// Says over TLS that the connection ends here, so that no server logs that it broke.
async fn close(connection: Connection) {
    if let Connection::Tls(mut stream) = connection {
        // The verdict is known: whoever does not take it any more has lost nothing.
        let _ = stream.shutdown().await;
    }
}

/// For whom a check is made: for ourselves. Version 1 can't say so, and names us as the client (proxy-protocol.txt 2.1).
fn checker(connection: &Dialled, version: Version) -> Source {
    match (version, connection.addresses()) {
        (Version::V2, _) => Source::Proxy,
        (Version::V1, Some((client, called))) => Source::Client(Endpoints { client, called }),
        (Version::V1, None) => Source::Unnamed,
    }
}

//! A client's connection in a soak, over whatever a client may speak. Dropping it breaks it off.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::request::Builder;
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::content::Content;
use crate::client;
use crate::failure::{Failure, Outcome, While};
use crate::load::Protocol;

/// Small, so that a slow reader is felt by the proxy and not only by the system.
const RECEIVE_BUFFER: u32 = 64 * 1024;
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);

/// How clients come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// HTTP/1.1.
    Http1,
    /// HTTP/1.1 over TLS.
    Http1Tls,
    /// HTTP/2 over TLS.
    Http2Tls,
    /// HTTP/2 with prior knowledge.
    H2c,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Http1, Self::Http1Tls, Self::Http2Tls, Self::H2c];

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "h1",
            Self::Http1Tls => "h1 TLS",
            Self::Http2Tls => "h2 TLS",
            Self::H2c => "h2c",
        }
    }

    /// The version.
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Http1 | Self::Http1Tls => Protocol::H1,
            Self::Http2Tls | Self::H2c => Protocol::H2,
        }
    }
}

/// The proxy, as clients see it.
pub struct Door {
    /// The ports: plain, TLS, h2c.
    pub ports: [u16; 3],
    h1: Arc<ClientConfig>,
    h2: Arc<ClientConfig>,
}

impl Door {
    /// A proxy that listens there.
    pub fn new(ports: [u16; 3]) -> Outcome<Self> {
        Ok(Self { ports, h1: client::tls(Protocol::H1)?, h2: client::tls(Protocol::H2)? })
    }

    /// The port for `way`.
    pub fn port(&self, way: Way) -> u16 {
        let [plain, tls, h2c] = self.ports;
        match way {
            Way::Http1 => plain,
            Way::Http1Tls | Way::Http2Tls => tls,
            Way::H2c => h2c,
        }
    }

    /// Only a TCP connection.
    pub async fn connect(&self, way: Way) -> Outcome<TcpStream> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port(way)));
        let socket = TcpSocket::new_v4().doing(|| "making a socket".to_owned())?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER).doing(|| "setting up a socket".to_owned())?;
        let stream = socket.connect(address).await.doing(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true).doing(|| "setting up a socket".to_owned())?;
        Ok(stream)
    }
}

/// What requests are sent with.
pub enum Sender {
    /// One at a time.
    Http1(http1::SendRequest<Content>),
    /// Many at a time.
    Http2(http2::SendRequest<Content>),
}

impl Sender {
    /// Another one for the same connection, where it can have several requests at a time.
    pub fn another(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    /// Sends a request, and waits for the head of its answer.
    pub async fn send(&mut self, request: Request<Content>) -> Outcome<Response<Incoming>> {
        let sent = match self {
            Self::Http1(sender) => {
                sender.ready().await.doing(|| "waiting for the connection".to_owned())?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                sender.ready().await.doing(|| "waiting for the connection".to_owned())?;
                sender.send_request(request).await
            }
        };
        sent.map_err(|failure| Failure::new(format!("no answer: {failure:?}")))
    }

    /// Whether it can't be used any more.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}

/// A connection.
pub struct Link {
    /// Its first sender.
    pub sender: Sender,
    driver: Driver,
}

/// The task that moves the connection's bytes; it goes with its owner.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// Connects `way`.
    pub async fn open(door: &Door, way: Way) -> Outcome<Self> {
        let opened = tokio::time::timeout(PATIENCE, Self::connect(door, way)).await;
        opened.unwrap_or_else(|_| Err(Failure::new("no connection in time"))).doing(|| way.name().to_owned())
    }

    async fn connect(door: &Door, way: Way) -> Outcome<Self> {
        let stream = door.connect(way).await?;
        let config = match way {
            Way::Http1 | Way::H2c => return Self::start(stream, way.protocol()).await,
            Way::Http1Tls => door.h1.clone(),
            Way::Http2Tls => door.h2.clone(),
        };
        let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let stream = TlsConnector::from(config).connect(name, stream).await.doing(|| "shaking hands".to_owned())?;
        Self::start(stream, way.protocol()).await
    }

    async fn start<S>(stream: S, protocol: Protocol) -> Outcome<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        // What breaks a connection breaks the requests on it: they tell.
        match protocol {
            Protocol::H1 => {
                let (sender, connection) = http1::handshake(stream).await.doing(|| "starting HTTP/1.1".to_owned())?;
                let driver = tokio::spawn(async move { drop(connection.with_upgrades().await) });
                Ok(Self { sender: Sender::Http1(sender), driver: Driver(driver) })
            }
            Protocol::H2 => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.initial_stream_window_size(STREAM_WINDOW);
                builder.initial_connection_window_size(CONNECTION_WINDOW);
                let (sender, connection) = builder.handshake(stream).await.doing(|| "starting HTTP/2".to_owned())?;
                let driver = tokio::spawn(async move { drop(connection.await) });
                Ok(Self { sender: Sender::Http2(sender), driver: Driver(driver) })
            }
        }
    }

    /// Waits until the other side has ended the connection.
    pub async fn ended(mut self) -> Outcome<()> {
        let ended = tokio::time::timeout(PATIENCE, &mut self.driver.0).await;
        ended.map(drop).map_err(|_| Failure::new("the connection was not ended"))
    }
}

/// The beginning of a request to `path`.
pub fn request(protocol: Protocol, method: Method, path: &str) -> Builder {
    let builder = Request::builder().method(method);
    match protocol {
        Protocol::H1 => builder.uri(path).header("host", "soak.test"),
        Protocol::H2 => builder.version(Version::HTTP_2).uri(format!("http://soak.test{path}")),
    }
}

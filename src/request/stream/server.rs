//! A server's connection, and how it is made. It refuses to know what it carries.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::{Stream, poll_fill, poll_fill_socket, poll_write};
use crate::base::h2_reset::H2Reset;
use crate::pure::forwarding::ResponseVia;
use crate::pure::proxy_protocol::{Source, Version};
use crate::request::buffers::Buffer;
use crate::request::h2_server::H2ServerStream;
use crate::shared::endpoint::Endpoint;
use crate::transport::dial::{DialError, Dialled, dial_announced};
use crate::transport::h2::Below;
use crate::transport::socket;
use crate::transport::tls::{ServerTlsStream, TlsConnector, dial_tls};

/// A server's connection.
#[derive(Debug)]
pub enum ServerStream {
    /// Plain TCP.
    Plain(TcpStream),
    /// A stream of an HTTP/2 connection, good for one request; boxed, for it is large.
    H2(Box<H2ServerStream>),
    /// A unix socket.
    Unix(UnixStream),
    /// TLS over one of them; boxed, for a rustls connection is large.
    Tls(Box<ServerTlsStream>),
}

/// Waits for anything to come: bytes, the end or an error.
fn poll_any(stream: &mut (impl AsyncRead + Unpin), context: &mut Context<'_>) -> Poll<()> {
    Pin::new(stream).poll_read(context, &mut ReadBuf::new(&mut [0])).map(|_| ())
}

impl From<Dialled> for ServerStream {
    fn from(dialled: Dialled) -> Self {
        match dialled {
            Dialled::Tcp(stream) => Self::Plain(stream),
            Dialled::Unix(stream) => Self::Unix(stream),
        }
    }
}

impl Stream for ServerStream {
    #[inline(always)]
    fn poll_fill(&mut self, context: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => poll_fill_socket(stream, context, buffer),
            Self::H2(stream) => stream.poll_fill(context, buffer),
            Self::Unix(stream) => poll_fill_socket(stream, context, buffer),
            Self::Tls(stream) => poll_fill(stream.as_mut(), context, buffer),
        }
    }

    #[inline(always)]
    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => socket::poll_write(stream, context, slices),
            Self::Unix(stream) => socket::poll_write(stream, context, slices),
            Self::H2(stream) => stream.poll_write(context, slices),
            Self::Tls(stream) => poll_write(stream.as_mut(), context, slices),
        }
    }

    #[inline(always)]
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::H2(stream) => stream.poll_flush(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::H2(stream) => stream.poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
        }
    }
}

impl ServerStream {
    /// Whether the server has agreed to HTTP/2, where TLS asks for that (RFC 9113 3.2).
    pub fn may_speak_http2(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) => true,
            Self::Tls(stream) => stream.protocol() == Some(b"h2"),
            Self::H2(_) => false,
        }
    }

    /// Waits for something to read without a buffer in hand; bytes that TLS has decrypted already count.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        #[cfg(test)]
        crate::request::tests::faults::step();
        match self {
            Self::Plain(stream) => stream.poll_read_ready(context),
            Self::Unix(stream) => stream.poll_read_ready(context),
            Self::Tls(stream) => stream.poll_readable(context),
            Self::H2(stream) => stream.poll_readable(context),
        }
    }

    /// Waits for the server to let go of a request whose answer it has sent. What it sends else means the same: nothing of it
    /// could be told from another answer.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(stream) => poll_any(stream, context),
            Self::Unix(stream) => poll_any(stream, context),
            Self::Tls(stream) => poll_any(stream.as_mut(), context),
            Self::H2(stream) => stream.poll_lost(context).map(drop),
        }
    }

    /// Whether the server has ended its connection, and takes nothing either. A stream of HTTP/2 tells by [`Self::poll_reset`].
    pub fn has_gone(&self) -> bool {
        self.socket().is_some_and(|socket| socket::has_ended(&socket, true))
    }

    /// Waits for the server to give up a tunnel, one of whose directions it has ended. Only a stream of HTTP/2 tells.
    pub fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        match self {
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => Poll::Pending,
            Self::H2(stream) => stream.poll_lost(context),
        }
    }

    /// Cancels the request with this code. Only a stream of HTTP/2 can be told.
    pub fn reset(&self, code: H2Reset) {
        if let Self::H2(stream) = self {
            stream.reset(code);
        }
    }

    /// Whether an answer's head has come that was not given yet.
    pub const fn has_head(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => false,
            Self::H2(stream) => stream.has_head(),
        }
    }

    /// Whether the answer did not say its length, and its head does.
    pub const fn is_length_ours(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => false,
            Self::H2(stream) => stream.is_length_ours(),
        }
    }

    /// What Via says of an answer that comes on it, where it is wanted.
    pub const fn via(&self, is_wanted: bool) -> ResponseVia {
        match self {
            _ if !is_wanted => ResponseVia::None,
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => ResponseVia::Http1,
            Self::H2(_) => ResponseVia::Http2,
        }
    }

    /// Whether another request can follow on it.
    pub const fn is_reusable(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => true,
            Self::H2(_) => false,
        }
    }

    /// Whether the server can say that it has done nothing with a request that was written.
    pub const fn may_refuse(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => false,
            Self::H2(_) => true,
        }
    }

    /// Whether an idle connection has stayed silent: neither closed nor chattering. Costs no syscall unless the runtime has
    /// seen something arrive, or `is_certain` asks for the socket itself to be looked at.
    pub fn is_quiet(&mut self, is_certain: bool) -> bool {
        let seen = match self {
            Self::Tls(stream) => return stream.is_quiet(is_certain),
            Self::H2(_) => return false,
            Self::Plain(_) | Self::Unix(_) if is_certain => return !self.has_arrived(),
            Self::Plain(stream) => stream.try_read(&mut [0]),
            Self::Unix(stream) => stream.try_read(&mut [0]),
        };
        matches!(seen, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// The address at the other end; `None`: it has none, or is not known.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.socket()?.peer_addr().ok()?.as_socket()
    }

    pub(super) fn socket(&self) -> Option<SockRef<'_>> {
        match self {
            Self::Plain(stream) => Some(SockRef::from(stream)),
            Self::Unix(stream) => Some(SockRef::from(stream)),
            Self::Tls(stream) => Some(stream.below().socket()),
            Self::H2(_) => None,
        }
    }
}

/// A connection to a server, over TLS where there is a connector. It begins with `header`, where there is one.
///
/// # Errors
/// [`DialError`] where none came about.
pub async fn dial_server(
    endpoint: &Endpoint,
    connector: Option<&TlsConnector>,
    header: Option<(Version, Source)>,
    timeout: Duration,
) -> Result<ServerStream, DialError> {
    match connector {
        None => dial_announced(endpoint, header, timeout).await.map(ServerStream::from),
        Some(connector) => Ok(ServerStream::Tls(Box::new(dial_tls(endpoint, connector, header, timeout).await?))),
    }
}

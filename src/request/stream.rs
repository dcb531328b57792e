//! The two ends of an exchange as byte streams: a client's, plain, TLS or on a unix socket, and a server's.
//!
//! It refuses to buffer.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::sys::socket::{MsgFlags, recv};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::io::poll_read_buf;

use crate::base::h2_reset::H2Reset;
use crate::pure::forwarding::ResponseVia;
use crate::pure::identity::ClientIdentity;
use crate::pure::persistence::SessionIdentity;
use crate::pure::proxy_protocol::{Source, Version};
use crate::request::buffers::Buffer;
use crate::request::connection::H2Stream;
use crate::request::h2_server::H2ServerStream;
use crate::shared::endpoint::Endpoint;
use crate::transport::client_tcp::ClientTcp;
use crate::transport::dial::{DialError, Dialled, dial_announced};
use crate::transport::h2::Below;
use crate::transport::socket::{self, Socket};
use crate::transport::tls::{ClientCertificates, ServerTlsStream, TlsConnector, TlsStream, dial_tls};

/// A client's connection.
#[derive(Debug)]
pub enum ClientStream {
    /// Plain TCP.
    Plain(ClientTcp),
    /// A unix socket.
    Unix(UnixStream),
    /// TLS over TCP; boxed, for a rustls connection is large.
    Tls(Box<TlsStream>),
    /// A stream of an HTTP/2 connection, told in HTTP/1.1.
    H2(Box<H2Stream>),
}

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

/// What both ends can do.
pub trait Stream {
    /// Reads into the buffer's room. `Ok(0)` is the end of the stream. The caller makes sure that there is room.
    fn poll_fill(&mut self, context: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>>;

    /// Writes what it can of the slices.
    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// The same of the last bytes before our end, which has to follow at once.
    #[inline(always)]
    fn poll_write_last(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_write(context, slices)
    }

    /// Sends what a layer below keeps back.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends our side: FIN, and close_notify before it.
    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether it has ends of messages of its own, so that a body needs no framing: see [`Self::end_message`].
    fn has_messages(&self) -> bool {
        false
    }

    /// Ends a message whose head did not say its length, with trailers as field lines.
    fn end_message(&mut self, _trailers: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

fn poll_fill<S: AsyncRead + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
    buffer: &mut Buffer,
) -> Poll<io::Result<usize>> {
    fill(buffer, |room, _| poll_read_buf(Pin::new(stream), context, room))
}

/// The same where no layer is above the socket.
fn poll_fill_socket<S: Socket>(
    stream: &mut S,
    context: &mut Context<'_>,
    buffer: &mut Buffer,
) -> Poll<io::Result<usize>> {
    fill(buffer, |room, is_streaming| socket::poll_read_behind(stream, context, room, is_streaming))
}

/// Reads into the buffer's room by `read`, which is told whether the last read took all of it.
fn fill(
    buffer: &mut Buffer,
    read: impl FnOnce(&mut Vec<u8>, bool) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<usize>> {
    #[cfg(test)]
    crate::request::tests::faults::step();
    let is_streaming = buffer.is_filled_by_reads();
    let read = read(buffer.room(), is_streaming);
    if let Poll::Ready(Ok(count)) = read {
        buffer.filled(count);
    }
    read
}

nix::ioctl_read_bad!(
    /// Bytes in a socket's output queue, sent or not, that the other side has not acknowledged (tcp(7), `SIOCOUTQ`).
    read_output_queue, nix::libc::TIOCOUTQ, nix::libc::c_int);

fn unacknowledged(socket: &SockRef<'_>) -> Option<usize> {
    use std::os::fd::AsRawFd;
    let mut bytes = 0;
    // SAFETY: the descriptor is open as long as `socket` is, and the system writes one number to where `bytes` is.
    unsafe { read_output_queue(socket.as_raw_fd(), &raw mut bytes) }.ok()?;
    usize::try_from(bytes).ok()
}

fn poll_write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    match slices {
        [only] => Pin::new(stream).poll_write(context, only),
        _ => Pin::new(stream).poll_write_vectored(context, slices),
    }
}

impl Stream for ClientStream {
    #[inline(always)]
    fn poll_fill(&mut self, context: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => poll_fill_socket(stream, context, buffer),
            Self::Unix(stream) => poll_fill_socket(stream, context, buffer),
            Self::Tls(stream) => poll_fill(stream.as_mut(), context, buffer),
            Self::H2(stream) => stream.poll_fill(context, buffer),
        }
    }

    #[inline(always)]
    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => socket::poll_write(stream, context, slices),
            Self::Unix(stream) => socket::poll_write(stream, context, slices),
            Self::Tls(stream) => poll_write(stream.as_mut(), context, slices),
            Self::H2(stream) => stream.poll_write(context, slices),
        }
    }

    #[inline(always)]
    fn poll_write_last(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => socket::poll_write_last(stream, context, slices),
            Self::Unix(_) | Self::Tls(_) | Self::H2(_) => Stream::poll_write(self, context, slices),
        }
    }

    #[inline(always)]
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // What the frames of a stream wait for is waited for by its connection.
            Self::Plain(_) | Self::Unix(_) | Self::H2(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
            Self::H2(stream) => Poll::Ready(stream.end(&[])),
        }
    }

    fn has_messages(&self) -> bool {
        matches!(self, Self::H2(_))
    }

    fn end_message(&mut self, trailers: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => Ok(()),
            Self::H2(stream) => stream.end(trailers),
        }
    }
}

impl ClientStream {
    /// Waits for something to read without a buffer in hand; bytes that TLS has decrypted already count.
    #[inline(always)]
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

    /// Waits for the client to give up what it has asked for, whatever else it has sent. Only a stream of HTTP/2 tells.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => Poll::Pending,
            Self::H2(stream) => stream.poll_lost(context),
        }
    }

    /// Bytes that the system holds for the client and that it has not acknowledged.
    pub fn unacknowledged(&self) -> Option<usize> {
        unacknowledged(&self.socket()?)
    }

    /// The TLS version, where the client speaks TLS.
    pub fn tls_version(&self) -> Option<&'static str> {
        match self {
            Self::Plain(_) | Self::Unix(_) => None,
            Self::Tls(stream) => stream.version(),
            Self::H2(stream) => stream.carrier().tls,
        }
    }

    /// The name that the TLS client asked for.
    pub fn server_name(&self) -> Option<&str> {
        match self {
            Self::Plain(_) | Self::Unix(_) => None,
            Self::Tls(stream) => stream.server_name(),
            Self::H2(stream) => stream.carrier().server_name.as_deref(),
        }
    }

    /// What was demanded of the TLS client's certificate.
    pub fn demand(&self) -> ClientCertificates {
        match self {
            Self::Plain(_) | Self::Unix(_) => ClientCertificates::None,
            Self::Tls(stream) => stream.demand(),
            Self::H2(stream) => stream.carrier().demand,
        }
    }

    /// Who the TLS client has shown to be by a certificate.
    pub fn identity(&self) -> Option<&Arc<ClientIdentity>> {
        match self {
            Self::Plain(_) | Self::Unix(_) => None,
            Self::Tls(stream) => stream.identity(),
            Self::H2(stream) => stream.carrier().identity.as_ref(),
        }
    }

    /// The identity of the TLS session, where the listener's sessions have one.
    pub fn session_identity(&self) -> Option<SessionIdentity> {
        match self {
            Self::Plain(_) | Self::Unix(_) => None,
            Self::Tls(stream) => stream.session_identity(),
            Self::H2(stream) => stream.carrier().session,
        }
    }

    /// Whether it is known, before the head is read, to be that of a HEAD.
    pub fn is_head_request(&self) -> bool {
        matches!(self, Self::H2(stream) if stream.is_head_request())
    }

    /// Whether it asks for a tunnel and can have nothing else: an extended CONNECT (RFC 8441 4).
    pub fn wants_tunnel(&self) -> bool {
        matches!(self, Self::H2(stream) if stream.is_tunnel())
    }

    /// Takes note of the reset by which a server has cut its answer off: it is passed on.
    pub fn note_reset(&mut self, error: &io::Error) {
        if let Self::H2(stream) = self
            && let Some(reset) = H2Reset::of(error)
        {
            stream.note_reset(reset);
        }
    }

    /// Whether the runtime tells what happens to it.
    pub const fn is_watched(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_watched(),
            Self::Unix(_) | Self::Tls(_) | Self::H2(_) => true,
        }
    }

    /// Whether it was closed because the system had no room to watch it.
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Plain(stream) if stream.is_lost())
    }

    /// Has the runtime watch it.
    ///
    /// # Errors
    /// Where the system has no room for that.
    pub fn watch(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.watch().map(|_| ()),
            Self::Unix(_) | Self::Tls(_) | Self::H2(_) => Ok(()),
        }
    }

    /// Whether the system holds something of the client's that was not read, or its end. It tells nothing of a stream of HTTP/2.
    pub fn has_unread(&self) -> bool {
        self.socket().is_some_and(|socket| socket::has_arrived(&socket))
    }

    /// Whether the client has ended its connection, whatever of it has not been read; `may_half_close`: only where it takes nothing
    /// either. A stream of HTTP/2 tells by [`Self::poll_lost`].
    pub fn has_gone(&self, may_half_close: bool) -> bool {
        self.socket().is_some_and(|socket| socket::has_ended(&socket, may_half_close))
    }

    /// The length that the answer's head says is none of the server's: a client that needs none is not told.
    pub fn leave_length_out(&mut self) {
        if let Self::H2(stream) = self {
            stream.leave_length_out();
        }
    }

    /// The socket below, where it is this one's alone.
    pub fn socket(&self) -> Option<SockRef<'_>> {
        match self {
            Self::Plain(stream) => stream.socket(),
            Self::Unix(stream) => Some(SockRef::from(stream)),
            Self::Tls(stream) => Some(SockRef::from(stream.tcp())),
            Self::H2(_) => None,
        }
    }

    /// Waits for bytes at the socket below.
    pub fn poll_socket_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => stream.poll_read_ready(context),
            Self::Unix(stream) => stream.poll_read_ready(context),
            Self::Tls(stream) => stream.tcp().poll_read_ready(context),
            Self::H2(_) => Poll::Pending,
        }
    }

    /// Looks at what waits at the socket below, and leaves it there. What `is_nothing` says so of counts as nothing.
    ///
    /// # Errors
    /// `WouldBlock` where nothing has come, and what else the system says.
    pub fn try_peek_socket(&self, bytes: &mut [u8], is_nothing: impl Fn(&[u8]) -> bool) -> io::Result<usize> {
        let peek = |descriptor: BorrowedFd<'_>| {
            let count = recv(descriptor.as_raw_fd(), bytes, MsgFlags::MSG_PEEK)?;
            let seen = bytes.get(..count).unwrap_or_default();
            if is_nothing(seen) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        };
        match self {
            Self::Plain(stream) => stream.try_io(Interest::READABLE, peek),
            Self::Unix(stream) => Socket::try_io(stream, Interest::READABLE, peek),
            Self::Tls(_) | Self::H2(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Reads from the socket below, past every layer above it.
    ///
    /// # Errors
    /// `WouldBlock` where nothing has come, and what else the system says.
    pub fn try_read_socket(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.try_io(Interest::READABLE, |socket| {
                recv(socket.as_raw_fd(), bytes, MsgFlags::empty()).map_err(Into::into)
            }),
            Self::Unix(stream) => stream.try_read(bytes),
            Self::Tls(stream) => stream.tcp().try_read(bytes),
            Self::H2(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Our address; `None`: it has none, or is not known.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::H2(stream) => stream.carrier().local,
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => self.socket()?.local_addr().ok()?.as_socket(),
        }
    }
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
            Self::H2(stream) => stream.poll_lost(context),
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

    fn socket(&self) -> Option<SockRef<'_>> {
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

/// So that HTTP/2 can be spoken over them.
macro_rules! impl_below {
    ($($stream:ty),*) => {$(
        impl Below for $stream {
            fn poll_fill(&mut self, context: &mut Context<'_>, memory: &mut Vec<u8>) -> Poll<io::Result<usize>> {
                match self {
                    Self::Plain(stream) => socket::poll_read_behind(stream, context, memory, false),
                    Self::Unix(stream) => socket::poll_read_behind(stream, context, memory, false),
                    Self::Tls(stream) => poll_read_buf(Pin::new(stream.as_mut()), context, memory),
                    Self::H2(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
                }
            }

            fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                Stream::poll_write(self, context, &[IoSlice::new(bytes)])
            }

            fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                Stream::poll_flush(self, context)
            }

            fn has_arrived(&self) -> bool {
                self.socket().is_some_and(|socket| socket::has_arrived(&socket))
            }
        }
    )*};
}

impl_below!(ClientStream, ServerStream);

//! A client's connection. It refuses to know what it carries.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use nix::sys::socket::{MsgFlags, recv};
use socket2::SockRef;
use tokio::io::{AsyncWrite, Interest};
use tokio::net::UnixStream;

use super::{Stream, poll_fill, poll_fill_socket, poll_write};
use crate::base::h2_reset::H2Reset;
use crate::pure::identity::ClientIdentity;
use crate::pure::persistence::SessionIdentity;
use crate::request::buffers::Buffer;
use crate::request::connection::H2Stream;
use crate::transport::client_tcp::ClientTcp;
use crate::transport::socket::{self, Socket};
use crate::transport::tls::{ClientCertificates, TlsStream};

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

    /// Why it was closed, where the system had no room to watch it.
    pub fn loss(&self) -> Option<io::Error> {
        match self {
            Self::Plain(stream) => stream.loss(),
            Self::Unix(_) | Self::Tls(_) | Self::H2(_) => None,
        }
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

    /// The code by which the client has given up what it has asked for, where it has said one.
    pub fn given_up(&self) -> Option<H2Reset> {
        match self {
            Self::Plain(_) | Self::Unix(_) | Self::Tls(_) => None,
            Self::H2(stream) => stream.given_up(),
        }
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

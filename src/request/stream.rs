//! The two ends of an exchange as byte streams: a client's, plain or TLS, and a server's.
//!
//! Reads and writes go through `poll_read` and `poll_write`: after a read that did not fill its room the runtime knows that
//! there is nothing left, and the read that would end in EAGAIN is saved. It refuses to buffer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::base::h2_reset::H2Reset;
use crate::request::buffers::Buffer;
use crate::request::connection::H2Stream;
use crate::transport::tls::TlsStream;

/// A client's connection.
#[derive(Debug)]
pub enum ClientStream {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS over TCP; boxed, for a rustls connection is large.
    Tls(Box<TlsStream>),
    /// A stream of an HTTP/2 connection, told in HTTP/1.1.
    H2(Box<H2Stream>),
}

/// A server's connection. TLS, unix sockets and HTTP/2 become variants of it.
#[derive(Debug)]
pub enum ServerStream {
    /// Plain TCP.
    Plain(TcpStream),
}

/// What both ends can do.
pub trait Stream {
    /// Reads into the buffer's room. `Ok(0)` is the end of the stream. The caller makes sure that there is room.
    fn poll_fill(&mut self, context: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>>;

    /// Writes what it can of the slices.
    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

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
    #[cfg(test)]
    crate::request::tests::faults::step();
    let mut room = ReadBuf::new(buffer.room());
    let result = Pin::new(stream).poll_read(context, &mut room);
    let count = room.filled().len();
    match result {
        Poll::Ready(Ok(())) => {
            buffer.filled(count);
            Poll::Ready(Ok(count))
        }
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        Poll::Pending => Poll::Pending,
    }
}

nix::ioctl_read_bad!(
    /// Bytes in a socket's output queue, sent or not, that the other side has not acknowledged (tcp(7), `SIOCOUTQ`).
    read_output_queue, nix::libc::TIOCOUTQ, nix::libc::c_int);

fn unacknowledged(tcp: &TcpStream) -> Option<usize> {
    use std::os::fd::AsRawFd;
    let mut bytes = 0;
    // SAFETY: the descriptor is open as long as `tcp` is, and the system writes one number to where `bytes` is.
    unsafe { read_output_queue(tcp.as_raw_fd(), &raw mut bytes) }.ok()?;
    usize::try_from(bytes).ok()
}

/// Up to this size a write is tried before the runtime is asked whether it can succeed: it nearly always does.
const TRY_MAX: usize = 16 * 1024;

fn poll_write_tcp(
    stream: &mut TcpStream,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if slices.iter().map(|slice| slice.len()).sum::<usize>() > TRY_MAX {
        return poll_write(stream, context, slices);
    }
    loop {
        let written = match slices {
            [only] => stream.try_write(only),
            _ => stream.try_write_vectored(slices),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(stream.poll_write_ready(context))?,
            written => return Poll::Ready(written),
        }
    }
}

fn poll_write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    #[cfg(test)]
    crate::request::tests::faults::step();
    match slices {
        [only] => Pin::new(stream).poll_write(context, only),
        _ => Pin::new(stream).poll_write_vectored(context, slices),
    }
}

impl Stream for ClientStream {
    fn poll_fill(&mut self, context: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => poll_fill(stream, context, buffer),
            Self::Tls(stream) => poll_fill(stream.as_mut(), context, buffer),
            Self::H2(stream) => stream.poll_fill(context, buffer),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => poll_write_tcp(stream, context, slices),
            Self::Tls(stream) => poll_write(stream.as_mut(), context, slices),
            Self::H2(stream) => stream.poll_write(context, slices),
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // What the frames of a stream wait for is waited for by its connection.
            Self::Plain(_) | Self::H2(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
            Self::H2(stream) => Poll::Ready(stream.end(&[])),
        }
    }

    fn has_messages(&self) -> bool {
        matches!(self, Self::H2(_))
    }

    fn end_message(&mut self, trailers: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(_) | Self::Tls(_) => Ok(()),
            Self::H2(stream) => stream.end(trailers),
        }
    }
}

impl ClientStream {
    /// Waits for something to read without a buffer in hand; bytes that TLS has decrypted already count.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        #[cfg(test)]
        crate::request::tests::faults::step();
        match self {
            Self::Plain(stream) => stream.poll_read_ready(context),
            Self::Tls(stream) => stream.poll_readable(context),
            Self::H2(stream) => stream.poll_readable(context),
        }
    }

    /// Bytes that the system holds for the client and that it has not acknowledged.
    pub fn unacknowledged(&self) -> Option<usize> {
        unacknowledged(self.tcp()?)
    }

    /// The TLS version, where the client speaks TLS.
    pub fn tls_version(&self) -> Option<&'static str> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.version(),
            Self::H2(stream) => stream.carrier().tls,
        }
    }

    /// The name that the TLS client asked for.
    pub fn server_name(&self) -> Option<&str> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.server_name(),
            Self::H2(stream) => stream.carrier().server_name.as_deref(),
        }
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

    /// The TCP connection below, where it is this one's alone.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(stream) => Some(stream.tcp()),
            Self::H2(_) => None,
        }
    }

    /// Reads into a buffer of somebody else's.
    pub fn poll_read(&mut self, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, out),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, out),
            Self::H2(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }
}

impl Stream for ServerStream {
    fn poll_fill(&mut self, context: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        let Self::Plain(stream) = self;
        poll_fill(stream, context, buffer)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let Self::Plain(stream) = self;
        poll_write_tcp(stream, context, slices)
    }

    fn poll_flush(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self::Plain(stream) = self;
        Pin::new(stream).poll_shutdown(context)
    }
}

impl ServerStream {
    /// Waits for something to read without a buffer in hand.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        #[cfg(test)]
        crate::request::tests::faults::step();
        let Self::Plain(stream) = self;
        stream.poll_read_ready(context)
    }

    /// Whether an idle connection has stayed silent: neither closed nor chattering. Costs no syscall unless the runtime has
    /// seen something arrive, or `is_certain` asks for the socket itself to be looked at.
    pub fn is_quiet(&self, is_certain: bool) -> bool {
        let Self::Plain(stream) = self;
        let seen = if is_certain {
            socket2::SockRef::from(stream).peek(&mut [std::mem::MaybeUninit::uninit()])
        } else {
            stream.try_read(&mut [0])
        };
        matches!(seen, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

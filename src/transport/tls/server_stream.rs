//! A TLS connection to a server, on tokio-rustls, which keeps some KiB of buffers for each: such connections are few.
//!
//! It refuses to take the end of the stream for the end of what the server had to say where the server did not say so
//! (RFC 8446 section 6.1): reading then ends in `UnexpectedEof`.

use std::io::{self, BufRead as _, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use crate::transport::dial::Dialled;
use crate::transport::socket;

/// A TLS connection to a server.
#[derive(Debug)]
pub struct ServerTlsStream {
    tls: TlsStream<Dialled>,
}

impl ServerTlsStream {
    pub(super) const fn new(tls: TlsStream<Dialled>) -> Self {
        Self { tls }
    }

    /// The protocol that the server has chosen of those offered (ALPN); `None`: it has said nothing.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.tls.get_ref().1.alpn_protocol()
    }

    /// The connection below.
    pub fn below(&self) -> &Dialled {
        self.tls.get_ref().0
    }

    /// Waits until a read would get something, without a buffer in hand. It may be ready for what turns out to be no more
    /// than a part of a record.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (below, session) = self.tls.get_mut();
        match session.reader().fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => below.poll_read_ready(context),
            // Bytes, their end, or an error that the read will tell.
            Ok(_) | Err(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether an idle connection has stayed silent: neither closed nor chattering; what belongs to TLS alone, such as a late
    /// session ticket, is no chatter. `is_certain` asks for the socket itself to be looked at.
    pub fn is_quiet(&mut self, is_certain: bool) -> bool {
        let mut byte = [0];
        // Whoever waits for this connection next asks again, with a waker of its own.
        let mut context = Context::from_waker(Waker::noop());
        if Pin::new(&mut self.tls).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_ready() {
            return false;
        }
        !is_certain || !socket::has_arrived(&self.below().socket())
    }
}

impl AsyncRead for ServerTlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_read(context, buffer)
    }
}

impl AsyncWrite for ServerTlsStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(context)
    }
}

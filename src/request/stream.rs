//! The two ends of an exchange as byte streams: a client's, plain, TLS or on a unix socket, and a server's.
//!
//! It refuses to buffer.

mod client;
mod server;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;

pub use self::client::ClientStream;
pub use self::server::{ServerStream, dial_server};
use crate::request::buffers::Buffer;
use crate::transport::h2::Below;
use crate::transport::socket::{self, Socket};

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

//! A client's TCP connection, which the runtime watches only once it has to be waited for.
//!
//! Most connections that are made for one request never have to be: the request is there when they are accepted, and the answer
//! fits into what the system takes at once. To watch them costs two system calls and memory of the runtime's for nothing.
//! Reads, writes and waits begin to watch a connection by themselves. It refuses to tell by itself that the client of a
//! connection that is not watched has gone.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::transport::socket::Socket;

/// A client's TCP connection.
#[derive(Debug)]
pub struct ClientTcp(State);

#[derive(Debug)]
enum State {
    Fresh(std::net::TcpStream),
    Watched(TcpStream),
    /// The runtime could not take it, which has closed it.
    Lost,
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the system does not watch any more sockets")
}

impl ClientTcp {
    /// Accepts a connection that waits at the listening socket.
    ///
    /// # Errors
    /// `WouldBlock` where none does and the socket does not block, and what else the system says.
    pub fn accept(listener: &TcpListener) -> io::Result<(Self, SocketAddr)> {
        let (socket, peer) = acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).ok_or(io::ErrorKind::ConnectionAborted)?;
        Ok((Self(State::Fresh(socket.into())), peer))
    }

    /// Whether its events reach the runtime, or it has none any more.
    pub const fn is_watched(&self) -> bool {
        !matches!(self.0, State::Fresh(_))
    }

    /// Why it was closed, where the system had no room to watch it.
    pub fn loss(&self) -> Option<io::Error> {
        matches!(self.0, State::Lost).then(lost)
    }

    /// Has the runtime watch it.
    ///
    /// # Errors
    /// Where the system has no room for that: the connection is closed then.
    #[inline]
    pub fn watch(&mut self) -> io::Result<&mut TcpStream> {
        if !matches!(self.0, State::Watched(_)) {
            self.begin_watch()?;
        }
        match &mut self.0 {
            State::Watched(stream) => Ok(stream),
            State::Fresh(_) | State::Lost => Err(lost()),
        }
    }

    #[inline(never)]
    fn begin_watch(&mut self) -> io::Result<()> {
        if let State::Fresh(fresh) = std::mem::replace(&mut self.0, State::Lost) {
            self.0 = State::Watched(TcpStream::from_std(fresh)?);
        }
        Ok(())
    }

    /// The same, as the runtime's own.
    ///
    /// # Errors
    /// As [`Self::watch`].
    pub fn into_watched(mut self) -> io::Result<TcpStream> {
        self.watch()?;
        match self.0 {
            State::Watched(stream) => Ok(stream),
            State::Fresh(_) | State::Lost => Err(lost()),
        }
    }

    /// The socket; `None`: it is lost.
    pub fn socket(&self) -> Option<SockRef<'_>> {
        match &self.0 {
            State::Fresh(stream) => Some(SockRef::from(stream)),
            State::Watched(stream) => Some(SockRef::from(stream)),
            State::Lost => None,
        }
    }
}

impl From<TcpStream> for ClientTcp {
    fn from(stream: TcpStream) -> Self {
        Self(State::Watched(stream))
    }
}

impl Socket for ClientTcp {
    #[inline]
    fn try_io<T>(&self, interest: Interest, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match &self.0 {
            State::Fresh(stream) => call(stream.as_fd()),
            State::Watched(stream) => stream.try_io(interest, || call(stream.as_fd())),
            State::Lost => Err(lost()),
        }
    }

    #[inline]
    fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch()?.poll_read_ready(context)
    }

    #[inline]
    fn poll_write_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch()?.poll_write_ready(context)
    }
}

impl AsyncRead for ClientTcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.watch()?).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientTcp {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.watch()?).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.watch()?).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            State::Fresh(stream) => Poll::Ready(stream.shutdown(Shutdown::Write)),
            State::Watched(stream) => Pin::new(stream).poll_shutdown(context),
            State::Lost => Poll::Ready(Err(lost())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{IoSlice, Read as _, Write as _};
    use std::task::Waker;

    use super::*;
    use crate::transport::socket::{poll_read_behind, poll_write, poll_write_last};

    /// A client, and our end of its connection.
    fn pair() -> (std::net::TcpStream, ClientTcp) {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (ours, peer) = ClientTcp::accept(&door).unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        (client, ours)
    }

    #[tokio::test]
    async fn a_connection_whose_request_is_there_is_not_watched_and_one_that_has_to_be_waited_for_is() {
        let (mut client, mut ours) = pair();
        client.write_all(b"request").unwrap();
        let mut memory = Vec::with_capacity(64);
        let mut context = Context::from_waker(Waker::noop());
        // The system may take a moment to hand it over.
        while poll_read_behind(&mut ours, &mut context, &mut memory, false).is_pending() {
            assert!(ours.is_watched());
            poll_fn(|context| ours.poll_read_ready(context)).await.unwrap();
        }
        assert_eq!(memory, b"request");
        assert!(matches!(poll_write(&mut ours, &mut context, &[IoSlice::new(b"answer")]), Poll::Ready(Ok(6))));
        assert!(poll_read_behind(&mut ours, &mut context, &mut memory, false).is_pending());
        assert!(ours.is_watched());
        client.write_all(b" again").unwrap();
        poll_fn(|context| poll_read_behind(&mut ours, context, &mut memory, false)).await.unwrap();
        assert_eq!(memory, b"request again");
    }

    #[tokio::test]
    async fn the_last_bytes_go_with_the_end() {
        let (mut client, mut ours) = pair();
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(poll_write_last(&mut ours, &mut context, &[IoSlice::new(b"answer")]), Poll::Ready(Ok(6))));
        assert!(!ours.is_watched());
        drop(ours);
        let mut seen = Vec::new();
        client.read_to_end(&mut seen).unwrap();
        assert_eq!(seen, b"answer");
    }

    #[tokio::test]
    async fn our_side_ends_without_being_watched() {
        let (mut client, mut ours) = pair();
        poll_fn(|context| Pin::new(&mut ours).poll_shutdown(context)).await.unwrap();
        assert!(!ours.is_watched());
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
}

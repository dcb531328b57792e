//! Connections to servers, over TCP or a unix socket. One attempt for each address within one deadline; it refuses to try
//! again and to resolve names: the exchange and the health checks decide, and what a name means was found out before.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::errno::Errno;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use crate::base::error::Blame;
use crate::pure::pool::Address;
use crate::pure::proxy_protocol::{Source, Version};
use crate::shared::endpoint::Endpoint;
use crate::transport::proxy_header;
use crate::transport::tls::said;

/// How long a unix socket whose queue is full is left alone before it is tried again: the system does not tell when there
/// is room.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// A connection to a server.
#[derive(Debug)]
pub enum Dialled {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

impl Dialled {
    /// Writes what it takes of the bytes at once.
    ///
    /// # Errors
    /// `WouldBlock` where it takes nothing, and what else the system says.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until a read would get something.
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context),
            Self::Unix(stream) => stream.poll_read_ready(context),
        }
    }

    /// The socket itself.
    pub fn socket(&self) -> SockRef<'_> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream),
            Self::Unix(stream) => SockRef::from(stream),
        }
    }

    /// Our address and the server's; `None`: they have none, or are not known.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Self::Tcp(stream) => Some((stream.local_addr().ok()?, stream.peer_addr().ok()?)),
            Self::Unix(_) => None,
        }
    }
}

/// So that TLS can be spoken over it.
impl AsyncRead for Dialled {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Dialled {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Why a connection could not be made. Nothing of a request was written, so any request may be sent elsewhere.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The server's machine says that nobody listens there.
    #[error("connection refused")]
    Refused,
    /// No answer in time.
    #[error("no answer within the connect timeout")]
    TimedOut,
    /// There is no way to the server.
    #[error("unreachable: {0}")]
    Unreachable(io::Error),
    /// There is a connection, and no TLS on it: the server's certificate can't be verified, or the two have nothing in common.
    #[error("the TLS handshake failed: {}", said(.0))]
    Handshake(io::Error),
    /// The server's name has no address yet.
    #[error("the server's name has not been resolved yet")]
    Unresolved,
    /// We have no descriptor, port or memory left.
    #[error("this machine is out of descriptors, ports or memory: {0}")]
    Exhausted(io::Error),
    /// The server does not begin an HTTP/2 connection with its SETTINGS.
    #[error("the server does not speak HTTP/2")]
    NotHttp2,
    /// The server ended an HTTP/2 connection before it said anything.
    #[error("the server closed the connection before it took requests over HTTP/2")]
    ClosedEarly,
    /// All connections to the server have as many streams as it allows, and there may be no more of them.
    #[error("all connections to the server are full")]
    Full,
    /// The server has got other addresses since it was chosen.
    #[error("the server has moved")]
    Moved,
}

impl DialError {
    /// Who is to blame: only a server's fault is evidence against it.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Refused
            | Self::TimedOut
            | Self::Unreachable(_)
            | Self::Unresolved
            | Self::Handshake(_)
            | Self::NotHttp2
            | Self::ClosedEarly => Blame::Server,
            Self::Exhausted(_) | Self::Full | Self::Moved => Blame::Us,
        }
    }

    /// The same error for another request that waited for the same connection.
    pub fn again(&self) -> Self {
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        match self {
            Self::Refused => Self::Refused,
            Self::TimedOut => Self::TimedOut,
            Self::Unreachable(error) => Self::Unreachable(copy(error)),
            Self::Unresolved => Self::Unresolved,
            // A copy has lost its cause, by which it would be put into words.
            Self::Handshake(error) => Self::Handshake(io::Error::new(error.kind(), said(error))),
            Self::Exhausted(error) => Self::Exhausted(copy(error)),
            Self::NotHttp2 => Self::NotHttp2,
            Self::ClosedEarly => Self::ClosedEarly,
            Self::Full => Self::Full,
            Self::Moved => Self::Moved,
        }
    }
}

/// Connects to a server within `timeout`. The addresses of a name are tried in turn, from the one that worked last on; each
/// gets its share of the time that is left.
///
/// # Errors
/// [`DialError`] where no connection came about; that of the last address that was tried.
pub async fn dial(endpoint: &Endpoint, timeout: Duration) -> Result<Dialled, DialError> {
    let deadline = Instant::now() + timeout;
    match &endpoint.server.address {
        Address::Socket(address) => connect(*address, deadline).await.map(Dialled::Tcp),
        Address::Unix(path) => connect_unix(path, deadline).await.map(Dialled::Unix),
        Address::Name(..) => dial_named(endpoint, deadline).await.map(Dialled::Tcp),
    }
}

/// The same, with the PROXY header at its beginning, where there is one.
///
/// # Errors
/// As [`dial`]; a server that does not take the header is unreachable.
pub async fn dial_announced(
    endpoint: &Endpoint,
    header: Option<(Version, Source)>,
    timeout: Duration,
) -> Result<Dialled, DialError> {
    let dialled = dial(endpoint, timeout).await?;
    if let Some((version, source)) = header {
        proxy_header::send(&dialled, version, source).map_err(DialError::Unreachable)?;
    }
    Ok(dialled)
}

async fn dial_named(endpoint: &Endpoint, deadline: Instant) -> Result<TcpStream, DialError> {
    let mut last = DialError::Unresolved;
    let mut left = u32::try_from(endpoint.named().len()).unwrap_or(u32::MAX);
    for (position, address) in endpoint.named_from_last_good() {
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / left.max(1);
        left = left.saturating_sub(1);
        match connect(address, now + share).await {
            Ok(stream) => {
                endpoint.worked(position);
                return Ok(stream);
            }
            // What this machine lacks, it lacks for the next address too.
            Err(error @ DialError::Exhausted(_)) => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connect(address: SocketAddr, deadline: Instant) -> Result<TcpStream, DialError> {
    match timeout_at(deadline, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => {
            // Heads and small bodies leave in one write: waiting for more would only delay them.
            stream.set_nodelay(true).map_err(DialError::Unreachable)?;
            Ok(stream)
        }
        Ok(Err(error)) => Err(classify(error)),
        Err(_elapsed) => Err(DialError::TimedOut),
    }
}

async fn connect_unix(path: &Path, deadline: Instant) -> Result<UnixStream, DialError> {
    loop {
        match timeout_at(deadline, UnixStream::connect(path)).await {
            Ok(Ok(stream)) => return Ok(stream),
            // The server's queue is full (unix(7)); to TCP the system would not have answered.
            Ok(Err(error)) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => {
                if Instant::now() >= deadline {
                    return Err(DialError::TimedOut);
                }
                tokio::time::sleep_until(deadline.min(Instant::now() + FULL_PAUSE)).await;
            }
            Ok(Err(error)) => return Err(classify(error)),
            Err(_elapsed) => return Err(DialError::TimedOut),
        }
    }
}

fn classify(error: io::Error) -> DialError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED | Errno::ECONNRESET) => DialError::Refused,
        Some(Errno::ETIMEDOUT) => DialError::TimedOut,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::EADDRNOTAVAIL | Errno::EAGAIN) => {
            DialError::Exhausted(error)
        }
        _ => DialError::Unreachable(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::shared::endpoint::tests::endpoint;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn the_addresses_of_a_name_are_tried_in_turn_and_the_good_one_first_from_then_on() {
        let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (good, bad) = (open.local_addr().unwrap(), closed.local_addr().unwrap());
        drop(closed);
        let endpoint = endpoint(Address::Name("a.test".to_owned(), 1), &[bad, good]);
        run(async {
            for _ in 0..2 {
                let Dialled::Tcp(stream) = dial(&endpoint, TIMEOUT).await.unwrap() else { panic!("TCP") };
                assert_eq!(stream.peer_addr().unwrap(), good);
            }
        });
        assert_eq!(endpoint.named_from_last_good().next(), Some((1, good)));
    }

    #[test]
    fn a_name_without_an_address_is_unresolved_and_one_whose_addresses_all_refuse_is_refused() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let bad = closed.local_addr().unwrap();
        drop(closed);
        let dialled = |named: &[SocketAddr]| {
            run(async { dial(&endpoint(Address::Name("a.test".to_owned(), 1), named), TIMEOUT).await.map(|_| ()) })
        };
        assert!(matches!(dialled(&[]), Err(DialError::Unresolved)));
        assert!(matches!(dialled(&[bad, bad]), Err(DialError::Refused)));
    }

    #[test]
    fn a_unix_socket_answers_is_missing_refuses_or_has_a_full_queue() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let dialled = |timeout| run(async { dial(&endpoint(Address::Unix(path.clone()), &[]), timeout).await });
        assert!(matches!(dialled(TIMEOUT), Err(DialError::Unreachable(_))));
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        socket.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
        assert!(matches!(dialled(TIMEOUT), Err(DialError::Refused)));
        socket.listen(0).unwrap();
        let first = dialled(TIMEOUT).unwrap();
        assert!(matches!(dialled(Duration::from_millis(60)), Err(DialError::TimedOut)));
        drop((first, socket));
        assert!(matches!(dialled(TIMEOUT), Err(DialError::Refused)), "the file of a dead process");
        std::fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(matches!(dialled(TIMEOUT), Ok(Dialled::Unix(_))));
    }
}

//! Connections to servers. One attempt, one deadline; it refuses to try again: the exchange and the health checks decide.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::base::error::Blame;
use crate::pure::pool::Address;

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
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    /// We have no descriptor, port or memory left.
    #[error("this machine is out of descriptors, ports or memory: {0}")]
    Exhausted(io::Error),
    /// The server does not begin an HTTP/2 connection with its SETTINGS.
    #[error("the server does not speak HTTP/2")]
    NotHttp2,
    /// All connections to the server have as many streams as it allows, and there may be no more of them.
    #[error("all connections to the server are full")]
    Full,
    /// The kind of address can't be dialled yet.
    #[error("addresses of this kind are not supported yet")]
    Unsupported,
}

impl DialError {
    /// Who is to blame: only a server's fault is evidence against it.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Refused | Self::TimedOut | Self::Unreachable(_) | Self::Handshake(_) | Self::NotHttp2 => {
                Blame::Server
            }
            Self::Exhausted(_) | Self::Full | Self::Unsupported => Blame::Us,
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
            Self::Handshake(error) => Self::Handshake(copy(error)),
            Self::Exhausted(error) => Self::Exhausted(copy(error)),
            Self::NotHttp2 => Self::NotHttp2,
            Self::Full => Self::Full,
            Self::Unsupported => Self::Unsupported,
        }
    }
}

/// Connects to `address` within `timeout`.
///
/// # Errors
/// [`DialError`] where no connection came about.
pub async fn dial(address: &Address, timeout: Duration) -> Result<TcpStream, DialError> {
    let Address::Socket(address) = address else { return Err(DialError::Unsupported) };
    match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => {
            // Heads and small bodies leave in one write: waiting for more would only delay them.
            stream.set_nodelay(true).map_err(DialError::Unreachable)?;
            Ok(stream)
        }
        Ok(Err(error)) => Err(classify(error)),
        Err(_elapsed) => Err(DialError::TimedOut),
    }
}

fn classify(error: io::Error) -> DialError {
    use nix::errno::Errno;
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED | Errno::ECONNRESET) => DialError::Refused,
        Some(Errno::ETIMEDOUT) => DialError::TimedOut,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::EADDRNOTAVAIL | Errno::EAGAIN) => {
            DialError::Exhausted(error)
        }
        _ => DialError::Unreachable(error),
    }
}

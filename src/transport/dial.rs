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
    /// The kind of address can't be dialled yet.
    #[error("addresses of this kind are not supported yet")]
    Unsupported,
}

impl DialError {
    /// Who is to blame: only a server's fault is evidence against it.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Refused | Self::TimedOut | Self::Unreachable(_) | Self::Handshake(_) => Blame::Server,
            Self::Exhausted(_) | Self::Unsupported => Blame::Us,
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

//! Listening sockets: opened by the main thread, accepted from by the workers.
//!
//! Every worker gets a socket of its own for each address (`SO_REUSEPORT`): the kernel deals connections out, and no worker
//! wakes another. It tells of a connection when its first bytes have come, or [`DEFER`] is over: one whose client says nothing
//! costs no descriptor, and one whose request is there is served without a wait. The address is bound once without the option
//! first, so that a port in use is noticed. A unix socket is one for all workers (`unix_socket`).

mod unix_socket;

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::base::id::ListenerIndex;
use crate::pure::config::{self, ListenAddress};
use crate::request::connection;
use crate::request::stream::ClientStream;
use crate::request::worker::Worker;
use crate::shared::inbox::ListeningSocket;
use crate::shared::spaced::Spaced;
use crate::transport::client_tcp::ClientTcp;
use crate::transport::socket::defer_accept;
use crate::transport::tls::TlsAcceptor;

pub use unix_socket::{SocketFile, open as open_unix};

/// How long the kernel keeps a connection to itself of which nothing has come, in seconds (tcp(7), `TCP_DEFER_ACCEPT`).
const DEFER: i32 = 1;

/// How long what is on its way on a connection that the kernel keeps to itself is waited for when the accepting ends: such a
/// connection would be reset.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// The queue of connections that the kernel keeps for a socket.
const BACKLOG: i32 = 4096;
/// Waits after an accept that failed for want of descriptors or memory: doubled from the first to the last.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How often a worker that holds the most connections looks whether one has gone elsewhere.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// An address that can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {cause}")]
pub struct ListenError {
    /// The address.
    pub address: ListenAddress,
    /// Why.
    #[source]
    pub cause: io::Error,
}

/// What all connections of a listener share.
#[derive(Debug)]
pub struct Listener {
    /// Its position in the configuration.
    pub index: ListenerIndex,
    /// Its address as configured, for logs.
    pub name: String,
    /// Its settings.
    pub config: config::Listener,
    /// The address that it is bound to; the port is never 0. That of a unix socket stands in for it.
    pub local: SocketAddr,
    /// The TLS settings, where it speaks TLS.
    pub tls: Option<TlsAcceptor>,
    /// When trouble with its clients was last told.
    pub said: Said,
}

/// When each kind of trouble with clients was last told.
#[derive(Debug, Default)]
pub struct Said {
    /// Connections that could not be accepted.
    pub accepts: Spaced,
    /// PROXY headers that were refused.
    pub headers: Spaced,
    /// TLS handshakes that failed.
    pub handshakes: Spaced,
    /// Streams of HTTP/2 that were refused.
    pub streams: Spaced,
    /// HTTP/2 connections that were ended by a fault of their clients.
    pub faults: Spaced,
}

impl Listener {
    /// The address that it is bound to, as operators know it.
    pub fn place(&self) -> String {
        match &self.config.address {
            ListenAddress::Socket(_) => self.local.to_string(),
            unix @ ListenAddress::Unix(_) => unix.to_string(),
        }
    }
}

/// Opens `count` sockets for `address`.
///
/// # Errors
/// [`ListenError`] where the address is in use, not ours, or not allowed.
pub fn open(address: SocketAddr, count: usize) -> Result<(SocketAddr, Vec<TcpListener>), ListenError> {
    let wrap = |cause| ListenError { address: ListenAddress::Socket(address), cause };
    if address.port() != 0 {
        drop(bind(address, false).map_err(wrap)?);
    }
    // A free port of the system's choice is held from the first socket on, lest another takes it.
    let mut local = address;
    let sockets = (0..count.max(1))
        .map(|_| {
            let socket = bind(local, true)?;
            local = socket.local_addr()?.as_socket().unwrap_or(local);
            socket.listen(BACKLOG)?;
            defer_accept(&socket, DEFER)?;
            socket.set_nonblocking(true)?;
            Ok(TcpListener::from(socket))
        })
        .collect::<io::Result<Vec<_>>>()
        .map_err(wrap)?;
    Ok((local, sockets))
}

fn bind(address: SocketAddr, is_shared: bool) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM.cloexec(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` means both families, as operators expect of a proxy.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // Heads and small bodies leave in one write: waiting for more would only delay them. Accepted sockets inherit it.
    socket.set_tcp_nodelay(true)?;
    if is_shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A listening socket on this thread's runtime.
#[derive(Debug)]
pub enum Socket {
    /// On an IP address.
    Tcp(AsyncFd<TcpListener>),
    /// On a file.
    Unix(tokio::net::UnixListener),
}

impl Socket {
    /// Puts a socket on this thread's runtime.
    ///
    /// # Errors
    /// Where the system does not watch it.
    pub fn new(socket: ListeningSocket) -> io::Result<Self> {
        Ok(match socket {
            ListeningSocket::Tcp(socket) => {
                // SAFETY: a socket of the standard library has the same descriptor, and keeps it open, for as long as it lives.
                Self::Tcp(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
            }
            ListeningSocket::Unix(socket) => Self::Unix(tokio::net::UnixListener::from_std(socket)?),
        })
    }

    async fn accept(&self) -> io::Result<(ClientStream, SocketAddr)> {
        match self {
            Self::Tcp(socket) => {
                let (stream, peer) = socket.async_io(Interest::READABLE, ClientTcp::accept).await?;
                Ok((ClientStream::Plain(stream), peer))
            }
            Self::Unix(socket) => {
                let (stream, _unnamed) = socket.accept().await?;
                Ok((ClientStream::Unix(stream), UNIX_PEER))
            }
        }
    }

    fn into_std(self) -> io::Result<ListeningSocket> {
        match self {
            Self::Tcp(socket) => Ok(ListeningSocket::Tcp(socket.into_inner())),
            Self::Unix(socket) => socket.into_std().map(ListeningSocket::Unix),
        }
    }
}

/// What stands for the address of a peer that has none.
const UNIX_PEER: SocketAddr = SocketAddr::new(ListenAddress::peer(), 0);

/// The end of a socket's accepting: asked for by the worker, reached when the kernel's queue is empty, for what waits there
/// would be reset.
#[derive(Debug, Default)]
pub struct Closing {
    is_wanted: Cell<bool>,
    is_done: Cell<bool>,
    wanted: Notify,
}

impl Closing {
    /// Asks for the end.
    pub fn close(&self) {
        self.is_wanted.set(true);
        self.wanted.notify_one();
    }

    /// Whether the socket is closed.
    pub fn is_closed(&self) -> bool {
        self.is_done.get()
    }
}

/// Accepts from one socket until its end is asked for.
pub async fn accept(worker: Rc<Worker>, listener: Arc<Listener>, socket: Socket, closing: Rc<Closing>) {
    let mut back_off = BACK_OFF.0;
    while !closing.is_wanted.get() {
        if worker.shared.connections.is_full() {
            tokio::time::sleep(FULL_PAUSE).await;
            continue;
        }
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = closing.wanted.notified() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                back_off = BACK_OFF.0;
                take_place(&worker, &closing).await;
                connection::spawn(&worker, &listener, stream, peer);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                worker.shared.say_accept_error(&error, &listener);
                tokio::time::sleep(back_off).await;
                back_off = (back_off * 2).min(BACK_OFF.1);
            }
        }
    }
    if let Socket::Tcp(socket) = &socket
        && defer_accept(socket, 0).is_ok()
    {
        tokio::time::sleep(STRAGGLERS).await;
    }
    accept_rest(&worker, &listener, socket);
    closing.is_done.set(true);
}

/// Accepts what waits in the kernel's queue, and closes the socket. The runtime's own accept would not do: it may not know
/// yet of what has come since it last looked.
fn accept_rest(worker: &Rc<Worker>, listener: &Arc<Listener>, socket: Socket) {
    let Ok(socket) = socket.into_std() else { return };
    for _ in 0..=BACKLOG {
        match accept_now(&socket) {
            Ok((stream, peer)) => {
                if let Ok(stream) = stream {
                    worker.shared.connections.enter();
                    connection::spawn(worker, listener, stream, peer);
                }
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => return,
        }
    }
}

/// Accepts a connection that waits; the inner error is that of a connection which can't be put on the runtime.
fn accept_now(socket: &ListeningSocket) -> io::Result<(io::Result<ClientStream>, SocketAddr)> {
    match socket {
        ListeningSocket::Tcp(socket) => {
            let (stream, peer) = ClientTcp::accept(socket)?;
            Ok((Ok(ClientStream::Plain(stream)), peer))
        }
        ListeningSocket::Unix(socket) => {
            let (stream, _unnamed) = socket.accept()?;
            let stream = stream.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(stream));
            Ok((stream.map(ClientStream::Unix), UNIX_PEER))
        }
    }
}

/// Counts an accepted connection. Where others have taken the last place since the wait for it began, it waits unserved.
async fn take_place(worker: &Worker, closing: &Closing) {
    let connections = &worker.shared.connections;
    while !connections.try_enter() {
        if closing.is_wanted.get() {
            return connections.enter();
        }
        tokio::time::sleep(FULL_PAUSE).await;
    }
}

/// Whether an accept failed because its connection did not live long enough.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_one_listener_share_a_port_and_those_of_two_never_do() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let opened: Vec<_> = (0..100).map(|_| open(any, 3).unwrap()).collect();
        let ports: std::collections::HashSet<u16> = opened.iter().map(|(local, _)| local.port()).collect();
        assert_eq!(ports.len(), opened.len());
        for (local, sockets) in &opened {
            assert_ne!(local.port(), 0);
            assert!(sockets.iter().all(|socket| socket.local_addr().unwrap() == *local));
            assert!(open(*local, 1).is_err(), "a port in use is noticed");
        }
    }
}

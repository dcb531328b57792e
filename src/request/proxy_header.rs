//! The PROXY header that every connection to a listener with `proxy-protocol` begins with: read before TLS and HTTP, to its
//! last byte and no further, and believed from trusted proxies only.
//!
//! What has come is looked at before it is read, so that nothing that follows is taken from those who read on. What is a part
//! of the header for certain is read at once: a header that comes in pieces is waited for without looking twice.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::pure::proxy_protocol::{HEADER_MAX, HeaderError, Parsed, Source, parse};
use crate::pure::trust::is_trusted;
use crate::request::connection::before_requests;
use crate::request::deadlines::Deadline;
use crate::request::listener::Listener;
use crate::request::stream::ClientStream;
use crate::request::worker::{ConnectionTicket, Worker};

/// Whom a connection is for.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The client, or the proxy where it calls for itself or for a client that it does not name.
    pub peer: SocketAddr,
    /// Whether that is who calls.
    pub is_named: bool,
}

/// Why a connection is closed before anything else is read of it.
#[derive(Debug, thiserror::Error)]
pub enum HeaderRefused {
    /// Its peer is no trusted proxy.
    #[error("it is none of the `trusted-proxies`")]
    Stranger,
    /// It begins otherwise.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// It ended within the header.
    #[error("its PROXY header was cut short")]
    Cut,
    /// The header did not come within `header-timeout`.
    #[error("its PROXY header did not come in time")]
    Late,
    /// It broke.
    #[error("it broke: {0}")]
    Broken(#[from] io::Error),
}

/// Takes the header off a new connection, which then counts as one of the client that it names. `None`: the connection is to
/// be closed; that is counted and said, unless it has ended before its first byte.
pub async fn receive(
    worker: &Worker,
    listener: &Listener,
    deadline: &Rc<Deadline>,
    stream: &mut ClientStream,
    peer: SocketAddr,
    ticket: &mut ConnectionTicket,
) -> Option<Caller> {
    let received = if is_trusted(peer.ip().to_canonical(), &listener.config.trusted_proxies) {
        let mut begun = Vec::new();
        let header = before_requests(worker, deadline, |context| poll_header(context, stream, &mut begun)).await;
        header.unwrap_or(Err(HeaderRefused::Late))
    } else {
        Err(HeaderRefused::Stranger)
    };
    let caller = match received {
        Ok(Some(Source::Proxy)) => Caller { peer, is_named: true },
        Ok(Some(Source::Unnamed)) => Caller { peer, is_named: false },
        Ok(Some(Source::Client(endpoints))) => Caller { peer: endpoints.client, is_named: true },
        Ok(None) => return None,
        Err(refused) => {
            worker.shared.say_header_refused(&refused, peer, listener);
            return None;
        }
    };
    ticket.belongs_to(caller.peer.ip(), listener);
    Some(caller)
}

/// Reads what is there of the header, of which `begun` was read before. `None`: the connection has ended before its first
/// byte.
fn poll_header(
    context: &mut Context<'_>,
    stream: &mut ClientStream,
    begun: &mut Vec<u8>,
) -> Poll<Result<Option<Source>, HeaderRefused>> {
    loop {
        let mut bytes = [0; HEADER_MAX];
        // A part of a header is shorter than the longest.
        let room = bytes.get_mut(begun.len()..).unwrap_or_default();
        ready!(stream.poll_socket_readable(context))?;
        let seen = match stream.try_peek_socket(room, |_| false) {
            Ok(seen) => seen,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Poll::Ready(Err(error.into())),
        };
        if seen == 0 {
            return Poll::Ready(if begun.is_empty() { Ok(None) } else { Err(HeaderRefused::Cut) });
        }
        let before = begun.len();
        begun.extend_from_slice(room.get(..seen).unwrap_or_default());
        let (length, source) = match parse(begun)? {
            Parsed::Partial => (begun.len(), None),
            Parsed::Complete(header) => (header.length, Some(header.source)),
        };
        let read = match stream.try_read_socket(bytes.get_mut(before..length).unwrap_or_default()) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Poll::Ready(Err(error.into())),
        };
        begun.truncate(before + read);
        if source.is_some() && begun.len() == length {
            return Poll::Ready(Ok(source));
        }
    }
}

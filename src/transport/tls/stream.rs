//! A client's TLS connection over TCP, which owns no buffer while it idles.
//!
//! rustls's own connection type keeps 4 KiB to read into for as long as the connection lives, and reads no more than that
//! at once. Here ciphertext is read into a buffer that all connections of a thread share, and written from another, in one
//! piece with whatever has to go before it.
//!
//! It refuses to take the end of the stream for the end of what the client had to say where the client did not say so
//! (RFC 8446 section 6.1): reading then ends in `UnexpectedEof`.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ProtocolVersion;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::pure::identity::ClientIdentity;
use crate::pure::persistence::SessionIdentity;
use crate::transport::socket;
use crate::transport::tls::ClientCertificates;
use crate::transport::tls::client_policy::identity_of;
use crate::transport::tls::session::Session;
use crate::transport::tls::session_tickets::SessionTickets;

/// The longest record on the wire, in bytes: 2¹⁴ of content and what encryption may add (RFC 5246 6.2.3).
const RECORD_MAX: usize = 5 + 16 * 1024 + 2048;
/// What is read at once, at least, so that a small record comes whole.
const READ_MIN: usize = 4 * 1024;
/// What is read at once, at most.
const READ_MAX: usize = 64 * 1024;
/// What a record adds to its content, at most, as far as reading is concerned: a guess that costs nothing when wrong.
const RECORD_OVERHEAD: usize = 64;
/// The most plaintext that is encrypted at once.
pub(super) const WRITE_MAX: usize = 64 * 1024;
/// Several small pieces become one record up to here.
const GATHER_MAX: usize = 16 * 1024;
/// Ciphertext that may wait to go with what is written next; more than that has to go first.
const WAIT_MAX: usize = 4 * 1024;
/// Room for what encryption adds to [`WRITE_MAX`] and for messages of rustls.
const WRITE_OVERHEAD: usize = 1024;
/// Where so much waits that a client does not take, it is not read from either: it could make us answer without end.
pub(super) const UNTAKEN_MAX: usize = WAIT_MAX + WRITE_MAX + WRITE_OVERHEAD;

/// The buffers that all connections of a thread work in, for the length of one call.
struct Scratch {
    incoming: Box<[u8]>,
    outgoing: Box<[u8]>,
    gathered: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        incoming: vec![0; RECORD_MAX + READ_MAX].into(),
        outgoing: vec![0; UNTAKEN_MAX].into(),
        gathered: Vec::with_capacity(GATHER_MAX),
    });
}

/// A client's TLS connection.
#[derive(Debug)]
pub struct TlsStream {
    tcp: TcpStream,
    session: Session,
    demand: ClientCertificates,
    /// Whether the last read took all the room there was.
    is_streaming: bool,
    identity: Option<Arc<ClientIdentity>>,
    tickets: Option<Arc<SessionTickets>>,
}

impl TlsStream {
    /// A connection whose handshake, which has not begun, has to meet `demand`.
    pub(super) const fn new(tcp: TcpStream, session: Session, demand: ClientCertificates) -> Self {
        Self { tcp, session, demand, is_streaming: false, identity: None, tickets: None }
    }

    /// The same with tickets of its own, which carry the identity of its session.
    #[must_use]
    pub(super) fn with_tickets(mut self, tickets: Option<Arc<SessionTickets>>) -> Self {
        self.tickets = tickets;
        self
    }

    /// The identity of the session, where the listener's sessions have one.
    pub fn session_identity(&self) -> Option<SessionIdentity> {
        self.tickets.as_ref().and_then(|tickets| tickets.identity())
    }

    /// What was demanded of the client's certificate.
    pub const fn demand(&self) -> ClientCertificates {
        self.demand
    }

    /// Who the client has shown to be, by a certificate that was verified, now or in the session that it has resumed.
    pub const fn identity(&self) -> Option<&Arc<ClientIdentity>> {
        self.identity.as_ref()
    }

    /// Looks who the client is, once the handshake is done.
    ///
    /// # Errors
    /// Where the subject of its certificate can't be put into a field.
    pub(super) fn identify(&mut self) -> io::Result<()> {
        if let Some(chain) = self.session.agreed().peer_certificates() {
            let identity = identity_of(chain).ok_or(io::ErrorKind::InvalidData)?;
            self.identity = Some(Arc::new(identity));
        }
        Ok(())
    }

    /// Waits until a read would get something, without a buffer in hand.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.session.plain.rest().is_empty() || self.session.is_ended {
            return Poll::Ready(Ok(()));
        }
        self.tcp.poll_read_ready(context)
    }

    /// The TCP connection below.
    pub const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// The TLS version as it is logged: `TLSv1.3`.
    pub fn version(&self) -> Option<&'static str> {
        match self.session.agreed().protocol_version()? {
            ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
            ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
            _ => None,
        }
    }

    /// What else both sides have agreed on: suite, group, protocol, whether a session was resumed.
    pub fn agreed(&self) -> &rustls::CommonState {
        self.session.agreed()
    }

    /// Whether both sides have agreed on HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.agreed().alpn_protocol() == Some(crate::transport::tls::HTTP2)
    }

    /// The name that the client asked for, in lower case without trailing dot.
    pub fn server_name(&self) -> Option<&str> {
        self.session.server_name()
    }

    /// Goes on with the handshake; ready when it is done. What is to be said last may wait for the first answer, where the
    /// client's first request has come already.
    pub(super) fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.session.is_open && !self.session.plain.rest().is_empty() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_drain(context))?;
            if self.session.is_open {
                return Poll::Ready(Ok(()));
            }
            if self.session.is_ended {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            ready!(self.poll_receive(context, &mut ReadBuf::new(&mut [])))?;
        }
    }

    /// Works through what a client has sent first.
    pub(super) fn receive_first(&mut self, input: &mut [u8]) -> io::Result<()> {
        // Nothing can be decrypted before we have said something.
        let result = self.session.receive(input, |_| ());
        result.map_err(|error| self.fail(error))
    }

    /// An error of the protocol; the client is told, if it takes that at once.
    #[cold]
    fn fail(&mut self, error: rustls::Error) -> io::Error {
        let _ = self.tcp.try_write(self.session.outgoing.rest());
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    /// Reads ciphertext once and decrypts it into `buffer`; what has no room there is kept.
    fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let start = self.session.incoming().len();
            let (Some(kept), wanted) = (
                scratch.incoming.get_mut(..start),
                start + (buffer.remaining() + RECORD_OVERHEAD).clamp(READ_MIN, READ_MAX),
            ) else {
                // rustls refuses longer records, and longer messages in several of them.
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            };
            kept.copy_from_slice(self.session.incoming());
            let wanted = wanted.min(scratch.incoming.len());
            let room = scratch.incoming.get_mut(start..wanted).unwrap_or_default();
            if room.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let count = ready!(socket::poll_read(&mut self.tcp, context, room, self.is_streaming))?;
            self.is_streaming = count == room.len();
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            let input = scratch.incoming.get_mut(..start + count).unwrap_or_default();
            let mut beyond = Vec::new();
            let result = self.session.receive(input, |plain| {
                let (fitting, rest) = plain.split_at(plain.len().min(buffer.remaining()));
                buffer.put_slice(fitting);
                beyond.extend_from_slice(rest);
            });
            self.session.plain.push(&beyond);
            Poll::Ready(result.map_err(|error| self.fail(error)))
        })
    }

    /// Writes what waits.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.session.outgoing.rest().is_empty() {
            let count =
                ready!(socket::poll_write(&mut self.tcp, context, &[IoSlice::new(self.session.outgoing.rest())]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.session.outgoing.take(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Makes ciphertext with `make`, and writes it behind what waits; what the socket does not take waits then.
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        out: &mut [u8],
        make: impl FnOnce(&mut Session, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let waiting = self.session.outgoing.rest();
        let start = waiting.len();
        let (front, room) = out.split_at_mut_checked(start).ok_or(io::ErrorKind::OutOfMemory)?;
        front.copy_from_slice(waiting);
        let end = start + make(&mut self.session, room)?;
        let made = out.get(..end).unwrap_or_default();
        match socket::poll_write(&mut self.tcp, context, &[IoSlice::new(made)]) {
            Poll::Ready(Ok(count)) if count >= end => self.session.outgoing.take(start),
            Poll::Ready(Ok(count)) => self.session.outgoing.set(made.get(count..).unwrap_or_default()),
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => self.session.outgoing.set(made),
        }
        Ok(())
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let kept = self.session.plain.rest();
        let count = kept.len().min(buffer.remaining());
        buffer.put_slice(kept.get(..count).unwrap_or_default());
        self.session.plain.take(count);
        while buffer.filled().len() == filled && buffer.remaining() > 0 && !self.session.is_ended {
            // What has to be said to what was read goes now; where it can't, reading goes on up to a bound.
            if self.poll_drain(context)?.is_pending() && self.session.outgoing.rest().len() > 2 * UNTAKEN_MAX {
                return Poll::Pending;
            }
            ready!(self.poll_receive(context, buffer))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    /// Encrypts and writes. What the socket does not take waits here, 64 KiB at most: a flush sees it off.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.session.outgoing.rest().len() > WAIT_MAX {
            ready!(self.poll_drain(context))?;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut pieces = slices.iter().filter(|slice| !slice.is_empty()).peekable();
            let Some(first) = pieces.next() else { return Poll::Ready(Ok(0)) };
            let plain = if pieces.peek().is_none() || first.len() >= GATHER_MAX {
                first.get(..WRITE_MAX).unwrap_or(first)
            } else {
                scratch.gathered.clear();
                for piece in std::iter::once(first).chain(pieces) {
                    let room = GATHER_MAX - scratch.gathered.len();
                    scratch.gathered.extend_from_slice(piece.get(..room).unwrap_or(piece));
                }
                &scratch.gathered
            };
            self.poll_send(context, &mut scratch.outgoing, |session, room| session.send(plain, room))?;
            Poll::Ready(Ok(plain.len()))
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_drain(context)
    }

    /// Says that nothing more comes, then ends our side of the TCP connection.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.session.outgoing.rest().len() > WAIT_MAX {
            ready!(self.poll_drain(context))?;
        }
        if !self.session.has_said_end {
            SCRATCH.with_borrow_mut(|scratch| self.poll_send(context, &mut scratch.outgoing, Session::say_end))?;
        }
        ready!(self.poll_drain(context))?;
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;

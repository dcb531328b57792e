//! A client's TLS session without its socket: ciphertext in, plaintext out, and the other way round.
//!
//! rustls works on buffers that the caller lends. What can't go on at once is kept here: a record that has not come whole,
//! plaintext that nobody has read yet, ciphertext that the socket did not take. Each is given back as soon as it is empty, so
//! that an idle session owns none. It refuses to read and to write, and to go on after an error.
//!
//! rustls remembers places in the bytes that it was lent last, and panics where they are gone: whenever it may look at
//! bytes, it gets those that it has not discarded.

use std::io;
use std::sync::Arc;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus, WriteTraffic};
use rustls::{CommonState, ServerConfig};

use crate::transport::tls::table::take_asked_name;

/// A session, from the client's first bytes on.
pub(super) struct Session {
    tls: UnbufferedServerConnection,
    server_name: Option<Box<str>>,
    /// The front of a record whose end has not come.
    incoming: Vec<u8>,
    /// Plaintext that nobody has read yet.
    pub(super) plain: Kept,
    /// Ciphertext that has to go before all other.
    pub(super) outgoing: Kept,
    /// Whether the handshake is done.
    pub(super) is_open: bool,
    /// Whether the client has said that nothing more comes from it.
    pub(super) is_ended: bool,
    /// Whether we have said that nothing more comes from us.
    pub(super) has_said_end: bool,
    /// What ended the session before its time. rustls must not be asked again then: it would look for bytes that are gone.
    failure: Option<rustls::Error>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Bytes that are taken from the front; their memory is given back with the last of them.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    taken: usize,
}

impl Kept {
    /// What is left.
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// Takes so many bytes off the front.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.bytes.len() {
            *self = Self::default();
        }
    }

    /// Keeps these bytes and nothing else.
    pub(super) fn set(&mut self, bytes: &[u8]) {
        *self = Self { bytes: bytes.to_vec(), taken: 0 };
    }

    /// Keeps these bytes too.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a message of rustls.
    fn push_message(&mut self, mut message: EncodeTlsData<'_, ServerConnectionData>) {
        // Asked without room, it says how much it needs.
        if let Err(EncodeError::InsufficientSize(needed)) = message.encode(&mut []) {
            let start = self.bytes.len();
            self.bytes.resize(start + needed.required_size, 0);
            let written = message.encode(self.bytes.get_mut(start..).unwrap_or_default()).unwrap_or(0);
            self.bytes.truncate(start + written);
        }
    }
}

impl Session {
    /// A session that has seen nothing.
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self {
            tls: UnbufferedServerConnection::new(config)?,
            server_name: None,
            incoming: Vec::new(),
            plain: Kept::default(),
            outgoing: Kept::default(),
            is_open: false,
            is_ended: false,
            has_said_end: false,
            failure: None,
        })
    }

    /// What both sides have agreed on.
    pub(super) fn agreed(&self) -> &CommonState {
        &self.tls
    }

    /// The name that the client asked for, in lower case without trailing dot.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The front of a record whose end has not come: it belongs before what comes next.
    pub(super) fn incoming(&self) -> &[u8] {
        &self.incoming
    }

    /// Works through ciphertext that came, [`Self::incoming`] at its front, and gives what the client says to `sink`. What
    /// has to be said to that waits in [`Self::outgoing`], also after an error.
    ///
    /// # Errors
    /// [`rustls::Error`] where the client breaks the protocol; the session is over.
    pub(super) fn receive(&mut self, input: &mut [u8], sink: impl FnMut(&[u8])) -> Result<(), rustls::Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let is_hello = !self.is_open && self.server_name.is_none();
        if is_hello {
            take_asked_name();
        }
        let done = self.work_through(input, sink).inspect_err(|error| {
            self.failure = Some(error.clone());
            self.incoming = Vec::new();
        })?;
        self.incoming = input.get(done..).unwrap_or_default().to_vec();
        if is_hello {
            self.server_name = take_asked_name();
        }
        Ok(())
    }

    /// Works through ciphertext until more is needed, and gives how much of it is used up.
    fn work_through(&mut self, input: &mut [u8], mut sink: impl FnMut(&[u8])) -> Result<usize, rustls::Error> {
        let mut done = 0;
        loop {
            let rest = input.get_mut(done..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state, .. } = self.tls.process_tls_records(rest);
            let mut is_through = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        sink(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(message)) => self.outgoing.push_message(message),
                Ok(ConnectionState::TransmitTlsData(messages)) => messages.done(),
                Ok(ConnectionState::PeerClosed) => self.is_ended = true,
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.is_open = true;
                    is_through = true;
                }
                // More has to come. Early data, the last kind there is, is never offered.
                Ok(_) => is_through = true,
                Err(error) => {
                    self.push_alert(input.get_mut(done + discard..).unwrap_or_default());
                    return Err(error);
                }
            }
            done += discard;
            if is_through {
                return Ok(done);
            }
        }
    }

    /// What the client has to be told about an error, where `rest` of what it sent is not used up. rustls is asked only
    /// while it has something to say: then it does not look at the bytes again.
    #[cold]
    fn push_alert(&mut self, rest: &mut [u8]) {
        while self.agreed().wants_write() {
            match self.tls.process_tls_records(rest).state {
                Ok(ConnectionState::EncodeTlsData(message)) => self.outgoing.push_message(message),
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Encrypts `plain` into `out`, and gives how many bytes of it are used.
    ///
    /// # Errors
    /// Where `out` is too small, or the session is over.
    pub(super) fn send(&mut self, plain: &[u8], out: &mut [u8]) -> io::Result<usize> {
        self.produce(out, |traffic, room| traffic.encrypt(plain, room).map_err(io::Error::other))
    }

    /// Writes into `out` that nothing more comes from us (RFC 8446 6.1), and gives how many bytes of it are used.
    ///
    /// # Errors
    /// Where `out` is too small, or the session is over.
    pub(super) fn say_end(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.has_said_end = true;
        self.produce(out, |traffic, room| traffic.queue_close_notify(room).map_err(io::Error::other))
    }

    fn produce(
        &mut self,
        out: &mut [u8],
        make: impl Fn(&mut WriteTraffic<'_, ServerConnectionData>, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if let Some(failure) = &self.failure {
            return Err(io::Error::other(failure.clone()));
        }
        let mut used = 0;
        loop {
            let UnbufferedStatus { discard, state, .. } = self.tls.process_tls_records(&mut self.incoming);
            let room = out.get_mut(used..).unwrap_or_default();
            let mut is_made = false;
            let written = match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    is_made = true;
                    make(&mut traffic, room)
                }
                // Messages of rustls that must go first.
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    message.encode(room).map_err(|error| io::Error::other(format!("{error:?}")))
                }
                Ok(ConnectionState::TransmitTlsData(messages)) => {
                    messages.done();
                    Ok(0)
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_ended = true;
                    Ok(0)
                }
                Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
                Err(error) => {
                    self.failure = Some(error.clone());
                    Err(io::Error::other(error))
                }
            };
            self.incoming.drain(..discard.min(self.incoming.len()));
            used += written?;
            if is_made {
                return Ok(used);
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! One request at an origin, in the hands of a handler: its head, its body piece by piece, and any bytes as its answer.
//!
//! Everything the handler reads is recorded as it comes. Framing that is ambiguous ends the connection, and the record says
//! so: an origin must never see any.

use super::super::deadline::{DEADLINE, Deadline};
use super::super::message::{Fields, Framing, Head};
use super::super::wire::{BodyReader, End, Wire};

/// The most of a body that is kept.
const KEPT: usize = 1 << 20;

/// A request as the origin got it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The number of its connection, from 1.
    pub connection: usize,
    /// Its head.
    pub head: Head,
    /// The first MiB of its body.
    pub body: Vec<u8>,
    /// The bytes of its body that were read.
    pub body_length: u64,
    /// Its trailers.
    pub trailers: Fields,
    /// Whether the body was read to its proper end.
    pub is_complete: bool,
    /// Why the body broke off.
    pub broken: Option<End>,
}

impl Recorded {
    pub(super) const fn new(connection: usize, head: Head) -> Self {
        Self {
            connection,
            head,
            body: Vec::new(),
            body_length: 0,
            trailers: Vec::new(),
            is_complete: false,
            broken: None,
        }
    }
}

type Record<'a> = &'a dyn Fn(&mut dyn FnMut(&mut Recorded));

/// One request and its connection.
pub struct Exchange<'a> {
    wire: &'a mut Wire,
    /// The request's head.
    pub head: Head,
    body: BodyReader,
    record: Record<'a>,
    keep: bool,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(wire: &'a mut Wire, head: Head, record: Record<'a>) -> Self {
        let framing = head.request_framing();
        let broken = framing.as_ref().err().cloned().map(End::Malformed);
        let framing = framing.unwrap_or(Framing::None);
        let is_complete = broken.is_none() && framing == Framing::None;
        let keep = broken.is_none();
        record(&mut |recorded| {
            recorded.broken.clone_from(&broken);
            recorded.is_complete = is_complete;
        });
        Self { wire, head, body: BodyReader::new(framing), record, keep }
    }

    /// The next piece of the request's body; `None` at its end, proper or not.
    pub fn piece(&mut self) -> Option<Vec<u8>> {
        if self.body.is_complete() || !self.keep {
            return None;
        }
        let piece = self.body.piece(self.wire, Deadline::after(DEADLINE));
        let (is_complete, trailers) = (self.body.is_complete(), &self.body.trailers);
        (self.record)(&mut |recorded| {
            recorded.is_complete = is_complete;
            recorded.trailers.clone_from(trailers);
            match &piece {
                Ok(piece) => {
                    let piece = piece.as_deref().unwrap_or_default();
                    recorded.body_length += piece.len() as u64;
                    let room = KEPT - recorded.body.len();
                    recorded.body.extend_from_slice(&piece[..piece.len().min(room)]);
                }
                Err(end) => recorded.broken = Some(end.clone()),
            }
        });
        self.keep &= piece.is_ok();
        piece.ok().flatten()
    }

    /// Reads the request's body to its end; `false`: it broke off.
    pub fn read_body(&mut self) -> bool {
        while self.piece().is_some() {}
        self.body.is_complete()
    }

    /// Writes these bytes; `false`: the peer does not take them.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let written = self.wire.write(bytes.as_ref(), Deadline::after(DEADLINE)).is_ok();
        self.keep &= written;
        written
    }

    /// Writes an answer with a Content-Length.
    pub fn respond(&mut self, status: u16, fields: &[(&str, &str)], body: &[u8]) -> bool {
        let mut answer = format!("HTTP/1.1 {status} Made Up\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in fields {
            answer.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut answer = format!("{answer}\r\n").into_bytes();
        if self.head.method() != "HEAD" {
            answer.extend_from_slice(body);
        }
        self.write(answer)
    }

    /// Raw bytes from the peer, whatever they are: at least one.
    ///
    /// # Errors
    /// Why none came.
    pub fn raw(&mut self) -> Result<Vec<u8>, End> {
        let buffered = self.wire.take_buffer();
        if !buffered.is_empty() {
            return Ok(buffered);
        }
        self.wire.more(Deadline::after(DEADLINE))?;
        Ok(self.wire.take_buffer())
    }

    /// Reads and forgets whatever comes until the peer ends, and says how it did.
    pub fn wait_for_end(&mut self) -> End {
        self.keep = false;
        loop {
            if let Err(end) = self.raw() {
                return end;
            }
        }
    }

    /// Ends our side of the connection; the peer's goes on.
    pub fn finish_writing(&mut self) {
        self.wire.finish_writing();
    }

    /// Closes the connection once the handler returns.
    pub const fn close(&mut self) {
        self.keep = false;
    }

    /// Resets the connection once the handler returns.
    pub fn reset(&mut self) {
        self.wire.reset_on_close();
        self.keep = false;
    }

    /// Whether the connection goes on: nobody wanted it closed, and the body can be read to its end.
    pub(super) fn is_kept(&mut self) -> bool {
        self.keep && self.read_body()
    }
}

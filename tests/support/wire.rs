//! One end of a connection: buffered reads with deadlines, heads, bodies piece by piece, and how it ended.
//!
//! It tells a clean end from a reset and from a TLS stream that was cut without `close_notify`, because tests must. It
//! refuses to guess: a malformed message is an [`End::Malformed`], never half a result.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;

use super::deadline::{Deadline, between_looks};
use super::message::{Fields, Framing, Head, field_line, latin1};

/// Why no more bytes came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer ended its side properly.
    Closed,
    /// TLS only: the connection ended without `close_notify`.
    Cut,
    /// The peer reset the connection.
    Reset,
    /// The deadline passed first.
    TimedOut,
    /// The bytes were no HTTP.
    Malformed(String),
}

/// A plain or a TLS stream.
pub trait Stream: Read + Write + Send {
    /// The socket below.
    fn socket(&self) -> &TcpStream;

    /// Ends our side; for TLS with `close_notify` first.
    ///
    /// # Errors
    /// The socket's.
    fn finish(&mut self) -> io::Result<()> {
        self.socket().shutdown(Shutdown::Write)
    }
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }

    fn finish(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()?;
        self.sock.shutdown(Shutdown::Write)
    }
}

/// One end of a connection.
pub struct Wire {
    stream: Box<dyn Stream>,
    /// What was read and not yet used.
    buffer: Vec<u8>,
}

fn end_of(error: &io::Error) -> End {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => End::TimedOut,
        ErrorKind::UnexpectedEof => End::Cut,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => End::Reset,
        _ => End::Malformed(error.to_string()),
    }
}

impl Wire {
    /// Takes over a stream.
    pub fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        self.stream.socket()
    }

    /// Reads once, at most 64 KiB.
    ///
    /// # Errors
    /// Why nothing came.
    pub fn more(&mut self, deadline: Deadline) -> Result<(), End> {
        let left = deadline.left().ok_or(End::TimedOut)?;
        self.socket().set_read_timeout(Some(left)).map_err(|error| end_of(&error))?;
        self.read_once()
    }

    fn read_once(&mut self) -> Result<(), End> {
        let mut piece = [0; 65_536];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(End::Closed),
                Ok(length) => {
                    self.buffer.extend_from_slice(&piece[..length]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(end_of(&error)),
            }
        }
    }

    /// Takes all that was read and not yet used.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Takes exactly `length` bytes.
    ///
    /// # Errors
    /// Why they did not come; what did stays in the buffer.
    pub fn exactly(&mut self, length: usize, deadline: Deadline) -> Result<Vec<u8>, End> {
        while self.buffer.len() < length {
            self.more(deadline)?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Takes what ends in `end`, that included.
    fn up_to(&mut self, end: &[u8], deadline: Deadline) -> Result<Vec<u8>, End> {
        let mut searched = 0_usize;
        loop {
            let from = searched.saturating_sub(end.len());
            if let Some(at) = self.buffer[from..].windows(end.len()).position(|window| window == end) {
                return Ok(self.buffer.drain(..from + at + end.len()).collect());
            }
            searched = self.buffer.len();
            self.more(deadline)?;
        }
    }

    /// Takes a head.
    ///
    /// # Errors
    /// Why none came.
    pub fn head(&mut self, deadline: Deadline) -> Result<Head, End> {
        let raw = self.up_to(b"\r\n\r\n", deadline)?;
        Head::parse(&raw).map_err(End::Malformed)
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Why not.
    pub fn write(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), End> {
        let left = deadline.left().ok_or(End::TimedOut)?;
        self.socket().set_write_timeout(Some(left)).map_err(|error| end_of(&error))?;
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).map_err(|error| end_of(&error))
    }

    /// Writes `piece` over and over until `total` bytes are written, reading whatever comes meanwhile, and stops as soon
    /// as `is_enough` of what was read or the other side has ended. Gives back how much was written, and the end if it came.
    pub fn write_while_reading(
        &mut self,
        piece: &[u8],
        total: u64,
        deadline: Deadline,
        is_enough: impl Fn(&[u8]) -> bool,
    ) -> (u64, Option<End>) {
        self.socket().set_nonblocking(true).expect("a socket can be made non-blocking");
        let (mut written, mut end) = (0, None);
        while written < total && !is_enough(&self.buffer) && end.is_none() {
            let offset = usize::try_from(written % piece.len() as u64).expect("below the piece's length");
            let length = piece.len().min(offset + usize::try_from(total - written).unwrap_or(usize::MAX));
            let wrote = match self.stream.write(&piece[offset..length]).and_then(|wrote| {
                // TLS keeps records of its own: what the socket does not take now is flushed by the next write.
                let flushed = self.stream.flush();
                flushed.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) })?;
                Ok(wrote)
            }) {
                Ok(wrote) => wrote,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => {
                    end = Some(end_of(&error));
                    0
                }
            };
            written += wrote as u64;
            match self.read_once() {
                Ok(()) => {}
                Err(End::TimedOut) if wrote == 0 && deadline.left().is_none() => end = Some(End::TimedOut),
                Err(End::TimedOut) if wrote == 0 => between_looks(),
                Err(End::TimedOut) => {}
                Err(found) => end = Some(found),
            }
        }
        self.socket().set_nonblocking(false).expect("a socket can be made blocking");
        (written, end)
    }

    /// Ends our side of the connection; the other may go on.
    pub fn finish_writing(&mut self) {
        // A peer that has gone has ended it already.
        let _ = self.stream.finish();
    }

    /// Makes the close of this connection a reset, which throws away what is on its way.
    pub fn reset_on_close(&self) {
        SockRef::from(self.socket()).set_linger(Some(Duration::ZERO)).expect("a socket takes SO_LINGER");
    }
}

/// Takes the framing off one body.
#[derive(Debug)]
pub struct BodyReader {
    state: State,
    /// The trailers, once the body is complete.
    pub trailers: Fields,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    ChunkLine,
    ChunkData(u64),
    UntilClose,
    Complete,
}

impl BodyReader {
    /// A reader for a body of that framing.
    pub const fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None => State::Complete,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkLine,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, trailers: Vec::new() }
    }

    /// Whether the whole body was read.
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// Why it was cut short.
    pub fn piece(&mut self, wire: &mut Wire, deadline: Deadline) -> Result<Option<Vec<u8>>, End> {
        loop {
            match self.state {
                State::Complete => return Ok(None),
                State::Length(left) => {
                    let piece = some_of(wire, left, deadline)?;
                    let left = left - piece.len() as u64;
                    self.state = if left == 0 { State::Complete } else { State::Length(left) };
                    return Ok(Some(piece));
                }
                State::UntilClose => match some_of(wire, u64::MAX, deadline) {
                    Err(End::Closed) => self.state = State::Complete,
                    piece => return piece.map(Some),
                },
                State::ChunkLine => self.chunk_line(wire, deadline)?,
                State::ChunkData(left) => return self.chunk_data(left, wire, deadline).map(Some),
            }
        }
    }

    fn chunk_line(&mut self, wire: &mut Wire, deadline: Deadline) -> Result<(), End> {
        let line = latin1(&wire.up_to(b"\r\n", deadline)?);
        let digits = line.trim_end_matches("\r\n").split(';').next().unwrap_or_default();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(End::Malformed(format!("no chunk size: {line:?}")));
        }
        let size = u64::from_str_radix(digits, 16).map_err(|error| End::Malformed(error.to_string()))?;
        if size > 0 {
            self.state = State::ChunkData(size);
            return Ok(());
        }
        loop {
            let line = latin1(&wire.up_to(b"\r\n", deadline)?);
            match line.trim_end_matches("\r\n") {
                "" => break,
                line => self.trailers.push(field_line(line).map_err(End::Malformed)?),
            }
        }
        self.state = State::Complete;
        Ok(())
    }

    fn chunk_data(&mut self, left: u64, wire: &mut Wire, deadline: Deadline) -> Result<Vec<u8>, End> {
        let piece = some_of(wire, left, deadline)?;
        let left = left - piece.len() as u64;
        self.state = State::ChunkData(left);
        if left == 0 {
            let end = wire.exactly(2, deadline)?;
            if end != b"\r\n" {
                return Err(End::Malformed(format!("a chunk ends in {end:?}")));
            }
            self.state = State::ChunkLine;
        }
        Ok(piece)
    }
}

/// Takes between one and `most` bytes.
fn some_of(wire: &mut Wire, most: u64, deadline: Deadline) -> Result<Vec<u8>, End> {
    if wire.buffer.is_empty() {
        wire.more(deadline)?;
    }
    let length = wire.buffer.len().min(usize::try_from(most).unwrap_or(usize::MAX));
    Ok(wire.buffer.drain(..length).collect())
}

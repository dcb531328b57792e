//! Bodies between HTTP/2 and HTTP/1.1, the same for clients' streams and servers': what has come and is still to be given, how
//! much room there is for what goes out, and the end of it. It refuses to know heads, and who is at the other end.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::SendStream;

use crate::base::h2_reset::H2Reset;
use crate::pure::h1::body::push_chunk_line;
use crate::pure::h2::trailers::read_trailers;

/// HTTP/1.1 bytes of a message that are still to be given: what was staged, and data behind it.
#[derive(Debug, Default)]
pub struct Inbound {
    staged: Vec<u8>,
    /// How much of `staged` is given.
    given: usize,
    data: Bytes,
    is_chunk: bool,
}

impl Inbound {
    /// Begins with these bytes.
    pub fn starting_with(staged: Vec<u8>) -> Self {
        Self { staged, ..Self::default() }
    }

    /// Where bytes go that come before the data.
    pub fn stage(&mut self) -> &mut Vec<u8> {
        if self.given == self.staged.len() {
            self.staged.clear();
            self.given = 0;
        }
        &mut self.staged
    }

    /// Takes in the data of a frame, which is not empty, all earlier data being given; `is_chunk`: as a chunk.
    pub fn put(&mut self, data: Bytes, is_chunk: bool) {
        if is_chunk {
            push_chunk_line(self.stage(), data.len());
        }
        self.data = data;
        self.is_chunk = is_chunk;
    }

    /// Whether all is given.
    pub fn is_empty(&self) -> bool {
        self.given == self.staged.len() && self.data.is_empty()
    }

    /// Puts at most `most` bytes behind those of `out`, and tells `release` how many of them were data: its sender may send as
    /// many again.
    pub fn give(&mut self, out: &mut Vec<u8>, most: usize, release: impl FnOnce(usize)) -> usize {
        let mut count = self.give_staged(out, most);
        let data = push_front(&self.data, out, most - count);
        if data > 0 {
            self.data.advance(data);
            release(data);
            count += data;
            if self.data.is_empty() && std::mem::take(&mut self.is_chunk) {
                self.stage().extend_from_slice(b"\r\n");
                count += self.give_staged(out, most - count);
            }
        }
        count
    }

    fn give_staged(&mut self, out: &mut Vec<u8>, most: usize) -> usize {
        let count = push_front(self.staged.get(self.given..).unwrap_or_default(), out, most);
        self.given += count;
        count
    }
}

/// Puts the front of `from`, at most `most` bytes of it, behind those of `out`.
fn push_front(from: &[u8], out: &mut Vec<u8>, most: usize) -> usize {
    let front = from.get(..most).unwrap_or(from);
    out.extend_from_slice(front);
    front.len()
}

/// Waits for room for some of `wanted` bytes on a stream, and says for how many there is.
///
/// # Errors
/// Where the stream takes nothing more.
pub fn poll_room(stream: &mut SendStream<Bytes>, context: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
    stream.reserve_capacity(wanted);
    let mut room = stream.capacity();
    while room == 0 {
        room = match ready!(stream.poll_capacity(context)) {
            Some(room) => room.map_err(io_error)?,
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
    }
    Poll::Ready(Ok(room.min(wanted)))
}

/// Ends a stream, with trailers as field lines.
///
/// # Errors
/// Where the stream takes nothing more.
pub fn send_end(stream: &mut SendStream<Bytes>, trailers: &[u8]) -> io::Result<()> {
    let trailers = read_trailers(trailers);
    let sent = if trailers.is_empty() { stream.send_data(Bytes::new(), true) } else { stream.send_trailers(trailers) };
    sent.map_err(io_error)
}

/// The reset that an error tells of, or what else it is.
pub fn io_error(error: h2::Error) -> io::Error {
    match error.reason() {
        Some(reason) if error.is_reset() => H2Reset(reason.into()).into(),
        _ if error.is_io() => error.into_io().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()),
        _ => io::Error::new(io::ErrorKind::ConnectionReset, error),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the room, the bytes are those of the chunked coding, and all data is released once.
        #[test]
        fn pieces_make_no_difference(
            head in prop::collection::vec(any::<u8>(), 0..40),
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..6),
            is_chunked: bool,
            rooms in prop::collection::vec(1usize..30, 1..8),
        ) {
            let mut inbound = Inbound::starting_with(head.clone());
            let (mut out, mut wanted, mut released) = (Vec::new(), head, 0);
            let mut rooms = rooms.into_iter().cycle();
            let mut drain = |inbound: &mut Inbound, out: &mut Vec<u8>| {
                while !inbound.is_empty() {
                    let (room, before) = (rooms.next().unwrap(), out.len());
                    let count = inbound.give(out, room, |data| released += data);
                    assert!(count <= room && out.len() == before + count);
                }
            };
            for frame in &frames {
                drain(&mut inbound, &mut out);
                inbound.put(Bytes::copy_from_slice(frame), is_chunked);
                if is_chunked {
                    push_chunk_line(&mut wanted, frame.len());
                }
                wanted.extend_from_slice(frame);
                if is_chunked {
                    wanted.extend_from_slice(b"\r\n");
                }
            }
            drain(&mut inbound, &mut out);
            prop_assert_eq!(out, wanted);
            prop_assert_eq!(released, frames.iter().map(Vec::len).sum::<usize>());
        }
    }
}

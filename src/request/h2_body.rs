//! Bodies between HTTP/2 and HTTP/1.1, the same for clients' streams and servers': what has come and is still to be given, and
//! the end of what goes out. It refuses to know heads, and who is at the other end.

use std::io;

use crate::base::h2_reset::H2Reset;
use crate::pure::h1::body::push_chunk_line;
use crate::pure::h2::multiplexer::StreamEnd;
use crate::pure::h2::trailers::{has_trailers, push_trailers};
use crate::transport::h2::Handle;

/// HTTP/1.1 bytes of a message that are still to be given: what was staged, and behind it data that the stream holds.
#[derive(Debug, Default)]
pub struct Inbound {
    staged: Vec<u8>,
    /// How much of `staged` is given.
    given: usize,
    /// Bytes of data that are still to be given.
    data: usize,
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

    /// So many bytes of data have come, and all earlier data is given; `is_chunk`: they are given as a chunk.
    pub fn put(&mut self, data: usize, is_chunk: bool) {
        debug_assert_eq!(self.data, 0, "data is left to be given");
        if is_chunk {
            push_chunk_line(self.stage(), data);
        }
        self.data = data;
        self.is_chunk = is_chunk;
    }

    /// Whether all is given.
    pub fn is_empty(&self) -> bool {
        self.given == self.staged.len() && self.data == 0
    }

    /// Puts at most `most` bytes behind those of `out`. `take` puts data there, at most so many bytes, and says how many.
    pub fn give(&mut self, out: &mut Vec<u8>, most: usize, take: impl FnOnce(&mut Vec<u8>, usize) -> usize) -> usize {
        let mut count = self.give_staged(out, most);
        let wanted = self.data.min(most - count);
        if wanted > 0 {
            let taken = take(out, wanted);
            self.data -= taken;
            count += taken;
            if self.data == 0 && std::mem::take(&mut self.is_chunk) {
                self.stage().extend_from_slice(b"\r\n");
                count += self.give_staged(out, most - count);
            }
        }
        count
    }

    fn give_staged(&mut self, out: &mut Vec<u8>, most: usize) -> usize {
        let left = self.staged.get(self.given..).unwrap_or_default();
        let front = left.get(..most).unwrap_or(left);
        out.extend_from_slice(front);
        self.given += front.len();
        front.len()
    }
}

/// Ends our side of a stream, with trailers as field lines.
///
/// # Errors
/// Where the stream takes nothing more.
pub fn send_end(stream: &Handle, trailers: &[u8]) -> io::Result<()> {
    let sent = if has_trailers(trailers) {
        stream.send_head(true, |encoder, out| push_trailers(encoder, out, trailers))
    } else {
        stream.send_data([], 0, true)
    };
    sent.map_err(io_error)
}

/// The error that a stream's end is for those who know only I/O errors.
pub fn io_error(end: StreamEnd) -> io::Error {
    match end {
        StreamEnd::Reset(reset) => reset.into(),
        StreamEnd::Refused => H2Reset::REFUSED_STREAM.into(),
        StreamEnd::Malformed => H2Reset::PROTOCOL_ERROR.into(),
        StreamEnd::Lost => io::ErrorKind::ConnectionReset.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the room, the bytes are those of the chunked coding, and all data is taken once.
        #[test]
        fn pieces_make_no_difference(
            head in prop::collection::vec(any::<u8>(), 0..40),
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..6),
            is_chunked: bool,
            rooms in prop::collection::vec(1usize..30, 1..8),
        ) {
            let mut inbound = Inbound::starting_with(head.clone());
            let (mut out, mut wanted, mut data) = (Vec::new(), head, Vec::new());
            let mut rooms = rooms.into_iter().cycle();
            let mut drain = |inbound: &mut Inbound, out: &mut Vec<u8>, data: &mut Vec<u8>| {
                while !inbound.is_empty() {
                    let (room, before) = (rooms.next().unwrap(), out.len());
                    let count = inbound.give(out, room, |out, most| {
                        let taken = most.min(data.len());
                        out.extend(data.drain(..taken));
                        taken
                    });
                    assert!(count <= room && out.len() == before + count);
                }
            };
            for frame in &frames {
                drain(&mut inbound, &mut out, &mut data);
                data.extend_from_slice(frame);
                inbound.put(frame.len(), is_chunked);
                if is_chunked {
                    push_chunk_line(&mut wanted, frame.len());
                }
                wanted.extend_from_slice(frame);
                if is_chunked {
                    wanted.extend_from_slice(b"\r\n");
                }
            }
            drain(&mut inbound, &mut out, &mut data);
            prop_assert_eq!(out, wanted);
            prop_assert!(data.is_empty());
        }
    }
}

//! What is to be sent: frames of streams, and the bytes that lie ready for the socket.

use super::stream::{Arrival, StreamEnd};
use super::{CLOGGED, Ending, Multiplexer, OUT_MAX, StreamKey};
use crate::pure::h2::field_rules::Malformed;
use crate::pure::h2::frames::{END_HEADERS, END_STREAM, FrameHeader, FrameKind, HEADER, PAYLOAD_MAX, push_frame};
use crate::pure::h2::hpack::{Encoder, FieldBlock};

/// What is kept of the memory of what was sent.
const SPARE: usize = 32 * 1024;

impl Multiplexer {
    /// What lies ready to be sent.
    pub fn output(&self) -> &[u8] {
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// Whether something lies ready.
    pub fn has_output(&self) -> bool {
        self.unsent() > 0
    }

    /// Whether so much lies ready that nothing more should be read before some of it is sent.
    pub fn is_clogged(&self) -> bool {
        self.unsent() >= CLOGGED
    }

    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// So many bytes of what lay ready are sent.
    pub fn advance(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.out.len());
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            if self.is_idle() {
                self.shrink();
            } else if self.out.capacity() > SPARE {
                self.out.shrink_to(SPARE);
            }
        } else if self.sent >= OUT_MAX {
            // One that takes all but a little each time would have it kept for ever.
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        self.serve_line();
    }

    /// Which identity a stream has.
    pub fn id(&self, key: StreamKey) -> u32 {
        self.streams.get(key).map_or(0, |stream| stream.id)
    }

    /// What is next on a stream.
    ///
    /// # Errors
    /// Why there is nothing, and will be nothing.
    pub fn arrival(&self, key: StreamKey) -> Result<Arrival, StreamEnd> {
        self.streams.get(key).map_or(Err(StreamEnd::Lost), |stream| stream.arrival())
    }

    /// Whether the other side has ended the stream, and neither data nor trailers are left to be taken.
    pub fn is_received(&self, key: StreamKey) -> bool {
        self.streams
            .get(key)
            .is_none_or(|stream| stream.is_received && stream.data.len() == stream.taken && stream.trailers.is_none())
    }

    /// Takes the head that is next.
    pub fn take_head(&mut self, key: StreamKey) -> Option<FieldBlock> {
        let stream = self.streams.get_mut(key)?;
        stream.interim.pop_front().or_else(|| stream.head.take())
    }

    /// So many bytes of data are to come in all, as the stream's head says.
    ///
    /// # Errors
    /// [`Malformed`] where more have come already, or the other side has ended the stream with less.
    pub fn expect(&mut self, key: StreamKey, length: u64) -> Result<(), Malformed> {
        let Some(stream) = self.streams.get_mut(key) else { return Ok(()) };
        let is_right = if stream.is_received { stream.received == length } else { stream.received <= length };
        stream.expected = Some(length);
        if is_right { Ok(()) } else { Err(Malformed) }
    }

    /// Takes the trailers, where all else has been taken.
    pub fn take_trailers(&mut self, key: StreamKey) -> Option<FieldBlock> {
        self.streams.get_mut(key)?.trailers.take()
    }

    /// Takes data: at most `most` bytes of it go behind those of `out`. The other side may send as much again.
    pub fn take_data(&mut self, key: StreamKey, out: &mut Vec<u8>, most: usize) -> usize {
        let Some(stream) = self.streams.get_mut(key) else { return 0 };
        let count = stream.take(out, most);
        let freed = u32::try_from(count).unwrap_or(0);
        self.free_of_stream(key, freed);
        self.free(freed);
        count
    }

    /// The other side may send so much more on a stream.
    pub(super) fn free_of_stream(&mut self, key: StreamKey, count: u32) {
        let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.end.is_none() && !stream.is_received)
        else {
            return;
        };
        stream.receive_owed += count;
        if stream.receive_owed >= self.own.stream_window / 2 {
            let owed = std::mem::take(&mut stream.receive_owed);
            stream.receive_window += owed;
            push_frame(&mut self.out, FrameKind::WindowUpdate, 0, stream.id, &owed.to_be_bytes());
        }
    }

    /// Throws away what has come of a stream's data and was not taken.
    pub fn discard(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        let left = u32::try_from(stream.data.len() - stream.taken).unwrap_or(0);
        (stream.data, stream.taken) = (Vec::new(), 0);
        self.free_of_stream(key, left);
        self.free(left);
    }

    /// The other side may send so much more on the connection.
    pub(super) fn free(&mut self, count: u32) {
        self.receive_owed += count;
        self.announce();
    }

    /// Tells the other side how much more it may send, where that is much, or as much as it still may: what some streams leave unread
    /// must not keep from the others what they have read.
    pub(super) fn announce(&mut self) {
        let due = (self.own.connection_window / 2).min(self.receive_window);
        if self.receive_owed > 0 && self.receive_owed >= due && self.ending != Ending::AtOnce {
            let owed = std::mem::take(&mut self.receive_owed);
            self.receive_window += owed;
            push_frame(&mut self.out, FrameKind::WindowUpdate, 0, 0, &owed.to_be_bytes());
        }
    }

    /// Sends a head, or trailers, whose fields `write` writes; `is_last`: our side ends with it.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn send_head(
        &mut self,
        key: StreamKey,
        is_last: bool,
        write: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) -> Result<(), StreamEnd> {
        self.sending(key)?;
        let id = self.begin_stream(key)?;
        let start = self.out.len();
        self.out.extend_from_slice(&[0; HEADER]);
        self.encoder.begin(&mut self.out);
        write(&mut self.encoder, &mut self.out);
        let length = self.out.len() - start - HEADER;
        let flags = if is_last { END_STREAM } else { 0 };
        if length <= PAYLOAD_MAX {
            self.put_header(start, FrameKind::Headers, flags | END_HEADERS, id, length);
        } else {
            self.split_head(start, flags, id);
        }
        self.end_sending(key, is_last);
        Ok(())
    }

    /// The identity of a stream on which a head is sent. One of ours gets it with its first: identities have to come in order.
    fn begin_stream(&mut self, key: StreamKey) -> Result<u32, StreamEnd> {
        match self.id(key) {
            0 if self.is_spent() => Err(StreamEnd::Refused),
            0 => {
                self.newest_own = if self.newest_own == 0 { 1 } else { self.newest_own + 2 };
                self.streams.begin(key, self.newest_own);
                Ok(self.newest_own)
            }
            id => Ok(id),
        }
    }

    /// Writes a frame's header where there is room for it.
    fn put_header(&mut self, start: usize, kind: FrameKind, flags: u8, stream: u32, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if let Some(place) = self.out.get_mut(start..start + HEADER) {
            place.copy_from_slice(&FrameHeader { kind, length, flags, stream }.bytes());
        }
    }

    /// Makes frames of a head that is too large for one.
    fn split_head(&mut self, start: usize, flags: u8, id: u32) {
        let block = self.out.split_off(start);
        let block = block.get(HEADER..).unwrap_or_default();
        let mut pieces = block.chunks(PAYLOAD_MAX).peekable();
        let mut kind = (FrameKind::Headers, flags);
        while let Some(piece) = pieces.next() {
            let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            push_frame(&mut self.out, kind.0, kind.1 | end, id, piece);
            kind = (FrameKind::Continuation, 0);
        }
    }

    /// Sends data: of `pieces`, which lie one behind the other, the first `count` bytes, for which [`Self::room`] has found
    /// room. `is_last`: our side ends with it.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn send_data<'p>(
        &mut self,
        key: StreamKey,
        pieces: impl IntoIterator<Item = &'p [u8]>,
        count: usize,
        is_last: bool,
    ) -> Result<(), StreamEnd> {
        let id = self.sending(key)?;
        let (mut pieces, mut piece) = (pieces.into_iter(), &[][..]);
        let mut left = count;
        loop {
            let size = left.min(PAYLOAD_MAX);
            left -= size;
            let is_last = is_last && left == 0;
            let start = self.out.len();
            self.out.reserve(HEADER + size);
            self.out.extend_from_slice(&[0; HEADER]);
            let mut missing = size;
            while missing > 0 {
                if piece.is_empty() {
                    let Some(next) = pieces.next() else { break };
                    piece = next;
                }
                let (part, rest) = piece.split_at_checked(missing).unwrap_or((piece, &[]));
                self.out.extend_from_slice(part);
                missing -= part.len();
                piece = rest;
            }
            self.put_header(start, FrameKind::Data, if is_last { END_STREAM } else { 0 }, id, size - missing);
            if left == 0 {
                break;
            }
        }
        let spent = i64::try_from(count).unwrap_or(i64::MAX);
        self.send_window -= spent;
        if let Some(stream) = self.streams.get_mut(key) {
            stream.send_window -= spent;
        }
        self.end_sending(key, is_last);
        Ok(())
    }

    /// The identity of a stream on which something may be sent.
    fn sending(&self, key: StreamKey) -> Result<u32, StreamEnd> {
        let stream = self.streams.get(key).ok_or(StreamEnd::Lost)?;
        match stream.end {
            Some(end) => Err(end),
            None if stream.is_sent => Err(StreamEnd::Lost),
            None => Ok(stream.id),
        }
    }

    fn end_sending(&mut self, key: StreamKey, is_last: bool) {
        if is_last && let Some(stream) = self.streams.get_mut(key) {
            stream.is_sent = true;
            if stream.is_received {
                self.streams.close(key);
            }
        }
    }

    /// Why a stream has ended before both sides had ended it.
    pub fn end_of(&self, key: StreamKey) -> Option<StreamEnd> {
        self.streams.get(key).map_or(Some(StreamEnd::Lost), |stream| stream.end)
    }
}

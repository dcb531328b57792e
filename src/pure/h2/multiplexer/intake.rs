//! What comes: frames are judged, and taken in (RFC 9113 6).

use std::ops::Range;

use super::stream::{Stream, StreamEnd};
use super::{Ending, FAREWELL, MAX, Multiplexer, OpenBlock, PENDING_RESETS, Role, StreamKey};
use crate::base::h2_reset::H2Reset;
use crate::base::time::Timestamp;
use crate::pure::h2::flood::FloodGuard;
use crate::pure::h2::frames::{ACK, Fault, FrameHeader, FrameKind, Piece, push_frame};
use crate::pure::h2::hpack::FieldBlock;
use crate::pure::h2::trailers;

/// How much room there is at first for a head.
pub(super) const USUAL_HEAD: Range<usize> = 128..2048;

/// The DATA frame that is coming.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Data {
    /// Whose it is, unless nobody wants it.
    pub(super) key: Option<StreamKey>,
    is_padding_due: bool,
    /// Bytes of data that are still to come; behind them is padding.
    left: u32,
}

impl Multiplexer {
    /// Takes in bytes, which lie behind those of the last call.
    pub fn receive(&mut self, mut bytes: &[u8], now: Timestamp) {
        self.now = now;
        while self.fault.is_none()
            && let Some(piece) = self.reader.next(&mut bytes)
        {
            let taken = match piece {
                Piece::Header(frame) => self.begin_frame(frame),
                Piece::Payload(payload) => self.take_payload(payload),
                Piece::End => self.end_frame(),
                Piece::WrongPreface => Err(Fault::Protocol),
            };
            self.fault = taken.err();
        }
        let is_head_open = self.open_block.is_some()
            || self.reader.is_in_header()
            || (self.reader.is_in_frame() && self.frame.is_of_head());
        self.open_head = is_head_open.then(|| self.open_head.unwrap_or(now));
    }

    fn begin_frame(&mut self, frame: FrameHeader) -> Result<(), Fault> {
        self.frame = frame;
        if self.open_block.is_none() {
            // A new frame starts the clock anew; a part more of the same head does not.
            self.open_head = None;
        }
        self.charge(|flood, now| flood.note(frame, now))?;
        if !frame.has_possible_length() {
            return Err(Fault::FrameSize);
        }
        let is_expected = match &self.open_block {
            Some(open) => frame.kind == FrameKind::Continuation && frame.stream == open.stream,
            None => frame.kind != FrameKind::Continuation && frame.kind != FrameKind::PushPromise,
        };
        let is_first = !self.peer.have_come;
        if !is_expected || !frame.has_possible_stream() || (is_first && frame.kind != FrameKind::Settings) {
            return Err(Fault::Protocol);
        }
        match self.own.role {
            Role::Server => self.order.note(frame)?,
            // We let no server open streams of its own, which would be those with even numbers.
            Role::Client if frame.stream <= self.newest_own && (frame.stream == 0 || frame.stream % 2 == 1) => {}
            Role::Client if matches!(frame.kind, FrameKind::Priority | FrameKind::Unknown) => {}
            Role::Client => return Err(Fault::Protocol),
        }
        if frame.kind == FrameKind::Data { self.begin_data(frame) } else { Ok(()) }
    }

    fn begin_data(&mut self, frame: FrameHeader) -> Result<(), Fault> {
        self.receive_window = self.receive_window.checked_sub(frame.length).ok_or(Fault::FlowControl)?;
        let key = self.streams.find(frame.stream);
        if let Some(stream) = key.and_then(|key| self.streams.get_mut(key)) {
            if stream.is_received {
                return Err(Fault::StreamClosed);
            }
            stream.receive_window = stream.receive_window.checked_sub(frame.length).ok_or(Fault::FlowControl)?;
        }
        self.data = Data { key, is_padding_due: frame.is_padded(), left: frame.length };
        self.announce();
        Ok(())
    }

    fn take_payload(&mut self, payload: &[u8]) -> Result<(), Fault> {
        match self.frame.kind {
            FrameKind::Data => self.take_data_payload(payload),
            FrameKind::Unknown | FrameKind::Priority => Ok(()),
            // Most come whole.
            _ if self.partial.is_empty() && payload.len() == self.frame.length as usize => self.take_frame(payload),
            _ => {
                self.partial.extend_from_slice(payload);
                if self.partial.len() == self.frame.length as usize {
                    let whole = std::mem::take(&mut self.partial);
                    return self.take_frame(&whole);
                }
                Ok(())
            }
        }
    }

    fn end_frame(&mut self) -> Result<(), Fault> {
        match self.frame.kind {
            FrameKind::Data if self.data.is_padding_due => Err(Fault::Protocol),
            FrameKind::Data => match self.data.key {
                Some(key) if self.frame.ends_stream() => self.end_receiving(key),
                _ => Ok(()),
            },
            FrameKind::Unknown | FrameKind::Priority => Ok(()),
            _ if self.frame.length == 0 => self.take_frame(&[]),
            _ => Ok(()),
        }
    }

    fn take_data_payload(&mut self, mut payload: &[u8]) -> Result<(), Fault> {
        if std::mem::take(&mut self.data.is_padding_due)
            && let Some((padding, rest)) = payload.split_first()
        {
            payload = rest;
            let left = self.data.left.checked_sub(1 + u32::from(*padding)).ok_or(Fault::Protocol)?;
            // Padding counts like data (RFC 9113 6.1).
            self.give_back(self.data.left - left);
            self.data.left = left;
            if left == 0 && !self.frame.ends_stream() {
                self.charge(FloodGuard::note_in_vain)?;
            }
        }
        let data = payload.get(..self.data.left as usize).unwrap_or(payload);
        if data.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(data.len()).unwrap_or(0);
        self.data.left -= count;
        let wanted = self.data.key.and_then(|key| Some((key, self.streams.get_mut(key)?)));
        let Some((key, stream)) = wanted.filter(|(_, stream)| stream.end.is_none()) else {
            // Nobody wants it any more.
            self.free(count);
            return Ok(());
        };
        let is_too_much =
            stream.expected.is_some_and(|expected| expected.saturating_sub(stream.received) < u64::from(count));
        if is_too_much || !stream.has_head {
            // None of it is taken in: with the bytes that are missing the message could look whole.
            self.free(count);
            return self.break_stream(key);
        }
        stream.put(data);
        self.tell(key, true, false);
        Ok(())
    }

    /// What has come and nobody will take may be sent again.
    fn give_back(&mut self, count: u32) {
        if let Some(key) = self.data.key {
            self.free_of_stream(key, count);
        }
        self.free(count);
    }

    /// A frame that is not looked at piece by piece has come whole.
    fn take_frame(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let number = || payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        match self.frame.kind {
            FrameKind::Headers => self.take_headers(payload),
            FrameKind::Continuation => self.take_continuation(payload),
            FrameKind::RstStream => self.take_reset(H2Reset(number())),
            FrameKind::Settings => self.take_settings(payload),
            FrameKind::Ping => {
                self.take_ping(payload);
                Ok(())
            }
            FrameKind::GoAway => {
                self.take_goaway(number() & MAX);
                Ok(())
            }
            FrameKind::WindowUpdate => self.take_window_update(number() & MAX),
            FrameKind::PushPromise => Err(Fault::Protocol),
            FrameKind::Data | FrameKind::Unknown | FrameKind::Priority => Ok(()),
        }
    }

    fn take_headers(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let mut block = payload;
        if self.frame.is_padded() {
            let (padding, rest) = block.split_first().ok_or(Fault::Protocol)?;
            let length = rest.len().checked_sub(usize::from(*padding)).ok_or(Fault::Protocol)?;
            block = rest.get(..length).unwrap_or_default();
        }
        if self.frame.has_priority() {
            let (priority, rest) = block.split_first_chunk::<5>().ok_or(Fault::Protocol)?;
            let [a, b, c, d, _] = *priority;
            if u32::from_be_bytes([a & 0x7F, b, c, d]) == self.frame.stream {
                // A stream that depends on itself.
                return Err(Fault::Protocol);
            }
            block = rest;
        }
        let (stream, ends_stream) = (self.frame.stream, self.frame.ends_stream());
        if self.frame.ends_head() {
            return self.take_block(stream, ends_stream, block);
        }
        self.open_block = Some(OpenBlock { stream, ends_stream, bytes: block.to_vec() });
        Ok(())
    }

    fn take_continuation(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let Some(mut open) = self.open_block.take() else { return Err(Fault::Protocol) };
        open.bytes.extend_from_slice(payload);
        if open.bytes.len() > self.own.list_max {
            // Compressed it is as large already as it may be at all.
            return Err(Fault::Flood);
        }
        if self.frame.ends_head() {
            return self.take_block(open.stream, open.ends_stream, &open.bytes);
        }
        self.open_block = Some(open);
        Ok(())
    }

    /// A head, or trailers, have come whole.
    fn take_block(&mut self, id: u32, ends_stream: bool, block: &[u8]) -> Result<(), Fault> {
        // As large as the last one, so that most need no more.
        let mut fields = FieldBlock::with_capacity(self.usual_head);
        self.decoder.decode(block, self.own.list_max, &mut fields).map_err(|_| Fault::Compression)?;
        self.usual_head = fields.size().clamp(USUAL_HEAD.start, USUAL_HEAD.end);
        match self.streams.find(id) {
            Some(key) => self.take_later_block(key, ends_stream, fields),
            None if self.own.role == Role::Server && id == self.order.newest() => {
                self.take_request(id, ends_stream, fields)
            }
            // For a stream that has been given up.
            None => self.charge(FloodGuard::note_in_vain),
        }
    }

    /// A client has opened a stream.
    fn take_request(&mut self, id: u32, ends_stream: bool, fields: FieldBlock) -> Result<(), Fault> {
        let is_new = std::mem::replace(&mut self.newest_head, id) < id;
        if !is_new || matches!(self.ending, Ending::Last | Ending::AtOnce) {
            // Of one that was given up; or its client was told that nobody would look at it.
            return self.charge(FloodGuard::note_in_vain);
        }
        let streams_max = self.own.streams_max as usize;
        // Of those that have been given up some may not have been looked at since.
        if self.streams.open() >= streams_max || self.streams.len() >= 2 * streams_max + PENDING_RESETS {
            self.refused += 1;
            let code = H2Reset::REFUSED_STREAM.0.to_be_bytes();
            push_frame(&mut self.out, FrameKind::RstStream, 0, id, &code);
            return self.charge(FloodGuard::note_in_vain);
        }
        self.flood.note_request();
        let mut stream = Stream::new(self.peer.stream_window, self.own.stream_window);
        stream.has_head = true;
        stream.expected = content_length(&fields);
        stream.head = Some(fields);
        let key = self.streams.insert(stream);
        self.streams.begin(key, id);
        self.opened.push_back(key);
        if ends_stream { self.end_receiving(key) } else { Ok(()) }
    }

    /// Has a client pay for what costs it nothing. Servers are whom we have asked: they have no account.
    fn charge(&mut self, note: impl FnOnce(&mut FloodGuard, Timestamp) -> bool) -> Result<(), Fault> {
        let is_borne = self.own.role == Role::Client || note(&mut self.flood, self.now);
        if is_borne { Ok(()) } else { Err(Fault::Flood) }
    }

    /// A head behind the one that has opened the stream: a server's, or trailers.
    fn take_later_block(&mut self, key: StreamKey, ends_stream: bool, fields: FieldBlock) -> Result<(), Fault> {
        let is_client = self.own.role == Role::Client;
        let Some(stream) = self.streams.get_mut(key) else { return Ok(()) };
        if stream.is_received {
            return Err(Fault::StreamClosed);
        }
        let is_fine = if stream.has_head {
            let are_fine = trailers::are_fine(&fields);
            stream.trailers = Some(fields);
            ends_stream && are_fine
        } else if is_client && is_interim(&fields) {
            stream.interim_size += fields.size();
            stream.interim.push_back(fields);
            !ends_stream && stream.interim_size <= self.own.list_max
        } else {
            stream.head = Some(fields);
            stream.has_head = true;
            true
        };
        if !is_fine {
            return self.break_stream(key);
        }
        if ends_stream {
            return self.end_receiving(key);
        }
        self.tell(key, true, false);
        Ok(())
    }

    /// The other side has ended its side of a stream.
    fn end_receiving(&mut self, key: StreamKey) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(key) else { return Ok(()) };
        if stream.end.is_some() || stream.is_received {
            return Ok(());
        }
        if stream.expected.is_some_and(|expected| stream.received != expected) {
            return self.break_stream(key);
        }
        stream.is_received = true;
        if stream.is_sent {
            self.streams.close(key);
        }
        self.tell(key, true, false);
        Ok(())
    }

    /// The other side has broken the rules of messages (RFC 9113 8.1.1).
    fn break_stream(&mut self, key: StreamKey) -> Result<(), Fault> {
        self.reset_for_fault(key, H2Reset::PROTOCOL_ERROR)
    }

    /// The other side makes us reset a stream. A client that has us begin requests only to break them off pays for it as if it had
    /// reset them itself.
    fn reset_for_fault(&mut self, key: StreamKey, code: H2Reset) -> Result<(), Fault> {
        let id = self.id(key);
        push_frame(&mut self.out, FrameKind::RstStream, 0, id, &code.0.to_be_bytes());
        self.end_stream(key, StreamEnd::Malformed);
        self.charge(FloodGuard::note_reset)
    }

    fn take_reset(&mut self, code: H2Reset) -> Result<(), Fault> {
        let key = self.streams.find(self.frame.stream);
        // It costs nothing to give up what has been answered, or has crossed a reset of ours, but a frame.
        let is_answered = key.and_then(|key| self.streams.get(key)).is_none_or(|stream| stream.is_sent);
        if let Some(key) = key {
            let is_refused = self.own.role == Role::Client && code == H2Reset::REFUSED_STREAM;
            self.end_stream(key, if is_refused { StreamEnd::Refused } else { StreamEnd::Reset(code) });
        }
        self.charge(if is_answered { FloodGuard::note_in_vain } else { FloodGuard::note_reset })
    }

    fn take_ping(&mut self, payload: &[u8]) {
        if !self.frame.is_ack() {
            push_frame(&mut self.out, FrameKind::Ping, ACK, 0, payload);
        } else if payload == FAREWELL && self.ending == Ending::Announced {
            self.ending = Ending::Last;
            self.push_goaway(self.order.newest(), H2Reset::NO_ERROR);
        }
    }

    /// The other side looks at no stream behind `last`.
    fn take_goaway(&mut self, last: u32) {
        let last = self.goaway.map_or(last, |before| before.min(last));
        self.goaway = Some(last);
        if self.own.role == Role::Server {
            return;
        }
        for key in self.streams.keys() {
            if self.streams.get(key).is_some_and(|stream| stream.id > last) {
                self.end_stream(key, StreamEnd::Refused);
            }
        }
    }

    fn take_window_update(&mut self, more: u32) -> Result<(), Fault> {
        if self.frame.stream == 0 {
            self.send_window += i64::from(more);
            if more == 0 {
                return Err(Fault::Protocol);
            }
            if self.send_window > i64::from(MAX) {
                return Err(Fault::FlowControl);
            }
            self.serve_line();
            return Ok(());
        }
        let Some(key) = self.streams.find(self.frame.stream) else { return Ok(()) };
        let Some(stream) = self.streams.get_mut(key) else { return Ok(()) };
        stream.send_window += i64::from(more);
        if more == 0 {
            return self.break_stream(key);
        }
        if stream.send_window > i64::from(MAX) {
            return self.reset_for_fault(key, H2Reset::FLOW_CONTROL_ERROR);
        }
        self.tell(key, false, true);
        Ok(())
    }
}

/// Whether a server's head is one of those that come before the answer's (RFC 9110 15.2).
fn is_interim(fields: &FieldBlock) -> bool {
    let first = fields.fields().next();
    matches!(first, Some((b":status", [b'1', _, _])))
}

/// The length that a head says of its body; `None`: none, or none that can be read, which is for others to refuse, or what
/// follows is a tunnel.
fn content_length(fields: &FieldBlock) -> Option<u64> {
    if fields.fields().any(|(name, _)| name == b":protocol") {
        return None;
    }
    let (_, value) = fields.fields().find(|(name, _)| *name == b"content-length")?;
    let is_number = value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

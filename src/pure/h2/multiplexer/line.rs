//! The line of streams that wait for room on their connection: its window, or memory for what is to be sent. Each in its turn
//! sends one frame and goes to the end of the line, so that none starves another. What waits for its own window alone is not
//! in it.

use super::stream::StreamEnd;
use super::{Multiplexer, OUT_MAX, StreamKey};
use crate::pure::h2::frames::PAYLOAD_MAX;

/// Less memory than that is not worth a frame.
const PIECE_MIN: usize = 4 * 1024;

impl Multiplexer {
    /// How many of `wanted` bytes of data may be sent now. Where there is no room the stream is told when there may be.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn room(&mut self, key: StreamKey, wanted: usize) -> Result<usize, StreamEnd> {
        let of_connection = self.connection_room();
        let has_line = !self.line.is_empty();
        let Some(stream) = self.streams.get_mut(key) else { return Err(StreamEnd::Lost) };
        if let Some(end) = stream.end {
            return Err(end);
        }
        let of_stream = usize::try_from(stream.send_window).unwrap_or(0);
        if of_stream == 0 || wanted == 0 {
            self.leave_line(key);
            return Ok(0);
        }
        let has_turn = std::mem::take(&mut stream.has_turn);
        self.turns -= usize::from(has_turn);
        let others_wait = has_line || self.turns > 0;
        if of_connection > 0 && (has_turn || !others_wait) {
            let most = if others_wait { PAYLOAD_MAX } else { wanted };
            return Ok(wanted.min(of_stream).min(of_connection).min(most));
        }
        if !stream.is_in_line {
            stream.is_in_line = true;
            self.line.push_back(key);
        }
        Ok(0)
    }

    /// Whether a head may be sent now, or never: not while much lies ready that is not taken. Else the stream is told when it may.
    pub fn has_room_for_head(&mut self, key: StreamKey) -> bool {
        let has_ended = self.streams.get(key).is_none_or(|stream| stream.end.is_some());
        let has_room = has_ended || self.unsent() < OUT_MAX;
        if !has_room && !self.head_line.contains(&key) {
            self.head_line.push(key);
        }
        has_room
    }

    fn connection_room(&self) -> usize {
        let of_memory = OUT_MAX.saturating_sub(self.unsent());
        if of_memory < PIECE_MIN { 0 } else { of_memory.min(usize::try_from(self.send_window).unwrap_or(0)) }
    }

    /// A stream has nothing to wait for there, and another gets its turn.
    pub(super) fn leave_line(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        if std::mem::take(&mut stream.is_in_line) {
            self.line.retain(|other| *other != key);
        }
        if std::mem::take(&mut stream.has_turn) {
            self.turns -= 1;
            self.serve_line();
        }
    }

    /// Gives turns to as many streams as there is room for.
    pub(super) fn serve_line(&mut self) {
        if !self.head_line.is_empty() && self.unsent() < OUT_MAX {
            for key in std::mem::take(&mut self.head_line) {
                self.tell(key, false, true);
            }
        }
        let mut room = self.connection_room();
        while room > 0
            && let Some(key) = self.line.pop_front()
        {
            let Some(stream) = self.streams.get_mut(key) else { continue };
            stream.is_in_line = false;
            stream.has_turn = true;
            self.turns += 1;
            room = room.saturating_sub(PAYLOAD_MAX);
            self.tell(key, false, true);
        }
    }
}

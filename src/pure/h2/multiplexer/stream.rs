//! A stream's state (RFC 9113 5.1), and what has come of it and was not taken yet.

use std::collections::VecDeque;

use crate::base::h2_reset::H2Reset;
use crate::pure::h2::hpack::FieldBlock;

/// Memory of bytes that have been taken which a stream keeps in front of those that have not.
const TAKEN_MAX: usize = 16 * 1024;

/// Why a stream ended before both sides had ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// It was reset with this code, by the other side or by us.
    Reset(H2Reset),
    /// The server has done nothing with it, and says so (RFC 9113 8.7).
    Refused,
    /// The other side has broken the rules of messages.
    Malformed,
    /// The connection broke, or was ended.
    Lost,
}

/// What is next on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A head.
    Head,
    /// So many bytes of data.
    Data(usize),
    /// The end, with or without trailers.
    End,
    /// Nothing has come.
    Nothing,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// Its identity; 0: no head of it has gone.
    pub(super) id: u32,
    /// Whether we have ended our side.
    pub(super) is_sent: bool,
    /// Whether the other side has ended its own.
    pub(super) is_received: bool,
    pub(super) end: Option<StreamEnd>,
    /// Interim heads, and behind them the head, which are still to be taken.
    pub(super) interim: VecDeque<FieldBlock>,
    /// Bytes of all interim heads that have come.
    pub(super) interim_size: usize,
    pub(super) head: Option<FieldBlock>,
    /// Whether that has come.
    pub(super) has_head: bool,
    pub(super) data: Vec<u8>,
    /// How much of `data` was taken.
    pub(super) taken: usize,
    pub(super) trailers: Option<FieldBlock>,
    /// How many bytes of data are to come in all, where a head has said so, and how many have come.
    pub(super) expected: Option<u64>,
    pub(super) received: u64,
    /// How much we may send.
    pub(super) send_window: i64,
    /// How much the other side may still send, and what has been taken of it without its having been told.
    pub(super) receive_window: u32,
    pub(super) receive_owed: u32,
    /// Whether it waits in the line for room on the connection.
    pub(super) is_in_line: bool,
    /// Whether it is its turn there.
    pub(super) has_turn: bool,
    /// Whether its holder is to look at what comes, and at the room there is.
    pub(super) news: (bool, bool),
}

impl Stream {
    pub(super) fn new(send_window: i64, receive_window: u32) -> Self {
        Self {
            id: 0,
            is_sent: false,
            is_received: false,
            end: None,
            interim: VecDeque::new(),
            interim_size: 0,
            head: None,
            has_head: false,
            data: Vec::new(),
            taken: 0,
            trailers: None,
            expected: None,
            received: 0,
            send_window,
            receive_window,
            receive_owed: 0,
            is_in_line: false,
            has_turn: false,
            news: (false, false),
        }
    }

    /// Whether both sides have ended it.
    pub(super) const fn is_closed(&self) -> bool {
        self.is_sent && self.is_received
    }

    /// Bytes of data that may be taken. The last of a body whose length is known is held back until the other side has ended the
    /// stream: with it the message is whole for who gets it, and until then it may turn out malformed.
    pub(super) fn readable(&self) -> usize {
        let is_held_back = !self.is_received && self.expected == Some(self.received);
        (self.data.len() - self.taken).saturating_sub(usize::from(is_held_back))
    }

    /// What is next.
    pub(super) fn arrival(&self) -> Result<Arrival, StreamEnd> {
        if self.head.is_some() || !self.interim.is_empty() {
            return Ok(Arrival::Head);
        }
        match (self.readable(), self.end) {
            (0, _) if self.is_received => Ok(Arrival::End),
            (0, Some(end)) => Err(end),
            (0, None) => Ok(Arrival::Nothing),
            (count, _) => Ok(Arrival::Data(count)),
        }
    }

    /// Takes data in.
    pub(super) fn put(&mut self, data: &[u8]) {
        if self.taken > TAKEN_MAX {
            self.data.drain(..self.taken);
            self.taken = 0;
        }
        self.data.extend_from_slice(data);
        self.received += data.len() as u64;
    }

    /// Puts at most `most` bytes of data behind those of `out`, and says how many.
    pub(super) fn take(&mut self, out: &mut Vec<u8>, most: usize) -> usize {
        let count = self.readable().min(most);
        let data = self.data.get(self.taken..self.taken + count).unwrap_or_default();
        out.extend_from_slice(data);
        self.taken += count;
        if self.taken == self.data.len() {
            self.taken = 0;
            self.data.clear();
            self.data.shrink_to(TAKEN_MAX);
        }
        count
    }
}

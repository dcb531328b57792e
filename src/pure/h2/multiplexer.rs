//! One side of an HTTP/2 connection (RFC 9113) without its socket: what came goes in, streams come out, and what is to be sent
//! lies ready. Both roles: a server to clients, a client to servers.
//!
//! Memory is bounded: what a stream's other side may send before it is read by its window, what all may send by the
//! connection's, what is to be sent by [`OUT_MAX`] beside the heads and answers to frames, for which nothing more should be
//! read while [`Multiplexer::is_clogged`]. It refuses to know what streams carry, to wait and to wake: [`Multiplexer::take_news`]
//! says which streams have something to look at.

mod intake;
mod line;
mod output;
mod settings;
mod stream;
mod table;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::stream::Stream;
pub use self::stream::{Arrival, StreamEnd};
use self::table::StreamTable;
use crate::base::h2_reset::H2Reset;
use crate::base::time::Timestamp;
use crate::pure::h2::flood::FloodGuard;
use crate::pure::h2::frames::{Fault, FrameHeader, FrameKind, FrameReader, PREFACE, push_frame};
use crate::pure::h2::hpack::{Decoder, Encoder};
use crate::pure::h2::multiplexer::settings::PeerSettings;
use crate::pure::h2::order::OrderGuard;

/// What may wait to be sent before streams have to wait with their bodies, in bytes.
const OUT_MAX: usize = 64 * 1024;
/// What may wait before nothing more should be read.
const CLOGGED: usize = 2 * OUT_MAX;
/// Streams beyond twice the limit whose client has given them up and that are still held.
const PENDING_RESETS: usize = 32;
/// The window that both sides begin with (RFC 9113 6.9.2).
const WINDOW: u32 = 65_535;
/// The largest identity of a stream, and the largest window.
const MAX: u32 = 0x7FFF_FFFF;
/// What a graceful end's PING says.
const FAREWELL: [u8; 8] = *b"farewell";

/// Which side we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Streams are opened by the other side.
    Server,
    /// Streams are opened by us.
    Client,
}

/// What we tell the other side.
#[derive(Clone, Copy, Debug)]
pub struct OwnSettings {
    /// Which side we are.
    pub role: Role,
    /// What may be sent on a stream before it is read, in bytes: at least 65 535.
    pub stream_window: u32,
    /// The same of all streams together: at least 65 535.
    pub connection_window: u32,
    /// How many streams a client may have at once.
    pub streams_max: u32,
    /// The largest list of fields that is kept (RFC 9113 6.5.2).
    pub list_max: usize,
}

/// A stream, as long as it is held: from [`Multiplexer::next_opened`] or [`Multiplexer::open`] to [`Multiplexer::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey(usize);

impl StreamKey {
    /// A small number that no other stream has that is held at the same time.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// What a stream's holder may want to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// The stream.
    pub key: StreamKey,
    /// Whether something has come, or the end.
    pub reads: bool,
    /// Whether there may be room to send, or never will be.
    pub writes: bool,
}

/// How far the end of the connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ending {
    #[default]
    No,
    /// It has been announced; streams are still taken until the other side has heard of it.
    Announced,
    /// Streams that were taken are finished, no other is taken.
    Last,
    /// At once.
    AtOnce,
}

/// A head that has come in part.
#[derive(Debug)]
struct OpenBlock {
    stream: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
}

/// One side of a connection.
#[derive(Debug)]
pub struct Multiplexer {
    own: OwnSettings,
    peer: PeerSettings,
    reader: FrameReader,
    /// The frame that is coming.
    frame: FrameHeader,
    /// What has come of its payload, where that is not looked at piece by piece.
    partial: Vec<u8>,
    data: intake::Data,
    open_block: Option<OpenBlock>,
    open_head: Option<Timestamp>,
    decoder: Decoder,
    encoder: Encoder,
    order: OrderGuard,
    /// The newest stream whose head has come whole.
    newest_head: u32,
    /// Streams that were refused since [`Self::take_refused`], since their client had as many as it may.
    refused: u64,
    /// How large the last head was.
    usual_head: usize,
    flood: FloodGuard,
    streams: StreamTable,
    /// Streams that a client has opened and nobody has looked at.
    opened: VecDeque<StreamKey>,
    /// The last stream that we have opened.
    newest_own: u32,
    /// How much we may send on all streams together.
    send_window: i64,
    /// How much the other side may still send, and what has been read of it without its having been told.
    receive_window: u32,
    receive_owed: u32,
    /// When what comes is taken in.
    now: Timestamp,
    out: Vec<u8>,
    /// How much of it is sent.
    sent: usize,
    /// Streams that wait for room on the connection, in the order they are served.
    line: VecDeque<StreamKey>,
    /// How many streams have a turn that they have not used yet.
    turns: usize,
    /// Streams that wait for room for a head.
    head_line: Vec<StreamKey>,
    news: Vec<StreamKey>,
    fault: Option<Fault>,
    ending: Ending,
    /// The last stream that the other side will look at, where it has said so.
    goaway: Option<u32>,
    is_lost: bool,
}

impl Multiplexer {
    /// A connection of which nothing has come. What it begins with lies ready to be sent.
    pub fn new(own: OwnSettings, now: Timestamp) -> Self {
        let is_server = own.role == Role::Server;
        let mut multiplexer = Self {
            own,
            peer: PeerSettings::default(),
            reader: if is_server { FrameReader::with_preface() } else { FrameReader::default() },
            frame: FrameHeader::default(),
            partial: Vec::new(),
            data: intake::Data::default(),
            open_block: None,
            open_head: None,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            order: OrderGuard::default(),
            newest_head: 0,
            refused: 0,
            usual_head: intake::USUAL_HEAD.end,
            flood: FloodGuard::new(now),
            streams: StreamTable::default(),
            opened: VecDeque::new(),
            newest_own: 0,
            send_window: i64::from(WINDOW),
            receive_window: own.connection_window,
            receive_owed: 0,
            now,
            out: Vec::new(),
            sent: 0,
            line: VecDeque::new(),
            turns: 0,
            head_line: Vec::new(),
            news: Vec::new(),
            fault: None,
            ending: Ending::No,
            goaway: None,
            is_lost: false,
        };
        multiplexer.begin();
        multiplexer
    }

    /// Why the other side has to go.
    pub const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// How many streams were refused, since their client had as many as it may, since this was last asked.
    pub const fn take_refused(&mut self) -> u64 {
        std::mem::replace(&mut self.refused, 0)
    }

    /// Since when a head is coming that is not whole.
    pub const fn open_head(&self) -> Option<Timestamp> {
        self.open_head
    }

    /// Whether the other side has said what it wants: before, a client opens no streams.
    pub const fn has_settings(&self) -> bool {
        self.peer.have_come
    }

    /// Whether the preface has come, which a client begins with.
    pub const fn has_preface(&self) -> bool {
        self.reader.has_preface()
    }

    /// How many streams the server allows at once.
    pub fn streams_max(&self) -> usize {
        if self.peer.have_come { self.peer.streams_max as usize } else { 0 }
    }

    /// Whether the server takes an extended CONNECT (RFC 8441 3).
    pub const fn takes_extended_connect(&self) -> bool {
        self.peer.takes_extended_connect
    }

    /// Whether no stream will be opened on it any more.
    pub const fn is_spent(&self) -> bool {
        self.is_lost || self.goaway.is_some() || !matches!(self.ending, Ending::No) || self.newest_own >= MAX - 2
    }

    /// Whether all is said and nobody is waited for.
    pub fn is_over(&self) -> bool {
        let is_ending = match self.ending {
            Ending::AtOnce => true,
            Ending::Last => self.streams.open() == 0,
            Ending::No | Ending::Announced => self.goaway.is_some() && self.streams.open() == 0,
        };
        self.is_lost || (is_ending && !self.has_output())
    }

    /// Whether nobody holds a stream, and none is open.
    pub fn is_idle(&self) -> bool {
        self.streams.len() == 0
    }

    /// The next stream that a client has opened; it is held by who asks.
    pub fn next_opened(&mut self) -> Option<StreamKey> {
        while let Some(key) = self.opened.pop_front() {
            if self.end_of(key).is_none() {
                return Some(key);
            }
            // Given up before anybody has looked at it.
            self.release(key);
        }
        None
    }

    /// Opens a stream to a server; it is held by who asks. The server hears of it with its head.
    ///
    /// # Errors
    /// [`StreamEnd::Refused`] where the connection takes none any more.
    pub fn open(&mut self) -> Result<StreamKey, StreamEnd> {
        if self.is_spent() || self.own.role != Role::Client {
            return Err(StreamEnd::Refused);
        }
        let stream = Stream::new(self.peer.stream_window, self.own.stream_window);
        Ok(self.streams.insert(stream))
    }

    /// Lets go of a stream. One that has not ended is given up.
    pub fn release(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        if stream.end.is_none() && !stream.is_closed() {
            // An answer that is whole needs no more of its request (RFC 9113 8.1).
            let is_answered = self.own.role == Role::Server && stream.is_sent;
            self.reset(key, if is_answered { H2Reset::NO_ERROR } else { H2Reset::CANCEL });
        }
        self.discard(key);
        self.leave_line(key);
        self.streams.remove(key);
        if self.data.key == Some(key) {
            // What is still to come of its frame is nobody's, and not that of who gets its key next.
            self.data.key = None;
        }
        if self.is_idle() {
            self.shrink();
        }
    }

    /// An idle connection holds nothing.
    fn shrink(&mut self) {
        if !self.has_output() {
            self.out = Vec::new();
        }
        (self.line, self.opened) = (VecDeque::new(), VecDeque::new());
        (self.head_line, self.news) = (Vec::new(), Vec::new());
    }

    /// Resets a stream that has not ended.
    pub fn reset(&mut self, key: StreamKey, code: H2Reset) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        if stream.end.is_some() || stream.is_closed() {
            return;
        }
        let id = stream.id;
        // What was opened without a head is unknown to the other side.
        if id > 0 {
            push_frame(&mut self.out, FrameKind::RstStream, 0, id, &code.0.to_be_bytes());
        }
        self.end_stream(key, StreamEnd::Reset(code));
    }

    /// Ends the connection when the streams that there are have ended: the other side is told to open no others.
    pub fn end_gracefully(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Announced;
            self.push_goaway(MAX, H2Reset::NO_ERROR);
            // When this comes back, what the client opened before it knew has come too.
            push_frame(&mut self.out, FrameKind::Ping, 0, 0, &FAREWELL);
        }
    }

    /// Ends the connection, and all its streams, when what lies ready is sent.
    pub fn end_at_once(&mut self, code: H2Reset) {
        if self.ending != Ending::AtOnce {
            self.ending = Ending::AtOnce;
            self.push_goaway(self.order.newest(), code);
            self.end_all(StreamEnd::Lost);
        }
    }

    /// Ends the connection for what the other side has done wrong, where it has. Whether that is news.
    pub fn end_if_faulty(&mut self) -> bool {
        let Some(fault) = self.fault.filter(|_| self.ending != Ending::AtOnce) else { return false };
        self.end_all(StreamEnd::Malformed);
        self.end_at_once(fault.code());
        true
    }

    /// The connection is no more: so are its streams.
    pub fn lose(&mut self) {
        self.is_lost = true;
        self.end_all(StreamEnd::Lost);
    }

    fn end_all(&mut self, end: StreamEnd) {
        for key in self.streams.keys() {
            self.end_stream(key, end);
        }
    }

    /// A stream ends, before both sides have ended it.
    fn end_stream(&mut self, key: StreamKey, end: StreamEnd) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        if stream.end.is_some() {
            return;
        }
        if !stream.is_closed() {
            stream.end = Some(end);
            self.streams.close(key);
            self.leave_line(key);
        }
        self.tell(key, true, true);
    }

    fn push_goaway(&mut self, last: u32, code: H2Reset) {
        let [last, code] = [last.to_be_bytes(), code.0.to_be_bytes()];
        push_frame(&mut self.out, FrameKind::GoAway, 0, 0, &[last, code].concat());
    }

    fn tell(&mut self, key: StreamKey, reads: bool, writes: bool) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        let (read_before, wrote_before) = stream.news;
        stream.news = (read_before | reads, wrote_before | writes);
        if !read_before && !wrote_before {
            self.news.push(key);
        }
    }

    /// Puts which streams have something to look at behind those in `news`, in the order it came.
    pub fn take_news(&mut self, news: &mut Vec<News>) {
        for key in self.news.drain(..) {
            let Some(stream) = self.streams.get_mut(key) else { continue };
            let (reads, writes) = std::mem::take(&mut stream.news);
            news.push(News { key, reads, writes });
        }
    }

    /// Whether a stream has something to look at.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// What every connection begins with.
    fn begin(&mut self) {
        if self.own.role == Role::Client {
            self.out.extend_from_slice(PREFACE);
        }
        settings::push_own(&mut self.out, &self.own);
        let more = self.own.connection_window.saturating_sub(WINDOW);
        if more > 0 {
            push_frame(&mut self.out, FrameKind::WindowUpdate, 0, 0, &more.to_be_bytes());
        }
    }
}

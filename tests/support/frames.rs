//! A raw HTTP/2 client: it sends exactly the frames it is given, right or wrong, and tells what came back.
//!
//! It compresses nothing, and of the heads that come it reads the status alone: what fields say is for clients that others
//! wrote. It acknowledges settings and answers pings, and refuses to do anything else by itself.

use std::net::SocketAddr;

use super::client::{Client, Options};
use super::wire::End;

/// What a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 6).
pub mod kind {
    #![allow(missing_docs, reason = "the names are the RFC's")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// The flags END_STREAM, which is ACK elsewhere, and END_HEADERS.
pub const END_STREAM: u8 = 1;
/// See [`END_STREAM`].
pub const END_HEADERS: u8 = 4;

/// Error codes (RFC 9113 7).
pub mod code {
    #![allow(missing_docs, reason = "the names are the RFC's")]
    pub const NO_ERROR: u32 = 0;
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const INTERNAL_ERROR: u32 = 2;
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    pub const STREAM_CLOSED: u32 = 5;
    pub const FRAME_SIZE_ERROR: u32 = 6;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const COMPRESSION_ERROR: u32 = 9;
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The frame of that header, with room for its payload.
    pub fn announced([a, b, c, kind, flags, stream @ ..]: [u8; 9]) -> Self {
        let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).expect("a length");
        Self { kind, flags, stream: u32::from_be_bytes(stream), payload: vec![0; length] }
    }

    /// The code of a RST_STREAM or a GOAWAY.
    pub fn code(&self) -> u32 {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }

    /// Whether it ends its stream.
    pub const fn ends_stream(&self) -> bool {
        matches!(self.kind, kind::DATA | kind::HEADERS) && self.flags & END_STREAM != 0
    }

    /// The status of a head: `None` is one of trailers.
    pub fn status(&self) -> Option<u16> {
        const STATIC: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        match self.payload.as_slice() {
            [indexed @ 0x88..=0x8e, ..] => Some(STATIC[usize::from(indexed - 0x88)]),
            // A literal whose name is the table's `:status`, its value in Huffman's code or plain.
            [0x48 | 0x08 | 0x18, length, value @ ..] if length & 0x80 == 0 => {
                std::str::from_utf8(&value[..usize::from(*length)]).ok()?.parse().ok()
            }
            [0x48 | 0x08 | 0x18, length, value @ ..] => digits(&value[..usize::from(length & 0x7f)]).parse().ok(),
            _ => None,
        }
    }
}

/// Digits in Huffman's code (RFC 7541 Appendix B).
fn digits(bytes: &[u8]) -> String {
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let mut rest = bits.as_str();
    let mut text = String::new();
    while let Some((digit, length)) = digit(rest) {
        text.push(digit);
        rest = &rest[length..];
    }
    text
}

fn digit(bits: &str) -> Option<(char, usize)> {
    let short = u32::from_str_radix(bits.get(..5)?, 2).ok()?;
    if short < 3 {
        return Some((char::from_digit(short, 10)?, 5));
    }
    let long = u32::from_str_radix(bits.get(..6)?, 2).ok()?;
    // 3 to 9 have the codes 011001 to 011111.
    (25..32).contains(&long).then(|| char::from_digit(long - 22, 10)).flatten().map(|digit| (digit, 6))
}

/// Appends a field that no table has, in no code.
pub fn push_field(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        let length = text.len();
        match length.checked_sub(127) {
            None => block.push(u8::try_from(length).expect("less than 127")),
            Some(mut rest) => {
                block.push(127);
                while rest >= 128 {
                    block.push(0x80 | u8::try_from(rest % 128).expect("less than 128"));
                    rest /= 128;
                }
                block.push(u8::try_from(rest).expect("less than 128"));
            }
        }
        block.extend_from_slice(text);
    }
}

/// The block of these fields.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        push_field(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

/// The pseudo-header fields of a request, and these behind them.
pub fn request<'a>(method: &'a str, path: &'a str, fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let pseudo = [(":method", method), (":scheme", "http"), (":authority", "a.test"), (":path", path)];
    pseudo.into_iter().chain(fields.iter().copied()).collect()
}

/// A frame's bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("a frame's length").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// How a stream ended for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// An answer came to its end.
    Answered(u16, Vec<u8>),
    /// It was reset with this code, after a head with this status, if one came.
    Reset(u32, Option<u16>),
    /// The connection was given up with this code.
    GoAway(u32),
    /// The connection ended.
    Gone(End),
}

/// A connection.
pub struct FrameClient {
    /// What it runs over.
    pub client: Client,
    /// All frames that came, but for those of settings and windows.
    pub seen: Vec<Frame>,
}

impl FrameClient {
    /// A connection with prior knowledge, its preface and empty settings sent.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::with(Client::connect(address), &[])
    }

    /// The same with a receive buffer of this size, bytes.
    #[track_caller]
    pub fn with_receive_buffer(address: SocketAddr, size: usize) -> Self {
        let options = Options { receive_buffer: Some(size), ..Options::default() };
        Self::with(options.connect(address), &[])
    }

    /// Over a connection that is there, with these settings (RFC 9113 6.5.1).
    #[track_caller]
    pub fn with(mut client: Client, settings: &[(u16, u32)]) -> Self {
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend(name.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        client.send([PREFACE, &frame(kind::SETTINGS, 0, 0, &payload)].concat());
        Self { client, seen: Vec::new() }
    }

    /// Sends a frame; `false`: the connection does not take it.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.client.try_send(frame(kind, flags, stream, payload)).is_ok()
    }

    /// Sends a head in one frame.
    pub fn head(&mut self, stream: u32, fields: &[(&str, &str)], is_last: bool) -> bool {
        self.send(kind::HEADERS, END_HEADERS | u8::from(is_last), stream, &block(fields))
    }

    /// Asks for a path.
    pub fn get(&mut self, stream: u32, path: &str) {
        self.head(stream, &request("GET", path, &[]), true);
    }

    /// Begins an upload.
    pub fn post(&mut self, stream: u32, path: &str, fields: &[(&str, &str)]) {
        self.head(stream, &request("POST", path, fields), false);
    }

    /// Sends data.
    pub fn data(&mut self, stream: u32, data: &[u8], is_last: bool) -> bool {
        self.send(kind::DATA, u8::from(is_last), stream, data)
    }

    /// Resets a stream as one that is not wanted any more.
    pub fn cancel(&mut self, stream: u32) -> bool {
        self.send(kind::RST_STREAM, 0, stream, &code::CANCEL.to_be_bytes())
    }

    /// Lets the other side send so much more.
    pub fn give_room(&mut self, stream: u32, bytes: u32) -> bool {
        self.send(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
    }

    /// The next frame that is not one of settings or windows.
    ///
    /// # Errors
    /// Why none came.
    pub fn next(&mut self) -> Result<Frame, End> {
        loop {
            let header = self.client.try_exactly(9)?;
            let mut frame = Frame::announced(header.try_into().expect("nine bytes"));
            frame.payload = self.client.try_exactly(frame.payload.len())?;
            match (frame.kind, frame.flags & 1) {
                (kind::SETTINGS, 0) => drop(self.send(kind::SETTINGS, 1, 0, &[])),
                (kind::PING, 0) => drop(self.send(kind::PING, 1, 0, &frame.payload)),
                (kind::SETTINGS | kind::WINDOW_UPDATE, _) => {}
                _ => {
                    self.seen.push(frame.clone());
                    return Ok(frame);
                }
            }
        }
    }

    /// The next frame that `wanted` takes.
    ///
    /// # Errors
    /// Why none came.
    pub fn next_that(&mut self, wanted: impl Fn(&Frame) -> bool) -> Result<Frame, End> {
        loop {
            let frame = self.next()?;
            if wanted(&frame) {
                return Ok(frame);
            }
        }
    }

    /// How a stream ends. Room for data is given back as it comes.
    pub fn end_of(&mut self, stream: u32) -> StreamEnd {
        let (mut status, mut body) = (None, Vec::new());
        loop {
            let frame = match self.next() {
                Ok(frame) => frame,
                Err(end) => return StreamEnd::Gone(end),
            };
            match frame.kind {
                kind::GOAWAY if frame.code() != code::NO_ERROR => return StreamEnd::GoAway(frame.code()),
                kind::RST_STREAM if frame.stream == stream => return StreamEnd::Reset(frame.code(), status),
                kind::HEADERS if frame.stream == stream => status = frame.status().or(status),
                kind::DATA => {
                    let length = u32::try_from(frame.payload.len()).expect("a frame's length");
                    if length > 0 {
                        self.give_room(0, length);
                    }
                    if frame.stream == stream {
                        body.extend_from_slice(&frame.payload);
                        if length > 0 && !frame.ends_stream() {
                            self.give_room(stream, length);
                        }
                    }
                }
                _ => {}
            }
            if frame.stream == stream && frame.ends_stream() {
                return StreamEnd::Answered(status.unwrap_or(0), body);
            }
        }
    }

    /// The code of the GOAWAY by which the connection ends; `None`: it ended without.
    pub fn goaway(&mut self) -> Option<u32> {
        loop {
            match self.next() {
                Ok(frame) if frame.kind == kind::GOAWAY && frame.code() != code::NO_ERROR => return Some(frame.code()),
                Ok(_) => {}
                Err(End::TimedOut) => panic!("the connection goes on"),
                Err(_) => {
                    let last = self.seen.iter().rfind(|frame| frame.kind == kind::GOAWAY);
                    return last.map(Frame::code);
                }
            }
        }
    }
}

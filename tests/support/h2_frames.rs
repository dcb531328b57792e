//! A raw HTTP/2 server: frames by hand, on threads and `std` sockets, so that a test decides each of them.
//!
//! It answers SETTINGS and PING by itself and hands every other frame to the test. What it writes of HPACK is literal, and
//! it reads none.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::deadline::{DEADLINE, wait_for};

/// Kinds of frames (RFC 9113 6).
pub const DATA: u8 = 0;
/// HEADERS.
pub const HEADERS: u8 = 1;
/// RST_STREAM.
pub const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// GOAWAY.
pub const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// The flag of the last frame of a stream.
pub const END_STREAM: u8 = 1;
/// The flag of a whole list of fields.
pub const END_HEADERS: u8 = 4;

/// SETTINGS_MAX_CONCURRENT_STREAMS.
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
/// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441).
pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Whether it is the last of its stream.
    pub const fn ends(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// One connection.
pub struct Frames {
    socket: TcpStream,
    log: Arc<Mutex<Vec<Frame>>>,
}

impl Frames {
    /// The next frame that is not of the connection's housekeeping; `None` at the end.
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.socket.read_exact(&mut head).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            self.socket.read_exact(&mut payload).ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let frame = Frame { kind: head[3], flags: head[4], stream, payload };
            match frame.kind {
                SETTINGS if frame.flags == 0 => self.write(SETTINGS, 1, 0, &[]),
                PING if frame.flags == 0 => self.write(PING, 1, 0, &frame.payload),
                SETTINGS | PING | WINDOW_UPDATE => {}
                _ => {
                    self.log.lock().expect("a log").push(frame.clone());
                    return Some(frame);
                }
            }
        }
    }

    /// Reads until the request of a stream has come whole, and gives its number; `None` at the end.
    pub fn request(&mut self) -> Option<u32> {
        loop {
            let frame = self.next()?;
            if frame.ends() {
                return Some(frame.stream);
            }
        }
    }

    /// Writes a frame, if the peer still takes any.
    pub fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        let _ = self.socket.write_all(&bytes);
    }

    /// Says the settings.
    pub fn settings(&mut self, settings: &[(u16, u32)]) {
        let pairs = settings.iter().map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat());
        self.write(SETTINGS, 0, 0, &pairs.collect::<Vec<_>>().concat());
    }

    /// Writes a list of fields.
    pub fn headers(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) {
        let mut block = Vec::new();
        for (name, value) in fields {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).expect("a short text"));
                block.extend_from_slice(text.as_bytes());
            }
        }
        self.write(HEADERS, flags | END_HEADERS, stream, &block);
    }

    /// Writes a whole answer.
    pub fn respond(&mut self, stream: u32, status: &str, body: &str) {
        self.headers(stream, 0, &[(":status", status)]);
        self.write(DATA, END_STREAM, stream, body.as_bytes());
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: u32, code: u32) {
        self.write(RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    /// Says GOAWAY without an error.
    pub fn go_away(&mut self, last: u32) {
        self.write(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
    }

    /// Lets the peer send so much more.
    pub fn grant(&mut self, stream: u32, bytes: u32) {
        for stream in [0, stream] {
            self.write(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
        }
    }
}

/// A server whose every connection is handled by a closure, on a thread of its own.
pub struct H2Server {
    /// Where it listens.
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    log: Arc<Mutex<Vec<Frame>>>,
}

impl H2Server {
    /// A server with these settings; the closure gets each connection with its number, from 1, after the prefaces.
    pub fn new(settings: &[(u16, u32)], handler: impl Fn(&mut Frames, usize) + Send + Sync + 'static) -> Self {
        let settings = settings.to_vec();
        Self::shy(move |frames, number| {
            frames.settings(&settings);
            handler(frames, number);
        })
    }

    /// A server that says its settings when the closure does.
    pub fn shy(handler: impl Fn(&mut Frames, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a bound socket's address");
        let accepted = Arc::<AtomicUsize>::default();
        let log = Arc::<Mutex<Vec<Frame>>>::default();
        let (handler, count, frames) = (Arc::new(handler), Arc::clone(&accepted), Arc::clone(&log));
        thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&frames));
                thread::spawn(move || {
                    let _ = socket.set_nodelay(true);
                    let _ = socket.set_read_timeout(Some(3 * DEADLINE));
                    let mut connection = Frames { socket, log };
                    let mut preface = [0; 24];
                    if connection.socket.read_exact(&mut preface).is_err() {
                        return;
                    }
                    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
                    handler(&mut connection, number);
                });
            }
        });
        Self { address, accepted, log }
    }

    /// How many connections came so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Every frame that came so far.
    pub fn frames(&self) -> Vec<Frame> {
        self.log.lock().expect("a log").clone()
    }

    /// How many requests were begun.
    pub fn requests(&self) -> usize {
        self.frames().iter().filter(|frame| frame.kind == HEADERS).count()
    }

    /// Waits for a frame of which that holds.
    #[track_caller]
    pub fn wait_for_frame(&self, what: &str, holds: impl Fn(&Frame) -> bool) -> Frame {
        wait_for(what, DEADLINE, || self.frames().into_iter().find(|frame| holds(frame)))
    }
}

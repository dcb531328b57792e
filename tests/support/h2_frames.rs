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
pub use super::frames::kind::{DATA, GOAWAY, HEADERS, RST_STREAM};
use super::frames::kind::{PING, SETTINGS, WINDOW_UPDATE};
pub use super::frames::{END_HEADERS, END_STREAM, Frame};
use super::frames::{PREFACE, block, frame};

/// SETTINGS_MAX_CONCURRENT_STREAMS.
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
/// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441).
pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;

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
            let mut frame = Frame::announced(head);
            self.socket.read_exact(&mut frame.payload).ok()?;
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
            if frame.ends_stream() {
                return Some(frame.stream);
            }
        }
    }

    /// Writes a frame, if the peer still takes any.
    pub fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let _ = self.socket.write_all(&frame(kind, flags, stream, payload));
    }

    /// Writes what is no frame, if the peer still takes any.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Says the settings.
    pub fn settings(&mut self, settings: &[(u16, u32)]) {
        let pairs = settings.iter().map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat());
        self.write(SETTINGS, 0, 0, &pairs.collect::<Vec<_>>().concat());
    }

    /// Writes a list of fields.
    pub fn headers(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) {
        self.write(HEADERS, flags | END_HEADERS, stream, &block(fields));
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
                    let mut preface = [0; PREFACE.len()];
                    if connection.socket.read_exact(&mut preface).is_err() {
                        return;
                    }
                    assert_eq!(preface, PREFACE);
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

//! What the two sides tell each other at first, and may change later (RFC 9113 6.5).

use super::{MAX, Multiplexer, OwnSettings, Role, WINDOW};
use crate::pure::h2::frames::{ACK, Fault, FrameKind, PAYLOAD_MAX, push_frame};

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
/// RFC 8441 3.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// The largest payload that a side may ever allow.
const FRAME_LIMIT: u32 = (1 << 24) - 1;

/// What the other side has told.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    /// Whether it has told anything.
    pub(super) have_come: bool,
    pub(super) streams_max: u32,
    /// What may be sent on a stream that is opened.
    pub(super) stream_window: i64,
    pub(super) takes_extended_connect: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            have_come: false,
            streams_max: u32::MAX,
            stream_window: i64::from(WINDOW),
            takes_extended_connect: false,
        }
    }
}

/// Appends our own.
pub(super) fn push_own(out: &mut Vec<u8>, own: &OwnSettings) {
    let list_max = u32::try_from(own.list_max).unwrap_or(u32::MAX);
    let of_role: &[(u16, u32)] = match own.role {
        Role::Server => &[(MAX_CONCURRENT_STREAMS, own.streams_max), (ENABLE_CONNECT_PROTOCOL, 1)],
        Role::Client => &[(ENABLE_PUSH, 0)],
    };
    let of_both = [(INITIAL_WINDOW_SIZE, own.stream_window), (MAX_HEADER_LIST_SIZE, list_max)];
    let mut payload = Vec::with_capacity(24);
    for (name, value) in of_role.iter().copied().chain(of_both) {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    push_frame(out, FrameKind::Settings, 0, 0, &payload);
}

impl Multiplexer {
    /// A SETTINGS frame has come.
    pub(super) fn take_settings(&mut self, payload: &[u8]) -> Result<(), Fault> {
        if self.frame.is_ack() {
            return Ok(());
        }
        self.peer.have_come = true;
        let (settings, _) = payload.as_chunks::<6>();
        let mut window = None;
        for [a, b, value @ ..] in settings {
            match (u16::from_be_bytes([*a, *b]), u32::from_be_bytes(*value)) {
                (INITIAL_WINDOW_SIZE, size) if size > MAX => return Err(Fault::FlowControl),
                // Each changes the windows of all streams: the last one counts.
                (INITIAL_WINDOW_SIZE, size) => window = Some(i64::from(size)),
                (name, value) => self.take_setting(name, value)?,
            }
        }
        if let Some(size) = window {
            self.resize_windows(size)?;
        }
        push_frame(&mut self.out, FrameKind::Settings, ACK, 0, &[]);
        Ok(())
    }

    fn take_setting(&mut self, name: u16, value: u32) -> Result<(), Fault> {
        match name {
            HEADER_TABLE_SIZE => self.encoder.set_table_max(value),
            // A server pushes where it is let, and we never let it.
            ENABLE_PUSH if value > 1 || (value == 1 && self.own.role == Role::Client) => return Err(Fault::Protocol),
            MAX_CONCURRENT_STREAMS => self.peer.streams_max = value,
            // We never send more than everybody takes.
            MAX_FRAME_SIZE if value < PAYLOAD_MAX as u32 || value > FRAME_LIMIT => return Err(Fault::Protocol),
            ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(Fault::Protocol),
            ENABLE_CONNECT_PROTOCOL => self.peer.takes_extended_connect |= value == 1,
            _ => {}
        }
        Ok(())
    }

    /// The window of every stream changes by what it is to be at first (RFC 9113 6.9.2).
    fn resize_windows(&mut self, size: i64) -> Result<(), Fault> {
        let change = size - self.peer.stream_window;
        self.peer.stream_window = size;
        for key in self.streams.keys() {
            let Some(stream) = self.streams.get_mut(key) else { continue };
            stream.send_window += change;
            if stream.send_window > i64::from(MAX) {
                return Err(Fault::FlowControl);
            }
            if change > 0 {
                self.tell(key, false, true);
            }
        }
        Ok(())
    }
}

//! HTTP/2 as far as an idle client needs it: one request, written as bytes, and its answer, of which only the frames are read.
//!
//! A library would keep far more memory for each of thousands of clients than the servers that are measured.

use super::Session;
use crate::failure::{Failure, Outcome, While};

const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const RST_STREAM: u8 = 3;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;

/// The preface, empty SETTINGS, and on stream 1 HEADERS that end it: `GET https://127.0.0.1/128`, its fields by their places in HPACK's
/// static table (RFC 7541 appendix A).
pub const REQUEST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x00\x04\x00\x00\x00\x00\x00\
    \x00\x00\x13\x01\x05\x00\x00\x00\x01\x82\x87\x04\x04/128\x01\x09127.0.0.1";
const SETTINGS_ACK: &[u8] = &[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0];
const FRAME_HEAD: usize = 9;

/// What was seen of an answer.
#[derive(Default)]
struct Seen {
    data: usize,
    has_ended: bool,
    settings: bool,
    acknowledged: bool,
}

impl Session {
    /// The first and only request of a connection: it must be answered with 128 bytes, and the settings exchanged.
    pub fn exchange_h2(&mut self) -> Outcome<()> {
        self.write(REQUEST).doing(|| "sending a request".to_owned())?;
        let (mut pending, mut buffer, mut seen) = (Vec::new(), [0; 4096], Seen::default());
        while !(seen.has_ended && seen.settings && seen.acknowledged) {
            let count = self.read(&mut buffer).doing(|| "reading an answer".to_owned())?;
            if count == 0 {
                return Err(Failure::new("the connection ended before the answer"));
            }
            pending.extend_from_slice(buffer.get(..count).unwrap_or_default());
            let settings = seen.settings;
            let used = seen.take(&pending)?;
            pending.drain(..used);
            if seen.settings && !settings {
                self.write(SETTINGS_ACK).doing(|| "acknowledging the settings".to_owned())?;
            }
        }
        if seen.data == 128 { Ok(()) } else { Err(Failure::new(format!("an answer of {} bytes", seen.data))) }
    }
}

impl Seen {
    /// Takes the whole frames at the beginning of `bytes`; returns how long they are.
    fn take(&mut self, bytes: &[u8]) -> Outcome<usize> {
        let mut used = 0;
        while let Some(&[high, middle, low, kind, flags, _, _, _, _]) =
            bytes.get(used..used + FRAME_HEAD).and_then(|head| <&[u8; FRAME_HEAD]>::try_from(head).ok())
        {
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if bytes.len() < used + FRAME_HEAD + length {
                break;
            }
            used += FRAME_HEAD + length;
            match kind {
                GOAWAY | RST_STREAM => {
                    return Err(Failure::new(format!("a frame of type {kind} instead of an answer")));
                }
                SETTINGS if flags & ACK != 0 => self.acknowledged = true,
                SETTINGS => self.settings = true,
                DATA => self.data += length,
                _ => {}
            }
            // HEADERS may end the stream as well; SETTINGS have their own meaning for this bit.
            self.has_ended |= kind <= 1 && flags & END_STREAM != 0;
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_whole_and_in_any_pieces() {
        let mut bytes = vec![0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(SETTINGS_ACK);
        bytes.extend_from_slice(&[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88]);
        bytes.extend_from_slice(&[0, 0, 3, DATA, END_STREAM, 0, 0, 0, 1, b'a', b'b', b'c']);
        for piece in 1..bytes.len() {
            let (mut seen, mut pending) = (Seen::default(), Vec::new());
            for part in bytes.chunks(piece) {
                pending.extend_from_slice(part);
                let used = seen.take(&pending).unwrap();
                pending.drain(..used);
            }
            assert!(pending.is_empty() && seen.has_ended && seen.settings && seen.acknowledged);
            assert_eq!(seen.data, 3);
        }
        assert!(Seen::default().take(&[0, 0, 0, GOAWAY, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn the_request_is_as_long_as_its_frames_say() {
        let preface = 24;
        let block = &REQUEST[preface + FRAME_HEAD + FRAME_HEAD..];
        assert_eq!(usize::from(REQUEST[preface + FRAME_HEAD + 2]), block.len());
    }
}

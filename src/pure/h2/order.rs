//! What a client may send when: nothing for a stream that it has ended (RFC 9113 5.1), and no window that is too large
//! (RFC 9113 6.5.2). The `h2` crate refuses both, by another name than the RFC's.
//!
//! It remembers the newest streams alone, and refuses to judge the others: the crate does.

use crate::pure::h2::frames::{Fault, FrameHeader, FrameKind};

/// The setting SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];

/// Follows the order of a client's frames.
#[derive(Clone, Debug, Default)]
pub struct OrderGuard {
    /// The newest stream.
    newest: u32,
    /// Which streams have been ended by their client: those with odd numbers, the newest lowest.
    ended: u128,
    /// What has come of a setting.
    setting: [u8; 6],
    setting_length: u8,
}

impl OrderGuard {
    /// Takes note of a frame's header.
    pub fn note(&mut self, frame: FrameHeader) -> Option<Fault> {
        self.setting_length = 0;
        if frame.stream.is_multiple_of(2) {
            return None;
        }
        let is_reset = match frame.kind {
            FrameKind::Data | FrameKind::Headers => false,
            FrameKind::RstStream => true,
            _ => return None,
        };
        if frame.stream > self.newest {
            if frame.kind != FrameKind::Headers {
                return None;
            }
            self.ended = self.ended.checked_shl((frame.stream - self.newest).div_ceil(2)).unwrap_or(0);
            self.newest = frame.stream;
        }
        let bit = 1_u128.checked_shl((self.newest - frame.stream) / 2)?;
        if self.ended & bit != 0 && !is_reset {
            return Some(Fault::StreamClosed);
        }
        if is_reset || frame.ends_stream() {
            self.ended |= bit;
        }
        None
    }

    /// Follows a piece of the payload of a SETTINGS frame.
    pub fn read_settings(&mut self, payload: &[u8]) -> Option<Fault> {
        for byte in payload {
            if let Some(place) = self.setting.get_mut(usize::from(self.setting_length)) {
                *place = *byte;
            }
            self.setting_length = (self.setting_length + 1) % 6;
            let [a, b, first, ..] = self.setting;
            if self.setting_length == 0 && [a, b] == INITIAL_WINDOW_SIZE && first >= 0x80 {
                return Some(Fault::FlowControl);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_of_2_gib_is_too_large_in_any_pieces() {
        let good = [0, 3, 0xff, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff];
        let bad = [0, 3, 0, 0, 0, 4, 0, 4, 0x80, 0, 0, 0];
        for size in 1..12 {
            let read = |bytes: &[u8]| {
                let mut guard = OrderGuard::default();
                bytes.chunks(size).find_map(|piece| guard.read_settings(piece))
            };
            assert_eq!((read(&good), read(&bad)), (None, Some(Fault::FlowControl)), "pieces of {size}");
        }
    }

    proptest! {
        /// As long as no more streams come than are remembered, it agrees with a set.
        #[test]
        fn nothing_comes_for_a_stream_that_has_ended(
            frames in proptest::collection::vec((0_u8..10, 0_u32..60, any::<bool>()), 1..80),
        ) {
            let (mut guard, mut newest, mut ended) = (OrderGuard::default(), 0, BTreeSet::new());
            for (kind, place, ends) in frames {
                let stream = 2 * place + 1;
                let kind = match kind {
                    0..=3 => FrameKind::Headers,
                    4..=6 => FrameKind::Data,
                    7 => FrameKind::RstStream,
                    8 => FrameKind::WindowUpdate,
                    _ => FrameKind::Settings,
                };
                let frame = FrameHeader { kind, length: 1, flags: u8::from(ends), stream };
                if kind == FrameKind::Headers {
                    newest = newest.max(stream);
                }
                let is_known = stream <= newest;
                let carries = matches!(kind, FrameKind::Headers | FrameKind::Data);
                let wanted = (carries && is_known && ended.contains(&stream)).then_some(Fault::StreamClosed);
                prop_assert_eq!(guard.note(frame), wanted);
                if is_known && (kind == FrameKind::RstStream || (carries && ends)) {
                    ended.insert(stream);
                }
            }
        }
    }
}

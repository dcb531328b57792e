//! What a client may send when: nothing for a stream that it has ended, and no head for one that it has passed over
//! (RFC 9113 5.1, 5.1.1).
//!
//! It remembers the newest streams alone, and lets pass what comes for others: that may be late, and nobody takes it.

use crate::pure::h2::frames::{Fault, FrameHeader, FrameKind};

/// Follows the order of a client's frames.
#[derive(Clone, Debug, Default)]
pub struct OrderGuard {
    /// The newest stream.
    newest: u32,
    /// Which streams there have been: those with odd numbers, the newest lowest.
    begun: u128,
    /// Which of them have been ended by their client.
    ended: u128,
}

impl OrderGuard {
    /// The newest stream.
    pub const fn newest(&self) -> u32 {
        self.newest
    }

    /// Takes note of a frame's header.
    ///
    /// # Errors
    /// [`Fault::Protocol`] and [`Fault::StreamClosed`].
    pub fn note(&mut self, frame: FrameHeader) -> Result<(), Fault> {
        let is_reset = match frame.kind {
            FrameKind::Data | FrameKind::Headers => false,
            FrameKind::RstStream => true,
            FrameKind::WindowUpdate if frame.stream > self.newest => return Err(Fault::Protocol),
            _ => return Ok(()),
        };
        if frame.stream.is_multiple_of(2) {
            return Err(Fault::Protocol);
        }
        if frame.stream > self.newest {
            if frame.kind != FrameKind::Headers {
                return Err(Fault::Protocol);
            }
            let passed = (frame.stream - self.newest).div_ceil(2);
            self.begun = self.begun.checked_shl(passed).unwrap_or(0) | 1;
            self.ended = self.ended.checked_shl(passed).unwrap_or(0);
            self.newest = frame.stream;
        }
        let Some(bit) = 1_u128.checked_shl((self.newest - frame.stream) / 2) else { return Ok(()) };
        if self.begun & bit == 0 {
            return Err(Fault::Protocol);
        }
        if self.ended & bit != 0 && !is_reset {
            return Err(Fault::StreamClosed);
        }
        if is_reset || frame.ends_stream() {
            self.ended |= bit;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As long as no more streams come than are remembered, it agrees with a table.
        #[test]
        fn nothing_comes_for_a_stream_that_has_ended_or_was_passed_over(
            frames in proptest::collection::vec((0_u8..10, 0_u32..60, any::<bool>()), 1..80),
        ) {
            let (mut guard, mut streams) = (OrderGuard::default(), BTreeMap::new());
            for (kind, place, ends) in frames {
                let stream = place + 1;
                let kind = match kind {
                    0..=3 => FrameKind::Headers,
                    4..=6 => FrameKind::Data,
                    7 => FrameKind::RstStream,
                    8 => FrameKind::WindowUpdate,
                    _ => FrameKind::Settings,
                };
                let frame = FrameHeader { kind, length: 1, flags: u8::from(ends), stream };
                let newest = streams.last_key_value().map_or(0, |(newest, _)| *newest);
                let carries = matches!(kind, FrameKind::Headers | FrameKind::Data);
                let wanted = match kind {
                    FrameKind::Settings => Ok(()),
                    FrameKind::WindowUpdate if stream > newest => Err(Fault::Protocol),
                    FrameKind::WindowUpdate => Ok(()),
                    _ if stream % 2 == 0 => Err(Fault::Protocol),
                    FrameKind::Headers if stream > newest => Ok(()),
                    _ => match streams.get(&stream) {
                        None => Err(Fault::Protocol),
                        Some(true) if carries => Err(Fault::StreamClosed),
                        Some(_) => Ok(()),
                    },
                };
                prop_assert_eq!(guard.note(frame), wanted);
                if wanted.is_ok() && (carries || kind == FrameKind::RstStream) {
                    let ended = streams.entry(stream).or_insert(false);
                    *ended |= kind == FrameKind::RstStream || ends;
                }
            }
        }
    }
}

//! How many of a server's requests have failed in the last two seconds.

use std::time::Duration;

use crate::base::time::Timestamp;

/// How far back requests count.
pub const WINDOW: Duration = Duration::from_secs(2);

/// Of fewer requests nothing is concluded.
pub const REQUESTS_MIN: u32 = 20;

const PARTS: usize = 8;

/// Requests that ended and that failed, by eighths of the window.
#[derive(Debug, Default)]
pub(super) struct FailureWindow {
    parts: [(u64, u32, u32); PARTS],
}

impl FailureWindow {
    /// So many ended, and so many of them failed.
    pub(super) fn add(&mut self, now: Timestamp, ended: u32, failed: u32) {
        let number = Self::number(now);
        let Some(part) = self.parts.get_mut((number % PARTS as u64) as usize) else { return };
        if part.0 != number {
            *part = (number, 0, 0);
        }
        part.1 = part.1.saturating_add(ended.max(failed));
        part.2 = part.2.saturating_add(failed);
    }

    /// Those that failed and those that ended, where more than half failed of enough.
    pub(super) fn alarming(&self, now: Timestamp) -> Option<(u32, u32)> {
        let number = Self::number(now);
        let (mut ended, mut failed) = (0u32, 0u32);
        for (part, some, bad) in self.parts {
            if part + PARTS as u64 > number {
                ended = ended.saturating_add(some);
                failed = failed.saturating_add(bad);
            }
        }
        (ended >= REQUESTS_MIN && failed > ended / 2).then_some((failed, ended))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn number(now: Timestamp) -> u64 {
        // From 1 on, so that an empty part belongs to no time.
        now.as_nanos() / (WINDOW.as_nanos() as u64 / PARTS as u64) + PARTS as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn more_than_half_of_twenty_within_two_seconds_is_alarming() {
        let mut window = FailureWindow::default();
        window.add(at(0), 19, 19);
        assert_eq!(window.alarming(at(0)), None);
        window.add(at(100), 1, 0);
        assert_eq!(window.alarming(at(100)), Some((19, 20)));
        window.add(at(1_000), 18, 0);
        assert_eq!(window.alarming(at(1_000)), None, "half is not more than half");
        window.add(at(1_100), 1, 1);
        assert_eq!(window.alarming(at(1_100)), Some((20, 39)));
        assert_eq!(window.alarming(at(2_100)), None, "what is old does not count");
        window.clear();
        assert_eq!(window.alarming(at(1_100)), None);
    }
}

//! What is said of shares that change: of each server at most one line a second, with what came out in the end. Where every server
//! reports ten times a second, the log would have nothing else in it otherwise.
//!
//! It refuses to write: whoever asks gets the changes that are to be told. It holds those of the last second alone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::id::ServerId;
use crate::base::time::Timestamp;
use crate::pure::control::ShareChange;

/// How often the share of one server is told.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The most servers of which it is known when theirs was told; the changes of others are not told meanwhile.
const SERVERS_MAX: usize = 4_096;

/// What was told of late, and what waits.
#[derive(Debug, Default)]
pub(super) struct ShareLog(BTreeMap<ServerId, Told>);

#[derive(Debug)]
struct Told {
    at: Timestamp,
    waiting: Option<ShareChange>,
}

impl ShareLog {
    /// A share has changed. Returns what is to be told now.
    pub(super) fn note(&mut self, now: Timestamp, change: ShareChange) -> Option<ShareChange> {
        if let Some(told) = self.0.get_mut(&change.server) {
            // From where it was told last: what was between is passed over.
            let from = told.waiting.as_ref().map_or(change.from, |waiting| waiting.from);
            told.waiting = Some(ShareChange { from, ..change });
            return None;
        }
        if self.0.len() >= SERVERS_MAX {
            return None;
        }
        self.0.insert(change.server.clone(), Told { at: now, waiting: None });
        Some(change)
    }

    /// What has waited long enough.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<ShareChange> {
        let mut due = Vec::new();
        self.0.retain(|_, told| {
            if now.since(told.at) < TELL_EVERY {
                return true;
            }
            told.at = now;
            let waiting = told.waiting.take();
            let goes_on = waiting.is_some();
            // What went and came back is no change.
            due.extend(waiting.filter(|change| change.from != change.to));
            goes_on
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::pool::Share;

    fn change(server: u32, from: u32, to: u32) -> ShareChange {
        let server = ServerId { pool: "p".into(), server: format!("s{server}").into() };
        let of = |weight: u32| Share::of(weight.try_into().unwrap());
        ShareChange { server, from: of(from), to: of(to), rating: None, is_dry_run: false }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_share_that_changes_ten_times_a_second_is_told_once_a_second_as_it_is_in_the_end() {
        let mut log = ShareLog::default();
        let mut told = Vec::new();
        for step in 0..30 {
            told.extend(log.due(at(u64::from(step) * 100)));
            told.extend(log.note(at(u64::from(step) * 100), change(1, 10 + step, 11 + step)));
        }
        assert_eq!(told, [change(1, 10, 11), change(1, 11, 20), change(1, 20, 30)]);
        assert_eq!(log.due(at(2_999)), []);
        assert_eq!(log.due(at(3_000)), [change(1, 30, 40)], "the last word is told without another");
        assert_eq!(log.due(at(4_000)), []);
        assert!(log.0.is_empty());
        // Another server does not wait for it, and what came back to where it was is not told.
        assert!(log.note(at(5_000), change(1, 10, 20)).is_some() && log.note(at(5_000), change(2, 10, 20)).is_some());
        assert_eq!((log.note(at(5_100), change(1, 20, 5)), log.note(at(5_200), change(1, 5, 20))), (None, None));
        assert_eq!(log.due(at(6_000)), []);
    }

    #[test]
    fn the_servers_that_are_remembered_are_bounded() {
        let mut log = ShareLog::default();
        let servers = u32::try_from(SERVERS_MAX).unwrap() + 9;
        let told = (0..servers).filter(|server| log.note(at(0), change(*server, 1, 2)).is_some()).count();
        assert_eq!((told, log.0.len()), (SERVERS_MAX, SERVERS_MAX));
        log.due(at(1_000));
        assert!(log.note(at(1_000), change(servers, 1, 2)).is_some());
    }
}

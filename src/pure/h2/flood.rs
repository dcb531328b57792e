//! How much a client may send that costs it nothing and us something: resets, pings, settings, empty frames.
//!
//! An account: such frames take from it, time and requests that run put back. Who overdraws it is told to calm down
//! (ENHANCE_YOUR_CALM, RFC 9113 10.5) and goes. A client that does its work never comes near: browsers reset what a user
//! leaves, gRPC pings for its measurements, both now and then. It refuses to count what flow control bounds already.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::h2::frames::{FrameHeader, FrameKind};

/// What a client has at first, and at most.
const CREDIT_MAX: u32 = 1_000;
/// What it gets back in a second.
const CREDIT_PER_SECOND: u32 = 100;
/// What a frame costs that makes us work or answer, or that says nothing.
const FRAME_COST: u32 = 1;
/// What a reset costs: a request has been begun for it. Half of it comes back with the next request.
const RESET_COST: u32 = 4;
/// What a request puts back.
const REQUEST_CREDIT: u32 = 2;

/// A client's account.
#[derive(Clone, Debug)]
pub struct FloodGuard {
    credit: u32,
    paid_until: Timestamp,
}

impl FloodGuard {
    /// A new client's.
    pub const fn new(now: Timestamp) -> Self {
        Self { credit: CREDIT_MAX, paid_until: now }
    }

    /// Takes note of a frame. False: the account is overdrawn.
    pub fn note(&mut self, frame: FrameHeader, now: Timestamp) -> bool {
        let cost = match frame.kind {
            FrameKind::Ping | FrameKind::Settings | FrameKind::Priority | FrameKind::Unknown => FRAME_COST,
            FrameKind::Data if frame.length == 0 && !frame.ends_stream() => FRAME_COST,
            FrameKind::Continuation => FRAME_COST,
            FrameKind::Data
            | FrameKind::Headers
            | FrameKind::RstStream
            | FrameKind::PushPromise
            | FrameKind::GoAway
            | FrameKind::WindowUpdate => return true,
        };
        self.pay(cost, now)
    }

    /// Takes note of a request that is begun.
    pub fn note_request(&mut self) {
        self.credit = (self.credit + REQUEST_CREDIT).min(CREDIT_MAX);
    }

    /// Takes note of a stream that its client has reset, or made us reset, before it was answered. False: the account is
    /// overdrawn.
    pub fn note_reset(&mut self, now: Timestamp) -> bool {
        self.pay(RESET_COST, now)
    }

    /// Takes note of a head that has been read and begins nothing, or a reset of what has been answered. False: the account is overdrawn.
    pub fn note_in_vain(&mut self, now: Timestamp) -> bool {
        self.pay(FRAME_COST, now)
    }

    fn pay(&mut self, cost: u32, now: Timestamp) -> bool {
        self.refill(now);
        match self.credit.checked_sub(cost) {
            Some(left) => {
                self.credit = left;
                true
            }
            None => false,
        }
    }

    fn refill(&mut self, now: Timestamp) {
        let passed = now.since(self.paid_until);
        let earned = passed.as_millis().saturating_mul(u128::from(CREDIT_PER_SECOND)) / 1000;
        if earned == 0 {
            return;
        }
        let earned = u32::try_from(earned).unwrap_or(CREDIT_MAX);
        self.credit = self.credit.saturating_add(earned).min(CREDIT_MAX);
        // What is less than one stays to be earned.
        let paid = Duration::from_millis(u64::from(earned) * 1000 / u64::from(CREDIT_PER_SECOND));
        self.paid_until = if self.credit == CREDIT_MAX { now } else { self.paid_until + paid };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: FrameKind) -> FrameHeader {
        FrameHeader { kind, length: 0, flags: 0, stream: 1 }
    }

    /// How many of these frames in a row are borne, one each `pause`.
    fn borne(kinds: &[FrameKind], pause: Duration) -> usize {
        let mut now = Timestamp::ZERO;
        let mut guard = FloodGuard::new(now);
        let mut is_borne = |kind: &FrameKind| {
            now = now + pause;
            match kind {
                FrameKind::Headers => guard.note_request(),
                FrameKind::RstStream => return guard.note_reset(now),
                _ => {}
            }
            guard.note(frame(*kind), now)
        };
        kinds.iter().cycle().take(100_000).take_while(|kind| is_borne(kind)).count()
    }

    #[test]
    fn floods_of_frames_that_cost_nothing_end() {
        for kind in
            [FrameKind::Ping, FrameKind::Settings, FrameKind::Data, FrameKind::Priority, FrameKind::Continuation]
        {
            assert_eq!(borne(&[kind], Duration::ZERO), 1000, "{kind:?}");
        }
        let rapid_reset = borne(&[FrameKind::Headers, FrameKind::RstStream], Duration::from_micros(100));
        assert!((900..1300).contains(&rapid_reset), "{rapid_reset} frames");
    }

    #[test]
    fn what_clients_do_for_years_is_borne() {
        let all = 100_000;
        assert_eq!(borne(&[FrameKind::Ping], Duration::from_millis(10)), all, "a hundred pings a second");
        let requests = [FrameKind::Headers, FrameKind::Headers, FrameKind::RstStream];
        assert_eq!(borne(&requests, Duration::ZERO), all, "every other request is given up");
        assert_eq!(borne(&[FrameKind::WindowUpdate, FrameKind::Headers], Duration::ZERO), all);
    }
}

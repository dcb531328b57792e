//! How much work a sender of datagrams may cause: the bound on what a flood can make us compute.
//!
//! Nobody knows who sends a datagram before its tag is checked, and to check it is the work. So every address may have some
//! checked in a second, and one address and port that a good report has come from may have many more by itself: whoever floods from
//! an agent's machine, or in its name from other ports, is stopped without stopping the agent. It refuses to check anything.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::base::time::Timestamp;

/// Checks in a second for an address and port that a good report came from.
pub const PROVEN_RATE: u32 = 100_000;

/// Checks in a second for all else from one address.
pub const STRANGER_RATE: u32 = 1_000;

/// Checks in a second for all strangers together.
pub const STRANGERS_RATE: u32 = 20_000;

/// The most addresses and ports that are known as good.
pub const PROVEN_MAX: usize = 65_536;

/// The most addresses of strangers that are counted by themselves.
pub const STRANGERS_MAX: usize = 4_096;

/// So long a good address and port is remembered after its last report, once there are too many.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Tokens that come back with time; there are at most those of one second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    tokens: f64,
    at: Timestamp,
}

impl Bucket {
    pub(super) fn full(rate: u32, now: Timestamp) -> Self {
        Self { tokens: f64::from(rate), at: now }
    }

    pub(super) fn take(&mut self, rate: u32, now: Timestamp) -> bool {
        let rate = f64::from(rate);
        self.tokens = (self.tokens + now.since(self.at).as_secs_f64() * rate).min(rate);
        self.at = self.at.max(now);
        let has = self.tokens >= 1.0;
        if has {
            self.tokens -= 1.0;
        }
        has
    }
}

/// Whether a datagram is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is.
    Admitted,
    /// Its sender is a stranger and has had its share.
    Stranger,
    /// Good reports have come from there, and it has had its share even so: some that were lost may have been good.
    Proven,
}

/// What senders have had.
#[derive(Debug)]
pub struct Guard {
    proven: HashMap<SocketAddr, Bucket>,
    strangers: HashMap<IpAddr, Bucket>,
    all_strangers: Bucket,
}

impl Guard {
    /// Nobody has had anything.
    pub fn new(now: Timestamp) -> Self {
        let all_strangers = Bucket::full(STRANGERS_RATE, now);
        Self { proven: HashMap::new(), strangers: HashMap::new(), all_strangers }
    }

    /// Asks for a check of a datagram from there.
    pub fn admit(&mut self, from: SocketAddr, now: Timestamp) -> Admission {
        if let Some(bucket) = self.proven.get_mut(&from) {
            return if bucket.take(PROVEN_RATE, now) { Admission::Admitted } else { Admission::Proven };
        }
        if !self.strangers.contains_key(&from.ip()) && self.strangers.len() >= STRANGERS_MAX {
            // Those who have been quiet for a second are as good as new.
            self.strangers.retain(|_, bucket| now.since(bucket.at) < Duration::from_secs(1));
        }
        let has_room = self.strangers.len() < STRANGERS_MAX;
        let is_admitted = match self.strangers.get_mut(&from.ip()) {
            Some(bucket) => bucket.take(STRANGER_RATE, now),
            None if has_room => {
                let bucket = Bucket::full(STRANGER_RATE, now);
                self.strangers.entry(from.ip()).or_insert(bucket).take(STRANGER_RATE, now)
            }
            None => true,
        };
        let is_admitted = is_admitted && self.all_strangers.take(STRANGERS_RATE, now);
        if is_admitted { Admission::Admitted } else { Admission::Stranger }
    }

    /// A good report has come from there.
    pub fn prove(&mut self, from: SocketAddr, now: Timestamp) {
        if self.proven.contains_key(&from) {
            return;
        }
        if self.proven.len() >= PROVEN_MAX {
            self.proven.retain(|_, bucket| now.since(bucket.at) < FORGOTTEN_AFTER);
        }
        if self.proven.len() < PROVEN_MAX {
            self.proven.insert(from, Bucket::full(PROVEN_RATE, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn from(last: u8, port: u16) -> SocketAddr {
        ([10, 0, 0, last], port).into()
    }

    /// How many of so many datagrams, spread over a second, are admitted.
    fn admitted(guard: &mut Guard, from: impl Fn(u32) -> SocketAddr, count: u32, second: u64) -> u32 {
        let time = |number: u32| at(second * 1_000 + u64::from(number) * 1_000 / u64::from(count));
        (0..count).map(|number| u32::from(guard.admit(from(number), time(number)) == Admission::Admitted)).sum()
    }

    #[test]
    fn a_flood_from_an_agents_machine_does_not_stop_its_agent() {
        let mut guard = Guard::new(at(0));
        guard.prove(from(1, 5_000), at(0));
        let flood = admitted(&mut guard, |number| from(1, 10_000 + (number % 5_000) as u16), 100_000, 0);
        assert!(flood <= 2 * STRANGER_RATE, "{flood}");
        assert_eq!(guard.admit(from(1, 5_000), at(1_000)), Admission::Admitted);
        let flood = admitted(&mut guard, |number| from(1, (number % 60_000) as u16), 100_000, 1);
        assert!(flood <= STRANGER_RATE + 10, "{flood}");
    }

    #[test]
    fn what_is_lost_of_a_known_sender_is_told_apart() {
        let mut guard = Guard::new(at(0));
        guard.prove(from(1, 5_000), at(0));
        let answers: Vec<Admission> = (0..PROVEN_RATE + 2).map(|_| guard.admit(from(1, 5_000), at(1))).collect();
        assert_eq!(answers.first(), Some(&Admission::Admitted));
        assert_eq!(answers.last(), Some(&Admission::Proven));
        assert_eq!(guard.admit(from(1, 5_000), at(2)), Admission::Admitted);
    }

    #[test]
    fn many_strangers_share_a_bound_and_a_bounded_table() {
        let mut guard = Guard::new(at(0));
        let stranger = |number: u32| SocketAddr::from((std::net::Ipv4Addr::from_bits(number), 9));
        let flood = admitted(&mut guard, stranger, 200_000, 0);
        assert!(flood <= 2 * STRANGERS_RATE, "{flood}");
        assert!(guard.strangers.len() <= STRANGERS_MAX);
        // Later nobody suffers for it.
        assert_eq!(guard.admit(from(9, 9), at(3_000)), Admission::Admitted);
        for number in 0..PROVEN_MAX as u32 + 10 {
            guard.prove(stranger(number), at(4_000));
        }
        assert_eq!(guard.proven.len(), PROVEN_MAX);
        guard.prove(from(1, 1), at(4_000) + FORGOTTEN_AFTER);
        assert_eq!(guard.proven.len(), 1);
    }

    #[test]
    fn a_clock_that_stands_still_gives_nothing_back() {
        let mut guard = Guard::new(at(10));
        let count = (0..5_000).filter(|_| guard.admit(from(1, 1), at(10)) == Admission::Admitted).count();
        assert_eq!(count, STRANGER_RATE as usize);
    }
}

//! How much work a sender of datagrams may cause: the bound on what a flood can make us compute.
//!
//! Nobody knows who sends a datagram before its tag is checked, and to check it is the work. So every address may have some
//! checked in a second, and the address and port that an agent's last good report has come from may have many more by itself:
//! whoever floods from an agent's machine, or in its name from other ports, is stopped without stopping the agent. An agent has one
//! such place, so that one whose keys are somebody else's takes nobody's. It refuses to check anything.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;

/// Checks in a second for an address and port that a good report came from.
pub const PROVEN_RATE: u32 = 100_000;

/// Checks in a second for all else from one address.
pub const STRANGER_RATE: u32 = 1_000;

/// Checks in a second for all strangers together.
pub const STRANGERS_RATE: u32 = 20_000;

/// The most addresses of strangers that are counted by themselves.
pub const STRANGERS_MAX: usize = 4_096;

/// How often room is looked for among strangers at most: that takes a look at each.
const SWEEP: Duration = Duration::from_millis(100);

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

/// Where an agent's last good report came from, and what has come from there. What it has had goes with it when it moves.
#[derive(Debug)]
struct Place {
    from: SocketAddr,
    bucket: Bucket,
}

/// What senders have had.
#[derive(Debug)]
pub struct Guard {
    /// Whose place an address and port is.
    proven: HashMap<SocketAddr, ServerSlot>,
    /// One for each server at most.
    places: HashMap<ServerSlot, Place>,
    strangers: HashMap<IpAddr, Bucket>,
    all_strangers: Bucket,
    swept: Timestamp,
}

impl Guard {
    /// Nobody has had anything.
    pub fn new(now: Timestamp) -> Self {
        let all_strangers = Bucket::full(STRANGERS_RATE, now);
        Self { proven: HashMap::new(), places: HashMap::new(), strangers: HashMap::new(), all_strangers, swept: now }
    }

    /// Asks for a check of a datagram from there.
    pub fn admit(&mut self, from: SocketAddr, now: Timestamp) -> Admission {
        let owner = self.proven.get(&from);
        if let Some(place) = owner.and_then(|slot| self.places.get_mut(slot)) {
            return if place.bucket.take(PROVEN_RATE, now) { Admission::Admitted } else { Admission::Proven };
        }
        let is_full = !self.strangers.contains_key(&from.ip()) && self.strangers.len() >= STRANGERS_MAX;
        if is_full && now.since(self.swept) >= SWEEP {
            self.swept = now;
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

    /// A good report of a server's agent has come from there: no other address and port is its place any more.
    pub fn prove(&mut self, slot: ServerSlot, from: SocketAddr, now: Timestamp) {
        let bucket = Bucket::full(PROVEN_RATE, now);
        let place = self.places.entry(slot).or_insert(Place { from, bucket });
        let before = std::mem::replace(&mut place.from, from);
        if before != from && self.proven.get(&before) == Some(&slot) {
            self.proven.remove(&before);
        }
        // Whoever sends in the name of another agent's place has it until that is heard again.
        self.proven.insert(from, slot);
    }

    /// Forgets the places of all but these servers.
    pub fn keep(&mut self, is_kept: impl Fn(ServerSlot) -> bool) {
        self.places.retain(|slot, _| is_kept(*slot));
        self.proven.retain(|_, slot| is_kept(*slot));
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
        guard.prove(ServerSlot(1), from(1, 5_000), at(0));
        let flood = admitted(&mut guard, |number| from(1, 10_000 + (number % 5_000) as u16), 100_000, 0);
        assert!(flood <= 2 * STRANGER_RATE, "{flood}");
        assert_eq!(guard.admit(from(1, 5_000), at(1_000)), Admission::Admitted);
        let flood = admitted(&mut guard, |number| from(1, (number % 60_000) as u16), 100_000, 1);
        assert!(flood <= STRANGER_RATE + 10, "{flood}");
    }

    #[test]
    fn what_is_lost_of_a_known_sender_is_told_apart() {
        let mut guard = Guard::new(at(0));
        guard.prove(ServerSlot(1), from(1, 5_000), at(0));
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
    }

    #[test]
    fn one_whose_keys_are_somebody_elses_takes_no_place_but_its_own() {
        let mut guard = Guard::new(at(0));
        guard.prove(ServerSlot(2), from(2, 5_000), at(0));
        for port in 1..60_000 {
            guard.prove(ServerSlot(1), from(1, port), at(u64::from(port)));
        }
        assert_eq!((guard.proven.len(), guard.places.len()), (2, 2));
        guard.prove(ServerSlot(3), from(3, 5_000), at(60_000));
        // In the name of another, and gone again: that one has its place back with its next report.
        guard.prove(ServerSlot(1), from(2, 5_000), at(60_000));
        guard.prove(ServerSlot(2), from(2, 5_000), at(60_000));
        guard.prove(ServerSlot(1), from(1, 1), at(60_000));
        for (last, port, slot) in [(1, 1, 1), (2, 5_000, 2), (3, 5_000, 3)] {
            assert_eq!(guard.proven.get(&from(last, port)), Some(&ServerSlot(slot)));
        }
        guard.keep(|slot| slot == ServerSlot(3));
        assert_eq!((guard.proven.len(), guard.places.len()), (1, 1));
    }

    #[test]
    fn to_move_gives_nothing_back() {
        let mut guard = Guard::new(at(0));
        let moved = (0..2 * PROVEN_RATE).filter(|number| {
            let place = from(1, 1 + (number / 10_000) as u16);
            guard.prove(ServerSlot(1), place, at(0));
            guard.admit(place, at(0)) == Admission::Admitted
        });
        assert_eq!(moved.count(), PROVEN_RATE as usize);
    }

    #[test]
    fn a_clock_that_stands_still_gives_nothing_back() {
        let mut guard = Guard::new(at(10));
        let count = (0..5_000).filter(|_| guard.admit(from(1, 1), at(10)) == Admission::Admitted).count();
        assert_eq!(count, STRANGER_RATE as usize);
    }
}

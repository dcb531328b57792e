//! What becomes of a datagram that came to the feedback socket: a report of a configured server, or a reason to refuse it.
//!
//! What costs least is asked first: the source, the form, the server's name, how much its sender has had ([`Guard`]), and only
//! then the tag; the content is read last, and counts once ([`Acceptance`]). So a flood changes nothing and costs little, and
//! whoever can't sign for a server changes nothing of it. Orders go where the last report that counted came from.
//!
//! Each server that is new gets a challenge of its own, also one that was taken away and comes back: what its agent sent before is
//! worthless. It refuses to open sockets, to make random numbers but from the one that it is given, and to judge what a report says.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::hmac;

use crate::base::id::{ServerId, ServerSlot};
use crate::base::time::{Timestamp, UnixNanos};
use crate::pure::feedback::acceptance::{Acceptance, Refusal};
use crate::pure::feedback::guard::{Admission, Bucket, Guard};
use crate::pure::feedback::keys::{AgentKeys, MasterKey};
use crate::pure::feedback::wire::{self, Challenge, OrderKind, ServerName, SignedReport, WireError, seal_order};
use crate::pure::rule::Cidr;

/// The length of the secret that challenges are made from, in bytes.
pub const SECRET_LENGTH: usize = 32;

/// The least time between two introductions to one server's agent, for reports that are newer than all before; and to one
/// address and port, for others.
const INTRODUCTION_GAP: Duration = Duration::from_millis(20);

/// The most addresses and ports that are introduced within the gap to one server, for reports that are not newer.
const REINTRODUCED_MAX: usize = 8;

/// An agent whose reports have been old for so long had its clock set back: it is introduced anew.
const OLD_FOR: Duration = Duration::from_secs(5);

/// The reports of one server that are told in a second: an agent sends ten by itself, some more of what changes, and answers.
const REPORTS_RATE: u32 = 500;

/// Whose datagrams are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    addresses: HashSet<IpAddr>,
    ranges: Vec<Cidr>,
}

impl Sources {
    /// These ranges.
    pub fn new(ranges: &[Cidr]) -> Self {
        let mut sources = Self::default();
        for range in ranges {
            if *range == Cidr::single(range.address) {
                sources.addresses.insert(range.address.to_canonical());
            } else {
                sources.ranges.push(*range);
            }
        }
        sources
    }

    /// Whether an address is one of them.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.addresses.contains(&address) || self.ranges.iter().any(|range| range.contains(address))
    }
}

/// Why a datagram is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is from nobody who may report.
    Foreign,
    /// It has not the form of a report, or says what can't be.
    Malformed,
    /// It names no configured server.
    Unknown,
    /// Its sender has had its share of checks.
    Limited(Admission),
    /// It would count, but for so many others: its agent is mad, or its keys are somebody else's.
    TooMany,
    /// It is not signed by the server's agent.
    Forged,
    /// It was sent too long ago, or the clocks differ.
    Late,
    /// It was counted before, or one that came later was.
    Replayed {
        /// Whether the agent should be introduced anew, with another challenge.
        wants_renewal: bool,
    },
    /// Its sender has not heard of this balancer, and gets this; `None`: it got one just now.
    Unheard(Option<Vec<u8>>),
}

/// A report that counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The server.
    pub slot: ServerSlot,
    /// What its agent says.
    pub message: SignedReport,
}

/// An order as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedOrder {
    /// Its number, by which its agent tells of it.
    pub number: u64,
    /// Its bytes.
    pub datagram: Vec<u8>,
    /// Where its agent is.
    pub to: SocketAddr,
}

/// Nobody is known to whom the order could go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undeliverable {
    /// The server is not configured, or its name is too long for a datagram.
    #[error("the server has no agent")]
    Unknown,
    /// No report of it has counted yet.
    #[error("nothing has been heard of the server's agent yet")]
    Unheard,
}

/// To whom a server's agent was introduced lately. A report that is newer than all before it is its agent's own, and no copy that
/// somebody sends again keeps it from its introduction.
#[derive(Debug, Default)]
struct Introductions {
    /// The newest report that was answered, and when.
    newest: Option<((u64, u64), Timestamp)>,
    /// Who else was answered within the gap, the last one last.
    others: VecDeque<(SocketAddr, Timestamp)>,
}

impl Introductions {
    /// Whether a report, known by its (boot, sequence), is answered now.
    fn take(&mut self, report: (u64, u64), from: SocketAddr, now: Timestamp) -> bool {
        let is_over = |at: Timestamp| now.since(at) >= INTRODUCTION_GAP;
        if self.newest.is_none_or(|(newest, at)| report > newest && is_over(at)) {
            self.newest = Some((report, now));
            return true;
        }
        // A copy, or from an agent whose clock was set back.
        while self.others.front().is_some_and(|(_, at)| is_over(*at)) {
            self.others.pop_front();
        }
        let is_open = self.others.len() < REINTRODUCED_MAX && self.others.iter().all(|(known, _)| *known != from);
        if is_open {
            self.others.push_back((from, now));
        }
        is_open
    }
}

#[derive(Debug)]
struct Agent {
    slot: ServerSlot,
    name: ServerName,
    keys: AgentKeys,
    acceptance: Acceptance,
    /// Where its last report that counted came from.
    from: Option<SocketAddr>,
    introductions: Introductions,
    /// How many more are told.
    reports: Bucket,
    /// Since when its reports have been old, and none has counted.
    old_since: Option<Timestamp>,
}

/// Challenges that nobody can foresee, each another, from one secret.
struct Challenges {
    secret: hmac::Key,
    next: u64,
}

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Challenges")
    }
}

impl Challenges {
    fn of(secret: &[u8; SECRET_LENGTH]) -> Self {
        Self { secret: hmac::Key::new(hmac::HMAC_SHA256, secret), next: 0 }
    }

    fn next(&mut self) -> Challenge {
        let tag = hmac::sign(&self.secret, &self.next.to_be_bytes());
        self.next += 1;
        // A tag has twice as many bytes.
        Challenge(tag.as_ref().first_chunk().copied().unwrap_or_default())
    }
}

/// Everything that is known of agents.
#[derive(Debug)]
pub struct Reception {
    master: MasterKey,
    challenges: Challenges,
    agents: HashMap<Box<str>, Agent>,
    names: HashMap<ServerSlot, Box<str>>,
    sources: Sources,
    guard: Guard,
    next_number: u64,
}

impl Reception {
    /// Nothing is known yet. The secret, which all challenges are made from, has to be random, and new with each process.
    pub fn new(master: MasterKey, secret: &[u8; SECRET_LENGTH], now: Timestamp) -> Self {
        Self {
            master,
            challenges: Challenges::of(secret),
            agents: HashMap::new(),
            names: HashMap::new(),
            sources: Sources::default(),
            guard: Guard::new(now),
            next_number: 0,
        }
    }

    /// Takes over the configured servers; what is known of those that stay is kept. Returns those whose names are too long.
    pub fn follow(&mut self, servers: impl Iterator<Item = (ServerId, ServerSlot)>, sources: Sources) -> Vec<ServerId> {
        self.sources = sources;
        let mut known = std::mem::take(&mut self.agents);
        self.names.clear();
        let mut nameless = Vec::new();
        for (id, slot) in servers {
            let name = ServerName::of(&id).ok();
            let keys = name.as_ref().and_then(|name| self.master.pair(name));
            let (Some(name), Some(keys)) = (name, keys) else {
                nameless.push(id);
                continue;
            };
            let text: Box<str> = name.as_str().into();
            let before = known.remove(&text).filter(|agent| agent.slot == slot);
            let challenges = &mut self.challenges;
            let agent = before.unwrap_or_else(|| Agent {
                slot,
                name,
                keys,
                acceptance: Acceptance::new(challenges.next()),
                from: None,
                introductions: Introductions::default(),
                reports: Bucket::full(REPORTS_RATE, Timestamp::ZERO),
                old_since: None,
            });
            self.names.insert(slot, text.clone());
            self.agents.insert(text, agent);
        }
        self.guard.keep(|slot| self.names.contains_key(&slot));
        nameless
    }

    /// Looks at a datagram that came at `now`, which is `wall` by the wall clock.
    ///
    /// # Errors
    /// [`Refused`]: nothing has changed but what its sender has had.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        now: Timestamp,
        wall: UnixNanos,
    ) -> Result<Received, Refused> {
        if !self.sources.contain(from.ip()) {
            return Err(Refused::Foreign);
        }
        let sealed = wire::open(datagram).map_err(|_| Refused::Malformed)?;
        let agent = self.agents.get_mut(sealed.name()).ok_or(Refused::Unknown)?;
        match self.guard.admit(from, now) {
            Admission::Admitted => {}
            limited @ (Admission::Stranger | Admission::Proven) => return Err(Refused::Limited(limited)),
        }
        let message = sealed
            .report(agent.keys.report())
            .map_err(|error| if error == WireError::Forged { Refused::Forged } else { Refused::Malformed })?;
        match agent.acceptance.accept(&message, wall) {
            Ok(()) => {
                agent.old_since = None;
                agent.from = Some(from);
                self.guard.prove(agent.slot, from, now);
                if !agent.reports.take(REPORTS_RATE, now) {
                    return Err(Refused::TooMany);
                }
                Ok(Received { slot: agent.slot, message })
            }
            Err(Refusal::Stale | Refusal::Future) => Err(Refused::Late),
            Err(Refusal::Replayed) => Err(Refused::Replayed { wants_renewal: false }),
            Err(Refusal::Old) => {
                let since = *agent.old_since.get_or_insert(now);
                Err(Refused::Replayed { wants_renewal: now.since(since) >= OLD_FOR })
            }
            Err(Refusal::Unheard) => Err(Refused::Unheard(self.introduce(sealed.name(), &message, from, now))),
        }
    }

    fn introduce(&mut self, name: &str, to: &SignedReport, from: SocketAddr, now: Timestamp) -> Option<Vec<u8>> {
        let agent = self.agents.get_mut(name)?;
        if !agent.introductions.take((to.report.boot, to.report.sequence), from, now) {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        seal_order(&agent.name, agent.keys.order(), &agent.acceptance.introduction(to, number)).ok()
    }

    /// Begins anew with the agent that such a datagram names, by another challenge: its clock was set back.
    pub fn renew(&mut self, datagram: &[u8]) {
        let name = wire::open(datagram).map(|sealed| sealed.name().to_owned());
        if let Some(agent) = name.ok().and_then(|name| self.agents.get_mut(name.as_str())) {
            agent.acceptance.renew(self.challenges.next());
            agent.introductions = Introductions::default();
            agent.old_since = None;
        }
    }

    /// An order to a server's agent.
    ///
    /// # Errors
    /// [`Undeliverable`].
    pub fn order(&mut self, slot: ServerSlot, kind: OrderKind, wall: UnixNanos) -> Result<SealedOrder, Undeliverable> {
        let number = self.next_number;
        self.next_number += 1;
        let agent = self.names.get(&slot).and_then(|name| self.agents.get(name)).ok_or(Undeliverable::Unknown)?;
        let order = agent.acceptance.order(kind, number, wall).ok_or(Undeliverable::Unheard)?;
        let to = agent.from.ok_or(Undeliverable::Unheard)?;
        // An order has a fixed length, and a name that fits.
        let datagram = seal_order(&agent.name, agent.keys.order(), &order).map_err(|_| Undeliverable::Unknown)?;
        Ok(SealedOrder { number, datagram, to })
    }
}

#[cfg(test)]
mod tests;

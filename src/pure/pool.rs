//! Pools and their servers as configured, and the small live view of them that a scheduler chooses from.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::base::id::{ServerId, ServerSlot};
use crate::base::units::Bytes;
use crate::pure::rule::KeySource;

/// Where a server listens. Names and unix sockets are parsed now and dialled by a later issue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a port.
    Socket(SocketAddr),
    /// A host name that is resolved again by TTL, and a port.
    Name(String, u16),
    /// A unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(address) => write!(f, "{address}"),
            Self::Name(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A server as the rule file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Pool and server name.
    pub id: ServerId,
    /// Where it listens.
    pub address: Address,
    /// Its configured share, 0..=65535; 0 gets nothing.
    pub weight: u16,
    /// The most requests it may have in flight; `None`: no bound.
    pub max: Option<u32>,
}

/// How the servers of a pool are spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The protocol.
    pub protocol: UpstreamProtocol,
    /// The most idle connections kept per worker and server.
    pub idle_max: u32,
    /// How long an idle connection is kept; below the server's own keep-alive time.
    pub idle_timeout: Duration,
}

impl Default for Upstream {
    fn default() -> Self {
        Self { protocol: UpstreamProtocol::Http1, idle_max: 128, idle_timeout: Duration::from_secs(4) }
    }
}

/// Protocols towards servers. HTTP/2 comes with a later issue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
}

/// The time bounds of a pool's exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection to be made.
    pub connect: Duration,
    /// For any wait for the server's bytes, head or body, while we are reading.
    pub response: Duration,
    /// For a tunnel in which no byte moves.
    pub tunnel: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(2), response: Duration::from_secs(60), tunnel: Duration::from_secs(3600) }
    }
}

/// When a request is sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The most repetitions of one request.
    pub count: u32,
    /// After a connection could not be made.
    pub on_connect: bool,
    /// After a connection broke before a byte of the answer came.
    pub on_reset: bool,
    /// After one of these answers: some of 500, 502, 503, 504. The head is held back until the choice is made.
    pub on_status: Vec<u16>,
}

impl Default for Retry {
    fn default() -> Self {
        Self { count: 1, on_connect: true, on_reset: true, on_status: Vec::new() }
    }
}

/// Which scheduler a pool uses, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerConfig {
    /// Next eligible after the last.
    RoundRobin,
    /// Shares by weight.
    WeightedRoundRobin(WrrMode),
    /// Least requests in flight per weight.
    WeightedLeastConnections(Ties),
}

impl SchedulerConfig {
    /// Its name in rule files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "rr",
            Self::WeightedRoundRobin(_) => "wrr",
            Self::WeightedLeastConnections(_) => "wlc",
        }
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self::WeightedRoundRobin(WrrMode::Smooth)
    }
}

/// The order in which weighted round robin deals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WrrMode {
    /// The order in which 5,1,1 gives A A B A C A A.
    #[default]
    Smooth,
    /// The kernel's gcd/max walk, in which 4,3,2 gives A A B A B C A B C.
    Ipvs,
}

/// Who wins among equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// They take turns.
    #[default]
    Rotate,
    /// The first in file order: the kernel's way.
    First,
}

/// A pool as the rule file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: Arc<str>,
    /// Its servers in file order.
    pub servers: Vec<Arc<Server>>,
    /// How a server is chosen.
    pub scheduler: SchedulerConfig,
    /// What the scheduler hashes, where the rule says nothing.
    pub key: Option<KeySource>,
    /// How its servers are spoken to.
    pub upstream: Upstream,
    /// Its time bounds.
    pub timeouts: Timeouts,
    /// When a request is sent again.
    pub retry: Retry,
}

/// The most of a request's body that is kept for a repetition.
pub const RETRY_BODY_MAX: Bytes = Bytes::kib(64);

/// What a server may get now. One table says what each state allows: [`State::allows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Answers well.
    Up,
    /// Back, on probation and on a rising share.
    Recovering,
    /// Something is wrong; `by_overload` where it is only too much work.
    Suspect {
        /// Overload is never treated as death.
        by_overload: bool,
    },
    /// Known to be dead.
    Down,
    /// An operator lets its clients finish.
    Drained,
    /// An operator has taken it out.
    Maintenance,
}

/// Who asks a state for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A request without a history.
    New,
    /// A request whose client belongs to the server.
    Persistent,
    /// Any request while fewer than half of the pool are available.
    InPanic,
}

impl State {
    /// Whether a server in this state may get such a request: Up and Recovering all, Suspect in panic and, where by
    /// overload, persistent ones, Down nothing, Drained persistent ones, Maintenance nothing.
    pub const fn allows(self, wanted: Wanted) -> bool {
        match (self, wanted) {
            (Self::Up | Self::Recovering, _)
            | (Self::Suspect { .. }, Wanted::InPanic)
            | (Self::Suspect { by_overload: true } | Self::Drained, Wanted::Persistent) => true,
            (Self::Suspect { .. } | Self::Down | Self::Drained | Self::Maintenance, _) => false,
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Recovering => "recovering",
            Self::Suspect { by_overload: false } => "suspect",
            Self::Suspect { by_overload: true } => "suspect (overload)",
            Self::Down => "down",
            Self::Drained => "drained",
            Self::Maintenance => "in maintenance",
        })
    }
}

/// What a choice asks of one server's present, over all workers: its requests in flight, and whether connects to it fail.
/// Padded to a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Load {
    active: AtomicU32,
    inactive: AtomicU32,
    connect_failures: AtomicU32,
}

impl Load {
    /// Requests in flight now.
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// Idle connections that are to count as load; 0 unless somebody says otherwise.
    pub fn inactive(&self) -> u32 {
        self.inactive.load(Ordering::Relaxed)
    }

    /// Says how many idle connections count as load.
    pub fn set_inactive(&self, connections: u32) {
        self.inactive.store(connections, Ordering::Relaxed);
    }

    /// Connects that failed since the last good one.
    pub fn connect_failures_in_a_row(&self) -> u32 {
        self.connect_failures.load(Ordering::Relaxed)
    }

    /// Counts a connect that failed.
    pub fn count_connect_failure(&self) {
        self.connect_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was made, or an answer came: connect failures are no longer in a row.
    pub fn forget_connect_failures(&self) {
        // Read first: what nobody writes stays in every core's cache.
        if self.connect_failures_in_a_row() != 0 {
            self.connect_failures.store(0, Ordering::Relaxed);
        }
    }

    /// Takes a place, unless `max` are taken. Several workers can't overrun it.
    pub fn try_reserve(&self, max: Option<u32>) -> bool {
        let Some(max) = max else {
            self.active.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        self.active
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |active| (active < max).then_some(active + 1))
            .is_ok()
    }

    /// Gives a place back. Only who reserved one may call it.
    pub fn release(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A server's share now, in 1/256 of a configured weight: a server of weight 1 can start slowly, at a tenth of its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// No share: no new request.
    pub const ZERO: Self = Self(0);
    const PER_WEIGHT: u32 = 256;
    /// The largest share there is, that of weight 65 535; so a share has at most 24 bits.
    pub const MAX: Self = Self::of(u16::MAX);

    /// The whole share of a configured weight.
    pub const fn of(weight: u16) -> Self {
        Self(weight as u32 * Self::PER_WEIGHT)
    }

    /// A share of so many 1/256; cut off at [`Share::MAX`].
    pub const fn from_units(units: u32) -> Self {
        if units > Self::MAX.0 { Self::MAX } else { Self(units) }
    }

    /// In 1/256 of a configured weight.
    pub const fn units(self) -> u32 {
        self.0
    }

    /// Whether it is no share at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_multiple_of(Self::PER_WEIGHT) {
            write!(f, "{}", self.0 / Self::PER_WEIGHT)
        } else {
            write!(f, "{:.2}", f64::from(self.0) / f64::from(Self::PER_WEIGHT))
        }
    }
}

/// A server as a scheduler sees it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The server.
    pub server: Arc<Server>,
    /// Its number in tables on the request's path.
    pub slot: ServerSlot,
    /// Counts the addresses it has had: an idle connection of another incarnation leads elsewhere and is dropped.
    pub incarnation: u32,
    /// Its state.
    pub state: State,
    /// Its share now: that of the configured weight, moved by feedback and slow start.
    pub share: Share,
    /// The most requests it may have in flight, copied here so that a scan need not follow to the server.
    pub max: Option<u32>,
    /// Its requests in flight.
    pub load: Arc<Load>,
}

/// The servers that one request has tried already, by their numbers, so that they keep their meaning when the snapshot
/// changes between two attempts.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    slots: [ServerSlot; Self::MAX],
    count: u8,
}

impl Tried {
    /// The most servers it remembers; then it forgets the earliest.
    pub const MAX: usize = 8;

    /// No server.
    pub const NONE: Self = Self { slots: [ServerSlot(0); Self::MAX], count: 0 };

    /// Remembers a server.
    pub fn add(&mut self, slot: ServerSlot) {
        if self.contains(slot) {
            return;
        }
        if let Some(free) = self.slots.get_mut(usize::from(self.count)) {
            *free = slot;
            self.count += 1;
        } else {
            self.slots.rotate_left(1);
            if let Some(last) = self.slots.last_mut() {
                *last = slot;
            }
        }
    }

    /// Whether this server was tried.
    pub fn contains(&self, slot: ServerSlot) -> bool {
        self.slots.iter().take(usize::from(self.count)).any(|tried| *tried == slot)
    }

    /// Whether no server was tried.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Why a candidate may not get a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// Its state does not allow it.
    State(State),
    /// It has no share.
    NoShare,
    /// As many requests are in flight as it may have.
    Full(u32),
    /// This request was there before.
    Tried,
    /// It is suspected, or the last connect to it failed; for a repetition that is a reason to look further.
    Doubtful,
}

impl std::fmt::Display for Ineligible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::State(state) => write!(f, "it is {state}"),
            Self::NoShare => write!(f, "its weight is 0"),
            Self::Full(max) => write!(f, "its {max} places are taken"),
            Self::Tried => write!(f, "this request has tried it"),
            Self::Doubtful => write!(f, "it is not known to be well"),
        }
    }
}

/// What a scheduler chooses from: the pool's servers in file order, and who asks.
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'a> {
    /// The servers in file order.
    pub candidates: &'a [Candidate],
    /// Another number for each change of a state or a share: what a scheduler has worked out from them holds as long as
    /// this number does.
    pub generation: u64,
    /// [`Wanted::InPanic`] lets requests through to suspected servers.
    pub wanted: Wanted,
    /// Refuses servers that are not known to be well, whatever `wanted` says: suspected ones, and those to which the last
    /// connect failed. So a repetition asks first.
    pub only_well: bool,
    /// Servers that this request has tried already.
    pub tried: &'a Tried,
}

impl PoolView<'_> {
    /// Whether candidate `index` may get this request: its state allows it, it has a share, a free place, and was not
    /// tried before.
    pub fn is_eligible(&self, index: usize) -> bool {
        self.candidates.get(index).is_some_and(|candidate| {
            self.stands(candidate)
                && candidate.max.is_none_or(|max| candidate.load.active() < max)
                && (self.tried.is_empty() || !self.tried.contains(candidate.slot))
                && (!self.only_well || is_well(candidate))
        })
    }

    /// The part of eligibility that holds as long as the generation does: state and share.
    pub fn stands(&self, candidate: &Candidate) -> bool {
        candidate.state.allows(self.wanted) && !candidate.share.is_zero()
    }

    /// Why a candidate may not get this request; `None`: it may.
    pub fn objection(&self, candidate: &Candidate) -> Option<Ineligible> {
        if !candidate.state.allows(self.wanted) {
            return Some(Ineligible::State(candidate.state));
        }
        if candidate.share.is_zero() {
            return Some(Ineligible::NoShare);
        }
        if let Some(max) = candidate.max.filter(|max| candidate.load.active() >= *max) {
            return Some(Ineligible::Full(max));
        }
        if self.tried.contains(candidate.slot) {
            return Some(Ineligible::Tried);
        }
        (self.only_well && !is_well(candidate)).then_some(Ineligible::Doubtful)
    }
}

fn is_well(candidate: &Candidate) -> bool {
    candidate.state.allows(Wanted::New) && candidate.load.connect_failures_in_a_row() == 0
}

/// Whether fewer than half of a pool's servers are available, so that suspicion is ignored: better a doubtful server than
/// all load on the few others. Servers without a share and those an operator has taken out are not counted.
pub fn is_in_panic(candidates: &[Candidate]) -> bool {
    let mut counted = 0usize;
    let mut available = 0usize;
    for candidate in candidates {
        if candidate.share.is_zero() || matches!(candidate.state, State::Drained | State::Maintenance) {
            continue;
        }
        counted += 1;
        available += usize::from(candidate.state.allows(Wanted::New));
    }
    available * 2 < counted
}

#[cfg(test)]
mod tests;

//! The live view of a pool that a scheduler chooses from: who stands there, with what share and load, and who is eligible.

use std::sync::Arc;

use super::{Load, Server, State, Wanted};
use crate::base::id::ServerSlot;

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

    /// `numerator` of `denominator` parts of it, rounded down; never nothing where it is something, never more than all.
    pub const fn part(self, numerator: u16, denominator: u16) -> Self {
        if self.0 == 0 || numerator >= denominator {
            return self;
        }
        let (numerator, denominator) = (numerator as u32, denominator as u32);
        let units = self.0 / denominator * numerator + self.0 % denominator * numerator / denominator;
        if units == 0 { Self(1) } else { Self(units) }
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

impl Candidate {
    /// Whether as many requests are in flight as it may have.
    pub fn is_full(&self) -> bool {
        self.max.is_some_and(|max| self.load.active() >= max)
    }
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
    /// The servers in file order: all but the backups, or the backups alone.
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
        self.candidates.get(index).is_some_and(|candidate| self.may_get(candidate))
    }

    /// The same for a candidate of this view.
    pub fn may_get(&self, candidate: &Candidate) -> bool {
        self.stands(candidate)
            && !candidate.is_full()
            && (self.tried.is_empty() || !self.tried.contains(candidate.slot))
            && (!self.only_well || is_well(candidate))
    }

    /// Whether a candidate may get this request as that of a client who belongs to it: its share does not count.
    pub fn takes_back(&self, candidate: &Candidate) -> bool {
        let is_allowed = candidate.state.allows(Wanted::Persistent) || candidate.state.allows(self.wanted);
        is_allowed && !self.tried.contains(candidate.slot)
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

impl Candidate {
    /// Whether it is to be had, as far as an operator is concerned.
    fn counts(&self) -> bool {
        !self.share.is_zero() && !matches!(self.state, State::Drained | State::Maintenance)
    }
}

/// How many servers there are to be had, and how many of them are up.
#[derive(Default)]
struct Standing {
    counted: usize,
    available: usize,
}

impl Standing {
    const fn is_low(&self) -> bool {
        self.available * 2 < self.counted
    }
}

/// Whether fewer than half of a pool's servers are available, so that suspicion is ignored: better a doubtful server than
/// all load on the few others. Servers without a share and those an operator has taken out are not counted.
///
/// Backup servers are no part of the half. But where none of the others is available and a backup is, there is no panic: that
/// is what backups are for.
pub fn is_in_panic(candidates: &[Candidate]) -> bool {
    let (mut regular, mut backup) = (Standing::default(), Standing::default());
    for candidate in candidates.iter().filter(|candidate| candidate.counts()) {
        let standing = if candidate.server.is_backup { &mut backup } else { &mut regular };
        standing.counted += 1;
        standing.available += usize::from(candidate.state.allows(Wanted::New));
    }
    if regular.available == 0 && backup.available > 0 {
        return false;
    }
    if regular.counted > 0 { regular.is_low() } else { backup.is_low() }
}

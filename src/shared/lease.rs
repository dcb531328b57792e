//! The lease of a server's place: taken with the choice, given back on drop, whatever becomes of the request.
//!
//! It reserves the place against the server's `max`, counts the request, and when it is dropped it gives the place back,
//! counts how the request ended and tells control. A drop without an outcome is a request whose client went away; a drop in
//! a panic counts against nobody. So requests in flight return to zero also when an exchange is cancelled or panics.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::base::id::PoolIndex;
use crate::pure::control::watch::CONNECT_FAILURES_MAX;
use crate::pure::pool::{Ineligible, Tried};
use crate::pure::trace::Trace;
use crate::shared::choose::{Ask, Place, Schedulers};
use crate::shared::outcome::{Outcome, OutcomeSender, Report};
use crate::shared::snapshot::{Endpoint, PoolSnapshot, Snapshot, SnapshotCache, SnapshotStore};

/// A place at a server.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Lease {
    endpoint: Arc<Endpoint>,
    outcomes: Rc<OutcomeSender>,
    outcome: Option<Outcome>,
}

/// Why no place was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The pool is no longer configured.
    #[error("the pool is no longer configured")]
    PoolGone,
    /// No server of the pool may get requests now.
    #[error("no server of the pool is available")]
    NoneAvailable,
    /// There are servers that are well, and all their places are taken.
    #[error("all places of the pool's servers are taken")]
    AllFull,
}

/// How often a place that was lost to another worker is followed by another choice.
const RACES_MAX: usize = 64;

impl Lease {
    /// Takes a place at a server; `None`: all are taken.
    pub fn take(endpoint: &Arc<Endpoint>, outcomes: &Rc<OutcomeSender>) -> Option<Self> {
        if !endpoint.record.load.try_reserve(endpoint.server.max) {
            return None;
        }
        endpoint.record.count_request();
        if endpoint.is_measured {
            endpoint.record.begin_measuring();
        }
        Some(Self { endpoint: Arc::clone(endpoint), outcomes: Rc::clone(outcomes), outcome: None })
    }

    /// The server.
    pub const fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// A connection to the server was made.
    pub fn connected(&self) {
        self.endpoint.record.forget_connect_failures();
    }

    /// Says how the request ends, as far as is known; the last word counts, when the lease is dropped.
    pub const fn outcome(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let record = &self.endpoint.record;
        record.load.release();
        let unsaid = if std::thread::panicking() { Outcome::OwnFault } else { Outcome::ClientAborted };
        let outcome = self.outcome.unwrap_or(unsaid);
        record.count_outcome(outcome);
        if self.endpoint.is_measured {
            record.end_measuring(outcome);
        }
        // Answers are told by the counters: only what is evidence against the server is worth a message.
        if outcome.is_failure() {
            self.outcomes.send(Report { slot: record.slot, incarnation: self.endpoint.incarnation, outcome });
        }
    }
}

/// What a worker admits requests with: its way to the snapshot, its schedulers, its way to control.
#[derive(Debug)]
pub struct Admission {
    snapshots: RefCell<SnapshotCache>,
    schedulers: Schedulers,
    outcomes: Rc<OutcomeSender>,
}

/// The pool that a request goes to: its position where it was last seen, and its name, by which it is found again when the
/// snapshot has changed.
#[derive(Clone, Copy, Debug)]
pub struct PoolRef<'a> {
    /// Its position.
    pub index: PoolIndex,
    /// Its name.
    pub name: &'a Arc<str>,
}

impl Admission {
    /// A worker's admission. `seed` makes its choices differ from the other workers'.
    pub fn new(store: &SnapshotStore, outcomes: OutcomeSender, seed: u64) -> Self {
        Self {
            snapshots: RefCell::new(store.cache()),
            schedulers: Schedulers::seeded(seed),
            outcomes: Rc::new(outcomes),
        }
    }

    /// Looks at the snapshot as it is now; `look` must not come back to this admission. What it keeps are `Arc`s of parts.
    pub fn snapshot<R>(&self, look: impl FnOnce(&Snapshot) -> R) -> R {
        look(self.snapshots.borrow_mut().load())
    }

    /// Chooses a server of the pool as it is now, and takes a place there.
    ///
    /// It is async because a queue will hand places over; as long as there is none it never waits.
    ///
    /// # Errors
    /// [`Refused`] where no server may get the request.
    pub async fn admit(&self, pool: PoolRef<'_>, ask: Ask<'_>, trace: &mut Trace) -> Result<Lease, Refused> {
        self.snapshot(|snapshot| {
            let index = snapshot.find_again(pool.index, pool.name).ok_or(Refused::PoolGone)?;
            let place = Place::of(snapshot, index).ok_or(Refused::PoolGone)?;
            self.choose_and_take(&place, &ask, trace)
        })
    }

    fn choose_and_take(&self, place: &Place<'_>, ask: &Ask<'_>, trace: &mut Trace) -> Result<Lease, Refused> {
        for _ in 0..RACES_MAX {
            let Some(endpoint) = self.choose(place, ask, trace) else { return Err(why_refused(place.pool)) };
            if let Some(lease) = Lease::take(endpoint, &self.outcomes) {
                return Ok(lease);
            }
        }
        Err(Refused::AllFull)
    }

    /// Chooses a server, and passes over one that has refused so often in a row that control is about to suspect it, where
    /// there is another: requests that come before control's next tick would each need a repetition, and spend the budget.
    fn choose<'p>(&self, place: &Place<'p>, ask: &Ask<'_>, trace: &mut Trace) -> Option<&'p Arc<Endpoint>> {
        let pick = |ask: &Ask<'_>, trace: &mut Trace| {
            self.schedulers.choose(place, ask, trace).and_then(|index| place.pool.endpoints.get(index))
        };
        let refuses = |endpoint: &Endpoint| endpoint.record.connect_failures_in_a_row() >= CONNECT_FAILURES_MAX;
        let first = pick(ask, trace)?;
        if !refuses(first) || place.pool.in_panic {
            return Some(first);
        }
        let mut tried = *ask.tried;
        tried.add(first.record.slot);
        for _ in 0..Tried::MAX {
            match pick(&Ask { tried: &tried, ..*ask }, trace) {
                Some(other) if tried.contains(other.record.slot) => break,
                Some(other) if refuses(other) => tried.add(other.record.slot),
                Some(other) => return Some(other),
                None => break,
            }
        }
        Some(first)
    }
}

fn why_refused(pool: &PoolSnapshot) -> Refused {
    let view = pool.view(&Tried::NONE);
    let is_full = |objection: Option<Ineligible>| matches!(objection, Some(Ineligible::Full(_)));
    if pool.candidates.iter().any(|candidate| is_full(view.objection(candidate))) {
        Refused::AllFull
    } else {
        Refused::NoneAvailable
    }
}

#[cfg(test)]
mod tests;

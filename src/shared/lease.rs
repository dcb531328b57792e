//! The lease of a server's place: taken with the choice, given back on drop, whatever becomes of the request.
//!
//! It reserves the place against the server's `max`, counts the request, and when it is dropped it counts how the request
//! ended, and gives the place back. A drop without an outcome is a request whose client went away; a drop in
//! a panic counts against nobody. So requests in flight return to zero also when an exchange is cancelled or panics.
//!
//! Where the pool has a queue, a place that is given back passes to who waits for it ([`crate::shared::queue`]). A lease that is
//! older than its pool's queue, which a reload has brought, knows of none: its place comes free untold, and who waits finds it
//! with the next that begins to wait, the next change of a server's state, or when the time is up.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::id::PoolIndex;
use crate::base::time::Timestamp;
use crate::pure::control::watch::CONNECT_FAILURES_MAX;
use crate::pure::pool::{Fallback, Ineligible, Method, Tried};
use crate::pure::trace::Trace;
use crate::shared::choose::{Ask, Place, Schedulers};
use crate::shared::outcome::Outcome;
use crate::shared::queue::{Expired, Joined, Queue, Turn, Waiting};
use crate::shared::snapshot::{Endpoint, PoolSnapshot, Snapshot, SnapshotCache, SnapshotStore};

/// A place at a server.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Lease {
    endpoint: Arc<Endpoint>,
    outcome: Option<Outcome>,
    /// Whether its answer has begun.
    is_answered: bool,
    patience: Cell<Patience>,
    /// Who may wait for the place.
    queue: Option<Arc<Queue>>,
}

/// Whether the server is to be thought slow while a request waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Patience {
    /// It has had the whole request all the time.
    #[default]
    Never,
    /// The client is still sending, or the answer has begun.
    Now,
    /// It was so before: how long the answer takes says nothing.
    Before,
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
    /// No place is free, and as many requests wait for one as may.
    #[error("the pool's queue is full")]
    QueueFull,
    /// The request has waited for a place as long as it may.
    #[error("no place became free in time")]
    QueueTimedOut,
}

/// What becomes of a request at a pool.
#[derive(Debug)]
pub enum Admitted {
    /// It has a place.
    Place(Lease),
    /// It waits for one.
    Waits(Wait),
}

/// A request that waits in its pool's queue. Dropped, it leaves; a place that it was handed passes on.
#[derive(Debug)]
pub struct Wait {
    waiting: Waiting,
    queue: Arc<Queue>,
    /// How long it may wait.
    pub timeout: Duration,
}

/// The pool has changed so much that the request has to be admitted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again;

impl Wait {
    /// Whether it has come to a place.
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<Result<Lease, Again>> {
        self.waiting.poll(context).map(|turn| lease_of(turn, &self.queue))
    }
}

fn lease_of(turn: Turn, queue: &Arc<Queue>) -> Result<Lease, Again> {
    match turn {
        Turn::Place(endpoint) => Ok(Lease::of_reserved(&endpoint, Some(queue))),
        Turn::LooksAgain => Err(Again),
    }
}

/// How often a place that was lost to another worker is followed by another choice.
const RACES_MAX: usize = 64;

/// How often a queue may be found closed by a change of the snapshot that was not seen before.
const CHANGES_MAX: usize = 64;

impl Lease {
    /// Takes a place at a server; `None`: all are taken. `queue`: who may wait for it afterwards.
    pub fn take(endpoint: &Arc<Endpoint>, queue: Option<&Arc<Queue>>) -> Option<Self> {
        let is_reserved = endpoint.record.load.try_reserve(endpoint.server.max);
        is_reserved.then(|| Self::of_reserved(endpoint, queue))
    }

    fn of_reserved(endpoint: &Arc<Endpoint>, queue: Option<&Arc<Queue>>) -> Self {
        endpoint.record.count_request();
        if endpoint.is_measured {
            endpoint.record.begin_measuring();
        }
        let (endpoint, queue) = (Arc::clone(endpoint), queue.map(Arc::clone));
        Self { endpoint, outcome: None, is_answered: false, patience: Cell::default(), queue }
    }

    /// The server.
    pub const fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// A connection to the server was made.
    pub fn connected(&self) {
        self.endpoint.record.load.forget_connect_failures();
    }

    /// Gives the place back as if it had never been taken: the request goes elsewhere, and nothing of it was sent.
    pub fn withdraw(mut self) {
        self.endpoint.record.uncount_request();
        if self.endpoint.is_measured {
            self.endpoint.record.load.run_queue.uncount_sent();
        }
        self.outcome = Some(Outcome::OwnFault);
    }

    /// The server's answer has begun, so long after it was chosen; the request ends as `outcome` unless more is said.
    #[inline]
    pub fn answers(&mut self, outcome: Outcome, now: Timestamp, nanos: u64) {
        let record = &self.endpoint.record;
        record.load.hear(now);
        record.load.forget_failures();
        if self.patience.get() == Patience::Never {
            record.latencies.add(nanos);
        }
        self.is_answered = true;
        self.outcome = Some(outcome);
    }

    /// The server has sent something that is not the beginning of its answer.
    pub fn hear(&self, now: Timestamp) {
        self.endpoint.record.load.hear(now);
    }

    /// Whether the server need not answer now: what it has is not the whole request, or it has begun to answer. Requests that
    /// wait on their client, and answers that stream for hours, are no sign of a silent server.
    pub fn excuse(&self, is_excused: bool) {
        let patience = match (self.patience.get(), is_excused) {
            (Patience::Never | Patience::Before, true) => {
                self.endpoint.record.load.excuse();
                Patience::Now
            }
            (Patience::Now, false) => {
                self.endpoint.record.load.unexcuse();
                Patience::Before
            }
            (Patience::Now, true) | (Patience::Never | Patience::Before, false) => return,
        };
        self.patience.set(patience);
    }

    /// Says how the request ends, as far as is known; the last word counts, when the lease is dropped.
    pub const fn outcome(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let record = &self.endpoint.record;
        let unsaid = if std::thread::panicking() { Outcome::OwnFault } else { Outcome::ClientAborted };
        let outcome = self.outcome.unwrap_or(unsaid);
        record.count_outcome(outcome);
        if self.endpoint.is_measured {
            record.end_measuring(outcome);
        }
        if outcome.is_failure() {
            record.count_failure(outcome, self.endpoint.incarnation, self.is_answered);
        }
        // Before the place is given back: never more are excused than are in flight.
        self.excuse(false);
        match &self.queue {
            None => record.load.release(),
            // Whoever gets the place has to know first what it has come to.
            Some(queue) => queue.give_back(&self.endpoint),
        }
    }
}

/// What a worker admits requests with: its way to the snapshot, its schedulers.
#[derive(Debug)]
pub struct Admission {
    snapshots: RefCell<SnapshotCache>,
    schedulers: Schedulers,
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
    pub fn new(store: &SnapshotStore, seed: u64) -> Self {
        Self { snapshots: RefCell::new(store.cache()), schedulers: Schedulers::seeded(seed) }
    }

    /// Looks at the snapshot as it is now; `look` must not come back to this admission. What it keeps are `Arc`s of parts.
    pub fn snapshot<R>(&self, look: impl FnOnce(&Snapshot) -> R) -> R {
        look(self.snapshots.borrow_mut().load())
    }

    /// Chooses a server of the pool as it is now, and takes a place there; `None`: the pool has a queue, and [`Self::admit`] is
    /// to be asked.
    ///
    /// # Errors
    /// [`Refused`] where no server may get the request.
    #[inline]
    pub fn place_at_once(&self, pool: PoolRef<'_>, ask: &Ask<'_>) -> Option<Result<Lease, Refused>> {
        self.snapshot(|snapshot| match place_of(snapshot, pool) {
            Ok(place) if place.pool.queue.is_some() => None,
            Ok(place) => Some(self.choose_and_take(&place, ask, &mut Trace::off())),
            Err(refused) => Some(Err(refused)),
        })
    }

    /// Chooses a server of the pool as it is now, and takes a place there; where no server has one and the pool has a queue, the
    /// request begins to wait.
    ///
    /// # Errors
    /// [`Refused`] where no server may get the request.
    pub fn admit(&self, pool: PoolRef<'_>, ask: &Ask<'_>, trace: &mut Trace) -> Result<Admitted, Refused> {
        for _ in 0..CHANGES_MAX {
            let admitted = self.snapshot(|snapshot| {
                let place = place_of(snapshot, pool)?;
                match &place.pool.queue {
                    None => self.choose_and_take(&place, ask, trace).map(|lease| Some(Admitted::Place(lease))),
                    Some(queue) => self.take_or_wait(&place, queue, ask, trace),
                }
            })?;
            if let Some(admitted) = admitted {
                return Ok(admitted);
            }
        }
        Err(Refused::NoneAvailable)
    }

    /// Ends a wait whose time is up. There may be a place after all: one at another server than the client's own, or one that
    /// its giver did not know to be waited for.
    ///
    /// # Errors
    /// [`Refused::QueueTimedOut`] where there is none.
    pub fn last_try(&self, wait: Wait, pool: PoolRef<'_>, ask: &Ask<'_>) -> Result<Lease, Refused> {
        let Wait { waiting, queue, .. } = wait;
        let ask = Ask { own: None, ..*ask };
        let choose = || {
            self.snapshot(|snapshot| {
                let place = place_of(snapshot, pool).ok()?;
                self.choose_and_take(&place, &ask, &mut Trace::off()).ok()
            })
        };
        match waiting.expire(choose) {
            Some(Expired::Found(lease)) => Ok(lease),
            Some(Expired::Handed(endpoint)) => Ok(Lease::of_reserved(&endpoint, Some(&queue))),
            None => Err(Refused::QueueTimedOut),
        }
    }

    /// A place, or one in the queue; `None`: the pool has no queue any more.
    fn take_or_wait(
        &self,
        place: &Place<'_>,
        queue: &Arc<Queue>,
        ask: &Ask<'_>,
        trace: &mut Trace,
    ) -> Result<Option<Admitted>, Refused> {
        let mut own = own_that_takes_back(place.pool, ask);
        if own.is_none_or(|own| !is_full(own))
            && queue.is_empty()
            && let Ok(lease) = self.choose_and_take(place, ask, trace)
        {
            return Ok(Some(Admitted::Place(lease)));
        }
        if own.is_none() && place.pool.pool.scheduler.fallback == Fallback::None {
            own = self.strictly(place, ask, trace)?;
        }
        let bounds = place.pool.pool.queue.unwrap_or_default();
        let choose = || match own {
            Some(own) => Lease::take(own, Some(queue)),
            None => self.choose_and_take(place, ask, trace).ok(),
        };
        match queue.join(own.map(|own| own.record.slot), ask.tried, bounds.max, choose) {
            Joined::Place(lease) => Ok(Some(Admitted::Place(lease))),
            Joined::Waits(waiting) => {
                let queue = Arc::clone(queue);
                Ok(Some(Admitted::Waits(Wait { waiting, queue, timeout: bounds.timeout })))
            }
            Joined::Full => Err(Refused::QueueFull),
            Joined::Closed => Ok(None),
        }
    }

    /// Asks a scheduler whose no is final, before its request waits: who it refuses has nothing to wait for. Gives back the server
    /// that a key leads to: the request waits for that alone.
    #[cold]
    fn strictly<'p>(
        &self,
        place: &Place<'p>,
        ask: &Ask<'_>,
        trace: &mut Trace,
    ) -> Result<Option<&'p Arc<Endpoint>>, Refused> {
        let method = &place.pool.pool.scheduler.method;
        if method.is_keyed() {
            // A request without a key is never refused.
            let Some(_) = ask.key else { return Ok(None) };
            return self.choose(place, ask, trace).map(Some).ok_or(Refused::NoneAvailable);
        }
        // Twice, and with a look before and after: a place that was taken and given back meanwhile is not one that was refused.
        let mut is_refused =
            || has_free_place(place.pool) && self.choose(place, ask, trace).is_none() && has_free_place(place.pool);
        if *method == Method::Overflow && is_refused() && is_refused() {
            return Err(Refused::NoneAvailable);
        }
        Ok(None)
    }

    fn choose_and_take(&self, place: &Place<'_>, ask: &Ask<'_>, trace: &mut Trace) -> Result<Lease, Refused> {
        for _ in 0..RACES_MAX {
            let Some(endpoint) = self.choose(place, ask, trace) else { return Err(why_refused(place.pool)) };
            if let Some(lease) = Lease::take(endpoint, place.pool.queue.as_ref()) {
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

fn place_of<'s>(snapshot: &'s Snapshot, pool: PoolRef<'_>) -> Result<Place<'s>, Refused> {
    let index = snapshot.find_again(pool.index, pool.name).ok_or(Refused::PoolGone)?;
    Place::of(snapshot, index).ok_or(Refused::PoolGone)
}

/// The server that the client belongs to, where it may go there, as soon as there is a place; who waits for others, or for one that
/// takes no new requests, is in its way no more than it is in theirs.
fn own_that_takes_back<'p>(pool: &'p PoolSnapshot, ask: &Ask<'_>) -> Option<&'p Arc<Endpoint>> {
    let (index, candidate) = pool.candidate_of(ask.own?)?;
    let endpoint = pool.endpoints.get(index)?;
    (pool.view(ask.tried).takes_back(candidate) && (pool.in_panic || !refuses(endpoint))).then_some(endpoint)
}

/// Whether control is about to suspect the server.
fn refuses(endpoint: &Endpoint) -> bool {
    endpoint.record.connect_failures_in_a_row() >= CONNECT_FAILURES_MAX
}

fn is_full(endpoint: &Endpoint) -> bool {
    endpoint.server.max.is_some_and(|max| endpoint.record.load.active() >= max)
}

/// Whether a server that may get requests has a place.
fn has_free_place(pool: &PoolSnapshot) -> bool {
    let view = pool.view(&Tried::NONE);
    pool.candidates.iter().any(|candidate| view.may_get(candidate))
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

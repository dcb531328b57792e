//! The choice of a server: the one way by which requests and `explain` come to it.
//!
//! It refuses to wait, to dial and to reserve: [`crate::shared::lease`] reserves what is chosen here.

use std::cell::RefCell;
use std::sync::Arc;

use crate::base::id::{PoolIndex, ServerSlot};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::{Candidate, Ineligible, PoolView, Tried};
use crate::pure::scheduler::{self, Memory, Phase, Pick, Scheduler};
use crate::pure::trace::Trace;
use crate::shared::snapshot::{PoolSnapshot, Snapshot};

/// The most candidates that a trace lists one by one.
const TRACED_MAX: usize = 64;

/// Chooses a server of `pool`: a position in its list, or `None` where no server may get the request.
///
/// The server that the client belongs to comes first, then what the scheduler chooses, and a backup only where no other
/// server may get the request. A repetition asks first for a server that is known to be well and was not tried, then for any
/// that was not tried, and at last for any at all: better the same server on a fresh connection than none.
fn choose_server(
    pool: &PoolSnapshot,
    schedulers: &Instance,
    ask: &Ask<'_>,
    rng: &mut Rng,
    trace: &mut Trace,
) -> Option<usize> {
    if trace.is_recording() {
        list_candidates(pool, ask, trace);
    }
    if let Some(index) = ask.own.and_then(|own| choose_own(pool, own, ask.tried, trace)) {
        return Some(index);
    }
    let is_repetition = !ask.tried.is_empty();
    let mut pick = |tried: &Tried, trace: &mut Trace| {
        let mut pick_of = |view: PoolView<'_>, scheduler: &dyn Scheduler, trace: &mut Trace| {
            let mut pick = |view: &PoolView<'_>| match scheduler.pick(view, ask.key, ask.now, rng, trace) {
                Pick::Server(index) => Some(index),
                Pick::NoneEligible => None,
            };
            let known_well = if tried.is_empty() { None } else { pick(&PoolView { only_well: true, ..view }) };
            known_well.or_else(|| pick(&view))
        };
        if let Some(index) = pick_of(pool.view(tried), &*schedulers.scheduler, trace) {
            return Some(index);
        }
        let backups = schedulers.backups.as_deref()?;
        trace.note("scheduler", || "no server but the backups may get this request".to_owned());
        pick_of(pool.backup_view(tried), backups, trace).map(|index| pool.first_backup + index)
    };
    if let Some(index) = pick(ask.tried, trace) {
        return Some(index);
    }
    if is_repetition {
        trace.note("scheduler", || "no server is left that this request has not tried: any will do".to_owned());
        if let Some(index) = ask.own.and_then(|own| choose_own(pool, own, &Tried::NONE, trace)) {
            return Some(index);
        }
        if let Some(index) = pick(&Tried::NONE, trace) {
            return Some(index);
        }
    }
    trace.note("scheduler", || "no server may get this request".to_owned());
    None
}

/// The position of the server that a client belongs to, where that may get the request; its share does not count, for that is
/// one of new clients.
fn choose_own(pool: &PoolSnapshot, own: ServerSlot, tried: &Tried, trace: &mut Trace) -> Option<usize> {
    let Some((index, candidate)) = pool.candidate_of(own) else {
        trace.note("persistence", || "the client's own server is no longer in the pool".to_owned());
        return None;
    };
    let objection = own_objection(pool, candidate, tried);
    trace.note("persistence", || {
        let name = &candidate.server.id.server;
        match objection {
            None => format!("the client belongs to {name}, which gets the request: the scheduler is not asked"),
            Some(why) => format!("the client belongs to {name}, which does not get the request: {why}"),
        }
    });
    objection.is_none().then_some(index)
}

/// Why a client's own server may not get its request; `None`: it may.
fn own_objection(pool: &PoolSnapshot, candidate: &Candidate, tried: &Tried) -> Option<Ineligible> {
    if !pool.view(&Tried::NONE).takes_back(candidate) {
        return Some(Ineligible::State(candidate.state));
    }
    if let Some(max) = candidate.max.filter(|_| candidate.is_full()) {
        return Some(Ineligible::Full(max));
    }
    tried.contains(candidate.slot).then_some(Ineligible::Tried)
}

fn list_candidates(pool: &PoolSnapshot, ask: &Ask<'_>, trace: &mut Trace) {
    let view = pool.view(ask.tried);
    if pool.in_panic {
        trace.note("server", || "fewer than half of the pool are available: suspicion is ignored".to_owned());
    }
    for candidate in pool.candidates.iter().take(TRACED_MAX) {
        trace.note("server", || {
            let verdict =
                view.objection(candidate).map_or_else(|| "eligible".to_owned(), |why| format!("not eligible: {why}"));
            let (server, load) = (&candidate.server, &candidate.load);
            let backup = if server.is_backup { "backup, " } else { "" };
            let seen = load.pace.answers_per_second(ask.now);
            let seen = seen.map_or(String::new(), |answers| format!(", {answers:.1} answers a busy second"));
            let queue = load.run_queue.length(ask.now).map_or(String::new(), |length| format!(", run queue {length}"));
            let (name, share, active) = (&server.id.server, candidate.share, load.active());
            format!("{name} at {}: {backup}weight {share}, {active} in flight{queue}{seen}, {verdict}", server.address)
        });
    }
    let unlisted = pool.candidates.get(TRACED_MAX..).unwrap_or_default();
    if !unlisted.is_empty() {
        trace.note("server", || {
            let eligible = unlisted.iter().filter(|candidate| view.objection(candidate).is_none()).count();
            format!("and {} more, of which {eligible} are eligible", unlisted.len())
        });
    }
}

/// One worker's schedulers, one for each pool, and its random numbers.
///
/// A scheduler lives as long as its pool's roster, wherever the pool stands in the snapshot.
pub struct Schedulers {
    inner: RefCell<Inner>,
    phases: Phases,
}

struct Inner {
    rng: Rng,
    instances: Vec<Option<Instance>>,
}

struct Instance {
    roster: u64,
    scheduler: Box<dyn Scheduler>,
    /// That of the backup servers, which has an order and a memory of its own; `None`: there are none.
    backups: Option<Box<dyn Scheduler>>,
}

#[derive(Clone, Copy)]
enum Phases {
    Start,
    Seeded,
}

impl std::fmt::Debug for Schedulers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedulers").finish_non_exhaustive()
    }
}

impl Schedulers {
    /// Schedulers of a worker; each begins at a place of its own.
    pub fn seeded(seed: u64) -> Self {
        Self { inner: RefCell::new(Inner { rng: Rng::new(seed), instances: Vec::new() }), phases: Phases::Seeded }
    }

    /// Schedulers that begin at the start of their order, for `explain`: the same answer each time.
    pub fn from_start() -> Self {
        Self { inner: RefCell::new(Inner { rng: Rng::new(0), instances: Vec::new() }), phases: Phases::Start }
    }

    /// Chooses a server of the pool at `place`.
    pub fn choose(&self, place: &Place<'_>, ask: &Ask<'_>, trace: &mut Trace) -> Option<usize> {
        if place.pool.candidates.len() == 1
            && place.pool.first_backup == 1
            && ask.own.is_none()
            && !trace.is_recording()
        {
            // No scheduler has a say in it: the only server, tried or not, or none.
            return place.pool.view(&Tried::NONE).is_eligible(0).then_some(0);
        }
        let mut inner = self.inner.borrow_mut();
        let Inner { rng, instances } = &mut *inner;
        let schedulers = instance(instances, place, self.phases, rng)?;
        let index = choose_server(place.pool, schedulers, ask, rng, trace)?;
        if let Some(key) = ask.key
            && !trace.is_recording()
        {
            place.pool.note_key(key, index);
        }
        Some(index)
    }
}

/// A pool, and where it stands in its snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The pool.
    pub pool: &'a PoolSnapshot,
    index: usize,
    count: usize,
}

impl<'a> Place<'a> {
    /// The pool at this position of the snapshot.
    pub fn of(snapshot: &'a Snapshot, index: PoolIndex) -> Option<Self> {
        let pool = snapshot.pool(index)?;
        Some(Self { pool, index: index.0 as usize, count: snapshot.pools.len() })
    }
}

/// What a request asks of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The hash of its key, where rule or pool have one.
    pub key: Option<u64>,
    /// The server that its client belongs to.
    pub own: Option<ServerSlot>,
    /// The servers that it has tried.
    pub tried: &'a Tried,
    /// When it asks.
    pub now: Timestamp,
}

/// The instance of a pool's roster; moved here where the pool has moved, made where there is none.
fn instance<'a>(
    instances: &'a mut Vec<Option<Instance>>,
    place: &Place<'_>,
    phases: Phases,
    rng: &mut Rng,
) -> Option<&'a Instance> {
    let roster = place.pool.roster;
    let is_it = |held: &Option<Instance>| held.as_ref().is_some_and(|held| held.roster == roster);
    if !instances.get(place.index).is_some_and(is_it) {
        // After a reload: at most once for each pool and worker.
        if instances.len() < place.count {
            instances.resize_with(place.count, || None);
        }
        if let Some(elsewhere) = instances.iter().position(is_it) {
            instances.swap(elsewhere, place.index);
        } else if let Some(free) = instances.get_mut(place.index) {
            let mut build = |memory: &Arc<Memory>| {
                let phase = match phases {
                    Phases::Start => Phase::Start,
                    Phases::Seeded => Phase::Seeded(rng.next_u64()),
                };
                scheduler::build(&place.pool.pool.scheduler, memory, phase)
            };
            let scheduler = build(&place.pool.memory);
            let backups = place.pool.backup_memory.as_ref().map(build);
            *free = Some(Instance { roster, scheduler, backups });
        }
    }
    instances.get(place.index)?.as_ref()
}

#[cfg(test)]
mod tests;

//! A pool's queue: requests that no server has a place for wait here, on whatever worker, and a place that is given back
//! passes to the oldest of them that can use it.
//!
//! It is handed over: between giver and taker it is never free, so that no newcomer passes a waiter over. A request whose
//! client belongs to a server waits for that one alone and is in nobody's way. One that goes away passes on what it was handed.
//! A server without `max` is nobody's to hand over: when it comes back, who waits is sent back to the scheduler.
//!
//! It is the one place on a request's path that takes a lock and wakes another thread, and only while somebody waits: a pool
//! without `queue` has none, and where nobody waits to give a place back costs a look at a count. It refuses to keep time and
//! to know clients: who waits watches both, and leaves by dropping its [`Waiting`].

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::base::id::ServerSlot;
use crate::pure::pool::Tried;
use crate::shared::endpoint::Endpoint;

mod figures;
mod line;

use figures::Figures;
pub use figures::QueueFigures;
use line::Line;
pub use line::Seat;

/// A pool's queue; kept across reloads.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: Count,
    line: Mutex<Line>,
    figures: Figures,
}

/// How many wait: read whenever a place is asked for or given back, written under the line's lock alone.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count(AtomicU32);

/// How a request has fared that came to the queue.
#[derive(Debug)]
pub enum Joined<T> {
    /// There was a place after all.
    Place(T),
    /// It waits.
    Waits(Waiting),
    /// As many wait as may.
    Full,
    /// The pool has no queue any more: the snapshot has changed.
    Closed,
}

/// What the wait of a request has come to.
#[derive(Debug)]
pub enum Turn {
    /// A place at this server is the request's, counted among those in flight there.
    Place(Arc<Endpoint>),
    /// The pool has no queue any more, or a server that takes as many as come: the request has to be admitted again.
    LooksAgain,
}

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    tried: Tried,
    stage: Mutex<Stage>,
}

#[derive(Debug)]
enum Stage {
    Waits(Option<Waker>),
    Over(Turn),
    /// Its place is taken, or it has gone.
    Left,
}

impl Waiter {
    /// Ends the wait. Gives back whom to wake, which is done without the line's lock.
    fn ends(&self, turn: Turn) -> Option<Waker> {
        match std::mem::replace(&mut *lock(&self.stage), Stage::Over(turn)) {
            Stage::Waits(waker) => waker,
            Stage::Over(_) | Stage::Left => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

impl Queue {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.0.load(Ordering::SeqCst) == 0
    }

    /// What is counted.
    pub fn figures(&self) -> QueueFigures {
        self.figures.read(self.waiting.0.load(Ordering::Relaxed))
    }

    /// Gives back a place of that server's: to the oldest waiter that can use it, otherwise it is free.
    pub fn give_back(&self, endpoint: &Endpoint) {
        let load = &endpoint.record.load;
        if self.is_empty() {
            load.release();
            // Who began to wait before the place was free has not seen it, and is seen here.
            if !self.is_empty() {
                self.change(|line| line.may_have_places = true);
            }
            return;
        }
        self.change(|line| {
            if !line.pass_on(endpoint.record.slot) {
                load.release();
            }
        });
    }

    /// Takes a request in. `own`: it wants this server and no other. `choose` takes a place where there is one now that
    /// nobody waits for; `max`: so many may wait.
    pub fn join<T>(
        self: &Arc<Self>,
        own: Option<ServerSlot>,
        tried: &Tried,
        max: u32,
        choose: impl FnOnce() -> Option<T>,
    ) -> Joined<T> {
        let mut line = lock(&self.line);
        if !line.is_open {
            return Joined::Closed;
        }
        // From here on who gives a place back sees that somebody waits: it has been seen free before, or is handed over.
        self.waiting.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        line.serve();
        // Whoever still waits for any can't use what is left: to be sent there, and back, would be no end.
        let may_choose = own.is_some() || line.has_none_for_any() || line.sends_back(tried);
        let place = if may_choose { choose() } else { None };
        let joined = match place {
            Some(place) => Joined::Place(place),
            None if line.count() >= max => {
                self.figures.turned_away.add(1);
                Joined::Full
            }
            None => {
                let waiter = Arc::new(Waiter { tried: *tried, stage: Mutex::new(Stage::Waits(None)) });
                let ticket = line.push(own, Arc::clone(&waiter));
                // The line may know better than the snapshot that the choice was made by.
                line.serve();
                if matches!(*lock(&waiter.stage), Stage::Waits(_)) {
                    self.figures.waited.add(1);
                }
                Joined::Waits(Waiting { queue: Arc::clone(self), waiter, own, ticket })
            }
        };
        self.settle(line);
        joined
    }

    /// Learns the pool's servers as they are now, which opens it; places that are free go to those who wait.
    pub fn follow(&self, seats: impl Iterator<Item = Seat>) {
        self.change(|line| line.follow(seats));
    }

    /// The pool has no queue any more: whoever waits has to look at the snapshot again.
    pub fn close(&self) {
        self.change(Line::close);
    }

    /// Changes the line, and hands out what is free then.
    fn change(&self, change: impl FnOnce(&mut Line)) {
        let mut line = lock(&self.line);
        change(&mut line);
        if line.may_have_places {
            line.serve();
        }
        self.settle(line);
    }

    /// Counts anew who waits, and wakes those who do no longer.
    fn settle(&self, mut line: MutexGuard<'_, Line>) {
        self.waiting.0.store(line.count(), Ordering::SeqCst);
        let woken = std::mem::take(&mut line.woken);
        drop(line);
        wake(woken);
    }
}

/// The place in the queue of a request that waits; dropped, the request leaves.
#[derive(Debug)]
#[must_use = "dropping it leaves the queue"]
pub struct Waiting {
    queue: Arc<Queue>,
    waiter: Arc<Waiter>,
    own: Option<ServerSlot>,
    ticket: u64,
}

impl Waiting {
    /// What the wait has come to. A waiting future that polls this is polled again when it has.
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<Turn> {
        let mut stage = lock(&self.waiter.stage);
        match &mut *stage {
            Stage::Waits(waker) => {
                if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            Stage::Over(_) | Stage::Left => match std::mem::replace(&mut *stage, Stage::Left) {
                Stage::Over(turn) => Poll::Ready(turn),
                Stage::Waits(_) | Stage::Left => Poll::Ready(Turn::LooksAgain),
            },
        }
    }

    /// Ends the wait, whose time is up: by what it has come to, or by a place that nobody else waits for and `choose` takes,
    /// whatever server the request had wanted.
    pub fn expire<T>(self, choose: impl FnOnce() -> Option<T>) -> Option<Expired<T>> {
        let queue = Arc::clone(&self.queue);
        let mut line = lock(&queue.line);
        line.serve();
        line.remove(self.own, self.ticket);
        let stage = std::mem::replace(&mut *lock(&self.waiter.stage), Stage::Left);
        let ended = match stage {
            Stage::Over(Turn::Place(endpoint)) => Some(Expired::Handed(endpoint)),
            Stage::Over(Turn::LooksAgain) | Stage::Waits(_) | Stage::Left => choose().map(Expired::Found),
        };
        if ended.is_none() {
            queue.figures.timed_out.add(1);
        }
        queue.settle(line);
        ended
    }
}

/// What a wait has come to whose time was up.
#[derive(Debug)]
pub enum Expired<T> {
    /// A place at this server had been handed over.
    Handed(Arc<Endpoint>),
    /// There was a place after all.
    Found(T),
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if matches!(*lock(&self.waiter.stage), Stage::Left) {
            return;
        }
        self.queue.figures.left.add(1);
        self.queue.change(|line| line.remove(self.own, self.ticket));
        // Nobody ends it any more: it is in the line no longer.
        let stage = std::mem::replace(&mut *lock(&self.waiter.stage), Stage::Left);
        if let Stage::Over(Turn::Place(endpoint)) = stage {
            self.queue.give_back(&endpoint);
        }
    }
}

#[cfg(test)]
mod tests;

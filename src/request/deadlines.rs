//! Deadlines of connections, kept lazily: to move one later costs a store, for its entry in the queue stays where it is
//! and is put right when it comes up. A busy connection touches the queue about once per timeout, not per request.
//!
//! Each connection waits for one thing at a time, so it owns one [`Deadline`]. It also is how a worker reaches its
//! connections: those that idle when it drains, and those that wait for a server that has become silent. Resolution is [`TICK`]; it refuses to be a clock for anything shorter.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::base::id::ServerSlot;
use crate::base::time::{self, Timestamp};
use crate::request::clock;

/// Deadlines may fire this much late.
pub const TICK: Duration = Duration::from_millis(10);

/// When its owner is to be woken. Cloned into the queue; gone when the owner drops it.
#[derive(Debug)]
pub struct Deadline {
    at: Cell<Timestamp>,
    /// The earliest entry of this deadline in the queue.
    queued: Cell<Timestamp>,
    is_expired: Cell<bool>,
    /// The server whose answer the owner waits for.
    asked: Cell<Option<ServerSlot>>,
    is_taken_back: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    queue: Rc<Deadlines>,
}

impl Deadline {
    /// Moves the deadline; an expired one is alive again.
    pub fn set(self: &Rc<Self>, at: Timestamp) {
        self.at.set(at);
        self.is_expired.set(false);
        let before = self.queued.get();
        if at < before {
            self.queued.set(at);
            self.queue.push(at, Rc::clone(self));
            if before != Timestamp::NEVER {
                self.queue.bury();
            }
        }
    }

    /// Whether it has passed. A waiting future that polls this is polled again when it does.
    pub fn poll_expired(&self, context: &Context<'_>) -> bool {
        if self.is_expired.get() {
            return true;
        }
        self.listen(context);
        false
    }

    /// Has the future that polls this polled again when the owner is reached.
    pub fn listen(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
    }

    /// The owner waits for an answer of this server.
    pub fn asks(&self, server: ServerSlot) {
        self.asked.set(Some(server));
        self.is_taken_back.set(false);
    }

    /// The owner waits for no answer any more.
    pub fn asks_nobody(&self) {
        self.asked.set(None);
    }

    /// What is asked of this server is to be asked elsewhere, where that may be.
    pub fn take_back(&self, server: ServerSlot) {
        if self.asked.get() == Some(server) {
            self.is_taken_back.set(true);
            self.nudge();
        }
    }

    /// Whether what the owner asks is to be asked elsewhere. Said once.
    pub fn is_taken_back(&self) -> bool {
        self.is_taken_back.get() && self.is_taken_back.replace(false)
    }

    /// Its owner has ended: it holds on to nothing of the owner's, and leaves the queue before its time where many like it
    /// wait there. A waker keeps the whole memory of its task.
    pub fn retire(&self) {
        self.waker.take();
        if self.queued.get() != Timestamp::NEVER {
            self.queue.bury();
        }
    }

    /// Wakes the owner before its time, so that it looks around.
    pub fn nudge(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// The queue of one worker's deadlines.
#[derive(Debug, Default)]
pub struct Deadlines {
    queue: RefCell<BinaryHeap<Reverse<Entry>>>,
    driver: RefCell<Option<Waker>>,
    /// What the driver sleeps until.
    next: Cell<Option<Timestamp>>,
    /// Entries in it that are dead, as far as is known.
    dead: Cell<usize>,
}

/// Dead entries that are not worth a look through the queue.
const DEAD_MIN: usize = 1024;

#[derive(Debug)]
struct Entry {
    at: Timestamp,
    deadline: Rc<Deadline>,
}

impl Entry {
    /// Whether somebody but the queue holds its deadline, and no earlier entry has taken its place.
    fn is_alive(&self) -> bool {
        Rc::strong_count(&self.deadline) > 1 && self.deadline.queued.get() == self.at
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl Deadlines {
    /// A deadline that never comes until it is set.
    pub fn deadline(self: &Rc<Self>) -> Rc<Deadline> {
        Rc::new(Deadline {
            at: Cell::new(Timestamp::NEVER),
            queued: Cell::new(Timestamp::NEVER),
            is_expired: Cell::new(false),
            asked: Cell::new(None),
            is_taken_back: Cell::new(false),
            waker: RefCell::new(None),
            queue: Rc::clone(self),
        })
    }

    fn push(&self, at: Timestamp, deadline: Rc<Deadline>) {
        self.queue.borrow_mut().push(Reverse(Entry { at, deadline }));
        if self.next.get().is_none_or(|next| at < next)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    /// Takes note that an entry has become dead: its owner ends, or an earlier entry has taken its place. Clears the queue
    /// where the dead may be more than the living: a look through it for as many of them.
    fn bury(&self) {
        let dead = self.dead.get() + 1;
        let mut queue = self.queue.borrow_mut();
        if dead < DEAD_MIN || dead < queue.len() / 2 {
            self.dead.set(dead);
            return;
        }
        self.dead.set(0);
        queue.retain(|Reverse(entry)| entry.is_alive());
        if queue.capacity() > 4 * queue.len() {
            let room = 2 * queue.len();
            queue.shrink_to(room);
        }
    }

    /// Fires what is due at `now` and says when to come again.
    fn fire(&self, now: Timestamp) -> Option<Timestamp> {
        let mut queue = self.queue.borrow_mut();
        while let Some(Reverse(first)) = queue.peek() {
            if first.at > now {
                return Some(first.at);
            }
            let Some(Reverse(entry)) = queue.pop() else { break };
            if !entry.is_alive() {
                self.dead.set(self.dead.get().saturating_sub(1));
                continue;
            }
            let deadline = entry.deadline;
            let due = deadline.at.get();
            if due <= now {
                deadline.queued.set(Timestamp::NEVER);
                deadline.is_expired.set(true);
                deadline.nudge();
            } else if due == Timestamp::NEVER {
                deadline.queued.set(Timestamp::NEVER);
            } else {
                deadline.queued.set(due);
                queue.push(Reverse(Entry { at: due, deadline }));
            }
        }
        None
    }

    /// Drives the queue for as long as it is polled; one per worker.
    pub async fn drive(self: Rc<Self>) {
        loop {
            let next = self.fire(clock::refresh());
            self.next.set(next);
            let wake_at = next.map(|at| tokio::time::Instant::from_std(time::instant_of(at + TICK)));
            let mut sleep = std::pin::pin!(async {
                match wake_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            });
            poll_fn(|context| {
                *self.driver.borrow_mut() = Some(context.waker().clone());
                let is_earlier =
                    self.queue.borrow().peek().is_some_and(|Reverse(first)| next.is_none_or(|next| first.at < next));
                if is_earlier { Poll::Ready(()) } else { sleep.as_mut().poll(context) }
            })
            .await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn is_expired(deadline: &Deadline) -> bool {
        deadline.poll_expired(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_deadline_that_moves_later_stays_one_entry_and_fires_at_its_last_time() {
        let queue = Rc::new(Deadlines::default());
        let deadline = queue.deadline();
        for millis in 100..200 {
            deadline.set(at(millis));
        }
        assert_eq!(queue.queue.borrow().len(), 1);
        assert_eq!(queue.fire(at(150)), Some(at(199)));
        assert!(!is_expired(&deadline));
        assert_eq!(queue.fire(at(199)), None);
        assert!(is_expired(&deadline));
        deadline.set(at(300));
        assert!(!is_expired(&deadline));
        queue.fire(at(300));
        assert!(is_expired(&deadline));
    }

    #[test]
    fn a_deadline_that_moves_earlier_fires_early_and_once() {
        let queue = Rc::new(Deadlines::default());
        let deadline = queue.deadline();
        deadline.set(at(1000));
        deadline.set(at(10));
        queue.fire(at(10));
        assert!(is_expired(&deadline));
        deadline.set(at(5000));
        assert_eq!(queue.fire(at(1000)), Some(at(5000)), "the stale entry is dropped, the new one stays");
        assert!(!is_expired(&deadline));
    }

    #[test]
    fn retired_deadlines_leave_a_long_queue_before_their_time_and_hold_no_task() {
        let queue = Rc::new(Deadlines::default());
        let alive: Vec<_> = (0..10).map(|_| queue.deadline()).collect();
        alive.iter().for_each(|deadline| deadline.set(at(1_000_000)));
        let task = std::sync::Arc::new(Task);
        for _ in 0..100_000 {
            let deadline = queue.deadline();
            deadline.set(at(1_000_000));
            deadline.poll_expired(&Context::from_waker(&std::sync::Arc::clone(&task).into()));
            deadline.retire();
            drop(deadline);
            assert!(queue.queue.borrow().len() <= 2 * DEAD_MIN + alive.len());
        }
        assert_eq!(std::sync::Arc::strong_count(&task), 1);
        queue.fire(at(1_000_000));
        assert!(alive.iter().all(|deadline| is_expired(deadline)));
    }

    /// Stands for the memory of a task.
    struct Task;

    impl std::task::Wake for Task {
        fn wake(self: std::sync::Arc<Self>) {}
    }

    #[test]
    fn a_deadline_that_is_near_and_far_in_turn_does_not_fill_the_queue() {
        let queue = Rc::new(Deadlines::default());
        let deadlines: Vec<_> = (0..10).map(|_| queue.deadline()).collect();
        let hour = 3_600_000;
        for round in 0..10_000 {
            let now = round * 1000;
            for deadline in &deadlines {
                deadline.set(at(now + hour));
                deadline.set(at(now + 500));
                deadline.set(at(now + hour));
            }
            queue.fire(at(now + 500));
            assert!(deadlines.iter().all(|deadline| !is_expired(deadline)));
            let length = queue.queue.borrow().len();
            assert!(length <= 2 * DEAD_MIN + deadlines.len(), "{length} entries in round {round}");
        }
        queue.fire(at(9_999 * 1000 + hour));
        assert!(deadlines.iter().all(|deadline| is_expired(deadline)));
    }

    #[test]
    fn a_dropped_deadline_leaves_the_queue_when_it_comes_up() {
        let queue = Rc::new(Deadlines::default());
        let deadline = queue.deadline();
        deadline.set(at(10));
        drop(deadline);
        assert_eq!(queue.fire(at(20)), None);
        assert!(queue.queue.borrow().is_empty());
    }
}

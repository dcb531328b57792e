//! Faults at a chosen step of a connection's life. Steps are what a connection can wait at, and a few places in between; the
//! code under test calls [`step`] there, in tests alone.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

type Fault = Box<dyn FnOnce()>;

thread_local! {
    static STEPS_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    static FAULT: RefCell<Option<Fault>> = const { RefCell::new(None) };
}

/// Takes a step, and with it what was ordered for it.
pub fn step() {
    match STEPS_LEFT.get() {
        None => {}
        Some(0) => {
            STEPS_LEFT.set(None);
            if let Some(fault) = FAULT.take() {
                fault();
            }
        }
        Some(left) => STEPS_LEFT.set(Some(left - 1)),
    }
}

/// Orders a fault for the step after `steps` others, on this thread.
pub fn order(steps: usize, fault: impl FnOnce() + 'static) {
    STEPS_LEFT.set(Some(steps));
    FAULT.set(Some(Box::new(fault)));
}

/// Takes an order back. Whether it was carried out before.
pub fn was_carried_out() -> bool {
    STEPS_LEFT.set(None);
    FAULT.take().is_none()
}

/// A panic that nobody prints.
pub fn panic() {
    resume_unwind(Box::new("a panic on order"));
}

/// A future that is dropped instead of being polled once more.
pub struct Dropped<F> {
    future: Option<Pin<Box<F>>>,
    polls: usize,
    /// Whether it came to that.
    has_dropped: std::rc::Rc<Cell<bool>>,
}

impl<F> Dropped<F> {
    /// Drops `future` after so many polls, unless it has ended.
    pub fn after(polls: usize, future: F, has_dropped: std::rc::Rc<Cell<bool>>) -> Self {
        Self { future: Some(Box::pin(future)), polls, has_dropped }
    }
}

impl<F: Future<Output = ()>> Future for Dropped<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.polls == 0 {
            self.future = None;
            self.has_dropped.set(true);
            return Poll::Ready(());
        }
        self.polls -= 1;
        self.future.as_mut().map_or(Poll::Ready(()), |future| future.as_mut().poll(context))
    }
}

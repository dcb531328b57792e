//! Waiting for facts, never for time to pass.
//!
//! The one place of the tests that reads the clock or sleeps: between two looks at a fact.

use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long any single fact may take before the test fails. Far above what is needed: the machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The time now.
#[expect(clippy::disallowed_methods, reason = "tests need deadlines of their own")]
pub fn now() -> Instant {
    Instant::now()
}

/// A point in time that all parts of one step share.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline that is `span` away.
    pub fn after(span: Duration) -> Self {
        Self(now() + span)
    }

    /// The time left; zero is `None`.
    pub fn left(self) -> Option<Duration> {
        Some(self.0.saturating_duration_since(now())).filter(|left| !left.is_zero())
    }
}

/// Gives the processor away for a moment between two looks at a fact.
pub fn between_looks() {
    thread::sleep(Duration::from_millis(2));
}

/// Looks until `fact` gives something, and gives that back.
///
/// # Panics
/// After `span`, naming `what` was waited for.
#[track_caller]
pub fn wait_for<T>(what: &str, span: Duration, mut fact: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::after(span);
    loop {
        if let Some(found) = fact() {
            return found;
        }
        assert!(deadline.left().is_some(), "waited {span:?} in vain for {what}");
        between_looks();
    }
}

/// A gate that a test opens when it wants another thread to go on.
#[derive(Debug, Default)]
pub struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Lets everybody through, now and later.
    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Waits until the gate is open.
    ///
    /// # Panics
    /// After [`DEADLINE`].
    pub fn wait(&self) {
        let guard = self.open.lock().unwrap();
        let (_guard, waited) = self.opened.wait_timeout_while(guard, DEADLINE, |open| !*open).unwrap();
        assert!(!waited.timed_out(), "nobody opened the gate");
    }
}

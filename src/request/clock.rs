//! The clock of a worker's thread: read when the thread has slept, and again after so many looks, so that a request need
//! not read it each time. A thread that never sleeps sees it go all the same: within [`LOOKS`] looks, some milliseconds.
//!
//! Good enough for deadlines and ages; it refuses to measure what is shorter.

use std::cell::Cell;

use crate::base::time::{self, Timestamp};

/// So many looks at the clock share one reading.
const LOOKS: u32 = 32;

struct Clock {
    at: Cell<Timestamp>,
    looks_left: Cell<u32>,
}

thread_local! {
    static CLOCK: Clock = const { Clock { at: Cell::new(Timestamp::ZERO), looks_left: Cell::new(0) } };
}

/// The time, as of the last reading.
pub fn now() -> Timestamp {
    CLOCK.with(|clock| match clock.looks_left.get() {
        0 => read(clock),
        left => {
            clock.looks_left.set(left - 1);
            clock.at.get()
        }
    })
}

/// The time, read now: from here on every look sees at least this.
pub fn refresh() -> Timestamp {
    CLOCK.with(read)
}

/// The thread has slept: the next look reads.
pub fn has_slept() {
    CLOCK.with(|clock| clock.looks_left.set(0));
}

#[cold]
fn read(clock: &Clock) -> Timestamp {
    let now = time::now();
    clock.at.set(now);
    clock.looks_left.set(LOOKS);
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_beyond(at: Timestamp) {
        while time::now() <= at {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_thread_that_never_sleeps_sees_the_clock_go() {
        let first = refresh();
        wait_beyond(first);
        assert!((0..LOOKS).all(|_| now() == first));
        assert!(now() > first);
    }

    #[test]
    fn a_thread_that_has_slept_reads_at_once() {
        let first = refresh();
        wait_beyond(first);
        has_slept();
        assert!(now() > first);
    }
}

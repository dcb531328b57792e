//! What is said of a trouble that goes on: now and then, not each time. It refuses to say anything itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::time::{self, Timestamp};

/// How often the same trouble is said.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// When something was last said.
#[derive(Debug, Default)]
pub struct Spaced(AtomicU64);

impl Spaced {
    /// Whether it is time to say it again; of several threads that ask at once one is told so.
    pub fn is_due(&self) -> bool {
        let now = time::now();
        let last = self.0.load(Ordering::Relaxed);
        let is_due = last == 0 || now.since(Timestamp::from_nanos(last)) > SAY_EVERY;
        let this = now.as_nanos().max(1);
        is_due && self.0.compare_exchange(last, this, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_said_is_not_said_again() {
        let spaced = Spaced::default();
        assert!(spaced.is_due());
        assert!((0..100).all(|_| !spaced.is_due()));
    }
}

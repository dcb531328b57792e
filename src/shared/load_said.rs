//! What a server has said of its load beside its answers: the latest, from whichever worker got it, for control to pick up.
//!
//! Answers come by thousands and say much the same: one in [`EVERY`] is read. It refuses to keep what came before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::feedback::orca::Utilization;

/// How often what a server says is read.
pub const EVERY: Duration = Duration::from_millis(100);

/// What stands for a number that was not said.
const UNSAID: f64 = f64::NAN;

/// The latest of one server. Each number is whole; the two may be of two answers.
#[derive(Debug)]
#[repr(align(64))]
pub struct LoadSaid {
    due: AtomicU64,
    cpu: AtomicU64,
    memory: AtomicU64,
    /// How often something was said.
    times: AtomicU64,
}

impl Default for LoadSaid {
    fn default() -> Self {
        let unsaid = || AtomicU64::new(UNSAID.to_bits());
        Self { due: AtomicU64::default(), cpu: unsaid(), memory: unsaid(), times: AtomicU64::default() }
    }
}

impl LoadSaid {
    /// Whether an answer that came now is to be read. Of several workers that ask at once, more than one may be told so.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now.as_nanos() >= self.due.load(Ordering::Relaxed)
    }

    /// The server has said this.
    pub fn say(&self, said: Utilization, now: Timestamp) {
        self.due.store((now + EVERY).as_nanos(), Ordering::Relaxed);
        self.cpu.store(said.cpu.unwrap_or(UNSAID).to_bits(), Ordering::Relaxed);
        self.memory.store(said.memory.unwrap_or(UNSAID).to_bits(), Ordering::Relaxed);
        self.times.fetch_add(1, Ordering::Release);
    }

    /// What was said, where that is more than what had been said `seen` times.
    pub fn after(&self, seen: &mut u64) -> Option<Utilization> {
        let times = self.times.load(Ordering::Acquire);
        if times == *seen {
            return None;
        }
        *seen = times;
        let read = |number: &AtomicU64| {
            let number = f64::from_bits(number.load(Ordering::Relaxed));
            (!number.is_nan()).then_some(number)
        };
        Some(Utilization { cpu: read(&self.cpu), memory: read(&self.memory) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_is_picked_up_once_and_read_ten_times_a_second() {
        let load = LoadSaid::default();
        let mut seen = 0;
        assert_eq!(load.after(&mut seen), None);
        assert!(load.is_due(Timestamp::ZERO));
        let said = |cpu| Utilization { cpu: Some(cpu), memory: None };
        load.say(said(0.1), Timestamp::ZERO);
        load.say(said(0.2), Timestamp::ZERO);
        assert_eq!(load.after(&mut seen), Some(said(0.2)));
        assert_eq!(load.after(&mut seen), None);
        assert!(!load.is_due(Timestamp::ZERO + Duration::from_millis(99)));
        assert!(load.is_due(Timestamp::ZERO + EVERY));
    }
}

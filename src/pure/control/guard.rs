//! Guards against our own slowness: whoever is late himself takes others for late. A tick that comes late, and half a pool that
//! is suspected at once, stretch every timeout for a while (as Lifeguard does for SWIM: A. Dadgar et al., 2018).

use std::time::Duration;

use super::TICK;
use crate::base::time::Timestamp;

/// A tick that is later than this tells of our own trouble.
pub const LATE: Duration = Duration::from_millis(50);

/// The most that timeouts are stretched: by 1 + this.
pub const STRETCH_MAX: f64 = 8.0;

/// After a late tick, what was late with it catches up in this time.
const CATCH_UP: Duration = Duration::from_millis(300);

/// Suspicions so near to each other came at once.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How much half a pool adds.
const HALF_A_POOL: f64 = 3.0;

/// How far our own word is to be trusted.
#[derive(Debug, Default)]
pub(super) struct Guard {
    last_tick: Option<Timestamp>,
    late_at: Option<Timestamp>,
    /// h: 0 where all is well.
    stretch: f64,
}

impl Guard {
    /// Time has passed. Gives back by how much the tick was late, where that is worth a word.
    pub(super) fn tick(&mut self, now: Timestamp) -> Option<Duration> {
        let elapsed = self.last_tick.map_or(TICK, |last| now.since(last));
        self.last_tick = Some(now);
        let late = elapsed.saturating_sub(TICK);
        if late <= LATE {
            // A second of punctual ticks takes one back.
            self.stretch = (self.stretch - elapsed.as_secs_f64()).max(0.0);
            return None;
        }
        self.late_at = Some(now);
        self.stretch = (self.stretch + 1.0 + late.as_secs_f64()).min(STRETCH_MAX);
        Some(late)
    }

    /// When time passed last.
    pub(super) fn last_tick(&self) -> Timestamp {
        self.last_tick.unwrap_or_default()
    }

    /// Half a pool was suspected at once.
    pub(super) fn half_a_pool(&mut self) {
        self.stretch = (self.stretch + HALF_A_POOL).min(STRETCH_MAX);
    }

    /// By what every timeout is multiplied.
    pub(super) fn factor(&self) -> f64 {
        1.0 + self.stretch
    }

    /// Whether what seems late now may be our own doing.
    pub(super) fn catches_up(&self, now: Timestamp) -> bool {
        // The tick that will tell of it may come after what was late with it.
        let is_overdue = self.last_tick.is_some_and(|last| now.since(last) > TICK + LATE);
        is_overdue || self.late_at.is_some_and(|at| now.since(at) < CATCH_UP)
    }
}

/// Whether suspicions of servers of one pool, each with its time, are half of the pool at once; one alone is no half.
pub(super) fn is_half_a_pool(now: Timestamp, suspected: impl Iterator<Item = Timestamp>, pool: usize) -> bool {
    let at_once = suspected.filter(|since| now.since(*since) <= AT_ONCE).count();
    at_once >= 2 && at_once * 2 >= pool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_ticks_stretch_and_punctual_ones_take_it_back() {
        let mut guard = Guard::default();
        let mut now = Timestamp::ZERO;
        for _ in 0..10 {
            now = now + TICK + LATE;
            assert_eq!(guard.tick(now), None);
        }
        assert_eq!(guard.factor(), 1.0);
        now = now + Duration::from_secs(2);
        assert_eq!(guard.tick(now), Some(Duration::from_secs(2) - TICK));
        assert!(guard.factor() > 3.9 && guard.catches_up(now));
        for _ in 0..100 {
            now = now + Duration::from_secs(2);
            guard.tick(now);
        }
        assert_eq!(guard.factor(), 1.0 + STRETCH_MAX);
        for _ in 0..180 {
            now = now + TICK;
            guard.tick(now);
        }
        assert_eq!(guard.factor(), 1.0);
        assert!(!guard.catches_up(now));
    }

    #[test]
    fn half_a_pool_is_more_than_one_server_at_about_the_same_time() {
        let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        let is_half = |suspected: &[u64], pool| is_half_a_pool(at(2_000), suspected.iter().map(|ms| at(*ms)), pool);
        assert!(!is_half(&[2_000], 1) && !is_half(&[2_000], 2));
        assert!(is_half(&[1_500, 2_000], 4) && !is_half(&[1_500, 2_000], 5));
        assert!(!is_half(&[500, 2_000], 3), "one of them was long before");
    }
}

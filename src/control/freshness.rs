//! When the report for those who ask is made anew: soon where a state has changed, and now and then where only figures have. It
//! is made whole, of all servers, and reports come ten times a second from each of them.
//!
//! It refuses to make it.

use std::time::Duration;

use crate::base::time::Timestamp;

/// How often the report is made at most, where states change.
pub(super) const STATES_EVERY: Duration = Duration::from_millis(100);

/// How often the report is made where nothing but figures changes.
pub(super) const FIGURES_EVERY: Duration = Duration::from_secs(1);

/// How far the last report is behind.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    is_old: bool,
    has_old_figures: bool,
    /// When it was last made; `None`: never.
    made: Option<Timestamp>,
}

impl Freshness {
    /// Something has changed that is to be seen soon.
    pub(super) const fn state_changed(&mut self) {
        self.is_old = true;
    }

    /// Figures may have changed, or what was seen of servers.
    pub(super) const fn figures_changed(&mut self) {
        self.has_old_figures = true;
    }

    /// Whether a report is due; it is made then.
    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        let every = match (self.is_old, self.has_old_figures) {
            (true, _) => STATES_EVERY,
            (false, true) => FIGURES_EVERY,
            (false, false) => return false,
        };
        let is_due = self.made.is_none_or(|made| now.since(made) >= every);
        if is_due {
            *self = Self { made: Some(now), ..Self::default() };
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_alone_do_not_have_the_whole_report_made_ten_times_a_second() {
        let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        let mut freshness = Freshness::default();
        let mut made = Vec::new();
        assert!(!freshness.is_due(at(0)));
        for millis in (0..3_000).step_by(50) {
            freshness.figures_changed();
            if millis == 1_300 {
                freshness.state_changed();
            }
            made.extend(freshness.is_due(at(millis)).then_some(millis));
        }
        assert_eq!(made, [0, 1_000, 1_300, 2_300]);
        let mut made = 0;
        for millis in (4_000..5_000).step_by(50) {
            freshness.state_changed();
            made += u32::from(freshness.is_due(at(millis)));
        }
        assert_eq!(made, 10);
        assert!(freshness.is_due(at(5_000)), "the last change is seen too");
        assert!(!freshness.is_due(at(9_000)), "nothing has changed");
    }
}

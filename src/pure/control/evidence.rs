//! What was seen of a server, and when: the last few signs, for those who ask why a state is what it is.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::control::{CheckFailure, Order};

/// The most signs that are kept of one server.
pub const KEPT_MAX: usize = 16;

/// One thing that was seen of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// So many connects in a row failed.
    ConnectFailures(u32),
    /// A check passed, in this time.
    CheckPassed(Duration),
    /// So many checks in a row passed.
    ChecksPassed(u32),
    /// A check failed.
    CheckFailed(CheckFailure),
    /// An operator ordered it.
    Ordered(Order),
    /// It was configured, new or at another address.
    Configured,
    /// Its share has risen to the whole without a failure.
    SlowStartOver,
}

impl std::fmt::Display for Sign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ConnectFailures(count) => write!(f, "{count} connects in a row failed"),
            Self::CheckPassed(time) => write!(f, "a check passed in {:.1} ms", time.as_secs_f64() * 1_000.0),
            Self::ChecksPassed(count) => write!(f, "{count} checks in a row passed"),
            Self::CheckFailed(why) => write!(f, "a check failed: {why}"),
            Self::Ordered(Order::Drain) => f.write_str("an operator drains it"),
            Self::Ordered(Order::Maintain) => f.write_str("an operator took it out"),
            Self::Ordered(Order::Enable) => f.write_str("an operator put it back"),
            Self::Configured => f.write_str("it was configured"),
            Self::SlowStartOver => f.write_str("its slow start is over"),
        }
    }
}

/// A sign and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// When it was seen last.
    pub at: Timestamp,
    /// What was seen.
    pub sign: Sign,
    /// How often in a row.
    pub times: u32,
}

/// The last signs of one server. The same sign again counts up and takes no place.
#[derive(Debug, Default)]
pub(super) struct Signs {
    kept: VecDeque<Evidence>,
}

impl Signs {
    pub(super) fn add(&mut self, at: Timestamp, sign: Sign) {
        if let Some(last) = self.kept.back_mut()
            && std::mem::discriminant(&last.sign) == std::mem::discriminant(&sign)
        {
            *last = Evidence { at, sign, times: last.times.saturating_add(1) };
            return;
        }
        if self.kept.len() >= KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(Evidence { at, sign, times: 1 });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Evidence> {
        self.kept.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_bounded_and_repetitions_count_up() {
        let mut signs = Signs::default();
        for round in 0..100u64 {
            let at = Timestamp::from_nanos(round);
            signs.add(at, Sign::CheckFailed(CheckFailure::Refused));
            signs.add(at, Sign::CheckFailed(CheckFailure::TimedOut));
            signs.add(at, Sign::Ordered(Order::Drain));
        }
        let kept: Vec<_> = signs.iter().copied().collect();
        assert_eq!(kept.len(), KEPT_MAX);
        let last = Timestamp::from_nanos(99);
        assert_eq!(kept[KEPT_MAX - 1], Evidence { at: last, sign: Sign::Ordered(Order::Drain), times: 1 });
        let failed = Evidence { at: last, sign: Sign::CheckFailed(CheckFailure::TimedOut), times: 2 };
        assert_eq!(kept[KEPT_MAX - 2], failed);
    }
}

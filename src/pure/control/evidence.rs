//! What was seen of a server, and when: the last few signs, for those who ask why a state is what it is.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::control::{CheckFailure, Order};
use crate::pure::feedback::report::{Service, Source};

/// The most signs that are kept of one server.
pub const KEPT_MAX: usize = 16;

/// One thing that was seen of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// So many connects in a row failed.
    ConnectFailures(u32),
    /// So many of so many requests failed in two seconds.
    RequestsFailed(u32, u32),
    /// So many requests waited, and not a byte came in this time.
    Silent(u32, Duration),
    /// A check passed, in this time.
    CheckPassed(Duration),
    /// So many checks in a row passed.
    ChecksPassed(u32),
    /// A check failed.
    CheckFailed(CheckFailure),
    /// Somebody says how its service is.
    Says(Source, Service),
    /// Somebody says that it has too much to do.
    Overloaded(Source),
    /// Somebody says that it has no longer.
    OverloadOver(Source),
    /// Its agent has missed so many promises.
    PromisesMissed(u32),
    /// The doubt that its agent still speaks, in tenths of φ.
    Doubted(u32),
    /// Its agent is silent, and all else is well: it counts for nothing until it speaks again.
    AgentLost,
    /// Its agent began anew.
    AgentRestarted,
    /// So many ticks of a fifth of a second without a report.
    Unreported(u32),
    /// Its agent did not answer a question.
    Unanswered,
    /// What spoke against it has cleared.
    Cleared,
    /// An operator ordered it.
    Ordered(Order),
    /// It was configured, new or at another address.
    Configured,
    /// Its share has risen to the whole without a failure.
    SlowStartOver,
}

impl Sign {
    /// Whether it is that something did not come in time, which may be our own fault.
    pub const fn is_lateness(self) -> bool {
        matches!(self, Self::Silent(..) | Self::PromisesMissed(_) | Self::Doubted(_))
    }
}

impl std::fmt::Display for Sign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ConnectFailures(count) => write!(f, "{count} connects in a row failed"),
            Self::RequestsFailed(failed, ended) => write!(f, "{failed} of {ended} requests failed in two seconds"),
            Self::Silent(waiting, time) => {
                write!(f, "{waiting} requests wait and nothing came for {:.1} ms", time.as_secs_f64() * 1_000.0)
            }
            Self::CheckPassed(time) => write!(f, "a check passed in {:.1} ms", time.as_secs_f64() * 1_000.0),
            Self::ChecksPassed(count) => write!(f, "{count} checks in a row passed"),
            Self::CheckFailed(why) => write!(f, "a check failed: {why}"),
            Self::Says(source, Service::Up) => write!(f, "{source} says that it is up"),
            Self::Says(source, Service::Abnormal) => write!(f, "{source} says that something is wrong"),
            Self::Says(source, Service::Down) => write!(f, "{source} says that its service is down"),
            Self::Says(source, Service::Leaving) => write!(f, "{source} says that it is about to stop"),
            Self::Says(source, Service::Maintenance) => write!(f, "{source} says that it is in maintenance"),
            Self::Overloaded(source) => write!(f, "{source} says that it is overloaded"),
            Self::OverloadOver(source) => write!(f, "{source} says that it is no longer overloaded"),
            Self::PromisesMissed(count) => write!(f, "its agent missed {count} promised reports"),
            Self::Doubted(tenths) => write!(f, "its agent is silent, doubt {:.1}", f64::from(*tenths) / 10.0),
            Self::AgentLost => f.write_str("its agent is silent but all else is well: it is done without"),
            Self::AgentRestarted => f.write_str("its agent began anew"),
            Self::Unreported(ticks) => write!(f, "no report for {ticks} ticks"),
            Self::Unanswered => f.write_str("its agent did not answer"),
            Self::Cleared => f.write_str("what spoke against it has cleared"),
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

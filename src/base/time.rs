//! Points in time as plain numbers, so that pure code can be given any time at all.
//!
//! Rule: [`now`] and [`wall_clock`] are the only places of the product that read a clock; I/O shells call them and pass
//! the result on.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

/// A point on the process's monotonic clock, in nanoseconds since the clock was first read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Later than every other: what a deadline that never comes is set to.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here; zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Timestamp::NEVER`].
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

static ORIGIN: LazyLock<Instant> = LazyLock::new(read_clock);

#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
fn read_clock() -> Instant {
    Instant::now()
}

/// Reads the monotonic clock.
pub fn now() -> Timestamp {
    let origin = *ORIGIN;
    Timestamp::ZERO + read_clock().saturating_duration_since(origin)
}

/// The `Instant` of a timestamp, for timers of the runtime.
pub fn instant_of(at: Timestamp) -> Instant {
    *ORIGIN + Duration::from_nanos(at.as_nanos().min(u64::MAX / 4))
}

/// A point in time by the wall clock, in whole seconds since 1970: what nodes and processes agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// That of the wall clock's `time`; the origin where it is earlier.
    pub fn of(time: SystemTime) -> Self {
        Self(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
    }

    /// The time from `earlier` to here; zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

/// A point in time by the wall clock, in nanoseconds since 1970: where whole seconds are too coarse for two machines to agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub u64);

impl UnixNanos {
    /// That of the wall clock's `time`; the origin where it is earlier.
    pub fn of(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time from `earlier` to here; zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How far two points are apart, whichever is earlier.
    pub const fn apart(self, other: Self) -> Duration {
        Duration::from_nanos(self.0.abs_diff(other.0))
    }
}

impl std::ops::Add<Duration> for UnixNanos {
    type Output = Self;

    /// Saturates.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Reads the wall clock, for logs, cookies and certificates: never for measuring.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

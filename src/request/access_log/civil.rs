//! Points in time as the text of log lines: UTC in the forms of RFC 3339 and of the combined format.
//!
//! Its calendar is the proleptic Gregorian one, without leap seconds, as the system's clock has it. Dates before 1970
//! read as 1970.

use std::time::{Duration, SystemTime};

use crate::base::time::Timestamp;
use crate::pure::config::LogFormat;

/// Turns timestamps into text; the part down to the second is made once per second.
#[derive(Debug)]
pub(crate) struct CivilClock {
    /// What the monotonic clock's origin was on the wall clock.
    origin: Duration,
    format: LogFormat,
    second: u64,
    text: String,
}

impl CivilClock {
    /// A clock that was `wall` when the monotonic one was `now`.
    pub(crate) fn new(format: LogFormat, now: Timestamp, wall: SystemTime) -> Self {
        let mut clock = Self { origin: Duration::ZERO, format, second: u64::MAX, text: String::with_capacity(32) };
        clock.set(now, wall);
        clock
    }

    /// Follows the wall clock where it was moved.
    pub(crate) fn set(&mut self, now: Timestamp, wall: SystemTime) {
        let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.origin = wall.saturating_sub(Duration::from_nanos(now.as_nanos()));
    }

    /// `2026-01-02T03:04:05` or `02/Jan/2026:03:04:05`, and the microseconds that belong behind it.
    pub(crate) fn read(&mut self, at: Timestamp) -> (&str, u32) {
        let wall = self.origin.saturating_add(Duration::from_nanos(at.as_nanos()));
        if wall.as_secs() != self.second {
            self.write(wall.as_secs());
        }
        (&self.text, wall.subsec_micros())
    }

    fn write(&mut self, second: u64) {
        use std::fmt::Write as _;
        self.second = second;
        self.text.clear();
        let Civil { year, month, day } = Civil::of_day(second / 86_400);
        let (hour, minute, seconds) = (second / 3_600 % 24, second / 60 % 60, second % 60);
        // Writing to a String can't fail.
        let _ = match self.format {
            LogFormat::Json => {
                write!(self.text, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{seconds:02}")
            }
            LogFormat::Combined => {
                let month = month_name(month);
                write!(self.text, "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{seconds:02}")
            }
        };
    }
}

const fn month_name(month: u64) -> &'static str {
    match month {
        1 => "Jan",
        2 => "Feb",
        3 => "Mar",
        4 => "Apr",
        5 => "May",
        6 => "Jun",
        7 => "Jul",
        8 => "Aug",
        9 => "Sep",
        10 => "Oct",
        11 => "Nov",
        _ => "Dec",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Civil {
    year: u64,
    month: u64,
    day: u64,
}

impl Civil {
    /// The date of a day counted from 1970-01-01.
    ///
    /// Years are counted from March, so that the leap day is a year's last, and in cycles of 400 years, which all have
    /// 146 097 days.
    const fn of_day(day: u64) -> Self {
        const DAYS_BEFORE_1970: u64 = 719_468; // from 0000-03-01
        const DAYS_OF_CYCLE: u64 = 146_097;
        let day = day + DAYS_BEFORE_1970;
        let (cycle, day) = (day / DAYS_OF_CYCLE, day % DAYS_OF_CYCLE);
        // Leap days that lie behind are taken out, so that every year has 365 days.
        let year = (day - day / 1_460 + day / 36_524 - day / (DAYS_OF_CYCLE - 1)) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // Five months from March on have 153 days, which this line of slope 153/5 rounds to the right lengths.
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
        Self { year: year + cycle * 400, month, day }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days_of(year: u64, month: u64) -> u64 {
        let leap = (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
        match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    #[test]
    fn every_day_of_900_years_follows_the_one_before() {
        let mut expected = Civil { year: 1970, month: 1, day: 1 };
        for day in 0..365 * 900 {
            assert_eq!(Civil::of_day(day), expected);
            expected.day += 1;
            if expected.day > days_of(expected.year, expected.month) {
                expected = Civil { day: 1, month: expected.month + 1, ..expected };
            }
            if expected.month > 12 {
                expected = Civil { year: expected.year + 1, month: 1, day: 1 };
            }
        }
    }

    #[test]
    fn a_time_is_read_in_both_forms_and_follows_the_wall_clock() {
        let now = Timestamp::from_nanos(5_000_000_000);
        let wall = SystemTime::UNIX_EPOCH + Duration::from_micros(1_767_323_045_000_042);
        let mut clock = CivilClock::new(LogFormat::Json, now, wall);
        assert_eq!(clock.read(now), ("2026-01-02T03:04:05", 42));
        let later = now + Duration::from_millis(999);
        assert_eq!(clock.read(later), ("2026-01-02T03:04:05", 999_042));
        let later = now + Duration::from_secs(55);
        assert_eq!(clock.read(later), ("2026-01-02T03:05:00", 42));
        clock.set(later, wall);
        assert_eq!(clock.read(later), ("2026-01-02T03:04:05", 42));
        let mut clock = CivilClock::new(LogFormat::Combined, now, wall);
        assert_eq!(clock.read(now), ("02/Jan/2026:03:04:05", 42));
    }
}

//! The time by the wall clock in whole seconds, read once a second, and as HTTP writes it (RFC 9110 5.6.7).

use std::fmt::Write as _;
use std::time::Duration;

use crate::base::time::{Timestamp, UnixTime, wall_clock};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A date text that follows the clock.
#[derive(Debug, Default)]
pub struct HttpDate {
    text: String,
    time: UnixTime,
    made: Option<Timestamp>,
}

impl HttpDate {
    /// The text, as of the last time it followed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The time that the text says.
    pub const fn time(&self) -> UnixTime {
        self.time
    }

    /// Makes the text anew where it is a second old.
    pub fn follow(&mut self, now: Timestamp) {
        if self.made.is_some_and(|made| now.since(made) < Duration::from_secs(1)) {
            return;
        }
        self.made = Some(now);
        self.time = UnixTime::of(wall_clock());
        self.text.clear();
        write_date(&mut self.text, self.time.0);
    }
}

/// Writes `seconds` since 1970 as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn write_date(out: &mut String, seconds: u64) {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let name = DAYS.get((days % 7) as usize).unwrap_or(&"");
    let month = MONTHS.get(month as usize).unwrap_or(&"");
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let _ = write!(out, "{name}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT");
}

/// Year, month from 0 and day of a number of days since 1970, by counting years and months: no date is so far off that this
/// takes long.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seconds: u64, expected: &str) {
        let mut text = String::new();
        write_date(&mut text, seconds);
        assert_eq!(text, expected);
    }

    #[test]
    fn dates_are_those_of_the_standard() {
        check(784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT");
        check(0, "Thu, 01 Jan 1970 00:00:00 GMT");
        check(951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT");
        check(4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT");
    }
}

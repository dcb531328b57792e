//! What Pointsman's log says of its servers' states: `server POOL/NAME was STATE and is STATE: WHY`, with the time of day of each line.
//!
//! It reads what an operator reads, so that the experiment sees no more than one would.

use std::time::Duration;

/// A server's change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, since the epoch.
    pub at: Duration,
    /// The server, as POOL/NAME.
    pub server: String,
    /// What it was.
    pub from: String,
    /// What it is.
    pub to: String,
    /// Why.
    pub because: String,
}

impl Change {
    /// All changes in a log, in its order.
    pub fn all_in(log: &str) -> Vec<Self> {
        log.lines().filter_map(Self::parse).collect()
    }

    fn parse(line: &str) -> Option<Self> {
        let (time, rest) = line.trim_start().split_once(' ')?;
        let (server, rest) = rest.split_once("server ")?.1.split_once(" was ")?;
        let (from, rest) = rest.split_once(" and is ")?;
        let (to, because) = rest.split_once(": ").unwrap_or((rest, ""));
        let is_name = !server.contains(' ') && server.contains('/');
        is_name.then(|| Self {
            at: time_of(time).unwrap_or_default(),
            server: server.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            because: because.to_owned(),
        })
    }

    /// Whether it is from now on suspected of a failure or of overload.
    pub fn is_suspicion(&self) -> bool {
        self.to.starts_with("suspect") || self.to.starts_with("overloaded")
    }

    /// Whether it is from now on taken for dead.
    pub fn is_death(&self) -> bool {
        self.to == "down"
    }
}

/// The first change after `at` that `is_wanted`, and how long after.
pub fn first_after(
    changes: &[Change],
    server: &str,
    at: Duration,
    is_wanted: impl Fn(&Change) -> bool,
) -> Option<Duration> {
    let change = changes.iter().find(|change| change.server == server && change.at >= at && is_wanted(change));
    change.map(|change| change.at - at)
}

/// A time such as `2026-11-30T22:46:06.782234Z` (RFC 3339), since the epoch.
fn time_of(text: &str) -> Option<Duration> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (time.next()?.parse::<u64>().ok()?, time.next()?.parse::<u64>().ok()?);
    let second = time.next()?.parse::<f64>().ok()?;
    // Years that begin in March end with the day that leap years have more.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    let seconds = u64::try_from(days).ok()? * 86_400 + hour * 3_600 + minute * 60;
    Some(Duration::from_secs(seconds) + Duration::try_from_secs_f64(second).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-11-30T22:46:05.480779Z  INFO listening on http://127.0.0.1:18999\n\
        2026-11-30T22:46:06.757832Z  WARN the server all/s2 failed a request: connection refused\n\
        2026-11-30T22:46:06.782234Z  WARN server all/s1 was up and is suspect: 4 connects in a row failed\n\
        2026-11-30T22:46:06.833090Z  WARN server all/s1 was suspect and is down: a check failed: connection refused\n\
        2026-11-30T22:46:06.900000Z  WARN server all/s2 was up and is suspect (overload): its agent says that it is full\n";

    #[test]
    fn changes_are_read_from_a_log_with_their_times_and_reasons() {
        let changes = Change::all_in(LOG);
        let brief: Vec<(&str, &str, &str)> =
            changes.iter().map(|one| (one.server.as_str(), one.from.as_str(), one.to.as_str())).collect();
        assert_eq!(
            brief,
            [("all/s1", "up", "suspect"), ("all/s1", "suspect", "down"), ("all/s2", "up", "suspect (overload)")]
        );
        assert_eq!(changes[1].because, "a check failed: connection refused");
        let at = time_of("2026-11-30T22:46:06.700000Z").unwrap();
        let suspect = first_after(&changes, "all/s1", at, Change::is_suspicion).unwrap();
        assert!((suspect.as_secs_f64() - 0.082_234).abs() < 1e-5, "{suspect:?}");
        assert_eq!(first_after(&changes, "all/s2", at, Change::is_death), None);
        assert_eq!(first_after(&changes, "all/s1", at + Duration::from_secs(9), Change::is_death), None);
    }

    #[test]
    fn times_of_day_count_from_the_epoch() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0.0),
            ("2000-02-29T12:00:00.5Z", 951_825_600.5),
            ("2026-11-30T22:46:06.25Z", 1_796_078_766.25),
        ] {
            let found = time_of(text).unwrap().as_secs_f64();
            assert!((found - seconds).abs() < 1e-3, "{text}: {found}");
        }
        assert_eq!(time_of("22:46"), None);
    }
}

//! Which statuses of an answer are good: `200-299,404`. Final ones alone: an interim answer is no answer.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// Some statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet(Vec<RangeInclusive<u16>>);

/// The statuses that there are.
const ALL: RangeInclusive<u16> = 200..=599;

/// Why a text is no set of statuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatusSetError {
    /// There is nothing in it.
    #[error("there is no status in it")]
    Empty,
    /// A part of it is nothing that could be a status.
    #[error("`{0}` is no status from 200 to 599, no range of them, and no class such as `2xx`")]
    Part(String),
    /// A range ends before its beginning.
    #[error("`{0}` ends before its beginning")]
    Backwards(String),
}

/// A server that answers, and not with a fault: what most proxies take for well.
impl Default for StatusSet {
    fn default() -> Self {
        Self(vec![200..=399])
    }
}

impl StatusSet {
    /// Whether a status is in it.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }

    /// Whether each status is.
    pub fn is_everything(&self) -> bool {
        ALL.into_iter().all(|status| self.contains(status))
    }
}

/// Statuses, ranges and classes, with commas or spaces between.
impl FromStr for StatusSet {
    type Err = StatusSetError;

    fn from_str(text: &str) -> Result<Self, StatusSetError> {
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        let ranges = parts.map(read_part).collect::<Result<Vec<_>, _>>()?;
        if ranges.is_empty() { Err(StatusSetError::Empty) } else { Ok(Self(ranges)) }
    }
}

fn read_part(part: &str) -> Result<RangeInclusive<u16>, StatusSetError> {
    let wrong = || StatusSetError::Part(part.to_owned());
    if let Some(class @ ("2" | "3" | "4" | "5")) = part.strip_suffix("xx").or_else(|| part.strip_suffix("XX")) {
        let first = class.parse::<u16>().map_err(|_| wrong())? * 100;
        return Ok(first..=first + 99);
    }
    let status = |digits: &str| {
        let is_plain = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|status| is_plain && ALL.contains(status)).ok_or_else(wrong)
    };
    let (first, last) = match part.split_once('-') {
        Some((first, last)) => (status(first)?, status(last)?),
        None => (status(part)?, status(part)?),
    };
    if first > last { Err(StatusSetError::Backwards(part.to_owned())) } else { Ok(first..=last) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statuses_ranges_and_classes_are_read() {
        let set: StatusSet = "200-299,404 5xx".parse().unwrap();
        let good: Vec<u16> = [199, 200, 299, 300, 403, 404, 405, 499, 500, 599]
            .into_iter()
            .filter(|status| set.contains(*status))
            .collect();
        assert_eq!(good, [200, 299, 404, 500, 599]);
        assert!(!set.is_everything() && "2xx,3xx,400-599".parse::<StatusSet>().unwrap().is_everything());
        assert!(StatusSet::default().contains(399) && !StatusSet::default().contains(400));
    }

    #[test]
    fn what_is_no_status_is_refused() {
        for text in ["", ",", " , "] {
            assert_eq!(text.parse::<StatusSet>(), Err(StatusSetError::Empty));
        }
        for text in ["abc", "20", "0200", "+20", "199", "600", "200-", "-299", "1xx", "200–299", "200-700", "200:299"]
        {
            assert_eq!(text.parse::<StatusSet>(), Err(StatusSetError::Part(text.to_owned())), "{text}");
        }
        assert_eq!("299-200".parse::<StatusSet>(), Err(StatusSetError::Backwards("299-200".to_owned())));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9x, -]{0,24}") {
            let _ = text.parse::<StatusSet>();
        }

        #[test]
        fn a_set_holds_what_its_ranges_hold(ranges in proptest::collection::vec((200u16..600, 200u16..600), 1..6), status in 200u16..600) {
            let ranges: Vec<(u16, u16)> = ranges.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
            let text = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(",");
            let set: StatusSet = text.parse().unwrap();
            prop_assert_eq!(set.contains(status), ranges.iter().any(|(first, last)| *first <= status && status <= *last));
        }
    }
}

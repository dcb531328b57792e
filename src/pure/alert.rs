//! Who has to be told when: that a server is down, is back, or is given up, each at most once in [`QUIET`] for each server.
//!
//! What comes meanwhile is held back and not forgotten: where the last word is no longer true when the time is over, the new
//! one follows. Where it goes and how is no business of this module.

pub mod target;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::id::ServerId;
use crate::base::time::Timestamp;

/// The same of the same server is not told again within this time.
pub const QUIET: Duration = Duration::from_secs(60);

/// What is told of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occasion {
    /// It is down.
    Down,
    /// It is back.
    Recovered,
    /// Nothing more is tried to bring it back.
    GivenUp,
}

impl Occasion {
    /// Its name in a message for machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Recovered => "recovered",
            Self::GivenUp => "recovery-given-up",
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// What has happened.
    pub occasion: Occasion,
    /// To which server.
    pub server: ServerId,
    /// Why, or in what way, as the end of a sentence.
    pub because: String,
    /// How many others about the server were held back since the last.
    pub held_back: u32,
}

impl std::fmt::Display for Alert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { occasion, server, because, held_back } = self;
        match occasion {
            Occasion::Down => write!(f, "server {server} is down: {because}")?,
            Occasion::Recovered => write!(f, "server {server} is back: {because}")?,
            Occasion::GivenUp => write!(f, "server {server} is given up: {because}")?,
        }
        match held_back {
            0 => Ok(()),
            count => write!(f, " ({count} more of this server in the last minute)"),
        }
    }
}

/// What became of alerts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertCounts {
    /// Those that were told, at each place that is told.
    pub sent: u64,
    /// Those that no try could deliver.
    pub failed: u64,
    /// Those that were dropped because too many waited.
    pub dropped: u64,
    /// Those that were held back as repetitions.
    pub held_back: u64,
}

/// Who was told what, and when.
#[derive(Debug, Default)]
pub struct Alerts {
    servers: BTreeMap<ServerId, Told>,
    held_back: u64,
}

/// What was told of one server.
#[derive(Debug)]
struct Told {
    occasion: Occasion,
    /// When each kind was told last.
    at: BTreeMap<Occasion, Timestamp>,
    /// The latest that was held back, and how many were.
    waiting: Option<Alert>,
    held_back: u32,
}

impl Alerts {
    /// Something has happened. Returns what is to be told now.
    pub fn note(&mut self, now: Timestamp, occasion: Occasion, server: &ServerId, because: String) -> Option<Alert> {
        let alert = Alert { occasion, server: server.clone(), because, held_back: 0 };
        let Some(told) = self.servers.get_mut(server) else {
            // One that comes up for the first time is no news.
            if occasion == Occasion::Recovered {
                return None;
            }
            let told = Told { occasion, at: BTreeMap::from([(occasion, now)]), waiting: None, held_back: 0 };
            self.servers.insert(server.clone(), told);
            return Some(alert);
        };
        if told.waiting.is_none() && told.occasion == occasion && occasion == Occasion::Recovered {
            // It was never said to be anything else.
            return None;
        }
        let is_quiet = told.at.get(&occasion).is_some_and(|last| now.since(*last) < QUIET);
        if is_quiet || told.waiting.is_some() {
            self.held_back += 1;
            told.held_back = told.held_back.saturating_add(1);
            told.waiting = Some(alert);
            return None;
        }
        Some(told.tell(now, alert))
    }

    /// Time has passed: what was held back and is still news is told now.
    pub fn tick(&mut self, now: Timestamp) -> Vec<Alert> {
        let mut due = Vec::new();
        for told in self.servers.values_mut() {
            let Some(waiting) = &told.waiting else { continue };
            if told.at.get(&waiting.occasion).is_some_and(|last| now.since(*last) < QUIET) {
                continue;
            }
            let Some(alert) = told.waiting.take() else { continue };
            if alert.occasion == told.occasion {
                // What was said last is true again.
                told.held_back = 0;
            } else {
                due.push(told.tell(now, alert));
            }
        }
        due
    }

    /// How many were held back.
    pub const fn held_back(&self) -> u64 {
        self.held_back
    }

    /// Forgets all servers but those.
    pub fn keep(&mut self, is_known: impl Fn(&ServerId) -> bool) {
        self.servers.retain(|server, _| is_known(server));
    }
}

impl Told {
    fn tell(&mut self, now: Timestamp, mut alert: Alert) -> Alert {
        self.at.insert(alert.occasion, now);
        self.occasion = alert.occasion;
        // It does not count itself.
        alert.held_back = std::mem::take(&mut self.held_back).saturating_sub(1);
        alert
    }
}

#[cfg(test)]
mod tests {
    use super::Occasion::{Down, GivenUp, Recovered};
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn id(name: &str) -> ServerId {
        ServerId { pool: "p".into(), server: name.into() }
    }

    /// What is told of these events, each with its second; time passes second by second until `end`.
    fn told(events: &[(u64, Occasion)], end: u64) -> Vec<(u64, Occasion, u32)> {
        let mut alerts = Alerts::default();
        let mut told = Vec::new();
        for second in 0..=end {
            for (_, occasion) in events.iter().filter(|(when, _)| *when == second) {
                let alert = alerts.note(at(second), *occasion, &id("a"), String::new());
                told.extend(alert.map(|alert| (second, alert.occasion, alert.held_back)));
            }
            told.extend(alerts.tick(at(second)).into_iter().map(|alert| (second, alert.occasion, alert.held_back)));
        }
        told
    }

    #[test]
    fn down_and_back_are_told_at_once() {
        let events = [(5, Down), (9, Recovered), (100, Down), (120, GivenUp), (130, Recovered)];
        assert_eq!(told(&events, 300), events.map(|(second, occasion)| (second, occasion, 0)));
    }

    #[test]
    fn a_server_that_flaps_is_told_once_a_minute_and_the_last_word_is_true() {
        let flapping = [(0, Down), (1, Recovered), (2, Down), (3, Recovered), (4, Down)];
        assert_eq!(told(&flapping, 300), [(0, Down, 0), (1, Recovered, 0), (60, Down, 2)]);
        let settled = [(0, Down), (1, Recovered), (2, Down), (3, Recovered)];
        assert_eq!(told(&settled, 300), [(0, Down, 0), (1, Recovered, 0)], "it is back, as was said last");
    }

    #[test]
    fn a_server_that_only_came_up_is_no_news() {
        assert_eq!(told(&[(0, Recovered), (1, Recovered)], 100), []);
    }

    #[test]
    fn servers_do_not_silence_each_other() {
        let mut alerts = Alerts::default();
        for name in ["a", "b"] {
            assert!(alerts.note(at(0), Down, &id(name), String::new()).is_some());
        }
        alerts.keep(|server| *server == id("a"));
        assert!(alerts.note(at(1), Down, &id("a"), String::new()).is_none());
        assert!(alerts.note(at(1), Down, &id("b"), String::new()).is_some());
        assert_eq!(alerts.held_back(), 1);
    }

    #[test]
    fn an_alert_reads_as_a_sentence() {
        let alert = Alert { occasion: Down, server: id("a"), because: "refused".to_owned(), held_back: 2 };
        assert_eq!(alert.to_string(), "server p/a is down: refused (2 more of this server in the last minute)");
    }
}

//! Whether a balancer seems to be there: what is said in the log of one that does not answer.
//!
//! A balancer answers the first report that it takes, and says nothing while it has nothing to ask. So its silence tells of
//! trouble only before its first answer; later only that the system says nobody listens there. It refuses to read a clock.

use std::time::Duration;

use crate::base::time::Timestamp;

/// After so long without an answer it is said.
const PATIENCE: Duration = Duration::from_secs(10);
/// And again so long after it was.
const AGAIN: Duration = Duration::from_secs(300);
/// A refusal that is older is over: reports come more often.
const RECENT: Duration = Duration::from_secs(3);

/// What is known of a balancer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contact {
    has_answered: bool,
    silent_since: Option<Timestamp>,
    refused: Option<Timestamp>,
    said: Option<Timestamp>,
}

impl Contact {
    /// A report was due. Gives back for how long nobody has answered, where that is to be said now.
    pub fn speaks(&mut self, now: Timestamp) -> Option<Duration> {
        let is_refused = self.refused.is_some_and(|at| now.since(at) < RECENT);
        if self.has_answered && !is_refused {
            // As far as anybody can tell, reports arrive.
            (self.silent_since, self.said) = (None, None);
            return None;
        }
        let silent = now.since(*self.silent_since.get_or_insert(now));
        let is_due = silent >= PATIENCE && self.said.is_none_or(|said| now.since(said) >= AGAIN);
        if is_due {
            self.said = Some(now);
        }
        is_due.then_some(silent)
    }

    /// A report did not reach it.
    pub fn refuses(&mut self, now: Timestamp) {
        self.refused = Some(now);
    }

    /// It has sent what only it can send. Gives back whether that is news for those who were told of its silence.
    pub fn answers(&mut self) -> bool {
        let was_said = self.said.is_some();
        *self = Self { has_answered: true, ..Self::default() };
        was_said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which a balancer's silence is said, of a report each second.
    fn said(contact: &mut Contact, seconds: std::ops::Range<u64>, is_refused: bool) -> Vec<u64> {
        let at = |second: &u64| Timestamp::from_nanos((second + 1) * 1_000_000_000);
        let mut speaks = |second: &u64| {
            if is_refused {
                contact.refuses(at(second));
            }
            contact.speaks(at(second)).is_some()
        };
        seconds.filter(|second| speaks(second)).collect()
    }

    #[test]
    fn a_balancer_that_never_answers_is_told_of_after_ten_seconds_and_every_five_minutes() {
        let mut contact = Contact::default();
        assert_eq!(said(&mut contact, 0..700, false), [10, 310, 610]);
        assert!(contact.answers(), "that it answers is news");
        assert_eq!(said(&mut contact, 700..1400, false), [0; 0], "it has nothing to ask");
        assert!(!contact.answers());
    }

    #[test]
    fn a_balancer_that_is_gone_is_told_of_and_one_that_is_back_is_not() {
        let mut contact = Contact::default();
        contact.answers();
        assert_eq!(said(&mut contact, 0..20, true), [10]);
        assert_eq!(said(&mut contact, 20..400, false), [0; 0]);
        assert_eq!(said(&mut contact, 400..405, true), [0; 0], "for a moment only");
        assert_eq!(said(&mut contact, 405..800, false), [0; 0]);
    }
}

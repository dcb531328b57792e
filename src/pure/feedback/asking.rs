//! When the agents of a pool are asked how long their run queues are, and how long an answer is waited for. It refuses to send
//! anything, and to know a clock.

use std::time::Duration;

use crate::base::time::Timestamp;

/// An answer that takes longer is none: its server gets nothing until it comes.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(30);

/// Between two rounds of questions while nobody sends requests.
pub const IDLE_GAP: Duration = Duration::from_secs(1);

/// So long what a server answered holds where it is not asked again: longer than a round takes, whatever is late.
pub const ANSWER_HOLDS: Duration = Duration::from_secs(3);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Ask every agent.
    Ask,
    /// Whoever has not answered since then is silent.
    Close(Timestamp),
}

/// The rounds of questions of one pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asking {
    asked_at: Option<Timestamp>,
    is_open: bool,
    /// The requests that had been sent to the pool's servers by the last round.
    sent_then: u32,
}

impl Asking {
    /// The next step, where so many requests have been sent to the pool's servers until now: while there are some, rounds follow
    /// each other.
    pub fn step(&mut self, now: Timestamp, sent: u32) -> Step {
        let Some(asked_at) = self.asked_at else { return self.ask(now, sent) };
        let age = now.since(asked_at);
        if self.is_open {
            if age < ANSWER_WITHIN {
                return Step::Wait;
            }
            self.is_open = false;
            return Step::Close(asked_at);
        }
        let gap = if sent == self.sent_then { IDLE_GAP } else { ANSWER_WITHIN };
        if age >= gap { self.ask(now, sent) } else { Step::Wait }
    }

    fn ask(&mut self, now: Timestamp, sent: u32) -> Step {
        *self = Self { asked_at: Some(now), is_open: true, sent_then: sent };
        Step::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_follow_requests_and_are_closed_in_time() {
        let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        let mut asking = Asking::default();
        assert_eq!(asking.step(at(0), 0), Step::Ask);
        assert_eq!(asking.step(at(29), 5), Step::Wait);
        assert_eq!(asking.step(at(30), 5), Step::Close(at(0)));
        assert_eq!(asking.step(at(30), 5), Step::Ask, "requests came meanwhile");
        assert_eq!(asking.step(at(61), 5), Step::Close(at(30)));
        assert_eq!(asking.step(at(500), 5), Step::Wait, "nobody sends any");
        assert_eq!(asking.step(at(510), 6), Step::Ask);
        assert_eq!(asking.step(at(540), 6), Step::Close(at(510)));
        assert_eq!(asking.step(at(1_509), 6), Step::Wait);
        assert_eq!(asking.step(at(1_510), 6), Step::Ask);
    }
}

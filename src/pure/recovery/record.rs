//! What was done for a server and what came of it: the last few steps, for those who ask.

use std::collections::VecDeque;

use crate::base::time::Timestamp;

use super::Step;

/// The most steps that are kept of one server.
pub const KEPT_MAX: usize = 16;

/// The longest text that is kept of a failure, in bytes.
const TEXT_MAX: usize = 160;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it began.
    pub at: Timestamp,
    /// What it was.
    pub step: Step,
    /// What came of it.
    pub outcome: Outcome,
    /// How often in a row: a machine that is to come up is asked again and again.
    pub times: u32,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    Running,
    /// It was done, or passed.
    Done,
    /// It was not done, and would have been without `dry-run`.
    DryRun,
    /// It failed.
    Failed(String),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Running => f.write_str("under way"),
            Self::Done => f.write_str("done"),
            Self::DryRun => f.write_str("not done: dry run"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// What was done for a server, as others read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether all of it is a dry run.
    pub is_dry_run: bool,
    /// Whether nothing more is tried.
    pub has_given_up: bool,
    /// When the next attempt is due; `None`: none is.
    pub next: Option<Timestamp>,
    /// The last steps, the latest last.
    pub steps: Vec<Attempt>,
}

/// The last steps of one server.
#[derive(Debug, Default)]
pub(super) struct Record {
    kept: VecDeque<Attempt>,
}

impl Record {
    /// A step begins, or has been passed over.
    pub(super) fn add(&mut self, at: Timestamp, step: Step, outcome: Outcome) -> Attempt {
        let again = self.kept.pop_back_if(|last| step == Step::Ping && last.step == Step::Ping);
        let times = again.map_or(0, |last| last.times).saturating_add(1);
        if self.kept.len() >= KEPT_MAX {
            self.kept.pop_front();
        }
        let attempt = Attempt { at, step, outcome: shortened(outcome), times };
        self.kept.push_back(attempt.clone());
        attempt
    }

    /// The step that runs has ended.
    pub(super) fn end(&mut self, outcome: Outcome) -> Option<Attempt> {
        let last = self.kept.iter_mut().rev().find(|attempt| attempt.outcome == Outcome::Running)?;
        last.outcome = shortened(outcome);
        Some(last.clone())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Attempt> {
        self.kept.iter()
    }
}

/// With no more of its text than is kept.
fn shortened(mut outcome: Outcome) -> Outcome {
    if let Outcome::Failed(text) = &mut outcome {
        text.truncate(text.floor_char_boundary(TEXT_MAX));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_bounded_and_so_are_their_texts() {
        let mut record = Record::default();
        for nanos in 0..100 {
            record.add(Timestamp::from_nanos(nanos), Step::Check, Outcome::Running);
            record.end(Outcome::Failed("é".repeat(1_000)));
        }
        assert_eq!(record.iter().count(), KEPT_MAX);
        let last = record.iter().last().unwrap();
        assert_eq!(last.at, Timestamp::from_nanos(99));
        assert_eq!(last.outcome, Outcome::Failed("é".repeat(TEXT_MAX / 2)));
        assert_eq!(record.end(Outcome::Done), None, "nothing runs");
        for nanos in 0..100 {
            record.add(Timestamp::from_nanos(nanos), Step::Ping, Outcome::Running);
            record.end(Outcome::Failed("no answer".to_owned()));
        }
        assert_eq!(record.iter().map(|attempt| attempt.times).sum::<u32>(), 115, "pings in a row are one");
    }
}

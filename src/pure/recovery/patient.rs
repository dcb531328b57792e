//! A server that may need to be brought back: how it stands, what was tried, and when it is tried again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::record::{Attempt, Outcome, Record, RecoveryReport};
use super::{Effect, HOURLY_MAX, Means, RESTARTS_IN_VAIN, Recoverable, STABLE, Step, WAIT, WAIT_MAX, forget_old};
use crate::base::id::ServerId;
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::availability::Standing;

/// A server.
#[derive(Debug)]
pub(super) struct Patient {
    pub(super) id: ServerId,
    pub(super) host: Arc<str>,
    pub(super) means: Option<Means>,
    pub(super) standing: Standing,
    /// Its agent speaks until then, if it is not heard again.
    pub(super) speaks_until: Timestamp,
    /// When attempts began in the last hour.
    begun: VecDeque<Timestamp>,
    /// Attempts in vain since it was last well for a while.
    in_vain: u32,
    /// Those of them that were restarts.
    restarts_in_vain: u32,
    /// Whether the last attempt was a restart: should the server fail again at once, it was in vain.
    last_was_restart: bool,
    /// When the next attempt is due, while it is dead.
    due: Option<Timestamp>,
    /// When it came back.
    back_since: Option<Timestamp>,
    has_given_up: bool,
    record: Record,
}

impl Patient {
    pub(super) fn new(now: Timestamp, server: &Recoverable) -> Self {
        Self {
            id: server.id.clone(),
            host: Arc::clone(&server.host),
            means: server.means,
            standing: server.standing,
            speaks_until: Timestamp::ZERO,
            begun: VecDeque::new(),
            in_vain: 0,
            restarts_in_vain: 0,
            last_was_restart: false,
            due: (server.standing == Standing::Failed).then_some(now),
            back_since: None,
            has_given_up: false,
            record: Record::default(),
        }
    }

    /// What the rule files say of it now.
    pub(super) fn learn(&mut self, now: Timestamp, server: &Recoverable, rng: &mut Rng) {
        if self.means != server.means {
            // Who changes what may be done wants it to be tried.
            self.has_given_up = false;
            if self.standing == Standing::Failed {
                self.due.get_or_insert(now);
            }
        }
        self.id = server.id.clone();
        self.host = Arc::clone(&server.host);
        self.means = server.means;
        if self.standing != server.standing {
            self.stands(now, server.standing, rng);
        }
    }

    pub(super) fn speaks(&self, now: Timestamp) -> bool {
        self.speaks_until > now
    }

    pub(super) fn stands(&mut self, now: Timestamp, standing: Standing, rng: &mut Rng) {
        self.standing = standing;
        match standing {
            Standing::InService => {
                self.back_since = Some(now);
                self.has_given_up = false;
                self.due = None;
            }
            Standing::Away => {
                self.forget_failures();
                self.has_given_up = false;
                self.due = None;
            }
            Standing::Doubted => {}
            Standing::Failed => {
                if self.due.is_some() || self.has_given_up {
                    // It was doubted for a while, and no better.
                } else if self.back_since.take().is_some_and(|since| now.since(since) < STABLE) && self.in_vain_again()
                {
                    self.due = Some(now + self.wait(rng));
                } else {
                    self.forget_failures();
                    self.due = Some(now);
                }
            }
        }
    }

    /// It is dead again soon after it came back. Whether something had been tried for it: that was in vain.
    fn in_vain_again(&mut self) -> bool {
        let was_tried = !self.begun.is_empty();
        if was_tried {
            self.in_vain = self.in_vain.saturating_add(1);
            self.restarts_in_vain += u32::from(std::mem::take(&mut self.last_was_restart));
        }
        was_tried
    }

    /// What was tried until now was shown and not done, or the other way round: nothing follows from it any more.
    pub(super) fn begin_anew(&mut self, now: Timestamp) {
        self.forget_failures();
        self.begun.clear();
        self.back_since = None;
        self.has_given_up = false;
        self.due = (self.standing == Standing::Failed).then_some(now);
    }

    /// Whether nothing is to be done for it, and all of it shown.
    pub(super) fn is_dry_run(&self) -> bool {
        self.means.is_some_and(|means| means.is_dry_run)
    }

    fn forget_failures(&mut self) {
        (self.in_vain, self.restarts_in_vain, self.last_was_restart) = (0, 0, false);
    }

    /// When its next attempt is due.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due.filter(|_| !self.has_given_up)
    }

    /// Whether as many attempts were made as may be.
    pub(super) fn is_spent(&mut self, now: Timestamp) -> bool {
        forget_old(&mut self.begun, now);
        self.begun.len() >= HOURLY_MAX
    }

    pub(super) fn give_up(&mut self) -> Effect {
        self.has_given_up = true;
        self.due = None;
        Effect::GaveUp(self.id.clone(), format!("{HOURLY_MAX} attempts in an hour were in vain"))
    }

    pub(super) fn begin(&mut self, now: Timestamp) {
        self.begun.push_back(now);
        self.last_was_restart = false;
        // Until it ends: then the next is known.
        self.due = Some(Timestamp::NEVER);
    }

    /// When its last attempt began.
    #[cfg(test)]
    pub(super) fn last_begun(&self) -> Option<Timestamp> {
        self.begun.back().copied()
    }

    pub(super) const fn restarted(&mut self) {
        self.last_was_restart = true;
    }

    pub(super) const fn has_restarted_in_vain(&self) -> bool {
        self.restarts_in_vain >= RESTARTS_IN_VAIN
    }

    /// An attempt has ended and it is still dead. Whether it was the last.
    pub(super) fn failed_again(&mut self, now: Timestamp, rng: &mut Rng) -> Option<Effect> {
        self.in_vain = self.in_vain.saturating_add(1);
        self.restarts_in_vain = self.restarts_in_vain.saturating_add(std::mem::take(&mut self.last_was_restart).into());
        if self.is_spent(now) {
            return Some(self.give_up());
        }
        self.due = Some(now + self.wait(rng));
        None
    }

    /// An attempt was broken off, or its server's check is good and the server will be back: the next, should there have to
    /// be one, waits as after one in vain.
    pub(super) fn broke_off(&mut self, now: Timestamp, rng: &mut Rng) {
        if self.standing == Standing::Failed {
            self.in_vain = self.in_vain.saturating_add(1);
            self.due = Some(now + self.wait(rng));
        }
    }

    /// 5 s · 2ⁿ ± 20 %, and never above the longest.
    fn wait(&self, rng: &mut Rng) -> Duration {
        let doublings = self.in_vain.saturating_sub(1).min(16);
        let base = WAIT.saturating_mul(1 << doublings).min(WAIT_MAX);
        base.mul_f64(0.8 + 0.4 * rng.unit()).min(WAIT_MAX)
    }

    /// A step begins, or has been passed over with this outcome.
    pub(super) fn note(&mut self, now: Timestamp, step: Step, outcome: Outcome) -> Effect {
        let attempt = self.record.add(now, step, outcome);
        Effect::Tell(self.id.clone(), attempt)
    }

    /// The step that runs has ended.
    pub(super) fn note_end(&mut self, outcome: Outcome) -> Option<Effect> {
        self.record.end(outcome).map(|attempt| Effect::Tell(self.id.clone(), attempt))
    }

    pub(super) fn report(&self) -> Option<RecoveryReport> {
        let means = self.means?;
        let steps: Vec<Attempt> = self.record.iter().cloned().collect();
        Some(RecoveryReport {
            is_dry_run: means.is_dry_run,
            has_given_up: self.has_given_up,
            next: self.due().filter(|due| *due != Timestamp::NEVER),
            steps,
        })
    }
}

//! Which reports count, and which orders are obeyed: what a right tag alone does not say.
//!
//! A report counts once ([`Acceptance`]): its (boot, sequence) is larger than that of the last that counted, it was sent
//! within ±[`WINDOW`] of our clock, and it carries this balancer's challenge. The challenge is random and made when the
//! balancer begins, so that whatever was sent to an earlier one is worthless for ever. An agent that has not heard it yet, or
//! a new one in its place, is asked a question, which tells it; the answer carries it.
//!
//! An order is obeyed once ([`Obedience`]): it carries a nonce that the agent has sent, its latest or one of the last
//! [`ORDER_LIFE`], it has not expired by the agent's own clock, and its number is new.
//!
//! It refuses to look at who sent a datagram, and to count refusals.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::UnixNanos;
use crate::pure::feedback::wire::{Challenge, Nonce, OrderKind, SignedOrder, SignedReport};

/// How far the clocks of an agent and the balancer, and the way between them, may take a report.
pub const WINDOW: Duration = Duration::from_secs(30);
/// How long an order is one.
pub const ORDER_LIFE: Duration = Duration::from_secs(5);
/// The most nonces that an agent keeps: more than it sends in [`ORDER_LIFE`]; the oldest goes first.
pub const NONCES_MAX: usize = 256;
/// The most orders that an agent obeys in [`ORDER_LIFE`].
pub const OBEYED_MAX: usize = 256;

/// Why a report does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// It was sent too long ago, or the clocks are too far apart.
    #[error("it was sent more than 30 s ago, or the clocks of both machines differ by that")]
    Stale,
    /// It is from the future.
    #[error("it was sent more than 30 s from now: the clocks of both machines differ")]
    Future,
    /// It does not carry our challenge: ask the agent a question, which tells it.
    #[error("its sender has not heard of this balancer yet, or the report was made for another")]
    Unheard,
    /// A later one has counted.
    #[error("it came after a later one")]
    Old,
    /// It has counted already.
    #[error("it has been seen before")]
    Replayed,
}

/// The last report of a server that counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    order: (u64, u64),
    nonce: Nonce,
    /// When it was sent, by the agent's clock, and when it came, by ours.
    sent: UnixNanos,
    came: UnixNanos,
}

/// What a balancer knows of one server's reports.
#[derive(Clone, Debug)]
pub struct Acceptance {
    challenge: Challenge,
    last: Option<Standing>,
}

impl Acceptance {
    /// Nothing has come yet. The challenge has to be random, and is never used again.
    pub const fn new(challenge: Challenge) -> Self {
        Self { challenge, last: None }
    }

    /// Begins anew with another challenge: what has been sent until now is worthless, and any (boot, sequence) may come. For an
    /// agent whose clock was set back and that has been `Old` since.
    pub const fn renew(&mut self, challenge: Challenge) {
        *self = Self::new(challenge);
    }

    /// Whether a report counts, `now` by our clock. What does is the one that later ones have to be newer than.
    ///
    /// # Errors
    /// [`Refusal`] where it does not count; nothing has changed then.
    pub fn accept(&mut self, message: &SignedReport, now: UnixNanos) -> Result<(), Refusal> {
        if now.since(message.sent) > WINDOW {
            return Err(Refusal::Stale);
        }
        if message.sent.since(now) > WINDOW {
            return Err(Refusal::Future);
        }
        if message.heard != Some(self.challenge) {
            return Err(Refusal::Unheard);
        }
        let order = (message.report.boot, message.report.sequence);
        match self.last.map(|last| order.cmp(&last.order)) {
            Some(std::cmp::Ordering::Less) => return Err(Refusal::Old),
            Some(std::cmp::Ordering::Equal) => return Err(Refusal::Replayed),
            Some(std::cmp::Ordering::Greater) | None => {}
        }
        self.last = Some(Standing { order, nonce: message.nonce, sent: message.sent, came: now });
        Ok(())
    }

    /// The question that tells the sender of a report our challenge: the answer to [`Refusal::Unheard`].
    pub fn introduction(&self, to: &SignedReport, number: u64) -> SignedOrder {
        SignedOrder {
            kind: OrderKind::Question,
            number,
            nonce: to.nonce,
            challenge: self.challenge,
            expires: to.sent + ORDER_LIFE,
        }
    }

    /// An order for the agent whose report counted last, `now` by our clock; `None`: none has, there is nobody to order.
    pub fn order(&self, kind: OrderKind, number: u64, now: UnixNanos) -> Option<SignedOrder> {
        let last = self.last?;
        let expires = last.sent + now.since(last.came) + ORDER_LIFE;
        Some(SignedOrder { kind, number, nonce: last.nonce, challenge: self.challenge, expires })
    }
}

/// Why an order is not obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Disobedience {
    /// It carries a nonce that this agent has not sent, or not lately.
    #[error("it does not answer a report of this agent's")]
    UnknownNonce,
    /// It is too old.
    #[error("it has expired")]
    Expired,
    /// It would be valid for longer than orders are.
    #[error("it expires later than orders do: the clocks differ, or one was set")]
    TooLong,
    /// It has been obeyed.
    #[error("it has been seen before")]
    Replayed,
    /// As many as are obeyed in that time have been.
    #[error("more orders have come than a balancer gives")]
    TooMany,
}

/// What an agent knows of the orders of one balancer.
#[derive(Clone, Debug, Default)]
pub struct Obedience {
    /// The nonces that were sent, the latest last, each with the time until which it was the latest.
    sent: VecDeque<(Nonce, UnixNanos)>,
    /// The orders that were obeyed and have not expired.
    obeyed: VecDeque<SignedOrder>,
    heard: Option<Challenge>,
}

impl Obedience {
    /// Notes a nonce that goes out with a report.
    pub fn sends(&mut self, nonce: Nonce, now: UnixNanos) {
        // The one before has been the latest until now, so that orders may carry it for as long as they live.
        if let Some((_, last)) = self.sent.back_mut() {
            *last = now;
        }
        self.sent.push_back((nonce, now));
        while self.sent.len() > NONCES_MAX || self.sent.front().is_some_and(|(_, until)| now.since(*until) > ORDER_LIFE)
        {
            self.sent.pop_front();
        }
    }

    /// What was last heard from this balancer, for the next report.
    pub const fn heard(&self) -> Option<Challenge> {
        self.heard
    }

    /// Whether an order is obeyed, `now` by the agent's clock. What is obeyed is remembered, and so is who gave it.
    ///
    /// # Errors
    /// [`Disobedience`] where it is not; nothing has changed then.
    pub fn obey(&mut self, order: &SignedOrder, now: UnixNanos) -> Result<(), Disobedience> {
        let latest = self.sent.back().map(|(nonce, _)| *nonce);
        let is_recent = |(nonce, until): &(Nonce, UnixNanos)| *nonce == order.nonce && now.since(*until) <= ORDER_LIFE;
        if latest != Some(order.nonce) && !self.sent.iter().any(is_recent) {
            return Err(Disobedience::UnknownNonce);
        }
        if order.expires < now {
            return Err(Disobedience::Expired);
        }
        // The clock that it expires by is this one, so only one that was set can make it live longer.
        if order.expires.since(now) > ORDER_LIFE + Duration::from_secs(1) {
            return Err(Disobedience::TooLong);
        }
        self.obeyed.retain(|obeyed| obeyed.expires >= now);
        let is_same = |obeyed: &SignedOrder| (obeyed.challenge, obeyed.number) == (order.challenge, order.number);
        if self.obeyed.iter().any(is_same) {
            return Err(Disobedience::Replayed);
        }
        if self.obeyed.len() >= OBEYED_MAX {
            return Err(Disobedience::TooMany);
        }
        self.obeyed.push_back(*order);
        self.heard = Some(order.challenge);
        Ok(())
    }
}

#[cfg(test)]
mod tests;

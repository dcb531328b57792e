//! Orders to restart services: each is sent again until its agent has news of it, or the time of the step is over that it was
//! given for. An order or a report that is lost on the way is made up for so; the agent obeys an order once, however often it
//! comes.
//!
//! One order for each server, the last. It refuses to send anything itself, and to judge the news.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;
use crate::pure::feedback::reception::SealedOrder;
use crate::pure::feedback::wire::{RestartNews, RestartProgress};
use crate::pure::recovery::{Step, StepId};

/// How often an order is sent of which there is no news.
const AGAIN_EVERY: Duration = Duration::from_millis(500);

/// The last order for each server.
#[derive(Debug, Default)]
pub(super) struct Restarts(HashMap<ServerSlot, Ordered>);

#[derive(Debug)]
struct Ordered {
    /// The step that it was given for.
    step: StepId,
    order: SealedOrder,
    /// When it is sent again; `None`: no more.
    again_at: Option<Timestamp>,
    until: Timestamp,
}

impl Restarts {
    /// An order has been sent for a step.
    pub(super) fn ordered(&mut self, now: Timestamp, slot: ServerSlot, step: StepId, order: SealedOrder) {
        let until = now + Step::AgentRestart.timeout();
        self.0.insert(slot, Ordered { step, order, again_at: Some(now + AGAIN_EVERY), until });
    }

    /// What has to be sent again, and where to.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<(Vec<u8>, SocketAddr)> {
        let mut due = Vec::new();
        for ordered in self.0.values_mut() {
            if now >= ordered.until {
                ordered.again_at = None;
            } else if ordered.again_at.is_some_and(|at| at <= now) {
                ordered.again_at = Some(now + AGAIN_EVERY);
                due.push((ordered.order.datagram.clone(), ordered.order.to));
            }
        }
        due
    }

    /// What the news of an agent mean for the step whose order they are of; `None`: they are of none, or of an earlier one.
    pub(super) fn heard(&mut self, slot: ServerSlot, news: Option<RestartNews>) -> Option<(StepId, RestartProgress)> {
        let news = news?;
        let ordered = self.0.get_mut(&slot).filter(|ordered| ordered.order.number == news.number)?;
        ordered.again_at = None;
        Some((ordered.step, news.progress))
    }

    /// Forgets the servers that are gone.
    pub(super) fn keep(&mut self, is_known: impl Fn(ServerSlot) -> bool) {
        self.0.retain(|slot, _| is_known(*slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: ServerSlot = ServerSlot(3);

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn give(restarts: &mut Restarts, millis: u64, number: u64) {
        let order = SealedOrder { number, datagram: vec![7; 9], to: "127.0.0.1:9".parse().unwrap() };
        restarts.ordered(at(millis), SLOT, StepId(number + 100), order);
    }

    fn news(number: u64, progress: RestartProgress) -> Option<RestartNews> {
        Some(RestartNews { number, progress })
    }

    #[test]
    fn a_restart_order_that_is_lost_is_sent_again_until_there_is_news_or_its_time_is_over() {
        let mut restarts = Restarts::default();
        give(&mut restarts, 0, 5);
        let sent = |restarts: &mut Restarts, millis| restarts.due(at(millis)).len();
        assert_eq!([0, 499, 500, 600, 999, 1_000].map(|millis| sent(&mut restarts, millis)), [0, 0, 1, 0, 0, 1]);
        assert_eq!(restarts.heard(SLOT, None), None);
        assert_eq!(sent(&mut restarts, 1_500), 1, "a report without news was sent before it arrived");
        assert_eq!(
            restarts.heard(SLOT, news(5, RestartProgress::Running)),
            Some((StepId(105), RestartProgress::Running))
        );
        assert_eq!(sent(&mut restarts, 2_000), 0);
        assert_eq!(restarts.heard(SLOT, news(5, RestartProgress::Done)), Some((StepId(105), RestartProgress::Done)));
        give(&mut restarts, 3_000, 6);
        let all: usize = (3_000..20_000).map(|millis| sent(&mut restarts, millis)).sum();
        assert_eq!(all, 9, "for five seconds");
    }

    #[test]
    fn the_news_of_an_earlier_order_end_no_later_step() {
        let mut restarts = Restarts::default();
        give(&mut restarts, 0, 5);
        give(&mut restarts, 9_000, 6);
        assert_eq!(restarts.heard(SLOT, news(5, RestartProgress::Done)), None);
        assert_eq!(restarts.due(at(9_500)).len(), 1);
        assert_eq!(restarts.heard(ServerSlot(4), news(6, RestartProgress::Done)), None);
        restarts.keep(|slot| slot != SLOT);
        assert_eq!(restarts.heard(SLOT, news(6, RestartProgress::Done)), None);
    }
}

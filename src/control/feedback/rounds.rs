//! Rounds of questions, for pools whose scheduler goes by answers: who is asked when, and who is silent.
//!
//! What is heard comes by the socket like every report; here it is only looked at when. It refuses to send anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;
use crate::pure::feedback::asking::{ANSWER_HOLDS, Asking, Step};
use crate::shared::snapshot::{Endpoint, Snapshot};

/// The rounds of all pools that have any.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pools: Vec<PoolRounds>,
}

#[derive(Debug)]
struct PoolRounds {
    name: Arc<str>,
    servers: Vec<Arc<Endpoint>>,
    asking: Asking,
}

impl Rounds {
    /// Whether no pool has any.
    pub(super) fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Takes over the pools of a snapshot; the round that a pool is in goes on.
    pub(super) fn follow(&mut self, snapshot: &Snapshot) {
        let before = std::mem::take(&mut self.pools);
        let asking = snapshot.pools.iter().filter(|pool| pool.pool.scheduler.method.asks());
        self.pools = asking
            .map(|pool| {
                let known = before.iter().find(|known| known.name == pool.pool.name);
                PoolRounds {
                    name: Arc::clone(&pool.pool.name),
                    servers: pool.endpoints.clone(),
                    asking: known.map(|known| known.asking).unwrap_or_default(),
                }
            })
            .collect();
    }

    /// How long an answer of that server holds; `None`: it is not asked in rounds.
    pub(super) fn holds(&self, slot: ServerSlot) -> Option<Duration> {
        let has = |pool: &PoolRounds| pool.servers.iter().any(|server| server.record.slot == slot);
        self.pools.iter().any(has).then_some(ANSWER_HOLDS)
    }

    /// Goes on with each round: those who did not answer in time are silent, and whoever is returned is to be asked.
    pub(super) fn step(&mut self, now: Timestamp, heard: &HashMap<ServerSlot, Timestamp>) -> Vec<ServerSlot> {
        let mut asked = Vec::new();
        for PoolRounds { servers, asking, .. } in &mut self.pools {
            let sent = servers.iter().fold(0u32, |sum, server| sum.wrapping_add(server.record.load.run_queue.sent()));
            let mut step = asking.step(now, sent);
            if let Step::Close(asked_at) = step {
                let is_silent =
                    |server: &&Arc<Endpoint>| heard.get(&server.record.slot).is_none_or(|last| *last < asked_at);
                for server in servers.iter().filter(is_silent) {
                    server.record.load.run_queue.fall_silent();
                }
                step = asking.step(now, sent);
            }
            if step == Step::Ask {
                asked.extend(servers.iter().map(|server| server.record.slot));
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::pool::{Method, Reports};
    use crate::shared::snapshot::tests::{pool_of, store_of};

    #[test]
    fn who_does_not_answer_is_silent_until_the_first_answer() {
        let method = Method::ShortestRunQueue(Reports::Pull);
        let store = store_of(vec![
            pool_of("p", method, &[("a", 1, 1, None), ("b", 2, 1, None)]),
            pool_of("q", Method::RoundRobin, &[("a", 3, 1, None)]),
        ]);
        let snapshot = store.load();
        let mut rounds = Rounds::default();
        rounds.follow(&snapshot);
        let slots: Vec<ServerSlot> = snapshot.pools[0].candidates.iter().map(|candidate| candidate.slot).collect();
        let queue = |index: usize| &snapshot.pools[0].candidates[index].load.run_queue;
        let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        let mut heard = HashMap::new();
        assert_eq!(rounds.step(at(0), &heard), slots);
        for (index, slot) in slots.iter().enumerate() {
            heard.insert(*slot, at(10));
            queue(index).hear(3, at(10_000));
        }
        assert_eq!(rounds.step(at(30), &heard), []);
        assert_eq!((queue(0).length(at(30)), queue(1).length(at(30))), (Some(3), Some(3)));
        // With requests about, the next round begins at once; one of them does not answer it.
        queue(0).count_sent();
        assert_eq!(rounds.step(at(40), &heard), slots);
        heard.insert(slots[0], at(45));
        queue(1).count_sent();
        assert_eq!(rounds.step(at(70), &heard), slots, "closed, and the next has begun");
        assert_eq!((queue(0).length(at(70)), queue(1).length(at(70))), (Some(4), None));
        queue(1).hear(0, at(10_000));
        assert_eq!(queue(1).length(at(80)), Some(0));
        assert_eq!(rounds.holds(snapshot.pools[1].candidates[0].slot), None);
        assert_eq!(rounds.holds(slots[0]), Some(ANSWER_HOLDS));
        // A round goes on over a change of the snapshot.
        rounds.follow(&snapshot);
        assert_eq!(rounds.step(at(80), &heard), []);
    }
}

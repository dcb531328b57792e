//! Models of a server at work, without clock or socket: times are counted from the start of the experiment.
//!
//! Work is waiting and not arithmetic: what is measured is where requests go and how long they queue, not a processor.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use crate::catalogue::Kind;
use crate::lru::Lru;

/// A server with a cache before slow storage. It has some slots; who finds none free waits, first come, first served.
///
/// What was missed is in the cache once it has been fetched, and who asks for it before fetches it again.
pub struct Caching {
    /// When each slot is free.
    slots: BinaryHeap<Reverse<Duration>>,
    cache: Lru<(Kind, u32)>,
    /// What is being fetched, and when it will be there.
    fetches: BinaryHeap<Reverse<(Duration, (Kind, u32))>>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// When its answer is ready.
    pub until: Duration,
    /// Whether it was in the cache.
    pub is_hit: bool,
}

impl Caching {
    /// An idle one with an empty cache.
    pub fn new(slots: usize, entries: usize) -> Self {
        let slots = (0..slots.max(1)).map(|_| Reverse(Duration::ZERO)).collect();
        Self { slots, cache: Lru::new(entries), fetches: BinaryHeap::new() }
    }

    /// Takes a request that arrives at `now`, which is never before the last one's.
    pub fn serve(&mut self, now: Duration, kind: Kind, number: u32) -> Served {
        // First come, first served, so that a start is never before the last one's, and everything that ends before it is known.
        let free = self.slots.pop().map_or(now, |Reverse(free)| free);
        let start = free.max(now);
        while let Some(Reverse((at, key))) = self.fetches.peek().copied()
            && at <= start
        {
            self.fetches.pop();
            self.cache.insert(key);
        }
        let key = (kind, number);
        let is_hit = kind.is_cached() && self.cache.touch(&key);
        let (hit, miss) = kind.work();
        let until = start + if is_hit { hit } else { miss };
        if kind.is_cached() && !is_hit {
            self.fetches.push(Reverse((until, key)));
        }
        self.slots.push(Reverse(until));
        Served { until, is_hit }
    }
}

/// A server whose processor all requests share: n at a time go on at an nth of its speed each.
pub struct Sharing {
    speed: f64,
    /// What each request that was there all the time has been given by `at`.
    given: Duration,
    at: Duration,
    /// The requests, by what will have been given when they end.
    jobs: BTreeSet<(Duration, u64)>,
    ended: Vec<u64>,
    begun: u64,
}

impl Sharing {
    /// An idle one.
    pub fn new(speed: f64) -> Self {
        let (given, at) = (Duration::ZERO, Duration::ZERO);
        Self { speed, given, at, jobs: BTreeSet::new(), ended: Vec::new(), begun: 0 }
    }

    /// Takes a job at `now`; returns its number.
    pub fn begin(&mut self, now: Duration, work: Duration) -> u64 {
        self.go_on_until(now);
        self.begun += 1;
        self.jobs.insert((self.given + work, self.begun));
        self.begun
    }

    /// When the next job ends, if none comes before.
    pub fn next_end(&self) -> Option<Duration> {
        let (end, _) = self.jobs.first()?;
        let left = end.saturating_sub(self.given);
        Some(self.at + left.mul_f64(self.sharers() / self.speed))
    }

    /// The jobs that have ended by `now` and that were not told yet.
    pub fn take_ended(&mut self, now: Duration) -> Vec<u64> {
        self.go_on_until(now);
        std::mem::take(&mut self.ended)
    }

    /// From end to end, since each leaves more to the others.
    fn go_on_until(&mut self, now: Duration) {
        while let Some(next) = self.next_end().filter(|next| *next <= now)
            && let Some((end, job)) = self.jobs.pop_first()
        {
            (self.at, self.given) = (next, end);
            self.ended.push(job);
        }
        if !self.jobs.is_empty() {
            self.given += now.saturating_sub(self.at).mul_f64(self.speed / self.sharers());
        }
        self.at = self.at.max(now);
    }

    #[allow(clippy::cast_precision_loss, reason = "requests at a time")]
    fn sharers(&self) -> f64 {
        self.jobs.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn what_was_fetched_is_kept_and_requests_wait_in_turn() {
        let mut server = Caching::new(1, 2);
        let mut ask = |now, number| {
            let served = server.serve(ms(now), Kind::Object, number);
            (served.until, served.is_hit)
        };
        assert_eq!(ask(0, 1), (ms(10), false));
        assert_eq!(ask(1, 1), (ms(11), true), "it is there when its turn comes");
        assert_eq!(ask(2, 2), (ms(21), false));
        assert_eq!(ask(30, 3), (ms(40), false));
        assert_eq!(ask(50, 1), (ms(60), false), "two fit, and it was used longest ago");
        assert_eq!(ask(70, 3), (ms(71), true));
    }

    #[test]
    fn with_two_slots_the_same_is_fetched_twice_at_once() {
        let mut server = Caching::new(2, 5);
        assert_eq!(server.serve(ms(0), Kind::Page, 1), Served { until: ms(20), is_hit: false });
        assert_eq!(server.serve(ms(5), Kind::Page, 1), Served { until: ms(25), is_hit: false });
        assert_eq!(server.serve(ms(6), Kind::Image, 1), Served { until: ms(30), is_hit: false });
        assert_eq!(server.serve(ms(7), Kind::Page, 1), Served { until: ms(27), is_hit: true });
    }

    #[test]
    fn what_is_computed_is_never_kept() {
        let mut server = Caching::new(1, 5);
        assert!(!server.serve(ms(0), Kind::Api, 1).is_hit && !server.serve(ms(99), Kind::Api, 1).is_hit);
    }

    #[test]
    fn sharers_slow_each_other_down() {
        let mut server = Sharing::new(2.0);
        assert_eq!(server.next_end(), None);
        let long = server.begin(ms(100), ms(20));
        assert_eq!(server.next_end(), Some(ms(110)));
        // 10 of 20 are done at 105. From there on each gets 1 a millisecond.
        let short = server.begin(ms(105), ms(4));
        assert_eq!(server.next_end(), Some(ms(109)));
        assert!(server.take_ended(ms(108)).is_empty());
        assert_eq!(server.take_ended(ms(109)), [short]);
        assert_eq!(server.next_end(), Some(ms(112)));
        assert_eq!(server.take_ended(ms(150)), [long], "whoever asks late changes nothing");
        let next = server.begin(ms(200), ms(4));
        assert_eq!(server.next_end(), Some(ms(202)));
        assert_eq!(server.take_ended(ms(202)), [next]);
    }

    /// Work is neither lost nor made: a server that is never idle ends everything after all work over its speed.
    #[test]
    fn a_busy_server_takes_as_long_as_all_of_its_work() {
        let mut server = Sharing::new(4.0);
        let jobs: Vec<u64> = (1..=50).collect();
        for job in &jobs {
            server.begin(ms(*job), ms(40 * job));
        }
        let (mut ended, mut last) = (0, Duration::ZERO);
        while let Some(end) = server.next_end() {
            ended += server.take_ended(end).len();
            last = end;
        }
        let wanted = 1.0 + 40.0 * jobs.iter().sum::<u64>() as f64 / 4.0;
        assert_eq!(ended, 50);
        assert!((last.as_secs_f64() * 1e3 - wanted).abs() < 0.01, "{last:?} and {wanted} ms");
    }
}

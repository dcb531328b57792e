//! What requests have seen of one server since the last look, read off its counters: nothing is lost, however much happens.
//!
//! It refuses to judge: what it finds goes to [`crate::pure::control`].

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::control::OutcomeSummary;
use crate::pure::control::watch::SILENT_REQUESTS_MIN;
use crate::pure::feedback::report::Report;
use crate::shared::counters::{Ended, ServerRecord};

/// How often the time in which it answers is looked at, once it is known: it is a sum over all steps.
const P99_EVERY: Duration = Duration::from_secs(1);

/// What was known of a server at the last look.
#[derive(Debug, Default)]
pub struct Sight {
    ended: Option<Ended>,
    connect_failures: u32,
    /// Since when so many requests wait that silence counts: one that has waited for minutes makes no burst look old.
    crowded: Option<Timestamp>,
    /// Since when any waits.
    waiting: Option<Timestamp>,
    p99: Option<Duration>,
    p99_at: Option<Timestamp>,
    /// How often it had said something of its load.
    said: u64,
}

impl Sight {
    /// What has happened since the last look; `None`: nothing, and nothing waits. The first look has no past.
    pub fn look(&mut self, now: Timestamp, record: &ServerRecord) -> Option<OutcomeSummary> {
        let ended = record.ended();
        let before = self.ended.replace(ended).unwrap_or(ended);
        let outstanding = record.load.outstanding();
        let failures = record.load.failures_in_a_row();
        let failures_before = std::mem::replace(&mut self.connect_failures, failures);
        let heard = record.load.heard();
        let silent_for = self.silence(now, outstanding, heard);
        self.waiting = (outstanding > 0).then(|| self.waiting.unwrap_or(now));
        let quiet_for = self.waiting.map(|since| now.since(since.max(heard)));
        if ended == before && outstanding == 0 && failures == failures_before {
            return None;
        }
        if self.p99.is_none() || self.p99_at.is_none_or(|at| now.since(at) >= P99_EVERY) {
            (self.p99, self.p99_at) = (record.latencies.p99(), Some(now));
        }
        let between = |after: u64, before: u64| u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX);
        Some(OutcomeSummary {
            failed: between(ended.failed, before.failed),
            refused: between(ended.refused, before.refused),
            connect_failures_in_a_row: failures,
            ended: between(ended.all, before.all),
            outstanding,
            silent_for,
            quiet_for,
            p99: self.p99,
        })
    }

    /// What it has said of its load beside its answers since the last look, the latest.
    pub fn load(&mut self, record: &ServerRecord) -> Option<Report> {
        record.load_said.after(&mut self.said).map(Report::from)
    }

    fn silence(&mut self, now: Timestamp, outstanding: u32, heard: Timestamp) -> Option<Duration> {
        if outstanding < SILENT_REQUESTS_MIN {
            self.crowded = None;
            return None;
        }
        let crowded = *self.crowded.get_or_insert(now);
        Some(now.since(crowded.max(heard)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{ServerId, ServerSlot};
    use crate::shared::outcome::Outcome;

    struct Bench {
        record: ServerRecord,
        sight: Sight,
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    const ANSWERED: Outcome = Outcome::Answered { status: 200, latency: Duration::ZERO };

    impl Bench {
        fn new() -> Self {
            let record = ServerRecord::new(ServerId { pool: "p".into(), server: "s".into() }, ServerSlot(0));
            let mut bench = Self { record, sight: Sight::default() };
            assert_eq!(bench.look(0), None);
            bench
        }

        fn look(&mut self, millis: u64) -> Option<OutcomeSummary> {
            self.sight.look(at(millis), &self.record)
        }

        fn begin(&self, requests: u32) {
            (0..requests).for_each(|_| assert!(self.record.load.try_reserve(None)));
        }

        fn end(&self, outcome: Outcome) {
            self.record.count_outcome(outcome);
            if outcome.is_failure() {
                self.record.count_failure(outcome, 0, false);
            }
            self.record.load.release();
        }
    }

    fn silence(summary: Option<OutcomeSummary>) -> Option<u128> {
        summary?.silent_for.map(|silence| silence.as_millis())
    }

    #[test]
    fn nothing_is_said_of_a_server_that_has_nothing_to_do() {
        let mut bench = Bench::new();
        assert_eq!(bench.look(50), None);
        bench.begin(1);
        assert_eq!(bench.look(100).map(|seen| (seen.outstanding, seen.ended)), Some((1, 0)));
        bench.end(ANSWERED);
        assert_eq!(bench.look(150).map(|seen| (seen.outstanding, seen.ended)), Some((0, 1)));
        assert_eq!(bench.look(200), None);
    }

    #[test]
    fn a_burst_of_failures_is_counted_whole_and_clients_that_go_away_are_left_out() {
        let mut bench = Bench::new();
        bench.begin(30_003);
        (0..10_000).for_each(|_| bench.end(Outcome::ConnectError));
        (0..10_000).for_each(|_| bench.end(Outcome::Reset));
        (0..10_000).for_each(|_| bench.end(Outcome::Failing { status: 500, latency: Duration::ZERO }));
        bench.end(ANSWERED);
        bench.end(Outcome::ClientAborted);
        bench.end(Outcome::OwnFault);
        let seen = bench.look(50).unwrap();
        assert_eq!((seen.failed, seen.ended), (30_000, 30_001));
        assert_eq!(seen.connect_failures_in_a_row, 10_000);
    }

    #[test]
    fn a_server_that_takes_connections_and_answers_nothing_fails_in_a_row() {
        let mut bench = Bench::new();
        for _ in 0..3 {
            bench.begin(1);
            bench.record.load.forget_connect_failures();
            bench.end(Outcome::ResponseTimeout);
        }
        assert_eq!(bench.look(50).unwrap().connect_failures_in_a_row, 3);
        bench.record.forget_failures();
        assert_eq!(bench.look(100).unwrap().connect_failures_in_a_row, 0);
    }

    #[test]
    fn what_ends_at_an_address_of_the_past_says_nothing() {
        let mut bench = Bench::new();
        bench.begin(2);
        bench.record.moves(1);
        bench.end(Outcome::ConnectError);
        bench.end(Outcome::Reset);
        assert_eq!(bench.look(50), None);
    }

    #[test]
    fn silence_begins_with_the_eighth_request_that_waits_or_the_last_byte() {
        let mut bench = Bench::new();
        bench.begin(7);
        assert_eq!(silence(bench.look(10_000)), None);
        bench.begin(1);
        assert_eq!(silence(bench.look(60_000)), Some(0), "one that waits for a minute makes no burst old");
        assert_eq!(silence(bench.look(60_250)), Some(250));
        bench.record.load.hear(at(60_300));
        assert_eq!(silence(bench.look(60_350)), Some(50));
        // Of ten that wait three are still being sent by their clients, or are answered and stream.
        bench.begin(2);
        (0..3).for_each(|_| bench.record.load.excuse());
        let seen = bench.look(60_400);
        assert_eq!((silence(seen), seen.unwrap().outstanding), (None, 7));
        (0..3).for_each(|_| bench.record.load.unexcuse());
        assert_eq!(silence(bench.look(60_450)), Some(0));
    }

    #[test]
    fn the_time_of_its_answers_is_known_once_there_are_enough() {
        let mut bench = Bench::new();
        bench.begin(1);
        assert_eq!(bench.look(50).unwrap().p99, None);
        let is_about = |millis: u64, p99: Option<Duration>| {
            p99.is_some_and(|p99| p99 >= Duration::from_millis(millis) && p99 <= Duration::from_millis(millis * 5 / 4))
        };
        (0..100).for_each(|_| bench.record.latencies.add(20_000_000));
        assert!(is_about(20, bench.look(100).unwrap().p99));
        (0..100).for_each(|_| bench.record.latencies.add(40_000_000));
        assert!(is_about(20, bench.look(1_000).unwrap().p99), "it is looked at once a second");
        assert!(is_about(40, bench.look(1_100).unwrap().p99));
    }
}

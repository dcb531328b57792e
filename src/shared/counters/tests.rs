//! What is counted in which place, and what lies together on a cache line.

use std::time::Duration;

use super::*;
use crate::pure::pool::Pace;

fn record() -> ServerRecord {
    ServerRecord::new(ServerId { pool: "p".into(), server: "s".into() }, ServerSlot(3))
}

fn answered(status: u16) -> Outcome {
    Outcome::Answered { status, latency: Duration::from_millis(1) }
}

#[test]
fn each_outcome_is_counted_in_its_place() {
    let record = record();
    for status in [101, 200, 204, 304, 404, 500, 599, 0, 99, 600] {
        record.count_outcome(answered(status));
    }
    for outcome in [
        Outcome::ConnectError,
        Outcome::ConnectTimeout,
        Outcome::Reset,
        Outcome::ResponseTimeout,
        Outcome::Malformed,
        Outcome::Silent,
        Outcome::ClientAborted,
        Outcome::OwnFault,
    ] {
        record.count_outcome(outcome);
    }
    record.count_request();
    record.count_retry();
    record.count_bytes(10, 20);
    let expected = ServerFigures {
        active: 0,
        requests: 1,
        answers: [1, 2, 1, 1, 2],
        bytes_to_server: 10,
        bytes_to_client: 20,
        connect_errors: 1,
        connect_timeouts: 1,
        resets: 1,
        response_timeouts: 1,
        malformed: 1,
        retries: 1,
        client_aborts: 1,
        taken_back: 1,
        connect_failures_in_a_row: 0,
    };
    assert_eq!(record.figures(), expected);
}

#[test]
fn connect_failures_are_in_a_row_until_something_works() {
    let record = record();
    let row = |outcomes: &[Outcome]| {
        let failures = outcomes.iter().filter(|outcome| outcome.is_failure());
        failures.for_each(|outcome| record.count_failure(*outcome, 0, false));
        record.connect_failures_in_a_row()
    };
    assert_eq!(row(&[Outcome::ConnectError, Outcome::ConnectTimeout]), 2);
    assert_eq!(row(&[Outcome::ClientAborted, Outcome::Reset, Outcome::OwnFault]), 2);
    record.load.forget_connect_failures();
    assert_eq!(record.connect_failures_in_a_row(), 0);
    assert_eq!(row(&[Outcome::ConnectError]), 1);
    record.forget_failures();
    assert_eq!(record.connect_failures_in_a_row(), 0);
}

/// Between two requests a server has nothing to do, and that is no sign of slowness.
#[test]
fn a_server_is_idle_once_its_last_request_is_over() {
    let record = ServerRecord::new(ServerId { pool: "p".into(), server: "s".into() }, ServerSlot(0));
    let answered = Outcome::Answered { status: 200, latency: Duration::ZERO };
    for _ in 0..20 {
        assert!(record.load.try_reserve(None));
        record.begin_measuring();
        std::hint::black_box((0..20_000u64).map(std::hint::black_box).sum::<u64>());
        record.end_measuring(answered);
        record.load.release();
        assert!(!record.load.pace.is_busy(), "it has a request that nobody has given it");
    }
}

#[test]
fn what_is_written_for_every_request_lies_on_one_line() {
    assert_eq!(size_of::<Traffic>(), 64);
    assert_eq!(size_of::<Faults>(), 64);
    assert_eq!(size_of::<Evidence>(), 64);
    assert_eq!(size_of::<Load>() - size_of::<Pace>(), 64);
}

#[test]
fn a_gauge_counts_up_and_down() {
    let gauge = Gauge::default();
    gauge.rise();
    gauge.rise();
    assert_eq!(gauge.get(), 2);
    gauge.fall();
    gauge.fall();
    assert_eq!(gauge.get(), 0);
}

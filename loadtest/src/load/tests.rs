//! What load generators print, read into figures; what is not whole is refused.

use super::*;

const LOAD: Load = Load {
    path: "128",
    body: 128,
    protocol: Protocol::H1,
    streams: 1,
    grpc: false,
    tls: false,
    fresh: false,
    connections: 64,
    rate: None,
    duration: Duration::from_secs(1),
};

const H2LOAD: &str = "starting benchmark...\n\nfinished in 1.05s, 12610.91 req/s, 3.61MB/s\n\
    requests: 12800 total, 12800 started, 12800 done, 12800 succeeded, 0 failed, 0 errored, 0 timeout\n\
    status codes: 12800 2xx, 0 3xx, 0 4xx, 0 5xx\n\
    traffic: 3.61MB (3785000) total, 1.81MB (1900000) headers (space savings 0.00%), 1.56MB (1638400) data\n";

#[test]
fn totals_of_wrk_are_read() {
    let line =
        "x\nsummary requests=400 bytes=120000 microseconds=1002000 connect=0 read=0 write=0 status=0 timeout=0\n";
    let served = parse_wrk(line, LOAD).unwrap();
    assert_eq!(served, Served { requests: 400.0, elapsed: Duration::from_micros(1_002_000) });
    let large = Load { body: 1 << 20, ..LOAD };
    let line = line.replace("bytes=120000", "bytes=420478976");
    assert!((parse_wrk(&line, large).unwrap().requests - 401.0).abs() < 1e-9);
    assert!(parse_wrk(&line.replace("status=0", "status=3"), LOAD).is_err());
    assert!(parse_wrk("nothing", LOAD).is_err());
}

#[test]
fn totals_of_h2load_are_read_and_a_missing_answer_is_a_failure() {
    let served = parse_h2load(H2LOAD, Some(12_800), LOAD).unwrap();
    assert_eq!(served, Served { requests: 12_800.0, elapsed: Duration::from_millis(1_050) });
    assert_eq!(parse_h2load(H2LOAD, None, LOAD).unwrap(), served);
    assert!(parse_h2load(H2LOAD, Some(12_801), LOAD).is_err());
    let begun = H2LOAD.replace("12800 2xx", "12801 2xx");
    assert!(parse_h2load(&begun, None, LOAD).is_ok() && parse_h2load(&begun, Some(12_800), LOAD).is_err());
    for wanted in [None, Some(12_800)] {
        let fails = |from: &str, to: &str| parse_h2load(&H2LOAD.replace(from, to), wanted, LOAD).is_err();
        assert!(fails("12800 2xx, 0 3xx", "12799 2xx, 1 3xx"));
        assert!(fails(" 0 errored", " 1 errored"));
        assert!(fails("(1638400) data", "(1638399) data"), "a body is missing");
        assert!(fails("requests: 12800", "requests: 0") == wanted.is_none());
    }
}

#[test]
fn durations_are_read_in_all_units() {
    assert_eq!(parse_duration("2.5s"), Some(Duration::from_millis(2_500)));
    assert_eq!(parse_duration("7.5ms"), Some(Duration::from_micros(7_500)));
    assert_eq!(parse_duration("90us"), Some(Duration::from_micros(90)));
    assert_eq!(parse_duration("3h"), None);
}

#[test]
fn each_connection_makes_the_same_number_of_requests() {
    assert_eq!(requests_of(10_000, Duration::from_secs(1), 64), 64 * 156);
    assert_eq!(requests_of(1, Duration::from_secs(1), 64), 64);
}

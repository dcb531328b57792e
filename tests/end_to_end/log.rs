//! The access log: what each field says, where lines go, and that nothing of it ever holds up a request.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::deadline::{Gate, now};
use crate::support::{Client, DEADLINE, End, Origin, Proxy, Setup, refused_address, wait_for};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// One listener and one worker, so that records come in the order of the requests.
fn rules(settings: &str, origin: &Origin) -> String {
    format!("listen \"127.0.0.1:0\"\nworkers 1\npool \"o\" {{ server \"o1\" \"{}\"; }}\n{settings}\n", origin.address)
}

/// Status, reason and attempts of a record.
fn gist(record: &Value) -> (u64, Option<&str>, u64) {
    (record["status"].as_u64().unwrap(), record["reason"].as_str(), record["attempts"].as_u64().unwrap())
}

#[test]
fn a_record_says_who_asked_what_and_who_answered() {
    let origin = Origin::with(|exchange| {
        exchange.read_body();
        exchange.respond(201, &[], b"created");
    });
    let proxy = Proxy::start(&rules("rule \"all\" use=\"o\"\naccess-log \"access.log\"", &origin));
    let mut client = proxy.client();
    client.request("POST /a%20b?x=%22y HTTP/1.1\r\nHost: A.Test:81\r\nContent-Length: 5\r\n\r\nhello");
    client.request(
        "PUT /c HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\nT: x\r\n\r\n",
    );
    client.request("HEAD http://b.test HTTP/1.1\r\nHost: a.test\r\n\r\n");
    proxy.client().request("GET /old HTTP/1.0\r\n\r\n");
    let records = proxy.wait_for_records("access.log", 4);
    let first = &records[0];
    for (field, value) in [
        ("client", "127.0.0.1"),
        ("listener", "127.0.0.1:0"),
        ("protocol", "HTTP/1.1"),
        ("method", "POST"),
        ("host", "a.test"),
        ("path", "/a%20b"),
        ("query", "x=%22y"),
        ("rule", "all"),
        ("pool", "o"),
        ("server", "o1"),
    ] {
        assert_eq!(first[field], value, "{field}");
    }
    for (field, value) in [("status", 201), ("bytes_out", 7), ("bytes_in", 5), ("attempts", 1)] {
        assert_eq!(first[field], value, "{field}");
    }
    for absent in ["reason", "request_id", "tls", "dropped_before", "decision"] {
        assert!(first.get(absent).is_none(), "{absent}");
    }
    let of = |field: &str| records.iter().map(|record| record[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("method"), ["POST", "PUT", "HEAD", "GET"]);
    assert_eq!(of("host"), ["a.test", "a.test", "b.test", ""]);
    assert_eq!(of("path"), ["/a%20b", "/c", "/", "/old"]);
    assert_eq!(of("protocol"), ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]);
    assert_eq!(of("bytes_in"), [5, 7, 0, 0]);
    assert_eq!(of("bytes_out"), [7, 7, 0, 7]);
}

#[test]
fn a_record_says_when_and_how_long() {
    let span = Duration::from_millis(100);
    let origin = Origin::with(move |exchange| {
        let started = now();
        wait_for("the time before the head", DEADLINE, || (started.elapsed() >= span).then_some(()));
        exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n");
        wait_for("the time before the body", DEADLINE, || (started.elapsed() >= 2 * span).then_some(()));
        exchange.write("x");
    });
    let proxy = Proxy::start(&rules("rule path=\"/slow\" use=\"o\"\naccess-log \"access.log\"", &origin));
    let mut client = proxy.client();
    let started = now();
    client.get("/slow");
    let most = u64::try_from(started.elapsed().as_micros()).unwrap();
    client.get("/slow");
    let date = client.get("/none").field("date").unwrap().to_owned();
    let records = proxy.wait_for_records("access.log", 3);
    let micros = |record: usize, field: &str| records[record][field].as_u64();
    let (total, first_byte) = (micros(0, "total_us").unwrap(), micros(0, "first_byte_us").unwrap());
    // The start is read once for all that a worker does in one go.
    assert!(
        total <= most + 50_000 && total >= 200_000 && first_byte >= 100_000 && first_byte <= total,
        "{total} {first_byte} {most}"
    );
    assert!(micros(0, "connect_us").unwrap() < first_byte);
    // No connection was made for the second, and no server asked for the third.
    assert_eq!((micros(1, "connect_us"), micros(2, "connect_us"), micros(2, "first_byte_us")), (None, None, None));
    assert!(micros(2, "total_us").unwrap() < total);

    // `2026-01-02T03:04:05.000042Z` beside `Fri, 02 Jan 2026 03:04:05 GMT`, which are a second apart at most.
    let times: Vec<&str> = records.iter().map(|record| record["time"].as_str().unwrap()).collect();
    let shape: String = times[2].chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000000Z");
    assert!(times.is_sorted() && times[0] < times[2], "{times:?}");
    let seconds = |clock: &str| {
        let parts: Vec<u32> = clock.split(':').map(|part| part.parse().unwrap()).collect();
        parts[0] * 3600 + parts[1] * 60 + parts[2]
    };
    let apart = (seconds(&date[17..25]) + 86_400 - seconds(&times[2][11..19])) % 86_400;
    assert!(apart <= 1 || apart == 86_399, "{date} beside {}", times[2]);
    let (_, year_of_date) = date[..16].rsplit_once(' ').unwrap();
    assert_eq!(&times[2][..4], year_of_date);
}

#[test]
fn a_record_says_why_the_answer_is_our_own() {
    let origin = Origin::with(|exchange| {
        match exchange.head.target() {
            "/nonsense" => exchange.write("what?\r\n\r\n"),
            "/cut" => exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
            _ => true,
        };
        exchange.close();
    });
    let (_keeper, refused) = refused_address();
    let proxy = Proxy::start(&rules(
        &format!(
            "limits {{ head-max \"1KiB\"; body-max \"9B\"; }}\naccess-log \"access.log\"\n\
             pool \"gone\" {{ server \"g\" \"{refused}\"; }}\npool \"empty\" {{ server \"e\" \"{refused}\" weight=0; }}\n\
             rule path=\"/gone\" use=\"gone\"\nrule path=\"/empty\" use=\"empty\"\nrule path=\"/no\" respond=403 body=\"no\"\n\
             rule path=\"/old\" redirect=\"/new\"\nrule host=\"a.test\" use=\"o\"\n"
        ),
        &origin,
    ));
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let long = "x".repeat(2000);
    let cases = [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), (400, Some("malformed"), 0), 16),
        (get("/a%5Cb"), (400, Some("ambiguous-path"), 0), 16),
        (get("/no"), (403, Some("rule"), 0), 2),
        (get("/old"), (308, Some("rule"), 0), 23),
        ("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n".to_owned(), (404, Some("no-rule"), 0), 14),
        ("HEAD / HTTP/1.1\r\nHost: b.test\r\n\r\n".to_owned(), (404, Some("no-rule"), 0), 0),
        (
            "PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\n".to_owned(),
            (413, Some("body-too-large"), 0),
            22,
        ),
        (get(&format!("/{long}")), (414, Some("head-too-large"), 0), 17),
        (format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n"), (431, Some("head-too-large"), 0), 36),
        ("GET / HTTP/1.1\r\nHost: a.test\r\nExpect: x\r\n\r\n".to_owned(), (417, Some("expectation"), 0), 23),
        ("GET / HTTP/2.0\r\nHost: a.test\r\n\r\n".to_owned(), (505, Some("version"), 0), 31),
        (get("/gone"), (502, Some("connect-refused"), 2), 16),
        (get("/closed"), (502, Some("upstream-reset"), 2), 16),
        (get("/nonsense"), (502, Some("malformed-response"), 1), 16),
        (get("/cut"), (200, Some("truncated"), 1), 4),
        (get("/empty"), (503, Some("no-server"), 0), 24),
    ];
    for (request, (status, ..), _) in &cases {
        let answer = proxy.client().request(request);
        assert_eq!(u64::from(answer.status()), *status, "{request}");
    }
    let records = proxy.wait_for_records("access.log", cases.len());
    for ((request, expected, length), record) in cases.iter().zip(&records) {
        assert_eq!(gist(record), *expected, "{request}");
        assert_eq!(record["bytes_out"].as_u64(), Some(*length), "{request}: {record}");
    }
}

#[test]
fn a_record_counts_the_attempts_and_names_the_server_that_answered() {
    let origin = Origin::new("one");
    let (_keeper, refused) = refused_address();
    let proxy = Proxy::start(&format!(
        "listen \"127.0.0.1:0\"\nworkers 1\npool \"p\" {{ server \"gone\" \"{refused}\"; server \"there\" \"{}\"; }}\n\
         rule use=\"p\"\naccess-log \"access.log\"\n",
        origin.address
    ));
    (0..2).for_each(|_| assert_eq!(proxy.client().get("/").text(), "one"));
    let records = proxy.wait_for_records("access.log", 2);
    assert!(records.iter().all(|record| record["server"] == "there" && record.get("reason").is_none()));
    let attempts: Vec<u64> = records.iter().filter_map(|record| record["attempts"].as_u64()).collect();
    assert!(attempts.iter().all(|count| [1, 2].contains(count)) && attempts.contains(&2), "{attempts:?}");
}

#[test]
fn a_client_that_goes_away_is_499_and_never_counted_against_the_server() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        if exchange.head.target() == "/wait" {
            exchange.wait_for_end();
        } else {
            opened.wait();
            exchange.respond(200, &[], b"one");
        }
    });
    let proxy = Proxy::start(&rules("rule use=\"o\"\naccess-log \"access.log\"", &origin));
    for round in 0..12 {
        let mut client = proxy.client();
        let fields = if round % 3 == 2 { "Content-Length: 9\r\n\r\nhalf" } else { "\r\n" };
        client.send(format!("PUT /wait HTTP/1.1\r\nHost: a.test\r\n{fields}"));
        origin.wait_for_requests(round + 1);
        if round % 2 == 0 {
            client.reset();
        } else {
            client.finish_writing();
            assert!(matches!(client.end(), End::Closed | End::Reset));
        }
    }
    let records = proxy.wait_for_records("access.log", 12);
    assert!(records.iter().all(|record| gist(record) == (499, Some("client-gone"), 1)), "{records:?}");
    wait_for("the server's connections to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
    gate.open();
    assert_eq!(proxy.client().get("/").text(), "one");
    assert!(!proxy.errors().iter().any(|line| line.contains("server")), "{:?}", proxy.errors());
}

#[test]
fn a_client_that_ended_its_side_alone_gets_its_answer_where_half_close_is_on() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::with(move |exchange| {
        opened.wait();
        exchange.respond(200, &[], b"late");
    });
    let rules = rules("rule use=\"o\"\naccess-log \"access.log\"", &origin);
    let proxy = Proxy::start(&rules.replacen("\n", " { half-close #true; }\n", 1));
    let mut client = proxy.client();
    client.send(GET);
    client.finish_writing();
    origin.wait_for_requests(1);
    gate.open();
    assert_eq!(client.response().text(), "late");
    assert_eq!(client.end(), End::Closed);
    assert_eq!(gist(&proxy.wait_for_records("access.log", 1)[0]), (200, None, 1));
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_answer_is_told_by_the_reason() {
    let origin = Origin::with(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        exchange.wait_for_end();
    });
    let proxy = Proxy::start(&rules("rule use=\"o\"\naccess-log \"access.log\"", &origin));
    let mut client = proxy.client();
    client.send(GET);
    client.head();
    assert_eq!(client.exactly(4), b"half");
    client.reset();
    let records = proxy.wait_for_records("access.log", 1);
    assert_eq!((gist(&records[0]), records[0]["bytes_out"].as_u64()), ((200, Some("client-gone"), 1), Some(4)));
    wait_for("the server's connection to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
}

#[test]
fn an_idle_client_that_leaves_leaves_no_record_however_it_does() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("rule use=\"o\"\naccess-log \"access.log\"", &origin));
    for round in 0..6 {
        let mut client = proxy.client();
        if round % 2 == 0 {
            assert_eq!(client.get("/").text(), "one");
        }
        if round < 3 { client.reset() } else { drop(client) }
    }
    assert_eq!(proxy.client().get("/last").text(), "one");
    let records = proxy.wait_for_records("access.log", 4);
    assert_eq!(records.iter().map(gist).collect::<Vec<_>>(), vec![(200, None, 1); 4]);
    assert_eq!(records[3]["path"], "/last");
}

#[test]
fn the_combined_format_is_what_old_tools_read() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("rule use=\"o\"\naccess-log \"access.log\" format=\"combined\"", &origin));
    let fields = "Host: a.test\r\nUser-Agent: curl/8 \"x\"\r\nReferer: http://b.test/?a\r\n";
    proxy.client().request(format!("GET /a?b=c HTTP/1.1\r\n{fields}\r\n"));
    proxy.client().request("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
    proxy.client().request("nonsense\r\n\r\n");
    let lines = wait_for("three lines", DEADLINE, || {
        let text = fs::read_to_string(proxy.path("access.log")).ok()?;
        (text.matches('\n').count() == 3).then(|| text.lines().map(str::to_owned).collect::<Vec<_>>())
    });
    let parts = |line: &str| {
        let (client, rest) = line.split_once(" - - [").unwrap();
        let (time, rest) = rest.split_once("] ").unwrap();
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        let month = &shape[3..6];
        assert!(month.chars().all(char::is_alphabetic), "{time}");
        assert_eq!(shape.replace(month, "Mon"), "00/Mon/0000:00:00:00 +0000");
        format!("{client} {rest}")
    };
    assert_eq!(parts(&lines[0]), r#"127.0.0.1 "GET /a?b=c HTTP/1.1" 200 3 "http://b.test/?a" "curl/8 \"x\"""#);
    assert_eq!(parts(&lines[1]), r#"127.0.0.1 "GET / HTTP/1.0" 200 3 "-" "-""#);
    assert_eq!(parts(&lines[2]), r#"127.0.0.1 "" 400 16 "-" "-""#);
}

#[test]
fn no_log_is_written_where_none_is_asked_for_and_a_new_one_is_not_for_everybody() {
    let origin = Origin::new("one");
    let silent = Proxy::start(&rules("rule use=\"o\"", &origin));
    assert_eq!(silent.client().get("/").text(), "one");
    assert_eq!(fs::read_dir(silent.folder()).unwrap().count(), 1, "the rule file alone");
    assert!(!silent.threads().contains(&"access-log".to_owned()));
    let logging =
        Setup::new(&rules("rule use=\"o\"\naccess-log \"logs/access.log\"", &origin)).file("logs/x", "").start();
    assert_eq!(logging.client().get("/").text(), "one");
    logging.wait_for_records("logs/access.log", 1);
    let mode = fs::metadata(logging.path("logs/access.log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o007, 0, "{mode:o}");
}

#[test]
fn standard_output_is_the_log_where_a_dash_says_so() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("rule use=\"o\"\naccess-log \"-\"", &origin));
    assert_eq!(proxy.client().get("/x").text(), "one");
    let lines = wait_for("a line", DEADLINE, || Some(proxy.outputs()).filter(|lines| !lines.is_empty()));
    let record: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((record["path"].as_str(), record["status"].as_u64()), (Some("/x"), Some(200)));
    proxy.signal(Signal::SIGUSR1);
    assert_eq!(proxy.client().get("/y").text(), "one");
    wait_for("another line", DEADLINE, || (proxy.outputs().len() == 2).then_some(()));
}

/// The lines of a log, of which a last one that is still being written is left out.
fn whole_lines(proxy: &Proxy, log: &str) -> usize {
    fs::read_to_string(proxy.path(log)).map_or(0, |text| text.matches('\n').count())
}

#[test]
fn a_log_that_was_renamed_is_opened_anew_on_sigusr1_and_no_line_is_lost() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("rule use=\"o\"\naccess-log \"access.log\"", &origin));
    let mut client = proxy.client();
    let mut asked = 0;
    for round in 1..=5 {
        let old = format!("access.log.{round}");
        fs::rename(proxy.path("access.log"), proxy.path(&old)).unwrap();
        for _ in 0..20 {
            assert_eq!(client.get(&format!("/{round}")).text(), "one");
            asked += 1;
        }
        proxy.signal(Signal::SIGUSR1);
        wait_for("a new file", DEADLINE, || proxy.path("access.log").exists().then_some(()));
    }
    assert_eq!(client.get("/last").text(), "one");
    let logs = ["access.log.1", "access.log.2", "access.log.3", "access.log.4", "access.log.5", "access.log"];
    let count = || logs.iter().map(|log| whole_lines(&proxy, log)).sum::<usize>();
    wait_for("all lines in all files", DEADLINE, || (count() == asked + 1).then_some(()));
    assert_eq!(proxy.wait_for_records("access.log", 1).last().unwrap()["path"], "/last");
}

#[test]
fn a_log_that_can_not_be_opened_anew_goes_on_as_it_was() {
    let origin = Origin::new("one");
    let setup = Setup::new(&rules("rule use=\"o\"\naccess-log \"logs/access.log\"", &origin)).file("logs/x", "");
    let proxy = setup.start();
    fs::rename(proxy.path("logs"), proxy.path("moved")).unwrap();
    proxy.signal(Signal::SIGUSR1);
    proxy.wait_for_error("the access log is not complete");
    assert_eq!(proxy.client().get("/").text(), "one");
    assert_eq!(proxy.wait_for_records("moved/access.log", 1)[0]["status"], 200);
}

#[test]
fn a_full_disk_holds_up_no_request_and_no_end() {
    let mut proxy = Proxy::start("listen \"127.0.0.1:0\"\nworkers 1\nrule respond=200\naccess-log \"/dev/full\"");
    ask_often(&proxy, 200);
    let said = proxy.wait_for_error("the access log is not complete");
    assert!(said.contains("No space left"), "{said}");
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
}

/// Requests whose records have this many bytes and more.
fn ask_often(proxy: &Proxy, count: usize) {
    let mut client: Client = proxy.client();
    let request = format!("GET /{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "x".repeat(2000));
    for _ in 0..count / 10 {
        client.send(request.repeat(10));
        (0..10).for_each(|_| assert_eq!(client.response().status(), 200));
    }
}

#[test]
fn a_standard_output_that_nobody_reads_holds_up_no_request_and_what_was_dropped_is_counted() {
    let rules = "listen \"127.0.0.1:0\"\nworkers 1\nrule respond=200\naccess-log \"-\"";
    let mut proxy = Setup::new(rules).unread_output().start();
    ask_often(&proxy, 2000);
    proxy.read_output();
    // What waited comes, then a line that owns up to the rest.
    let told = |line: &String| serde_json::from_str::<Value>(line).unwrap()["dropped_before"].as_u64().unwrap_or(0);
    let dropped = wait_for("a line that tells of the dropped ones", DEADLINE, || {
        assert_eq!(proxy.client().get("/").status(), 200);
        Some(proxy.outputs().iter().map(told).sum::<u64>()).filter(|dropped| *dropped > 0)
    });
    assert!(dropped < 2000, "{dropped}");
    assert!(proxy.wait_for_error("the access log is not complete").contains("lines_dropped="));
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
}

#[test]
fn a_standard_output_that_nobody_reads_holds_up_no_end() {
    let rules = "listen \"127.0.0.1:0\"\nworkers 1\nrule respond=200\naccess-log \"-\"";
    let mut proxy = Setup::new(rules).unread_output().start();
    ask_often(&proxy, 200);
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait_for_exit().code(), Some(0));
    proxy.wait_for_error("the access log could not be written to its end");
}

#[test]
fn a_standard_output_that_was_closed_holds_up_no_request() {
    let rules = "listen \"127.0.0.1:0\"\nworkers 1\nrule respond=200\naccess-log \"-\"";
    let mut proxy = Setup::new(rules).unread_output().start();
    proxy.close_output();
    ask_often(&proxy, 100);
    proxy.wait_for_error("the access log is not complete");
    assert_eq!(proxy.client().get("/").status(), 200);
}

/// What a supervisor does that gives up on our messages.
#[test]
fn a_standard_error_that_was_closed_does_not_end_the_proxy() {
    let setup = Setup::new("listen \"127.0.0.1:0\"\nworkers 1\nrule respond=200");
    let mut child = setup.spawn();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = lines.find_map(|line| line.unwrap().split_once("http://").map(|(_, address)| address.to_owned()));
    drop(lines);
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let mut client = Client::connect(said.unwrap().parse().unwrap());
    for _ in 0..5 {
        kill(process, Signal::SIGHUP).unwrap();
        assert_eq!(client.get("/").status(), 200);
    }
    kill(process, Signal::SIGTERM).unwrap();
    assert_eq!(client.end(), End::Closed);
    let status = wait_for("the end", DEADLINE, || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

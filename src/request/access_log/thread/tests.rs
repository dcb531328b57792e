//! The log over real files and pipes: what is written, what is lost and owned up to, and that nobody waits for it.

use std::fs;
use std::io::{PipeReader, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::request::access_log::AccessRecord;

const WAIT: Duration = Duration::from_secs(20);

fn start(file: &Path) -> LogHandle {
    LogThread::start(&AccessLog { file: Some(file.to_owned()), format: LogFormat::Json }).unwrap()
}

/// Adds a line whose path is this number.
fn add(worker: &mut WorkerLog, number: u64) {
    let path = format!("/{number}");
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    worker.record(&AccessRecord { path: path.as_bytes(), ..AccessRecord::new(now(), client, "l") });
}

fn numbers(log: &str) -> Vec<u64> {
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["path"].as_str().unwrap()[1..].parse().unwrap())
        .collect()
}

/// Waits for a fact, with a deadline.
fn wait_for(what: &str, mut fact: impl FnMut() -> bool) {
    let deadline = now() + WAIT;
    while !fact() {
        assert!(now() < deadline, "waited in vain for {what}");
        thread::yield_now();
    }
}

/// A log whose lines go into a pipe that nobody reads yet.
fn start_on_pipe() -> (LogHandle, PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    // By this name the same pipe is opened once more; the first writing end closes when this function ends.
    let handle = start(Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd())));
    (handle, reader)
}

#[test]
fn all_lines_of_all_workers_are_written_in_their_order_when_it_stops() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("access.log");
    let handle = start(&file);
    let threads: Vec<_> = (0..4_u64)
        .map(|worker| {
            let mut log = handle.worker();
            thread::spawn(move || {
                for number in 0..10_000 {
                    add(&mut log, worker * 10_000 + number);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let counters = Arc::clone(handle.counters());
    handle.stop(WAIT).unwrap();
    let written = numbers(&fs::read_to_string(&file).unwrap());
    for worker in 0..4 {
        let own: Vec<_> = written.iter().filter(|number| *number / 10_000 == worker).collect();
        assert!(own.is_sorted(), "the lines of one worker keep their order");
    }
    assert_eq!(written.len() as u64, counters.written.load(Relaxed));
    assert_eq!(written.len() as u64 + counters.dropped.load(Relaxed), 40_000);
}

#[test]
fn a_flush_writes_lines_without_a_full_buffer_and_without_a_stop() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("access.log");
    let handle = start(&file);
    let mut worker = handle.worker();
    add(&mut worker, 1);
    worker.flush(now());
    wait_for("the line", || fs::read_to_string(&file).unwrap() != "");
    assert_eq!(numbers(&fs::read_to_string(&file).unwrap()), [1]);
    // It is counted after it is written.
    wait_for("the count", || handle.counters().written.load(Relaxed) == 1);
}

#[test]
fn after_a_rename_lines_go_on_to_the_old_file_until_it_is_reopened() {
    let folder = TempDir::new().unwrap();
    let (file, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let handle = start(&file);
    let mut worker = handle.worker();
    add(&mut worker, 1);
    worker.flush(now());
    wait_for("the first line", || handle.counters().written.load(Relaxed) == 1);
    fs::rename(&file, &old).unwrap();
    add(&mut worker, 2);
    worker.flush(now());
    wait_for("the second line", || handle.counters().written.load(Relaxed) == 2);
    handle.reopen();
    wait_for("the new file", || file.exists());
    add(&mut worker, 3);
    drop(worker);
    handle.stop(WAIT).unwrap();
    assert_eq!(numbers(&fs::read_to_string(&old).unwrap()), [1, 2]);
    assert_eq!(numbers(&fs::read_to_string(&file).unwrap()), [3]);
}

#[test]
fn lines_are_appended_to_what_the_file_holds_already() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("access.log");
    fs::write(&file, "{\"path\":\"/7\"}\n").unwrap();
    let handle = start(&file);
    let mut worker = handle.worker();
    add(&mut worker, 8);
    drop(worker);
    handle.stop(WAIT).unwrap();
    assert_eq!(numbers(&fs::read_to_string(&file).unwrap()), [7, 8]);
}

#[test]
fn a_file_that_can_t_be_opened_again_is_counted_and_the_old_one_stays() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("logs").join("access.log");
    fs::create_dir(folder.path().join("logs")).unwrap();
    let handle = start(&file);
    let elsewhere = folder.path().join("moved");
    fs::rename(folder.path().join("logs"), &elsewhere).unwrap();
    handle.reopen();
    wait_for("the error", || handle.counters().errors.load(Relaxed) == 1);
    let mut worker = handle.worker();
    add(&mut worker, 1);
    drop(worker);
    handle.stop(WAIT).unwrap();
    assert_eq!(numbers(&fs::read_to_string(elsewhere.join("access.log")).unwrap()), [1]);
}

#[test]
fn a_pipe_that_nobody_reads_costs_lines_and_never_the_caller() {
    let (handle, mut reader) = start_on_pipe();
    let mut worker = handle.worker();
    // Far more than the pipe and the queue take: were the caller to wait, this loop would never end.
    let mut made = 0;
    while handle.counters().dropped.load(Relaxed) == 0 || made < 50_000 {
        add(&mut worker, made);
        made += 1;
    }
    // Once it is read again, the log goes on, and a line says what was lost before it.
    let text = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    let counters = Arc::clone(handle.counters());
    wait_for("all that waits to be written", || {
        worker.flush(now());
        counters.written.load(Relaxed) + counters.dropped.load(Relaxed) == made
    });
    add(&mut worker, made);
    made += 1;
    drop(worker);
    handle.stop(WAIT).unwrap();
    let text = text.join().unwrap();
    let written = numbers(&text).len() as u64;
    assert_eq!(written, counters.written.load(Relaxed));
    assert_eq!(written + counters.dropped.load(Relaxed), made);
    let owned_up: u64 =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["dropped_before"].as_u64()).sum();
    assert_eq!(owned_up, counters.dropped.load(Relaxed));
}

#[test]
fn it_stops_in_time_though_nobody_reads() {
    let (handle, reader) = start_on_pipe();
    let mut worker = handle.worker();
    while handle.counters().dropped.load(Relaxed) == 0 {
        add(&mut worker, 0);
    }
    assert_eq!(handle.stop(Duration::from_millis(50)), Err(Unfinished));
    // Its end unblocks the thread, so that the test leaves none behind.
    drop(reader);
}

#[test]
fn a_reader_that_went_away_and_a_full_disk_are_counted_and_not_fatal() {
    let (broken, reader) = start_on_pipe();
    drop(reader);
    for handle in [broken, start(Path::new("/dev/full"))] {
        let counters = Arc::clone(handle.counters());
        let mut worker = handle.worker();
        for number in 1..=3 {
            add(&mut worker, number);
            worker.flush(now());
            wait_for("the error", || counters.dropped.load(Relaxed) == number);
        }
        drop(worker);
        handle.stop(WAIT).unwrap();
        assert_eq!(counters.errors.load(Relaxed), 3);
        assert_eq!(counters.written.load(Relaxed), 0);
    }
}

#[test]
fn a_line_that_was_cut_does_not_run_into_the_next() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("access.log");
    let shared = Arc::new(Shared::default());
    let report = Report { said_at: None, dropped: 0, errors: 0 };
    let output = open(&file).unwrap();
    let mut writer =
        Writer { output, file: None, is_inside_line: true, shared: Arc::clone(&shared), report, last_error: None };
    writer.write(FullBuffer { bytes: b"{}\n{}\n".to_vec(), lines: 2 });
    writer.write(FullBuffer { bytes: b"{}\n".to_vec(), lines: 1 });
    assert_eq!(fs::read_to_string(&file).unwrap(), "\n{}\n{}\n{}\n");
    assert_eq!(shared.counters.written.load(Relaxed), 3);
}

#[test]
fn trouble_is_said_once_per_period_and_at_the_end() {
    let shared = Arc::new(Shared::default());
    let report = Report { said_at: None, dropped: 0, errors: 0 };
    let output = open(Path::new("/dev/null")).unwrap();
    let mut writer =
        Writer { output, file: None, is_inside_line: false, shared: Arc::clone(&shared), report, last_error: None };
    let said = |writer: &mut Writer, at: u64, is_last: bool| {
        let before = writer.report.dropped;
        writer.report(Timestamp::from_nanos(at * 1_000_000_000), is_last);
        writer.report.dropped - before
    };
    assert_eq!(said(&mut writer, 1, true), 0);
    shared.counters.dropped.store(5, Relaxed);
    assert_eq!(said(&mut writer, 1, false), 5);
    shared.counters.dropped.store(7, Relaxed);
    assert_eq!(said(&mut writer, 10, false), 0);
    assert_eq!(said(&mut writer, 11, false), 2);
    shared.counters.dropped.store(8, Relaxed);
    assert_eq!(said(&mut writer, 12, true), 1);
}

#[test]
fn a_file_that_can_t_be_opened_is_named() {
    let config = AccessLog { file: Some("/nowhere/access.log".into()), format: LogFormat::Json };
    assert_eq!(
        LogThread::start(&config).unwrap_err().to_string(),
        "can't open the access log /nowhere/access.log: No such file or directory (os error 2)"
    );
}

/// Marks the process in which the test below is to write, and not to look.
const INNER: &str = "POINTSMAN_TEST_WRITES_TO_STANDARD_OUTPUT";

#[test]
fn standard_output_is_written_where_no_file_is_named() {
    if std::env::var_os(INNER).is_some() {
        let handle = LogThread::start(&AccessLog { file: None, format: LogFormat::Combined }).unwrap();
        handle.reopen();
        let mut worker = handle.worker();
        add(&mut worker, 1);
        drop(worker);
        handle.stop(WAIT).unwrap();
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "request::access_log::thread::tests::standard_output_is_written_where_no_file_is_named"])
        .env(INNER, "1")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("127.0.0.1 - - ["), "{text}");
}

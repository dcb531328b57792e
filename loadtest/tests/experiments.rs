//! Short experiments with the binaries of this build, so that `loadtest` keeps working: a proxy, servers that are killed and come
//! back, a report and pictures. What the figures are is not judged.

#![allow(clippy::expect_used, reason = "what fails here fails the test")]

#[path = "support/binaries.rs"]
mod binaries;

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};

use binaries::{LOADTEST, pointsman};

/// Two experiments at once would take each other's cores, and now and then each other's ports.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs an experiment whose pictures go to `results`; how it ended, its report, and what it said.
fn run(arguments: &[&str], results: &Path) -> (ExitStatus, String, String) {
    let mut experiment = Command::new(LOADTEST);
    experiment.args(arguments).arg("--results").arg(results).arg("--pointsman").arg(pointsman());
    let experiment = experiment.output().expect("loadtest starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (experiment.status, text(&experiment.stdout), text(&experiment.stderr))
}

#[test]
fn an_experiment_ends_with_a_table_and_pictures_and_loses_no_request() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let results = std::env::temp_dir().join(format!("loadtest-results-{}", std::process::id()));
    let arguments = ["cache", "--quick", "--products", "rr", "--keys", "1000", "--seconds", "1", "--load", "0.1"];
    let (status, report, said) = run(&arguments, &results);
    assert!(status.success(), "{status}\n{report}\n{said}");
    let row = report.lines().find(|line| line.starts_with("| Pointsman rr |")).expect("a row");
    assert!(row.ends_with("| 0 | 0 |"), "requests were lost: {row}\n{said}");
    assert!(report.contains("not judged: a row is missing"), "{report}");
    for picture in ["cache-1.0-hits.svg", "cache-1.0-latency.svg"] {
        let drawn = std::fs::read_to_string(results.join(picture)).expect("a picture");
        assert!(drawn.contains("Pointsman rr"), "{drawn}");
    }
    std::fs::remove_dir_all(&results).expect("the folder of the pictures");
}

#[test]
fn killing_a_server_ends_with_a_table_and_a_picture_and_loses_no_request() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let results = std::env::temp_dir().join(format!("loadtest-kill-results-{}", std::process::id()));
    let arguments = ["kill", "--quick", "--products", "pointsman", "--faults", "killed", "--rate", "100"];
    let (status, report, said) = run(&arguments, &results);
    // 1: a target was missed, which a busy machine may be to blame for.
    assert!(matches!(status.code(), Some(0 | 1)), "{status}\n{report}\n{said}");
    let row = report.lines().find(|line| line.starts_with("| Pointsman |")).expect("a row");
    assert!(row.starts_with("| Pointsman | 0 of 1400 | 0 |"), "requests were lost: {row}\n{said}");
    let drawn = std::fs::read_to_string(results.join("kill-killed.svg")).expect("a picture");
    assert!(drawn.contains("Pointsman"), "{drawn}");
    std::fs::remove_dir_all(&results).expect("the folder of the pictures");
}

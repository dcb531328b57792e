//! A short experiment with the binaries of this build, so that `loadtest cache` keeps working: a proxy, servers that are killed and come
//! back, a report and pictures. What the figures are is not judged.

#![allow(clippy::expect_used, reason = "what fails here fails the test")]

#[path = "support/binaries.rs"]
mod binaries;

use std::process::Command;

use binaries::{LOADTEST, pointsman};

#[test]
fn an_experiment_ends_with_a_table_and_pictures_and_loses_no_request() {
    let results = std::env::temp_dir().join(format!("loadtest-results-{}", std::process::id()));
    let experiment = Command::new(LOADTEST)
        .args(["cache", "--quick", "--products", "rr", "--keys", "1000", "--seconds", "1", "--load", "0.1"])
        .arg("--results")
        .arg(&results)
        .arg("--pointsman")
        .arg(pointsman())
        .output()
        .expect("loadtest starts");
    let (report, said) = (String::from_utf8_lossy(&experiment.stdout), String::from_utf8_lossy(&experiment.stderr));
    assert!(experiment.status.success(), "{}\n{report}\n{said}", experiment.status);
    let row = report.lines().find(|line| line.starts_with("| Pointsman rr |")).expect("a row");
    assert!(row.ends_with("| 0 | 0 |"), "requests were lost: {row}\n{said}");
    assert!(report.contains("not judged: a row is missing"), "{report}");
    for picture in ["cache-1.0-hits.svg", "cache-1.0-latency.svg"] {
        let drawn = std::fs::read_to_string(results.join(picture)).expect("a picture");
        assert!(drawn.contains("Pointsman rr"), "{drawn}");
    }
    std::fs::remove_dir_all(&results).expect("the folder of the pictures");
}

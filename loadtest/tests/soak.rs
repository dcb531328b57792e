//! Soaks of some seconds with the binaries of this build, so that `loadtest soak` keeps working and nothing glaring passes by.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "what fails here fails the test")]

#[path = "support/binaries.rs"]
mod binaries;

use std::collections::BTreeSet;
use std::process::Command;

use binaries::{LOADTEST, pointsman};

/// The cells of the report's table that have no exchanges, as `row, column`.
fn unseen(report: &str) -> BTreeSet<String> {
    let rows: Vec<Vec<&str>> = report
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .map(|line| line.trim_end_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert!(rows.len() > 7, "no table in {report}");
    let mut cells = BTreeSet::new();
    for row in &rows {
        cells.extend(
            row.iter().zip(&rows[0]).filter(|(cell, _)| **cell == "–").map(|(_, way)| format!("{}, {way}", row[0])),
        );
    }
    cells
}

#[test]
fn short_soaks_keep_all_bounds_and_exchanges_of_every_kind_are_in_them() {
    let pointsman = pointsman();
    let never = ["download, close, h2 TLS", "download, close, h2c", "gRPC unary, h1", "gRPC unary, h1 TLS"];
    let never: BTreeSet<String> = never.into_iter().map(ToOwned::to_owned).collect();
    let mut missing = None;
    // What is drawn by lot comes soon, but not always within the first seconds.
    for seed in 1..=10 {
        let soak = Command::new(LOADTEST)
            .args(["soak", "--minutes", "0.05", "--clients", "3", "--seed", &seed.to_string(), "--pointsman"])
            .arg(&pointsman)
            .output()
            .expect("loadtest starts");
        let (report, said) = (String::from_utf8_lossy(&soak.stdout), String::from_utf8_lossy(&soak.stderr));
        assert!(soak.status.success(), "seed {seed}: {}\n{report}\n{said}", soak.status);
        let unseen = unseen(&report);
        let still = missing.take().map_or(unseen.clone(), |before: BTreeSet<String>| &before & &unseen);
        if still == never {
            return;
        }
        missing = Some(still);
    }
    panic!("never made: {missing:?}");
}

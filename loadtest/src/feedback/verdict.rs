//! The tables of the experiment about feedback, and what it demands.

use std::fmt::Write;
use std::time::Duration;

use super::Row;
use super::part::{Part, Seen};
use crate::failure::Outcome;
use crate::figures::{milliseconds, time};
use crate::gauge;
use crate::rival::Rival;
use crate::target::{Target, at_most};

/// By how much shares may differ from equal ones at a light load, as a part of them.
const EVEN: f64 = 0.05;
/// By how much the mean of a small burst may differ from wlc's.
const ALIKE: f64 = 1.1;

/// All tables.
pub fn text(rows: &[Row], sizes: &[usize]) -> String {
    let mut text = String::new();
    for part in Part::ALL {
        let _ = write!(
            text,
            "\n## {}\n\n| | mean ms | p99 ms | longest overload of each, s | mean loads | shares | answered | failed | sent late, p99 ms |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
            capital(part.title())
        );
        for row in rows {
            for (_, seen) in row.parts.iter().filter(|(found, _)| *found == part) {
                let _ = writeln!(text, "{}", line(&row.rival, seen));
            }
        }
    }
    let heads: Vec<String> = sizes.iter().map(|size| format!(" {size} ")).collect();
    let _ = write!(
        text,
        "\n## Bursts: mean response time in ms by their size\n\n| |{}|\n|{}\n",
        heads.join("|"),
        " --- |".repeat(sizes.len() + 1)
    );
    for row in rows {
        let _ = writeln!(text, "{}", burst_line(&row.rival, &row.bursts, sizes.len()));
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The row of a contender in a part.
pub fn line(rival: &Rival, seen: &Outcome<Seen>) -> String {
    let name = rival.name;
    let seen = match seen {
        Ok(seen) => seen,
        Err(failure) => return format!("| {name} | not measured: {} | | | | | | | |", failure.brief()),
    };
    let list = |figures: Vec<String>| figures.join(", ");
    format!(
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} |",
        time(Some(seen.mean)),
        time(seen.p99),
        list(seen.overloads.iter().map(|seconds| format!("{seconds:.1}")).collect()),
        list(seen.lines.iter().map(|line| format!("{:.0} %", gauge::mean(line) * 100.0)).collect()),
        list(seen.shares.iter().map(|share| format!("{share:.3}")).collect()),
        seen.answered,
        seen.failed,
        time(seen.late)
    )
}

/// The row of a contender in the table of bursts.
pub fn burst_line(rival: &Rival, bursts: &Outcome<Vec<Duration>>, sizes: usize) -> String {
    let name = rival.name;
    match bursts {
        Ok(means) => {
            let means: Vec<String> = means.iter().map(|mean| format!("{:.1}", milliseconds(*mean))).collect();
            format!("| {name} | {} |", means.join(" | "))
        }
        Err(failure) => {
            format!("| {name} | not measured: {} |{}", failure.brief(), " |".repeat(sizes.saturating_sub(1)))
        }
    }
}

/// What is demanded.
pub fn targets(rows: &[Row], sizes: &[usize]) -> Vec<Target> {
    let row = |key: &str| rows.iter().find(|row| row.rival.key == key);
    let seen = |key: &str, part: Part| row(key).and_then(|row| row.seen(part)).filter(|seen| seen.is_sound());
    let overload = |key: &str, part| seen(key, part).map(Seen::longest_overload);
    let p99 = |key: &str, part| seen(key, part).and_then(|seen| Some(milliseconds(seen.p99?)));
    let mut targets = Vec::new();
    for key in ["classic", "capacity"] {
        targets.push(at_most(
            &format!("{key}, equal servers: longest overload, at most half of wlc's, s"),
            overload(key, Part::Equal),
            overload("wlc", Part::Equal).map(|seconds| seconds / 2.0),
        ));
    }
    for part in [Part::Equal, Part::Uneven] {
        targets.push(at_most(
            &format!("capacity, {}: p99, at most HAProxy's, ms", part.title()),
            p99("capacity", part),
            p99("haproxy", part),
        ));
    }
    for key in ["classic", "capacity"] {
        let uneven = seen(key, Part::Light).map(Seen::unevenness);
        targets.push(at_most(&format!("{key}, a light load: shares differ from equal ones by"), uneven, Some(EVEN)));
    }
    let burst = |key: &str, at: Option<usize>| {
        row(key).and_then(|row| row.bursts.as_ref().ok()?.get(at?).copied().map(milliseconds))
    };
    let (first, last) = (sizes.first().map(|_| 0), sizes.len().checked_sub(1));
    for key in ["classic", "capacity"] {
        targets.push(at_most(
            &format!("{key}, the smallest burst: mean, about wlc's, ms"),
            burst(key, first),
            burst("wlc", first).map(|mean| mean * ALIKE),
        ));
        targets.push(at_most(
            &format!("{key}, the largest burst: mean, at most wlc's, ms"),
            burst(key, last),
            burst("wlc", last),
        ));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::feedback::RIVALS;

    fn row(rival: usize, p99: u64, overload: f64, bursts: [u64; 2]) -> Row {
        let seen = Seen {
            answered: 1_000,
            mean: Duration::from_millis(20),
            p99: Some(Duration::from_millis(p99)),
            shares: vec![0.34, 0.33, 0.33],
            lines: vec![vec![(0.0, 0.6), (1.0, 0.6)]; 3],
            overloads: vec![0.0, overload, 0.5],
            is_by_agents: true,
            late: Some(Duration::from_millis(1)),
            ..Seen::default()
        };
        let parts = Part::ALL.map(|part| (part, Ok(seen.clone()))).to_vec();
        Row { rival: RIVALS[rival], parts, bursts: Ok(bursts.map(Duration::from_millis).to_vec()) }
    }

    #[test]
    fn feedback_is_held_against_wlc_and_haproxy() {
        let rows = [
            row(0, 200, 10.0, [50, 900]),
            row(1, 190, 5.0, [54, 890]),
            row(2, 150, 5.1, [56, 901]),
            row(4, 149, 9.0, [50, 900]),
        ];
        let met: Vec<Option<bool>> = targets(&rows, &[50, 800]).iter().map(|target| target.met).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(met, [yes, no, no, no, yes, yes, yes, yes, no, no]);
        let mut starved = row(2, 150, 5.0, [50, 900]);
        for (_, seen) in &mut starved.parts {
            seen.as_mut().unwrap().late = Some(Duration::from_millis(11));
        }
        assert!(targets(&[starved], &[]).iter().all(|target| target.met.is_none()), "a busy machine shows nothing");
        assert!(targets(&rows[..1], &[]).iter().all(|target| target.met.is_none()));
    }

    #[test]
    fn rows_say_what_was_measured_or_why_not() {
        let mut rows = [row(0, 200, 10.0, [50, 900])];
        let said = text(&rows, &[50, 800]);
        assert!(
            said.contains(
                "| Pointsman wlc | 20.0 | 200.0 | 0.0, 10.0, 0.5 | 60 %, 60 %, 60 % | 0.340, 0.330, 0.330 | 1000 | 0 | 1.0 |"
            ),
            "{said}"
        );
        assert!(said.contains("| | 50 | 800 |\n| --- | --- | --- |\n| Pointsman wlc | 50.0 | 900.0 |"), "{said}");
        rows[0].bursts = Err(Failure::new("no\nburst"));
        assert!(text(&rows, &[50, 800]).contains("| Pointsman wlc | not measured: no burst | |\n"));
    }
}

//! What control knows of servers and pools, as `status` tells it: how available they were, what was seen of them, what was
//! done to bring them back, and what became of alerts. Ages count from the moment of asking.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rounded;
use crate::base::time::Timestamp;
use crate::pure::alert::AlertCounts;
use crate::pure::availability::{Figures, Tally};
use crate::pure::control::evidence::Evidence;
use crate::pure::recovery::RecoveryReport;

/// How available a server or a pool was since the start; time out of service by an operator's wish is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AvailabilityStatus {
    /// How often it failed.
    pub failures: u64,
    /// The mean time between failures; none where it never failed.
    pub mtbf_seconds: Option<f64>,
    /// The mean time to repair, from the first doubt until it was in service again.
    pub mttr_seconds: Option<f64>,
    /// MTBF/(MTBF + MTTR), 0 to 1.
    pub uptime: Option<f64>,
}

/// Something that was seen of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EvidenceStatus {
    /// How long ago, the last time.
    pub seconds_ago: f64,
    /// What it was.
    pub what: String,
    /// How often in a row.
    pub times: u32,
}

/// What was done to bring a server back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryStatus {
    /// Whether nothing is really done.
    pub dry_run: bool,
    /// Whether nothing more is tried.
    pub given_up: bool,
    /// When something is tried next; none where nothing is due.
    pub next_in_seconds: Option<f64>,
    /// The last steps, the latest last.
    pub steps: Vec<StepStatus>,
}

/// A step of recovery.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepStatus {
    /// How long ago it began.
    pub seconds_ago: f64,
    /// What it was.
    pub step: String,
    /// What came of it.
    pub outcome: String,
    /// How often in a row.
    pub times: u32,
}

/// What became of alerts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AlertStatus {
    /// Those that arrived.
    pub sent: u64,
    /// Those that did not, after all tries.
    pub failed: u64,
    /// Those that were dropped because too many waited.
    pub dropped: u64,
    /// Those that were held back as repetitions.
    pub held_back: u64,
}

impl AvailabilityStatus {
    pub(super) fn of(tally: &Tally, now: Timestamp) -> Self {
        let Figures { failures, mtbf, mttr, uptime } = tally.figures(now);
        let (mtbf_seconds, mttr_seconds) = (mtbf.map(millis), mttr.map(millis));
        Self { failures, mtbf_seconds, mttr_seconds, uptime: uptime.map(|part| rounded(part, 1e6)) }
    }

    /// `99.8 %, failed 2 times, MTBF 12m 3s, MTTR 1.2s`.
    pub(super) fn text(&self) -> String {
        let uptime = self.uptime.map_or_else(|| "not known".to_owned(), |part| format!("{:.3} %", part * 100.0));
        let times = match self.failures {
            1 => "failed once".to_owned(),
            count => format!("failed {count} times"),
        };
        let mean = |name, seconds: Option<f64>| seconds.map(|it| format!(", {name} {}", span(it))).unwrap_or_default();
        format!("{uptime}, {times}{}{}", mean("MTBF", self.mtbf_seconds), mean("MTTR", self.mttr_seconds))
    }
}

impl EvidenceStatus {
    pub(super) fn of(evidence: &Evidence, now: Timestamp) -> Self {
        let Evidence { at, sign, times } = evidence;
        Self { seconds_ago: millis(now.since(*at)), what: sign.to_string(), times: *times }
    }

    /// `a check failed: refused (3 times), 0.2 s ago`.
    pub(super) fn text(&self) -> String {
        let times = if self.times > 1 { format!(" ({} times)", self.times) } else { String::new() };
        format!("{}{times}, {} ago", self.what, span(self.seconds_ago))
    }
}

impl RecoveryStatus {
    pub(super) fn of(report: &RecoveryReport, now: Timestamp) -> Self {
        let RecoveryReport { is_dry_run, has_given_up, next, steps } = report;
        let steps = steps.iter().map(|attempt| StepStatus {
            seconds_ago: millis(now.since(attempt.at)),
            step: attempt.step.to_string(),
            outcome: attempt.outcome.to_string(),
            times: attempt.times,
        });
        Self {
            dry_run: *is_dry_run,
            given_up: *has_given_up,
            next_in_seconds: next.map(|next| millis(next.since(now))),
            steps: steps.collect(),
        }
    }

    /// What is shown of a server's recovery, if anything was done.
    pub(super) fn lines(&self, server: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let dry = if self.dry_run { ", a dry run" } else { "" };
        let next = match self.next_in_seconds {
            _ if self.given_up => ", given up".to_owned(),
            Some(seconds) => format!(", next in {}", span(seconds)),
            None => String::new(),
        };
        if !self.steps.is_empty() || self.given_up {
            lines.push(format!("  recovery of {server}{dry}{next}:"));
        }
        for StepStatus { seconds_ago, step, outcome, times } in &self.steps {
            let times = if *times > 1 { format!(" ({times} times)") } else { String::new() };
            lines.push(format!("    {} ago: {step}: {outcome}{times}", span(*seconds_ago)));
        }
        lines
    }
}

impl From<AlertCounts> for AlertStatus {
    fn from(counts: AlertCounts) -> Self {
        let AlertCounts { sent, failed, dropped, held_back } = counts;
        Self { sent, failed, dropped, held_back }
    }
}

/// In seconds, to a thousandth.
fn millis(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64(), 1e3)
}

/// `0.2 s`, or from a minute on in the two largest units.
fn span(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    super::text::span(seconds as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::availability::Standing;
    use crate::pure::recovery::{Attempt, Outcome, Step};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn figures_read_well() {
        let mut tally = Tally::new(at(0), Standing::InService);
        assert_eq!(AvailabilityStatus::of(&tally, at(10)).text(), "100.000 %, failed 0 times");
        tally.stands(at(90), Standing::Failed);
        tally.stands(at(100), Standing::InService);
        let status = AvailabilityStatus::of(&tally, at(100));
        assert_eq!(status.text(), "90.000 %, failed once, MTBF 1m 30s, MTTR 10.0 s");
    }

    #[test]
    fn steps_read_well() {
        let steps = vec![
            Attempt { at: at(1), step: Step::Ping, outcome: Outcome::Failed("no answer".to_owned()), times: 3 },
            Attempt { at: at(90), step: Step::WakeOnLan, outcome: Outcome::DryRun, times: 1 },
        ];
        let report = RecoveryReport { is_dry_run: true, has_given_up: false, next: Some(at(105)), steps };
        let lines = RecoveryStatus::of(&report, at(100)).lines("s1");
        assert_eq!(
            lines,
            [
                "  recovery of s1, a dry run, next in 5.0 s:",
                "    1m 39s ago: ping: failed: no answer (3 times)",
                "    10.0 s ago: Wake-on-LAN: not done: dry run",
            ]
        );
        assert_eq!(RecoveryStatus::default().lines("s1"), Vec::<String>::new());
    }
}

//! What a soak has found, held against its bounds, as Markdown.

use std::fmt::Write;
use std::time::Duration;

use super::clients::Tally;
use super::exchanges::Kind;
use super::link::Way;
use crate::statistics;

/// The most that resident memory may grow over the last half, as a part of itself.
const GROWTH: f64 = 0.01;
/// Growth is judged from this duration on: before, the memory of a start is still being filled.
const JUDGED_FROM: Duration = Duration::from_secs(120);

/// Everything that was seen.
pub struct Findings {
    /// For how long there were requests.
    pub duration: Duration,
    /// What happened to them.
    pub tally: Tally,
    /// Descriptors of the proxy before the first client and behind the last.
    pub descriptors: (usize, usize),
    /// Resident memory in bytes at seconds from the start, whenever nothing was in flight.
    pub resident: Vec<(f64, f64)>,
    /// The most of it that was seen at any time.
    pub peak: f64,
    /// What the proxy said on its standard error that it should not have.
    pub complaints: Vec<String>,
}

impl Findings {
    /// The growth of resident memory over the last half, as a part of its median there: the median of the slopes between all pairs of
    /// samples (Theil and Sen), so that one sample more or less makes no difference.
    pub fn growth(&self) -> Option<f64> {
        let (first, last) = (self.resident.first()?.0, self.resident.last()?.0);
        let middle = f64::midpoint(first, last);
        let half: Vec<(f64, f64)> = self.resident.iter().copied().filter(|(at, _)| *at >= middle).collect();
        let mut slopes = Vec::new();
        for (place, early) in half.iter().enumerate() {
            slopes.extend(half.iter().skip(place + 1).map(|late| (late.1 - early.1) / (late.0 - early.0)));
        }
        let level = statistics::median(&half.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>())?;
        Some(statistics::median(&slopes)? * (last - middle) / level)
    }

    /// What was demanded, and whether it was met; `None` where the soak was too short to tell.
    pub fn bounds(&self) -> Vec<(String, Option<bool>)> {
        let (before, behind) = self.descriptors;
        let growth = self.growth();
        let shown = growth.map_or("unknown".to_owned(), |growth| format!("{:+.2} %", growth * 100.0));
        let is_flat = growth.is_some_and(|growth| growth <= GROWTH);
        let everything = self.tally.done.values().sum::<u64>();
        vec![
            (format!("exchanges that went well: {everything}"), Some(everything > 0)),
            (format!("errors that no client caused: {} (bound 0)", self.tally.errors), Some(self.tally.errors == 0)),
            (format!("descriptors before {before}, behind {behind} (bound: equal)"), Some(before == behind)),
            (
                format!("growth of resident memory over the last half: {shown} (bound {} %)", GROWTH * 100.0),
                (self.duration >= JUDGED_FROM).then_some(is_flat),
            ),
            (format!("complaints of the proxy: {}", self.complaints.len()), Some(self.complaints.is_empty())),
        ]
    }

    /// Whether no bound was broken.
    pub fn passes(&self) -> bool {
        self.bounds().iter().all(|(_, met)| *met != Some(false))
    }

    /// The report.
    pub fn text(&self) -> String {
        let mut text = String::from("| exchanges |");
        for way in Way::ALL {
            let _ = write!(text, " {} |", way.name());
        }
        text.push_str("\n| --- | --- | --- | --- | --- |\n");
        let kinds = [Kind::Get, Kind::Close, Kind::Slow, Kind::Upload, Kind::WebSocket, Kind::Grpc];
        for kind in kinds {
            row(&mut text, kind.name(), |way| self.tally.done.get(&(kind, way)).copied());
        }
        row(&mut text, "broken off by the client", |way| self.tally.aborted.get(&way).copied());
        text.push_str("\nResident memory while nothing is in flight, KiB at seconds:");
        let step = (self.resident.len() / 12).max(1);
        for (at, bytes) in self.resident.iter().step_by(step).chain(self.resident.last()) {
            let _ = write!(text, " {:.0}@{at:.0}", bytes / 1024.0);
        }
        let _ = write!(text, "; under load at most {:.0}\n\n", self.peak / 1024.0);
        for (what, met) in self.bounds() {
            let verdict = match met {
                Some(true) => "met",
                Some(false) => "**broken**",
                None => "not judged: too short",
            };
            let _ = writeln!(text, "- {what}: {verdict}");
        }
        for line in self.tally.shown.iter().chain(&self.complaints) {
            let _ = writeln!(text, "  - {line}");
        }
        text
    }
}

fn row(text: &mut String, name: &str, count: impl Fn(Way) -> Option<u64>) {
    let _ = write!(text, "| {name} |");
    for way in Way::ALL {
        let _ = write!(text, " {} |", count(way).map_or("–".to_owned(), |count| count.to_string()));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(resident: impl Fn(f64) -> f64) -> Findings {
        let mut tally = Tally::default();
        tally.done.insert((Kind::Get, Way::Http1), 5);
        let resident = (0..600).map(f64::from).map(|at| (at, resident(at))).collect();
        Findings {
            duration: Duration::from_secs(600),
            tally,
            descriptors: (9, 9),
            resident,
            peak: 0.0,
            complaints: Vec::new(),
        }
    }

    #[test]
    fn growth_is_that_of_the_last_half_and_single_samples_do_not_count() {
        let filled = |at: f64| if at < 200.0 { at * 1e5 } else { 2e7 };
        assert!(findings(filled).passes());
        let spike = |at: f64| if (500.0..510.0).contains(&at) { 9e7 } else { 2e7 };
        assert!(findings(spike).passes());
        let leaking = findings(|at| 2e7 + at * 1e3);
        assert!((leaking.growth().unwrap() - 0.0146).abs() < 0.0001, "{:?}", leaking.growth());
        assert!(!leaking.passes() && leaking.text().contains("**broken**"));
        let brief = Findings { duration: Duration::from_secs(5), ..leaking };
        assert!(brief.passes() && brief.text().contains("too short"));
    }

    #[test]
    fn each_bound_fails_by_itself() {
        let flat = || findings(|_| 2e7);
        assert!(flat().passes());
        assert!(!Findings { descriptors: (9, 10), ..flat() }.passes());
        assert!(!Findings { complaints: vec!["panicked".to_owned()], ..flat() }.passes());
        assert!(!Findings { tally: Tally { errors: 1, ..flat().tally }, ..flat() }.passes());
        assert!(!Findings { tally: Tally::default(), ..flat() }.passes());
    }
}

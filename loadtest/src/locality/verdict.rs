//! The tables of the experiment about caches, and its targets.

use std::fmt::Write;

use super::{Row, Table};
use crate::contender::Contender;
use crate::drawing::{Bars, Lines};
use crate::experiment::Plan;
use crate::figures::{Figures, milliseconds, part, time};
use crate::proxy::Product;
use crate::target::{Target, at_least, at_most};

/// A bar that is longer than this is cut, in milliseconds.
const LONGEST: f64 = 150.0;

/// What `loadtest cache` demands of cbr.
pub fn targets(table: &Table) -> Vec<Target> {
    let of = |contender: Contender| table.figures(contender);
    let cbr = of(Contender::Cbr);
    let peers = || table.rows.iter().filter(|row| row.contender.product() != Product::Pointsman);
    let hits = |row: &Row| row.figures.as_ref().ok()?.hit_rate;
    let best_peer = peers().filter_map(hits).reduce(f64::max);
    let plain = peers().filter(|row| row.contender.is_plain_hash());
    let plain_p99 = plain.filter_map(|row| row.figures.as_ref().ok()?.p99).min().map(milliseconds);
    let hit_rate = cbr.and_then(|figures| figures.hit_rate);
    let after = cbr.and_then(|figures| figures.hit_rate_after);
    let mut all = vec![at_least(
        "hit rate of cbr, at least that of the best peer − 1 point",
        hit_rate,
        best_peer.map(|best| best - 0.01),
    )];
    if (table.exponent - 1.0).abs() < 1e-9 {
        let rr = of(Contender::Rr).and_then(|figures| figures.hit_rate);
        all.push(at_least("hit rate of cbr, at least that of rr + 15 points", hit_rate, rr.map(|rr| rr + 0.15)));
    }
    all.push(at_most(
        "p99 of cbr, at most 0.7 of that of a plain hash (the better peer's), ms",
        cbr.and_then(|figures| figures.p99).map(milliseconds),
        plain_p99.map(|p99| 0.7 * p99),
    ));
    all.push(at_most("most work of a server over the mean, cbr", cbr.map(|figures| figures.work_spread), Some(1.1)));
    let cost = hit_rate.zip(after).map(|(before, after)| before - after);
    all.push(at_most("hit rate that the failure of a server costs, cbr", cost, Some(0.05)));
    all
}

/// A row in a line, while others are still to come.
pub fn brief(row: &Row) -> String {
    match &row.figures {
        Ok(figures) => format!(
            "{}: hit rate {}, p99 {} ms, max÷mean {:.2}, after the failure {}, {} failed, {} not sent, late {}",
            row.contender.name(),
            part(figures.hit_rate),
            time(figures.p99),
            figures.work_spread,
            part(figures.hit_rate_after),
            figures.failed,
            figures.not_sent,
            time(figures.late)
        ),
        Err(failure) => format!("{}: {}", row.contender.name(), failure.brief()),
    }
}

impl Table {
    fn figures(&self, contender: Contender) -> Option<&Figures> {
        self.rows.iter().find(|row| row.contender == contender)?.figures.as_ref().ok()
    }

    /// The table as Markdown.
    pub fn text(&self) -> String {
        let mut text = format!(
            "\n## α = {:?}\n\n- {:.0} requests a second; in the long run an LRU cache hits {:.3} with the size of one server's, {:.3} with that \
             of all together\n{}\n",
            self.exponent,
            self.rate,
            self.expected.0,
            self.expected.1,
            self.busy.says()
        );
        let late = self.rows.iter().filter_map(|row| row.figures.as_ref().ok()?.late).max();
        let _ = writeln!(text, "- 99 % of the requests were sent at most {} ms late\n", time(late));
        text.push_str(
            "| scheduler | hit rate | p50 ms | p99 ms | max÷mean work | max÷mean requests | hit rate 10 s after the failure | points lost | \
             failed | not sent |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for row in &self.rows {
            let Ok(figures) = &row.figures else { continue };
            let lost = figures.hit_rate.zip(figures.hit_rate_after).map(|(before, after)| (before - after) * 100.0);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {:.2} | {:.2} | {} | {} | {} | {} |",
                row.contender.name(),
                part(figures.hit_rate),
                time(figures.p50),
                time(figures.p99),
                figures.work_spread,
                figures.request_spread,
                part(figures.hit_rate_after),
                lost.map_or("–".to_owned(), |lost| format!("{lost:.1}")),
                figures.failed,
                figures.not_sent,
            );
        }
        for row in &self.rows {
            if let Err(failure) = &row.figures {
                let why = failure.brief();
                let _ = write!(text, "\n- {} could not be measured: {why}\n", row.contender.name());
            }
        }
        text
    }

    /// The pictures, by the names of their files.
    pub fn pictures(&self, plan: Plan) -> Vec<(String, String)> {
        let measured = || self.rows.iter().filter_map(|row| Some((row, row.figures.as_ref().ok()?)));
        let events = vec![
            (plan.steady().start.as_secs_f64(), "counted from here".to_owned()),
            (plan.outage().start.as_secs_f64(), "killed".to_owned()),
            (plan.outage().end.as_secs_f64(), "back".to_owned()),
        ];
        let lines = Lines {
            title: format!("Hit rate by time, α = {:?}", self.exponent),
            unit: "part of all answers".to_owned(),
            lines: measured().map(|(row, _)| (row.contender.name().to_owned(), row.line.clone())).collect(),
            events,
            range: (0.4, 1.0),
        };
        let latencies = |figures: &Figures| vec![figures.p50.map(milliseconds), figures.p99.map(milliseconds)];
        let bars = Bars {
            title: format!("Latency from the intended time, ms, α = {:?}", self.exponent),
            kinds: vec!["p50".to_owned(), "p99".to_owned()],
            rows: measured().map(|(row, figures)| (row.contender.name().to_owned(), latencies(figures))).collect(),
            most: LONGEST,
        };
        vec![
            (format!("cache-{:?}-hits.svg", self.exponent), lines.svg()),
            (format!("cache-{:?}-latency.svg", self.exponent), bars.svg()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::Busy;
    use crate::failure::Failure;
    use crate::target;

    fn row(contender: Contender, hit_rate: f64, p99: u64, work_spread: f64, after: f64) -> Row {
        let figures = Figures {
            hit_rate: Some(hit_rate),
            p50: Some(Duration::from_millis(1)),
            p99: Some(Duration::from_millis(p99)),
            mean: None,
            work_spread,
            request_spread: 1.0,
            hit_rate_after: Some(after),
            failed: 0,
            not_sent: 0,
            late: None,
        };
        Row { contender, figures: Ok(figures), line: Vec::new() }
    }

    fn table(exponent: f64, cbr: Row) -> Table {
        let rows = vec![
            row(Contender::Rr, 0.60, 90, 1.0, 0.6),
            row(Contender::NginxHash, 0.80, 40, 1.2, 0.7),
            row(Contender::HaproxyUri, 0.79, 50, 1.2, 0.7),
            row(Contender::HaproxyBounded, 0.81, 20, 1.2, 0.7),
            cbr,
        ];
        Table { exponent, rate: 1.0, expected: (0.6, 0.8), rows, busy: Busy::default() }
    }

    #[test]
    fn each_target_is_met_at_its_bound_and_missed_beyond() {
        let met = |exponent, cbr| -> Vec<bool> {
            targets(&table(exponent, cbr)).iter().filter_map(|target| target.met).collect()
        };
        assert_eq!(met(1.0, row(Contender::Cbr, 0.801, 27, 1.1, 0.752)), [true; 5]);
        assert_eq!(met(1.0, row(Contender::Cbr, 0.799, 27, 1.1, 0.75)), [false, true, true, true, true]);
        assert_eq!(met(1.0, row(Contender::Cbr, 0.74, 27, 1.1, 0.74)), [false, false, true, true, true]);
        assert_eq!(met(1.0, row(Contender::Cbr, 0.82, 29, 1.11, 0.76)), [true, true, false, false, false]);
        // The bound of a plain hash is that of the better one without a bound on its load.
        assert_eq!(met(0.9, row(Contender::Cbr, 0.801, 27, 1.1, 0.752)), [true; 4]);
    }

    #[test]
    fn without_cbr_nothing_is_judged_but_everything_is_said() {
        let missing = Row {
            contender: Contender::Cbr,
            figures: Err(Failure::new("`cbr` is not\nsupported yet")),
            line: Vec::new(),
        };
        let table = table(1.0, missing);
        let targets = targets(&table);
        assert!(targets.iter().all(|target| target.met.is_none()));
        assert!(target::text(&targets).contains("not judged"));
        assert!(table.text().contains("- Pointsman cbr could not be measured: `cbr` is not supported yet"));
        assert!(table.text().contains("| Pointsman rr | 0.600 | 1.0 | 90.0 | 1.00 | 1.00 | 0.600 | 0.0 | 0 | 0 |"));
    }
}

//! Servers of unlike speeds that nobody has told the proxy of, and work of which a few requests make up much: who sees what a server
//! can do?
//!
//! A server works on all that it has at once, like a processor. All weights are the same, since that is what is asked: what a scheduler
//! finds out by itself. Every contender gets the same jobs at the same times.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::catalogue::Ask;
use crate::contender::{Contender, Pool};
use crate::drawing::{self, Bars};
use crate::experiment::{Busy, Ground, Plan, Scene};
use crate::failure::Outcome;
use crate::farm::{Station, Stations};
use crate::figures::{self, Figures, milliseconds, time};
use crate::law::BoundedPareto;
use crate::locality;
use crate::open_loop::Arrival;
use crate::station::Sharing;
use crate::statistics::Numbers;
use crate::target::{self, Target, at_most};

/// The speeds of the servers.
const SPEEDS: [f64; 8] = [4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0];
/// A mean job on a server of speed 1.
const MEAN: Duration = Duration::from_millis(10);
/// Jobs follow the Pareto law of this shape, and the largest is so many times the smallest.
const SHAPE: f64 = 1.5;
const RATIO: f64 = 1_000.0;
/// How much of what all servers can do is asked of them.
const LOADS: [f64; 2] = [0.7, 0.85];
/// A bar that is longer is cut, in milliseconds.
const LONGEST: f64 = 600.0;

/// What is measured.
pub struct Uneven {
    /// Who.
    pub contenders: Vec<Contender>,
    /// Where everything drawn by lot begins.
    pub seed: u64,
    /// What happens when; nothing dies.
    pub plan: Plan,
}

/// One contender.
struct Row {
    contender: Contender,
    /// The figures, and what part of the requests each server got; or why there are none.
    seen: Outcome<(Figures, Vec<f64>)>,
}

impl Uneven {
    /// Runs everything; the report, and whether no target was missed. Pictures are written to `folder`.
    pub fn run(&self, ground: &mut Ground, folder: &Path, mut say: impl FnMut(String)) -> Outcome<(String, bool)> {
        let law = BoundedPareto::with_mean(MEAN, SHAPE, RATIO);
        let speeds: Vec<String> = SPEEDS.iter().map(|speed| format!("{speed:.0}")).collect();
        let mut text = format!(
            "\n- servers of the speeds {}, all of the same weight; jobs of {MEAN:?} in the mean at speed 1, bounded Pareto of shape {SHAPE}, \
             the largest {RATIO} times the smallest\n- seed {}; {:?} of warm-up, {:?} that count\n",
            speeds.join(", "),
            self.seed,
            self.plan.warm_up,
            self.plan.steady
        );
        let mut passed = true;
        for load in LOADS {
            let rate = load * SPEEDS.iter().sum::<f64>() / MEAN.as_secs_f64();
            let draw = |numbers: &mut Numbers| Ask::Work(law.draw(numbers));
            let arrivals = locality::arrivals(rate, self.plan.end(), &mut Numbers::new(self.seed), draw);
            let mut busy = Busy::default();
            let mut rows = Vec::new();
            for contender in &self.contenders {
                let row = self.measure(*contender, &arrivals, ground, &mut busy)?;
                say(format!("load {load}, {}", row.line()));
                rows.push(row);
            }
            let _ =
                write!(text, "\n## Load {load}: {rate:.0} requests a second\n\n{}\n\n{}", busy.says(), table(&rows));
            let targets = targets(&rows);
            text.push_str(&target::text(&targets));
            passed &= target::none_is_missed(&targets);
            drawing::write(folder, &format!("uneven-{load}.svg"), &picture(load, &rows))?;
        }
        Ok((text, passed))
    }

    fn measure(
        &self,
        contender: Contender,
        arrivals: &[Arrival],
        ground: &mut Ground,
        busy: &mut Busy,
    ) -> Outcome<Row> {
        let servers = SPEEDS.len();
        let pools = [Pool::of_all(servers, contender)];
        let scene = Scene { pools: &pools, servers, arrivals, plan: self.plan, victim: None };
        let run = ground.run(&scene, computing());
        // An interruption is not the contender's failure.
        crate::clock::go_on()?;
        let seen = run.map(|run| {
            *busy = busy.most(run.busy);
            (Figures::of(&run.exchanges, self.plan, servers), figures::shares(&run.exchanges, self.plan, servers))
        });
        Ok(Row { contender, seen })
    }
}

fn computing() -> Stations {
    Box::new(|number| Station::Sharing(Sharing::new(SPEEDS.get(number).copied().unwrap_or(1.0))))
}

impl Row {
    fn p99(&self) -> Option<f64> {
        self.seen.as_ref().ok()?.0.p99.map(milliseconds)
    }

    /// The row of the table.
    fn line(&self) -> String {
        let name = self.contender.name();
        let (figures, shares) = match &self.seen {
            Ok(seen) => seen,
            Err(failure) => {
                return format!("| {name} | not measured: {} | | | | | |", failure.brief());
            }
        };
        let part = |speed: f64| {
            let some = shares.iter().zip(SPEEDS).filter(|(_, found)| (found - speed).abs() < f64::EPSILON);
            format!("{:.0} %", some.map(|(share, _)| share).sum::<f64>() * 100.0)
        };
        format!(
            "| {name} | {} | {} | {} | {}, {}, {} | {} | {} |",
            time(figures.p50),
            time(figures.mean),
            time(figures.p99),
            part(4.0),
            part(2.0),
            part(1.0),
            figures.failed + figures.not_sent,
            time(figures.late)
        )
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = "| scheduler | p50 ms | mean ms | p99 ms | requests to speeds 4, 2, 1 | failed or not sent | sent late, p99 ms |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for row in rows {
        let _ = writeln!(text, "{}", row.line());
    }
    text
}

/// The p99 of fb-wlc is at most that of each other contender.
fn targets(rows: &[Row]) -> Vec<Target> {
    let of = |wanted| rows.iter().find(|row| row.contender == wanted).and_then(Row::p99);
    let others = rows.iter().filter(|row| row.contender != Contender::FbWlc);
    let target = |row: &Row| {
        let what = format!("p99 of fb-wlc, at most that of {}, ms", row.contender.name());
        at_most(&what, of(Contender::FbWlc), row.p99())
    };
    others.map(target).collect()
}

fn picture(load: f64, rows: &[Row]) -> String {
    let latencies =
        |figures: &Figures| [figures.p50, figures.mean, figures.p99].map(|time| time.map(milliseconds)).to_vec();
    let row = |row: &Row| Some((row.contender.name().to_owned(), latencies(&row.seen.as_ref().ok()?.0)));
    let bars = Bars {
        title: format!("Latency from the intended time, ms, load {load}"),
        kinds: ["p50", "mean", "p99"].map(ToOwned::to_owned).to_vec(),
        rows: rows.iter().filter_map(row).collect(),
        most: LONGEST,
    };
    bars.svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    fn row(contender: Contender, p99: u64) -> Row {
        let figures = Figures {
            hit_rate: None,
            p50: Some(Duration::from_millis(5)),
            p99: Some(Duration::from_millis(p99)),
            mean: Some(Duration::from_millis(8)),
            work_spread: 1.0,
            request_spread: 1.0,
            hit_rate_after: None,
            failed: 1,
            not_sent: 2,
            late: Some(Duration::from_micros(100)),
        };
        Row { contender, seen: Ok((figures, vec![0.2, 0.3, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05])) }
    }

    #[test]
    fn fb_wlc_is_held_against_everybody_else_and_missing_rows_are_said() {
        let rows = [
            row(Contender::Wlc, 90),
            row(Contender::FbWlc, 80),
            row(Contender::NginxLeastConn, 79),
            Row { contender: Contender::HaproxyLeastconn, seen: Err(Failure::new("no\nstart")) },
        ];
        let met: Vec<Option<bool>> = targets(&rows).iter().map(|target| target.met).collect();
        assert_eq!(met, [Some(true), Some(false), None]);
        let text = table(&rows);
        assert!(text.contains("| Pointsman fb-wlc | 5.0 | 8.0 | 80.0 | 50 %, 20 %, 30 % | 3 | 0.1 |"), "{text}");
        assert!(text.contains("| HAProxy leastconn | not measured: no start |"), "{text}");
    }
}

//! Whether feedback keeps servers even. Three servers compute, each with a bounded part of a processor (a control group); 120 clients ask and
//! think; one request of twenty costs fifty times as much as the others. Who is overloaded, and for how long?
//!
//! The parts are those of the dynamic-feedback paper and some more: equal servers, servers of the speeds 4, 2 and 1, a light load, and
//! bursts of rising size. All who are compared get the same clients with the same draws. Loads are what agents beside the servers measure.

use std::path::Path;
use std::time::Duration;

use crate::catalogue::Ask;
use crate::clock;
use crate::drawing::{self, Lines};
use crate::experiment::Ground;
use crate::failure::Outcome;
use crate::proxy::Product;
use crate::rival::Rival;
use crate::statistics::Numbers;
use crate::target;

mod part;
mod verdict;

pub use part::Part;
use part::Seen;

/// How many servers there are, and all their parts of a processor together, in cores.
pub const SERVERS: usize = 3;
const CORES: f64 = 0.75;
/// What the cheap requests cost, and by how much the others cost more.
const CHEAP: Duration = Duration::from_micros(500);
const DEARER: u32 = 50;
/// One request in so many is dear.
const ONE_IN: usize = 20;
/// Clients, and how long one thinks: with all of them servers are busy for 60 % of the time.
const CLIENTS: usize = 120;
const THINKING: Duration = Duration::from_millis(440);
/// A light load.
const FEW: usize = 12;
const THINKING_LIGHTLY: Duration = Duration::from_millis(100);
/// A server that is loaded more than this is overloaded.
pub const LIMIT: f64 = 0.7;

/// Who is compared.
pub const RIVALS: [Rival; 5] = [
    Rival::pointsman("wlc", "Pointsman wlc", "    scheduler \"wlc\"").without_agents(),
    Rival::pointsman(
        "classic",
        "Pointsman, feedback \"classic\"",
        "    scheduler \"wlc\"\n    feedback \"classic\" preset=\"web\"",
    )
    .with_classic_agents(),
    Rival::pointsman(
        "capacity",
        "Pointsman, feedback \"capacity\"",
        "    scheduler \"fb-wlc\"\n    feedback \"capacity\"",
    ),
    Rival::peer("nginx", "nginx least_conn", Product::Nginx, "untuned").as_it_comes(),
    Rival::peer("haproxy", "HAProxy leastconn", Product::Haproxy, "untuned").as_it_comes(),
];

/// What is measured.
pub struct Feedback {
    /// Who.
    pub rivals: Vec<Rival>,
    /// How long the parts with 120 clients take.
    pub duration: Duration,
    /// How large bursts are, and how often each comes.
    pub bursts: Vec<usize>,
    pub repeats: usize,
    /// Where everything drawn by lot begins.
    pub seed: u64,
}

/// One contender in all parts.
struct Row {
    rival: Rival,
    parts: Vec<(Part, Outcome<Seen>)>,
    /// The mean response time of each burst.
    bursts: Outcome<Vec<Duration>>,
}

impl Row {
    fn seen(&self, part: Part) -> Option<&Seen> {
        self.parts.iter().find(|(found, _)| *found == part)?.1.as_ref().ok()
    }
}

impl Feedback {
    /// Runs everything; the report, and whether no target was missed. Pictures are written to `folder`.
    pub fn run(&self, ground: &mut Ground, folder: &Path, mut say: impl FnMut(String)) -> Outcome<(String, bool)> {
        let mut rows = Vec::new();
        for rival in &self.rivals {
            let mut row = Row { rival: *rival, parts: Vec::new(), bursts: Ok(Vec::new()) };
            for part in Part::ALL {
                let seen = part.measure(rival, self.duration, self.seed, ground);
                clock::go_on()?;
                say(format!("{}: {}", part.title(), verdict::line(rival, &seen)));
                row.parts.push((part, seen));
            }
            row.bursts = part::bursts(rival, &self.bursts, self.repeats, self.seed, ground);
            clock::go_on()?;
            say(format!("bursts: {}", verdict::burst_line(rival, &row.bursts, self.bursts.len())));
            self.draw(&row, folder)?;
            rows.push(row);
        }
        let targets = verdict::targets(&rows, &self.bursts);
        let text = self.heading(&rows) + &verdict::text(&rows, &self.bursts) + &target::text(&targets);
        Ok((text, target::none_is_missed(&targets)))
    }

    fn heading(&self, rows: &[Row]) -> String {
        let mut seen = rows.iter().flat_map(|row| &row.parts).filter_map(|(_, seen)| seen.as_ref().ok());
        let by_agents = if seen.all(|seen| seen.is_by_agents) {
            "loads are what an agent beside each server measures"
        } else {
            "**there was no agent: loads are read from /proc by this program**"
        };
        format!(
            "\n- {SERVERS} servers that compute, with {CORES} cores together; {CLIENTS} clients; {CHEAP:?} of a processor a request, one in \
             {ONE_IN} costs {DEARER} times as much; {:?} a part; seed {}\n- {by_agents}; overloaded: above {:.0} %\n",
            self.duration,
            self.seed,
            LIMIT * 100.0
        )
    }

    fn draw(&self, row: &Row, folder: &Path) -> Outcome<()> {
        for part in [Part::Equal, Part::Uneven] {
            let Some(seen) = row.seen(part) else { continue };
            let lines = Lines {
                title: format!("{}, {}: load of the servers", row.rival.name, part.title()),
                unit: "0 to 1".to_owned(),
                lines: seen.lines.iter().enumerate().map(|(at, line)| (format!("s{}", at + 1), line.clone())).collect(),
                events: Vec::new(),
                range: (0.0, 1.0),
            };
            let name = format!("feedback-{}-{}.svg", row.rival.key, part.key());
            drawing::write(folder, &name, &lines.svg())?;
        }
        Ok(())
    }
}

/// One in twenty is dear.
fn draw(numbers: &mut Numbers) -> Ask {
    Ask::Work(if numbers.below(ONE_IN) == 0 { CHEAP * DEARER } else { CHEAP })
}

/// All are cheap.
fn draw_cheap(_: &mut Numbers) -> Ask {
    Ask::Work(CHEAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_twenty_is_dear_and_all_together_load_servers_to_sixty_percent() {
        let mut numbers = Numbers::new(1);
        let work: Vec<f64> = (0..20_000)
            .map(|_| match draw(&mut numbers) {
                Ask::Work(work) => work.as_secs_f64(),
                Ask::Item { .. } | Ask::Ping => 0.0,
            })
            .collect();
        let mean = work.iter().sum::<f64>() / 20_000.0;
        let expected = CHEAP.as_secs_f64() * (0.95 + 0.05 * f64::from(DEARER));
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean}");
        // With 20 ms for an answer.
        let load = 120.0 / (THINKING.as_secs_f64() + 0.02) * expected / CORES;
        assert!((0.55..0.65).contains(&load), "{load}");
    }
}

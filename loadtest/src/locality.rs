//! Where requests for the same content go: servers with caches far too small for everything, content asked for by Zipf's law, and a
//! server that dies. Every contender gets the same requests at the same times.
//!
//! The rate is told as a part of what the servers could do if every key had one home, so that runs of other sizes are alike.

use std::path::Path;
use std::time::Duration;

use crate::catalogue::{Ask, Kind};
use crate::contender::{Contender, Pool};
use crate::drawing;
use crate::experiment::{Busy, Ground, Plan, Scene};
use crate::failure::Outcome;
use crate::farm::{Station, Stations};
use crate::figures::{self, Figures};
use crate::law::{self, Zipf};
use crate::open_loop::Arrival;
use crate::statistics::Numbers;
use crate::target;

mod mixed;
mod verdict;

pub use mixed::Mixed;

/// How many servers there are.
const SERVERS: usize = 8;
/// How many requests a server works on at a time.
const SLOTS: usize = 1;
/// A cache holds one key of so many.
const KEYS_PER_ENTRY: usize = 20;

/// What is measured.
pub struct Locality {
    /// Who.
    pub contenders: Vec<Contender>,
    /// The exponents of Zipf's law.
    pub exponents: Vec<f64>,
    /// How many keys there are.
    pub keys: usize,
    /// The rate, as a part of what the servers could do if every key had one home.
    pub load: f64,
    /// Where everything drawn by lot begins.
    pub seed: u64,
    /// What happens when.
    pub plan: Plan,
}

/// One contender with one exponent.
pub struct Row {
    /// Who.
    pub contender: Contender,
    /// The figures, or why there are none.
    pub figures: Outcome<Figures>,
    /// The hit rate by time.
    pub line: Vec<(f64, f64)>,
}

/// All contenders with one exponent.
pub struct Table {
    /// The exponent.
    pub exponent: f64,
    /// Requests a second.
    pub rate: f64,
    /// The hit rate of an LRU cache as large as one server's, and as all together: what no placement and a perfect one come to.
    pub expected: (f64, f64),
    /// By contender.
    pub rows: Vec<Row>,
    /// How busy the machine was at most.
    pub busy: Busy,
}

impl Locality {
    /// Runs everything; `say` gets a line of progress for each row.
    pub fn run(&self, ground: &mut Ground, mut say: impl FnMut(String)) -> Outcome<Vec<Table>> {
        self.exponents.iter().map(|exponent| self.table(*exponent, ground, &mut say)).collect()
    }

    fn table(&self, exponent: f64, ground: &mut Ground, say: &mut impl FnMut(String)) -> Outcome<Table> {
        let zipf = Zipf::new(self.keys, exponent);
        let shares: Vec<f64> = zipf.shares().collect();
        let expected = law::expected_hits(&shares, self.entries());
        let ideal = law::expected_hits(&shares, self.entries() * SERVERS);
        let rate = self.load * capacity(Kind::Object, ideal);
        let arrivals = self.arrivals(&zipf, rate);
        let mut table = Table { exponent, rate, expected: (expected, ideal), rows: Vec::new(), busy: Busy::default() };
        for contender in &self.contenders {
            let row = match self.measure(*contender, &arrivals, ground) {
                Ok((row, busy)) => {
                    table.busy = table.busy.most(busy);
                    row
                }
                Err(failure) => {
                    crate::clock::go_on()?;
                    Row { contender: *contender, figures: Err(failure), line: Vec::new() }
                }
            };
            say(format!("α {exponent:?}, {}", verdict::brief(&row)));
            table.rows.push(row);
        }
        Ok(table)
    }

    fn entries(&self) -> usize {
        self.keys / KEYS_PER_ENTRY
    }

    fn arrivals(&self, zipf: &Zipf, rate: f64) -> Vec<Arrival> {
        let mut numbers = Numbers::new(self.seed);
        let item = |number| Ask::Item { kind: Kind::Object, number, salt: salt(self.seed) };
        arrivals(rate, self.plan.end(), &mut numbers, |numbers| item(number(zipf.draw(numbers))))
    }

    fn measure(&self, contender: Contender, arrivals: &[Arrival], ground: &mut Ground) -> Outcome<(Row, Busy)> {
        let pools = [Pool::of_all(SERVERS, contender)];
        let victim = usize::try_from(self.seed % SERVERS as u64).unwrap_or(0);
        let scene = Scene { pools: &pools, servers: SERVERS, arrivals, plan: self.plan, victim: Some(victim) };
        let run = ground.run(&scene, caching(self.entries()))?;
        let figures = Figures::of(&run.exchanges, self.plan, SERVERS);
        let line = figures::hit_rates(&run.exchanges, self.plan.end());
        Ok((Row { contender, figures: Ok(figures), line }, run.busy))
    }

    /// The report, and whether no target was missed. Pictures are written to `folder`.
    pub fn report(&self, tables: &[Table], folder: &Path) -> Outcome<(String, bool)> {
        let mut text = format!(
            "\n- {SERVERS} servers with {SLOTS} slot and an LRU cache of {} of {} keys each; a hit is 1 ms of work and a miss 10 ms\n\
             - seed {}; {:?} of warm-up, {:?} that count, {:?} without server s{}, {:?} with it back\n",
            self.entries(),
            self.keys,
            self.seed,
            self.plan.warm_up,
            self.plan.steady,
            self.plan.down,
            self.seed % SERVERS as u64 + 1,
            self.plan.back
        );
        let mut passed = true;
        for table in tables {
            text.push_str(&table.text());
            let targets = verdict::targets(table);
            text.push_str(&target::text(&targets));
            passed &= target::none_is_missed(&targets);
            for (name, picture) in table.pictures(self.plan) {
                drawing::write(folder, &name, &picture)?;
            }
        }
        Ok((text, passed))
    }
}

/// Servers with caches of `entries` entries.
fn caching(entries: usize) -> Stations {
    Box::new(move |_| Station::Caching(crate::station::Caching::new(SLOTS, entries)))
}

/// Requests a second that all servers can answer with this hit rate.
#[allow(clippy::cast_precision_loss, reason = "eight servers")]
fn capacity(kind: Kind, hit_rate: f64) -> f64 {
    let (hit, miss) = kind.work();
    let work = hit.as_secs_f64() * hit_rate + miss.as_secs_f64() * (1.0 - hit_rate);
    (SERVERS * SLOTS) as f64 / work
}

/// A Poisson process of `rate` requests a second until `end`; `draw` says what each asks for.
pub fn arrivals(
    rate: f64,
    end: Duration,
    numbers: &mut Numbers,
    mut draw: impl FnMut(&mut Numbers) -> Ask,
) -> Vec<Arrival> {
    let mut all = Vec::new();
    let mut at = law::spacing(rate, numbers);
    while at < end {
        all.push(Arrival { at, ask: draw(numbers) });
        at += law::spacing(rate, numbers);
    }
    all
}

/// What makes the names of one seed other ones than those of another, so that hashes fall otherwise.
#[allow(clippy::cast_possible_truncation, reason = "the low bits are what differs")]
fn salt(seed: u64) -> u32 {
    seed as u32
}

/// A place among keys as the number of a key.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_in_order_at_the_rate_and_the_same_for_the_same_seed() {
        let make = |seed| {
            arrivals(1_000.0, Duration::from_secs(20), &mut Numbers::new(seed), |numbers| Ask::Item {
                kind: Kind::Object,
                number: number(numbers.below(10)),
                salt: 1,
            })
        };
        let all = make(5);
        assert!((19_400..20_600).contains(&all.len()), "{}", all.len());
        assert!(all.is_sorted_by_key(|arrival| arrival.at) && all.last().unwrap().at < Duration::from_secs(20));
        assert!(all == make(5) && all != make(6));
    }
}

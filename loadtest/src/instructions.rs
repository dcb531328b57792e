//! User instructions a request, counted by callgrind.
//!
//! A proxy is run twice with different numbers of requests; the difference of the totals over the difference of the numbers is free of
//! start, warm-up and end. It repeats far better than time does, so it is the number that changes are held against.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::load::{Load, Protocol, Source};
use crate::proxy::{Product, Proxy, Setting, Variant};
use crate::row::Row;
use crate::site::Site;

/// The most instructions a request that Pointsman may use over HTTP/1.1; over HTTP/2 they are only watched.
pub const GATE: f64 = 10_000.0;
/// Two measurements must be this near to each other.
const REPEATABLE: f64 = 0.01;

/// What is counted.
pub struct Plan {
    /// Whom.
    pub products: Vec<Product>,
    /// What the clients speak.
    pub protocol: Protocol,
    /// Requests of the short run.
    pub few: u64,
    /// Requests of the long run.
    pub many: u64,
    /// How often.
    pub rounds: u32,
    /// Where callgrind's file of the subject's long run goes.
    pub keep: Option<PathBuf>,
}

/// Instructions a request, one figure a round.
pub struct Counted {
    /// Who.
    pub product: Product,
    /// What the clients spoke.
    pub protocol: Protocol,
    /// The figures.
    pub rounds: Vec<f64>,
}

impl Counted {
    fn mean(&self) -> f64 {
        self.rounds.iter().sum::<f64>() / figure(self.rounds.len() as u64).max(1.0)
    }

    /// The difference of the most and the least, as a part of the mean.
    fn spread(&self) -> f64 {
        let least = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rounds.iter().copied().fold(0.0, f64::max);
        (most - least) / self.mean()
    }

    fn gate(&self) -> Option<f64> {
        (self.product == Product::Pointsman && self.protocol == Protocol::H1).then_some(GATE)
    }

    /// Whether it may stay as it is: repeatable, and for Pointsman within the gate.
    pub fn passes(&self) -> bool {
        self.spread() < REPEATABLE && self.gate().is_none_or(|gate| self.mean() <= gate)
    }
}

impl Plan {
    /// Counts for all products.
    pub fn run(
        &self,
        setting: &Setting,
        site: &mut Site,
        cores: &str,
        mut say: impl FnMut(String),
    ) -> Outcome<Vec<Counted>> {
        if self.few >= self.many {
            return Err(Failure::new("the long run must have more requests than the short one"));
        }
        let mut all = Vec::new();
        for product in &self.products {
            let mut rounds = Vec::new();
            for round in 1..=self.rounds {
                let few = self.total(*product, self.few, setting, site, cores)?;
                let many = self.total(*product, self.many, setting, site, cores)?;
                let each = figure(many.saturating_sub(few)) / figure(self.many - self.few);
                say(format!("{}, round {round}: {each:.0}", product.name()));
                rounds.push(each);
            }
            all.push(Counted { product: *product, protocol: self.protocol, rounds });
        }
        Ok(all)
    }

    fn total(&self, product: Product, count: u64, setting: &Setting, site: &mut Site, cores: &str) -> Outcome<u64> {
        let row = match self.protocol {
            Protocol::H1 => Row::KeepAlive128,
            Protocol::H2 => Row::H2,
        };
        // Without TLS: its arithmetic would hide what is watched here.
        let load = row.load(Duration::from_secs(1)).map(|load| Load { tls: false, ..load });
        let load = load.ok_or_else(|| Failure::new("a row without a load"))?;
        let file = site.path(&format!("{product:?}.callgrind"));
        let out = format!("--callgrind-out-file={}", file.display());
        let under = ["valgrind", "--quiet", "--tool=callgrind", &out].map(Into::into).to_vec();
        let setting = Setting { under, ..setting.clone() };
        let proxy = Proxy::start(Variant::plain(product), &setting, site)?;
        let counted =
            requests(&proxy, load, count, site, cores).doing(|| format!("{} under callgrind", product.name()));
        counted.and_then(|()| proxy.terminate(Duration::from_secs(60)))?;
        let text = std::fs::read_to_string(&file).doing(|| format!("reading {}", file.display()))?;
        let total = total_of(&text).ok_or_else(|| Failure::new(format!("no totals in {}", file.display())))?;
        if let Some(folder) = self.keep.as_ref().filter(|_| count == self.many) {
            keep(&file, folder)?;
        }
        std::fs::remove_file(&file).doing(|| format!("removing {}", file.display()))?;
        Ok(total)
    }
}

fn requests(proxy: &Proxy, load: Load, count: u64, site: &Site, cores: &str) -> Outcome<()> {
    let source = Source { cores, site, tls: crate::client::tls(Protocol::H1)? };
    source.count(load, proxy.port_for(&load), count)?;
    // Let it see that its clients are gone before it is told to end.
    clock::pause(Duration::from_millis(200))
}

fn keep(file: &Path, folder: &Path) -> Outcome<()> {
    std::fs::create_dir_all(folder).doing(|| format!("making {}", folder.display()))?;
    let name = file.file_name().ok_or_else(|| Failure::new("a file without a name"))?;
    std::fs::copy(file, folder.join(name)).map(drop).doing(|| format!("copying to {}", folder.display()))
}

/// The instructions in a callgrind file: of its `totals` line, or of all its `summary` lines where it has several parts.
fn total_of(text: &str) -> Option<u64> {
    let numbers = |prefix: &'static str| {
        let lines = text.lines().filter_map(move |line| line.strip_prefix(prefix));
        lines.filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok())
    };
    let sum: u64 = numbers("totals:").sum();
    let sum = if sum > 0 { sum } else { numbers("summary:").sum() };
    (sum > 0).then_some(sum)
}

/// The table.
pub fn table(all: &[Counted]) -> String {
    let mut text =
        "| proxy | user instructions a request | spread | at most | met |\n| --- | --- | --- | --- | --- |\n"
            .to_owned();
    for one in all {
        let gate = one.gate().map_or("–".to_owned(), |gate| format!("{gate:.0}"));
        let met = match (one.gate(), one.spread() < REPEATABLE) {
            (_, false) => "**not repeatable**",
            (Some(_), true) if one.passes() => "yes",
            (Some(_), true) => "**no**",
            (None, true) => "–",
        };
        let (name, mean, spread) = (one.product.name(), one.mean(), one.spread() * 100.0);
        text.push_str(&format!("| {name} | {mean:.0} | {spread:.2} % | {gate} | {met} |\n"));
    }
    text
}

#[allow(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn figure(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_from_either_line() {
        assert_eq!(total_of("version: 1\nsummary: 7\nfn=x\ntotals: 12345\n"), Some(12_345));
        assert_eq!(total_of("summary: 7\nsummary: 8\n"), Some(15));
        assert_eq!(total_of("version: 1\n"), None);
    }

    #[test]
    fn the_gate_holds_for_pointsman_alone_and_nothing_passes_that_does_not_repeat() {
        let counted =
            |product, rounds: &[f64]| Counted { product, protocol: Protocol::H1, rounds: rounds.to_vec() }.passes();
        let over_h2 = Counted { product: Product::Pointsman, protocol: Protocol::H2, rounds: vec![10_100.0] };
        assert!(over_h2.passes());
        assert!(counted(Product::Pointsman, &[9_990.0, 10_005.0]));
        assert!(!counted(Product::Pointsman, &[10_100.0, 10_100.0]));
        assert!(counted(Product::Nginx, &[20_600.0, 20_600.0]));
        assert!(!counted(Product::Nginx, &[20_600.0, 21_000.0]));
    }
}

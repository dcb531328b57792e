//! Alternating rounds: each starts every proxy afresh, then measures row by row, everybody in turn, in an order drawn anew.
//!
//! Fresh processes make the luck of a memory layout part of the noise that the interval shows, instead of a bias that it hides.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::accounting::{self, CoreTicks};
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::load::{Load, Protocol, Source};
use crate::proxy::{Product, Proxy, Setting, Variant};
use crate::row::Row;
use crate::site::Site;
use crate::statistics::Numbers;
use crate::wire;

/// How the load is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Offer {
    /// The same rate for all: half of what the slowest can do.
    Equal,
    /// As much as the proxy takes.
    Saturated,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Processor time a request, in microseconds.
    pub cost: f64,
    /// Requests a second.
    pub throughput: f64,
    /// The proxy's core in the middle of the load.
    pub core: CoreTicks,
    /// The proxy's own part of that core then, 0 to 1.
    pub share: f64,
    /// What the kernel's thread for deferred packets used on that core, per request, in microseconds: not part of `cost`.
    pub deferred: f64,
}

/// What is measured, and how.
pub struct Plan {
    /// Which rows.
    pub rows: Vec<Row>,
    /// Which offers.
    pub offers: Vec<Offer>,
    /// Which products.
    pub products: Vec<Product>,
    /// How many rounds.
    pub rounds: u32,
    /// How long each load lasts.
    pub duration: Duration,
}

/// All samples of one row and offer.
pub struct Series {
    /// The row.
    pub row: Row,
    /// The offer.
    pub offer: Offer,
    /// The rate offered; `None` at saturation.
    pub rate: Option<u32>,
    /// By variant: one entry a round, `None` where it could not be measured.
    pub samples: BTreeMap<Variant, Vec<Option<Sample>>>,
    /// Why samples are missing.
    pub troubles: Vec<String>,
}

impl Plan {
    fn variants(&self, row: Row) -> Vec<Variant> {
        self.products.iter().flat_map(|product| row.variants(*product)).collect()
    }

    fn all_variants(&self) -> Vec<Variant> {
        let mut all: Vec<Variant> = self.rows.iter().flat_map(|row| self.variants(*row)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Runs all rounds. `say` gets a line of progress now and then.
    pub fn run(
        &self,
        setting: &Setting,
        site: &mut Site,
        cores: &str,
        mut say: impl FnMut(String),
    ) -> Outcome<Vec<Series>> {
        let tls = crate::client::tls(Protocol::H1)?;
        for variant in self.all_variants() {
            wire::verify(variant, setting, site)?;
        }
        let mut series = Vec::new();
        {
            let proxies = self.start_all(setting, site)?;
            let source = Source { cores, site, tls: tls.clone() };
            for row in &self.rows {
                let rate = self.equal_rate(*row, &source, setting, &proxies)?;
                say(format!("{}: equal rate {rate}/s", row.title()));
                let new = |offer: &Offer| Series {
                    row: *row,
                    offer: *offer,
                    rate: (*offer == Offer::Equal).then_some(rate),
                    samples: BTreeMap::new(),
                    troubles: Vec::new(),
                };
                series.extend(self.offers.iter().map(new));
            }
        }
        let mut numbers = Numbers::new(1);
        for round in 1..=self.rounds {
            let mut proxies = self.start_all(setting, site)?;
            let source = Source { cores, site, tls: tls.clone() };
            for one in &mut series {
                self.measure_all(one, &source, setting, &mut proxies, &mut numbers)?;
            }
            say(format!("round {round} of {}", self.rounds));
        }
        Ok(series)
    }

    fn start_all(&self, setting: &Setting, site: &mut Site) -> Outcome<BTreeMap<Variant, Proxy>> {
        let start = |variant| Ok((variant, Proxy::start(variant, setting, site)?));
        self.all_variants().into_iter().map(start).collect()
    }

    /// Half of what the slowest takes, in two digits.
    fn equal_rate(
        &self,
        row: Row,
        source: &Source<'_>,
        setting: &Setting,
        proxies: &BTreeMap<Variant, Proxy>,
    ) -> Outcome<u32> {
        let load = row.load(self.duration).ok_or_else(|| Failure::new("a row without a load"))?;
        let mut slowest = f64::INFINITY;
        for variant in self.variants(row) {
            let proxy = proxies.get(&variant).ok_or_else(|| Failure::new("a proxy is missing"))?;
            let sample = measure(proxy, load, source, setting.core);
            slowest = slowest.min(sample.doing(|| format!("{} of {}", row.title(), variant.name()))?.throughput);
        }
        Ok(two_digits(slowest / 2.0))
    }

    fn measure_all(
        &self,
        series: &mut Series,
        source: &Source<'_>,
        setting: &Setting,
        proxies: &mut BTreeMap<Variant, Proxy>,
        numbers: &mut Numbers,
    ) -> Outcome<()> {
        let load = series.row.load(self.duration).ok_or_else(|| Failure::new("a row without a load"))?;
        let load = Load { rate: series.rate, ..load };
        let mut order = self.variants(series.row);
        numbers.shuffle(&mut order);
        for variant in order {
            let proxy = proxies.get_mut(&variant).ok_or_else(|| Failure::new("a proxy is missing"))?;
            let sample = proxy.still_runs().and_then(|()| measure(proxy, load, source, setting.core));
            clock::go_on()?;
            if let Err(failure) = &sample {
                series.troubles.push(format!("{}: {failure}", variant.name()));
            }
            series.samples.entry(variant).or_default().push(sample.ok());
        }
        Ok(())
    }
}

/// Warms a proxy up, puts `load` on it, and reads what that cost.
pub fn measure(proxy: &Proxy, load: Load, source: &Source<'_>, core: usize) -> Outcome<Sample> {
    let port = proxy.port_for(&load);
    source.warm_up(load, port).doing(|| "warming up".to_owned())?;
    clock::pause(Duration::from_millis(20))?;
    let deferring = accounting::kernel_thread(&format!("ksoftirqd/{core}"));
    let deferred = || deferring.map_or(Ok(Duration::ZERO), |process| accounting::processor_time(&[process]));
    let (before, deferred_before) = (proxy.processor_time()?, deferred()?);
    let running = source.start(load, port)?;
    clock::pause(load.duration / 4)?;
    let (begin, middle_before, ticks) = (clock::now(), proxy.processor_time()?, accounting::core_ticks(core)?);
    clock::pause(load.duration / 2)?;
    let middle = proxy.processor_time()?.saturating_sub(middle_before);
    let (share, core) =
        (middle.as_secs_f64() / begin.elapsed().as_secs_f64(), accounting::core_ticks(core)?.since(ticks));
    let served = running.finish()?;
    clock::pause(Duration::from_millis(20))?;
    let used = proxy.processor_time()?.saturating_sub(before);
    let deferred = deferred()?.saturating_sub(deferred_before);
    Ok(Sample {
        cost: used.as_secs_f64() * 1e6 / served.requests,
        throughput: served.requests / served.elapsed.as_secs_f64(),
        core,
        share,
        deferred: deferred.as_secs_f64() * 1e6 / served.requests,
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates fit, and `as` saturates")]
fn two_digits(rate: f64) -> u32 {
    let digits = 10_f64.powf(rate.max(1.0).log10().floor() - 1.0).max(1.0);
    ((rate / digits).floor() * digits).max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_rounded_down_to_two_digits() {
        assert_eq!(two_digits(12_999.0), 12_000);
        assert_eq!(two_digits(487.3), 480);
        assert_eq!(two_digits(9.7), 9);
        assert_eq!(two_digits(0.2), 1);
    }
}

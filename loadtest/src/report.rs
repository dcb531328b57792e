//! Samples in, Markdown out. Every figure is printed with what it needs to be believed: the interval, how busy the core was, what failed.

use std::fmt::Write;

use crate::accounting::CoreTicks;
use crate::proxy::{Product, Variant};
use crate::rounds::{Offer, Sample, Series};
use crate::statistics::{self, Ratio};

/// Below this the proxy was not the bottleneck, and the row says so.
const SATURATED: f64 = 0.95;
/// More work of others than this on the proxy's core is mentioned.
const OTHERS: f64 = 0.1;
/// A rate counts as held from here on: the time includes setting up the connections.
const HELD: f64 = 0.9;
/// More packets than this deferred to the kernel's own thread, as a part of the cost, are mentioned.
const DEFERRED: f64 = 0.01;

/// The table of all `series`, `subject` compared with everybody else.
pub fn table(series: &[Series], subject: Product) -> String {
    let mut text = format!(
        "| row | offered | {} µs | beside | its µs | ratio | 95 % | target | met | cores busy |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        subject.name()
    );
    for one in series {
        for peer in one.samples.keys().filter(|variant| variant.product != subject) {
            line(&mut text, one, own(one, subject), *peer);
        }
    }
    let judged = series.iter().flat_map(|one| verdicts(one, subject));
    let (met, missed): (Vec<bool>, Vec<bool>) = judged.partition(|met| *met);
    let _ = writeln!(text, "\nTargets met: {} of {}.", met.len(), met.len() + missed.len());
    for note in doubts(series).into_iter().chain(series.iter().flat_map(notes)) {
        let _ = write!(text, "\n{note}");
    }
    text
}

/// The variant of `subject` that a row is about.
fn own(series: &Series, subject: Product) -> Variant {
    series.row.variants(subject).first().copied().unwrap_or(Variant::plain(subject))
}

/// For each peer with a target, whether it was met.
fn verdicts(series: &Series, subject: Product) -> Vec<bool> {
    let judged = series.samples.keys().filter(|peer| subject == Product::Pointsman && peer.product != subject);
    let met = |peer: &Variant| {
        let target = series.row.target(*peer)?;
        let ratio = statistics::ratio(&pairs(series, *peer, own(series, subject)));
        Some(ratio.is_some_and(|ratio| ratio.low >= target))
    };
    judged.filter_map(met).collect()
}

fn line(text: &mut String, series: &Series, subject: Variant, peer: Variant) {
    let offered = match series.rate {
        Some(rate) => format!("{rate}/s"),
        None => format!("all ({}/s)", throughputs(series, subject, peer)),
    };
    let ratio = statistics::ratio(&pairs(series, peer, subject));
    // Targets are Pointsman's: another subject is shown, not judged.
    let target = series.row.target(peer).filter(|_| subject.product == Product::Pointsman);
    let _ = writeln!(
        text,
        "| {} | {offered} | {} | {} | {} | {} | {} | {} | {} | {} |",
        series.row.title(),
        cost(series, subject),
        peer.name(),
        cost(series, peer),
        ratio.map_or("–".to_owned(), |ratio| format!("{:.2}", ratio.mean)),
        ratio.map_or("–".to_owned(), |ratio| format!("{:.2}–{:.2}", ratio.low, ratio.high)),
        target.map_or("–".to_owned(), |target| format!("{target}")),
        verdict(target, ratio),
        busy(series, subject, peer),
    );
}

fn verdict(target: Option<f64>, ratio: Option<Ratio>) -> &'static str {
    match (target, ratio) {
        (None, _) => "–",
        (Some(target), Some(ratio)) if ratio.low >= target => "yes",
        (Some(_), _) => "**no**",
    }
}

/// Costs of the rounds in which both could be measured.
fn pairs(series: &Series, over: Variant, under: Variant) -> Vec<(f64, f64)> {
    let (Some(over), Some(under)) = (series.samples.get(&over), series.samples.get(&under)) else {
        return Vec::new();
    };
    over.iter().zip(under).filter_map(|(over, under)| Some((over.as_ref()?.cost, under.as_ref()?.cost))).collect()
}

fn of(series: &Series, variant: Variant) -> Vec<Sample> {
    series.samples.get(&variant).into_iter().flatten().flatten().copied().collect()
}

fn median(series: &Series, variant: Variant, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
    statistics::median(&of(series, variant).iter().map(figure).collect::<Vec<_>>())
}

fn cost(series: &Series, variant: Variant) -> String {
    median(series, variant, |sample| sample.cost).map_or("–".to_owned(), |cost| format!("{cost:.1}"))
}

fn throughputs(series: &Series, subject: Variant, peer: Variant) -> String {
    let of = |variant| {
        median(series, variant, |sample| sample.throughput).map_or("–".to_owned(), |rate| format!("{rate:.0}"))
    };
    format!("{}, {}", of(subject), of(peer))
}

fn core_of(series: &Series, variant: Variant) -> f64 {
    of(series, variant).iter().fold(CoreTicks::default(), |sum, sample| sum.plus(sample.core)).busy()
}

/// How busy the core was under each: in all, and with the proxy's own work.
fn busy(series: &Series, subject: Variant, peer: Variant) -> String {
    let of = |variant| {
        let share = median(series, variant, |sample| sample.share).unwrap_or_default();
        format!("{:.0} % ({:.0})", core_of(series, variant) * 100.0, share * 100.0)
    };
    let both = format!("{}, {}", of(subject), of(peer));
    let idle = |variant: &Variant| core_of(series, *variant) < SATURATED;
    match series.offer {
        Offer::Saturated if [subject, peer].iter().any(idle) => format!("{both} **not saturated**"),
        Offer::Saturated | Offer::Equal => both,
    }
}

/// What a reader must know of the whole table: one line for each kind of doubt.
fn doubts(all: &[Series]) -> Vec<String> {
    let columns: Vec<(&Series, Variant)> =
        all.iter().flat_map(|one| one.samples.keys().map(move |variant| (one, *variant))).collect();
    let worst = |figure: &dyn Fn(&Series, Variant) -> Option<f64>, limit: f64| {
        let found: Vec<f64> = columns.iter().filter_map(|(one, variant)| figure(one, *variant)).collect();
        let above = found.iter().filter(|value| **value > limit).count();
        let most = found.iter().copied().fold(0.0, f64::max) * 100.0;
        (above > 0).then(|| format!("in {above} of {} columns, {most:.0} % at worst", found.len()))
    };
    let others = |one: &Series, variant| Some(core_of(one, variant) - median(one, variant, |sample| sample.share)?);
    let deferred = |one: &Series, variant| median(one, variant, |sample| sample.deferred / sample.cost);
    let others = worst(&others, OTHERS).map(|text| format!("- **doubtful**: other work on the proxy's core {text}."));
    let deferred = worst(&deferred, DEFERRED).map(|text| {
        format!("- packets that the kernel deferred to its own thread are not counted: beside the cost they were more than 1 % {text}.")
    });
    others.into_iter().chain(deferred).collect()
}

/// What a reader of the rows must know beside them.
fn notes(series: &Series) -> Vec<String> {
    let mut notes = Vec::new();
    let title = series.row.title();
    for product in Product::ALL {
        if let Some(obstacle) = series.row.obstacle(product).filter(|_| series.offer == Offer::Saturated) {
            notes.push(format!("- {title}: without {}, {obstacle}.", product.name()));
        }
    }
    for variant in series.samples.keys() {
        let missing = series.samples.get(variant).map_or(0, |all| all.iter().filter(|sample| sample.is_none()).count());
        if missing > 0 {
            let name = variant.name();
            notes.push(format!("- {title}, {:?}: {name} could not be measured in {missing} rounds.", series.offer));
        }
        if let (Some(rate), Some(held)) = (series.rate, median(series, *variant, |sample| sample.throughput))
            && held < f64::from(rate) * HELD
        {
            notes.push(format!("- {title}: the rate of {rate}/s was not held with {}: {held:.0}/s.", variant.name()));
        }
    }
    if let Some(trouble) = series.troubles.first() {
        notes.push(format!(
            "- {title}, {:?}: {} measurements failed, the first: {trouble}",
            series.offer,
            series.troubles.len()
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::row::Row;

    fn sample(cost: f64, idle: u64) -> Option<Sample> {
        let core = CoreTicks { idle, all: 100 };
        Some(Sample { cost, throughput: 1_000.0, core, share: core.busy(), deferred: 0.0 })
    }

    fn series(ours: Vec<Option<Sample>>, nginx: Vec<Option<Sample>>) -> Series {
        let samples =
            BTreeMap::from([(Variant::plain(Product::Pointsman), ours), (Variant::plain(Product::Nginx), nginx)]);
        Series { row: Row::KeepAlive128, offer: Offer::Saturated, rate: None, samples, troubles: Vec::new() }
    }

    #[test]
    fn the_lower_bound_decides_and_an_idle_core_is_told() {
        let good = table(&[series(vec![sample(10.0, 1); 5], vec![sample(13.0, 1); 5])], Product::Pointsman);
        assert!(good.contains("| 1.30 | 1.30–1.30 | 1.25 | yes |") && good.contains("1 of 1"), "{good}");
        assert!(!good.contains("not saturated"), "{good}");
        let wide = vec![sample(11.0, 9), sample(15.0, 9), sample(11.0, 9), sample(15.0, 9), sample(13.5, 9)];
        let bad = table(&[series(vec![sample(10.0, 1); 5], wide)], Product::Pointsman);
        assert!(bad.contains("**no**") && bad.contains("**not saturated**") && bad.contains("0 of 1"), "{bad}");
    }

    #[test]
    fn rounds_pair_only_where_both_were_measured_and_a_row_without_pairs_is_missed() {
        let ours = vec![sample(10.0, 1), None, sample(10.0, 1)];
        let one = series(ours, vec![sample(20.0, 1), sample(90.0, 1), None]);
        let (peer, subject) = (Variant::plain(Product::Nginx), Variant::plain(Product::Pointsman));
        assert_eq!(pairs(&one, peer, subject), [(20.0, 10.0)]);
        let none = table(&[series(vec![None], vec![sample(20.0, 1)])], Product::Pointsman);
        assert!(
            none.contains("| – | – | 1.25 | **no** |") && none.contains("could not be measured in 1 rounds"),
            "{none}"
        );
    }
}

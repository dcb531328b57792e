//! Samples in, Markdown out. Every figure is printed with what it needs to be believed: the interval, how busy the core was, what failed.

use std::fmt::Write;

use crate::accounting::CoreTicks;
use crate::proxy::{Product, Variant};
use crate::rounds::{Offer, Sample, Series};
use crate::statistics::{self, Ratio};

/// Below this the proxy was not the bottleneck, and the row says so.
const SATURATED: f64 = 0.95;
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
            line(&mut text, one, Variant::plain(subject), *peer);
        }
    }
    for one in series {
        for note in notes(one) {
            let _ = write!(text, "\n{note}");
        }
    }
    text
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

/// What a reader of the rows must know beside them.
fn notes(series: &Series) -> Vec<String> {
    let mut notes = Vec::new();
    let title = series.row.title();
    for variant in series.samples.keys() {
        let missing = series.samples.get(variant).map_or(0, |all| all.iter().filter(|sample| sample.is_none()).count());
        if missing > 0 {
            notes.push(format!(
                "- {title}, {:?}: {} could not be measured in {missing} rounds.",
                series.offer,
                variant.name()
            ));
        }
        if let (Some(rate), Some(held)) = (series.rate, median(series, *variant, |sample| sample.throughput))
            && held < f64::from(rate) * HELD
        {
            notes.push(format!("- {title}: the rate of {rate}/s was not held with {}: {held:.0}/s.", variant.name()));
        }
        let (deferred, cost) = (median(series, *variant, |s| s.deferred), median(series, *variant, |s| s.cost));
        if let (Some(deferred), Some(cost)) = (deferred, cost)
            && deferred > cost * DEFERRED
        {
            let name = variant.name();
            notes.push(format!(
                "- {title}, {:?}: with {name} the kernel deferred {deferred:.1} µs a request, not counted.",
                series.offer
            ));
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

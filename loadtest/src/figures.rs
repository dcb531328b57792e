//! What the requests of a run say together: hit rate, latencies, how evenly the work was spread, and what a failure cost.
//!
//! A request that failed or could not be sent was slower than any other: where a percentile falls on one, there is no figure for it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::catalogue::{Ask, Source};
use crate::experiment::Plan;
use crate::open_loop::{End, Exchange};
use crate::statistics;

/// Figures of the steady part, if nothing else is said.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The part of the answers that came from a cache, of those that could.
    pub hit_rate: Option<f64>,
    /// The latency that half of the requests were within.
    pub p50: Option<Duration>,
    /// The latency that 99 % of the requests were within.
    pub p99: Option<Duration>,
    /// The mean latency of those that were answered.
    pub mean: Option<Duration>,
    /// The work of the server that had most, over the mean of all.
    pub work_spread: f64,
    /// The same of requests.
    pub request_spread: f64,
    /// The hit rate while one server was dead.
    pub hit_rate_after: Option<f64>,
    /// Requests that failed, from the steady part on.
    pub failed: usize,
    /// Requests that could not be sent, from the steady part on.
    pub not_sent: usize,
    /// By how much 99 % of the requests were sent too late at most: an error of the measurement.
    pub late: Option<Duration>,
}

impl Figures {
    /// The figures of `exchanges` with `servers` servers.
    pub fn of(exchanges: &[Exchange], plan: Plan, servers: usize) -> Self {
        let steady: Vec<Exchange> = within(exchanges, &plan.steady()).collect();
        let latencies = latencies(&steady);
        let answered: Vec<Duration> = latencies.iter().copied().flatten().collect();
        let counted: Vec<Exchange> = within(exchanges, &(plan.warm_up..plan.end())).collect();
        Self {
            hit_rate: hit_rate(&steady),
            p50: statistics::percentile(&latencies, 0.5).flatten(),
            p99: statistics::percentile(&latencies, 0.99).flatten(),
            mean: mean(&answered),
            work_spread: spread(&steady, servers, |ask, source| work(ask, source).as_secs_f64()),
            request_spread: spread(&steady, servers, |_, _| 1.0),
            hit_rate_after: hit_rate(&within(exchanges, &plan.outage()).collect::<Vec<_>>()),
            failed: counted.iter().filter(|exchange| exchange.end == End::Failed).count(),
            not_sent: counted.iter().filter(|exchange| exchange.end == End::NotSent).count(),
            late: late(&steady),
        }
    }
}

/// All latencies in order. What has none is the slowest.
pub fn latencies<'a>(exchanges: impl IntoIterator<Item = &'a Exchange>) -> Vec<Option<Duration>> {
    let mut latencies: Vec<Option<Duration>> = exchanges.into_iter().map(Exchange::latency).collect();
    latencies.sort_unstable_by_key(|latency| latency.unwrap_or(Duration::MAX));
    latencies
}

/// By how much 99 % of the requests were sent too late at most: an error of the measurement.
pub fn late(exchanges: &[Exchange]) -> Option<Duration> {
    let mut late: Vec<Duration> = exchanges.iter().filter_map(Exchange::lateness).collect();
    late.sort_unstable();
    statistics::percentile(&late, 0.99)
}

/// The mean; `None` without a latency.
pub fn mean(latencies: &[Duration]) -> Option<Duration> {
    latencies.iter().sum::<Duration>().checked_div(u32::try_from(latencies.len()).unwrap_or(u32::MAX))
}

/// The exchanges that were meant to begin in `part`.
fn within<'a>(exchanges: &'a [Exchange], part: &Range<Duration>) -> impl Iterator<Item = Exchange> + use<'a> {
    let part = part.clone();
    exchanges.iter().filter(move |exchange| part.contains(&exchange.arrival.at)).copied()
}

fn answer(exchange: &Exchange) -> Option<(usize, Source)> {
    match exchange.end {
        End::Answered { server, source, .. } => Some((server, source)),
        End::Failed | End::NotSent => None,
    }
}

/// The part of the answers that came from a cache, of those that could; `None` where none could.
pub fn hit_rate(exchanges: &[Exchange]) -> Option<f64> {
    let sources = || exchanges.iter().filter_map(answer).map(|(_, source)| source);
    let hits = sources().filter(|source| *source == Source::Cache).count();
    let all = sources().filter(|source| *source != Source::Made).count();
    (all > 0).then(|| figure(hits) / figure(all))
}

/// The hit rate of each second until `end`: points of a line.
pub fn hit_rates(exchanges: &[Exchange], end: Duration) -> Vec<(f64, f64)> {
    let mut by_second = BTreeMap::<u64, Vec<Exchange>>::new();
    for exchange in exchanges.iter().filter(|exchange| exchange.arrival.at < end) {
        by_second.entry(exchange.arrival.at.as_secs()).or_default().push(*exchange);
    }
    let point =
        |(second, all): (u64, Vec<Exchange>)| Some((Duration::from_secs(second).as_secs_f64() + 0.5, hit_rate(&all)?));
    by_second.into_iter().filter_map(point).collect()
}

/// How much of all requests each server answered in the steady part, 0 to 1.
pub fn shares(exchanges: &[Exchange], plan: Plan, servers: usize) -> Vec<f64> {
    let steady: Vec<Exchange> = within(exchanges, &plan.steady()).collect();
    let loads = loads(&steady, servers, |_, _| 1.0);
    let all: f64 = loads.iter().sum();
    loads.iter().map(|load| if all > 0.0 { load / all } else { 0.0 }).collect()
}

fn work(ask: Ask, source: Source) -> Duration {
    match (ask, source) {
        (Ask::Item { kind, .. }, Source::Cache) => kind.work().0,
        (Ask::Item { kind, .. }, Source::Storage | Source::Made) => kind.work().1,
        (Ask::Work(work), _) => work,
        (Ask::Ping, _) => Duration::ZERO,
    }
}

fn loads(exchanges: &[Exchange], servers: usize, measure: impl Fn(Ask, Source) -> f64) -> Vec<f64> {
    let mut loads = vec![0.0; servers];
    for exchange in exchanges {
        if let Some((server, source)) = answer(exchange)
            && let Some(load) = loads.get_mut(server)
        {
            *load += measure(exchange.arrival.ask, source);
        }
    }
    loads
}

/// The largest load over the mean; 1 where there is none.
fn spread(exchanges: &[Exchange], servers: usize, measure: impl Fn(Ask, Source) -> f64) -> f64 {
    let loads = loads(exchanges, servers, measure);
    let mean = loads.iter().sum::<f64>() / figure(servers);
    if mean > 0.0 { loads.iter().copied().fold(0.0, f64::max) / mean } else { 1.0 }
}

/// A part of one.
pub fn part(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.3}"))
}

/// A latency in milliseconds.
pub fn time(value: Option<Duration>) -> String {
    value.map_or("saturated".to_owned(), |value| format!("{:.1}", milliseconds(value)))
}

/// A latency in milliseconds.
pub fn milliseconds(value: Duration) -> f64 {
    value.as_secs_f64() * 1e3
}

/// A count to calculate with.
#[allow(clippy::cast_precision_loss, reason = "counts of requests")]
pub fn figure(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Kind;
    use crate::open_loop::Arrival;

    const PLAN: Plan = Plan {
        warm_up: Duration::from_secs(1),
        steady: Duration::from_secs(10),
        down: Duration::from_secs(10),
        back: Duration::from_secs(5),
    };

    fn ended(second: u64, end: End) -> Exchange {
        let ask = Ask::Item { kind: Kind::Object, number: 1, salt: 0 };
        Exchange { arrival: Arrival { at: Duration::from_secs(second), ask }, end }
    }

    fn answered(second: u64, latency: u64, server: usize, source: Source) -> Exchange {
        let (latency, late) = (Duration::from_millis(latency), Duration::from_micros(latency));
        ended(second, End::Answered { latency, late, server, source })
    }

    #[test]
    fn only_the_steady_part_counts_and_the_outage_for_what_it_is_about() {
        let exchanges = [
            answered(0, 900, 0, Source::Storage),
            answered(1, 2, 0, Source::Cache),
            answered(2, 12, 1, Source::Storage),
            answered(3, 4, 0, Source::Cache),
            answered(10, 6, 1, Source::Cache),
            answered(11, 14, 1, Source::Storage),
            ended(12, End::Failed),
            answered(22, 1, 1, Source::Cache),
            ended(26, End::Failed),
        ];
        let figures = Figures::of(&exchanges, PLAN, 2);
        assert_eq!(figures.hit_rate, Some(0.75));
        assert_eq!((figures.p50, figures.p99), (Some(Duration::from_millis(4)), Some(Duration::from_millis(12))));
        assert_eq!((figures.mean, figures.late), (Some(Duration::from_millis(6)), Some(Duration::from_micros(12))));
        // 2 ms and 11 ms, two requests each.
        assert!((figures.work_spread - 11.0 / 6.5).abs() < 1e-9 && (figures.request_spread - 1.0).abs() < 1e-9);
        assert_eq!((figures.hit_rate_after, figures.failed, figures.not_sent), (Some(0.0), 1, 0));
        assert_eq!(shares(&exchanges, PLAN, 2), [0.5, 0.5]);
        assert_eq!(hit_rates(&exchanges, Duration::from_secs(4)), [(0.5, 0.0), (1.5, 1.0), (2.5, 0.0), (3.5, 1.0)]);
    }

    #[test]
    fn what_was_not_answered_is_the_slowest() {
        let mut exchanges = vec![answered(2, 5, 0, Source::Made); 97];
        exchanges.extend([ended(2, End::NotSent), ended(2, End::Failed), ended(2, End::NotSent)]);
        let figures = Figures::of(&exchanges, PLAN, 1);
        assert_eq!((figures.p50, figures.p99), (Some(Duration::from_millis(5)), None));
        assert_eq!((figures.hit_rate, figures.hit_rate_after), (None, None));
        assert_eq!((figures.failed, figures.not_sent), (1, 2));
    }
}

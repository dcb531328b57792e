//! The laws by which load is drawn: Zipf's for what is asked for, Poisson's for when, the bounded Pareto law for how much work it is.
//!
//! Everything follows from the numbers handed in. Beside the draws stand the figures that they must tend to.

use std::time::Duration;

use crate::statistics::Numbers;

/// Keys by popularity: the share of the one at place r, counted from 1, is as r to the power of −α.
pub struct Zipf {
    /// The share of each key and of all before it.
    cumulative: Vec<f64>,
}

impl Zipf {
    /// `keys` keys with the exponent α.
    pub fn new(keys: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=keys)
            .map(|place| {
                sum += figure(place).powf(-exponent);
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|until| *until /= sum);
        Self { cumulative }
    }

    /// The place of a key, counted from 0.
    pub fn draw(&self, numbers: &mut Numbers) -> usize {
        let at = numbers.unit();
        self.cumulative.partition_point(|until| *until < at).min(self.cumulative.len().saturating_sub(1))
    }

    /// The shares of all keys, the most popular first.
    pub fn shares(&self) -> impl Iterator<Item = f64> {
        let before = std::iter::once(0.0).chain(self.cumulative.iter().copied());
        self.cumulative.iter().zip(before).map(|(until, before)| until - before)
    }
}

/// The time until the next arrival of a Poisson process of `rate` arrivals a second.
pub fn spacing(rate: f64, numbers: &mut Numbers) -> Duration {
    Duration::from_secs_f64(-numbers.unit().ln() / rate)
}

/// The Pareto law between two bounds: many small jobs, and a few large ones that make up much of all work.
#[derive(Clone, Copy, Debug)]
pub struct BoundedPareto {
    shape: f64,
    least: Duration,
    most: Duration,
}

impl BoundedPareto {
    /// The law of `shape` (other than 1) whose largest job is `ratio` times its smallest and whose mean is `mean`.
    pub fn with_mean(mean: Duration, shape: f64, ratio: f64) -> Self {
        let of_one = Self { shape, least: Duration::from_secs(1), most: Duration::from_secs_f64(ratio) };
        let least = mean.div_f64(of_one.mean().as_secs_f64());
        Self { shape, least, most: least.mul_f64(ratio) }
    }

    /// A job.
    pub fn draw(&self, numbers: &mut Numbers) -> Duration {
        let kept = 1.0 - numbers.unit() * self.within();
        self.least.mul_f64(kept.powf(-1.0 / self.shape)).min(self.most)
    }

    /// The mean job.
    pub fn mean(&self) -> Duration {
        let (least, most) = (self.least.as_secs_f64(), self.most.as_secs_f64());
        let powers = least.powf(1.0 - self.shape) - most.powf(1.0 - self.shape);
        let mean = least.powf(self.shape) / self.within() * self.shape / (self.shape - 1.0) * powers;
        Duration::from_secs_f64(mean)
    }

    /// The part of the unbounded law that lies below the upper bound.
    fn within(&self) -> f64 {
        1.0 - (self.least.as_secs_f64() / self.most.as_secs_f64()).powf(self.shape)
    }
}

/// What part of all requests an LRU cache of `entries` entries answers in the long run, where keys have these `shares` and nothing else
/// follows from anything.
pub fn expected_hits(shares: &[f64], entries: usize) -> f64 {
    shares.iter().zip(hit_rates(shares, entries)).map(|(share, hit_rate)| share * hit_rate).sum()
}

/// The same for each key (Che, Tung and Wang 2002).
pub fn hit_rates(shares: &[f64], entries: usize) -> Vec<f64> {
    if shares.len() <= entries {
        return vec![1.0; shares.len()];
    }
    // The time, in requests, after which a key that was not asked for again is gone: as many keys are asked for in it as fit.
    let asked_for = |time: f64| shares.iter().map(|share| -(-share * time).exp_m1()).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    while asked_for(high) < figure(entries) {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if asked_for(middle) < figure(entries) { low = middle } else { high = middle }
    }
    shares.iter().map(|share| -(-share * high).exp_m1()).collect()
}

#[allow(clippy::cast_precision_loss, reason = "counts of keys")]
fn figure(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lru::Lru;

    #[test]
    fn keys_are_drawn_as_zipf_says() {
        for exponent in [0.9, 1.0, 1.1] {
            let (zipf, mut numbers) = (Zipf::new(50, exponent), Numbers::new(1));
            let mut counts = [0.0; 50];
            (0..200_000).for_each(|_| counts[zipf.draw(&mut numbers)] += 1.0);
            let norm: f64 = (1..=50).map(|place| 1.0 / f64::from(place).powf(exponent)).sum();
            // The statistic of the chi-squared test of 49 degrees of freedom: above 85 once in a thousand.
            let chi: f64 = (1..=50)
                .map(|place| {
                    let expected = 200_000.0 / f64::from(place).powf(exponent) / norm;
                    (counts[place as usize - 1] - expected).powi(2) / expected
                })
                .sum();
            assert!(chi < 85.0, "α {exponent}: {chi}");
            assert!((zipf.shares().sum::<f64>() - 1.0).abs() < 1e-9);
            assert!((zipf.shares().next().unwrap() - 1.0 / norm).abs() < 1e-9);
        }
    }

    #[test]
    fn arrivals_have_the_spacing_of_a_poisson_process() {
        let mut numbers = Numbers::new(2);
        let gaps: Vec<f64> = (0..100_000).map(|_| spacing(2_000.0, &mut numbers).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / 1e5;
        let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() / 1e5;
        assert!((mean * 2_000.0 - 1.0).abs() < 0.02, "{mean}");
        // The deviation of an exponential law is its mean.
        assert!(((square - mean * mean).sqrt() / mean - 1.0).abs() < 0.03, "{square}");
        let beyond = gaps.iter().filter(|gap| **gap > 1.0 / 2_000.0).count() as f64 / 1e5;
        assert!((beyond - (-1.0_f64).exp()).abs() < 0.01, "{beyond}");
    }

    #[test]
    fn bounded_pareto_jobs_have_their_mean_and_stay_between_their_bounds() {
        for shape in [1.1, 1.5, 2.5] {
            let law = BoundedPareto::with_mean(Duration::from_millis(10), shape, 100.0);
            assert!((law.mean().as_secs_f64() - 0.01).abs() < 1e-6, "{:?}", law.mean());
            let mut numbers = Numbers::new(3);
            let jobs: Vec<Duration> = (0..200_000).map(|_| law.draw(&mut numbers)).collect();
            let mean = jobs.iter().map(Duration::as_secs_f64).sum::<f64>() / 2e5;
            assert!((mean - 0.01).abs() < 0.000_2, "shape {shape}: {mean}");
            let (least, most) = (jobs.iter().min().unwrap(), jobs.iter().max().unwrap());
            assert!(law.least <= *least && *most <= law.most && *most > law.least * 20, "{least:?} {most:?}");
        }
    }

    #[test]
    fn an_lru_cache_hits_as_often_as_is_expected_of_it() {
        for (exponent, entries) in [(0.9, 50), (1.0, 50), (1.1, 400), (1.0, 1_000)] {
            let (zipf, mut numbers, mut cache) = (Zipf::new(1_000, exponent), Numbers::new(4), Lru::new(entries));
            let mut ask = || {
                let key = zipf.draw(&mut numbers);
                cache.touch(&key) || {
                    cache.insert(key);
                    false
                }
            };
            (0..20_000).for_each(|_| {
                ask();
            });
            let hits = (0..100_000).filter(|_| ask()).count() as f64 / 1e5;
            let expected = expected_hits(&zipf.shares().collect::<Vec<_>>(), entries);
            assert!((hits - expected).abs() < 0.01, "α {exponent}, {entries} entries: {hits} and {expected}");
        }
    }
}

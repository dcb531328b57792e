//! Ratios of noisy pairs: the geometric mean over rounds, and how sure it is.
//!
//! A round measures everybody within seconds, so what slows the machine slows both of a pair; the interval is the percentile
//! bootstrap over rounds (Efron and Tibshirani 1993, chapter 13).

/// A repeatable source of numbers (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is small against 2^32; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from((u128::from(self.next()) * bound as u128) >> 64).unwrap_or(0)
    }

    /// A number between 0 and 1, never one of the two.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Puts `items` into another order, each as likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// A ratio and the interval that holds it with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The geometric mean over the rounds.
    pub mean: f64,
    /// The lower bound: the one that counts.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

const RESAMPLES: usize = 10_000;
const SEED: u64 = 20_260;

/// The ratio of the first of each pair to the second; `None` without a pair.
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    if pairs.is_empty() {
        return None;
    }
    let logarithms: Vec<f64> = pairs.iter().map(|(over, under)| (over / under).ln()).collect();
    let mut numbers = Numbers::new(SEED);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn =
                logarithms.iter().map(|_| logarithms.get(numbers.below(logarithms.len())).copied().unwrap_or(0.0));
            mean(drawn, logarithms.len())
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |position: usize| means.get(position).copied().map(f64::exp);
    Some(Ratio {
        mean: mean(logarithms.iter().copied(), logarithms.len()).exp(),
        low: at(RESAMPLES / 40)?,
        high: at(RESAMPLES - 1 - RESAMPLES / 40)?,
    })
}

/// The value in the middle; `None` without a value.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let high = *sorted.get(sorted.len() / 2)?;
    let low = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(low, high))
}

/// The least value that at least `part` of all are not above (nearest rank); `None` without a value. `sorted` is in order.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
pub fn percentile<T: Copy>(sorted: &[T], part: f64) -> Option<T> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[allow(clippy::cast_precision_loss, reason = "a number of rounds")]
fn mean(values: impl Iterator<Item = f64>, count: usize) -> f64 {
    values.sum::<f64>() / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pairs_leave_no_doubt_and_noisy_ones_do() {
        assert_eq!(ratio(&[]), None);
        let sure = ratio(&[(3.0, 2.0); 15]).unwrap();
        assert!((sure.mean - 1.5).abs() < 1e-9 && (sure.low - 1.5).abs() < 1e-9 && (sure.high - 1.5).abs() < 1e-9);
        let noisy: Vec<(f64, f64)> = (0..15).map(|round| (1.0 + f64::from(round % 3) / 10.0, 1.0)).collect();
        let noisy = ratio(&noisy).unwrap();
        assert!(1.0 < noisy.low && noisy.low < noisy.mean && noisy.mean < noisy.high && noisy.high < 1.2, "{noisy:?}");
    }

    /// The interval must hold the true ratio about as often as it promises.
    #[test]
    fn the_interval_holds_the_truth_about_as_often_as_promised() {
        let mut numbers = Numbers::new(7);
        let mut noise = || (0..12).map(|_| numbers.below(1_000)).sum::<usize>() as f64 / 6_000.0;
        let held = (0..100)
            .filter(|_| {
                let pairs: Vec<(f64, f64)> = (0..15).map(|_| (1.3 * noise(), noise())).collect();
                let found = ratio(&pairs).unwrap();
                found.low <= 1.3 && 1.3 <= found.high
            })
            .count();
        assert!((85..=99).contains(&held), "{held} of 100");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_percentile_is_the_least_value_that_enough_are_not_above() {
        assert_eq!(percentile::<u32>(&[], 0.5), None);
        let sorted: Vec<u32> = (1..=200).collect();
        for part in [0.001, 0.01, 0.5, 0.505, 0.99, 0.999, 1.0] {
            let enough = |value: &u32| sorted.iter().filter(|other| *other <= value).count() as f64 >= part * 200.0;
            assert_eq!(percentile(&sorted, part), sorted.iter().copied().find(enough), "{part}");
        }
        assert_eq!(percentile(&[7], 0.0), Some(7));
    }

    #[test]
    fn numbers_between_0_and_1_are_spread_evenly() {
        let mut numbers = Numbers::new(3);
        let drawn: Vec<f64> = (0..40_000).map(|_| numbers.unit()).collect();
        for tenth in 0..10 {
            let (low, high) = (f64::from(tenth) / 10.0, f64::from(tenth + 1) / 10.0);
            let inside = drawn.iter().filter(|number| (low..high).contains(*number)).count();
            assert!((3_760..=4_240).contains(&inside), "{inside} from {low} to {high}");
        }
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..50).collect();
        Numbers::new(1).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}

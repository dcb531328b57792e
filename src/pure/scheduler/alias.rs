//! Drawing a position in proportion to its share in constant time: the alias method (M. D. Vose, A linear algorithm for
//! generating random numbers with a given distribution, 1991), in whole numbers.

use crate::base::rng::Rng;

/// A table to draw from.
#[derive(Debug, Default)]
pub(super) struct Alias {
    /// For each position: below this (of 2³²) it is drawn itself, else the position beside it.
    columns: Vec<(u64, u32)>,
}

const ONE: u64 = 1 << 32;

impl Alias {
    /// A table for these shares (each at most 24 bits). A share of 0 is never drawn, unless all are 0.
    pub(super) fn new(shares: &[u32]) -> Self {
        let count = shares.len() as u64;
        let total: u64 = shares.iter().map(|share| u64::from(*share)).sum();
        if total == 0 {
            return Self { columns: Vec::new() };
        }
        // Scaled so that the mean column holds `total`.
        let mut rest: Vec<u64> = shares.iter().map(|share| u64::from(*share) * count).collect();
        let mut columns: Vec<(u64, u32)> = (0..shares.len()).map(|index| (ONE, position(index))).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..rest.len()).partition(|index| rest.get(*index).is_some_and(|rest| *rest < total));
        while let (Some(low), Some(high)) = (small.pop(), large.pop()) {
            let held = rest.get(low).copied().unwrap_or(0);
            if let Some(column) = columns.get_mut(low) {
                let threshold = u128::from(held) * u128::from(ONE) / u128::from(total);
                *column = (u64::try_from(threshold).unwrap_or(ONE), position(high));
            }
            let Some(left) = rest.get_mut(high) else { continue };
            *left -= total - held;
            if *left < total { small.push(high) } else { large.push(high) }
        }
        Self { columns }
    }

    /// Draws a position; `None` where there is no share at all.
    pub(super) fn draw(&self, rng: &mut Rng) -> Option<usize> {
        let random = rng.next_u64();
        let index = usize::try_from(((random >> 32) * self.columns.len() as u64) >> 32).ok()?;
        let (threshold, other) = self.columns.get(index)?;
        Some(if random % ONE < *threshold { index } else { *other as usize })
    }
}

fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(shares: &[u32], draws: u32) -> Vec<f64> {
        let table = Alias::new(shares);
        let mut rng = Rng::new(1);
        let mut counts = vec![0u32; shares.len()];
        for _ in 0..draws {
            counts[table.draw(&mut rng).unwrap()] += 1;
        }
        counts.iter().map(|count| f64::from(*count) / f64::from(draws)).collect()
    }

    #[test]
    fn positions_are_drawn_in_proportion_to_their_shares() {
        let shares = [5, 0, 1, 256, 70, 0, 1_000, 3];
        let total: u32 = shares.iter().sum();
        for (share, seen) in shares.iter().zip(frequencies(&shares, 400_000)) {
            let expected = f64::from(*share) / f64::from(total);
            assert!((seen - expected).abs() < 0.003, "share {share}: {seen} for {expected}");
            assert!(*share > 0 || seen == 0.0);
        }
    }

    #[test]
    fn one_share_takes_all_and_none_gives_nothing() {
        assert_eq!(frequencies(&[0, 0, 9], 1_000), [0.0, 0.0, 1.0]);
        assert_eq!(Alias::new(&[0, 0]).draw(&mut Rng::new(1)), None);
        assert_eq!(Alias::new(&[]).draw(&mut Rng::new(1)), None);
    }
}

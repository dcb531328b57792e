//! Weighted rendezvous hashing: which of several names a key belongs to. A name that goes, or whose weight changes, moves
//! only the keys that it has to. Sources: D. Thaler, C. Ravishankar, Using name-based mappings to increase hit rates, 1998;
//! C. Schindelhauer, G. Schomaker, Weighted distributed hash tables, 2005.
//!
//! The score is −weight / ln u, u in (0, 1) by the hash of key and name. It is compared as a wait, −log₂ u / weight, without
//! division and in whole numbers, so that every machine agrees. It refuses to know what waits, and whether it may be chosen.

use std::hint::select_unpredictable;
use std::num::NonZeroU64;

use crate::pure::rule::hash::mix;

/// How long a name waits for a key: the shortest wins.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Uniform in 64 bits; the higher, the shorter the wait.
    point: u64,
    weight: u16,
    /// −log₂ u in 2⁻³², once it has been asked for.
    waits: Option<NonZeroU64>,
}

impl Wait {
    /// That of a name with this hash for a key.
    pub fn of(key: u64, name: u64, weight: u16) -> Self {
        Self { point: point_of(key, name), weight, waits: None }
    }

    /// Whether it is shorter than another; one without a weight never is.
    pub fn is_shorter(self, other: Self) -> bool {
        if self.weight == other.weight {
            return self.point > other.point && self.weight > 0;
        }
        // Which falls exponentially; divided by the weights. Of 39 bits and of 16, the products have no more than 55.
        self.waits() * u64::from(other.weight) < other.waits() * u64::from(self.weight)
    }

    fn waits(self) -> u64 {
        self.waits.map_or_else(|| (64 << FRACTION) - log2(self.point), NonZeroU64::get)
    }

    /// The same, quicker to be compared with many others.
    #[must_use]
    pub fn to_beat(self) -> Self {
        Self { waits: NonZeroU64::new(self.waits()), ..self }
    }
}

fn point_of(key: u64, name: u64) -> u64 {
    mix(key ^ 0x2d35_8dcc_aa6c_78a5, name ^ 0x8bb8_4b93_962e_acc9)
}

/// Names with their weights, lined up so that most often who waits the shortest for a key is found by one logarithm.
///
/// −log₂ u is above (1 − u) / ln 2, and the nearer to it, the nearer u is to 1, where the shortest of many are. So the one
/// with the least of that is the one, unless another has so little too that only logarithms can tell.
#[derive(Debug, Default)]
pub struct Lineup(Box<[Entrant]>);

#[derive(Debug)]
struct Entrant {
    name: u64,
    /// 2³¹ / (ln 2 · weight), rounded down.
    factor: u32,
    weight: u16,
    /// Its position among all.
    index: usize,
}

impl Lineup {
    /// These hashes of names and weights, in this order.
    pub fn new(all: impl Iterator<Item = (u64, u16)>) -> Self {
        let entrant = |(index, (name, weight)): (usize, (u64, u16))| {
            let factor = PER_LN_2.checked_div(u32::from(weight))?;
            Some(Entrant { name, factor, weight, index })
        };
        Self(all.enumerate().filter_map(entrant).collect())
    }

    /// The positions of those with a weight, who waits the shortest for a key first; it ends where it can't be told so quickly
    /// who is next. Each is looked for when it is asked for.
    pub fn in_order(&self, key: u64) -> impl Iterator<Item = usize> {
        let mut passed = None;
        std::iter::from_fn(move || {
            let (at_least, index) = self.next(key, passed)?;
            passed = Some(at_least);
            Some(index)
        })
    }

    /// Who waits the shortest of those that wait at least longer than `passed`, and how long that is at least.
    fn next(&self, key: u64, passed: Option<u64>) -> Option<(u64, usize)> {
        let from = passed.map_or(0, |passed| passed + 1);
        let (mut least, mut second, mut found) = (u64::MAX, u64::MAX, None);
        for entrant in &self.0 {
            let at_least = (!point_of(key, entrant.name) >> (64 - FRACTION)) * u64::from(entrant.factor);
            let at_least = select_unpredictable(at_least < from, u64::MAX, at_least);
            second = second.min(at_least.max(least));
            found = select_unpredictable(at_least < least, Some(entrant), found);
            least = least.min(at_least);
        }
        let found = found?;
        // In the same unit, and rounded up.
        let waits = Wait::of(key, found.name, found.weight).waits();
        let at_most = waits.saturating_mul((1 << 31) / u64::from(found.weight) + 1);
        (second >= at_most).then_some((least, found.index))
    }
}

/// 2³¹ / ln 2, rounded down.
const PER_LN_2: u32 = 3_098_164_009;

/// Of several that wait, whose wait is the shortest; the first of equals. `None`: none has a weight.
pub fn shortest<T>(waiting: impl IntoIterator<Item = (T, Wait)>) -> Option<T> {
    let weighted = waiting.into_iter().filter(|(_, wait)| wait.weight > 0);
    let first = |best: (T, Wait), next: (T, Wait)| if next.1.is_shorter(best.1) { next } else { best };
    weighted.reduce(first).map(|(winner, _)| winner)
}

/// Bits behind the point of [`log2`].
const FRACTION: u32 = 32;

/// The logarithm of 1 + i/256 to the base of two, in 2⁻³².
static LOGARITHMS: [u64; 257] = logarithms();

/// Worked out bit by bit in whole numbers.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
const fn logarithms() -> [u64; 257] {
    let mut table = [0; 257];
    let mut at = 0;
    while at < 256 {
        // From 1 up to 2, with 63 bits behind the point.
        let mut mantissa: u128 = (1 << 63) + ((at as u128) << 55);
        let mut result: u64 = 0;
        let mut bit = 0;
        while bit < FRACTION {
            mantissa = (mantissa * mantissa) >> 63;
            let one = (mantissa >> 64) as u64;
            mantissa >>= one;
            result = result << 1 | one;
            bit += 1;
        }
        table[at] = result;
        at += 1;
    }
    table[256] = 1 << FRACTION;
    table
}

/// The binary logarithm in 2⁻³², from a table and straight lines between its entries: at most 3·10⁻⁶ too small, and never
/// falling. That of 0 counts as that of 1.
fn log2(number: u64) -> u64 {
    let number = number.max(1);
    let whole = number.ilog2();
    let mantissa = number << (63 - whole);
    // Behind the leading bit: 8 bits lead to the entry, the others between it and the next.
    let entry = ((mantissa >> 55) & 0xff) as usize;
    let between = (mantissa >> 23) & 0xffff_ffff;
    let (low, high) = (LOGARITHMS.get(entry).copied().unwrap_or(0), LOGARITHMS.get(entry + 1).copied().unwrap_or(0));
    (u64::from(whole) << FRACTION) + low + (((high - low) * between) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::pure::rule::hash::hash;

    #[test]
    fn the_logarithm_is_one_and_never_falls() {
        for number in [1, 2, 3, 1000, u64::MAX / 3, u64::MAX] {
            let ours = log2(number) as f64 / (1_u64 << FRACTION) as f64;
            assert!((ours - (number as f64).log2()).abs() < 4e-6, "{number}: {ours}");
        }
        let mut rng = Rng::new(7);
        for _ in 0..100_000 {
            let (one, other) = (rng.next_u64(), rng.next_u64());
            assert_eq!(log2(one.max(other)).max(log2(one.min(other))), log2(one.max(other)));
        }
        assert_eq!(log2(0), 0);
    }

    #[test]
    fn shares_follow_weights() {
        let weights = [5u16, 1, 0, 4];
        let mut counts = [0u32; 4];
        for number in 0..100_000u64 {
            let key = hash(&number.to_le_bytes(), 0);
            let name = |number: u64| hash(&number.to_le_bytes(), 9);
            let waits = (0..).zip(weights).map(|(number, weight)| (number, Wait::of(key, name(number), weight)));
            counts[shortest(waits).unwrap() as usize] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            let wanted = u32::from(weight) * 10_000;
            assert!(count.abs_diff(wanted) <= wanted / 50, "{counts:?}");
        }
    }

    /// Against looking at all by their logarithms, again and again.
    #[test]
    fn who_is_found_quickly_waits_the_shortest_and_most_are() {
        let mut rng = Rng::new(11);
        let mut is_found = 0;
        for round in 0..20_000 {
            let largest = [1, 5, 300, 65_535][round % 4];
            let weight = |rng: &mut Rng| u16::try_from(rng.below(largest + 1)).unwrap();
            let all: Vec<(u64, u16)> = (0..rng.below(40)).map(|_| (rng.next_u64(), weight(&mut rng))).collect();
            let key = rng.next_u64();
            let wait = |(index, (name, weight)): (usize, &(u64, u16))| (index, Wait::of(key, *name, *weight));
            let mut left: Vec<(usize, Wait)> = all.iter().enumerate().map(wait).collect();
            let found: Vec<usize> = Lineup::new(all.iter().copied()).in_order(key).collect();
            is_found += u32::from(!found.is_empty());
            for index in found {
                assert_eq!(shortest(left.iter().copied()), Some(index), "{all:?}");
                left.retain(|(other, _)| *other != index);
            }
        }
        assert!(is_found > 16_000, "{is_found}");
    }

    #[test]
    fn who_waits_as_long_as_another_is_not_found_quickly() {
        let found = |names: &[(u64, u16)], key| Lineup::new(names.iter().copied()).in_order(key).collect::<Vec<_>>();
        assert!(found(&[(7, 1), (7, 1)], 1).is_empty());
        assert!(found(&[(7, 0)], 1).is_empty());
        let alone = (0..1_000).map(|key| found(&[(9, 0), (7, 1)], key)).filter(|found| *found == [1]);
        assert!(alone.count() > 990);
    }

    #[test]
    fn what_has_no_weight_is_never_chosen_not_even_alone() {
        assert_eq!(shortest([(); 0].map(|()| (0, Wait::of(1, 1, 1)))), None);
        for key in 0..1_000 {
            let wait = |name, weight| (name, Wait::of(key, name, weight));
            assert_eq!(shortest([wait(1, 0), wait(2, 0)]), None);
            assert_eq!(shortest([wait(1, 0), wait(2, 1), wait(3, 0)]), Some(2));
            let orders = [[wait(1, 2), wait(2, 1)], [wait(2, 1), wait(1, 2)]].map(shortest);
            assert_eq!(orders[0], orders[1], "the order means nothing");
        }
        let one = Wait::of(7, 7, 1);
        assert_eq!(shortest([('a', one), ('b', one)]), Some('a'), "the first of equals");
    }
}

//! Tables from hashes of keys to servers, made once for a list of servers and read by all.
//!
//! Maglev's (D. Eisenbud et al., Maglev: a fast and reliable software network load balancer, 2016): each server has an order
//! of its own over the entries, by its name, and in turn, as often as its weight says, takes the next that is free. So every
//! server has its share exactly, a key's server does not depend on the order in the file, and a server that goes takes few
//! keys of others with it. And the kernel's: so many buckets dealt over the servers in order (IPVS `ip_vs_dh`, `ip_vs_sh`).

use crate::pure::rule::hash::{hash, mix};

/// The entries of a table: a prime, so that every step leads through all of them.
pub(super) const ENTRIES: usize = 65_537;

/// The buckets of the kernel's tables.
const BUCKETS: usize = 256;

/// Marks an entry that is nobody's.
const NOBODY: u32 = u32::MAX;

/// A server in the making of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entrant<'a> {
    pub(super) name: &'a str,
    /// 0: gets nothing.
    pub(super) weight: u16,
}

/// A table.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Box<[u32]>,
}

impl Table {
    /// Maglev's.
    pub(super) fn maglev(entrants: &[Entrant<'_>]) -> Self {
        let heaviest = entrants.iter().map(|entrant| entrant.weight).max().unwrap_or(0);
        if heaviest == 0 {
            return Self::default();
        }
        let mut walks: Vec<Walk> =
            (0u32..).zip(entrants).filter_map(|(index, entrant)| Walk::of(index, *entrant)).collect();
        // The order of turns is by name: it must not depend on the file's.
        walks.sort_by_key(|walk| (walk.order, walk.index));
        let mut entries = vec![NOBODY; ENTRIES].into_boxed_slice();
        let mut free = ENTRIES;
        'filling: loop {
            for walk in &mut walks {
                walk.credit += u32::from(walk.weight);
                while walk.credit >= u32::from(heaviest) {
                    walk.credit -= u32::from(heaviest);
                    walk.take(&mut entries);
                    free -= 1;
                    if free == 0 {
                        break 'filling;
                    }
                }
            }
        }
        Self { entries }
    }

    /// The kernel's: the buckets dealt over the servers in order, `weight` to each in turn, or one where `is_weighted` is
    /// not set.
    pub(super) fn buckets(entrants: &[Entrant<'_>], is_weighted: bool) -> Self {
        let turns = |entrant: &Entrant<'_>| match (is_weighted, entrant.weight) {
            (_, 0) => 0,
            (true, weight) => usize::from(weight),
            (false, _) => 1,
        };
        let order = (0u32..).zip(entrants).flat_map(|(index, entrant)| std::iter::repeat_n(index, turns(entrant)));
        let order: Vec<u32> = order.take(BUCKETS).collect();
        Self { entries: order.iter().copied().cycle().take(BUCKETS).collect() }
    }

    /// The position of the server to which a key belongs; `None`: nobody has a weight.
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        // The product's upper half falls evenly on the entries; hashes that differ low down are mixed first.
        let place = (u128::from(mix(key, 0x9e37_79b9_7f4a_7c15)) * self.entries.len() as u128) >> 64;
        self.entries.get(place as usize).map(|index| *index as usize)
    }
}

/// A server's way through the entries.
#[derive(Debug)]
struct Walk {
    index: u32,
    order: u64,
    at: usize,
    step: usize,
    weight: u16,
    credit: u32,
}

impl Walk {
    fn of(index: u32, entrant: Entrant<'_>) -> Option<Self> {
        let order = hash(entrant.name.as_bytes(), 0);
        let below = |bound: usize, seed: u64| (hash(entrant.name.as_bytes(), seed) % bound as u64) as usize;
        let (at, step) = (below(ENTRIES, 1), 1 + below(ENTRIES - 1, 2));
        (entrant.weight > 0).then_some(Self { index, order, at, step, weight: entrant.weight, credit: 0 })
    }

    /// Takes the next free entry; there has to be one.
    fn take(&mut self, entries: &mut [u32]) {
        loop {
            let place = self.at;
            self.at = (self.at + self.step) % ENTRIES;
            if let Some(entry @ &mut NOBODY) = entries.get_mut(place) {
                *entry = self.index;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("server-{number}")).collect()
    }

    fn table(names: &[String], weight: impl Fn(usize) -> u16) -> Table {
        let entrant = |(index, name)| Entrant { name, weight: weight(index) };
        Table::maglev(&names.iter().map(String::as_str).enumerate().map(entrant).collect::<Vec<_>>())
    }

    fn key(number: u64) -> u64 {
        hash(&number.to_le_bytes(), 0)
    }

    #[test]
    fn each_has_its_share_exactly() {
        let names = names(3);
        let table = table(&names, |index| [50, 0, 25][index]);
        let count = |server| table.entries.iter().filter(|entry| **entry == server).count();
        assert_eq!(count(1), 0);
        assert!(count(0).abs_diff(2 * count(2)) <= 2, "{} {}", count(0), count(2));
    }

    #[test]
    fn the_order_in_the_file_moves_nothing() {
        let all = names(10);
        let reversed: Vec<String> = all.iter().rev().cloned().collect();
        let (one, other) = (table(&all, |_| 1), table(&reversed, |_| 1));
        for number in 0..10_000 {
            assert_eq!(all[one.find(key(number)).unwrap()], reversed[other.find(key(number)).unwrap()]);
        }
    }

    #[test]
    fn a_server_that_goes_takes_at_most_two_in_a_hundred_of_the_others_with_it() {
        let all = names(10);
        let whole = table(&all, |_| 1);
        for gone in 0..10 {
            let left = table(&all, |index| u16::from(index != gone));
            let (mut moved, mut kept) = (0, 0);
            for number in 0..20_000 {
                let before = whole.find(key(number)).unwrap();
                if before == gone {
                    continue;
                }
                kept += 1;
                moved += u32::from(left.find(key(number)).unwrap() != before);
            }
            assert!(f64::from(moved) <= 0.02 * f64::from(kept), "{moved} of {kept} without {gone}");
        }
    }

    #[test]
    fn the_kernels_buckets_are_dealt_in_order() {
        let entrants = [("a", 2), ("b", 0), ("c", 1)].map(|(name, weight)| Entrant { name, weight });
        assert_eq!(Table::buckets(&entrants, true).entries[..6], [0, 0, 2, 0, 0, 2]);
        assert_eq!(Table::buckets(&entrants, false).entries[..4], [0, 2, 0, 2]);
        assert_eq!(Table::buckets(&[], true).find(7), None);
        assert_eq!(Table::maglev(&[Entrant { name: "a", weight: 0 }]).find(7), None);
    }
}

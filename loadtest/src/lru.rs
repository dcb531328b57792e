//! A cache that forgets what was asked for longest ago, and keeps keys alone: it is a model, whose contents nobody reads.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A cache of a fixed number of entries.
pub struct Lru<K> {
    entries: usize,
    /// How often it was used so far: the age of what is used now.
    uses: u64,
    by_key: HashMap<K, u64>,
    by_age: BTreeMap<u64, K>,
}

impl<K: Copy + Eq + Hash> Lru<K> {
    /// An empty one that holds `entries` keys.
    pub fn new(entries: usize) -> Self {
        Self { entries, uses: 0, by_key: HashMap::new(), by_age: BTreeMap::new() }
    }

    /// Whether `key` is there; it is then the one that was used last.
    pub fn touch(&mut self, key: &K) -> bool {
        let Some(age) = self.by_key.get_mut(key) else { return false };
        self.by_age.remove(age);
        self.uses += 1;
        *age = self.uses;
        self.by_age.insert(self.uses, *key);
        true
    }

    /// Puts `key` in, as the one that was used last. Where there is no room the one that was used longest ago goes.
    pub fn insert(&mut self, key: K) {
        if self.touch(&key) || self.entries == 0 {
            return;
        }
        if self.by_key.len() == self.entries
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        self.uses += 1;
        self.by_key.insert(key, self.uses);
        self.by_age.insert(self.uses, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Numbers;

    /// Against a list in the order of use, for every size and many orders of calls.
    #[test]
    fn it_does_what_a_list_in_the_order_of_use_does() {
        for seed in 0..200 {
            let mut numbers = Numbers::new(seed);
            let entries = numbers.below(6);
            let (mut cache, mut list) = (Lru::new(entries), Vec::new());
            for step in 0..300 {
                let key = numbers.below(9);
                let place = list.iter().position(|other| *other == key);
                if numbers.below(2) == 0 {
                    assert_eq!(cache.touch(&key), place.is_some(), "seed {seed}, step {step}");
                    if let Some(place) = place {
                        list.remove(place);
                        list.push(key);
                    }
                } else {
                    cache.insert(key);
                    list.retain(|other| *other != key);
                    list.push(key);
                    if list.len() > entries {
                        list.remove(0);
                    }
                }
                assert!(cache.by_key.len() == list.len() && cache.by_age.len() == list.len());
            }
        }
    }
}

//! What shows a pool's locality: how many keys there are, how many each server gets, how often a server's cache had the
//! answer, which keys are asked for most and how they read.
//!
//! Estimates in fixed memory, written by all workers without a lock but for a name now and then. It refuses to decide
//! anything: a scheduler never reads it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::pure::rule::hash::mix;

/// Registers of the pool's sketch: a standard error of 1.6 %.
const POOL_REGISTERS: usize = 4096;

/// Registers of a server's sketch: a standard error of 3.2 %.
const SERVER_REGISTERS: usize = 1024;

/// Every so many requests one leaves its name.
const NAMED_EVERY: u32 = 64;

/// Places for names.
const NAMES: usize = 1024;

/// The longest name that is kept, in bytes.
const NAME_MAX: usize = 128;

/// A key and how it reads.
type Named = (u64, Box<str>);

/// The places of a pool's keys.
#[derive(Debug, Default)]
pub struct Locality {
    keys: Sketch,
    by_server: Box<[Sketch]>,
    seen: AtomicU32,
    names: Mutex<Vec<Option<Named>>>,
}

impl Locality {
    /// Of a pool with so many servers.
    pub fn new(servers: usize) -> Self {
        Self {
            keys: Sketch::new(POOL_REGISTERS),
            by_server: (0..servers).map(|_| Sketch::new(SERVER_REGISTERS)).collect(),
            seen: AtomicU32::new(0),
            names: Mutex::default(),
        }
    }

    /// A request for a key went to the server at this position.
    pub fn note(&self, key: u64, server: usize) {
        self.keys.add(key);
        if let Some(sketch) = self.by_server.get(server) {
            sketch.add(key);
        }
    }

    /// How a key reads, asked of some requests only.
    pub fn name(&self, key: u64, text: &str) {
        if !self.seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(NAMED_EVERY) {
            return;
        }
        let Ok(mut names) = self.names.try_lock() else { return };
        names.resize(NAMES, None);
        let is_known = |place: &Option<Named>| place.as_ref().is_some_and(|(known, _)| *known == key);
        if let Some(place) = names.get_mut(place_of(key)).filter(|place| !is_known(place)) {
            *place = Some((key, text.get(..text.floor_char_boundary(NAME_MAX)).unwrap_or_default().into()));
        }
    }

    /// How a key reads, if a request has told.
    pub fn name_of(&self, key: u64) -> Option<Box<str>> {
        let names = self.names.lock().ok()?;
        let (known, text) = names.get(place_of(key))?.as_ref()?;
        (*known == key).then(|| text.clone())
    }

    /// How many different keys there have been, about.
    pub fn distinct(&self) -> u64 {
        self.keys.estimate()
    }

    /// How many different keys each server has got, about, in the order of the servers.
    pub fn by_server(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.by_server.iter().map(Sketch::estimate)
    }
}

fn place_of(key: u64) -> usize {
    (mix(key, 0x9e37_79b9_7f4a_7c15) % NAMES as u64) as usize
}

/// How many different hashes there were: HyperLogLog (P. Flajolet et al., 2007), with linear counting where there are few.
#[derive(Debug, Default)]
struct Sketch(Box<[AtomicU8]>);

impl Sketch {
    /// With a power of two of registers.
    fn new(registers: usize) -> Self {
        Self((0..registers).map(|_| AtomicU8::new(0)).collect())
    }

    fn add(&self, key: u64) {
        let key = mix(key, 0xa076_1d64_78bd_642f);
        let Some(register) = self.0.get((key as usize) & (self.0.len().wrapping_sub(1))) else { return };
        let rank = ((key >> 16) | 1 << 47).trailing_zeros() as u8 + 1;
        // Read first: what nobody writes stays in every core's cache.
        if register.load(Ordering::Relaxed) < rank {
            register.fetch_max(rank, Ordering::Relaxed);
        }
    }

    fn estimate(&self) -> u64 {
        let count = self.0.len() as f64;
        let (mut sum, mut empty) = (0.0_f64, 0.0_f64);
        for register in &self.0 {
            let rank = register.load(Ordering::Relaxed);
            sum += (-f64::from(rank)).exp2();
            empty += f64::from(u8::from(rank == 0));
        }
        if count == 0.0 {
            return 0;
        }
        let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let estimate = if raw <= 2.5 * count && empty > 0.0 { count * (count / empty).ln() } else { raw };
        estimate.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::rule::hash::hash;

    #[test]
    fn different_keys_are_counted_once_within_the_error() {
        for wanted in [0u64, 1, 10, 1_000, 5_000, 100_000] {
            let locality = Locality::new(2);
            for round in 0..2 {
                for number in 0..wanted {
                    locality.note(hash(&number.to_le_bytes(), 0), round * 2 % 2 + (number % 2) as usize);
                }
            }
            let near = |found: u64, wanted: u64| found.abs_diff(wanted) as f64 <= 0.1 * wanted as f64 + 1.0;
            assert!(near(locality.distinct(), wanted), "{} for {wanted}", locality.distinct());
            assert!(locality.by_server().all(|found| near(found, wanted / 2)), "{wanted}");
        }
    }

    #[test]
    fn a_key_that_comes_often_has_its_name() {
        let locality = Locality::new(1);
        for _ in 0..NAMED_EVERY {
            locality.name(7, "/a");
        }
        locality.name(8, &"é".repeat(200));
        assert_eq!(locality.name_of(7).as_deref(), Some("/a"));
        assert_eq!(locality.name_of(8).map(|name| name.len()), Some(NAME_MAX));
        assert_eq!(locality.name_of(9), None);
    }
}

//! What shows a pool's locality: how many keys there are, how many each server gets, how often a server's cache had the
//! answer, which keys are asked for most and how they read.
//!
//! Estimates in fixed memory, written by all workers without a lock but for a name now and then. It refuses to decide
//! anything: a scheduler never reads it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::pure::rule::hash::mix;

/// Registers of the pool's sketch: a standard error of 1.6 %.
const POOL_REGISTERS: usize = 4096;

/// Registers of a server's sketch: a standard error of 3.2 %.
const SERVER_REGISTERS: usize = 1024;

/// Of the requests for keys whose place for a name another key has, every so many one takes it over.
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
    /// Requests that found another key's name at their place.
    strange: AtomicU32,
    /// The keys whose names are kept, by place; 0: none yet.
    named: Box<[AtomicU64]>,
    names: Mutex<Vec<Option<Named>>>,
}

impl Locality {
    /// Of a pool with so many servers.
    pub fn new(servers: usize) -> Self {
        Self {
            keys: Sketch::new(POOL_REGISTERS),
            by_server: (0..servers).map(|_| Sketch::new(SERVER_REGISTERS)).collect(),
            strange: AtomicU32::new(0),
            named: (0..NAMES).map(|_| AtomicU64::new(0)).collect(),
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

    /// How a key reads: asked of the first requests, and then of some only.
    pub fn name(&self, key: u64, text: impl FnOnce() -> Option<String>) {
        let Some(named) = self.named.get(place_of(key)) else { return };
        // Read only, as long as those come whose names are known: what nobody writes stays in every core's cache.
        let is_due = match named.load(Ordering::Relaxed) {
            known if known == key => false,
            0 => true,
            _ => self.strange.fetch_add(1, Ordering::Relaxed).is_multiple_of(NAMED_EVERY),
        };
        if !is_due {
            return;
        }
        let Some(text) = text() else { return };
        let Ok(mut names) = self.names.try_lock() else { return };
        names.resize(NAMES, None);
        if let Some(place) = names.get_mut(place_of(key)) {
            *place = Some((key, text.get(..text.floor_char_boundary(NAME_MAX)).unwrap_or_default().into()));
            named.store(key, Ordering::Relaxed);
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
        locality.name(7, || Some("/a".to_owned()));
        locality.name(7, || panic!("it is known"));
        locality.name(8, || Some("é".repeat(200)));
        assert_eq!(locality.name_of(7).as_deref(), Some("/a"));
        assert_eq!(locality.name_of(8).map(|name| name.len()), Some(NAME_MAX));
        assert_eq!(locality.name_of(9), None);
        // Another key at the same place takes it over now and then, and not at once each time.
        let rival = (9..).find(|key| place_of(*key) == place_of(7)).unwrap();
        let asked = std::cell::Cell::new(0);
        for number in 0..2 * NAMED_EVERY {
            let key = if number % 2 == 0 { rival } else { 7 };
            locality.name(key, || Some(format!("{}", asked.replace(asked.get() + 1))));
        }
        assert!((1..=3).contains(&asked.get()), "{}", asked.get());
    }
}

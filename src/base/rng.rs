//! A small seeded generator of random numbers for choices that need to be fair and repeatable, not secret.
//!
//! It refuses to make keys, tokens or identities: those come from `aws_lc_rs::rand`.

use aws_lc_rs::digest::{SHA256, digest};

/// The seed for one `purpose` of one `owner`, a worker's number say, out of the seed of the whole process. Two of them have
/// nothing in common that can be seen, and none tells the seed that it came from: SHA-256 stands between.
///
/// Seeds that are sums would not do: [`Rng`] goes on by adding, so that one stream would be a later part of another.
pub fn derive_seed(seed: u64, purpose: &str, owner: u64) -> u64 {
    let mut text = Vec::with_capacity(16 + purpose.len());
    text.extend_from_slice(&seed.to_le_bytes());
    text.extend_from_slice(&owner.to_le_bytes());
    text.extend_from_slice(purpose.as_bytes());
    digest(&SHA256, &text).as_ref().iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator that gives the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 where `bound` is 0. The bias is below 2⁻³² for bounds below 2³².
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_worker_repeats_the_numbers_of_another_nor_of_another_purpose() {
        let mut seen = std::collections::HashSet::new();
        for purpose in ["choices", "schedulers"] {
            for worker in 0..8 {
                let mut rng = Rng::new(derive_seed(7, purpose, worker));
                assert!((0..1000).all(|_| seen.insert(rng.next_u64())), "{purpose} of worker {worker} repeats");
            }
        }
    }
}

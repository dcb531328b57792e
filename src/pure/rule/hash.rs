//! The 64-bit hash of everything that chooses by key: wyhash, final version 4 (Wang Yi, public domain), read in little
//! endian, so that a key has the same hash in every run and on every machine.
//!
//! It refuses to be a secret: whoever chooses the key can choose the hash. Tables whose size follows from what clients send
//! give it a random seed of their own.

use std::hash::{BuildHasherDefault, Hasher};

const SECRET: [u64; 4] = [0x2d35_8dcc_aa6c_78a5, 0x8bb8_4b93_962e_acc9, 0x4b33_a62e_d433_d4a3, 0x4d5a_2da5_1de1_aa47];

/// The hash of `bytes` under `seed`. A seed that is itself a hash chains texts without joining them.
#[inline]
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    let [first, second, ..] = SECRET;
    let mut seed = seed ^ mix(seed ^ first, second);
    let (a, b) = if bytes.len() <= 16 { short(bytes) } else { long(bytes, &mut seed) };
    let (a, b) = multiply(a ^ second, b ^ seed);
    mix(a ^ first ^ bytes.len() as u64, b ^ second)
}

/// Two numbers folded into one: the product's halves, one over the other.
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let (low, high) = multiply(a, b);
    low ^ high
}

#[inline]
fn multiply(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    (product as u64, (product >> 64) as u64)
}

#[inline]
fn short(bytes: &[u8]) -> (u64, u64) {
    let length = bytes.len();
    if length >= 4 {
        let step = (length >> 3) << 2;
        let a = (read4(bytes, 0) << 32) | read4(bytes, step);
        let b = (read4(bytes, length - 4) << 32) | read4(bytes, length - 4 - step);
        return (a, b);
    }
    match bytes {
        [] => (0, 0),
        [only] => (u64::from(*only) * 0x01_0101, 0),
        [first, .., last] => {
            let middle = bytes.get(length >> 1).copied().unwrap_or(0);
            ((u64::from(*first) << 16) | (u64::from(middle) << 8) | u64::from(*last), 0)
        }
    }
}

#[inline]
fn long(bytes: &[u8], seed: &mut u64) -> (u64, u64) {
    let [_, one, two, three] = SECRET;
    let fold = |block: &[u8; 16], secret: u64, seed: u64| {
        let (low, high) = halves(block);
        mix(low ^ secret, high ^ seed)
    };
    let (triples, rest) = bytes.as_chunks::<48>();
    if !triples.is_empty() {
        let (mut second, mut third) = (*seed, *seed);
        for triple in triples {
            let ([x, y, z], _) = triple.as_chunks::<16>() else { continue };
            *seed = fold(x, one, *seed);
            second = fold(y, two, second);
            third = fold(z, three, third);
        }
        *seed ^= second ^ third;
    }
    // The last 16 bytes are not folded: they are what is left.
    let (blocks, _) = rest.get(..rest.len().saturating_sub(1)).unwrap_or_default().as_chunks::<16>();
    for block in blocks {
        *seed = fold(block, one, *seed);
    }
    bytes.last_chunk::<16>().map_or((0, 0), halves)
}

#[inline]
fn halves(block: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    (both as u64, (both >> 64) as u64)
}

#[inline]
fn read4(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk)))
}

/// [`hash`] for the standard library's maps, where the keys come from a configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHasher(u64);

/// Builds [`KeyHasher`]s.
pub type BuildKeyHasher = BuildHasherDefault<KeyHasher>;

impl Hasher for KeyHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes, self.0);
    }

    /// Numbers are either hashes already or the end mark of a text: a multiplication spreads them.
    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.0 ^= u64::from(number);
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number, 0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_test_vectors_hold() {
        let cases: [(&str, u64); 7] = [
            ("", 0x9322_8a4d_e0ee_c5a2),
            ("a", 0xc5ba_c3db_1787_13c4),
            ("abc", 0xa97f_2f7b_1d9b_3314),
            ("message digest", 0x786d_1f1d_f380_1df4),
            ("abcdefghijklmnopqrstuvwxyz", 0xdca5_a813_8ad3_7c87),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 0xb9e7_34f1_17cf_af70),
            ("12345678901234567890123456789012345678901234567890123456789012345678901234567890", 0x6cc5_eab4_9a92_d617),
        ];
        for (seed, (text, expected)) in cases.into_iter().enumerate() {
            assert_eq!(hash(text.as_bytes(), seed as u64), expected, "{text:?}");
        }
    }

    #[test]
    fn every_byte_and_every_length_counts() {
        let text = [0x5a_u8; 200];
        let mut seen = std::collections::HashSet::new();
        for length in 0..200 {
            assert!(seen.insert(hash(&text[..length], 0)), "length {length}");
            for position in 0..length {
                let mut other = text;
                other[position] ^= 1;
                assert!(seen.insert(hash(&other[..length], 0)), "length {length}, byte {position}");
            }
        }
    }
}

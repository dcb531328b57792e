//! Base layer: words that every other layer speaks. It knows nothing of HTTP beyond the `http` crate's types.
pub mod error;
pub mod h2_reset;
pub mod hex;
pub mod id;
pub mod letters;
pub mod ordinary_file;
pub mod rng;
pub mod time;
pub mod units;

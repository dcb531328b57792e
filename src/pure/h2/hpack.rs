//! Compression of heads (HPACK, RFC 7541), both ways, on bytes alone.
//!
//! A [`Decoder`] follows what the other side writes into its table, exactly or with an error: after one the connection
//! can't go on. An [`Encoder`] writes what costs little to write. Both hold what they know of one direction of one
//! connection. They refuse to judge names and values: characters, case, order and repetition are a later layer's.

mod block;
mod decoder;
mod dynamic_table;
mod encoder;
mod huffman;
mod names;
mod static_table;

pub use block::{FieldBlock, Fields};
pub use decoder::{DecodeError, Decoder};
pub use encoder::Encoder;

/// The largest size of a dynamic table that we use, in either direction; it is also the one before anything is said
/// (RFC 9113 6.5.2).
const TABLE_SIZE_MAX: usize = 4096;
/// What an entry takes of the table, and a field of a list, beside its bytes (RFC 7541 4.1, RFC 9113 6.5.2).
const ENTRY_OVERHEAD: usize = 32;

/// The size, in a table and in a list, of a field that has so many bytes in its name and value.
const fn field_size(bytes: usize) -> usize {
    bytes.saturating_add(ENTRY_OVERHEAD)
}

#[cfg(test)]
mod tests;

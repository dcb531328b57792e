//! Layer.
pub mod learned_types;

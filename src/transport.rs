//! Layer.
pub mod tls;

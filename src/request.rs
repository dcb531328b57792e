//! Layer.
pub mod access_log;

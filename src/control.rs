//! Layer.
pub mod control_loop;

//! Shared layer: what the two lines meet at. Everything here is bounded, and no lock is held across a wait.
pub mod inbox;

//! Feedback: what servers say of themselves, and how it is carried. It refuses to judge: [`crate::pure::control`] weighs it.

pub mod acceptance;
pub mod agent_check;
pub mod asking;
pub mod filter;
pub mod guard;
pub mod keys;
pub mod orca;
pub mod own_check;
pub mod pacing;
pub mod reception;
pub mod report;
pub mod weights;
pub mod wire;

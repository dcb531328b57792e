//! Feedback: what servers say of themselves, and how it is carried. It refuses to judge: [`crate::pure::control`] weighs it.

pub mod orca;
pub mod report;
pub mod weights;

//! Shared layer: where the request line and the control line meet. Control writes the [`snapshot`], requests read it;
//! requests write [`outcome`]s and [`counters`], control reads them.
//!
//! On a request's path nothing here waits for a lock, allocates or wakes another thread, but for the [`queue`] of a pool that
//! has one, while requests wait there.
pub mod choices;
pub mod choose;
pub mod control_report;
pub mod cookie_sealer;
pub mod counters;
pub mod endpoint;
pub mod inbox;
pub mod latencies;
pub mod learned_types;
pub mod lease;
pub mod load_said;
pub mod outcome;
pub mod queue;
pub mod snapshot;
pub mod spaced;
pub mod thread;

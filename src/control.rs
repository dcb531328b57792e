//! Control I/O: the thread that feeds the control core with what happens and carries out what it decides. It never touches
//! a request: what it decides reaches requests through the snapshot.
pub mod agent_check;
pub mod agent_orders;
pub mod alert;
pub mod checks;
pub mod control_loop;
pub mod equipment;
pub mod feedback;
mod follow_up;
mod freshness;
pub mod inputs;
pub mod naming;
pub mod passwords;
pub mod probe;
mod recovery;
mod share_log;
pub mod sight;

//! Operator layer: what people start, ask and read.
pub mod admin;
pub mod agent_key;
pub mod check;
pub mod cli;
pub mod demo;
pub mod explain;
pub mod rehearsal;
pub mod remap;
pub mod rule_files;
pub mod run;
pub mod secret;
pub mod status;

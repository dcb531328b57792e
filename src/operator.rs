//! Operator layer: what people start, ask and read.
pub mod check;
pub mod demo;
pub mod rule_files;

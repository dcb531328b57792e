//! Pointsman, a layer-7 switch: an edge proxy that reads each HTTP request and sends it to the server that will answer
//! it best.
//!
//! The folders are layers; a file uses its own layer and those above it in this list, never the ones below:
pub mod agent;
pub mod base;
pub mod control;
pub mod operator;
pub mod pure;
pub mod request;
pub mod shared;
pub mod transport;

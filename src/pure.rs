//! Pure layer: everything that is decided, parsed or computed. No socket, no clock, no log, no runtime: bytes, numbers and
//! points in time go in, values come out, so that all of it can be tested by itself.
pub mod cache_status;
pub mod check;
pub mod clock_table;
pub mod config;
pub mod control;
pub mod decision;
pub mod detection;
pub mod feedback;
pub mod forwarding;
pub mod h1;
pub mod h2;
pub mod head;
pub mod identity;
pub mod key_table;
pub mod locality;
pub mod naming;
pub mod persistence;
pub mod pool;
pub mod proxy_protocol;
pub mod refusal;
pub mod rendezvous;
pub mod rule;
pub mod scheduler;
pub mod trace;
pub mod trust;
pub mod websocket;

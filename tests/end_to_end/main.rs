//! The whole product at work: the real binary between real origins and real clients. One file for each subject, one
//! binary for all, so that it is linked once and everything runs in parallel.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(clippy::print_stdout, reason = "what a failing proxy said belongs to the test's output")]

#[allow(dead_code, unused_imports, reason = "a harness offers more than the subjects of one day use")]
#[path = "../support/harness.rs"]
mod support;

mod active_checks;
mod again_h2c;
mod agent;
mod bodies;
mod cancellation;
mod check;
mod client_certificates;
mod drain;
mod explain;
mod feedback;
mod forwarding;
mod h2;
mod h2_abuse;
mod h2_bodies;
mod h2_life;
mod h2_peers;
mod h2_websocket;
mod harness;
mod limits;
mod listening;
mod log;
mod mixture;
mod names;
mod own_answers;
mod persistence;
mod places;
mod pool_limits;
#[allow(dead_code, reason = "a subject takes what it needs")]
mod pools;
mod proxy_protocol;
mod proxy_protocol_upstream;
mod queue;
mod recovery;
mod reports;
mod retry;
mod rules_applied;
mod schedulers;
mod silence;
mod standby;
mod status;
mod tls;
mod trust;
mod tunnel;
mod unix_sockets;
mod upstream_h2;
mod upstream_h2_streams;
mod upstream_pool;
mod upstream_tls;

//! The harness of the end-to-end tests: the real binary between raw origins and raw clients, over loopback.
//!
//! Everything here is blocking, on threads and `std` sockets, so that a test controls each byte and each close on both
//! sides. Nothing waits without a deadline, nothing sleeps to wait for something, every port is the kernel's choice. Its
//! parsing of HTTP is its own, and strict: of the product it uses the form of feedback alone (`agent`).

pub mod agent;
pub mod client;
pub mod deadline;
pub mod dns;
pub mod frames;
pub mod h2_frames;
pub mod h2c_front;
pub mod message;
pub mod nghttpd;
pub mod origin;
pub mod proxy;
pub mod random_rules;
pub mod tls;
pub mod tls_server;
pub mod wire;

pub use client::{Client, Response};
pub use deadline::{DEADLINE, wait_for};
pub use message::Head;
pub use origin::{Exchange, Origin, refused_address};
pub use proxy::{Proxy, Setup, pointsman};
pub use wire::End;

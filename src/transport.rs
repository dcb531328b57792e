//! Transport layer: how bytes get to a server, for requests and health checks alike, and the TLS that both lines use.
pub mod client_tcp;
pub mod dial;
pub mod h2;
pub mod names;
pub mod proxy_header;
pub mod socket;
pub mod tls;

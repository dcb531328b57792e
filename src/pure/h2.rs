//! HTTP/2 (RFC 9113) as far as no socket is needed: frames, compression, flow control and the states of streams, what a client
//! may do that costs it nothing, and heads on their way between HTTP/2 and HTTP/1.1.
//!
//! HTTP/1.1 is the language in which rules, trust and forwarding are written: a head from HTTP/2 is written down in it and
//! goes through the same strict parser, and a head to HTTP/2 is made of it.

pub mod answer;
pub mod field_rules;
pub mod flood;
pub mod frames;
pub mod hpack;
pub mod multiplexer;
pub mod order;
pub mod request;
pub mod server_answer;
pub mod server_request;
pub mod trailers;

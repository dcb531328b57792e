//! HTTP/2 messages (RFC 9113 8) as HTTP/1.1 messages and back: HTTP/1.1 bytes are what the rest of the product speaks.
//!
//! Pure mapping of heads and trailers. Frames, HPACK and flow control are the `h2` crate's, streams and connections those
//! of the I/O layers.
pub mod server_answer;
pub mod server_request;

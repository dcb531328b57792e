//! The HTTP/1.x codec (RFC 9112), sans I/O: bytes in, heads, events and bytes out.
//!
//! What it accepts is unambiguous: one framing, one Host, no byte that another parser could read as a second request.
//! It opens no socket, reads no clock and sends no error: its caller does.
pub mod authority;
pub mod body;
pub mod encode;
mod facts;
mod line;
pub mod request;
pub mod response;
mod scan;
mod target;

//! The PROXY header at the beginning of a connection to a server, before TLS and before a request.

use std::io;

use tokio::net::TcpStream;

use crate::pure::proxy_protocol::{Source, Version, push};

/// Sends the header that names `source` on a connection on which nothing was sent. A new connection has room for it, so that
/// nothing is waited for.
///
/// # Errors
/// Where the connection has ended, or does not take the header whole.
pub fn send(stream: &TcpStream, version: Version, source: Source) -> io::Result<()> {
    let mut header = Vec::with_capacity(128);
    push(&mut header, version, source);
    let count = stream.try_write(&header)?;
    if count == header.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

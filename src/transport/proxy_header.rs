//! The PROXY header at the beginning of a connection to a server, before TLS and before a request.

use std::io;

use crate::pure::proxy_protocol::{Source, Version, push};
use crate::transport::dial::Dialled;

/// Sends the header that names `source` on a connection on which nothing was sent. A new connection has room for it, so that
/// nothing is waited for.
///
/// # Errors
/// Where the connection has ended, or does not take the header whole.
pub fn send(stream: &Dialled, version: Version, source: Source) -> io::Result<()> {
    let mut header = Vec::with_capacity(128);
    push(&mut header, version, source);
    let count = stream.try_write(&header)?;
    if count == header.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

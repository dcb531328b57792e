//! Waiting until there is something to read in a file, and for nothing else: a socket that is watched for room to write too wakes
//! the agent after each report.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a file that is not waited for when it is read. Needs a runtime around it.
///
/// # Errors
/// Where the system does not watch such files.
pub fn watch(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open until it is dropped and is the same file all that time, and it is the `AsyncFd`'s own. That
    // lends it mutably, so that another could be put in its place, only to whoever has it mutably; nobody here asks for that.
    unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }.map_err(io::Error::from)
}

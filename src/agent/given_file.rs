//! A small file whose path somebody has given: read whole, and never waited for.
//!
//! It refuses what is no regular file: to open a FIFO waits for somebody who writes, and the agent has one thread.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// The text of a regular file of `max` bytes at most.
///
/// # Errors
/// Where it can't be read, is no regular file, no text, or longer.
pub fn read_given(path: &Path, max: u64) -> io::Result<String> {
    let mut text = String::new();
    open_given(path)?.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max { Err(io::Error::other("it is too large")) } else { Ok(text) }
}

fn open_given(path: &Path) -> io::Result<File> {
    // Without waiting; for a regular file it changes nothing.
    let file = OpenOptions::new().read(true).custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("pid");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        assert_eq!(read_given(&fifo, 9).unwrap_err().to_string(), "it is no regular file");
        assert_eq!(read_given(folder.path(), 9).unwrap_err().to_string(), "it is no regular file");
        assert_eq!(read_given(Path::new("/dev/zero"), 9).unwrap_err().to_string(), "it is no regular file");
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        std::fs::write(&file, "123456789").unwrap();
        assert_eq!(read_given(&file, 9).unwrap(), "123456789");
        assert_eq!(read_given(&file, 8).unwrap_err().to_string(), "it is too large");
    }
}

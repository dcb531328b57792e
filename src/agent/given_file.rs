//! A small file whose path somebody has given: read whole, and never waited for.
//!
//! It refuses what is no ordinary file: to open a FIFO waits for somebody who writes, and the agent has one thread.

use std::io::{self, Read as _};
use std::path::Path;

use crate::base::ordinary_file::open_ordinary;

/// The text of an ordinary file of `max` bytes at most.
///
/// # Errors
/// Where it can't be read, is no ordinary file, no text, or longer.
pub fn read_given(path: &Path, max: u64) -> io::Result<String> {
    let mut text = String::new();
    open_ordinary(path)?.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max { Err(io::Error::other("it is too large")) } else { Ok(text) }
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
        assert_eq!(read_given(&fifo, 9).unwrap_err().to_string(), "it is no ordinary file");
        assert_eq!(read_given(folder.path(), 9).unwrap_err().to_string(), "it is no ordinary file");
        assert_eq!(read_given(Path::new("/dev/zero"), 9).unwrap_err().to_string(), "it is no ordinary file");
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

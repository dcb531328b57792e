//! A file whose path somebody has given: opened, and never waited for.
//!
//! It refuses what is no ordinary file: to open a pipe would wait for somebody who writes into it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens an ordinary file to read it.
///
/// # Errors
/// Where it can't be opened, or is something else ([`io::ErrorKind::InvalidInput`]).
pub fn open_ordinary(path: &Path) -> io::Result<File> {
    // Without waiting, and without becoming anybody's terminal; for an ordinary file it changes nothing.
    let file = OpenOptions::new().read(true).custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no ordinary file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            assert_eq!(open_ordinary(path).unwrap_err().to_string(), "it is no ordinary file", "{}", path.display());
        }
        std::fs::write(folder.path().join("file"), "it").unwrap();
        assert!(open_ordinary(&folder.path().join("file")).is_ok());
    }
}

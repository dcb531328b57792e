//! A file of /proc, /sys or a cgroup that is read again and again: opened once, read from its beginning each time.
//!
//! The kernel makes the text anew for each reading. It refuses texts beyond [`TEXT_MAX`].

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The longest text that is read.
pub const TEXT_MAX: usize = 1024 * 1024;
const FIRST: usize = 2048;

/// An open file and the room for its text.
#[derive(Debug)]
pub struct ProcFile {
    file: File,
    buffer: Vec<u8>,
}

impl ProcFile {
    /// Opens a file.
    ///
    /// # Errors
    /// Where it can't be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: vec![0; FIRST] })
    }

    /// Its text now.
    ///
    /// # Errors
    /// Where it can't be read, is no text, or is too long. That of a process that has ended can't be read.
    pub fn read(&mut self) -> io::Result<&str> {
        let mut length = 0;
        loop {
            let room = self.buffer.get_mut(length..).unwrap_or_default();
            let read = self.file.read_at(room, length as u64)?;
            length += read;
            if read == 0 {
                break;
            }
            if length == self.buffer.len() {
                if length >= TEXT_MAX {
                    return Err(io::Error::other("it is too long"));
                }
                self.buffer.resize(2 * length, 0);
            }
        }
        std::str::from_utf8(self.buffer.get(..length).unwrap_or_default()).map_err(io::Error::other)
    }
}

/// The text of a file that is read once in a while, such as one of a process.
///
/// # Errors
/// Where it can't be read, is no text, or is too long.
pub fn read_once(path: impl AsRef<Path>) -> io::Result<String> {
    let mut file = ProcFile::open(path)?;
    file.read().map(str::to_owned)
}

/// The number that is a file's whole text.
pub fn read_number(path: impl AsRef<Path>) -> Option<u64> {
    read_once(path).ok()?.trim().parse().ok()
}

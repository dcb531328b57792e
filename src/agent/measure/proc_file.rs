//! A file of /proc, /sys or a cgroup that is read again and again: opened once, read from its beginning each time.
//!
//! The kernel makes the text anew for each reading. Most files are one record, which comes whole where there is room for it; of
//! those of many the kernel gives as many as fit at a time, and only an empty piece is the end. It refuses texts beyond
//! [`TEXT_MAX`].

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
    is_list: bool,
}

impl ProcFile {
    /// Opens a file of one record, such as /proc/meminfo.
    ///
    /// # Errors
    /// Where it can't be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: vec![0; FIRST], is_list: false })
    }

    /// Opens a file that has a record for each of many things, such as /proc/net/dev.
    ///
    /// # Errors
    /// Where it can't be opened.
    pub fn open_list(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { is_list: true, ..Self::open(path)? })
    }

    /// Its text now.
    ///
    /// # Errors
    /// Where it can't be read, is no text, or is too long. That of a process that has ended can't be read.
    pub fn read(&mut self) -> io::Result<&str> {
        let mut length = 0;
        loop {
            let room = self.buffer.get_mut(length..).unwrap_or_default();
            let size = room.len();
            let read = self.file.read_at(room, length as u64)?;
            length += read;
            if read == 0 || (read < size && !self.is_list) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_to_its_end_however_much_room_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        for length in [0, 1, FIRST - 1, FIRST, FIRST + 1, 2 * FIRST, 10_000] {
            std::fs::write(&path, "x".repeat(length)).unwrap();
            for mut file in [ProcFile::open(&path).unwrap(), ProcFile::open_list(&path).unwrap()] {
                for _ in 0..2 {
                    assert_eq!(file.read().unwrap().len(), length);
                }
            }
        }
        std::fs::write(&path, "x".repeat(TEXT_MAX + 1)).unwrap();
        assert!(ProcFile::open(&path).unwrap().read().is_err());
    }

    /// Whoever opens one of these as a record relies on it: what was read is all, the end of it too.
    #[test]
    fn files_of_one_record_come_whole_at_once() {
        for (path, last) in
            [("/proc/self/stat", ""), ("/proc/stat", "softirq"), ("/proc/meminfo", "DirectMap"), ("/proc/loadavg", "")]
        {
            // Other tests of this process change what it says, not what it says last.
            let whole = std::fs::read_to_string(path).unwrap();
            let mut file = ProcFile::open(path).unwrap();
            let text = file.read().unwrap();
            assert!(text.ends_with('\n') && text.lines().count() == whole.lines().count(), "{path}");
            assert!(text.contains(last), "{path}");
        }
    }
}

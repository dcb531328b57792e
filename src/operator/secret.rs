//! The file that `secret` names: what nodes and restarts share, and keys of cookies and tickets are derived from.
//!
//! It refuses what is too short to be secret. What it reads is never shown.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::base::ordinary_file::open_ordinary;

/// The least of a secret, in bytes.
pub const SECRET_MIN: usize = 32;
/// The largest file that is read.
const FILE_MAX: u64 = 64 * 1024;

/// The bytes of a secret.
pub struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Why a secret can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file can't be read.
    #[error("the secret {}: {cause}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is too short.
    #[error("the secret {}: it has {length} bytes, and needs at least {SECRET_MIN}", .file.display())]
    TooShort {
        /// The file.
        file: PathBuf,
        /// Its length.
        length: usize,
    },
    /// It is no secret but something large.
    #[error("the secret {}: it is larger than 64 KiB", .file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
}

impl Secret {
    /// Reads a secret. The end of its last line does not count, for editors and copies differ in it; but where the rest
    /// would be too short it does: it is one of random bytes then.
    ///
    /// # Errors
    /// [`SecretError`] where it can't be read, or is no secret.
    pub fn read(file: &Path) -> Result<Self, SecretError> {
        let read = || {
            let mut bytes = Vec::new();
            open_ordinary(file)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let mut bytes = read().map_err(|cause| SecretError::Unreadable { file: file.to_owned(), cause })?;
        if bytes.len() as u64 > FILE_MAX {
            return Err(SecretError::TooLarge { file: file.to_owned() });
        }
        if bytes.len() < SECRET_MIN {
            return Err(SecretError::TooShort { file: file.to_owned(), length: bytes.len() });
        }
        let line = bytes.strip_suffix(b"\r\n").or_else(|| bytes.strip_suffix(b"\n"));
        if let Some(length) = line.map(<[u8]>::len).filter(|length| *length >= SECRET_MIN) {
            bytes.truncate(length);
        }
        Ok(Self(bytes))
    }

    /// A secret that nobody else has.
    ///
    /// # Errors
    /// Where the system has no randomness to give.
    pub fn random() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut bytes = vec![0; SECRET_MIN];
        aws_lc_rs::rand::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whether everybody on this machine can read the file.
pub fn is_public(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|facts| facts.mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<Secret, SecretError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, content).unwrap();
        Secret::read(&file)
    }

    #[test]
    fn a_pipe_is_no_secret_and_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(Secret::read(&pipe), Err(SecretError::Unreadable { .. })));
    }

    #[test]
    fn a_secret_has_32_bytes_and_its_line_end_does_not_count() {
        assert_eq!(read(&[b'x'; 32]).unwrap().bytes(), [b'x'; 32]);
        for end in [&b"\n"[..], b"\r\n"] {
            assert_eq!(read(&[&[b'x'; 32][..], end].concat()).unwrap().bytes(), [b'x'; 32]);
        }
        let binary = [&[0; 31][..], b"\n\n"].concat();
        assert_eq!(read(&binary).unwrap().bytes(), [&[0; 31][..], b"\n"].concat());
        let short = [&[b'x'; 30][..], b"\n"].concat();
        assert!(matches!(read(&short), Err(SecretError::TooShort { length: 31, .. })));
        assert!(matches!(read(&[0; 70_000]), Err(SecretError::TooLarge { .. })));
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Secret::read(folder.path()), Err(SecretError::Unreadable { .. })));
        assert!(matches!(Secret::read(&folder.path().join("none")), Err(SecretError::Unreadable { .. })));
    }

    #[test]
    fn a_secret_of_32_random_bytes_is_long_enough_whatever_its_last_byte() {
        for last in 0..=u8::MAX {
            let random = [&[b'x'; 31][..], &[last]].concat();
            assert_eq!(read(&random).unwrap().bytes(), random);
        }
        let random = [&[b'x'; 30][..], b"\r\n"].concat();
        assert_eq!(read(&random).unwrap().bytes(), random);
    }
}

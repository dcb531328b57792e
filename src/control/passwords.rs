//! What the files say that rule files name for passwords and secrets: read before the user changes, for they may be
//! root's alone, and again for another configuration. What was read is never shown.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::ordinary_file::open_ordinary;
use crate::pure::config::Config;

/// The largest file that is read, in bytes.
const FILE_MAX: u64 = 4 * 1024;

/// Passwords and secrets by their files.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Passwords(Arc<HashMap<PathBuf, String>>);

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passwords")
    }
}

/// A file has no password that could be used.
#[derive(Debug, thiserror::Error)]
#[error("the password in {}: {cause}", .file.display())]
pub struct PasswordError {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub cause: io::Error,
}

impl Passwords {
    /// Reads all that `config` names.
    ///
    /// # Errors
    /// The first that can't be used.
    pub fn read(config: &Config) -> Result<Self, PasswordError> {
        let mut passwords = HashMap::new();
        for named in &config.places.secret_files {
            passwords.insert(named.file.clone(), read(&named.file)?);
        }
        Ok(Self(Arc::new(passwords)))
    }

    /// Reads what another configuration names. A file that can't be read says what it said before, where it was read before: it may
    /// be root's alone, and the user has changed since; those that can't be used are returned too.
    pub fn read_again(&self, config: &Config) -> (Self, Vec<PasswordError>) {
        let (mut passwords, mut errors) = (HashMap::new(), Vec::new());
        for named in &config.places.secret_files {
            let known = || self.get(&named.file).map(str::to_owned);
            let password = read(&named.file).map_err(|error| errors.push(error)).ok().or_else(known);
            passwords.extend(password.map(|password| (named.file.clone(), password)));
        }
        (Self(Arc::new(passwords)), errors)
    }

    /// What a file says; `None`: it was not read.
    pub fn get(&self, file: &Path) -> Option<&str> {
        self.0.get(file).map(String::as_str)
    }
}

/// Reads a password: the first line of a small file of text, without its end.
///
/// # Errors
/// [`PasswordError`] where it can't be read, is empty, larger than 4 KiB, has several lines, or is no text.
pub fn read(file: &Path) -> Result<String, PasswordError> {
    let wrap = |cause| PasswordError { file: file.to_owned(), cause };
    let other = |what: &str| wrap(io::Error::other(what.to_owned()));
    let mut text = String::new();
    open_ordinary(file).map_err(wrap)?.take(FILE_MAX + 1).read_to_string(&mut text).map_err(wrap)?;
    if text.len() as u64 > FILE_MAX {
        return Err(other("it is larger than 4 KiB"));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(other("it is empty"));
    }
    if line.chars().any(char::is_control) {
        return Err(other("it has several lines, or control characters"));
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line_and_its_end_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let of = |content: &[u8]| {
            std::fs::write(&file, content).unwrap();
            read(&file).map_err(|error| error.cause.to_string())
        };
        for content in [&b"pass word"[..], b"pass word\n", b"pass word\r\n"] {
            assert_eq!(of(content), Ok("pass word".to_owned()));
        }
        for (content, why) in [
            (&b""[..], "it is empty"),
            (b"\n", "it is empty"),
            (b"a\nb\n", "it has several lines, or control characters"),
            (&[b'x'; 5_000], "it is larger than 4 KiB"),
        ] {
            assert_eq!(of(content), Err(why.to_owned()));
        }
        assert!(of(b"\xff\xfe").is_err() && read(folder.path()).is_err());
    }
}

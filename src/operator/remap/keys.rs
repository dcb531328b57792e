//! The keys that two rule files are compared by: of a file, a key or a request on each line, or so many that are spread
//! evenly.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use crate::pure::config::{is_token, url_trouble};
use crate::pure::rule::hash::hash;

/// How many keys there are where none are given.
const SPREAD: u64 = 10_000;

/// The most lines of a file.
const LINES_MAX: usize = 1_000_000;

/// The longest line, in bytes.
const LINE_MAX: u64 = 64 * 1024;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A key, which each pool hashes as it hashes that part of a request.
    Key(String),
    /// A request, which the rules send to a pool.
    Request {
        /// The method.
        method: String,
        /// The whole URL.
        url: String,
    },
}

/// Why a file of keys can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It can't be read.
    #[error("can't read the keys of {}: {cause}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A line is none.
    #[error("{}:{line}: {problem}", .file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Its number.
        line: usize,
        /// What is wrong.
        problem: String,
    },
}

impl KeysError {
    /// `file:line`, where it is about a line.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Read { .. } => None,
            Self::Line { file, line, .. } => Some(format!("{}:{line}", file.display())),
        }
    }
}

/// Hashes that are spread evenly over all there are; always the same.
pub(super) fn spread_evenly() -> impl Iterator<Item = u64> {
    (0..SPREAD).map(|number| hash(&number.to_le_bytes(), 0))
}

/// Reads a file of keys.
pub(super) fn read(file: &Path) -> Result<Vec<Asked>, KeysError> {
    let failed = |cause| KeysError::Read { file: file.to_owned(), cause };
    let mut reader = BufReader::new(std::fs::File::open(file).map_err(failed)?);
    let mut asked = Vec::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        if reader.by_ref().take(LINE_MAX + 1).read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
            break;
        }
        let wrong = |problem: String| KeysError::Line { file: file.to_owned(), line, problem };
        if bytes.len() as u64 > LINE_MAX {
            return Err(wrong(format!("the line is longer than {LINE_MAX} bytes")));
        }
        if line > LINES_MAX {
            return Err(wrong(format!("there are more than {LINES_MAX} lines")));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong("the line is not UTF-8".to_owned()))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if !text.is_empty() {
            asked.push(read_line(text).map_err(wrong)?);
        }
    }
    if asked.is_empty() {
        return Err(failed(io::Error::other("there are none")));
    }
    Ok(asked)
}

/// A key, a URL, or a method and a URL.
fn read_line(text: &str) -> Result<Asked, String> {
    let is_url = |text: &str| ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    let (method, url) = match text.split_once(' ') {
        Some((method, url)) if is_token(method) && is_url(url) => (method, url),
        _ if is_url(text) => ("GET", text),
        _ => return Ok(Asked::Key(text.to_owned())),
    };
    match url_trouble(url) {
        Some((problem, remedy)) => Err(format!("`{}`: {problem}: {remedy}", url.escape_debug())),
        None => Ok(Asked::Request { method: method.to_owned(), url: url.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: impl AsRef<[u8]>) -> Result<Vec<Asked>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        std::fs::write(&file, text).unwrap();
        let short = |error: KeysError| error.to_string().replace(&file.display().to_string(), "keys");
        read(&file).map_err(short)
    }

    #[test]
    fn a_line_is_a_key_or_a_request() {
        let key = |text: &str| Asked::Key(text.to_owned());
        let request = |method: &str, url: &str| Asked::Request { method: method.to_owned(), url: url.to_owned() };
        let text = "/a b\r\n\nhttp://a.test/x\nPOST https://a.test/y\nPOST /y\nGET ftp://a/\n192.0.2.1";
        assert_eq!(
            read_text(text).unwrap(),
            [
                key("/a b"),
                request("GET", "http://a.test/x"),
                request("POST", "https://a.test/y"),
                key("POST /y"),
                key("GET ftp://a/"),
                key("192.0.2.1"),
            ]
        );
        assert!(matches!(read(Path::new("/nowhere/keys")), Err(KeysError::Read { .. })));
        assert_eq!(read_text("\n").unwrap_err(), "can't read the keys of keys: there are none");
        assert_eq!(read_text(b"a\n\xff").unwrap_err(), "keys:2: the line is not UTF-8");
        assert!(read_text("a\nhttp:///x").unwrap_err().starts_with("keys:2: `http:///x`: the URL has no host"));
        assert!(read_text("x".repeat(100_000)).unwrap_err().starts_with("keys:1: the line is longer"));
    }

    #[test]
    fn the_keys_that_are_made_up_are_different() {
        let all: std::collections::HashSet<u64> = spread_evenly().collect();
        assert_eq!(all.len() as u64, SPREAD);
    }
}

//! Where the texts of rule files come from: the file system in the product, memory in tests and on the web.
//!
//! It refuses to touch the file system itself: the operator layer has that implementation.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The largest rule file.
pub const FILE_SIZE_MAX: u64 = 16 * 1024 * 1024;

/// Why a rule file or folder could not be read; the text is the system's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is no such file.
    #[error("there is no such file")]
    Missing,
    /// It is not text.
    #[error("it is not UTF-8 text")]
    NotText,
    /// It is larger than [`FILE_SIZE_MAX`].
    #[error("it is larger than 16 MiB")]
    TooLarge,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A file with this text.
    File(String),
    /// A folder with files of these names, sorted; folders in it are left out.
    Folder(Vec<String>),
}

/// Reads rule files.
pub trait RuleFiles {
    /// The text of a file, or the names of the files in a folder.
    ///
    /// # Errors
    /// [`ReadError`] where it can't be read.
    fn read(&self, path: &Path) -> Result<Found, ReadError>;
}

/// Rule files in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    files: BTreeMap<PathBuf, String>,
}

impl MemoryFiles {
    /// One file.
    pub fn one(path: &str, text: &str) -> Self {
        Self::default().with(path, text)
    }

    /// The same with one more file.
    #[must_use]
    pub fn with(mut self, path: &str, text: &str) -> Self {
        self.files.insert(plain(Path::new(path)), text.to_owned());
        self
    }
}

impl RuleFiles for MemoryFiles {
    fn read(&self, path: &Path) -> Result<Found, ReadError> {
        let path = plain(path);
        if let Some(text) = self.files.get(&path) {
            return Ok(Found::File(text.clone()));
        }
        let names: Vec<String> = self
            .files
            .keys()
            .filter(|file| file.parent() == Some(&path))
            .filter_map(|file| file.file_name().map(|name| name.to_string_lossy().into_owned()))
            .collect();
        if names.is_empty() { Err(ReadError::Missing) } else { Ok(Found::Folder(names)) }
    }
}

/// The path without `.` and, where what stands before it is a name, without `..`.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(result.components().next_back(), Some(Component::Normal(_))) => {
                result.pop();
            }
            Component::ParentDir | Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                result.push(part)
            }
        }
    }
    result
}

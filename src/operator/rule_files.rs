//! Rule files of the file system.
//!
//! It refuses what is no ordinary file, and files and folders beyond the bounds of [`crate::pure::config`].

use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::pure::config::files::{FILE_SIZE_MAX, Found, ReadError};
use crate::pure::config::{FILES_MAX, RuleFiles};

/// The rule files that lie on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl RuleFiles for DiskFiles {
    fn read(&self, path: &Path) -> Result<Found, ReadError> {
        let facts = std::fs::metadata(path).map_err(|error| read_error(&error))?;
        if facts.is_dir() {
            return names_in(path).map(Found::Folder);
        }
        if !facts.is_file() {
            return Err(ReadError::Other("it is no ordinary file".to_owned()));
        }
        let file = std::fs::File::open(path).map_err(|error| read_error(&error))?;
        let mut bytes = Vec::new();
        file.take(FILE_SIZE_MAX + 1).read_to_end(&mut bytes).map_err(|error| read_error(&error))?;
        if bytes.len() as u64 > FILE_SIZE_MAX {
            return Err(ReadError::TooLarge);
        }
        String::from_utf8(bytes).map(Found::File).map_err(|_| ReadError::NotText)
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>, ReadError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| read_error(&error))? {
        let entry = entry.map_err(|error| read_error(&error))?;
        // A link counts as what it leads to.
        let is_file = std::fs::metadata(entry.path()).is_ok_and(|facts| facts.is_file());
        if let (true, Ok(name)) = (is_file, entry.file_name().into_string()) {
            names.push(name);
        }
        if names.len() > 16 * FILES_MAX {
            return Err(ReadError::Other(format!("more than {} files lie in it", 16 * FILES_MAX)));
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn read_error(error: &std::io::Error) -> ReadError {
    match error.kind() {
        ErrorKind::NotFound => ReadError::Missing,
        _ => ReadError::Other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::config::load;

    #[test]
    fn a_folder_is_its_rule_files_in_name_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("20-rules.kdl", "rule \"second\" use=\"a\"\ninclude \"more/*.kdl\"\n");
        write(
            "10-base.kdl",
            "listen \"127.0.0.1:0\"\npool \"a\" { server \"s\" \"127.0.0.1:1\"; }\nrule \"first\" respond=404 path=\"/x\"\n",
        );
        write("notes.txt", "not a rule file {");
        std::fs::create_dir(folder.path().join("more")).unwrap();
        write("more/b.kdl", "rule \"fourth\" use=\"a\"\n");
        write("more/a.kdl", "rule \"third\" use=\"a\"\naccess-log \"logs/access.log\"\n");
        let config = load(&DiskFiles, folder.path()).unwrap();
        let names: Vec<&str> = config.rules.iter().map(|rule| &*rule.name).collect();
        assert_eq!(names, ["first", "second", "third", "fourth"]);
        assert_eq!(config.access_log.unwrap().file, Some(folder.path().join("more/logs/access.log")));
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.kdl");
        let errors = load(&DiskFiles, &missing).unwrap_err().to_string();
        assert!(errors.contains("missing.kdl") && errors.contains("no such file"), "{errors}");
        std::fs::write(&missing, b"listen \"\xff\"").unwrap();
        assert!(load(&DiskFiles, &missing).unwrap_err().to_string().contains("not UTF-8"));
    }
}

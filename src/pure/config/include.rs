//! From an entry to the nodes of all its files in order: a folder is all its `*.kdl` in name order, and `include` expands
//! in place. The number of files and the depth of includes are bounded, and no file is read twice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kdl::KdlNode;

use super::files::{Found, ReadError, RuleFiles, plain};
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use super::source::{Place, Source};
use super::syntax;

/// The most rule files of one configuration.
pub const FILES_MAX: usize = 4096;

/// How deep includes may lie in one another.
pub const INCLUDE_DEPTH_MAX: usize = 16;

/// The nodes that stand at the top of the files, includes expanded.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    /// In order, each with its file.
    pub(super) nodes: Vec<(Arc<Source>, KdlNode)>,
    /// Whether a file could not be read or parsed, so that names may be missing that are not wrong.
    pub(super) is_incomplete: bool,
}

/// Reads `entry` and all that it includes.
pub(super) fn expand(files: &dyn RuleFiles, entry: &Path, problems: &mut Problems) -> Expanded {
    let mut reading = Reading { files, problems, read: BTreeMap::new(), expanded: Expanded::default() };
    match files.read(entry) {
        Ok(Found::File(text)) => reading.file(entry.to_owned(), text, None, 0),
        Ok(Found::Folder(names)) => reading.folder(entry, &names),
        Err(error) => {
            reading.problems.add(Problem::nowhere(format!("{} can't be read: {error}", entry.display())));
            reading.expanded.is_incomplete = true;
        }
    }
    reading.expanded
}

struct Reading<'a> {
    files: &'a dyn RuleFiles,
    problems: &'a mut Problems,
    /// Each file that was read, and the `include` that named it.
    read: BTreeMap<PathBuf, Option<Place>>,
    expanded: Expanded,
}

impl Reading<'_> {
    fn folder(&mut self, folder: &Path, names: &[String]) {
        let rule_files: Vec<_> = names.iter().filter(|name| name.ends_with(".kdl") && !name.starts_with('.')).collect();
        if rule_files.is_empty() {
            let problem = Problem::nowhere(format!("{} holds no rule file", folder.display()));
            self.problems.add(problem.help("the names of rule files end in .kdl"));
            self.expanded.is_incomplete = true;
        }
        for name in rule_files {
            self.path(folder.join(name), None, 0);
        }
    }

    /// Reads one file that `include` or a folder names.
    fn path(&mut self, path: PathBuf, include: Option<Place>, depth: usize) {
        let error = match self.files.read(&path) {
            Ok(Found::File(text)) => return self.file(path, text, include, depth),
            Ok(Found::Folder(_)) => ReadError::Other("it is a folder".to_owned()),
            Err(error) => error,
        };
        let help = matches!(error, ReadError::Other(_)) && include.is_some();
        let problem = at_or_nowhere(include.as_ref(), format!("{} can't be read: {error}", path.display()));
        self.problems.add(if help { problem.help("all files of a folder: \"folder/*.kdl\"") } else { problem });
        self.expanded.is_incomplete = true;
    }

    fn file(&mut self, path: PathBuf, text: String, include: Option<Place>, depth: usize) {
        let key = plain(&path);
        if let Some(first) = self.read.get(&key) {
            let problem = at_or_nowhere(include.as_ref(), format!("{} is read twice", path.display()));
            let problem = problem.label("it has been read already");
            self.problems.add(match first {
                Some(place) => problem.also(place, "first here"),
                None => problem.help("it is the entry, or lies in the folder that is"),
            });
            return;
        }
        if self.read.len() >= FILES_MAX {
            self.problems.add(at_or_nowhere(include.as_ref(), format!("these are more than {FILES_MAX} rule files")));
            self.expanded.is_incomplete = true;
            return;
        }
        let source = Arc::new(Source::new(path, text, self.read.len()));
        self.read.insert(key, include);
        let Some(document) = syntax::parse(&source, self.problems) else {
            self.expanded.is_incomplete = true;
            return;
        };
        for node in document {
            if node.name().value() == "include" {
                self.include(Node { source: &source, kdl: &node }, depth + 1);
            } else {
                self.expanded.nodes.push((Arc::clone(&source), node));
            }
        }
    }

    fn include(&mut self, node: Node<'_>, depth: usize) {
        super::shape::check_top(node, self.problems);
        let Some((value, name)) = node.argument(0).and_then(|value| Some((value, value.text()?))) else { return };
        if depth > INCLUDE_DEPTH_MAX {
            let problem =
                Problem::at(&value.place(), format!("includes lie deeper than {INCLUDE_DEPTH_MAX} in one another"));
            self.problems.add(problem.label("not followed"));
            self.expanded.is_incomplete = true;
            return;
        }
        let path = node.source.beside(name);
        if name.contains('*') { self.glob(&path, value, depth) } else { self.path(path, Some(value.place()), depth) }
    }

    /// Reads the files of a folder whose names match the last part of `pattern`; none is no error.
    fn glob(&mut self, pattern: &Path, value: Value<'_>, depth: usize) {
        let folder = pattern.parent().unwrap_or(Path::new(""));
        let last = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if folder.to_string_lossy().contains('*') {
            let problem = Problem::at(&value.place(), "a `*` may stand in the last part of a path only");
            self.problems.add(problem.label("not in a folder's name"));
            return;
        }
        match self.files.read(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }) {
            Ok(Found::Folder(names)) => {
                for name in names.iter().filter(|name| !name.starts_with('.') && matches(&last, name)) {
                    self.path(folder.join(name), Some(value.place()), depth);
                }
            }
            found => {
                let why = found.err().map_or_else(|| "it is no folder".to_owned(), |error| error.to_string());
                let problem = Problem::at(&value.place(), format!("{} can't be read: {why}", folder.display()));
                self.problems.add(problem.label("this folder"));
                self.expanded.is_incomplete = true;
            }
        }
    }
}

fn at_or_nowhere(place: Option<&Place>, message: String) -> Problem {
    match place {
        Some(place) => Problem::at(place, message).label("included here"),
        None => Problem::nowhere(message),
    }
}

/// Whether `name` matches a pattern in which `*` is any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name, expected) in [
            ("*.kdl", "a.kdl", true),
            ("*.kdl", "a.kdl.bak", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "ac", false),
            ("site.kdl", "site.kdl", true),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}

//! Why a measurement could not be made: one sentence for whoever started it.

use std::fmt;

/// A sentence that names what failed and, where there is one, what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

/// What everything here returns that can fail.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure that says `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// In one line, for a table: the errors that a program has marked as such, or else everything.
    pub fn brief(&self) -> String {
        let marked: Vec<&str> = self.0.split("× ").skip(1).filter_map(|marked| marked.lines().next()).collect();
        if marked.is_empty() { self.0.replace('\n', " ") } else { marked.join("; ") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Says what was being done when something failed.
pub trait While<T> {
    /// Puts `doing` before the cause.
    fn doing(self, doing: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: fmt::Display> While<T> for Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|cause| Failure(format!("{}: {cause}", doing())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_brief_only_what_is_marked_as_an_error_is_said() {
        let said = "starting it (it said: × `cbr` is not known\n ╭─[x:1:2]\n  × nor is `key`\n 3 │ y)";
        assert_eq!(Failure::new(said).brief(), "`cbr` is not known; nor is `key`");
        assert_eq!(Failure::new("no\nanswer").brief(), "no answer");
    }
}

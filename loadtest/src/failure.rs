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

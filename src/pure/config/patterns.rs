//! Which captures path patterns and regular expressions have, and what is wrong with those that are not valid.

use std::ops::Range;

use crate::pure::rule::compile::path_regex;
use crate::pure::rule::pattern::PathPattern;

/// The names of a path pattern's captures.
///
/// # Errors
/// What is wrong with it, and where in its text.
pub(super) fn path_captures(pattern: &str) -> Result<Vec<String>, (String, Range<usize>)> {
    match PathPattern::parse(pattern) {
        Ok(parsed) => Ok(parsed.names().map(str::to_owned).collect()),
        Err(error) => Err((error.problem.to_string(), error.at..error.at + error.length)),
    }
}

/// The captures of a regular expression, by number and by name.
///
/// # Errors
/// What is wrong with it.
pub(super) fn regex_captures(expression: &str) -> Result<Vec<String>, String> {
    let built = path_regex(expression).map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("it takes more than {} KiB of memory when compiled", limit / 1024)
        }
        // The library draws over several lines, of which the last says what is wrong.
        error => error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    })?;
    let numbers = (0..built.captures_len()).map(|number| number.to_string());
    Ok(numbers.chain(built.capture_names().flatten().map(str::to_owned)).collect())
}

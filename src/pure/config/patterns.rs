//! Which captures path patterns, regular expressions and templates have, and what is wrong with those that are not valid.

use std::ops::Range;

use crate::pure::rule::compile::path_regex;
use crate::pure::rule::pattern::PathPattern;
use crate::pure::rule::{Template, TemplatePart};

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

/// A text with captures: `{name}` and `$1`; `{{`, `}}` and `$$` stand for the characters themselves.
pub(super) fn template(text: &str) -> Result<Template, String> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let capture = match letter {
            '{' | '}' | '$' if letters.next_if_eq(&letter).is_some() => None,
            '{' => {
                let name: String = letters.by_ref().take_while(|letter| *letter != '}').collect();
                let is_name = !name.is_empty()
                    && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_' || letter == '-');
                if !is_name {
                    return Err(format!("`{{{name}` is no capture"));
                }
                Some(name)
            }
            '}' => return Err("a `}` stands alone".to_owned()),
            '$' => {
                let mut digits = String::new();
                while let Some(digit) = letters.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                }
                (!digits.is_empty()).then_some(digits)
            }
            _ => None,
        };
        match capture {
            Some(name) => {
                if !plain.is_empty() {
                    parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
                }
                parts.push(TemplatePart::Capture(name));
            }
            None => plain.push(letter),
        }
    }
    if !plain.is_empty() {
        parts.push(TemplatePart::Text(plain));
    }
    Ok(Template { parts })
}

//! Whether path patterns, regular expressions and templates are valid, and which captures they have.

use regex::bytes::RegexBuilder;

use crate::pure::rule::{Template, TemplatePart};

/// The largest compiled regular expression, in bytes.
pub const REGEX_SIZE_MAX: usize = 256 * 1024;

/// The names of a path pattern's captures; the error says what is wrong with it.
pub(super) fn path_captures(pattern: &str) -> Result<Vec<String>, String> {
    if !pattern.starts_with('/') {
        return Err("a path pattern begins with `/`".to_owned());
    }
    matchit::Router::new().insert(pattern, ()).map_err(|error| error.to_string())?;
    let mut names = Vec::new();
    let mut rest = pattern.replace("{{", "").replace("}}", "");
    while let Some((_, behind)) = rest.split_once('{') {
        let Some((name, behind)) = behind.split_once('}') else { break };
        names.push(name.trim_start_matches('*').to_owned());
        rest = behind.to_owned();
    }
    Ok(names)
}

/// The captures of a regular expression, by number from 1 and by name; the error says what is wrong with it.
pub(super) fn regex_captures(expression: &str) -> Result<Vec<String>, String> {
    let built = RegexBuilder::new(expression).size_limit(REGEX_SIZE_MAX).build().map_err(|error| error.to_string())?;
    let numbers = (1..built.captures_len()).map(|number| number.to_string());
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

//! Fills the committed configurations.
//!
//! A line that begins with `@mark@` (lower case) is kept only where the mark is wanted; `@NAME@` (upper case) is replaced by its value.
//! A mark that nobody knows and a name without a value are errors, so that no run measures half a configuration.

use crate::failure::{Failure, Outcome};

const MARKS: [&str; 15] = [
    "silent",
    "logged",
    "small",
    "large",
    "splice",
    "h1",
    "h2c",
    "grpc",
    "hash",
    "leastconn",
    "uri",
    "bounded",
    "untuned",
    "tuned",
    "poller",
];

/// Whether a template has lines for `mark`.
pub fn knows(template: &str, mark: &str) -> bool {
    template.lines().any(|line| marked(line).is_some_and(|(found, _)| found == mark))
}

/// `template` with the lines of the wanted `marks` and with every name replaced.
pub fn fill(template: &str, marks: &[&str], values: &[(&str, String)]) -> Outcome<String> {
    let mut filled = String::with_capacity(template.len());
    for line in template.lines() {
        let kept = match marked(line) {
            None => line,
            Some((mark, _)) if !MARKS.contains(&mark) => {
                return Err(Failure::new(format!("a template has the unknown mark @{mark}@")));
            }
            Some((mark, rest)) if marks.contains(&mark) => rest,
            Some(_) => continue,
        };
        let mut text = kept.to_owned();
        for (name, value) in values {
            text = text.replace(&format!("@{name}@"), value);
        }
        if let Some(name) = unfilled(&text) {
            return Err(Failure::new(format!("a template wants @{name}@, which has no value")));
        }
        filled.push_str(&text);
        filled.push('\n');
    }
    Ok(filled)
}

fn marked(line: &str) -> Option<(&str, &str)> {
    let (mark, rest) = line.strip_prefix('@')?.split_once('@')?;
    let is_mark = !mark.is_empty() && mark.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    is_mark.then_some((mark, rest))
}

fn unfilled(text: &str) -> Option<&str> {
    let is_name =
        |part: &str| part.len() > 1 && part.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'_' | b'0'..=b'9'));
    text.split('@').skip(1).find(|part| is_name(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "@silent@ quiet\n@logged@ to @FILE@\nalways @PORT@ a@b\n";

    #[test]
    fn only_wanted_lines_stay_and_names_are_replaced() {
        let values = [("PORT", "80".to_owned()), ("FILE", "/log".to_owned())];
        assert_eq!(fill(TEXT, &["silent"], &values).unwrap(), " quiet\nalways 80 a@b\n");
        assert_eq!(fill(TEXT, &["logged"], &values).unwrap(), " to /log\nalways 80 a@b\n");
        assert!(knows(TEXT, "logged") && !knows(TEXT, "large"));
    }

    #[test]
    fn unknown_marks_and_missing_values_are_errors() {
        assert!(fill("@bright@ x\n", &[], &[]).is_err());
        assert!(fill(TEXT, &["silent"], &[]).unwrap_err().to_string().contains("@PORT@"));
    }
}

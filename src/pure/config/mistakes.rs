//! What people write who know other configuration languages, found in a text that is no KDL: comments after `#`, `=` in
//! blocks, values without their quotes, and whole files of other programs.
//!
//! It looks only where the parser has failed, so that no right text can fall foul of it; the parser's own complaints about
//! such a text are of what follows from the mistake.

use std::ops::Range;
use std::sync::Arc;

use super::lexical::piece_length;
use super::problem::Problem;
use super::source::{Place, Source};

/// The most mistakes that are told of one text.
const TOLD_MAX: usize = 16;

/// Words that begin lines of other programs' configurations, with what follows them there.
const FOREIGN: &[(&str, &str)] = &[
    ("server", "{"),
    ("http", "{"),
    ("events", "{"),
    ("location", ""),
    ("upstream", "{"),
    ("proxy_pass", ""),
    ("server_name", ""),
    ("<VirtualHost", ""),
    ("ProxyPass", ""),
    ("reverse_proxy", ""),
    ("use_backend", ""),
    ("default_backend", ""),
];

/// The one thing to say of a text that another program would read; `None` where it looks like ours.
pub(super) fn foreign(source: &Arc<Source>) -> Option<Problem> {
    let mut start = 0;
    for line in source.text().split_inclusive('\n') {
        let trimmed = line.trim();
        let word = trimmed.split(char::is_whitespace).next().unwrap_or_default();
        let is_foreign = |(known, end): &(&str, &str)| word == *known && trimmed.ends_with(end) && trimmed != word;
        if FOREIGN.iter().any(is_foreign) {
            let offset = start + line.len() - line.trim_start().len();
            let place = at(source, offset..offset + trimmed.len());
            let problem = Problem::at(&place, "this looks like another program's configuration");
            return Some(problem.label("no line of a rule file").help(
                "a rule file has listeners, pools and rules: listen \"*:80\"; pool \"a\" { server \"o1\" \
                 \"10.0.0.1:9000\" }; rule use=\"a\"",
            ));
        }
        start += line.len();
    }
    None
}

/// The mistakes of a text, in order.
pub(super) fn find(source: &Arc<Source>) -> Vec<Problem> {
    let text = source.text();
    let (mut at_byte, mut depth, mut begins_node) = (0, 0_usize, true);
    let mut found = Vec::new();
    while let Some(rest) = text.get(at_byte..).filter(|rest| !rest.is_empty()) {
        if found.len() == TOLD_MAX {
            break;
        }
        let first = rest.chars().next().unwrap_or_default();
        let mut length = piece_length(rest).unwrap_or(rest.len()).max(1);
        match first {
            '{' => (depth, begins_node) = (depth + 1, true),
            '}' => (depth, begins_node) = (depth.saturating_sub(1), true),
            ';' | '\n' | '\r' => begins_node = true,
            '#' if is_comment(rest, length) => {
                length = rest.find(['\n', '\r']).unwrap_or(rest.len());
                let place = at(source, at_byte..at_byte + length);
                found.push(Problem::at(&place, "comments begin with //").label("write // in place of #"));
            }
            '=' => {
                let value = bare_word(rest.get(1..).unwrap_or_default());
                if lacks_quotes(value) {
                    found.push(without_quotes(&at(source, at_byte + 1..at_byte + 1 + value.len())));
                }
                length = 1 + value.len();
            }
            _ if is_word(first) && !rest.starts_with("//") && !rest.starts_with("/*") && !rest.starts_with("/-") => {
                let name = rest.split(|letter| !is_word(letter)).next().unwrap_or_default();
                length = name.len().max(1);
                let value = rest.get(length..).and_then(|rest| rest.strip_prefix('='));
                if let Some(value) = value.filter(|_| begins_node && depth > 0) {
                    let value = value_of(value);
                    let end = at_byte + length + 1 + value.len();
                    let quoted = if value.starts_with(['"', '#']) || value.parse::<i64>().is_ok() {
                        value.to_owned()
                    } else {
                        format!("\"{}\"", value.trim_matches('\''))
                    };
                    let place = at(source, at_byte..end);
                    let problem = Problem::at(&place, format!("in a block write `{name} {quoted}`"));
                    found.push(problem.label("here stands no `=`"));
                    length += 1 + value.len();
                }
                begins_node = false;
            }
            _ if first.is_whitespace() || rest.starts_with('/') => {}
            _ => begins_node = false,
        }
        at_byte += length;
    }
    found
}

/// What to say of a value at `place` that should stand in quotes.
pub(super) fn without_quotes(place: &Place) -> Problem {
    let problem = Problem::at(place, format!("`{}` lacks its quotes", place.text()));
    problem.label(format!("write \"{}\"", place.text()))
}

/// The word around the byte `offset`, up to blanks, `=`, `;` and braces.
pub(super) fn word_around(source: &Arc<Source>, offset: usize) -> Place {
    let (before, behind) = source.text().split_at_checked(offset).unwrap_or_default();
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, '=' | ';' | '{' | '}' | '"');
    let start = before.rfind(ends).map_or(0, |end| before.ceil_char_boundary(end + 1));
    at(source, start..offset + behind.find(ends).unwrap_or(behind.len()))
}

fn at(source: &Arc<Source>, span: Range<usize>) -> Place {
    Place { source: Arc::clone(source), span }
}

fn is_word(letter: char) -> bool {
    !letter.is_whitespace() && !matches!(letter, '=' | ';' | '{' | '}' | '(' | ')' | '"' | '#' | '\\')
}

/// Whether a `#` begins neither a raw string, whose length is more than its hashes, nor a word of KDL.
fn is_comment(rest: &str, length: usize) -> bool {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let word = bare_word(rest);
    length == hashes && !matches!(word, "#true" | "#false" | "#null" | "#inf" | "#-inf" | "#nan")
}

fn bare_word(text: &str) -> &str {
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, ';' | '{' | '}' | '"');
    text.get(..text.find(ends).unwrap_or(text.len())).unwrap_or_default()
}

/// A value with its quotes, or a bare word.
fn value_of(text: &str) -> &str {
    if text.starts_with(['"', '#'])
        && let Ok(length) = piece_length(text)
        && length > 1
    {
        return text.get(..length).unwrap_or_default();
    }
    bare_word(text)
}

/// Whether it can only be a text, by its first digit or by a `/*` that begins a comment without quotes.
fn lacks_quotes(value: &str) -> bool {
    let is_number = value.parse::<f64>().is_ok() || value.starts_with("0x") || value.contains('_');
    (value.starts_with(|first: char| first.is_ascii_digit()) && !is_number) || value.contains("/*")
}

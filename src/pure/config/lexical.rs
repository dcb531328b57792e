//! A look at a KDL text by its lexical rules alone, before it is parsed: how deep it nests, and whether its strings and
//! comments end.
//!
//! The parser descends once per block, comment and `/-`, so a text that nests without bound would exhaust the stack; and it
//! searches the end of each open string anew. Source: KDL 2.0.0, sections on strings, comments, slashdash and newlines.

/// The deepest nesting of blocks, of comments, and of `/-` in a row. The language itself needs four.
pub(super) const NESTING_MAX: usize = 32;

/// What the parser would choke on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Something lies deeper than [`NESTING_MAX`].
    TooDeep,
    /// A string has no end.
    OpenText,
    /// A comment has no end.
    OpenComment,
}

/// The first fault of a text, and the bytes that show it.
pub(super) fn first_fault(text: &str) -> Option<(Fault, std::ops::Range<usize>)> {
    let mut at = 0;
    let mut depth = 0_usize;
    let mut dashes = 0_usize;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let bytes = rest.as_bytes();
        let is_blank =
            rest.starts_with(|letter: char| letter.is_whitespace() || letter == '\\' || letter == '\u{feff}');
        let is_comment = bytes.starts_with(b"//") || bytes.starts_with(b"/*");
        let is_dash = bytes.starts_with(b"/-");
        dashes = if is_dash {
            dashes + 1
        } else if is_blank || is_comment {
            dashes
        } else {
            0
        };
        depth = match bytes {
            [b'{', ..] => depth + 1,
            [b'}', ..] => depth.saturating_sub(1),
            _ => depth,
        };
        if depth > NESTING_MAX || dashes > NESTING_MAX {
            return Some((Fault::TooDeep, at..at + 1));
        }
        match piece_length(rest) {
            Ok(length) => at += length.max(1),
            Err((fault, place)) => return Some((fault, at + place.start..at + place.end)),
        }
    }
    None
}

/// The length of the comment, string, `/-` or letter that `rest` begins with.
pub(super) fn piece_length(rest: &str) -> Length {
    match rest.as_bytes() {
        [b'/', b'/', ..] => Ok(rest.find(is_newline).unwrap_or(rest.len())),
        bytes @ [b'/', b'*', ..] => comment_length(bytes),
        [b'/', b'-', ..] => Ok(2),
        [b'"', ..] => quoted_length(rest),
        [b'#', ..] => raw_length(rest),
        _ => Ok(rest.chars().next().map_or(1, char::len_utf8)),
    }
}

pub(super) type Length = Result<usize, (Fault, std::ops::Range<usize>)>;

const fn is_newline(letter: char) -> bool {
    matches!(letter, '\n' | '\r' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}')
}

/// The length of a `/* .. */` comment, which may hold others.
fn comment_length(text: &[u8]) -> Length {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(pair) = text.get(at..at + 2) {
        match pair {
            b"/*" => {
                depth += 1;
                if depth > NESTING_MAX {
                    return Err((Fault::TooDeep, at..at + 2));
                }
                at += 2;
            }
            b"*/" => {
                depth = depth.saturating_sub(1);
                at += 2;
                if depth == 0 {
                    return Ok(at);
                }
            }
            _ => at += 1,
        }
    }
    Err((Fault::OpenComment, 0..2))
}

/// The length of a string in quotes; with three of them it may have several lines.
fn quoted_length(text: &str) -> Length {
    let (end, is_one_line) = if text.starts_with("\"\"\"") { ("\"\"\"", false) } else { ("\"", true) };
    let mut at = end.len();
    while let Some(rest) = text.get(at..) {
        let mut letters = rest.chars();
        at += match letters.next() {
            Some('"') if rest.starts_with(end) => return Ok(at + end.len()),
            Some('\\') => {
                let blank = rest.len() - 1 - letters.as_str().trim_start().len();
                let escaped = letters.next().map_or(0, char::len_utf8);
                1 + blank.max(escaped)
            }
            Some('\n' | '\r') if is_one_line => break,
            Some(letter) => letter.len_utf8(),
            None => break,
        };
    }
    Err((Fault::OpenText, 0..line_length(text, end.len())))
}

/// The length of a raw string, or of the hashes where none follows.
fn raw_length(text: &str) -> Length {
    let hashes = text.len() - text.trim_start_matches('#').len();
    let body = text.get(hashes..).unwrap_or_default();
    // Three quotes begin lines only where the first line is empty: `#""""#` is a string of two quotes.
    let is_lines = body.strip_prefix("\"\"\"").is_some_and(|rest| rest.starts_with(is_newline));
    let quotes = if is_lines { 3 } else { usize::from(body.starts_with('"')) };
    if quotes == 0 {
        return Ok(hashes);
    }
    let inner = body.get(quotes..).unwrap_or_default();
    let limit = if quotes == 1 { inner.find(['\n', '\r']).unwrap_or(inner.len()) } else { inner.len() };
    let end = "\"".repeat(quotes) + &"#".repeat(hashes);
    let found = inner.get(..limit).and_then(|inner| memchr::memmem::find(inner.as_bytes(), end.as_bytes()));
    match found {
        Some(at) => Ok(hashes + quotes + at + end.len()),
        None => Err((Fault::OpenText, 0..line_length(text, hashes + quotes))),
    }
}

/// The length of the line that `text` begins with, at least `least`.
fn line_length(text: &str, least: usize) -> usize {
    text.find(['\n', '\r']).unwrap_or(text.len()).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_blocks_comments_and_dashes_are_found() {
        assert_eq!(first_fault(&("a {".repeat(32) + &"}".repeat(32))), None);
        assert_eq!(first_fault(&"a {".repeat(33)), Some((Fault::TooDeep, 98..99)));
        assert_eq!(first_fault(&"/*".repeat(33)), Some((Fault::TooDeep, 64..66)));
        assert_eq!(first_fault(&"/- ".repeat(33)), Some((Fault::TooDeep, 96..97)));
        assert_eq!(first_fault(&"a {}\n/-b\n".repeat(100)), None);
    }

    #[test]
    fn braces_in_strings_and_comments_do_not_count() {
        for text in [
            r#"a "{" "\"{" "#,
            "a #\"{\"#\n",
            "a ##\"{\"#{\"##\n",
            "// { \"\n",
            "/* { /* { */ \" { */",
            "a \"\"\"\n{\"{\n\"\"\"\n",
            "a #\"\"\"\n{\"#\n\"\"\"#\n",
            "a \"b \\\n\n  c {\"\n",
        ] {
            assert_eq!(first_fault(&text.repeat(40)), None, "{text}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(5_000))]

        /// What the parser takes is never refused before it, but for its depth.
        #[test]
        fn nothing_that_parses_is_at_fault(pieces in proptest::collection::vec(proptest::sample::select(vec![
            "a", " ", "\n", "\"", "\"\"\"", "\"\"\"\n", "#", "#\"", "\"#", "##\"", "\"##", "\\", "\\\"", "\\\n", "{", "}", "=",
            "//", "/*", "*/", "/-", "\"b\"", "#\"c\"#", "\\u{41}", "\r\n", "\u{2028}", "\u{85}", "ü", "#true", "1", ";",
        ]), 0..14)) {
            let text = pieces.concat();
            if kdl::KdlDocument::parse_v2(&text).is_ok() {
                let fault = first_fault(&text).map(|(fault, _)| fault);
                proptest::prop_assert!(matches!(fault, None | Some(Fault::TooDeep)), "{text:?}: {fault:?}");
            }
        }
    }

    #[test]
    fn strings_and_comments_without_end_are_found() {
        for (text, fault, place) in [
            ("a \"b\nc", Fault::OpenText, 2..4),
            ("a \"b\\", Fault::OpenText, 2..5),
            ("a #\"b\"\nc \"#", Fault::OpenText, 2..6),
            ("a \"\"\"\nb\n", Fault::OpenText, 2..5),
            ("a /* b", Fault::OpenComment, 2..4),
        ] {
            assert_eq!(first_fault(text), Some((fault, place)), "{text}");
        }
    }
}

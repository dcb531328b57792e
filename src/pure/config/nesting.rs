//! How deep the blocks of a KDL text nest, found by its lexical rules alone.
//!
//! The parser descends once per block and comment, so a text that nests without bound would exhaust the stack: what is
//! too deep is refused before it is parsed. Source: KDL 2.0.0, sections on strings, comments and children.

/// The deepest nesting of blocks and of comments. The language itself needs four.
pub(super) const NESTING_MAX: usize = 32;

/// The offset of the first brace or comment that lies deeper than [`NESTING_MAX`].
pub(super) fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut depth = 0usize;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match rest {
            [b'{', ..] => {
                depth += 1;
                if depth > NESTING_MAX {
                    return Some(at);
                }
                at += 1;
            }
            [b'}', ..] => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            [b'/', b'/', ..] => at += memchr::memchr(b'\n', rest).unwrap_or(rest.len()),
            [b'/', b'*', ..] => match comment_length(rest) {
                Ok(length) => at += length,
                Err(deep) => return Some(at + deep),
            },
            [b'"', ..] => at += quoted_length(rest),
            [b'#', ..] => at += hash_length(rest),
            _ => at += 1,
        }
    }
    None
}

/// The length of a `/* .. */` comment, which may hold others; the error is where it is too deep.
fn comment_length(text: &[u8]) -> Result<usize, usize> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(pair) = text.get(at..at + 2) {
        match pair {
            b"/*" => {
                depth += 1;
                if depth > NESTING_MAX {
                    return Err(at);
                }
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return Ok(at);
                }
            }
            _ => at += 1,
        }
    }
    Ok(2)
}

/// The length of a quoted string. Of one that does not end only the quotes count, since the parser may go on anywhere
/// behind them.
fn quoted_length(text: &[u8]) -> usize {
    if text.starts_with(b"\"\"\"") {
        return escaped_length(text, 3, b"\"\"\"", false);
    }
    escaped_length(text, 1, b"\"", true)
}

fn escaped_length(text: &[u8], opening: usize, end: &[u8], is_one_line: bool) -> usize {
    let mut at = opening;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(end) {
            return at + end.len();
        }
        match rest {
            [b'\\', _, ..] => at += 2,
            [b'\n', ..] if is_one_line => return opening,
            _ => at += 1,
        }
    }
    opening
}

/// The length of a raw string, or of the hashes where none follows.
fn hash_length(text: &[u8]) -> usize {
    let hashes = text.iter().take_while(|byte| **byte == b'#').count();
    let Some(body) = text.get(hashes..) else { return hashes };
    let quotes = if body.starts_with(b"\"\"\"") { 3 } else { usize::from(body.starts_with(b"\"")) };
    if quotes == 0 {
        return hashes;
    }
    let end = [vec![b'"'; quotes], vec![b'#'; hashes]].concat();
    let inner = body.get(quotes..).unwrap_or_default();
    let limit = if quotes == 1 { memchr::memchr(b'\n', inner).unwrap_or(inner.len()) } else { inner.len() };
    let found = inner.get(..limit).and_then(|inner| memchr::memmem::find(inner, &end));
    hashes + quotes + found.map_or(0, |at| at + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_blocks_and_comments_are_found() {
        assert_eq!(too_deep(&("a {".repeat(32) + &"}".repeat(32))), None);
        assert_eq!(too_deep(&"a {".repeat(33)), Some(32 * 3 + 2));
        assert_eq!(too_deep(&"/*".repeat(33)), Some(64));
        assert_eq!(too_deep(&("a {}\n".repeat(100))), None);
    }

    #[test]
    fn braces_in_strings_and_comments_do_not_count() {
        for text in [
            r#"a "{" "\"{" "#,
            "a #\"{\"#",
            "a ##\"{\"#{\"##",
            "// {\n",
            "/* { /* { */ { */",
            "a \"\"\"\n{\"{\n\"\"\"\n",
        ] {
            assert_eq!(too_deep(&text.repeat(40)), None, "{text}");
        }
    }
}

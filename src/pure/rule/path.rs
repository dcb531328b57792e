//! The path that rules, captures and keys see: one spelling for each path (RFC 3986 6.2.2), in ASCII. And the test for
//! paths that two parsers may read differently.
//!
//! Escapes of unreserved characters are decoded, the hexadecimal digits of the others are upper case, dot segments are
//! removed (5.2.4; an escaped dot is a dot), and every byte that has no place in a path is escaped. `%2F` stays what it is
//! and `//` stays two slashes: to many servers they mean something. It refuses to touch what is forwarded.

use std::borrow::Cow;

use crate::pure::config::AmbiguousPaths;

/// Why a path is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousPath {
    /// `\` or `%5C`, which some servers take for a slash.
    #[error("the path holds a backslash")]
    Backslash,
    /// `%00`, which ends the path for some.
    #[error("the path holds a null byte")]
    Null,
    /// A segment that begins with `..;`, which some cut to `..`.
    #[error("the path holds `..;`")]
    DotsWithParameter,
    /// `%2F` next to `.` or `..`: a dot segment for those who decode it.
    #[error("the path holds %2F beside a dot segment")]
    EscapedSlashBesideDots,
    /// `%2F`, under `reject`.
    #[error("the path holds %2F")]
    EscapedSlash,
    /// `%2E%2E`, `.%2E` or `%2E.`, under `reject`.
    #[error("the path holds escaped dots")]
    EscapedDots,
    /// `//`, under `reject`.
    #[error("the path holds an empty segment")]
    EmptySegment,
}

/// What a byte is to a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Unreserved, but no dot.
    Unreserved,
    Dot,
    Slash,
    /// Stands for itself where it is not escaped, and is another character where it is.
    Allowed,
    /// Must be escaped: `%` without two digits too.
    Forbidden,
}

const CLASSES: [Class; 256] = {
    let mut table = [Class::Forbidden; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::indexing_slicing, reason = "the loop's bound is the table's")]
        {
            table[byte] = match byte as u8 {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => Class::Unreserved,
                b'.' => Class::Dot,
                b'/' => Class::Slash,
                b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' => {
                    Class::Allowed
                }
                _ => Class::Forbidden,
            };
        }
        byte += 1;
    }
    table
};

#[inline]
fn class(byte: u8) -> Class {
    CLASSES.get(usize::from(byte)).copied().unwrap_or(Class::Forbidden)
}

/// A target as sent, cut at its first `?`: the path, and the query without the mark. What [`read_path`] does on its way,
/// for tests that hold other things against it.
#[cfg(test)]
pub fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', target).and_then(|mark| target.split_at_checked(mark)) {
        Some((path, query)) => (path, query.get(1..)),
        None => (target, None),
    }
}

/// The normalized form of `raw`, a path as sent without its query. Nothing is copied where it is normal already, as most
/// are; else the result lies in `scratch`. No path is `/`; `*` stays `*`.
pub fn normalize_path<'a>(raw: &'a [u8], scratch: &'a mut String) -> &'a str {
    if (is_plain(raw) || is_normal(raw))
        && let Ok(text) = std::str::from_utf8(raw)
    {
        return text;
    }
    scratch.clear();
    write_normalized(raw, scratch);
    scratch
}

/// [`judge_path`] and [`normalize_path`] together: the most common paths need one look.
///
/// # Errors
/// [`AmbiguousPath`] where `policy` refuses the path.
pub fn read_path<'a>(raw: &'a [u8], policy: AmbiguousPaths, scratch: &'a mut String) -> Result<&'a str, AmbiguousPath> {
    if is_plain(raw)
        && let Some(text) = ascii_text(raw)
    {
        return Ok(text);
    }
    judge_path(raw, policy)?;
    Ok(normalize_path(raw, scratch))
}

/// Normal, and clear under every policy: no escape, no empty segment, no segment that begins with a dot.
fn is_plain(raw: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in raw {
        match class(byte) {
            Class::Unreserved | Class::Allowed => after_slash = false,
            Class::Slash if !after_slash => after_slash = true,
            Class::Dot if !after_slash => {}
            Class::Slash | Class::Dot | Class::Forbidden => return false,
        }
    }
    raw.first() == Some(&b'/')
}

/// Whether normalizing would change nothing.
fn is_normal(raw: &[u8]) -> bool {
    let Some((b'/', mut rest)) = raw.split_first() else { return raw == b"*" };
    if rest.split(|&byte| byte == b'/').any(|segment| segment == b"." || segment == b"..") {
        return false;
    }
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match class(byte) {
            Class::Unreserved | Class::Dot | Class::Slash | Class::Allowed => {}
            Class::Forbidden => match tail {
                [high, low, tail @ ..] if byte == b'%' && is_upper_hex(*high) && is_upper_hex(*low) => {
                    let stays = hex_pair(*high, *low).is_some_and(|value| !is_unreserved(value));
                    if !stays {
                        return false;
                    }
                    rest = tail;
                }
                _ => return false,
            },
        }
    }
    true
}

fn is_upper_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'F')
}

fn is_unreserved(byte: u8) -> bool {
    matches!(class(byte), Class::Unreserved | Class::Dot)
}

/// The byte that two hexadecimal digits stand for.
pub(super) fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn write_normalized(raw: &[u8], out: &mut String) {
    if raw == b"*" {
        out.push('*');
        return;
    }
    out.push('/');
    let mut segments = raw.strip_prefix(b"/").unwrap_or(raw).split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let start = out.len();
        push_normalized(segment, out);
        match out.get(start..) {
            Some(".") => out.truncate(start),
            Some("..") => {
                out.truncate(start.saturating_sub(1));
                let parent = out.rfind('/').map_or(0, |slash| slash + 1);
                out.truncate(parent);
                if out.is_empty() {
                    out.push('/');
                }
            }
            _ if segments.peek().is_some() => out.push('/'),
            _ => {}
        }
    }
}

/// Appends the normalized form of a text of which slashes and dots are left alone.
pub(super) fn push_normalized(raw: &[u8], out: &mut String) {
    let mut rest = raw;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match class(byte) {
            Class::Unreserved | Class::Dot | Class::Slash | Class::Allowed => out.push(char::from(byte)),
            Class::Forbidden => match escape(byte, tail) {
                Some((value, tail)) => {
                    rest = tail;
                    if is_unreserved(value) { out.push(char::from(value)) } else { push_escaped(value, out) }
                }
                None => push_escaped(byte, out),
            },
        }
    }
}

/// The byte an escape stands for and what follows it, where `byte` and `tail` begin with one.
fn escape(byte: u8, tail: &[u8]) -> Option<(u8, &[u8])> {
    match tail {
        [high, low, rest @ ..] if byte == b'%' => Some((hex_pair(*high, *low)?, rest)),
        _ => None,
    }
}

/// Appends `%XX`.
pub(super) fn push_escaped(byte: u8, out: &mut String) {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
    out.push('%');
    out.push(digit(byte >> 4));
    out.push(digit(byte & 15));
}

/// Refuses paths that two parsers may read differently. `raw` is the path as sent, without its query.
///
/// # Errors
/// What is ambiguous in it, where `policy` refuses that.
pub fn judge_path(raw: &[u8], policy: AmbiguousPaths) -> Result<(), AmbiguousPath> {
    let strict = match policy {
        AmbiguousPaths::Allow => return Ok(()),
        AmbiguousPaths::RejectUnsafe => false,
        AmbiguousPaths::Reject => true,
    };
    let mut judge = Judge { strict, piece: Piece::Dots(0), left_escaped: false, last: None };
    let mut rest = raw;
    while let Some((&byte, tail)) = rest.split_first() {
        let (value, escaped, tail) =
            escape(byte, tail).map_or((byte, false, tail), |(value, tail)| (value, true, tail));
        rest = tail;
        judge.see(value, escaped)?;
    }
    judge.end_piece(false)
}

/// What has been seen of the piece between two slashes, escaped or not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// So many dots and nothing else.
    Dots(u8),
    Other,
}

struct Judge {
    strict: bool,
    piece: Piece,
    /// Whether the slash before this piece was escaped.
    left_escaped: bool,
    /// The byte before, and whether it was escaped.
    last: Option<(u8, bool)>,
}

impl Judge {
    fn see(&mut self, value: u8, escaped: bool) -> Result<(), AmbiguousPath> {
        match value {
            b'\\' => return Err(AmbiguousPath::Backslash),
            0 => return Err(AmbiguousPath::Null),
            b';' if self.piece == Piece::Dots(2) => return Err(AmbiguousPath::DotsWithParameter),
            b'/' => {
                if self.strict && escaped {
                    return Err(AmbiguousPath::EscapedSlash);
                }
                if self.strict && self.last == Some((b'/', false)) {
                    return Err(AmbiguousPath::EmptySegment);
                }
                self.end_piece(escaped)?;
            }
            b'.' => {
                if self.strict
                    && let Some((b'.', last_escaped)) = self.last
                    && (escaped || last_escaped)
                {
                    return Err(AmbiguousPath::EscapedDots);
                }
                self.piece = match self.piece {
                    Piece::Dots(count @ 0..2) => Piece::Dots(count + 1),
                    Piece::Dots(_) | Piece::Other => Piece::Other,
                };
            }
            _ => self.piece = Piece::Other,
        }
        self.last = Some((value, escaped));
        Ok(())
    }

    fn end_piece(&mut self, slash_escaped: bool) -> Result<(), AmbiguousPath> {
        let is_dots = matches!(self.piece, Piece::Dots(1 | 2));
        if is_dots && (self.left_escaped || slash_escaped) {
            return Err(AmbiguousPath::EscapedSlashBesideDots);
        }
        self.piece = Piece::Dots(0);
        self.left_escaped = slash_escaped;
        Ok(())
    }
}

/// The host of an authority as rules see it: lower case, without the port and one trailing dot, an IPv6 address with its
/// brackets. Nothing is copied where it has that form already.
pub fn normalize_host(authority: &[u8]) -> Cow<'_, str> {
    let host = match authority.first() {
        Some(b'[') => memchr::memchr(b']', authority).and_then(|end| authority.get(..=end)).unwrap_or(authority),
        _ => memchr::memchr(b':', authority).and_then(|colon| authority.get(..colon)).unwrap_or(authority),
    };
    let host = host.strip_suffix(b".").unwrap_or(host);
    // Whoever calls this with an authority that the codec has not judged gets what is left of it.
    let text = ascii_text(host).map_or_else(|| String::from_utf8_lossy(host), Cow::Borrowed);
    if host.iter().any(u8::is_ascii_uppercase) { Cow::Owned(text.to_ascii_lowercase()) } else { text }
}

/// Bytes as text, where all are ASCII: a third of what the look for UTF-8 costs on texts as short as these.
#[inline]
pub(in crate::pure) fn ascii_text(bytes: &[u8]) -> Option<&str> {
    if !bytes.is_ascii() {
        return None;
    }
    // SAFETY: ASCII is UTF-8.
    Some(unsafe { std::str::from_utf8_unchecked(bytes) })
}

#[cfg(test)]
mod tests;

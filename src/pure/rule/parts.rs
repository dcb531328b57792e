//! The parts of fields and queries that predicates and keys look into: cookies (RFC 6265), query parameters
//! (`application/x-www-form-urlencoded`), media ranges (RFC 9110 12.5.1). Read in place; what is malformed is skipped.

use std::borrow::Cow;

use super::path::hex_pair;
use crate::pure::head::{Fields, Known, is_token_byte};

/// The values of the cookies of that name, in order, without the quotes around them. Names are compared byte by byte.
pub(in crate::pure) fn cookies<'a>(fields: Fields<'a>, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.known(Known::Cookie).flat_map(|line| line.split(|&byte| byte == b';')).filter_map(move |pair| {
        let (key, value) = split_once(pair, b'=')?;
        let value = value.trim_ascii();
        let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        (key.trim_ascii() == name.as_bytes()).then_some(unquoted.unwrap_or(value))
    })
}

/// The decoded values of the query parameters of that name, in order. A parameter without `=` has an empty value.
pub(super) fn parameters<'a>(query: Option<&'a [u8]>, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let pairs = query.unwrap_or_default().split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
    pairs.filter_map(move |pair| {
        let (key, value) = split_once(pair, b'=').unwrap_or((pair, b""));
        is_decoded(key, name.as_bytes()).then(|| decode(value))
    })
}

fn split_once(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let (front, back) = text.split_at_checked(memchr::memchr(mark, text)?)?;
    Some((front, back.get(1..).unwrap_or_default()))
}

/// The bytes that a part of a query stands for, one at a time.
fn decoded(mut raw: &[u8]) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let (&byte, tail) = raw.split_first()?;
        raw = tail;
        match (byte, tail) {
            (b'+', _) => Some(b' '),
            (b'%', [high, low, rest @ ..]) => Some(hex_pair(*high, *low).map_or(byte, |value| {
                raw = rest;
                value
            })),
            _ => Some(byte),
        }
    })
}

fn is_decoded(raw: &[u8], expected: &[u8]) -> bool {
    decoded(raw).eq(expected.iter().copied())
}

fn decode(raw: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr2(b'%', b'+', raw) {
        Some(_) => Cow::Owned(decoded(raw).collect()),
        None => Cow::Borrowed(raw),
    }
}

/// A media range of an Accept field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MediaRange<'a> {
    /// `type/subtype` without parameters, as sent.
    pub(super) range: &'a str,
    /// The weight in thousandths; 0 where it is not wanted.
    pub(super) quality: u16,
}

/// The media ranges of all Accept fields in order.
pub(super) fn accepted<'a>(fields: Fields<'a>) -> impl Iterator<Item = MediaRange<'a>> {
    fields.known(Known::Accept).flat_map(|line| split_unquoted(line, b',')).filter_map(|element| {
        let mut parts = split_unquoted(element, b';');
        let range = essence(parts.next()?)?;
        let quality = parts.find_map(|parameter| {
            let (name, value) = split_once(parameter, b'=')?;
            name.trim_ascii().eq_ignore_ascii_case(b"q").then(|| read_quality(value.trim_ascii()))
        });
        Some(MediaRange { range, quality: quality.unwrap_or(1000) })
    })
}

/// The media type of a Content-Type field's value, or a range of Accept: `type/subtype` without parameters, as sent.
pub(super) fn essence(value: &[u8]) -> Option<&str> {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let text = std::str::from_utf8(value.get(..end)?.trim_ascii()).ok()?;
    let (kind, subtype) = text.split_once('/')?;
    let is_token = |part: &str| !part.is_empty() && part.bytes().all(is_token_byte);
    (is_token(kind) && is_token(subtype)).then_some(text)
}

/// `0.5` as 500; what is no number counts as wanted fully.
fn read_quality(text: &[u8]) -> u16 {
    let (whole, fraction) = split_once(text, b'.').unwrap_or((text, b""));
    if whole != b"0" || !fraction.iter().all(u8::is_ascii_digit) {
        return 1000;
    }
    let digit = |position: usize| fraction.get(position).map_or(0, |digit| u16::from(digit - b'0'));
    digit(0) * 100 + digit(1) * 10 + digit(2)
}

/// The parts between marks that stand outside quoted strings (RFC 9110 5.6.4). Where a quote is not closed, it goes to the
/// end of the last part.
pub(in crate::pure) fn split_unquoted(text: &[u8], mark: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut quoted = false;
        let mut escaped = false;
        let end = text.iter().position(|&byte| {
            let was_escaped = escaped;
            escaped = quoted && !was_escaped && byte == b'\\';
            if byte == b'"' && !was_escaped {
                quoted = !quoted;
            }
            byte == mark && !quoted
        });
        let (part, tail) = text.split_at_checked(end.unwrap_or(text.len()))?;
        rest = end.and_then(|_| tail.get(1..));
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::rule::find::tests::Head;

    #[test]
    fn cookies_are_found_by_their_exact_name() {
        let head = Head::new(&[("Cookie", "a=1; b=\"2\" ;aa=3; c"), ("cookie", "a=4=5")]);
        let values = |name| {
            cookies(head.fields(), name).map(|value| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(values("a"), ["1", "4=5"]);
        assert_eq!(values("b"), ["2"]);
        assert!(values("A").is_empty() && values("c").is_empty());
    }

    #[test]
    fn parameters_are_decoded() {
        let query = b"a=1&&b&c%64=x+y%2B%zz%&a=2%26".as_slice();
        let values = |name| {
            parameters(Some(query), name).map(|value| String::from_utf8_lossy(&value).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(values("a"), ["1", "2&"]);
        assert_eq!(values("b"), [""]);
        assert_eq!(values("cd"), ["x y+%zz%"]);
        assert_eq!(values("c%64"), Vec::<String>::new());
        assert_eq!(parameters(None, "a").count(), 0);
    }

    #[test]
    fn accept_is_read_with_weights_and_quotes() {
        let head = Head::new(&[
            ("Accept", "text/html;a=\"x,y;q=0\";q=0.5, image/*;Q=0.123"),
            ("accept", "*/*;q=0, junk, a/b;q=1.0,"),
        ]);
        let ranges: Vec<_> = accepted(head.fields()).map(|range| (range.range, range.quality)).collect();
        assert_eq!(ranges, [("text/html", 500), ("image/*", 123), ("*/*", 0), ("a/b", 1000)]);
    }
}

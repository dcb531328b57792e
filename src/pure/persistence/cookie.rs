//! Cookies as persistence reads and writes them: ours to the client, and the application's own, in fields and in the path.
//!
//! It refuses to judge what is in them.

use std::time::Duration;

use super::{CookieForm, SameSite};
use crate::pure::h1::encode::{push_all, push_decimal};
use crate::pure::head::{Fields, Known};

/// Appends the field line that gives the client `token`.
pub fn push_set_cookie(out: &mut Vec<u8>, form: &CookieForm, token: &[u8], is_tls: bool) {
    push_all(out, [b"Set-Cookie: ", form.name.as_bytes(), b"=", token, b"; Path=", form.path.as_bytes()]);
    if let Some(domain) = &form.domain {
        push_all(out, [b"; Domain=", domain.as_bytes()]);
    }
    out.extend_from_slice(b"; Max-Age=");
    push_decimal(out, whole_seconds(form.ttl));
    if form.http_only {
        out.extend_from_slice(b"; HttpOnly");
    }
    out.extend_from_slice(match form.same_site {
        SameSite::Strict => b"; SameSite=Strict",
        SameSite::Lax => b"; SameSite=Lax",
        SameSite::None => b"; SameSite=None",
    });
    // Browsers take a cookie for all sites over TLS alone.
    if form.secure.unwrap_or(is_tls) || form.same_site == SameSite::None {
        out.extend_from_slice(b"; Secure");
    }
    out.extend_from_slice(b"\r\n");
}

/// A cookie that has a second left must not have none.
const fn whole_seconds(ttl: Duration) -> u64 {
    let seconds = ttl.as_secs();
    if seconds == 0 { 1 } else { seconds }
}

/// Takes the cookie `name` out of the Cookie lines of a head that begins at `start`, and a line that holds nothing else.
pub fn strip_cookie(head: &mut Vec<u8>, start: usize, name: &str) {
    let mut at = start;
    while let Some(rest) = head.get(at..).filter(|rest| !rest.is_empty()) {
        let length = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let line = rest.get(..length).unwrap_or(rest);
        let value = line.split_at_checked(7).filter(|(front, _)| front.eq_ignore_ascii_case(b"cookie:"));
        let Some((front, value)) = value.filter(|(_, value)| pairs(value).any(|pair| is_named(pair, name))) else {
            at += length;
            continue;
        };
        let mut kept = front.to_vec();
        for pair in pairs(value).filter(|pair| !pair.trim_ascii().is_empty() && !is_named(pair, name)) {
            let mark: &[u8] = if kept.len() == front.len() { b" " } else { b"; " };
            push_all(&mut kept, [mark, pair.trim_ascii()]);
        }
        if kept.len() == front.len() {
            kept.clear();
        } else {
            kept.extend_from_slice(b"\r\n");
        }
        let after = at + kept.len();
        head.splice(at..at + length, kept);
        at = after;
    }
}

fn pairs(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.trim_ascii().split(|byte| *byte == b';')
}

fn is_named(pair: &[u8], name: &str) -> bool {
    split_pair(pair).is_some_and(|(known, _)| known == name.as_bytes())
}

fn split_pair(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = pair.split_at_checked(memchr::memchr(b'=', pair)?)?;
    Some((name.trim_ascii(), value.get(1..).unwrap_or_default().trim_ascii()))
}

/// The values of the cookies of that name, in order, without the quotes around them. Names are compared byte by byte.
pub fn values<'a>(fields: Fields<'a>, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let mut lines = fields.known(Known::Cookie);
    let mut rest: &[u8] = &[];
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                rest = lines.next()?;
            }
            // Most are others': the name is looked at first.
            let named = after_name(rest, name.as_bytes());
            let end = memchr::memchr(b';', named.unwrap_or(rest));
            let (pair, behind) = split_behind(named.unwrap_or(rest), end);
            rest = behind;
            if named.is_some() {
                return Some(unquoted(pair.trim_ascii()));
            }
        }
    })
}

/// What a line has behind the name and the mark that it begins with; `None`: it begins with another cookie.
fn after_name<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.trim_ascii_start().strip_prefix(name)?.trim_ascii_start().strip_prefix(b"=")
}

/// What a line has before the mark at `end`, and what behind it; all of it before, where there is no mark.
fn split_behind(line: &[u8], end: Option<usize>) -> (&[u8], &[u8]) {
    let end = end.unwrap_or(line.len());
    (line.get(..end).unwrap_or_default(), line.get(end + 1..).unwrap_or_default())
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// The value that an answer's Set-Cookie lines give the cookie `name`, the last where there are several; empty ones, which
/// take a cookie away, do not count.
pub fn set_value<'a>(fields: Fields<'a>, name: &str) -> Option<&'a [u8]> {
    let values = fields.known(Known::SetCookie).filter_map(|line| {
        let (known, value) = split_pair(pairs(line).next()?)?;
        let value = unquoted(value);
        (known == name.as_bytes() && !value.is_empty()).then_some(value)
    });
    values.last()
}

/// The value of the parameter `name` of the path's segments, as `;jsessionid=..` (RFC 3986 3.3); its name in any case, for the
/// servers that write it so write it in lower case.
pub fn path_parameter<'a>(path: &'a [u8], name: &str) -> Option<&'a [u8]> {
    memchr::memchr(b';', path)?;
    path.split(|byte| *byte == b'/').flat_map(|segment| segment.split(|byte| *byte == b';').skip(1)).find_map(
        |parameter| {
            let (known, value) = split_pair(parameter)?;
            (known.eq_ignore_ascii_case(name.as_bytes()) && !value.is_empty()).then_some(value)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::rule::find::tests::Head;
    use crate::pure::rule::parts::cookies;

    fn written(form: &CookieForm, is_tls: bool) -> String {
        let mut out = Vec::new();
        push_set_cookie(&mut out, form, b"t", is_tls);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_attributes_are_those_of_the_form() {
        let mut form = CookieForm::named("N");
        assert_eq!(written(&form, false), "Set-Cookie: N=t; Path=/; Max-Age=28800; HttpOnly; SameSite=Lax\r\n");
        assert_eq!(written(&form, true), "Set-Cookie: N=t; Path=/; Max-Age=28800; HttpOnly; SameSite=Lax; Secure\r\n");
        form.secure = Some(true);
        form.http_only = false;
        form.domain = Some("a.test".to_owned());
        form.path = "/app".to_owned();
        form.ttl = Duration::from_millis(10);
        form.same_site = SameSite::Strict;
        let expected = "Set-Cookie: N=t; Path=/app; Domain=a.test; Max-Age=1; SameSite=Strict; Secure\r\n";
        assert_eq!(written(&form, false), expected);
        (form.same_site, form.secure) = (SameSite::None, Some(false));
        assert!(written(&form, false).ends_with("SameSite=None; Secure\r\n"));
    }

    #[test]
    fn one_cookie_is_taken_out_and_the_others_stay() {
        let cases = [
            ("Cookie: a=1; N=x; b=2", "Cookie: a=1; b=2\r\n"),
            ("cookie:N=x;a=1", "cookie: a=1\r\n"),
            ("Cookie: N=x", ""),
            ("Cookie: N=x; N=y ;", ""),
            ("Cookie: NN=x; n=1; a=N=2", "Cookie: NN=x; n=1; a=N=2\r\n"),
            ("X-Cookie: N=x", "X-Cookie: N=x\r\n"),
        ];
        for (line, expected) in cases {
            let mut head =
                format!("GET /?Cookie:N=x HTTP/1.1\r\nHost: a\r\n{line}\r\nAccept: */*\r\n\r\n").into_bytes();
            strip_cookie(&mut head, 0, "N");
            let expected = format!("GET /?Cookie:N=x HTTP/1.1\r\nHost: a\r\n{expected}Accept: */*\r\n\r\n");
            assert_eq!(String::from_utf8(head).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn the_applications_cookie_is_read_from_its_answers() {
        let head =
            Head::new(&[("Set-Cookie", "S=1; Path=/"), ("set-cookie", "S=\"2\";x"), ("Set-Cookie", "S=; Max-Age=0")]);
        assert_eq!(set_value(head.fields(), "S"), Some(&b"2"[..]));
        assert_eq!(set_value(head.fields(), "Path"), None);
    }

    #[test]
    fn cookies_are_those_that_rules_see() {
        let lines = ["a=1; b=\"2\" ;aa=3; c", " a=4=5;A=6;a =7; a;=8;;a= \"\"", "aa;a=;a=\"9"];
        let head = Head::new(&lines.map(|line| ("Cookie", line)));
        for name in ["a", "aa", "A", "b", "c", "x"] {
            let ours: Vec<_> = values(head.fields(), name).collect();
            let theirs: Vec<_> = cookies(head.fields(), name).collect();
            assert_eq!(ours, theirs, "{name}");
        }
        assert_eq!(values(head.fields(), "a").count(), 6);
    }

    #[test]
    fn a_path_parameter_is_found_in_any_segment_and_case() {
        let value = |path: &'static str| path_parameter(path.as_bytes(), "JSESSIONID").map(<[u8]>::to_vec);
        assert_eq!(value("/a;jsessionid=7F/b").as_deref(), Some(&b"7F"[..]));
        assert_eq!(value("/a;x=1;JSESSIONID=2").as_deref(), Some(&b"2"[..]));
        assert_eq!((value("/jsessionid=1"), value("/a;jsessionid="), value("/a")), (None, None, None));
    }
}

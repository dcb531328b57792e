//! What a rule changes of a request and of an answer: the target that is forwarded, the values of fields, the Location.
//!
//! Rules: a value of the request never ends a field line, a request line or a path early: whatever has no place where it
//! stands is escaped. A rewritten path never holds a dot segment, nor what servers may take for one: a capture that would make
//! one refuses the request.

use std::io::Write;

use super::captures::Captures;
use super::path::judge_path;
use super::template::IDENTITY;
use super::{Changes, RequestView, Template, TemplatePart};
use crate::pure::config::AmbiguousPaths;

/// Where templates take their values from.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The request.
    pub request: &'a RequestView<'a>,
    /// What its rule captured.
    pub captures: &'a Captures,
    /// `http` or `https`, as the client speaks.
    pub scheme: &'a str,
}

/// A value of the request would make a target that nobody should get: a path that holds `.`, `..` or what a server may take
/// for one, made by a capture of a part of a segment (`/v{x}` on `/v..` or `/v..;a`), or a Host that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the changed path or Host is ambiguous")]
pub struct UnsafeTarget;

/// A prefix of whole segments as [`Changes::strip_prefix`] wants it: normalized, with a slash before and none behind; `/` is
/// the empty text. `None` where it does not begin with a slash.
pub fn normal_prefix(text: &str) -> Option<String> {
    if !text.starts_with('/') {
        return None;
    }
    let mut scratch = String::new();
    let path = super::path::normalize_path(text.as_bytes(), &mut scratch);
    Some(path.trim_end_matches('/').to_owned())
}

/// Writes the target that is forwarded, where the rule changes it, and says whether it does: path and query, from the
/// normalized path. `out` is cleared first.
///
/// # Errors
/// [`UnsafeTarget`]: the request must be refused.
pub fn rewritten_target(changes: &Changes, values: &Values<'_>, out: &mut Vec<u8>) -> Result<bool, UnsafeTarget> {
    out.clear();
    let path = values.request.path;
    let stripped = changes.strip_prefix.as_deref().and_then(|prefix| strip_prefix(path, prefix));
    if stripped.is_none() && changes.rewrite.is_none() || !path.starts_with('/') {
        return Ok(false);
    }
    let path = stripped.unwrap_or(path);
    let mut owns_query = false;
    match &changes.rewrite {
        None => out.extend_from_slice(path.as_bytes()),
        Some(template) => {
            owns_query = brings_query(template);
            let mut writer = Writer { values, path, context: Context::Path, out };
            writer.fill(template);
        }
    }
    if !out.starts_with(b"/") {
        out.insert(0, b'/');
    }
    let end = memchr::memchr(b'?', out).unwrap_or(out.len());
    let made = out.get(..end).unwrap_or_default();
    // What the listener's policy lets in stays as it is; only what the rewriting makes ambiguous is refused.
    let is_clear = |path: &[u8]| judge_path(path, AmbiguousPaths::RejectUnsafe).is_ok();
    if made.split(|&byte| byte == b'/').any(is_dots) || !is_clear(made) && is_clear(values.request.path.as_bytes()) {
        out.clear();
        return Err(UnsafeTarget);
    }
    if let Some(query) = values.request.query.filter(|_| !owns_query) {
        out.push(b'?');
        push_allowed(query, Context::Query, out);
    }
    Ok(true)
}

/// The path without a prefix of whole segments, where it has it.
fn strip_prefix<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    let prefix = prefix.trim_end_matches('/');
    match path.strip_prefix(prefix)? {
        "" => Some("/"),
        rest if rest.starts_with('/') && !prefix.is_empty() => Some(rest),
        _ => None,
    }
}

/// `.` and `..`, their dots escaped or not.
fn is_dots(segment: &[u8]) -> bool {
    let mut rest = segment;
    let mut dots = 0;
    while !rest.is_empty() {
        let Some(tail) =
            rest.strip_prefix(b".").or_else(|| rest.strip_prefix(b"%2E")).or_else(|| rest.strip_prefix(b"%2e"))
        else {
            return false;
        };
        rest = tail;
        dots += 1;
    }
    matches!(dots, 1 | 2)
}

fn brings_query(template: &Template) -> bool {
    template.parts.iter().any(|part| match part {
        TemplatePart::Text(text) => text.contains('?'),
        TemplatePart::Capture(name) => name == "query" || name == "uri",
    })
}

/// Writes the Location of a redirect. `out` is cleared first. A path that begins with two slashes, which a client would
/// take for a host, gets `/.` before it, unless the template itself says so.
pub fn location(template: &Template, values: &Values<'_>, out: &mut Vec<u8>) {
    out.clear();
    let front = match template.parts.first() {
        Some(TemplatePart::Text(text)) => text.as_str(),
        Some(TemplatePart::Capture(_)) | None => "",
    };
    let has_scheme = |(scheme, _): (&str, &str)| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_url = match template.parts.first() {
        Some(TemplatePart::Text(_)) => front.split_once("://").is_some_and(has_scheme),
        Some(TemplatePart::Capture(name)) => name == "scheme",
        None => false,
    };
    let has_authority = is_url || front.starts_with("//");
    let context = if has_authority { Context::Authority } else { Context::Path };
    let mut writer = Writer { values, path: values.request.path, context, out };
    writer.fill(template);
    if !has_authority && out.starts_with(b"//") {
        out.splice(..0, *b"/.");
    }
}

/// Appends the value of a field. Control characters are escaped, whoever brings them.
pub fn push_field_value(template: &Template, values: &Values<'_>, out: &mut Vec<u8>) {
    let mut writer = Writer { values, path: values.request.path, context: Context::Field, out };
    writer.fill(template);
}

/// Where a value is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    Field,
    Authority,
    Path,
    Query,
}

struct Writer<'w> {
    values: &'w Values<'w>,
    /// The path that `{path}` stands for.
    path: &'w str,
    context: Context,
    out: &'w mut Vec<u8>,
}

impl Writer<'_> {
    fn fill(&mut self, template: &Template) {
        for part in &template.parts {
            match part {
                TemplatePart::Text(text) => self.text(text),
                TemplatePart::Capture(name) => self.capture(name),
            }
        }
    }

    /// Text of the configuration: its own slashes and question marks say where authority, path and query begin.
    fn text(&mut self, text: &str) {
        let text = text.as_bytes();
        match self.context {
            Context::Field | Context::Query => push_allowed(text, self.context, self.out),
            Context::Authority => {
                // The two slashes behind the scheme, which only the first text has, are not those of the path.
                let begin = match memchr::memmem::find(text, b"//") {
                    Some(slashes) if !self.out.contains(&b'/') => slashes + 2,
                    _ => 0,
                };
                let behind = text.get(begin..).unwrap_or_default();
                let end = behind.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).map(|end| begin + end);
                let (authority, rest) = text.split_at_checked(end.unwrap_or(text.len())).unwrap_or((text, b""));
                push_allowed(authority, Context::Query, self.out);
                if end.is_some() {
                    self.context = Context::Path;
                    self.path_text(rest);
                }
            }
            Context::Path => self.path_text(text),
        }
    }

    fn path_text(&mut self, text: &[u8]) {
        let mark = text.iter().position(|byte| matches!(byte, b'?' | b'#'));
        let (path, query) = text.split_at_checked(mark.unwrap_or(text.len())).unwrap_or((text, b""));
        push_allowed(path, Context::Path, self.out);
        if mark.is_some() {
            self.context = Context::Query;
            push_allowed(query, Context::Query, self.out);
        }
    }

    fn capture(&mut self, name: &str) {
        let request = self.values.request;
        if IDENTITY.contains(&name) {
            let text = request.identity.map_or("", |identity| match name {
                "client-subject" => &identity.subject,
                _ => &identity.fingerprint,
            });
            return self.value(text.as_bytes());
        }
        if let Some(value) = self.values.captures.get(request.path, name) {
            return self.value(value.as_bytes());
        }
        match name {
            "host" if self.context == Context::Authority => push_host(request.host, self.out),
            "host" => self.value(request.host.as_bytes()),
            "path" => self.path(),
            "query" if self.context == Context::Path => self.value(request.query.unwrap_or_default()),
            "query" => push_allowed(request.query.unwrap_or_default(), self.context, self.out),
            "uri" if self.context == Context::Query => {
                self.path();
                if let Some(query) = request.query {
                    self.value(b"?");
                    self.value(query);
                }
            }
            "uri" => {
                self.path();
                if let Some(query) = request.query {
                    self.out.push(b'?');
                    push_allowed(query, Context::Query, self.out);
                    if self.context != Context::Field {
                        self.context = Context::Query;
                    }
                }
            }
            "client" => {
                // Writing to memory can't fail.
                let _ = write!(self.out, "{}", request.client.to_canonical());
            }
            "scheme" => self.out.extend_from_slice(self.values.scheme.as_bytes()),
            "method" => self.value(request.method.as_bytes()),
            // A capture of another of the rule's alternatives.
            _ => {}
        }
    }

    fn path(&mut self) {
        if self.context == Context::Authority {
            self.context = Context::Path;
        }
        self.value(self.path.as_bytes());
    }

    /// A value of the request, as one piece of what it stands in: it can't begin a query or another parameter.
    fn value(&mut self, value: &[u8]) {
        for &byte in value {
            let stays = match self.context {
                Context::Field => is_allowed(byte, Context::Field),
                Context::Authority => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
                Context::Path => is_allowed(byte, Context::Path) && byte != b'?',
                Context::Query => is_allowed(byte, Context::Query) && !matches!(byte, b'&' | b'=' | b'+' | b';' | b'#'),
            };
            push(byte, stays, self.out);
        }
    }
}

fn push_host(host: &str, out: &mut Vec<u8>) {
    for byte in host.bytes() {
        let stays = byte.is_ascii_alphanumeric() || b"-._~[]:!$&'()*+,;=%".contains(&byte);
        push(byte, stays, out);
    }
}

fn push_allowed(bytes: &[u8], context: Context, out: &mut Vec<u8>) {
    for &byte in bytes {
        push(byte, is_allowed(byte, context), out);
    }
}

/// Whether a byte may stand as it is in a field value (anything but controls) or in a URI (RFC 3986; what many clients send
/// besides, such as `|` and `{`, stays in a query).
const fn is_allowed(byte: u8, context: Context) -> bool {
    match context {
        Context::Field => byte == b'\t' || byte >= b' ' && byte != 0x7F,
        Context::Authority | Context::Query => byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\'),
        Context::Path => {
            byte.is_ascii_alphanumeric()
                || matches!(
                    byte,
                    b'-' | b'.'
                        | b'_'
                        | b'~'
                        | b'!'
                        | b'$'
                        | b'&'
                        | b'\''
                        | b'('
                        | b')'
                        | b'*'
                        | b'+'
                        | b','
                        | b';'
                        | b'='
                        | b':'
                        | b'@'
                        | b'/'
                        | b'%'
                )
        }
    }
}

fn push(byte: u8, stays: bool, out: &mut Vec<u8>) {
    if stays {
        out.push(byte);
    } else {
        let mut escape = String::with_capacity(3);
        super::path::push_escaped(byte, &mut escape);
        out.extend_from_slice(escape.as_bytes());
    }
}

#[cfg(test)]
mod tests;

//! Templates: texts of the configuration with values of the request in them, read and checked here and filled in by
//! [`super::change`].
//!
//! `{name}` is a capture of the rule, or one of [`BUILT_IN`]; `$1`, or `{1}` where a digit follows, is a group of its
//! `path-regex`, `$0` all that it matched; `$$`, `{{` and `}}` are a dollar sign and braces.

use super::key::is_number;
use super::pattern::is_capture_name;
use super::{Template, TemplatePart};

/// The names that every rule knows: the host as rules see it, the normalized path, the query as sent without its `?`,
/// path and query together, the client's address, `http` or `https`, the method, and the subject and the fingerprint of the
/// client's certificate, which are empty where it has none. A capture of the same name hides them, but for [`IDENTITY`].
pub const BUILT_IN: [&str; 9] =
    ["host", "path", "query", "uri", "client", "scheme", "method", "client-subject", "client-fingerprint"];

/// Those of them that tell who the client is by its certificate. No capture hides them: its text would be the client's choice.
pub const IDENTITY: [&str; 2] = ["client-subject", "client-fingerprint"];

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct TemplateError {
    /// Where in the text, in bytes.
    pub at: usize,
    /// How many bytes are wrong there.
    pub length: usize,
    /// What is wrong.
    pub problem: TemplateProblem,
}

/// What is wrong with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TemplateProblem {
    #[error("this `{{` has no `}}`; a brace that is meant is written `{{{{`")]
    Unclosed,
    #[error("this `}}` has no `{{`; a brace that is meant is written `}}}}`")]
    Unopened,
    #[error("a name is wanted: `{{id}}`")]
    Name,
    #[error("`$` is followed by the number of a group; a dollar sign that is meant is written `$$`, a name `{{name}}`")]
    Dollar,
    #[error("a new path begins with `/` or `{{path}}`")]
    NoPath,
    #[error("a redirect goes to a path, or to `http://` or `https://` and a host")]
    NoLocation,
    #[error("the client would choose the host: after a capture, the host must end in a domain of yours")]
    OpenHost,
    #[error("a path of `.` or `..` would be taken back")]
    Dots,
    #[error("a line break or another control character has no place here")]
    Control,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`TemplateError`] with the place of the first mistake.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let at = text.len() - rest.len();
            let fail = |length, problem| Err(TemplateError { at, length, problem });
            let behind = rest.get(first.len_utf8()..).unwrap_or_default();
            let doubled = behind.starts_with(first);
            let (name, length) = match first {
                '{' | '}' | '$' if doubled => {
                    literal.push(first);
                    rest = behind.get(1..).unwrap_or_default();
                    continue;
                }
                '{' => match behind.find('}').and_then(|end| behind.get(..end)) {
                    Some(name) if is_capture_name(name) || is_number(name) => (name, name.len() + 2),
                    Some(name) => return fail(name.len() + 2, TemplateProblem::Name),
                    None => return fail(1, TemplateProblem::Unclosed),
                },
                '}' => return fail(1, TemplateProblem::Unopened),
                '$' => {
                    let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
                    match behind.get(..digits).filter(|digits| is_number(digits)) {
                        Some(digits) => (digits, digits.len() + 1),
                        None => return fail(1, TemplateProblem::Dollar),
                    }
                }
                _ => {
                    literal.push(first);
                    rest = behind;
                    continue;
                }
            };
            if !literal.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut literal)));
            }
            parts.push(TemplatePart::Capture(name.to_owned()));
            rest = rest.get(length..).unwrap_or_default();
        }
        if !literal.is_empty() {
            parts.push(TemplatePart::Text(literal));
        }
        Ok(Self { parts })
    }

    /// Reads the value of a field.
    ///
    /// # Errors
    /// As [`Self::parse`], and for control characters.
    pub fn parse_value(text: &str) -> Result<Self, TemplateError> {
        refuse_controls(text)?;
        Self::parse(text)
    }

    /// Reads the target of a `rewrite`: a path, and a query where it has a `?`.
    ///
    /// # Errors
    /// As [`Self::parse_value`], and where it does not begin with a path or has a dot segment.
    pub fn parse_target(text: &str) -> Result<Self, TemplateError> {
        let template = Self::parse_value(text)?;
        let fail = |problem| Err(TemplateError { at: 0, length: text.len(), problem });
        match template.parts.first() {
            Some(TemplatePart::Text(front)) if front.starts_with('/') => {}
            Some(TemplatePart::Capture(name)) if name == "path" || name == "uri" => {}
            _ => return fail(TemplateProblem::NoPath),
        }
        let path = text.split('?').next().unwrap_or_default();
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return fail(TemplateProblem::Dots);
        }
        Ok(template)
    }

    /// Reads a Location: a path, or an absolute URL whose host is the request's or is fixed at least in its end.
    ///
    /// # Errors
    /// As [`Self::parse_value`], and where it is neither, or where a capture could choose the host.
    pub fn parse_location(text: &str) -> Result<Self, TemplateError> {
        let template = Self::parse_value(text)?;
        let fail = |problem| Err(TemplateError { at: 0, length: text.len(), problem });
        let from_scheme = ["http://", "https://", "{scheme}://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let Some(authority) = from_scheme.or_else(|| text.strip_prefix("//")) else {
            let is_path = text.starts_with('/') || text.starts_with("{path}") || text.starts_with("{uri}");
            return if is_path { Ok(template) } else { fail(TemplateProblem::NoLocation) };
        };
        let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
        let (mut authority, behind) = authority.split_at_checked(end).unwrap_or((authority, ""));
        // `https://{host}{uri}`: a value that begins with a slash ends the host as a slash would.
        if behind.is_empty() {
            authority = ["{path}", "{uri}"].iter().find_map(|path| authority.strip_suffix(path)).unwrap_or(authority);
        }
        if authority.is_empty() {
            return fail(TemplateProblem::NoLocation);
        }
        let is_open = match authority.strip_prefix("{host}") {
            // A port may follow.
            Some(port) => !port.is_empty() && !port.strip_prefix(':').is_some_and(is_number),
            None => match authority.rfind(['}', '$']) {
                None => false,
                Some(capture) => {
                    let fixed = authority.get(capture + 1..).unwrap_or_default();
                    let fixed = fixed.trim_start_matches(|character: char| character.is_ascii_digit());
                    !fixed.strip_prefix('.').is_some_and(|domain| domain.contains(|c: char| c.is_ascii_alphanumeric()))
                }
            },
        };
        if is_open { fail(TemplateProblem::OpenHost) } else { Ok(template) }
    }

    /// Whether it has a value of the client's certificate in it.
    pub fn tells_identity(&self) -> bool {
        self.names().any(|name| IDENTITY.contains(&name))
    }

    /// The names of its captures in order, built-in ones too.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(_) => None,
            TemplatePart::Capture(name) => Some(name.as_str()),
        })
    }
}

fn refuse_controls(text: &str) -> Result<(), TemplateError> {
    match text.find(|character: char| character.is_control() && character != '\t') {
        Some(at) => Err(TemplateError { at, length: 1, problem: TemplateProblem::Control }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> TemplatePart {
        TemplatePart::Text(text.to_owned())
    }

    fn capture(name: &str) -> TemplatePart {
        TemplatePart::Capture(name.to_owned())
    }

    #[test]
    fn names_numbers_and_escapes_are_read() {
        let parts = |source| Template::parse(source).unwrap().parts;
        assert_eq!(parts("/v2/{rest}?x=$12a"), [text("/v2/"), capture("rest"), text("?x="), capture("12"), text("a")]);
        assert_eq!(parts("$${{a}}{1}é"), [text("${a}"), capture("1"), text("é")]);
        assert_eq!(parts(""), []);
    }

    #[test]
    fn mistakes_are_found_where_they_are() {
        use TemplateProblem::*;
        for (source, at, length, problem) in [
            ("a{b", 1, 1, Unclosed),
            ("a}b", 1, 1, Unopened),
            ("a{}", 1, 2, Name),
            ("a{b c}", 1, 5, Name),
            ("a$b", 1, 1, Dollar),
            ("é$", 2, 1, Dollar),
        ] {
            assert_eq!(Template::parse(source), Err(TemplateError { at, length, problem }), "{source}");
        }
        assert_eq!(Template::parse_value("a\r\nb").map_err(|error| (error.at, error.problem)), Err((1, Control)));
    }

    #[test]
    fn a_target_is_a_path_without_dot_segments() {
        for good in ["/", "/v2/{x}", "{path}", "{uri}", "/a?b={x}/../", "/.well-known/x"] {
            assert!(Template::parse_target(good).is_ok(), "{good}");
        }
        for bad in ["", "v2/{x}", "{x}/a", "/a/../b", "/.", "?a"] {
            assert!(Template::parse_target(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_location_never_lets_a_capture_choose_the_host() {
        for good in [
            "/a/{x}",
            "{path}",
            "{uri}",
            "https://{host}{uri}",
            "https://{host}:8443{path}",
            "{scheme}://{host}/x",
            "https://a.test",
            "https://a.test/{x}",
            "https://a.test{path}",
            "https://{tenant}.a.test/",
            "https://$1.a.test/",
            "//cdn.test/{x}",
            "https://a.test?{query}",
        ] {
            assert!(Template::parse_location(good).is_ok(), "{good}");
        }
        use TemplateProblem::*;
        for (bad, problem) in [
            ("{x}", NoLocation),
            ("a/b", NoLocation),
            ("", NoLocation),
            ("javascript:x", NoLocation),
            ("https://", NoLocation),
            ("https:///x", NoLocation),
            ("https://{x}/", OpenHost),
            ("https://a.test{x}", OpenHost),
            ("https://a.{x}/", OpenHost),
            ("https://{host}{x}", OpenHost),
            ("//{x}/", OpenHost),
            ("https://{host}.{x}/", OpenHost),
            ("https://$1/", OpenHost),
            ("https://{x}./", OpenHost),
            ("https://{x}:80/", OpenHost),
        ] {
            assert_eq!(Template::parse_location(bad).map_err(|error| error.problem), Err(problem), "{bad}");
        }
    }
}

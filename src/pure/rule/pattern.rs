//! Path patterns in matchit's syntax: `/img/{*rest}`, `/u/{id}`, `/v{n}.json`, `{{` and `}}` for braces. Parsed and checked
//! here, and matched one at a time; the index finds among many.
//!
//! Rules: a capture `{name}` is at least one byte of one segment, at most one to a segment; `{*name}` ends a pattern and is
//! the rest of the path, which may be empty, so that `/img/{*rest}` matches `/img/` but not `/img`. The text between is
//! normalized like a request's path. Every two patterns may stand in one rule file: nothing here depends on another pattern.

use super::captures::Captures;
use super::path::{hex_pair, push_normalized};

/// A path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    pub(super) segments: Vec<Segment>,
    pub(super) rest: Option<Rest>,
}

/// What stands between two slashes of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Text(String),
    Capture { prefix: String, name: String, suffix: String },
}

/// The catch-all at a pattern's end, behind its last slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) prefix: String,
    pub(super) name: String,
}

/// Why a text is no path pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct PatternError {
    /// Where in the text, in bytes.
    pub at: usize,
    /// How many bytes are wrong there.
    pub length: usize,
    /// What is wrong.
    pub problem: PatternProblem,
}

/// What is wrong with a path pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PatternProblem {
    #[error("a path begins with `/`")]
    NoSlash,
    #[error("this `{{` has no `}}`; a brace that is meant is written `{{{{`")]
    Unclosed,
    #[error("this `}}` has no `{{`; a brace that is meant is written `}}}}`")]
    Unopened,
    #[error("a capture needs a name: a letter or `_`, then letters, digits, `_` and `-`")]
    Name,
    #[error("the name `{0}` is taken by another capture of this path")]
    NameTaken(String),
    #[error("a segment holds one capture at most; put a `/` between them")]
    TwoCaptures,
    #[error("`{{*name}}` takes the rest of the path, so nothing can follow it")]
    RestNotLast,
    #[error("a path holds no `?` and no `#`; for the query there is `query`")]
    Query,
    #[error("`%` is followed by two hexadecimal digits; a percent sign that is meant is written `%25`")]
    Escape,
    #[error("`..` can't take a capture back")]
    DotsOverCapture,
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PatternError`] with the place of the first mistake.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if !text.starts_with('/') {
            return Err(PatternError { at: 0, length: text.len().min(1), problem: PatternProblem::NoSlash });
        }
        let mut parser = Parser { text, segments: Vec::new(), literal: Vec::new(), prefix: None };
        let mut rest = None;
        let mut at = 1;
        while let Some(byte) = parser.byte(at) {
            let step = match byte {
                b'/' => {
                    parser.end_segment(at)?;
                    1
                }
                b'{' | b'}' if parser.byte(at + 1) == Some(byte) => {
                    parser.literal.push(byte);
                    2
                }
                b'{' => parser.capture(at, &mut rest)?,
                b'}' => return Err(PatternError { at, length: 1, problem: PatternProblem::Unopened }),
                b'?' | b'#' => return Err(PatternError { at, length: 1, problem: PatternProblem::Query }),
                b'%' => {
                    parser.check_escape(at)?;
                    parser.literal.push(byte);
                    1
                }
                _ => {
                    parser.literal.push(byte);
                    1
                }
            };
            at += step;
        }
        if rest.is_none() {
            parser.end_segment(at)?;
        }
        Ok(Self { text: text.to_owned(), segments: parser.segments, rest })
    }

    /// The text it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names of its captures in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let segments = self.segments.iter().filter_map(|segment| match segment {
            Segment::Text(_) => None,
            Segment::Capture { name, .. } => Some(name.as_str()),
        });
        segments.chain(self.rest.as_ref().map(|rest| rest.name.as_str()))
    }

    /// Whether it matches a normalized path.
    pub fn matches(&self, path: &str) -> bool {
        self.walk(path, |_, _, _| ())
    }

    /// As [`Self::matches`], and notes the captures.
    pub fn capture(&self, path: &str, captures: &mut Captures) -> bool {
        self.walk(path, |name, start, end| captures.push(name, start, end))
    }

    fn walk(&self, path: &str, mut found: impl FnMut(&str, usize, usize)) -> bool {
        // Where the next segment begins; behind the end once the last one has been taken.
        let mut at = 1;
        if !path.starts_with('/') {
            return false;
        }
        for segment in &self.segments {
            let Some(rest) = path.as_bytes().get(at..) else { return false };
            let length = memchr::memchr(b'/', rest).unwrap_or(rest.len());
            let here = rest.get(..length).unwrap_or(rest);
            match segment {
                Segment::Text(text) if here != text.as_bytes() => return false,
                Segment::Text(_) => {}
                Segment::Capture { prefix, name, suffix } => {
                    let fixed = prefix.len() + suffix.len();
                    if length <= fixed || !here.starts_with(prefix.as_bytes()) || !here.ends_with(suffix.as_bytes()) {
                        return false;
                    }
                    found(name, at + prefix.len(), at + length - suffix.len());
                }
            }
            at += length + 1;
        }
        match &self.rest {
            None => at == path.len() + 1,
            Some(Rest { prefix, name }) => match path.get(at..) {
                Some(rest) if rest.starts_with(prefix.as_str()) => {
                    found(name, at + prefix.len(), path.len());
                    true
                }
                _ => false,
            },
        }
    }

    /// Whether every path that `other` matches is matched by this pattern too.
    pub fn covers(&self, other: &Self) -> bool {
        let mut theirs = other.segments.iter();
        for ours in &self.segments {
            match theirs.next() {
                Some(segment) if ours.covers(segment) => {}
                _ => return false,
            }
        }
        match (&self.rest, theirs.next(), &other.rest) {
            (None, None, None) => true,
            (None, _, _) => false,
            (Some(rest), Some(Segment::Text(text)), _) => text.starts_with(&rest.prefix),
            (Some(rest), Some(Segment::Capture { prefix, .. }), _) => prefix.starts_with(&rest.prefix),
            (Some(rest), None, Some(theirs)) => theirs.prefix.starts_with(&rest.prefix),
            (Some(_), None, None) => false,
        }
    }

    /// A path that it matches.
    pub fn example(&self) -> String {
        let mut path = String::new();
        for segment in &self.segments {
            path.push('/');
            match segment {
                Segment::Text(text) => path.push_str(text),
                Segment::Capture { prefix, suffix, .. } => path.extend([prefix.as_str(), "x", suffix.as_str()]),
            }
        }
        if let Some(rest) = &self.rest {
            path.extend(["/", rest.prefix.as_str()]);
        }
        path
    }
}

impl Segment {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(ours), Self::Text(theirs)) => ours == theirs,
            (Self::Text(_), Self::Capture { .. }) => false,
            (Self::Capture { prefix, suffix, .. }, Self::Text(text)) => {
                text.len() > prefix.len() + suffix.len()
                    && text.starts_with(prefix.as_str())
                    && text.ends_with(suffix.as_str())
            }
            (
                Self::Capture { prefix, suffix, .. },
                Self::Capture { prefix: their_prefix, suffix: their_suffix, .. },
            ) => their_prefix.starts_with(prefix.as_str()) && their_suffix.ends_with(suffix.as_str()),
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    segments: Vec<Segment>,
    /// The text since the last slash or capture, as written.
    literal: Vec<u8>,
    /// The text before this segment's capture, and its name.
    prefix: Option<(String, String)>,
}

impl Parser<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn take_literal(&mut self) -> String {
        let mut text = String::new();
        push_normalized(&self.literal, &mut text);
        self.literal.clear();
        text
    }

    fn end_segment(&mut self, at: usize) -> Result<(), PatternError> {
        let text = self.take_literal();
        let is_last = at == self.text.len();
        match (self.prefix.take(), text.as_str()) {
            (Some((prefix, name)), _) => self.segments.push(Segment::Capture { prefix, name, suffix: text }),
            (None, "." | "..") => {
                if text == ".."
                    && let Some(Segment::Capture { .. }) = self.segments.pop()
                {
                    let length = 2;
                    return Err(PatternError { at: at - length, length, problem: PatternProblem::DotsOverCapture });
                }
                if is_last {
                    self.segments.push(Segment::Text(String::new()));
                }
            }
            (None, _) => self.segments.push(Segment::Text(text)),
        }
        Ok(())
    }

    /// Reads the capture that begins at `at` and gives its length.
    fn capture(&mut self, at: usize, rest: &mut Option<Rest>) -> Result<usize, PatternError> {
        let behind = self.text.get(at..).unwrap_or_default();
        let Some(end) = behind.find('}') else {
            return Err(PatternError { at, length: 1, problem: PatternProblem::Unclosed });
        };
        let length = end + 1;
        let fail = |problem| Err(PatternError { at, length, problem });
        let inner = behind.get(1..end).unwrap_or_default();
        let (name, takes_rest) = inner.strip_prefix('*').map_or((inner, false), |name| (name, true));
        if !is_capture_name(name) {
            return fail(PatternProblem::Name);
        }
        let taken = |segment: &Segment| matches!(segment, Segment::Capture { name: taken, .. } if taken == name);
        if self.prefix.is_some() {
            return fail(PatternProblem::TwoCaptures);
        }
        if self.segments.iter().any(taken) {
            return fail(PatternProblem::NameTaken(name.to_owned()));
        }
        let prefix = self.take_literal();
        if !takes_rest {
            self.prefix = Some((prefix, name.to_owned()));
            return Ok(length);
        }
        if at + length < self.text.len() {
            return fail(PatternProblem::RestNotLast);
        }
        *rest = Some(Rest { prefix, name: name.to_owned() });
        Ok(length)
    }

    fn check_escape(&self, at: usize) -> Result<(), PatternError> {
        let digits = self.byte(at + 1).zip(self.byte(at + 2));
        match digits.and_then(|(high, low)| hex_pair(high, low)) {
            Some(_) => Ok(()),
            None => Err(PatternError { at, length: 1, problem: PatternProblem::Escape }),
        }
    }
}

/// Whether a capture may be called that. Names that begin with a digit are those of an expression's groups.
pub fn is_capture_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && characters.all(|character| character.is_alphanumeric() || character == '_' || character == '-')
}

#[cfg(test)]
mod tests;

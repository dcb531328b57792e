//! The text of one rule file, with the lines counted once, so that naming a place costs the same at its end as at its
//! beginning.
//!
//! It refuses to read files: [`super::files`] says where texts come from.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use miette::{MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

/// A rule file's text.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    path: PathBuf,
    name: String,
    text: String,
    line_starts: Vec<usize>,
    order: usize,
}

impl Source {
    /// The text of the file `path`, the `order`-th that was read.
    pub fn new(path: PathBuf, text: String, order: usize) -> Self {
        let line_starts =
            std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
        let name = path.display().to_string();
        Self { path, name, text, line_starts, order }
    }

    /// The file's path, as it was reached.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's name as messages show it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many files were read before this one.
    pub const fn order(&self) -> usize {
        self.order
    }

    /// The number of the line that the byte at `offset` stands in, from 1.
    pub fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// How long the lines are that `span` touches, with one more before and behind.
    pub fn length_around(&self, span: &Range<usize>) -> usize {
        let first = self.line_of(span.start).saturating_sub(2);
        let behind = self.line_of(span.end) + 1;
        self.line_start(behind).saturating_sub(self.line_start(first))
    }

    /// `file`, where it is relative, seen from this file's folder.
    pub fn beside(&self, file: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(file)
    }

    fn line_start(&self, line: usize) -> usize {
        self.line_starts.get(line).copied().unwrap_or(self.text.len())
    }
}

impl SourceCode for Source {
    /// Looks at the lines that are asked for alone; the library's own way counts them from the top each time.
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let first = self.line_of(span.offset()).saturating_sub(1).saturating_sub(before);
        let last = self.line_of(span.offset().saturating_add(span.len())).saturating_add(after);
        let window = self.line_start(first)..self.line_start(last);
        let text = self.text.get(window.clone()).ok_or(MietteError::OutOfBounds)?;
        let inner = SourceSpan::from((span.offset().saturating_sub(window.start), span.len()));
        let found = text.read_span(&inner, before, after)?;
        let span = SourceSpan::from((found.span().offset() + window.start, found.span().len()));
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            found.data(),
            span,
            found.line() + first,
            found.column(),
            found.line_count(),
        )))
    }
}

/// A piece of a rule file's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub source: Arc<Source>,
    /// The bytes of its text.
    pub span: Range<usize>,
}

impl Place {
    /// The text that stands there.
    pub fn text(&self) -> &str {
        self.source.text().get(self.span.clone()).unwrap_or_default()
    }
}

/// `file:line`.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.source.name(), self.source.line_of(self.span.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        let source = Source::new("a.kdl".into(), "one\ntwo\n\nfour".into(), 0);
        assert_eq!([0, 3, 4, 8, 9, 12].map(|at| source.line_of(at)), [1, 1, 2, 3, 4, 4]);
    }

    #[test]
    fn a_window_reads_the_same_as_the_library_reads_the_whole() {
        let text = "first line\nsecond ünd line\n\r\nfourth\nfifth and last";
        let source = Source::new("a.kdl".into(), text.into(), 0);
        for start in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            for length in [0, 1, 4, 9] {
                for context in [0, 1, 2] {
                    let span = SourceSpan::from((start, length.min(text.len() - start)));
                    let (ours, theirs) =
                        (source.read_span(&span, context, context), text.read_span(&span, context, context));
                    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { continue };
                    assert_eq!((ours.line(), ours.column()), (theirs.line(), theirs.column()), "{span:?} {context}");
                    assert_eq!(ours.span().offset(), theirs.span().offset(), "{span:?} {context}");
                }
            }
        }
    }

    #[test]
    fn files_are_found_beside_the_file_that_names_them() {
        let source = Source::new("conf/site.kdl".into(), String::new(), 0);
        assert_eq!(source.beside("certs/a.crt"), Path::new("conf/certs/a.crt"));
        assert_eq!(source.beside("/etc/a.crt"), Path::new("/etc/a.crt"));
    }
}

//! What is wrong with rule files: each problem says what, shows where, and says what to do.
//!
//! It refuses to print: who shows problems decides on colour and width.

use std::fmt;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, Severity, SourceCode};

use super::source::{Place, Source};

/// One error or warning.
#[derive(Clone, Debug)]
pub struct Problem {
    severity: Severity,
    message: String,
    source: Option<Arc<Source>>,
    labels: Vec<LabeledSpan>,
    help: Option<String>,
}

impl Problem {
    /// An error of the text at `place`.
    pub fn at(place: &Place, message: impl Into<String>) -> Self {
        let label = LabeledSpan::new_primary_with_span(None, place.span.clone());
        Self {
            severity: Severity::Error,
            message: message.into(),
            source: Some(Arc::clone(&place.source)),
            labels: vec![label],
            help: None,
        }
    }

    /// An error that has no place in a text, such as a file that can't be read.
    pub fn nowhere(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, message: message.into(), source: None, labels: Vec::new(), help: None }
    }

    /// The same as a warning.
    #[must_use]
    pub fn as_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// What stands under the underlined text.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Self {
        if let Some(first) = self.labels.first_mut() {
            first.set_label(Some(text.into()));
        }
        self
    }

    /// Points at a second place; in another file, by name.
    #[must_use]
    pub fn also(self, place: &Place, text: &str) -> Self {
        let here = self.source.as_ref().is_some_and(|source| Arc::ptr_eq(source, &place.source));
        if !here {
            return self.help(format!("{text}: {place}"));
        }
        let mut problem = self;
        problem.labels.push(LabeledSpan::new_with_span(Some(text.to_owned()), place.span.clone()));
        problem
    }

    /// What to do about it; several are joined.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.help = Some(match self.help.take() {
            Some(before) => format!("{before}; {text}"),
            None => text,
        });
        self
    }

    /// What is wrong, without place and help.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// `file:line`, where it has a place.
    pub fn place(&self) -> Option<String> {
        let (source, label) = (self.source.as_ref()?, self.labels.first()?);
        Some(Place { source: Arc::clone(source), span: label.offset()..label.offset() + label.len() }.to_string())
    }

    /// The number of the line that it is about, from 1; none where it has no place.
    pub(super) fn line(&self) -> Option<usize> {
        Some(self.source.as_ref()?.line_of(self.labels.first()?.offset()))
    }

    /// `file:line: message`.
    pub fn in_one_line(&self) -> String {
        match self.place() {
            Some(place) => format!("{place}: {}", self.message),
            None => self.message.clone(),
        }
    }

    /// How much text of the file has to be shown with it, in bytes: the lines of its places and their neighbours.
    pub fn text_length(&self) -> usize {
        let Some(source) = &self.source else { return 0 };
        let lengths =
            self.labels.iter().map(|label| source.length_around(&(label.offset()..label.offset() + label.len())));
        lengths.sum()
    }

    /// Whether it is an error and not only a warning.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Sorts by file as read, then by place; what has no place comes first.
    pub fn position(&self) -> (usize, usize) {
        let order = self.source.as_ref().map_or(0, |source| source.order() + 1);
        (order, self.labels.first().map_or(0, LabeledSpan::offset))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|text| Box::new(text) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_deref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        (!self.labels.is_empty())
            .then(|| Box::new(self.labels.iter().cloned()) as Box<dyn Iterator<Item = LabeledSpan>>)
    }
}

/// Everything that is wrong with some rule files, in reading order; never empty.
#[derive(Clone, Debug)]
pub struct ConfigErrors {
    /// The errors.
    pub problems: Vec<Problem>,
}

/// One line each: `file:line: message`.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{}", if index > 0 { "\n" } else { "" }, problem.in_one_line())?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects problems while rule files are read.
#[derive(Debug, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
}

impl Problems {
    /// Keeps one.
    pub(super) fn add(&mut self, problem: Problem) {
        self.list.push(problem);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// All of them in reading order, if any.
    pub(super) fn into_errors(mut self) -> Option<ConfigErrors> {
        self.list.sort_by_key(Problem::position);
        (!self.list.is_empty()).then_some(ConfigErrors { problems: self.list })
    }
}

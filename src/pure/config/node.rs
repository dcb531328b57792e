//! Reading checked nodes: arguments, settings and children by name, each value with its place.
//!
//! A value that does not fit its form reads as absent; [`super::shape`] has said so already.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kdl::{KdlEntry, KdlNode, KdlValue};

use super::source::{Place, Source};
use crate::base::units::{self, Bytes};

/// A node and the text that it stands in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    /// The text.
    pub(super) source: &'a Arc<Source>,
    /// The node as parsed.
    pub(super) kdl: &'a KdlNode,
}

impl<'a> Node<'a> {
    /// Its name.
    pub(super) fn name(&self) -> &'a str {
        self.kdl.name().value()
    }

    /// Where its name stands.
    pub(super) fn name_place(&self) -> Place {
        let span = self.kdl.name().span();
        Place { source: Arc::clone(self.source), span: span.offset()..span.offset() + span.len() }
    }

    /// Where it stands, without its block.
    pub(super) fn place(&self) -> Place {
        let mut place = self.name_place();
        if let Some(last) = self.kdl.entries().last() {
            place.span.end = (last.span().offset() + last.span().len()).max(place.span.end);
        }
        place
    }

    /// Its arguments in order.
    pub(super) fn arguments(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let source = self.source;
        let entries = self.kdl.entries().iter().filter(|entry| entry.name().is_none());
        entries.map(move |kdl| Value { source, kdl })
    }

    /// Its argument at `index`, from 0.
    pub(super) fn argument(&self, index: usize) -> Option<Value<'a>> {
        self.arguments().nth(index)
    }

    /// Its children of that name, in order.
    pub(super) fn children(&self, name: &'static str) -> impl Iterator<Item = Node<'a>> + use<'a> {
        self.all_children().filter(move |child| child.name() == name)
    }

    /// All its children, in order.
    pub(super) fn all_children(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let source = self.source;
        self.kdl.iter_children().map(move |kdl| Node { source, kdl })
    }

    /// Its first child of that name.
    pub(super) fn child(&self, name: &'static str) -> Option<Node<'a>> {
        self.children(name).next()
    }

    /// The values of a setting, property and child nodes, in order.
    pub(super) fn settings(&self, name: &'static str) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let source = self.source;
        let is_named = move |entry: &&KdlEntry| entry.name().is_some_and(|found| found.value() == name);
        let properties = self.kdl.entries().iter().filter(is_named).map(move |kdl| Value { source, kdl });
        properties.chain(self.children(name).flat_map(|child| child.arguments()))
    }

    /// The value of a setting.
    pub(super) fn setting(&self, name: &'static str) -> Option<Value<'a>> {
        self.settings(name).next()
    }
}

/// A value and the text that it stands in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    source: &'a Arc<Source>,
    /// The entry as parsed.
    pub(super) kdl: &'a KdlEntry,
}

impl<'a> Value<'a> {
    /// A value of that text.
    pub(super) const fn new(source: &'a Arc<Source>, kdl: &'a KdlEntry) -> Self {
        Self { source, kdl }
    }

    /// Where the value stands, without the name of its property.
    pub(super) fn place(&self) -> Place {
        let span = self.kdl.span();
        let end = span.offset() + span.len();
        let length = self.kdl.format().map_or(span.len(), |format| format.value_repr.len());
        Place { source: Arc::clone(self.source), span: end.saturating_sub(length).max(span.offset())..end }
    }

    /// Where the bytes `span` of a text stand; the whole value where escapes make that hard to say.
    pub(super) fn part(&self, span: std::ops::Range<usize>) -> Place {
        let mut place = self.place();
        let found = self.text().filter(|text| !text.is_empty()).and_then(|text| place.text().find(text));
        if let Some(offset) = found {
            let start = place.span.start + offset;
            place.span = start + span.start..start + span.end;
        }
        place
    }

    /// The file of that name beside the one that the value stands in.
    pub(super) fn beside(&self, file: &str) -> PathBuf {
        self.source.beside(file)
    }

    /// It as a text.
    pub(super) fn text(&self) -> Option<&'a str> {
        // In single quotes it has been reported, and would be in again by its reader.
        let is_misquoted = self.kdl.format().is_some_and(|format| format.value_repr.starts_with('\''));
        self.kdl.value().as_string().filter(|_| !is_misquoted)
    }

    /// It as a whole number of that type.
    pub(super) fn whole<T: TryFrom<i128>>(&self) -> Option<T> {
        self.kdl.value().as_integer().and_then(|number| T::try_from(number).ok())
    }

    /// It as a switch.
    pub(super) fn switch(&self) -> Option<bool> {
        self.kdl.value().as_bool()
    }

    /// It as a duration.
    pub(super) fn duration(&self) -> Option<Duration> {
        self.text().and_then(|text| units::parse_duration(text).ok())
    }

    /// It as a size.
    pub(super) fn size(&self) -> Option<Bytes> {
        self.text().and_then(|text| units::parse_size(text).ok())
    }

    /// It as the file writes it.
    pub(super) fn written(&self) -> String {
        match self.kdl.value() {
            KdlValue::String(text) => text.clone(),
            _ => self.place().text().to_owned(),
        }
    }
}

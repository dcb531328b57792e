//! Placeholder until merge.
use crate::pure::forwarding::FieldEdits;
use crate::pure::rule::captures::Captures;
use crate::pure::rule::{Changes, FieldChange, RequestView, Template};
/// x
pub fn expand_edits(_c: &[FieldChange], _view: &RequestView<'_>, _captures: &Captures, _out: &mut FieldEdits) {}
/// x
pub fn push_location(_l: &Template, _view: &RequestView<'_>, _captures: &Captures, _out: &mut Vec<u8>) {}
/// x
pub fn rewritten_target(_c: &Changes, _view: &RequestView<'_>, _captures: &Captures, _out: &mut Vec<u8>) -> bool {
    false
}

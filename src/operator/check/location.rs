//! Where a redirect of a rule leads.

use crate::pure::rule::captures::Captures;
use crate::pure::rule::{RequestView, Template, TemplatePart};

/// The Location, captures filled in.
pub(super) fn expand(template: &Template, view: &RequestView<'_>, captures: &Captures) -> String {
    let parts = template.parts.iter().map(|part| match part {
        TemplatePart::Text(text) => text.as_str(),
        TemplatePart::Capture(name) => captures.get(view.path, name).unwrap_or_default(),
    });
    parts.collect()
}

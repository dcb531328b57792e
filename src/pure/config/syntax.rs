//! KDL text to nodes, and the parser's errors in words of this language.

use std::sync::Arc;

use kdl::{KdlDiagnostic, KdlDocument};

use super::lexical::{Fault, NESTING_MAX, first_fault};
use super::problem::{Problem, Problems};
use super::source::{Place, Source};

/// The nodes of a file; `None` where its text is no KDL, which `problems` then says.
pub(super) fn parse(source: &Arc<Source>, problems: &mut Problems) -> Option<KdlDocument> {
    if let Some((fault, span)) = first_fault(source.text()) {
        let place = Place { source: Arc::clone(source), span };
        problems.add(match fault {
            Fault::TooDeep => {
                Problem::at(&place, format!("more than {NESTING_MAX} blocks or comments lie in one another"))
                    .label("here it is too deep")
                    .help("is a `}` or `*/` missing above?")
            }
            Fault::OpenText => open_text(&place),
            Fault::OpenComment => Problem::at(&place, "this comment is never closed").label("its `*/` is missing"),
        });
        return None;
    }
    match KdlDocument::parse_v2(source.text()) {
        Ok(document) => Some(document),
        Err(error) => {
            let before = problems.len();
            for diagnostic in &error.diagnostics {
                if let Some(problem) = translate(source, diagnostic) {
                    problems.add(problem);
                }
            }
            if problems.len() == before {
                problems.add(Problem::nowhere(format!("{}: this is no KDL text", source.name())));
            }
            None
        }
    }
}

fn open_text(place: &Place) -> Problem {
    let problem =
        Problem::at(place, "this text is never closed").label(format!("its {} is missing", end_of(place.text())));
    let before = place.source.text().get(..place.span.start).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    // The quote that opens it may have been meant to close another.
    if line.contains('"') { problem.help("or that of a text before it on this line") } else { problem }
}

/// What closes a string that begins like this.
fn end_of(text: &str) -> String {
    let hashes = text.len() - text.trim_start_matches('#').len();
    let quotes = if text.trim_start_matches('#').starts_with("\"\"\"") { 3 } else { 1 };
    format!("{}{}", "\"".repeat(quotes), "#".repeat(hashes))
}

/// The parser's complaint in our words; `None` where it only repeats another.
fn translate(source: &Arc<Source>, diagnostic: &KdlDiagnostic) -> Option<Problem> {
    let message = diagnostic.message.clone().unwrap_or_else(|| "this is no KDL".to_owned());
    if message.starts_with("Closing '}' was not found") {
        return None;
    }
    let place = place_of(source, diagnostic);
    if message.starts_with("No closing '}'") {
        return Some(Problem::at(&place, "this block is never closed").label("its `}` is missing"));
    }
    let written = place.text().to_owned();
    if let Some(problem) = explain(source, &place, &written) {
        return Some(problem);
    }
    let mut problem = Problem::at(&place, decapitalized(&message));
    problem = problem.label(diagnostic.label.clone().unwrap_or_else(|| "here".to_owned()));
    Some(match &diagnostic.help {
        Some(help) => problem.help(decapitalized(help)),
        None => problem,
    })
}

/// The mistakes that people make most, known by their text.
fn explain(source: &Arc<Source>, place: &Place, written: &str) -> Option<Problem> {
    if let Some(word @ ("true" | "false" | "null" | "inf" | "nan")) = Some(written) {
        return Some(
            Problem::at(place, format!("`{word}` is a word of KDL")).label(format!("write #{word}, or \"{word}\"")),
        );
    }
    let is_word = !written.is_empty() && !written.contains(char::is_whitespace) && !written.contains(['"', '{', '}']);
    if is_word && written.starts_with(|first: char| first.is_ascii_digit()) {
        let problem = Problem::at(place, format!("`{written}` is neither a number nor a word"));
        return Some(problem.label(format!("write \"{written}\"")));
    }
    if written.starts_with('"') && written.contains('\\') {
        let problem = Problem::at(place, "a `\\` in quotes begins an escape, and this one is unknown");
        let body = written.trim_matches('"');
        return Some(
            problem.label(format!("write #\"{body}\"#")).help("in #\"..\"# a `\\` is a letter like any other"),
        );
    }
    let rest = source.text().get(place.span.end..).unwrap_or_default();
    if written.ends_with('=') {
        let value: String = rest.chars().take_while(|letter| !letter.is_whitespace()).collect();
        let end = place.span.end + value.len();
        let place = Place { source: Arc::clone(source), span: place.span.end.min(end)..end };
        let problem = Problem::at(&place, "a value is wanted behind `=`");
        return Some(if value.is_empty() {
            problem.label("nothing here")
        } else {
            problem.label(format!("write \"{value}\""))
        });
    }
    None
}

/// Where the parser points, kept inside the text.
fn place_of(source: &Arc<Source>, diagnostic: &KdlDiagnostic) -> Place {
    let text = source.text();
    let start = text.floor_char_boundary(diagnostic.span.offset().min(text.len()));
    let end = text.ceil_char_boundary(start.saturating_add(diagnostic.span.len()).min(text.len()));
    Place { source: Arc::clone(source), span: start..end.max(start) }
}

fn decapitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().map(|letter| letter.to_lowercase().collect()).unwrap_or_default();
    first + letters.as_str().trim_end_matches('.')
}

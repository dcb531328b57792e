//! KDL text to nodes, and the parser's errors in words of this language.

use std::sync::Arc;

use kdl::{KdlDiagnostic, KdlDocument};

use super::form::Kind;
use super::lexical::{Fault, NESTING_MAX, first_fault};
use super::mistakes;
use super::problem::{Problem, Problems};
use super::source::{Place, Source};
use super::vocabulary::FILE_FORM;

/// How many bytes are looked at around a mistake, so that long lines with many of them stay quick.
const LOOK_MAX: usize = 256;

/// The stack that the parser gets: it goes down a level for every block and for much that repeats, and a thread's usual
/// stack has been seen to end before it did. The memory is taken only as far as it is used.
const PARSER_STACK: usize = 256 * 1024 * 1024;

/// Parses on a stack of its own; where no thread can be had, on this one.
fn parse_deeply(text: &str) -> Result<KdlDocument, kdl::KdlError> {
    let parse = || KdlDocument::parse_v2(text);
    let parsed = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(PARSER_STACK).spawn_scoped(scope, parse).ok()?;
        thread.join().ok()
    });
    parsed.unwrap_or_else(parse)
}

/// The nodes of a file; `None` where its text is no KDL, which `problems` then says.
pub(super) fn parse(source: &Arc<Source>, problems: &mut Problems) -> Option<KdlDocument> {
    if let Some((fault, span)) = first_fault(source.text()) {
        let place = Place { source: Arc::clone(source), span };
        if let Some(problem) = mistakes::foreign(source) {
            problems.add(problem);
            return None;
        }
        problems.add(match fault {
            Fault::TooDeep => {
                Problem::at(&place, format!("more than {NESTING_MAX} blocks or comments lie in one another"))
                    .label("here it is too deep")
                    .help("is a `}` or `*/` missing above?")
            }
            Fault::OpenText => open_text(&place),
            // `image/*` without quotes.
            Fault::OpenComment if is_inside_word(&place) => {
                mistakes::without_quotes(&mistakes::word_around(source, place.span.start))
            }
            Fault::OpenComment => Problem::at(&place, "this comment is never closed").label("its `*/` is missing"),
        });
        return None;
    }
    match parse_deeply(source.text()) {
        Ok(document) => {
            let is_unknown = |name: &str| FILE_FORM.child(name).is_none() && FILE_FORM.setting(name).is_none();
            let foreign = document.nodes().iter().any(|node| is_unknown(node.name().value()));
            if let Some(problem) = foreign.then(|| mistakes::foreign(source)).flatten() {
                problems.add(problem);
                return None;
            }
            Some(document)
        }
        Err(error) => {
            if let Some(problem) = mistakes::foreign(source) {
                problems.add(problem);
                return None;
            }
            let before = problems.len();
            let mistakes = mistakes::find(source);
            let lines: Vec<_> = mistakes.iter().map(Problem::line).collect();
            for diagnostic in &error.diagnostics {
                // Beside a mistake that is known, only what has nothing to do with it.
                let told = if mistakes.is_empty() {
                    translate(source, diagnostic)
                } else {
                    let place = place_of(source, diagnostic);
                    explain(source, &place, place.text()).filter(|problem| !lines.contains(&problem.line()))
                };
                if let Some(problem) = told {
                    problems.add(problem);
                }
            }
            for mistake in mistakes {
                problems.add(mistake);
            }
            if problems.len() == before {
                problems.add(Problem::nowhere(format!("{}: this is no KDL text", source.name())));
            }
            None
        }
    }
}

/// Whether what begins at `place` follows a letter without a blank between.
fn is_inside_word(place: &Place) -> bool {
    let before = place.source.text().get(..place.span.start).unwrap_or_default();
    before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '*')
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
    if let Some(word @ ("true" | "false")) = Some(written)
        && is_switch(name_before(source, place))
    {
        return Some(Problem::at(place, format!("`{word}` is a word of KDL")).label(format!("write #{word}")));
    }
    if written.starts_with('\'') {
        let rest = source.text().get(place.span.start + 1..).unwrap_or_default();
        let rest = rest.get(..rest.floor_char_boundary(LOOK_MAX)).unwrap_or_default();
        let line = rest.split(['\n', '\r']).next().unwrap_or_default();
        let inner = line.split_once('\'').map_or_else(|| written.trim_matches('\''), |(inner, _)| inner);
        let length = if line.contains('\'') { inner.len() + 2 } else { written.len() };
        let place = Place { source: Arc::clone(source), span: place.span.start..place.span.start + length };
        let problem = Problem::at(&place, "single quotes are letters like any other here");
        return Some(problem.label(format!("write \"{inner}\"")));
    }
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

/// The word before a value, on the same line.
fn name_before<'s>(source: &'s Arc<Source>, place: &Place) -> &'s str {
    let text = source.text();
    let start = text.ceil_char_boundary(place.span.start.saturating_sub(LOOK_MAX));
    let before = text.get(start..place.span.start).unwrap_or_default();
    let line = before.rsplit(['\n', '{', ';']).next().unwrap_or_default();
    line.trim_end_matches([' ', '\t', '=']).rsplit([' ', '\t']).next().unwrap_or_default()
}

/// Whether a setting of that name is `#true` or `#false`.
fn is_switch(name: &str) -> bool {
    let mut found = FILE_FORM.children.iter().filter_map(|form| form.setting(name));
    found.any(|setting| matches!(setting.kind, Kind::Switch))
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

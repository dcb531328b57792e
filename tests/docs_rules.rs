//! The reference of the language, docs/rules.md, held against the language: every example loads and its `expect` lines hold,
//! every name is in it, and so is every limit with its default.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pointsman::operator::check::{CheckReport, Style, check_files};
use pointsman::pure::config::vocabulary::all_names;
use pointsman::pure::config::{LIMITS, MemoryFiles};

fn reference() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md");
    std::fs::read_to_string(path).unwrap()
}

/// The blocks marked as KDL, each with the number of its first line.
fn examples(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line) {
            (None, "```kdl") => open = Some((number + 2, String::new())),
            (None, _) => {}
            (Some(_), "```") => found.extend(open.take()),
            (Some((_, block)), line) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    assert!(open.is_none(), "the last block is not closed");
    found
}

fn check_example(text: &str) -> CheckReport {
    let files = MemoryFiles::one("rules.kdl", text).with("more/one.kdl", "rule respond=404\n");
    check_files(&files, Path::new("rules.kdl"), SystemTime::UNIX_EPOCH)
}

#[test]
fn every_example_loads_and_its_expectations_hold() {
    let examples = examples(&reference());
    assert!(examples.len() > 12, "{} examples", examples.len());
    for (line, text) in examples {
        let mut report = check_example(&text);
        // The reference has no certificates beside it; all other errors count.
        report.errors.retain(|problem| !problem.message().ends_with("can't be used"));
        assert!(report.is_good(), "the example at docs/rules.md:{line}\n{}", report.render(Style::Plain));
    }
}

#[test]
fn an_example_that_is_wrong_would_be_noticed() {
    assert!(!check_example("listen \"127.0.0.1:80\"\nrule usee=\"a\"\n").is_good());
}

/// Whether `name` stands in the text as a word of code.
fn names_it(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[test]
fn every_name_of_the_language_is_explained() {
    let code: String = {
        // What stands in backticks or in examples.
        let text = reference();
        let blocks: String = examples(&text).into_iter().map(|(_, block)| block).collect();
        let inline: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        blocks + &inline.join("\n")
    };
    let missing: Vec<&str> = all_names().into_iter().filter(|name| !names_it(&code, name)).collect();
    assert!(missing.is_empty(), "docs/rules.md does not name {missing:?}");
}

#[test]
fn every_built_in_name_of_templates_is_explained() {
    let text = reference();
    for name in pointsman::pure::rule::template::BUILT_IN {
        assert!(text.contains(&format!("| `{{{name}}}` |")), "{name}");
    }
}

#[test]
fn every_limit_stands_in_a_table_with_its_default() {
    let text = reference();
    for entry in LIMITS {
        let (name, default) = (format!("| `{}` |", entry.name), format!("| {} |", entry.default_text()));
        let is_row = |line: &&str| {
            line.contains(&name)
                && line.contains(&default)
                && (entry.node == "limits" || line.contains(&format!("`{}`", entry.node)))
        };
        assert_eq!(text.lines().filter(is_row).count(), 1, "a row with {name} and {default} of `{}`", entry.node);
    }
}

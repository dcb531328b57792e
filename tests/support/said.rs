//! What people are told of a rule file with mistakes.

use std::path::Path;

use pointsman::operator::check::{Style, render};
use pointsman::pure::config::{MemoryFiles, load};

/// What is said of one file.
fn said(text: &str) -> String {
    let files = MemoryFiles::one("site.kdl", text);
    match load(&files, Path::new("site.kdl")) {
        Ok(_) => "no error".to_owned(),
        Err(errors) => render(&errors.problems, Style::Plain),
    }
}

/// A file that is right, but for `lines`.
pub fn said_of(lines: &str) -> String {
    said(&format!(
        "listen \"127.0.0.1:8080\"\npool \"origin\" {{ server \"o1\" \"127.0.0.1:9000\" }}\n{}\n",
        lines.trim_matches('\n')
    ))
}

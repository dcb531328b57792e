//! What must hold for any text of a rule file: its rules compile, or it has errors that can be drawn. A panic, a stack that
//! overflows or a loop without end is a fault.

use pointsman::operator::check::{Style, render};
use pointsman::pure::config::load_text;
use pointsman::pure::rule::compile::RuleSet;

/// A rule file. Accepted is one without errors.
pub fn rule_file(input: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(input) else { return false };
    let errors = match load_text(text) {
        // Expressions that are too large together are refused only here, with an error of its own.
        Ok(config) => return RuleSet::compile(config.rules).is_ok_and(|rules| !rules.is_empty()),
        Err(errors) => errors,
    };
    assert!(!errors.problems.is_empty(), "a refusal has a reason");
    for problem in &errors.problems {
        assert!(!problem.message().is_empty() && problem.is_error());
    }
    assert!(!render(&errors.problems, Style::Plain).is_empty());
    false
}

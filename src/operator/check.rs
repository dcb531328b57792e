//! `check`: everything that can be said of rule files before anything listens: all errors, warnings of what is surely not
//! meant, certificates, and the `expect` lines.
//!
//! It refuses to print and to exit: it makes a report, and who asked for it shows it.

mod certificates;
mod checks;
mod expects;
mod likely;
mod machine;
mod render;
mod warnings;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::operator::rule_files::DiskFiles;
use crate::pure::config::{Config, Problem, RuleFiles, load};
use crate::pure::rule::compile::{CompileError, RuleSet};

pub use render::{Style, render};

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// What must be changed, failed `expect` lines included; in reading order.
    pub errors: Vec<Problem>,
    /// What is probably not meant.
    pub warnings: Vec<Problem>,
    /// How many `expect` lines were run: none where there are other errors.
    pub expects_run: usize,
    /// How many of them failed.
    pub expects_failed: usize,
    /// What the files say, where they can be read.
    pub config: Option<Arc<Config>>,
}

impl CheckReport {
    /// Whether there is no error.
    pub fn is_good(&self) -> bool {
        self.errors.is_empty()
    }

    /// The whole report as text: problems, then a line that sums up.
    pub fn render(&self, style: Style) -> String {
        let mut text = render(self.errors.iter().chain(&self.warnings), style);
        text.push_str(&self.summary());
        text.push('\n');
        text
    }

    /// One line: what there is, and how it went.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        if let Some(config) = &self.config {
            parts.push(counted(config.listeners.len(), "listener"));
            parts.push(counted(config.pools.len(), "pool"));
            parts.push(counted(config.rules.len(), "rule"));
        }
        if self.expects_run > 0 {
            let passed = self.expects_run - self.expects_failed;
            parts.push(format!("{passed} of {} expect lines met", self.expects_run));
        }
        if !self.errors.is_empty() {
            parts.push(counted(self.errors.len(), "error"));
        }
        if !self.warnings.is_empty() {
            parts.push(counted(self.warnings.len(), "warning"));
        }
        parts.join(", ")
    }
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Checks the rule file or folder `entry` of this machine, as of now.
pub fn check(entry: &Path) -> CheckReport {
    check_files(&DiskFiles, entry, crate::base::time::wall_clock())
}

/// Checks `entry` of `files`; certificates, the user and the log's folder are those of this machine, the ends of
/// certificates seen from `now`.
pub fn check_files(files: &dyn RuleFiles, entry: &Path, now: SystemTime) -> CheckReport {
    let config = match load(files, entry) {
        Ok(config) => Arc::new(config),
        Err(errors) => return CheckReport { errors: errors.problems, ..CheckReport::default() },
    };
    let mut report = CheckReport::default();
    certificates::check(&config, now, &mut report);
    machine::check(&config, &mut report);
    match RuleSet::compile(config.rules.clone()) {
        Ok(rules) => {
            let rules = Arc::new(rules);
            expects::run(&config, &rules, &mut report);
            warnings::find_in_rules(&config, &rules, &mut report.warnings);
        }
        Err(error) => report.errors.push(compile_problem(&config, &error)),
    }
    warnings::find(&config, &mut report.warnings);
    likely::find(&config, &mut report.warnings);
    checks::find(&config, &mut report.warnings);
    report.errors.sort_by_key(Problem::position);
    report.warnings.sort_by_key(Problem::position);
    report.config = Some(config);
    report
}

/// What can't be seen of one rule alone: all expressions of a host together are too large.
pub(super) fn compile_problem(config: &Config, error: &CompileError) -> Problem {
    let position = config.rules.iter().position(|rule| rule.name == error.rule);
    match position.and_then(|position| config.places.rules.get(position)) {
        Some(places) => Problem::at(&places.node, error.problem.to_string()).label("up to this rule"),
        None => Problem::nowhere(error.to_string()),
    }
}

#[cfg(test)]
mod tests;

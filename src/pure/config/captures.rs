//! Which captures a rule has, so that a name that no path could fill is an error and not an empty text.

use super::problem::{Problem, Problems};
use super::source::Place;
use super::suggest::did_you_mean;
use crate::pure::rule::key::is_number;
use crate::pure::rule::template::BUILT_IN;
use crate::pure::rule::{KeySource, Template};

/// The captures of each path and each expression of a rule.
#[derive(Debug, Default)]
pub(super) struct Captures {
    paths: Vec<Vec<String>>,
    regexes: Vec<Vec<String>>,
    /// Whether a pattern was wrong, so that its captures are not known.
    pub(super) is_incomplete: bool,
}

impl Captures {
    /// Notes the captures of one path pattern.
    pub(super) fn add_path(&mut self, names: Vec<String>) {
        self.paths.push(names);
    }

    /// Notes the captures of one expression.
    pub(super) fn add_regex(&mut self, names: Vec<String>) {
        self.regexes.push(names);
    }

    /// Reports the names of a template that are neither built in nor captured by the rule.
    pub(super) fn check_template(&self, template: &Template, place: &Place, problems: &mut Problems) {
        for name in template.names().filter(|name| !BUILT_IN.contains(name)) {
            self.check(name, place, problems);
        }
    }

    /// Reports a key that is a capture which the rule does not have.
    pub(super) fn check_key(&self, key: Option<&KeySource>, place: &Place, problems: &mut Problems) {
        let Some(KeySource::Capture(name)) = key else { return };
        if ["host", "path", "uri", "client"].contains(&name.as_str()) && !self.all().any(|found| found == name) {
            let problem = Problem::at(place, format!("the rule has no capture {}", shown(name)));
            problems.add(problem.label(format!("write key=\"{name}\"")));
        } else {
            self.check(name, place, problems);
        }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.paths.iter().chain(&self.regexes).flatten()
    }

    /// A capture is there where all alternatives of `path`, or all of `path-regex`, have it.
    fn check(&self, name: &str, place: &Place, problems: &mut Problems) {
        let has = |list: &Vec<String>| list.iter().any(|found| found == name);
        let in_all = |lists: &[Vec<String>]| !lists.is_empty() && lists.iter().all(has);
        if self.is_incomplete || in_all(&self.paths) || in_all(&self.regexes) {
            return;
        }
        let shown = shown(name);
        let problem = Problem::at(place, format!("the rule has no capture {shown}"));
        if self.all().any(|found| found == name) {
            let problem = Problem::at(place, format!("not every path of the rule has the capture {shown}"));
            problems
                .add(problem.label("empty for some requests").help("give each path this capture, or make two rules"));
            return;
        }
        let known: Vec<&str> = self.all().map(String::as_str).filter(|name| *name != "0").collect();
        let problem = match did_you_mean(name, known.iter().copied().chain(BUILT_IN)) {
            Some(guess) => problem.label(guess),
            None => problem.label("unknown"),
        };
        problems.add(if known.is_empty() && is_number(name) {
            problem.help("a group of `path-regex` makes one: path-regex=#\"^/users/([^/]+)/\"#")
        } else if known.is_empty() {
            problem.help(format!("a path makes one: path=\"/users/{{{name}}}\""))
        } else {
            problem.help(format!("its captures are: {}", list(&known)))
        });
    }
}

/// A capture as rule files write it.
fn shown(name: &str) -> String {
    if is_number(name) { format!("${name}") } else { format!("{{{name}}}") }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")
}

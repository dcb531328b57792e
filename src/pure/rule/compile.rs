//! Rules made ready: parsed patterns, compiled expressions and globs, and the index that finds the few rules that can match
//! a request. The work is done once, when rules are loaded; [`super::find`] reads the result.
//!
//! Rule: nothing here decides. Whatever the index leaves out can't match, and what it offers comes in file order.
//! Expressions are those of the `regex` crate, which are linear in the path; how large they may be bounds the factor.

use std::collections::HashMap;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::hash::BuildKeyHasher;
use super::index::{Builder, Index, List, append};
use super::media::media_type_of;
use super::pattern::{PathPattern, PatternError};
use super::predicate::{self, Asked, Test, patterns};
use super::{Action, HostPattern, KeySource, RequestView, Rule};

/// Bytes that one compiled expression may take.
pub const EXPRESSION_MAX: usize = 256 * 1024;
/// Bytes that all expressions of a host together may take.
pub const EXPRESSIONS_OF_HOST_MAX: usize = 8 * 1024 * 1024;

/// Why rules can't be compiled.
#[derive(Clone, Debug, thiserror::Error)]
#[error("rule `{rule}` at {place}: {problem}")]
pub struct CompileError {
    /// The rule's name.
    pub rule: Arc<str>,
    /// Where it stands: `file:line`.
    pub place: String,
    /// What is wrong.
    pub problem: CompileProblem,
}

/// What is wrong with a rule.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompileProblem {
    /// A path pattern.
    #[error("path `{text}`: {error}")]
    Path {
        /// As written.
        text: String,
        /// What and where.
        error: PatternError,
    },
    /// An expression.
    #[error("path-regex `{text}`: {error}")]
    Expression {
        /// As written.
        text: String,
        /// What is wrong with it, or that it is too large.
        error: Box<regex::Error>,
    },
    /// All expressions of one host.
    #[error("the expressions of all rules up to this one on one host are too large together: {error}")]
    Expressions {
        /// How large they may be.
        error: Box<regex::Error>,
    },
}

/// Compiles the expression of a `path-regex`. Normalized paths are ASCII, and so are its classes: `\d` is `0` to `9`.
///
/// # Errors
/// A syntax error, or one that says that it takes more than [`EXPRESSION_MAX`].
pub fn path_regex(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).unicode(false).size_limit(EXPRESSION_MAX).dfa_size_limit(EXPRESSION_MAX).build()
}

/// Compiled rules.
#[derive(Debug)]
pub struct RuleSet {
    /// What each rule asks, side by side: candidates are asked in file order.
    pub(super) asks: Vec<Asks>,
    /// The questions of all rules, as numbers of `tests`.
    pub(super) questions: Vec<u32>,
    pub(super) tests: Vec<Test>,
    pub(super) rules: Vec<CompiledRule>,
    pub(super) hosts: Hosts,
    pub(super) groups: Vec<Group>,
    pub(super) index: Index,
    uses_learned_types: bool,
}

/// The questions of one rule: ranges of [`RuleSet::questions`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks {
    /// All of these must hold.
    pub(super) when: List,
    /// None of these may.
    pub(super) unless: List,
}

/// What only the winner needs, and explanations.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) rule: Arc<Rule>,
    pub(super) paths: Vec<PathPattern>,
    pub(super) expressions: Vec<Regex>,
}

/// The groups of rules by host, or by listener where they ask for no host.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    pub(super) exact: HashMap<Box<str>, u32, BuildKeyHasher>,
    pub(super) suffixes: HashMap<Box<str>, u32, BuildKeyHasher>,
    /// The most dots of a suffix.
    pub(super) deepest: usize,
    /// The rules that ask for a listener and no host, by listener.
    pub(super) listeners: HashMap<u32, u32, BuildKeyHasher>,
    /// The rules that ask for neither.
    pub(super) any: Option<u32>,
}

/// The rules of one host, of all hosts with one suffix, of one listener, or of none of these.
#[derive(Debug)]
pub(super) struct Group {
    /// The tree of their paths.
    pub(super) tree: u32,
    pub(super) has_paths: bool,
    /// Those that ask for no path.
    pub(super) anywhere: List,
    /// Those that ask by expression alone.
    pub(super) expressions: Option<Expressions>,
}

#[derive(Debug)]
pub(super) struct Expressions {
    pub(super) set: RegexSet,
    /// The rule of each expression, in file order.
    pub(super) rules: Vec<u32>,
}

impl RuleSet {
    /// Compiles rules, which come in file order.
    ///
    /// # Errors
    /// [`CompileError`]: the first rule whose pattern or expression is wrong or too large.
    pub fn compile(rules: Vec<Arc<Rule>>) -> Result<Self, CompileError> {
        let mut drafts = Drafts::default();
        let mut index = Builder::new();
        let mut tests = predicate::Builder::default();
        let (mut asks, mut questions) = (Vec::with_capacity(rules.len()), Vec::new());
        let mut compiled = Vec::with_capacity(rules.len());
        for (position, rule) in rules.into_iter().enumerate() {
            let fail = |problem| CompileError { rule: Arc::clone(&rule.name), place: rule.place.clone(), problem };
            let when = tests.questions(&rule.when, Asked::NotByIndex).map_err(fail)?;
            let unless = tests.questions(&rule.unless, Asked::All).map_err(fail)?;
            asks.push(Asks { when: append(&mut questions, &when), unless: append(&mut questions, &unless) });
            let paths = patterns(&rule.when.paths).map_err(fail)?;
            let expressions = tests.expressions(&rule.when.path_regexes).map_err(fail)?;
            drafts.insert(u32::try_from(position).unwrap_or(u32::MAX), &rule, &paths, &mut index);
            compiled.push(CompiledRule { rule, paths, expressions });
        }
        let tests = tests.tests;
        let asks_types = tests.iter().any(|test| matches!(test, Test::MediaTypes(_)));
        let uses_learned_types = asks_types || compiled.iter().any(|compiled| hashes_media_type(&compiled.rule));
        let groups = drafts.list.into_iter().map(|draft| draft.finish(&mut index, &compiled));
        let groups = groups.collect::<Result<_, _>>()?;
        let (hosts, index) = (drafts.hosts, index.finish());
        Ok(Self { asks, questions, tests, rules: compiled, hosts, groups, index, uses_learned_types })
    }

    /// How many rules there are.
    pub const fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules in file order.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Arc<Rule>> {
        self.rules.iter().map(|compiled| &compiled.rule)
    }

    /// Whether a rule asks for the media type or deals by it, so that what paths answer with is worth remembering.
    pub const fn uses_learned_types(&self) -> bool {
        self.uses_learned_types
    }

    /// Whether what this path last answered with could make a difference to this request: the rules use such types
    /// ([`Self::uses_learned_types`]), and the request itself does not tell its own. Only for such requests is it worth looking
    /// up, and are their answers' types worth remembering. What `request` has as its learned type does not count.
    pub fn wants_learned_type(&self, request: &RequestView<'_>) -> bool {
        self.uses_learned_types && media_type_of(&RequestView { learned_media_type: None, ..*request }).is_none()
    }
}

/// Whether a rule deals requests among pools by the media type of what they ask for.
fn hashes_media_type(rule: &Rule) -> bool {
    matches!(rule.action, Action::Split { key: Some(KeySource::MediaType), .. })
}

/// The groups while rules come in.
#[derive(Default)]
struct Drafts {
    hosts: Hosts,
    list: Vec<GroupDraft>,
}

struct GroupDraft {
    tree: u32,
    has_paths: bool,
    anywhere: Vec<u32>,
    /// Rules by expression, as often as they have one.
    expressions: Vec<(u32, String)>,
}

impl Drafts {
    fn insert(&mut self, position: u32, rule: &Rule, paths: &[PathPattern], builder: &mut Builder) {
        if rule.when.hosts.is_empty() && rule.when.listeners.is_empty() {
            let group = *self.hosts.any.get_or_insert_with(|| new_group(&mut self.list, builder));
            self.insert_into(group, position, rule, paths, builder);
        }
        for listener in rule.when.listeners.iter().filter(|_| rule.when.hosts.is_empty()) {
            let new = || new_group(&mut self.list, builder);
            let group = *self.hosts.listeners.entry(listener.0).or_insert_with(new);
            self.insert_into(group, position, rule, paths, builder);
        }
        for host in &rule.when.hosts {
            let (map, name) = match host {
                HostPattern::Exact(name) => (&mut self.hosts.exact, name),
                HostPattern::Suffix(name) => {
                    let dots = name.bytes().filter(|&byte| byte == b'.').count();
                    self.hosts.deepest = self.hosts.deepest.max(dots);
                    (&mut self.hosts.suffixes, name)
                }
            };
            let group = match map.get(name.as_str()) {
                Some(group) => *group,
                None => {
                    let group = new_group(&mut self.list, builder);
                    map.insert(name.as_str().into(), group);
                    group
                }
            };
            self.insert_into(group, position, rule, paths, builder);
        }
    }

    fn insert_into(&mut self, group: u32, position: u32, rule: &Rule, paths: &[PathPattern], builder: &mut Builder) {
        let Some(group) = self.list.get_mut(group as usize) else { return };
        if !paths.is_empty() {
            group.has_paths = true;
            for pattern in paths {
                builder.insert(group.tree, pattern, position);
            }
        } else if !rule.when.path_regexes.is_empty() {
            group.expressions.extend(rule.when.path_regexes.iter().map(|text| (position, text.clone())));
        } else if group.anywhere.last() != Some(&position) {
            group.anywhere.push(position);
        }
    }
}

fn new_group(list: &mut Vec<GroupDraft>, builder: &mut Builder) -> u32 {
    list.push(GroupDraft { tree: builder.tree(), has_paths: false, anywhere: Vec::new(), expressions: Vec::new() });
    u32::try_from(list.len() - 1).unwrap_or(u32::MAX)
}

impl GroupDraft {
    fn finish(self, builder: &mut Builder, compiled: &[CompiledRule]) -> Result<Group, CompileError> {
        let anywhere = builder.list(&self.anywhere);
        let expressions = match self.expressions.last() {
            None => None,
            Some((last, _)) => {
                let set = RegexSetBuilder::new(self.expressions.iter().map(|(_, text)| text))
                    .unicode(false)
                    .size_limit(EXPRESSIONS_OF_HOST_MAX)
                    .build()
                    .map_err(|error| too_large(error, *last, compiled))?;
                Some(Expressions { set, rules: self.expressions.iter().map(|(rule, _)| *rule).collect() })
            }
        };
        Ok(Group { tree: self.tree, has_paths: self.has_paths, anywhere, expressions })
    }
}

fn too_large(error: regex::Error, rule: u32, compiled: &[CompiledRule]) -> CompileError {
    let (name, place) = compiled.get(rule as usize).map_or_else(
        || ("".into(), String::new()),
        |compiled| (Arc::clone(&compiled.rule.name), compiled.rule.place.clone()),
    );
    CompileError { rule: name, place, problem: CompileProblem::Expressions { error: Box::new(error) } }
}

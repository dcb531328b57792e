//! Rules made ready: parsed patterns, compiled expressions and globs, and the index that finds the few rules that can match
//! a request. The work is done once, when rules are loaded; [`super::find`] reads the result.
//!
//! Rule: nothing here decides. Whatever the index leaves out can't match, and what it offers comes in file order.

use std::collections::HashMap;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::hash::BuildKeyHasher;
use super::index::{Builder, Index, List};
use super::pattern::PatternError;
use super::predicate::Conditions;
use super::{HostPattern, Rule};

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
    pub(super) rules: Vec<CompiledRule>,
    pub(super) hosts: Hosts,
    pub(super) groups: Vec<Group>,
    pub(super) index: Index,
    uses_learned_types: bool,
}

#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) rule: Arc<Rule>,
    pub(super) when: Conditions,
    pub(super) unless: Conditions,
}

/// The groups of rules by host.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    pub(super) exact: HashMap<Box<str>, u32, BuildKeyHasher>,
    pub(super) suffixes: HashMap<Box<str>, u32, BuildKeyHasher>,
    /// The most dots of a suffix.
    pub(super) deepest: usize,
    /// The rules that ask for no host.
    pub(super) any: Option<u32>,
}

/// The rules of one host, or of all hosts with one suffix, or of no host.
#[derive(Debug)]
pub(super) struct Group {
    /// The root of their paths' tree.
    pub(super) root: u32,
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
        let mut builder = Builder::new();
        let mut compiled = Vec::with_capacity(rules.len());
        let mut uses_learned_types = false;
        for (position, rule) in rules.into_iter().enumerate() {
            let fail = |problem| CompileError { rule: Arc::clone(&rule.name), place: rule.place.clone(), problem };
            let when = Conditions::compile(&rule.when).map_err(fail)?;
            let unless = Conditions::compile(&rule.unless).map_err(fail)?;
            drafts.insert(u32::try_from(position).unwrap_or(u32::MAX), &rule, &when, &mut builder);
            uses_learned_types |= when.asks_media_type() || unless.asks_media_type();
            compiled.push(CompiledRule { when: when.leave_to_index(), unless, rule });
        }
        let mut groups = Vec::with_capacity(drafts.list.len());
        for draft in drafts.list {
            groups.push(draft.finish(&mut builder, &compiled)?);
        }
        Ok(Self { rules: compiled, hosts: drafts.hosts, groups, index: builder.finish(), uses_learned_types })
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

    /// Whether a rule asks for the media type, so that what paths answer with is worth remembering.
    pub const fn uses_learned_types(&self) -> bool {
        self.uses_learned_types
    }
}

/// The groups while rules come in.
#[derive(Default)]
struct Drafts {
    hosts: Hosts,
    list: Vec<GroupDraft>,
}

struct GroupDraft {
    root: u32,
    has_paths: bool,
    anywhere: Vec<u32>,
    /// Rules by expression, as often as they have one.
    expressions: Vec<(u32, String)>,
}

impl Drafts {
    fn insert(&mut self, position: u32, rule: &Rule, when: &Conditions, builder: &mut Builder) {
        if rule.when.hosts.is_empty() {
            let group = *self.hosts.any.get_or_insert_with(|| new_group(&mut self.list, builder));
            self.insert_into(group, position, rule, when, builder);
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
            self.insert_into(group, position, rule, when, builder);
        }
    }

    fn insert_into(&mut self, group: u32, position: u32, rule: &Rule, when: &Conditions, builder: &mut Builder) {
        let Some(group) = self.list.get_mut(group as usize) else { return };
        if !when.paths.is_empty() {
            group.has_paths = true;
            for pattern in &when.paths {
                builder.insert(group.root, pattern, position);
            }
        } else if !when.expressions.is_empty() {
            group.expressions.extend(rule.when.path_regexes.iter().map(|text| (position, text.clone())));
        } else if group.anywhere.last() != Some(&position) {
            group.anywhere.push(position);
        }
    }
}

fn new_group(list: &mut Vec<GroupDraft>, builder: &mut Builder) -> u32 {
    list.push(GroupDraft { root: builder.root(), has_paths: false, anywhere: Vec::new(), expressions: Vec::new() });
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
        Ok(Group { root: self.root, has_paths: self.has_paths, anywhere, expressions })
    }
}

fn too_large(error: regex::Error, rule: u32, compiled: &[CompiledRule]) -> CompileError {
    let (name, place) = compiled.get(rule as usize).map_or_else(
        || ("".into(), String::new()),
        |compiled| (Arc::clone(&compiled.rule.name), compiled.rule.place.clone()),
    );
    CompileError { rule: name, place, problem: CompileProblem::Expressions { error: Box::new(error) } }
}

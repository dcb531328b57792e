//! The search for the first rule, in file order, whose predicates all hold.
//!
//! Lists of candidates come from the index, each in file order; they are merged as they are read, so that nothing behind
//! the winner is looked at. The result is that of asking every rule in turn, which a property test holds it to. With a
//! recording trace the same code runs, and tells afterwards.

use std::sync::Arc;

use super::captures::{Captures, Search};
use super::compile::{CompiledRule, RuleSet};
use super::predicate::{Facts, Test};
use super::{RequestView, Rule};
use crate::base::id::ListenerIndex;
use crate::pure::trace::Trace;

/// The rule that a request gets.
#[derive(Clone, Copy, Debug)]
pub struct Found<'s> {
    /// Its position in file order, from 0.
    pub index: usize,
    /// The rule.
    pub rule: &'s Arc<Rule>,
}

/// A list of rules, read from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// The rule at the front.
    head: u32,
    next: u32,
    end: u32,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The index's postings.
    Postings,
    /// The hits of expressions.
    Hits,
    /// The rules by expression of a group, before the expressions have been run.
    Expressions(u32),
}

impl RuleSet {
    /// The first rule that matches, and into `captures` what it captured of `request.path`.
    pub fn find<'s>(
        &'s self,
        request: &RequestView<'_>,
        captures: &mut Captures,
        trace: &mut Trace,
    ) -> Option<Found<'s>> {
        captures.clear();
        let search = &mut captures.search;
        self.gather(request.host, Some(request.listener), request.path, search);
        let facts = Facts::new(*request);
        let mut missed = Vec::new();
        let mut found = None;
        while let Some(index) = self.next_candidate(request.path, search) {
            let index = index as usize;
            search.verified += 1;
            match self.miss(index, &facts) {
                None => {
                    found = self.rules.get(index).map(|winner| (index, winner));
                    break;
                }
                Some(miss) if trace.is_recording() => missed.push((index, miss)),
                Some(_) => {}
            }
        }
        if let Some((_, winner)) = found {
            winner.capture(request.path, captures);
        }
        if trace.is_recording() {
            super::explain::explain(self, &facts, &missed, found.map(|(index, _)| index), trace);
        }
        found.map(|(index, winner)| Found { index, rule: &winner.rule })
    }

    /// Why a candidate does not match; `None` where it does.
    fn miss(&self, index: usize, facts: &Facts<'_>) -> Option<Miss<'_>> {
        let asks = self.asks.get(index)?;
        for (list, is_not) in [(asks.when, false), (asks.unless, true)] {
            for number in list.of(&self.questions) {
                if let Some(test) = self.tests.get(*number as usize)
                    && test.holds(facts) == is_not
                {
                    return Some(Miss { test, is_not });
                }
            }
        }
        None
    }

    /// The positions of all rules that can match by host or listener, and path, in order; those by expression whether it matches or not.
    pub(super) fn candidates(&self, host: &str, listener: Option<ListenerIndex>, path: &str, into: &mut Vec<usize>) {
        let mut search = Search::default();
        self.gather(host, listener, path, &mut search);
        into.clear();
        for cursor in &search.cursors {
            match cursor.source {
                Source::Postings => {
                    into.extend(
                        (cursor.next - 1..cursor.end).filter_map(|at| self.index.rule_at(at)).map(|rule| rule as usize),
                    );
                }
                Source::Hits => {}
                Source::Expressions(group) => {
                    let expressions = self.groups.get(group as usize).and_then(|group| group.expressions.as_ref());
                    into.extend(expressions.iter().flat_map(|found| &found.rules).map(|rule| *rule as usize));
                }
            }
        }
        into.sort_unstable();
        into.dedup();
    }

    /// Collects the lists of all rules that can match by host or listener, and path.
    fn gather(&self, host: &str, listener: Option<ListenerIndex>, path: &str, search: &mut Search) {
        search.cursors.clear();
        search.hits.clear();
        search.verified = 0;
        if !host.is_empty() {
            if let Some(&group) = self.hosts.exact.get(host) {
                self.gather_group(group, path, search);
            }
            for dot in memchr::memrchr_iter(b'.', host.as_bytes()).take(self.hosts.deepest) {
                if dot > 0
                    && let Some(&group) = host.get(dot..).and_then(|suffix| self.hosts.suffixes.get(suffix))
                {
                    self.gather_group(group, path, search);
                }
            }
        }
        if let Some(&group) = listener.and_then(|listener| self.hosts.listeners.get(&listener.0)) {
            self.gather_group(group, path, search);
        }
        if let Some(group) = self.hosts.any {
            self.gather_group(group, path, search);
        }
    }

    fn gather_group(&self, number: u32, path: &str, search: &mut Search) {
        let Some(group) = self.groups.get(number as usize) else { return };
        let Search { cursors, nodes, .. } = search;
        let mut push = |list: super::index::List| {
            if let Some(head) = self.index.rule_at(list.start)
                && list.start < list.end
            {
                cursors.push(Cursor { head, next: list.start + 1, end: list.end, source: Source::Postings });
            }
        };
        push(group.anywhere);
        if group.has_paths {
            self.index.search(group.tree, path, nodes, &mut push);
        }
        if let Some(head) = group.expressions.as_ref().and_then(|expressions| expressions.rules.first()) {
            cursors.push(Cursor { head: *head, next: 0, end: 0, source: Source::Expressions(number) });
        }
    }

    /// The next rule in file order of all lists.
    fn next_candidate(&self, path: &str, search: &mut Search) -> Option<u32> {
        loop {
            // Where a group's expressions have not been run, their place in the order is only a lower bound: they come first.
            let rank = |cursor: &Cursor| (cursor.head, !matches!(cursor.source, Source::Expressions(_)));
            let (at, first) = search.cursors.iter().copied().enumerate().min_by_key(|(_, cursor)| rank(cursor))?;
            if let Source::Expressions(group) = first.source {
                search.cursors.swap_remove(at);
                self.run_expressions(group, path, search);
                continue;
            }
            let hits = &search.hits;
            search.cursors.retain_mut(|cursor| cursor.head != first.head || self.advance(cursor, hits));
            return Some(first.head);
        }
    }

    /// Moves a cursor to its next rule; false where there is none.
    fn advance(&self, cursor: &mut Cursor, hits: &[u32]) -> bool {
        if cursor.next >= cursor.end {
            return false;
        }
        let head = match cursor.source {
            Source::Postings => self.index.rule_at(cursor.next),
            Source::Hits | Source::Expressions(_) => hits.get(cursor.next as usize).copied(),
        };
        cursor.next += 1;
        cursor.head = head.unwrap_or(cursor.head);
        head.is_some()
    }

    fn run_expressions(&self, group: u32, path: &str, search: &mut Search) {
        let Some(expressions) = self.groups.get(group as usize).and_then(|group| group.expressions.as_ref()) else {
            return;
        };
        let start = search.hits.len();
        for hit in &expressions.set.matches(path.as_bytes()) {
            if let Some(&rule) = expressions.rules.get(hit)
                && search.hits.get(start..).is_some_and(|hits| hits.last() != Some(&rule))
            {
                search.hits.push(rule);
            }
        }
        if let Some(&head) = search.hits.get(start)
            && let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(search.hits.len()))
        {
            search.cursors.push(Cursor { head, next: start + 1, end, source: Source::Hits });
        }
    }
}

/// Why a candidate is not the one: a question of its predicates that was answered no, or of its `not` block with yes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss<'r> {
    pub(super) test: &'r Test,
    pub(super) is_not: bool,
}

impl CompiledRule {
    /// The captures of the first pattern and of the first expression that match.
    fn capture(&self, path: &str, captures: &mut Captures) {
        let pattern = self.paths.iter().find(|pattern| pattern.matches(path));
        debug_assert!(pattern.is_some() || self.paths.is_empty(), "the index found a rule whose patterns do not match");
        if let Some(pattern) = pattern {
            pattern.capture(path, captures);
        }
        for expression in &self.expressions {
            let mut places = expression.capture_locations();
            if expression.captures_read(&mut places, path.as_bytes()).is_none() {
                continue;
            }
            for (number, name) in expression.capture_names().enumerate() {
                let Some((start, end)) = places.get(number) else { continue };
                captures.push_number(number, start, end);
                if let Some(name) = name {
                    captures.push(name, start, end);
                }
            }
            return;
        }
    }
}

#[cfg(test)]
pub(in crate::pure) mod tests;

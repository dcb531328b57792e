//! The names that rule files give to listeners, pools and rules, found by hash.

use std::collections::HashMap;
use std::sync::Arc;

use super::ListenAddress;
use super::address;
use super::node::Value;
use super::problem::{Problem, Problems};
use super::source::Place;
use super::suggest::did_you_mean;
use crate::base::id::{ListenerIndex, PoolIndex};

/// All names, once listeners and pools are read.
#[derive(Debug, Default)]
pub(super) struct Names {
    listeners: HashMap<ListenAddress, Vec<ListenerIndex>>,
    listener_texts: Vec<String>,
    pools: HashMap<Arc<str>, PoolIndex>,
    pool_names: Vec<Arc<str>>,
    /// Whether something could not be read, so that an unknown name may not be wrong.
    pub(super) is_incomplete: bool,
}

impl Names {
    /// Notes a listener as it was written; the next index is its own.
    pub(super) fn add_listener(&mut self, text: &str, address: ListenAddress, index: ListenerIndex) {
        self.listeners.entry(address).or_default().push(index);
        self.listener_texts.push(text.to_owned());
    }

    /// Notes a pool.
    pub(super) fn add_pool(&mut self, name: &Arc<str>, index: PoolIndex) {
        self.pools.insert(Arc::clone(name), index);
        self.pool_names.push(Arc::clone(name));
    }

    /// The pool that a value names; a name that no pool has is an error.
    pub(super) fn pool(&self, value: Value<'_>, problems: &mut Problems) -> Option<PoolIndex> {
        let name = value.text()?;
        let found = self.pools.get(name).copied();
        if found.is_none() && !self.is_incomplete {
            let problem = Problem::at(&value.place(), format!("there is no pool `{name}`"));
            problems.add(match did_you_mean(name, self.pool_names.iter().map(AsRef::as_ref)) {
                Some(guess) => problem.label(guess),
                None => problem.label("unknown").help(known(&self.pool_names, "pool", r#"pool "NAME" { server .. }"#)),
            });
        }
        found
    }

    /// The listeners that a value names by their address: several only where they share port 0.
    pub(super) fn listeners(&self, value: Value<'_>, problems: &mut Problems) -> Vec<ListenerIndex> {
        let Some(text) = value.text() else { return Vec::new() };
        let found =
            address::listener_named(text, |file| value.beside(file)).and_then(|address| self.listeners.get(&address));
        if let Some(found) = found {
            return found.clone();
        }
        if !self.is_incomplete {
            let problem = Problem::at(&value.place(), format!("nothing listens on `{text}`"));
            problems.add(match did_you_mean(text, self.listener_texts.iter().map(String::as_str)) {
                Some(guess) => problem.label(guess),
                None => problem.label("unknown").help(known(&self.listener_texts, "listener", r#"listen "ADDRESS""#)),
            });
        }
        Vec::new()
    }
}

/// The first few of the names there are.
fn known(names: &[impl AsRef<str>], noun: &str, usage: &str) -> String {
    const SHOWN: usize = 8;
    if names.is_empty() {
        return format!("there is no {noun} at all: {usage}");
    }
    let first: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    let more = if names.len() > SHOWN { ", .." } else { "" };
    format!("there is: {}{more}", first.join(", "))
}

/// Finds names that are given twice.
#[derive(Debug)]
pub(super) struct Unique {
    noun: &'static str,
    remedy: &'static str,
    seen: HashMap<String, Place>,
}

impl Unique {
    /// For things that are called `noun`; `remedy` says what to do about two with one name.
    pub(super) fn new(noun: &'static str, remedy: &'static str) -> Self {
        Self { noun, remedy, seen: HashMap::new() }
    }

    /// Notes a name; whether it is new. One that is not is an error.
    pub(super) fn note(&mut self, name: &str, place: Place, problems: &mut Problems) -> bool {
        if let Some(first) = self.seen.get(name) {
            let problem = Problem::at(&place, format!("there are two {}s `{name}`", self.noun)).label("again here");
            problems.add(problem.also(first, "first here").help(self.remedy));
            return false;
        }
        self.seen.insert(name.to_owned(), place);
        true
    }
}

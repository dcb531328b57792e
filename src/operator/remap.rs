//! `pointsman remap`: how many keys change their server from one rule file to another, for each pool: what a change would do
//! to the servers' caches, before it is made.
//!
//! It asks the schedulers' own code, with every server up and idle, as a proxy that takes the change over while it runs would:
//! where a scheduler remembers the servers of keys, those at servers that stay are kept. It needs no running proxy, and refuses to guess which keys there are: they are given, or so many, spread evenly.

mod keys;
mod text;
mod trial;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::operator::check::{Style, render};
use crate::operator::explain::{ExplainError, rehearsal_of};
use crate::operator::rehearsal::{Outcome, Rehearsal, RequestDescription};
use crate::operator::rule_files::DiskFiles;
use crate::pure::config::{ListenAddress, RuleFiles};
use crate::pure::pool::Pool;
use crate::pure::rule::key::hash_text;
use crate::pure::trace::Trace;

pub use keys::{Asked, KeysError};
use trial::{Trial, is_by_load};

/// What is compared, and by which keys.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct RemapOptions {
    /// The rule file as it is, or a directory: all its *.kdl in name order.
    #[arg(value_name = "FILE_A")]
    pub before: PathBuf,
    /// The rule file as it would be.
    #[arg(value_name = "FILE_B")]
    pub after: PathBuf,
    /// A file with a key, a URL, or a method and a URL on each line [default: 10000 keys, spread evenly].
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
}

/// Why nothing can be compared: the input is wrong.
#[derive(Debug, thiserror::Error)]
pub enum RemapError {
    /// A rule file is.
    #[error(transparent)]
    Rules(#[from] ExplainError),
    /// The file of keys is.
    #[error(transparent)]
    Keys(#[from] KeysError),
}

impl RemapError {
    /// What is wrong, for people; problems of rule files are drawn as `check` draws them.
    pub fn render(&self, style: Style) -> String {
        match self {
            Self::Rules(ExplainError::Rules(problems)) => render(problems, style),
            other => format!("{other}\n"),
        }
    }

    /// The same for programs, as `explain` has it.
    pub fn json(&self) -> serde_json::Value {
        match self {
            Self::Rules(error) => error.json(),
            Self::Keys(error) => {
                serde_json::json!({ "errors": [{ "place": error.place(), "message": error.to_string() }] })
            }
        }
    }
}

/// What a change of rule files moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remap {
    /// The file of keys; none where they are made up.
    pub keys_file: Option<String>,
    /// Lines that name a request which no pool answers, before the change.
    pub requests_without_pool: u64,
    /// The pools: those of the first file in its order, then the new ones.
    pub pools: Vec<PoolRemap>,
}

/// What it moves in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolRemap {
    /// Its name.
    pub name: String,
    /// `kept`, `new` or `removed`.
    pub change: &'static str,
    /// How it chose before.
    pub before: Option<Way>,
    /// How it would choose.
    pub after: Option<Way>,
    /// What is known of its keys; none where it goes by no key before or after.
    pub keys: Option<MovedOf>,
    /// Requests of the file that have no key here; any server may get them.
    pub without_key: u64,
    /// How many of the keys each server has; empty where there are none.
    pub servers: Vec<ServerRemap>,
}

/// How a pool chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Way {
    /// The scheduler.
    pub scheduler: &'static str,
    /// What it hashes; none where it goes by no key.
    pub key: Option<String>,
}

/// How many keys move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MovedOf {
    /// The keys that were looked at.
    pub of: u64,
    /// Those that have another server, or another pool, where the change is taken over by a running proxy.
    pub moved: u64,
    /// Those of them that go to another pool, or to none.
    pub elsewhere: u64,
    /// Whether the same holds after a restart: not where the scheduler remembers the servers of keys, for then load decides anew.
    pub holds_after_restart: bool,
}

/// A server's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerRemap {
    /// Its name.
    pub name: String,
    /// Before; none where it is new.
    pub before: Option<u64>,
    /// After; none where it is removed.
    pub after: Option<u64>,
}

/// Compares two rule files of this machine.
///
/// # Errors
/// [`RemapError`] where a rule file or the file of keys is wrong.
pub fn remap(options: &RemapOptions) -> Result<Remap, RemapError> {
    let keys = options.keys.as_deref().map(|file| keys::read(file).map(|asked| (file, asked))).transpose()?;
    let keys = keys.as_ref().map(|(file, asked)| (*file, asked.as_slice()));
    Ok(compare(&DiskFiles, &options.before, &options.after, keys)?)
}

/// Compares two rule files of `files` by the keys, which come from a file of that name; without any, by keys spread evenly.
///
/// # Errors
/// [`ExplainError::Rules`].
pub fn compare(
    files: &dyn RuleFiles,
    before: &Path,
    after: &Path,
    keys: Option<(&Path, &[Asked])>,
) -> Result<Remap, ExplainError> {
    let (before, after) = (rehearsal_of(files, before)?, rehearsal_of(files, after)?);
    let comparison = Comparison { before: &before, after: &after, trial: Trial::new(&before, &after) };
    Ok(comparison.run(keys))
}

/// A key of a pool, before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Item {
    before: u64,
    /// None: it goes to another pool, or to none.
    after: Option<u64>,
}

/// The keys that a pool is asked for.
#[derive(Debug, Default)]
struct Items {
    keys: Vec<Item>,
    known: HashSet<Item>,
    without_key: u64,
}

impl Items {
    fn add(&mut self, item: Item) {
        if self.known.insert(item) {
            self.keys.push(item);
        }
    }
}

struct Comparison<'r> {
    before: &'r Rehearsal,
    after: &'r Rehearsal,
    trial: Trial,
}

impl Comparison<'_> {
    fn run(&self, keys: Option<(&Path, &[Asked])>) -> Remap {
        let (old, new) = (&self.before.config().pools, &self.after.config().pools);
        let mut items: HashMap<Arc<str>, Items> = HashMap::new();
        let mut requests_without_pool = 0;
        match keys {
            None => self.spread_evenly(&mut items),
            Some((_, asked)) => {
                for one in asked {
                    match one {
                        Asked::Key(text) => self.ask_every_pool(text, &mut items),
                        Asked::Request { method, url } => {
                            requests_without_pool += u64::from(!self.ask(method, url, &mut items));
                        }
                    }
                }
            }
        }
        let twin = |pool: &Arc<Pool>| new.iter().find(|other| other.name == pool.name);
        let mut pools: Vec<PoolRemap> = old
            .iter()
            .map(|pool| match twin(pool) {
                Some(other) => self.kept(pool, other, items.get(&pool.name)),
                None => alone(pool, "removed"),
            })
            .collect();
        let is_new = |pool: &&Arc<Pool>| old.iter().all(|other| other.name != pool.name);
        pools.extend(new.iter().filter(is_new).map(|pool| alone(pool, "new")));
        let keys_file = keys.map(|(file, _)| file.display().to_string());
        Remap { keys_file, requests_without_pool, pools }
    }

    fn keyed_pools(&self) -> impl Iterator<Item = (&Arc<Pool>, &Arc<Pool>)> {
        let new = &self.after.config().pools;
        let pairs = self
            .before
            .config()
            .pools
            .iter()
            .filter_map(move |pool| Some((pool, new.iter().find(|other| other.name == pool.name)?)));
        pairs.filter(|(one, other)| is_keyed(one) && is_keyed(other))
    }

    fn spread_evenly(&self, items: &mut HashMap<Arc<str>, Items>) {
        for (pool, _) in self.keyed_pools() {
            let own = items.entry(Arc::clone(&pool.name)).or_default();
            keys::spread_evenly().for_each(|key| own.add(Item { before: key, after: Some(key) }));
        }
    }

    fn ask_every_pool(&self, text: &str, items: &mut HashMap<Arc<str>, Items>) {
        for (pool, other) in self.keyed_pools() {
            let own = items.entry(Arc::clone(&pool.name)).or_default();
            match (hash_of(pool, text), hash_of(other, text)) {
                (Some(before), Some(after)) => own.add(Item { before, after: Some(after) }),
                _ => own.without_key += 1,
            }
        }
    }

    /// Takes a request through the rules of both files. Returns whether a pool answers it before.
    fn ask(&self, method: &str, url: &str, items: &mut HashMap<Arc<str>, Items>) -> bool {
        let Some((pool, before)) = destination(self.before, method, url) else { return false };
        let after = destination(self.after, method, url).filter(|(other, _)| *other == pool);
        let own = items.entry(pool).or_default();
        match (before, after) {
            (Some(before), Some((_, Some(after)))) => own.add(Item { before, after: Some(after) }),
            (Some(before), None) => own.add(Item { before, after: None }),
            (None, _) | (_, Some((_, None))) => own.without_key += 1,
        }
        true
    }

    fn kept(&self, pool: &Pool, other: &Pool, items: Option<&Items>) -> PoolRemap {
        let mut told = PoolRemap { after: Some(way(other)), ..alone(pool, "kept") };
        told.without_key = items.map_or(0, |items| items.without_key);
        if !is_keyed(pool) || !is_keyed(other) {
            return told;
        }
        let items = items.map(|items| items.keys.as_slice()).unwrap_or_default();
        let (before, after) = self.trial.servers(&pool.name, items);
        let pairs = before.iter().zip(&after).zip(items);
        let moved = pairs.filter(|((one, other), item)| item.after.is_none() || one != other).count();
        told.keys = Some(MovedOf {
            of: items.len() as u64,
            moved: moved as u64,
            elsewhere: items.iter().filter(|item| item.after.is_none()).count() as u64,
            holds_after_restart: !is_by_load(&other.scheduler.method),
        });
        told.servers = servers(pool, other, &before, &after);
        told
    }
}

/// A pool that only one of the files has.
fn alone(pool: &Pool, change: &'static str) -> PoolRemap {
    let (before, after) = if change == "new" { (None, Some(way(pool))) } else { (Some(way(pool)), None) };
    let name = pool.name.to_string();
    PoolRemap { name, change, before, after, keys: None, without_key: 0, servers: Vec::new() }
}

fn way(pool: &Pool) -> Way {
    let key = pool.key.as_ref().filter(|_| is_keyed(pool)).map(ToString::to_string);
    Way { scheduler: pool.scheduler.method.name(), key }
}

fn is_keyed(pool: &Pool) -> bool {
    pool.scheduler.method.is_keyed()
}

fn hash_of(pool: &Pool, text: &str) -> Option<u64> {
    hash_text(pool.key.as_ref()?, pool.key_normalize.as_ref(), text)
}

/// The pool of a request, and the hash of its key; none where no pool answers it.
fn destination(rehearsal: &Rehearsal, method: &str, url: &str) -> Option<(Arc<str>, Option<u64>)> {
    let request = RequestDescription { method, url, headers: &[], client: ListenAddress::peer(), listener: None };
    match rehearsal.decide(&request, &mut Trace::off()).outcome {
        Outcome::Forward(forward) => {
            let pool = rehearsal.config().pools.get(forward.pool.0 as usize)?;
            Some((Arc::clone(&pool.name), forward.key))
        }
        Outcome::Redirect(_) | Outcome::Respond(_) | Outcome::Refused(_) => None,
    }
}

/// How many of the keys each server has: those of the first file in its order, then the new ones.
fn servers(pool: &Pool, other: &Pool, before: &[Option<Arc<str>>], after: &[Option<Arc<str>>]) -> Vec<ServerRemap> {
    let counts = |servers: &[Option<Arc<str>>]| {
        let mut counts: HashMap<Arc<str>, u64> = HashMap::new();
        for name in servers.iter().flatten() {
            *counts.entry(Arc::clone(name)).or_default() += 1;
        }
        counts
    };
    let (before, after) = (counts(before), counts(after));
    let has = |pool: &Pool| pool.servers.iter().map(|server| Arc::clone(&server.id.server)).collect::<HashSet<_>>();
    let (old, new) = (has(pool), has(other));
    let all = pool.servers.iter().chain(other.servers.iter().filter(|server| !old.contains(&server.id.server)));
    let count = |is_there: bool, counts: &HashMap<Arc<str>, u64>, name: &Arc<str>| {
        is_there.then(|| counts.get(name).copied().unwrap_or(0))
    };
    all.map(|server| {
        let name = &server.id.server;
        ServerRemap {
            name: name.to_string(),
            before: count(old.contains(name), &before, name),
            after: count(new.contains(name), &after, name),
        }
    })
    .collect()
}

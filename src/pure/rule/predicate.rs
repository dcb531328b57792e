//! The questions that rules ask beyond host and path, ready to be asked: compiled once, cheap ones first, and equal ones of
//! different rules only once, so that the few that a site uses stay in the processor's cache.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::net::IpAddr;

use regex::bytes::Regex;

use super::compile::{CompileProblem, path_regex};
use super::glob::GlobTest;
use super::media::{MediaTypeSource, media_type_of};
use super::parts::{accepted, cookies, essence, parameters};
use super::pattern::PathPattern;
use super::{Cidr, Glob, HostPattern, Named, Predicates, RequestView};
use crate::base::id::ListenerIndex;
use crate::pure::head::Known;

impl HostPattern {
    /// Whether a host, in lower case, is one of these.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => host == exact,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
        }
    }
}

impl Cidr {
    /// The range of one address.
    pub const fn single(address: IpAddr) -> Self {
        Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether an address lies in the range. An IPv4 address in IPv6's clothes counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let prefix = if self.address.is_ipv6() { self.prefix.saturating_sub(96) } else { self.prefix };
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
                (ours.to_bits() ^ theirs.to_bits()) & mask == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                (ours.to_bits() ^ theirs.to_bits()) & mask == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// A request and what has been worked out of it so far.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) view: RequestView<'a>,
    media_type: OnceCell<Option<(Cow<'a, str>, MediaTypeSource)>>,
}

impl<'a> Facts<'a> {
    pub(super) const fn new(view: RequestView<'a>) -> Self {
        Self { view, media_type: OnceCell::new() }
    }

    fn media_type(&self) -> Option<&(Cow<'a, str>, MediaTypeSource)> {
        self.media_type.get_or_init(|| media_type_of(&self.view)).as_ref()
    }

    /// The media type, where a rule has asked for it.
    pub(super) fn media_type_if_asked(&self) -> Option<Option<&(Cow<'a, str>, MediaTypeSource)>> {
        self.media_type.get().map(Option::as_ref)
    }
}

/// A thing by name, and what its value must be.
#[derive(Debug)]
pub(super) struct NamedTest {
    pub(super) name: Box<str>,
    values: Vec<GlobTest>,
}

impl NamedTest {
    fn new(from: &Named) -> Self {
        Self { name: from.name.as_str().into(), values: from.values.iter().map(GlobTest::exact).collect() }
    }

    fn holds<V: AsRef<[u8]>>(&self, mut values: impl Iterator<Item = V>) -> bool {
        if self.values.is_empty() {
            return values.next().is_some();
        }
        values.any(|value| self.values.iter().any(|test| test.matches(value.as_ref())))
    }
}

/// One question to a request: any of its alternatives will do.
#[derive(Debug)]
pub(super) enum Test {
    Listeners(Vec<ListenerIndex>),
    Methods(Vec<String>),
    Hosts(Vec<HostPattern>),
    Clients(Vec<Cidr>),
    ServerNames(Vec<HostPattern>),
    Header(NamedTest),
    Cookie(NamedTest),
    Query(NamedTest),
    ContentTypes(Vec<GlobTest>),
    Accepts(Vec<GlobTest>),
    MediaTypes(Vec<GlobTest>),
    Paths(Vec<PathPattern>),
    Expressions(Vec<Regex>),
}

impl Test {
    pub(super) fn holds(&self, facts: &Facts<'_>) -> bool {
        let view = &facts.view;
        match self {
            Self::Listeners(list) => list.contains(&view.listener),
            Self::Methods(list) => list.iter().any(|method| method == view.method),
            Self::Hosts(list) => list.iter().any(|pattern| pattern.matches(view.host)),
            Self::Clients(list) => list.iter().any(|range| range.contains(view.client)),
            Self::ServerNames(list) => {
                view.server_name.is_some_and(|name| list.iter().any(|pattern| pattern.matches(name)))
            }
            Self::Header(test) => test.holds(view.fields.named(&test.name)),
            Self::Cookie(test) => test.holds(cookies(view.fields, &test.name)),
            Self::Query(test) => test.holds(parameters(view.query, &test.name)),
            Self::ContentTypes(list) => {
                view.fields.known(Known::ContentType).filter_map(essence).any(|text| is_any(list, text))
            }
            Self::Accepts(list) => accepted(view.fields).any(|range| range.quality > 0 && is_any(list, range.range)),
            Self::MediaTypes(list) => facts.media_type().is_some_and(|(text, _)| is_any(list, text)),
            Self::Paths(list) => list.iter().any(|pattern| pattern.matches(view.path)),
            Self::Expressions(list) => list.iter().any(|expression| expression.is_match(view.path.as_bytes())),
        }
    }
}

fn is_any(tests: &[GlobTest], text: &str) -> bool {
    tests.iter().any(|test| test.matches(text.as_bytes()))
}

/// What a question is made of: equal sources make equal questions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    Listeners(Vec<ListenerIndex>),
    Methods(Vec<String>),
    Hosts(Vec<HostPattern>),
    Clients(Vec<Cidr>),
    ServerNames(Vec<HostPattern>),
    Header(Named),
    Cookie(Named),
    Query(Named),
    ContentTypes(Vec<Glob>),
    Accepts(Vec<Glob>),
    MediaTypes(Vec<Glob>),
    Paths(Vec<String>),
    Expressions(Vec<String>),
}

/// Questions while rules come in, and the expressions and patterns compiled so far.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) tests: Vec<Test>,
    numbers: HashMap<Source, u32>,
    expressions: HashMap<String, Regex>,
}

/// Which questions of a rule the index has answered before they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// None: the rule's `not` block.
    All,
    /// Hosts and paths, and the expressions of a rule without paths.
    NotByIndex,
}

impl Builder {
    /// The numbers of the questions that `from` asks, cheap ones first.
    pub(super) fn questions(&mut self, from: &Predicates, asked: Asked) -> Result<Vec<u32>, CompileProblem> {
        let mut sources = Vec::new();
        let mut ask = |is_asked: bool, source: Source| {
            if is_asked {
                sources.push(source);
            }
        };
        let all = asked == Asked::All;
        ask(!from.listeners.is_empty(), Source::Listeners(from.listeners.clone()));
        ask(!from.methods.is_empty(), Source::Methods(from.methods.clone()));
        ask(all && !from.hosts.is_empty(), Source::Hosts(from.hosts.clone()));
        ask(!from.clients.is_empty(), Source::Clients(from.clients.clone()));
        ask(!from.server_names.is_empty(), Source::ServerNames(from.server_names.clone()));
        for named in merged(&from.headers, |one, other| one.eq_ignore_ascii_case(other)) {
            ask(true, Source::Header(named));
        }
        for named in merged(&from.cookies, |one, other| one == other) {
            ask(true, Source::Cookie(named));
        }
        for named in merged(&from.queries, |one, other| one == other) {
            ask(true, Source::Query(named));
        }
        ask(!from.content_types.is_empty(), Source::ContentTypes(from.content_types.clone()));
        ask(!from.accepts.is_empty(), Source::Accepts(from.accepts.clone()));
        ask(!from.media_types.is_empty(), Source::MediaTypes(from.media_types.clone()));
        ask(all && !from.paths.is_empty(), Source::Paths(from.paths.clone()));
        let with_path = all || !from.paths.is_empty();
        ask(with_path && !from.path_regexes.is_empty(), Source::Expressions(from.path_regexes.clone()));
        sources.into_iter().map(|source| self.number(source)).collect()
    }

    fn number(&mut self, source: Source) -> Result<u32, CompileProblem> {
        if let Some(number) = self.numbers.get(&source) {
            return Ok(*number);
        }
        let test = self.test(&source)?;
        let number = u32::try_from(self.tests.len()).unwrap_or(u32::MAX);
        self.tests.push(test);
        self.numbers.insert(source, number);
        Ok(number)
    }

    fn test(&mut self, source: &Source) -> Result<Test, CompileProblem> {
        Ok(match source {
            Source::Listeners(list) => Test::Listeners(list.clone()),
            Source::Methods(list) => Test::Methods(list.clone()),
            Source::Hosts(list) => Test::Hosts(list.clone()),
            Source::Clients(list) => Test::Clients(list.clone()),
            Source::ServerNames(list) => Test::ServerNames(list.clone()),
            Source::Header(named) => Test::Header(NamedTest::new(named)),
            Source::Cookie(named) => Test::Cookie(NamedTest::new(named)),
            Source::Query(named) => Test::Query(NamedTest::new(named)),
            Source::ContentTypes(list) => Test::ContentTypes(media(list)),
            Source::Accepts(list) => Test::Accepts(media(list)),
            Source::MediaTypes(list) => Test::MediaTypes(media(list)),
            Source::Paths(list) => Test::Paths(patterns(list)?),
            Source::Expressions(list) => Test::Expressions(self.expressions(list)?),
        })
    }

    /// The expressions of a list, each text compiled once.
    pub(super) fn expressions(&mut self, list: &[String]) -> Result<Vec<Regex>, CompileProblem> {
        let mut compiled = Vec::with_capacity(list.len());
        for text in list {
            let expression = match self.expressions.get(text) {
                Some(known) => known.clone(),
                None => {
                    let fail = |error| CompileProblem::Expression { text: text.clone(), error: Box::new(error) };
                    let new = path_regex(text).map_err(fail)?;
                    self.expressions.insert(text.clone(), new.clone());
                    new
                }
            };
            compiled.push(expression);
        }
        Ok(compiled)
    }
}

/// The patterns of a list.
pub(super) fn patterns(list: &[String]) -> Result<Vec<PathPattern>, CompileProblem> {
    let parse =
        |text: &String| PathPattern::parse(text).map_err(|error| CompileProblem::Path { text: text.clone(), error });
    list.iter().map(parse).collect()
}

/// A list of named things in which those of one name, which are alternatives, have become one.
fn merged(list: &[Named], same: impl Fn(&str, &str) -> bool) -> Vec<Named> {
    let mut merged: Vec<Named> = Vec::new();
    for entry in list {
        match merged.iter_mut().find(|known| same(&known.name, &entry.name)) {
            Some(known) if known.values.is_empty() || entry.values.is_empty() => known.values.clear(),
            Some(known) => known.values.extend(entry.values.iter().cloned()),
            None => merged.push(entry.clone()),
        }
    }
    merged
}

/// The tests of media types; parameters say nothing.
fn media(list: &[Glob]) -> Vec<GlobTest> {
    list.iter().map(|glob| GlobTest::any_case(glob.0.split(';').next().unwrap_or_default().trim())).collect()
}

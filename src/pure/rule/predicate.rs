//! The predicates of one rule, ready to be asked: compiled once, then compared with many requests, cheap questions first.

use std::borrow::Cow;
use std::cell::OnceCell;
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
    fn holds<V: AsRef<[u8]>>(&self, mut values: impl Iterator<Item = V>) -> bool {
        if self.values.is_empty() {
            return values.next().is_some();
        }
        values.any(|value| self.values.iter().any(|test| test.matches(value.as_ref())))
    }
}

/// What a predicate asks about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question<'r> {
    Listener,
    Method,
    Host,
    Client,
    ServerName,
    Header(&'r NamedTest),
    Cookie(&'r NamedTest),
    Query(&'r NamedTest),
    ContentType,
    Accept,
    MediaType,
    Path,
    Expression,
}

/// The predicates of a rule, or of its `not` block.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    listeners: Vec<ListenerIndex>,
    methods: Vec<Box<str>>,
    hosts: Vec<HostPattern>,
    clients: Vec<Cidr>,
    server_names: Vec<HostPattern>,
    headers: Vec<NamedTest>,
    cookies: Vec<NamedTest>,
    queries: Vec<NamedTest>,
    content_types: Vec<GlobTest>,
    accepts: Vec<GlobTest>,
    media_types: Vec<GlobTest>,
    pub(super) paths: Vec<PathPattern>,
    pub(super) expressions: Vec<Regex>,
    /// Whether anything beside host, path and expression is asked.
    asks_more: bool,
    /// Whether the expressions are left to the group's set.
    leaves_expressions: bool,
}

impl Conditions {
    pub(super) fn compile(from: &Predicates) -> Result<Self, CompileProblem> {
        let paths = from
            .paths
            .iter()
            .map(|text| PathPattern::parse(text).map_err(|error| CompileProblem::Path { text: text.clone(), error }));
        let expressions = from.path_regexes.iter().map(|text| {
            path_regex(text).map_err(|error| CompileProblem::Expression { text: text.clone(), error: Box::new(error) })
        });
        let mut conditions = Self {
            listeners: from.listeners.clone(),
            methods: from.methods.iter().map(|method| method.as_str().into()).collect(),
            hosts: from.hosts.clone(),
            clients: from.clients.clone(),
            server_names: from.server_names.clone(),
            headers: named(&from.headers, |one, other| one.eq_ignore_ascii_case(other)),
            cookies: named(&from.cookies, |one, other| one == other),
            queries: named(&from.queries, |one, other| one == other),
            content_types: media(&from.content_types),
            accepts: media(&from.accepts),
            media_types: media(&from.media_types),
            paths: paths.collect::<Result<_, _>>()?,
            expressions: expressions.collect::<Result<_, _>>()?,
            asks_more: false,
            leaves_expressions: false,
        };
        conditions.asks_more = conditions.counts_more() > 0;
        Ok(conditions)
    }

    fn counts_more(&self) -> usize {
        self.listeners.len()
            + self.methods.len()
            + self.clients.len()
            + self.server_names.len()
            + self.headers.len()
            + self.cookies.len()
            + self.queries.len()
            + self.content_types.len()
            + self.accepts.len()
            + self.media_types.len()
    }

    /// For the `when` of a rule in the index: its hosts have been looked up, and its expressions too where it has no path.
    pub(super) fn leave_to_index(mut self) -> Self {
        self.hosts.clear();
        self.leaves_expressions = self.paths.is_empty();
        self
    }

    pub(super) fn asks_media_type(&self) -> bool {
        !self.media_types.is_empty()
    }

    /// The first question whose answer is not `wanted`: all must hold of a rule's predicates, none of its `not` block.
    #[inline]
    pub(super) fn first_not(&self, wanted: bool, facts: &Facts<'_>) -> Option<Question<'_>> {
        if self.asks_more
            && let Some(question) = self.first_of_more(wanted, facts)
        {
            return Some(question);
        }
        let view = &facts.view;
        let asked = |list_is_empty: bool, holds: &dyn Fn() -> bool| !list_is_empty && holds() != wanted;
        if asked(self.hosts.is_empty(), &|| self.hosts.iter().any(|host| host.matches(view.host))) {
            return Some(Question::Host);
        }
        if asked(self.paths.is_empty(), &|| self.paths.iter().any(|path| path.matches(view.path))) {
            return Some(Question::Path);
        }
        let path = view.path.as_bytes();
        let skips = self.leaves_expressions || self.expressions.is_empty();
        if asked(skips, &|| self.expressions.iter().any(|expression| expression.is_match(path))) {
            return Some(Question::Expression);
        }
        None
    }

    fn first_of_more(&self, wanted: bool, facts: &Facts<'_>) -> Option<Question<'_>> {
        let view = &facts.view;
        if !self.listeners.is_empty() && self.listeners.contains(&view.listener) != wanted {
            return Some(Question::Listener);
        }
        if !self.methods.is_empty() && self.methods.iter().any(|method| **method == *view.method) != wanted {
            return Some(Question::Method);
        }
        if !self.clients.is_empty() && self.clients.iter().any(|range| range.contains(view.client)) != wanted {
            return Some(Question::Client);
        }
        let served = |name: &HostPattern| view.server_name.is_some_and(|asked| name.matches(asked));
        if !self.server_names.is_empty() && self.server_names.iter().any(served) != wanted {
            return Some(Question::ServerName);
        }
        let not = |holds: bool| holds != wanted;
        if let Some(test) = self.headers.iter().find(|test| not(test.holds(view.fields.named(&test.name)))) {
            return Some(Question::Header(test));
        }
        if let Some(test) = self.cookies.iter().find(|test| not(test.holds(cookies(view.fields, &test.name)))) {
            return Some(Question::Cookie(test));
        }
        if let Some(test) = self.queries.iter().find(|test| not(test.holds(parameters(view.query, &test.name)))) {
            return Some(Question::Query(test));
        }
        self.first_of_media(wanted, facts)
    }

    fn first_of_media(&self, wanted: bool, facts: &Facts<'_>) -> Option<Question<'_>> {
        let fields = facts.view.fields;
        let is_any = |tests: &[GlobTest], text: &str| tests.iter().any(|test| test.matches(text.as_bytes()));
        if !self.content_types.is_empty() {
            let mut sent = fields.known(Known::ContentType).filter_map(essence);
            if sent.any(|text| is_any(&self.content_types, text)) != wanted {
                return Some(Question::ContentType);
            }
        }
        if !self.accepts.is_empty() {
            let mut ranges = accepted(fields).filter(|range| range.quality > 0);
            if ranges.any(|range| is_any(&self.accepts, range.range)) != wanted {
                return Some(Question::Accept);
            }
        }
        if !self.media_types.is_empty() {
            let holds = facts.media_type().is_some_and(|(text, _)| is_any(&self.media_types, text));
            if holds != wanted {
                return Some(Question::MediaType);
            }
        }
        None
    }
}

/// The tests of a list of named things; those of one name are alternatives, and become one.
fn named(list: &[Named], same: impl Fn(&str, &str) -> bool) -> Vec<NamedTest> {
    let mut tests: Vec<NamedTest> = Vec::new();
    for entry in list {
        let values = entry.values.iter().map(GlobTest::exact);
        match tests.iter_mut().find(|test| same(&test.name, &entry.name)) {
            Some(test) if test.values.is_empty() || entry.values.is_empty() => test.values.clear(),
            Some(test) => test.values.extend(values),
            None => tests.push(NamedTest { name: entry.name.as_str().into(), values: values.collect() }),
        }
    }
    tests
}

/// The tests of media types; parameters say nothing.
fn media(list: &[Glob]) -> Vec<GlobTest> {
    list.iter().map(|glob| GlobTest::any_case(glob.0.split(';').next().unwrap_or_default().trim())).collect()
}

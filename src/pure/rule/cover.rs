//! What `check` warns of: rules that can never match because an earlier one takes all that they ask for, exact hosts behind
//! an earlier wildcard, and expressions that are only prefixes.
//!
//! It says so only where it is certain: what it can't prove it passes over in silence.

use super::compile::RuleSet;
use super::glob::GlobTest;
use super::path::push_normalized;
use super::pattern::PathPattern;
use super::{Cidr, Glob, HostPattern, Named, Predicates, Rule};

/// A rule that an earlier one leaves nothing to, or nothing of one of its hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The position of the rule that is hidden, from 0.
    pub later: usize,
    /// The position of the rule that hides it.
    pub earlier: usize,
    /// Whether nothing at all is left to it.
    pub is_whole: bool,
    /// The exact host of the later rule that is hidden behind a wildcard of the earlier one.
    pub host: Option<String>,
}

/// Whether every request that `later` matches is one that `earlier` matches, certainly.
pub fn covers(earlier: &Rule, later: &Rule) -> bool {
    let (when, asked) = (&earlier.when, &later.when);
    asks_no_more(when, asked) && Lists::ALL.iter().all(|list| list.is_ruled_out(&earlier.unless, &later.unless))
}

/// The first exact host of `later` of which `earlier`, by a wildcard, takes every request that `later` could have matched.
pub fn hidden_host<'l>(earlier: &Rule, later: &'l Rule) -> Option<&'l str> {
    later.when.hosts.iter().find_map(|host| {
        let HostPattern::Exact(name) = host else { return None };
        let is_wild = |pattern: &HostPattern| matches!(pattern, HostPattern::Suffix(_)) && pattern.matches(name);
        if !earlier.when.hosts.iter().any(is_wild) {
            return None;
        }
        let mut only = later.clone();
        only.when.hosts = vec![host.clone()];
        covers(earlier, &only).then_some(name.as_str())
    })
}

/// Whether each predicate of `when` is asked by `asked` too, and no less strictly.
fn asks_no_more(when: &Predicates, asked: &Predicates) -> bool {
    Lists::ALL.iter().all(|list| list.is_implied(when, asked))
}

/// The lists of [`Predicates`].
#[derive(Clone, Copy)]
enum Lists {
    Listeners,
    Hosts,
    Paths,
    PathRegexes,
    Methods,
    Headers,
    Queries,
    Cookies,
    ContentTypes,
    Accepts,
    MediaTypes,
    Clients,
    ServerNames,
}

impl Lists {
    const ALL: [Self; 13] = [
        Self::Listeners,
        Self::Hosts,
        Self::Methods,
        Self::Paths,
        Self::PathRegexes,
        Self::Headers,
        Self::Queries,
        Self::Cookies,
        Self::ContentTypes,
        Self::Accepts,
        Self::MediaTypes,
        Self::Clients,
        Self::ServerNames,
    ];

    /// Whether what `inner` asks in this list implies what `outer` asks.
    fn is_implied(self, outer: &Predicates, inner: &Predicates) -> bool {
        match self {
            Self::Listeners => alternatives(&outer.listeners, &inner.listeners, |a, b| a == b),
            Self::Hosts => alternatives(&outer.hosts, &inner.hosts, host_covers),
            Self::Paths => alternatives(&outer.paths, &inner.paths, |a, b| path_covers(a, b)),
            Self::PathRegexes => alternatives(&outer.path_regexes, &inner.path_regexes, |a, b| a == b),
            Self::Methods => alternatives(&outer.methods, &inner.methods, |a, b| a == b),
            Self::Headers => names(&outer.headers, &inner.headers, |a, b| a.eq_ignore_ascii_case(b)),
            Self::Queries => names(&outer.queries, &inner.queries, |a, b| a == b),
            Self::Cookies => names(&outer.cookies, &inner.cookies, |a, b| a == b),
            Self::ContentTypes => alternatives(&outer.content_types, &inner.content_types, media_covers),
            Self::Accepts => alternatives(&outer.accepts, &inner.accepts, media_covers),
            Self::MediaTypes => alternatives(&outer.media_types, &inner.media_types, media_covers),
            Self::Clients => alternatives(&outer.clients, &inner.clients, range_covers),
            Self::ServerNames => alternatives(&outer.server_names, &inner.server_names, host_covers),
        }
    }

    /// Whether whatever `earlier`, a `not` block, forbids in this list is forbidden by `later` too.
    fn is_ruled_out(self, earlier: &Predicates, later: &Predicates) -> bool {
        match self {
            Self::Listeners => within(&earlier.listeners, &later.listeners, |a, b| a == b),
            Self::Hosts => within(&earlier.hosts, &later.hosts, host_covers),
            Self::Paths => within(&earlier.paths, &later.paths, |a, b| path_covers(a, b)),
            Self::PathRegexes => within(&earlier.path_regexes, &later.path_regexes, |a, b| a == b),
            Self::Methods => within(&earlier.methods, &later.methods, |a, b| a == b),
            Self::Headers => within(&earlier.headers, &later.headers, |a, b| {
                a.name.eq_ignore_ascii_case(&b.name) && values_cover(a, b)
            }),
            Self::Queries => within(&earlier.queries, &later.queries, |a, b| a.name == b.name && values_cover(a, b)),
            Self::Cookies => within(&earlier.cookies, &later.cookies, |a, b| a.name == b.name && values_cover(a, b)),
            Self::ContentTypes => within(&earlier.content_types, &later.content_types, media_covers),
            Self::Accepts => within(&earlier.accepts, &later.accepts, media_covers),
            Self::MediaTypes => within(&earlier.media_types, &later.media_types, media_covers),
            Self::Clients => within(&earlier.clients, &later.clients, range_covers),
            Self::ServerNames => within(&earlier.server_names, &later.server_names, host_covers),
        }
    }
}

/// Every alternative of `inner` is covered by one of `outer`; an empty list asks nothing.
fn alternatives<T>(outer: &[T], inner: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    outer.is_empty() || !inner.is_empty() && within(inner, outer, covers)
}

/// Each of `parts` is covered by one of `wholes`.
fn within<T>(parts: &[T], wholes: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    parts.iter().all(|part| wholes.iter().any(|whole| covers(whole, part)))
}

/// Every name that `outer` asks for is asked for by `inner`, with values that `outer` takes. Entries of one name are
/// alternatives.
fn names(outer: &[Named], inner: &[Named], same: impl Fn(&str, &str) -> bool) -> bool {
    outer.iter().all(|asked| {
        let mut there = inner.iter().filter(|other| same(&asked.name, &other.name)).peekable();
        let alternatives: Vec<_> = outer.iter().filter(|other| same(&asked.name, &other.name)).collect();
        there.peek().is_some() && there.all(|theirs| alternatives.iter().any(|ours| values_cover(ours, theirs)))
    })
}

fn values_cover(outer: &Named, inner: &Named) -> bool {
    let any = [Glob("*".to_owned())];
    let inner = if inner.values.is_empty() { any.as_slice() } else { &inner.values };
    outer.values.is_empty() || within(inner, &outer.values, glob_covers)
}

/// A star of `inner` can only be matched by a star of `outer`, so that a match of the text is a match of all it stands for.
fn glob_covers(outer: &Glob, inner: &Glob) -> bool {
    GlobTest::exact(outer).matches(inner.0.as_bytes())
}

fn media_covers(outer: &Glob, inner: &Glob) -> bool {
    let essence = |glob: &Glob| glob.0.split(';').next().unwrap_or_default().trim().to_owned();
    GlobTest::any_case(&essence(outer)).matches(essence(inner).as_bytes())
}

fn host_covers(outer: &HostPattern, inner: &HostPattern) -> bool {
    match (outer, inner) {
        (HostPattern::Exact(ours), HostPattern::Exact(theirs)) => ours == theirs,
        (HostPattern::Exact(_), HostPattern::Suffix(_)) => false,
        (HostPattern::Suffix(_), HostPattern::Exact(theirs)) => outer.matches(theirs),
        (HostPattern::Suffix(ours), HostPattern::Suffix(theirs)) => theirs.ends_with(ours.as_str()),
    }
}

fn path_covers(outer: &str, inner: &str) -> bool {
    match (PathPattern::parse(outer), PathPattern::parse(inner)) {
        (Ok(outer), Ok(inner)) => outer.covers(&inner),
        _ => false,
    }
}

fn range_covers(outer: &Cidr, inner: &Cidr) -> bool {
    outer.address.is_ipv4() == inner.address.is_ipv4() && outer.prefix <= inner.prefix && outer.contains(inner.address)
}

/// The path pattern to write in place of an expression that is only a prefix or a whole path: `^/img/.*` is `/img/{*rest}`,
/// `^/about$` is `/about`. `None` for every expression that says more.
pub fn regex_is_prefix(text: &str) -> Option<String> {
    let body = text.strip_prefix('^')?;
    let whole = body.strip_suffix('$');
    let (literal, is_whole) = match whole {
        Some(body) => body.strip_suffix(".*").map_or((body, true), |body| (body, false)),
        None => (body.strip_suffix(".*").unwrap_or(body), false),
    };
    let mut path = String::new();
    let mut characters = literal.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => path.push(characters.next().filter(char::is_ascii_punctuation)?),
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            _ => path.push(character),
        }
    }
    let mut normal = String::new();
    push_normalized(path.as_bytes(), &mut normal);
    if normal != path || !path.starts_with('/') {
        return None;
    }
    let pattern = if is_whole { path } else { path + "{*rest}" };
    // A dot segment would be gone from the pattern, and the expression with one never matches.
    let parsed = PathPattern::parse(&pattern).ok()?;
    let example = parsed.example();
    (pattern.strip_suffix("{*rest}").unwrap_or(&pattern) == example).then_some(pattern)
}

/// Comparisons that [`RuleSet::shadows`] makes at most: rules in the hundred thousands would otherwise take minutes.
const COMPARISONS_MAX: usize = 4_000_000;

impl RuleSet {
    /// The rules that can never match, and the exact hosts that are hidden, in file order. After some millions of comparisons
    /// it stops looking.
    pub fn shadows(&self) -> Vec<Shadow> {
        let rules: Vec<_> = self.rules().collect();
        let mut shadows = Vec::new();
        let mut left = COMPARISONS_MAX;
        let mut candidates = Vec::new();
        for (later, rule) in rules.iter().enumerate() {
            let path = rule.when.paths.first().and_then(|text| PathPattern::parse(text).ok());
            let path = path.map_or_else(|| "*".to_owned(), |pattern| pattern.example());
            let mut ask = |host: &HostPattern| {
                let host = match host {
                    HostPattern::Exact(host) => host.clone(),
                    HostPattern::Suffix(suffix) => format!("x{suffix}"),
                };
                self.candidates(&host, rule.when.listeners.first().copied(), &path, &mut candidates);
                candidates.retain(|&earlier| earlier < later);
                candidates.truncate(left);
                left -= candidates.len();
                candidates.clone()
            };
            let everywhere = HostPattern::Exact(String::new());
            let first = ask(rule.when.hosts.first().unwrap_or(&everywhere));
            let whole = |earlier: &usize| rules.get(*earlier).is_some_and(|earlier| covers(earlier, rule));
            if let Some(earlier) = first.into_iter().find(whole) {
                let host = rules.get(earlier).and_then(|earlier| hidden_host(earlier, rule)).map(str::to_owned);
                shadows.push(Shadow { later, earlier, is_whole: true, host });
                continue;
            }
            for host in rule.when.hosts.iter().filter(|_| rule.when.hosts.len() > 1) {
                let HostPattern::Exact(name) = host else { continue };
                let mut only = Rule::clone(rule);
                only.when.hosts = vec![host.clone()];
                let hides =
                    |earlier: &usize| rules.get(*earlier).is_some_and(|rule| hidden_host(rule, &only).is_some());
                if let Some(earlier) = ask(host).into_iter().find(hides) {
                    shadows.push(Shadow { later, earlier, is_whole: false, host: Some(name.clone()) });
                }
            }
        }
        shadows
    }
}

#[cfg(test)]
mod tests;

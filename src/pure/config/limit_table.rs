//! Every limit and timeout of the language in one table: its name, place, default, range and the field it sets. The parser,
//! the defaults and the tests of limits and of the reference all read this table.

use std::time::Duration;

use super::form::{Kind, Setting};
use super::{AmbiguousPaths, Limits, ProcessLimits};
use crate::base::units::{Bytes, duration_text};
use crate::pure::pool::{QueueBounds, Retry, Timeouts, Upstream, UpstreamProtocol};

/// What a limit holds for, and so where it may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The process: `limits` at the top.
    Process,
    /// A listener: `limits` at the top, or in a `listen`.
    Listener,
    /// A listener or a rule: `limits` at the top, in a `listen`, or in a `rule`.
    Rule,
    /// A pool: in its node [`LimitEntry::node`].
    Pool,
}

/// All values that the table sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Those of a listener.
    pub listener: Limits,
    /// Those of the process.
    pub process: ProcessLimits,
    /// Those of a pool's time bounds.
    pub timeouts: Timeouts,
    /// Those of a pool's connections.
    pub upstream: Upstream,
    /// Those of a pool's repetitions.
    pub retry: Retry,
    /// Those of a pool's queue.
    pub queue: QueueBounds,
}

/// A limit's default, and the field that it sets.
#[derive(Clone, Copy, Debug)]
pub enum LimitValue {
    /// A time of at least a millisecond.
    Duration(Duration, fn(&mut Settings) -> &mut Duration),
    /// A size between two others, inclusive.
    Size(Bytes, (Bytes, Bytes), fn(&mut Settings) -> &mut Bytes),
    /// A number between two others, inclusive.
    Count(u32, (u32, u32), fn(&mut Settings) -> &mut u32),
    /// A number from 1, or `"off"`, which is the default.
    CountOrOff(fn(&mut Settings) -> &mut Option<u32>),
    /// A number from 1; without one, what the text says bounds it.
    CountOrBound(&'static str, fn(&mut Settings) -> &mut Option<u32>),
    /// What to do with ambiguous paths.
    AmbiguousPaths(AmbiguousPaths, fn(&mut Settings) -> &mut AmbiguousPaths),
}

/// A limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitEntry {
    /// The node that it is written in: `limits`, `timeout`, `upstream`, `retry` or `queue`.
    pub node: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it holds for.
    pub scope: Scope,
    /// Its default and its field.
    pub value: LimitValue,
    /// What it bounds.
    pub meaning: &'static str,
}

const fn entry(scope: Scope, name: &'static str, value: LimitValue, meaning: &'static str) -> LimitEntry {
    LimitEntry { node: "limits", name, scope, value, meaning }
}

const fn pool(node: &'static str, name: &'static str, value: LimitValue, meaning: &'static str) -> LimitEntry {
    LimitEntry { node, name, scope: Scope::Pool, value, meaning }
}

const fn seconds(count: u64, field: fn(&mut Settings) -> &mut Duration) -> LimitValue {
    LimitValue::Duration(Duration::from_secs(count), field)
}

/// The limits, in the order of the reference.
pub static LIMITS: &[LimitEntry] = TABLE;

const TABLE: &[LimitEntry] = &[
    entry(
        Scope::Listener,
        "header-timeout",
        seconds(10, |all| &mut all.listener.header_timeout),
        "from the first byte of a request's head to its last",
    ),
    entry(
        Scope::Listener,
        "idle-timeout",
        seconds(60, |all| &mut all.listener.idle_timeout),
        "between requests, and for a client that neither sends its body nor reads its answer",
    ),
    entry(
        Scope::Rule,
        "body-max",
        LimitValue::Size(Bytes::mib(100), (Bytes(0), Bytes(1 << 50)), |all| &mut all.listener.body_max),
        "the largest request body",
    ),
    entry(
        Scope::Listener,
        "head-max",
        LimitValue::Size(Bytes::kib(64), (Bytes::kib(1), Bytes::mib(4)), |all| &mut all.listener.head_max),
        "the largest request head",
    ),
    entry(
        Scope::Listener,
        "fields-max",
        LimitValue::Count(128, (1, 10_000), |all| &mut all.listener.fields_max),
        "the most field lines of a request",
    ),
    entry(
        Scope::Process,
        "connections-max",
        LimitValue::CountOrBound("what the descriptor limit leaves", |all| &mut all.process.connections_max),
        "the most client connections",
    ),
    entry(
        Scope::Listener,
        "connections-per-client-max",
        LimitValue::CountOrOff(|all| &mut all.listener.connections_per_client_max),
        "the most connections of one client address",
    ),
    entry(
        Scope::Listener,
        "requests-per-connection-max",
        LimitValue::CountOrOff(|all| &mut all.listener.requests_per_connection_max),
        "the most requests on one connection",
    ),
    entry(
        Scope::Listener,
        "streams-max",
        LimitValue::Count(256, (1, 10_000), |all| &mut all.listener.streams_max),
        "the most requests at once on one HTTP/2 connection",
    ),
    entry(
        Scope::Process,
        "buffer-memory",
        LimitValue::Size(Bytes::mib(256), (Bytes::mib(1), Bytes(1 << 40)), |all| &mut all.process.buffer_memory),
        "the memory of all buffers of one worker",
    ),
    entry(
        Scope::Process,
        "drain-timeout",
        seconds(30, |all| &mut all.process.drain_timeout),
        "how long a stop waits for what is in flight",
    ),
    entry(
        Scope::Listener,
        "ambiguous-paths",
        LimitValue::AmbiguousPaths(AmbiguousPaths::RejectUnsafe, |all| &mut all.listener.ambiguous_paths),
        "what to do with paths that two parsers may read differently",
    ),
    pool("timeout", "connect", seconds(2, |all| &mut all.timeouts.connect), "for a connection to a server to be made"),
    pool(
        "timeout",
        "response",
        seconds(60, |all| &mut all.timeouts.response),
        "for any wait for the server's bytes, head or body, while we are reading",
    ),
    pool("timeout", "tunnel", seconds(3600, |all| &mut all.timeouts.tunnel), "for a tunnel in which no byte moves"),
    pool(
        "upstream",
        "idle-max",
        LimitValue::Count(128, (0, 65_535), |all| &mut all.upstream.idle_max),
        "the most idle connections kept, per worker and server",
    ),
    pool(
        "upstream",
        "idle-timeout",
        seconds(4, |all| &mut all.upstream.idle_timeout),
        "how long an idle connection is kept; below the server's own time",
    ),
    pool(
        "retry",
        "count",
        LimitValue::Count(1, (0, 10), |all| &mut all.retry.count),
        "the most repetitions of one request",
    ),
    pool(
        "queue",
        "max",
        LimitValue::Count(1024, (1, 1_000_000), |all| &mut all.queue.max),
        "the most requests that wait for a server's place",
    ),
    pool("queue", "timeout", seconds(5, |all| &mut all.queue.timeout), "how long a request waits there"),
];

const TIME: Kind = Kind::Duration { min: Duration::from_millis(1), max: Duration::from_secs(365 * 86_400) };

/// The values of `ambiguous-paths`.
const PATH_WORDS: &[&str] = &["reject-unsafe", "reject", "allow"];

impl LimitEntry {
    /// What its value must be.
    pub const fn kind(&self) -> Kind {
        match self.value {
            LimitValue::Duration(..) => TIME,
            LimitValue::Size(_, (min, max), _) => Kind::Size { min, max },
            LimitValue::Count(_, (min, max), _) => Kind::Whole { min: min as u64, max: max as u64 },
            LimitValue::CountOrOff(..) => Kind::WholeOrOff { min: 1, max: u32::MAX as u64 },
            LimitValue::CountOrBound(..) => Kind::Whole { min: 1, max: u32::MAX as u64 },
            LimitValue::AmbiguousPaths(..) => Kind::Word { now: PATH_WORDS, later: &[] },
        }
    }

    /// Its default as rule files write it.
    pub fn default_text(&self) -> String {
        match self.value {
            LimitValue::Duration(default, _) => duration_text(default),
            LimitValue::Size(default, ..) => default.to_string(),
            LimitValue::Count(default, ..) => default.to_string(),
            LimitValue::CountOrOff(_) => "off".to_owned(),
            LimitValue::CountOrBound(bound, _) => bound.to_owned(),
            LimitValue::AmbiguousPaths(default, _) => path_word(default).to_owned(),
        }
    }

    /// Writes its default into its field.
    fn set_default(&self, all: &mut Settings) {
        match self.value {
            LimitValue::Duration(default, field) => *field(all) = default,
            LimitValue::Size(default, _, field) => *field(all) = default,
            LimitValue::Count(default, _, field) => *field(all) = default,
            LimitValue::CountOrOff(field) | LimitValue::CountOrBound(_, field) => *field(all) = None,
            LimitValue::AmbiguousPaths(default, field) => *field(all) = default,
        }
    }
}

/// The word of rule files for it.
const fn path_word(paths: AmbiguousPaths) -> &'static str {
    match paths {
        AmbiguousPaths::RejectUnsafe => "reject-unsafe",
        AmbiguousPaths::Reject => "reject",
        AmbiguousPaths::Allow => "allow",
    }
}

/// What the word of a rule file means.
pub(super) fn ambiguous_paths(word: &str) -> Option<AmbiguousPaths> {
    [AmbiguousPaths::RejectUnsafe, AmbiguousPaths::Reject, AmbiguousPaths::Allow]
        .into_iter()
        .find(|paths| path_word(*paths) == word)
}

/// Everything at its default.
impl Default for Settings {
    fn default() -> Self {
        let zero = Duration::ZERO;
        let mut all = Self {
            listener: Limits {
                header_timeout: zero,
                idle_timeout: zero,
                body_max: Bytes(0),
                head_max: Bytes(0),
                fields_max: 0,
                connections_per_client_max: None,
                requests_per_connection_max: None,
                streams_max: 0,
                ambiguous_paths: AmbiguousPaths::RejectUnsafe,
            },
            process: ProcessLimits { connections_max: None, buffer_memory: Bytes(0), drain_timeout: zero },
            timeouts: Timeouts { connect: zero, response: zero, tunnel: zero },
            upstream: Upstream {
                protocol: UpstreamProtocol::Http1,
                idle_max: 0,
                idle_timeout: zero,
                proxy_protocol: None,
                tls: None,
            },
            retry: Retry { count: 0, on_connect: true, on_reset: true, on_status: Vec::new() },
            queue: QueueBounds { max: 0, timeout: zero },
        };
        for entry in LIMITS {
            entry.set_default(&mut all);
        }
        all
    }
}

/// The settings of the node `node`, as the checking walk wants them. `N` is their number.
pub(super) const fn settings<const N: usize>(node: &str) -> [Setting; N] {
    let mut list = [Setting::later(""); N];
    let (mut from, mut to) = (0, 0);
    while from < TABLE.len() {
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
        if is_same(TABLE[from].node, node) {
            list[to] = Setting::one(TABLE[from].name, TABLE[from].kind());
            to += 1;
        }
        from += 1;
    }
    assert!(to == N, "the number of limits of this node");
    list
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
const fn is_same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut at = 0;
    while at < left.len() && at < right.len() && left[at] == right[at] {
        at += 1;
    }
    at == left.len() && at == right.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_where_all_defaults_come_from() {
        let all = Settings::default();
        assert_eq!(all.listener, Limits::default());
        assert_eq!(all.process, ProcessLimits::default());
        assert_eq!(all.timeouts, Timeouts::default());
        assert_eq!(all.upstream, Upstream::default());
        assert_eq!(all.retry, Retry::default());
        assert_eq!(all.queue, QueueBounds::default());
    }

    #[test]
    fn names_are_unique_in_their_node() {
        let names: std::collections::BTreeSet<_> = LIMITS.iter().map(|entry| (entry.node, entry.name)).collect();
        assert_eq!(names.len(), LIMITS.len());
    }
}

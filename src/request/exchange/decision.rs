//! From a parsed head to what becomes of it: the view that rules see is built, the rule found, and the head that a server
//! would get written down.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::base::id::PoolIndex;
use crate::base::units::Bytes;
use crate::pure::config::LogFormat;
use crate::pure::decision::{Destination, Question, Seen, decide as decide_purely};
use crate::pure::forwarding::{ForwardedRequest, Origin, push_request_head};
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::Version;
use crate::pure::head::{Fields, Known};
use crate::pure::pool::Pool;
use crate::pure::rule::Rule;
use crate::pure::rule::key::hash_key;
use crate::pure::trace::Trace;
use crate::pure::trust::is_trusted;
use crate::request::account::{Described, Record};
use crate::request::buffers::Buffer;
use crate::request::connection::Connection;
use crate::request::exchange::failure::Failure;
use crate::request::exchange::scratch::Scratch;
use crate::request::worker::Worker;
use crate::shared::counters::PoolRecord;

/// The upgrade that becomes a tunnel where a rule names none.
const WEBSOCKET: &str = "websocket";

/// What becomes of a request.
#[derive(Debug)]
pub enum Decision {
    /// The rule answers.
    Answer {
        /// Whose body it is.
        rule: Arc<Rule>,
        /// The status.
        status: u16,
        /// Whether the location stands in the changes' target.
        is_redirect: bool,
    },
    /// A server answers.
    Forward(Forward),
}

/// A request on its way to a pool.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The pool.
    pub pool: Arc<Pool>,
    /// What is counted for it.
    pub record: Arc<PoolRecord>,
    /// Where it stood in the snapshot.
    pub index: PoolIndex,
    /// What the scheduler hashes.
    pub key: Option<u64>,
}

/// Decides what becomes of the request whose head the buffer begins with. For a server, its head is ready in
/// `scratch.forwarded` afterwards.
///
/// # Errors
/// [`Failure`] where no rule matches or the request breaks a limit of its rule or listener.
pub fn decide(connection: &Connection, buffer: &Buffer, scratch: &mut Scratch) -> Result<Decision, Failure> {
    let Scratch { request: head, path, captures, changed, record, learning, .. } = scratch;
    let bytes = buffer.bytes();
    let listener = &connection.listener;
    let worker = &connection.worker;
    let seen = Seen::of(head, bytes, connection.peer.ip(), &listener.config.trusted_proxies);
    scratch.is_head_request = seen.method == "HEAD";
    scratch.is_idempotent = matches!(seen.method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE");
    describe(connection, &seen, head.version, record);
    if listener.config.request_id {
        identify(worker, seen.fields, &mut scratch.request_id, record);
    }
    if connection.is_over_limit {
        return Err(Failure::TooManyConnections);
    }
    let path = seen.path(listener.config.limits.ambiguous_paths, path).map_err(|_| Failure::AmbiguousPath)?;

    worker.admission.snapshot(|snapshot| {
        let mut view = seen.view(listener.index, path, connection.stream.server_name());
        if snapshot.rules.uses_learned_types() {
            learning.begin(view.host, path);
            let is_known = worker.shared.learned.recall(view.host, path, &mut learning.known);
            view.learned_media_type = is_known.then_some(learning.known.as_str());
        }
        let mut rng = worker.rng.borrow_mut();
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let question = Question { view: &view, scheme, rng: &mut rng };
        let decided = decide_purely(&snapshot.rules, question, captures, changed, &mut Trace::off());
        let (rule, destination) = decided.map_err(|_| Failure::AmbiguousPath)?.ok_or(Failure::NoRule)?;
        record.set_rule(&rule);
        let index = match destination {
            Destination::Redirect(status) => return Ok(Decision::Answer { rule, status, is_redirect: true }),
            Destination::Respond(status) => return Ok(Decision::Answer { rule, status, is_redirect: false }),
            Destination::Pool(index) => index,
        };
        let pool = snapshot.pool(index).ok_or(Failure::NoServer)?;
        record.set_pool(&pool.pool);
        scratch.body_max = rule.body_max.unwrap_or(listener.config.limits.body_max);
        if matches!(head.body, BodyLength::Length(length) if Bytes(length) > scratch.body_max) {
            return Err(Failure::BodyTooLarge);
        }
        if let Some(token) = wanted_upgrade(head.upgrade.of(bytes), head.body, &rule) {
            scratch.upgrade.extend_from_slice(token);
        }
        let forwarded = ForwardedRequest {
            head,
            bytes,
            target: changed.is_rewritten.then_some(changed.target.as_slice()),
            origin: origin_of(connection),
            request_id: Some(scratch.request_id.as_str()).filter(|id| !id.is_empty()),
            upgrade: Some(scratch.upgrade.as_slice()).filter(|token| !token.is_empty()),
            edits: &changed.request,
        };
        push_request_head(&mut scratch.forwarded, &forwarded);
        let source = rule.key.as_ref().or(pool.pool.key.as_ref());
        let key = source.and_then(|source| hash_key(source, &view, captures));
        let (pool, record) = (Arc::clone(&pool.pool), Arc::clone(&pool.record));
        Ok(Decision::Forward(Forward { pool, record, index, key }))
    })
}

/// Copies what the log shows of the head, where there is a log.
fn describe(connection: &Connection, seen: &Seen<'_>, version: Version, record: &mut Record) {
    let Some(log) = &*connection.worker.log.borrow() else { return };
    let is_combined = log.format() == LogFormat::Combined;
    let shown = |name| if is_combined { seen.fields.named(name).next() } else { None };
    let described = Described {
        method: seen.method.as_bytes(),
        host: seen.host.as_bytes(),
        path: if seen.raw_path.is_empty() { b"/" } else { seen.raw_path },
        query: seen.query,
        user_agent: shown("User-Agent"),
        referer: shown("Referer"),
    };
    record.describe(seen.client, version == Version::Http10, &described);
}

/// Keeps the request's own id, or makes one.
fn identify(worker: &Worker, fields: Fields<'_>, made: &mut String, record: &mut Record) {
    if let Some(own) = fields.known(Known::XRequestId).find(|id| !id.is_empty()) {
        record.set_request_id(own);
        return;
    }
    let mut rng = worker.rng.borrow_mut();
    // Into a string, writing can't fail.
    let _ = write!(made, "{:016x}{:016x}", rng.next_u64(), rng.next_u64());
    record.set_request_id(made.as_bytes());
}

fn origin_of(connection: &Connection) -> Origin {
    let listener = &connection.listener;
    Origin {
        peer: connection.peer,
        local: listener.local,
        is_trusted: is_trusted(connection.peer.ip(), &listener.config.trusted_proxies),
        is_tls: listener.tls.is_some(),
        via: listener.config.via,
    }
}

/// The upgrade to ask the server for: one of the tokens that the client offers, if the rule allows it.
fn wanted_upgrade<'b>(offered: &'b [u8], body: BodyLength, rule: &Rule) -> Option<&'b [u8]> {
    if offered.is_empty() || body != BodyLength::None {
        return None;
    }
    offered.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).find(|token| {
        let allows = |allowed: &str| token.eq_ignore_ascii_case(allowed.as_bytes());
        if rule.changes.upgrades.is_empty() {
            allows(WEBSOCKET)
        } else {
            rule.changes.upgrades.iter().any(|a| allows(a))
        }
    })
}

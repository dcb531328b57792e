//! From a parsed head to what becomes of it: the view that rules see is built, the rule found, and the head that a server
//! would get written down.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::base::id::PoolIndex;
use crate::base::units::Bytes;
use crate::pure::config::LogFormat;
use crate::pure::decision::{Destination, Question, decide as decide_purely};
use crate::pure::forwarding::{ForwardedRequest, Origin, push_request_head};
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::{TargetForm, Version};
use crate::pure::head::{Fields, Known};
use crate::pure::pool::Pool;
use crate::pure::rule::key::hash_key;
use crate::pure::rule::path::{normalize_host, read_path, split_query};
use crate::pure::rule::{RequestView, Rule};
use crate::pure::trace::Trace;
use crate::pure::trust::{client_address, is_trusted};
use crate::request::account::Described;
use crate::request::buffers::Buffer;
use crate::request::connection::Connection;
use crate::request::exchange::failure::Failure;
use crate::request::exchange::scratch::Scratch;
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
    let Scratch { request: head, path, captures, changed, record, forwarded, upgrade, .. } = scratch;
    let Scratch { body_max, is_head_request, is_idempotent, learning, request_id, .. } = scratch;
    let bytes = buffer.bytes();
    let listener = &connection.listener;
    let worker = &connection.worker;
    let fields = Fields { bytes, list: &head.fields };
    let method = std::str::from_utf8(head.method.of(bytes)).unwrap_or("");
    *is_head_request = method == "HEAD";
    *is_idempotent = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE");
    if connection.is_over_limit {
        return Err(Failure::TooManyConnections);
    }
    let host = normalize_host(head.authority.of(bytes));
    let target = head.path_and_query.of(bytes);
    let (raw_path, query) = split_query(target);
    let client = client_address(connection.peer.ip(), &listener.config.trusted_proxies, fields);
    if let Some(log) = &*worker.log.borrow() {
        let is_combined = log.format() == LogFormat::Combined;
        let shown = |name| if is_combined { fields.named(name).next() } else { None };
        let (user_agent, referer) = (shown("User-Agent"), shown("Referer"));
        let path = if raw_path.is_empty() { b"/" } else { raw_path };
        let described =
            Described { method: method.as_bytes(), host: host.as_bytes(), path, query, user_agent, referer };
        record.describe(client, head.version == Version::Http10, &described);
    }
    if listener.config.request_id {
        let own = fields.known(Known::XRequestId).find(|id| !id.is_empty());
        if own.is_none() {
            let mut rng = worker.rng.borrow_mut();
            // Into a string, writing can't fail.
            let _ = write!(request_id, "{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        }
        record.set_request_id(own.unwrap_or(request_id.as_bytes()));
    }
    let path = match head.form {
        Some(TargetForm::Asterisk) => "*",
        _ if raw_path.is_empty() => "/",
        _ => read_path(raw_path, listener.config.limits.ambiguous_paths, path).map_err(|_| Failure::AmbiguousPath)?,
    };

    worker.admission.snapshot(|snapshot| {
        let learns = snapshot.rules.uses_learned_types();
        let is_learned = learns && worker.shared.learned.recall(&host, path, &mut learning.known);
        if learns {
            learning.begin(&host, path);
        }
        let view = RequestView {
            listener: listener.index,
            method,
            host: &host,
            path,
            query,
            fields,
            client,
            server_name: connection.stream.server_name(),
            learned_media_type: is_learned.then_some(learning.known.as_str()),
        };
        let mut rng = worker.rng.borrow_mut();
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let question = Question { view: &view, scheme, rng: &mut rng };
        let decided = decide_purely(&snapshot.rules, question, captures, changed, &mut Trace::off());
        let decided = decided.map_err(|_| Failure::AmbiguousPath)?;
        let (rule, destination) = decided.ok_or(Failure::NoRule)?;
        record.rule = Some(Arc::clone(&rule));
        let index = match destination {
            Destination::Redirect(status) => return Ok(Decision::Answer { rule, status, is_redirect: true }),
            Destination::Respond(status) => return Ok(Decision::Answer { rule, status, is_redirect: false }),
            Destination::Pool(index) => index,
        };
        let pool = snapshot.pool(index).ok_or(Failure::NoServer)?;
        record.pool = Some(Arc::clone(&pool.pool));
        *body_max = rule.body_max.unwrap_or(listener.config.limits.body_max);
        if matches!(head.body, BodyLength::Length(length) if Bytes(length) > *body_max) {
            return Err(Failure::BodyTooLarge);
        }
        let source = rule.key.as_ref().or(pool.pool.key.as_ref());
        let key = source.and_then(|source| hash_key(source, &view, captures));
        if let Some(token) = wanted_upgrade(head.upgrade.of(bytes), head.body, &rule) {
            upgrade.extend_from_slice(token);
        }
        push_request_head(
            forwarded,
            &ForwardedRequest {
                head,
                bytes,
                target: changed.is_rewritten.then_some(changed.target.as_slice()),
                origin: Origin {
                    peer: connection.peer,
                    local: listener.local,
                    is_trusted: is_trusted(connection.peer.ip(), &listener.config.trusted_proxies),
                    is_tls: listener.tls.is_some(),
                    via: listener.config.via,
                },
                request_id: (!request_id.is_empty()).then_some(request_id.as_str()),
                upgrade: (!upgrade.is_empty()).then_some(upgrade.as_slice()),
                edits: &changed.request,
            },
        );
        let (pool, record) = (Arc::clone(&pool.pool), Arc::clone(&pool.record));
        Ok(Decision::Forward(Forward { pool, record, index, key }))
    })
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

//! From a parsed head to what becomes of it: the view that rules see is built, the rule found, and the head that a server
//! would get written down.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::base::id::PoolIndex;
use crate::pure::config::LogFormat;
use crate::pure::decision::{Destination, Passage, Question, Seen, decide as decide_purely, key_source};
use crate::pure::forwarding::{ForwardedRequest, Hops, Origin, push_max_forwards, push_request_head, take_hop};
use crate::pure::h1::request::{RequestHead, RequestHeadError, Version};
use crate::pure::pool::Pool;
use crate::pure::refusal::Refusal;
use crate::pure::rule::Rule;
use crate::pure::rule::key::key_text;
use crate::pure::trace::Trace;
use crate::request::account::{Described, Record};
use crate::request::buffers::Buffer;
use crate::request::connection::Connection;
use crate::request::exchange::failure::Failure;
use crate::request::exchange::persistence::Persisting;
use crate::request::exchange::scratch::Scratch;
use crate::shared::counters::PoolRecord;
use crate::shared::snapshot::PoolSnapshot;

/// What becomes of a request.
#[derive(Debug)]
pub enum Decision {
    /// The rule answers, or we do in the place of a server that the request must not reach.
    Answer {
        /// Whose body it is.
        rule: Arc<Rule>,
        /// The status.
        status: u16,
        /// The token in the access log.
        reason: &'static str,
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

impl Forward {
    /// A request on its way to the pool that stands at `index`; `text` tells how its key reads.
    fn to(pool: &PoolSnapshot, index: PoolIndex, key: Option<u64>, text: impl FnOnce() -> Option<String>) -> Self {
        if let Some(key) = key {
            pool.memory.locality.name(key, text);
        }
        Self { pool: Arc::clone(&pool.pool), record: Arc::clone(&pool.record), index, key }
    }
}

/// Decides what becomes of the request whose head the buffer begins with. For a server, its head is ready in
/// `scratch.forwarded` afterwards.
///
/// # Errors
/// [`Failure`] where no rule matches or the request breaks a limit of its rule or listener.
pub fn decide(connection: &Connection, buffer: &Buffer, scratch: &mut Scratch) -> Result<Decision, Failure> {
    let Scratch { request: head, path, captures, changed, record, learning, persisting, .. } = scratch;
    let bytes = buffer.bytes();
    let listener = &connection.listener;
    let worker = &connection.worker;
    let hops = take_hop(head, bytes);
    let head = &*head;
    let seen = Seen::of(head, bytes, connection.peer.ip(), connection.trusted_proxies());
    scratch.is_head_request = seen.method == "HEAD";
    scratch.is_idempotent = matches!(seen.method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE");
    describe(connection, &seen, head.version, record);
    if listener.config.request_id {
        identify(&seen, &mut scratch.request_id, record);
    }
    if connection.is_over_limit {
        return Err(Failure::TooManyConnections);
    }
    if let Some(tls) = &listener.tls
        && !tls.will_do(connection.stream.demand(), &seen.host)
    {
        return Err(Refusal::Misdirected.into());
    }
    let path = seen.path(listener.config.limits.ambiguous_paths, path).map_err(|_| Refusal::AmbiguousPath)?;

    worker.admission.snapshot(|snapshot| {
        let mut view = seen.view(listener.index, path, connection.stream.server_name());
        view.identity = connection.stream.identity().map(AsRef::as_ref);
        if snapshot.rules.wants_learned_type(&view) {
            learning.begin(view.host, path);
            let is_known = worker.shared.learned.recall(view.host, path, &mut learning.known);
            view.learned_media_type = is_known.then_some(learning.known.as_str());
        }
        let mut rng = worker.rng.borrow_mut();
        let question = Question { view: &view, scheme: listener.config.scheme(), rng: &mut rng };
        let (rule, destination) = decide_purely(&snapshot.rules, question, captures, changed, &mut Trace::off())?;
        record.set_rule(&rule);
        let index = match destination {
            Destination::Redirect(status) => {
                return Ok(Decision::Answer { rule, status, reason: "rule", is_redirect: true });
            }
            Destination::Respond(status) => {
                return Ok(Decision::Answer { rule, status, reason: "rule", is_redirect: false });
            }
            Destination::Pool(index) => index,
        };
        if hops == Hops::Over {
            // An OPTIONS is answered with nothing to say; a TRACE would show the client fields that others have added.
            let status = if seen.method == "OPTIONS" { 204 } else { 501 };
            return Ok(Decision::Answer { rule, status, reason: "max-forwards", is_redirect: false });
        }
        let pool = snapshot.pool(index).ok_or(Refusal::NoServer)?;
        record.set_pool(&pool.pool);
        let passage = Passage::of(&rule, &pool.pool, &listener.config.limits, head, &view, captures)?;
        if passage.upgrade.is_none() && connection.stream.wants_tunnel() {
            // Without its protocol a server would take it for an ordinary GET.
            return Err(Refusal::Head(RequestHeadError::Method).into());
        }
        scratch.body_max = passage.body_max;
        scratch.upgrade.extend_from_slice(passage.upgrade.unwrap_or_default());
        let forwarded = ForwardedRequest {
            head,
            bytes,
            target: changed.is_rewritten.then_some(changed.target.as_slice()),
            origin: origin_of(connection, head),
            request_id: Some(scratch.request_id.as_str()).filter(|id| !id.is_empty()),
            upgrade: passage.upgrade,
            edits: &changed.request,
        };
        push_request_head(&mut scratch.forwarded, &forwarded);
        if let Hops::Left(left) = hops
            && !changed.request.removes(b"max-forwards")
        {
            push_max_forwards(&mut scratch.forwarded, left);
        }
        Persisting::note(persisting, connection, &seen, (index, pool), &mut scratch.forwarded);
        let key_text = || key_text(key_source(&rule, &pool.pool)?, &view, captures);
        Ok(Decision::Forward(Forward::to(pool, index, passage.key, key_text)))
    })
}

/// Where a request came from, for the fields that say so.
fn origin_of(connection: &Connection, head: &RequestHead) -> Origin {
    let mut origin = Origin::of(&connection.listener.config, connection.peer, called_address(connection, head));
    origin.is_trusted &= connection.is_peer_named;
    origin.is_http2 = connection.is_stream();
    origin
}

/// The listener's address; where that stands for all of this machine and the request names no host, the one that the client
/// has called, for it becomes the host.
fn called_address(connection: &Connection, head: &RequestHead) -> SocketAddr {
    let bound = connection.listener.local;
    if !head.authority.is_empty() || !bound.ip().is_unspecified() {
        return bound;
    }
    let called = connection.stream.local_address();
    called.map_or(bound, |called| SocketAddr::new(called.ip().to_canonical(), called.port()))
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
fn identify(seen: &Seen<'_>, made: &mut String, record: &mut Record) {
    if let Some(own) = seen.request_id() {
        record.set_request_id(own);
        return;
    }
    make_id(made);
    if !made.is_empty() {
        record.set_request_id(made.as_bytes());
    }
}

/// 128 random bits, of the kind that repeats in no worker and no process and tells nothing of the next. Without any of them
/// a request has no id: better none than one that another has too.
fn make_id(id: &mut String) {
    let mut bits = [0; 16];
    if aws_lc_rs::rand::fill(&mut bits).is_ok() {
        // Into a string, writing can't fail.
        let _ = write!(id, "{:032x}", u128::from_be_bytes(bits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_do_not_repeat_between_threads() {
        let make = || {
            (0..200)
                .map(|_| {
                    let mut id = String::new();
                    make_id(&mut id);
                    id
                })
                .collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make)).collect();
        let ids: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert!(ids.iter().all(|id| id.len() == 32));
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), 800);
    }
}

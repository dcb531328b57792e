//! What becomes of a request: the rule that catches it, where it goes, what changes. The exchange and `explain` decide here,
//! by the same code; only the trace differs.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use crate::base::id::{ListenerIndex, PoolIndex};
use crate::base::rng::Rng;
use crate::base::units::Bytes;
use crate::pure::config::{AmbiguousPaths, Limits};
use crate::pure::forwarding::FieldEdits;
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::{RequestHead, TargetForm};
use crate::pure::head::{Fields, Known, Span};
use crate::pure::pool::Pool;
use crate::pure::refusal::Refusal;
use crate::pure::rule::captures::Captures;
use crate::pure::rule::change::{UnsafeTarget, Values, location, rewritten_target};
use crate::pure::rule::compile::RuleSet;
use crate::pure::rule::key::{choose_arm, hash_key, hash_normalized};
use crate::pure::rule::path::{AmbiguousPath, ascii_text, normalize_host, read_path};
use crate::pure::rule::{Action, Cidr, KeySource, RequestView, Rule};
use crate::pure::trace::Trace;
use crate::pure::trust::client_address;

/// What rules see of a head, its texts normalized: the source of a [`RequestView`].
#[derive(Debug)]
pub struct Seen<'a> {
    /// The method.
    pub method: &'a str,
    /// The host in lower case, without port and trailing dot.
    pub host: Cow<'a, str>,
    /// The path as sent; empty where an absolute target had none.
    pub raw_path: &'a [u8],
    /// The query as sent.
    pub query: Option<&'a [u8]>,
    /// The fields.
    pub fields: Fields<'a>,
    /// The rightmost untrusted address.
    pub client: IpAddr,
    form: Option<TargetForm>,
    is_path_plain: bool,
}

impl<'a> Seen<'a> {
    /// Looks at a whole head that came from `peer`.
    pub fn of(head: &'a RequestHead, bytes: &'a [u8], peer: IpAddr, trusted: &[Cidr]) -> Self {
        let fields = Fields { bytes, list: &head.fields };
        let query = Span { start: head.path.end, end: head.path_and_query.end };
        Self {
            method: match head.method.of(bytes) {
                b"GET" => "GET",
                // The codec lets only tokens through, which are ASCII.
                method => std::str::from_utf8(method).unwrap_or(""),
            },
            host: match ascii_text(head.host.of(bytes)) {
                Some(host) if head.is_host_plain => Cow::Borrowed(host),
                _ => normalize_host(head.authority.of(bytes)),
            },
            raw_path: head.path.of(bytes),
            // Without its mark.
            query: query.of(bytes).get(1..),
            fields,
            client: client_address(peer, trusted, fields),
            form: head.form,
            is_path_plain: head.is_path_plain,
        }
    }

    /// The normalized path; it lies in `scratch` where it is not what was sent.
    ///
    /// # Errors
    /// [`AmbiguousPath`] where `policy` refuses it.
    pub fn path<'p>(&self, policy: AmbiguousPaths, scratch: &'p mut String) -> Result<&'p str, AmbiguousPath>
    where
        'a: 'p,
    {
        if self.is_path_plain
            && let Some(path) = ascii_text(self.raw_path)
        {
            return Ok(path);
        }
        match self.form {
            Some(TargetForm::Asterisk) => Ok("*"),
            _ if self.raw_path.is_empty() => Ok("/"),
            _ => read_path(self.raw_path, policy, scratch),
        }
    }

    /// The request's own id, where it has one.
    pub fn request_id(&self) -> Option<&'a [u8]> {
        self.fields.known(Known::XRequestId).find(|id| !id.is_empty())
    }

    /// The view that rules get.
    pub fn view<'v>(&'v self, listener: ListenerIndex, path: &'v str, server_name: Option<&'v str>) -> RequestView<'v> {
        RequestView {
            listener,
            method: self.method,
            host: &self.host,
            path,
            query: self.query,
            fields: self.fields,
            client: self.client,
            server_name,
            learned_media_type: None,
            identity: None,
        }
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a pool.
    Pool(PoolIndex),
    /// Elsewhere: the location lies in [`Changed::target`].
    Redirect(u16),
    /// Nowhere: the rule answers.
    Respond(u16),
}

/// What a decision writes down, in memory that is kept from request to request.
#[derive(Debug, Default)]
pub struct Changed {
    /// The rewritten target, or a redirect's location.
    pub target: Vec<u8>,
    /// Whether a rewritten target is there.
    pub is_rewritten: bool,
    /// Changes of the request's fields.
    pub request: FieldEdits,
    /// Changes of the answer's fields.
    pub response: FieldEdits,
}

impl Changed {
    /// Forgets all and keeps the memory.
    pub fn clear(&mut self) {
        self.target.clear();
        self.is_rewritten = false;
        self.request.clear();
        self.response.clear();
    }
}

/// What a decision depends on besides the rules.
#[derive(Debug)]
pub struct Question<'a> {
    /// The request.
    pub view: &'a RequestView<'a>,
    /// `http` or `https`, as the client speaks.
    pub scheme: &'static str,
    /// For splits without a key.
    pub rng: &'a mut Rng,
}

/// Decides.
///
/// # Errors
/// [`Refusal::NoRule`]; [`Refusal::AmbiguousPath`] where a rewritten path would be, or where a Host that the rule sets would
/// be none.
pub fn decide(
    rules: &RuleSet,
    question: Question<'_>,
    captures: &mut Captures,
    changed: &mut Changed,
    trace: &mut Trace,
) -> Result<(Arc<Rule>, Destination), Refusal> {
    let Question { view, scheme, rng } = question;
    let rule = Arc::clone(rules.find(view, captures, trace).ok_or(Refusal::NoRule)?.rule);
    let values = Values { request: view, captures, scheme };
    changed.request.set(&rule, false, &values).map_err(|error| refuse(error, trace))?;
    changed.response.set(&rule, true, &values).map_err(|error| refuse(error, trace))?;
    let destination = match &rule.action {
        Action::Use(pool) => Destination::Pool(*pool),
        Action::Split { key, arms } => {
            let hash = key.as_ref().and_then(|key| hash_key(key, view, captures));
            let pool = choose_arm(arms, hash, rng).ok_or(Refusal::NoRule)?;
            trace.note("pool", || match (key, hash) {
                (Some(key), Some(hash)) => {
                    format!("the split's key {key} hashes to {hash:016x}, which stays with one pool")
                }
                (Some(key), None) => format!("the request has no {key}: the split draws a pool at random, by weight"),
                (None, _) => "the split draws a pool at random for each request, by weight".to_owned(),
            });
            Destination::Pool(pool)
        }
        Action::Redirect { location: template, status } => {
            location(template, &values, &mut changed.target);
            Destination::Redirect(*status)
        }
        Action::Respond { status, .. } => Destination::Respond(*status),
    };
    if matches!(destination, Destination::Pool(_)) {
        let rewritten = rewritten_target(&rule.changes, &values, &mut changed.target);
        changed.is_rewritten = rewritten.map_err(|error| refuse(error, trace))?;
    }
    Ok((rule, destination))
}

fn refuse(error: UnsafeTarget, trace: &mut Trace) -> Refusal {
    trace.note("change", || error.to_string());
    Refusal::AmbiguousPath
}

/// What a request that goes to a pool takes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage<'b> {
    /// The largest body that is let through.
    pub body_max: Bytes,
    /// The upgrade token that the server is asked for, as the client wrote it.
    pub upgrade: Option<&'b [u8]>,
    /// The hash of the key, where rule or pool name one and the request has it.
    pub key: Option<u64>,
}

impl<'b> Passage<'b> {
    /// That of the request of `head`, which `rule` sends to `pool`.
    ///
    /// # Errors
    /// [`Refusal::BodyTooLarge`] where the head announces too large a body.
    pub fn of(
        rule: &Rule,
        pool: &Pool,
        limits: &Limits,
        head: &RequestHead,
        view: &RequestView<'b>,
        captures: &Captures,
    ) -> Result<Self, Refusal> {
        let body_max = body_max(rule, limits);
        if matches!(head.body, BodyLength::Length(length) if Bytes(length) > body_max) {
            return Err(Refusal::BodyTooLarge);
        }
        Ok(Self {
            body_max,
            upgrade: wanted_upgrade(head.upgrade.of(view.fields.bytes), head.body, rule),
            key: key_of(rule, pool, view, captures),
        })
    }
}

/// The largest body that is let through: the rule's limit beats the listener's.
pub fn body_max(rule: &Rule, limits: &Limits) -> Bytes {
    rule.body_max.unwrap_or(limits.body_max)
}

/// The hash of a request's key, where rule or pool name one and the scheduler goes by it.
fn key_of(rule: &Rule, pool: &Pool, view: &RequestView<'_>, captures: &Captures) -> Option<u64> {
    let source = key_source(rule, pool)?;
    match &pool.key_normalize {
        Some(normalize) => hash_normalized(source, normalize, view, captures),
        None => hash_key(source, view, captures),
    }
}

/// What the scheduler hashes: the rule's key beats the pool's. `None`: neither names one, or the scheduler goes by none.
pub fn key_source<'k>(rule: &'k Rule, pool: &'k Pool) -> Option<&'k KeySource> {
    rule.key.as_ref().or(pool.key.as_ref()).filter(|_| pool.scheduler.method.is_keyed())
}

/// The upgrade that becomes a tunnel where a rule names none.
const WEBSOCKET: &str = "websocket";

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
            rule.changes.upgrades.iter().any(|allowed| allows(allowed))
        }
    })
}

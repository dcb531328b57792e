//! What becomes of a request: the rule that catches it, where it goes, what changes. The exchange and `explain` decide here,
//! by the same code; only the trace differs.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use crate::base::id::{ListenerIndex, PoolIndex};
use crate::base::rng::Rng;
use crate::pure::config::AmbiguousPaths;
use crate::pure::forwarding::FieldEdits;
use crate::pure::h1::request::{RequestHead, TargetForm};
use crate::pure::head::Fields;
use crate::pure::rule::captures::Captures;
use crate::pure::rule::change::{UnsafeTarget, Values, location, rewritten_target};
use crate::pure::rule::compile::RuleSet;
use crate::pure::rule::key::{choose_arm, hash_key};
use crate::pure::rule::path::{AmbiguousPath, normalize_host, read_path, split_query};
use crate::pure::rule::{Action, Cidr, RequestView, Rule};
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
}

impl<'a> Seen<'a> {
    /// Looks at a whole head that came from `peer`.
    pub fn of(head: &'a RequestHead, bytes: &'a [u8], peer: IpAddr, trusted: &[Cidr]) -> Self {
        let fields = Fields { bytes, list: &head.fields };
        let (raw_path, query) = split_query(head.path_and_query.of(bytes));
        Self {
            method: match head.method.of(bytes) {
                b"GET" => "GET",
                // The codec lets only tokens through, which are ASCII.
                method => std::str::from_utf8(method).unwrap_or(""),
            },
            host: normalize_host(head.authority.of(bytes)),
            raw_path,
            query,
            fields,
            client: client_address(peer, trusted, fields),
            form: head.form,
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
        match self.form {
            Some(TargetForm::Asterisk) => Ok("*"),
            _ if self.raw_path.is_empty() => Ok("/"),
            _ => read_path(self.raw_path, policy, scratch),
        }
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

/// Decides. `None`: no rule matches.
///
/// # Errors
/// [`UnsafeTarget`] where a rewritten path would be ambiguous.
pub fn decide(
    rules: &RuleSet,
    question: Question<'_>,
    captures: &mut Captures,
    changed: &mut Changed,
    trace: &mut Trace,
) -> Result<Option<(Arc<Rule>, Destination)>, UnsafeTarget> {
    let Question { view, scheme, rng } = question;
    let Some(found) = rules.find(view, captures, trace) else { return Ok(None) };
    let rule = Arc::clone(found.rule);
    let values = Values { request: view, captures, scheme };
    changed.request.set(&rule, false, &values);
    changed.response.set(&rule, true, &values);
    let destination = match &rule.action {
        Action::Use(pool) => Destination::Pool(*pool),
        Action::Split { key, arms } => {
            let hash = key.as_ref().and_then(|key| hash_key(key, view, captures));
            let Some(pool) = choose_arm(arms, hash, rng) else { return Ok(None) };
            trace.note("rule", || match hash {
                Some(_) => "the split's key chooses the pool".to_owned(),
                None => "the split chooses the pool at random, by weight".to_owned(),
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
        changed.is_rewritten = rewritten_target(&rule.changes, &values, &mut changed.target)?;
        if changed.is_rewritten {
            trace.note("change", || format!("the target becomes {}", String::from_utf8_lossy(&changed.target)));
        }
    }
    Ok(Some((rule, destination)))
}

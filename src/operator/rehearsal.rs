//! A request that nobody sends, taken through everything that decides real ones: the codec, the path rules, the rules, the
//! head that a server would get, the scheduler. It is the code of an exchange, with a trace that may record.
//!
//! What only traffic brings is that of a start: every server is up and idle, schedulers begin at the start of their order,
//! no path has answered with a media type, draws are the first of a fixed seed. It refuses to send and to print.

mod description;
mod persistence;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::base::id::{ListenerIndex, PoolIndex, ServerSlot};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::base::units::Bytes;
use crate::operator::secret::{Secret, SecretError};
use crate::pure::config::{Config, Listener};
use crate::pure::decision::{Changed, Destination, Passage, Question, Seen, body_max, decide};
use crate::pure::forwarding::{ForwardedRequest, Origin, push_request_head};
use crate::pure::h1::request::{Parsed, RequestHead, RequestHeadError, parse_request_head};
use crate::pure::persistence::Shown;
use crate::pure::persistence::cookie::strip_cookie;
use crate::pure::pool::Tried;
use crate::pure::refusal::Refusal;
use crate::pure::rule::captures::Captures;
use crate::pure::rule::compile::RuleSet;
use crate::pure::rule::key::hash_key;
use crate::pure::rule::media::{MediaTypeSource, media_type_of};
use crate::pure::rule::{Action, RequestView, Rule};
use crate::pure::trace::Trace;
use crate::shared::choose::{Ask, Place, Schedulers};
use crate::shared::counters::ProcessCounters;
use crate::shared::snapshot::{Endpoint, Snapshot, SnapshotStore};

pub use description::RequestDescription;
use persistence::Sealing;

/// What stands for the id that a request without one is given.
pub const NEW_REQUEST_ID: &str = "(a new one)";

/// What rules see of a request, owned.
#[derive(Clone, Debug)]
pub struct SeenRequest {
    /// The method.
    pub method: String,
    /// The host in lower case, without port and trailing dot.
    pub host: String,
    /// The path as sent.
    pub raw_path: String,
    /// The normalized path; `None`: it is refused.
    pub path: Option<String>,
    /// The query as sent.
    pub query: Option<String>,
    /// The rightmost untrusted address.
    pub client: IpAddr,
    /// The name that the TLS client asks for.
    pub server_name: Option<String>,
    /// The type of what is asked for, and who says so.
    pub media_type: Option<(String, MediaTypeSource)>,
    /// Whether rules ask for what this host and path last answered with: that is not known here.
    pub wants_learned_type: bool,
}

/// A request on its way to a pool.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The pool.
    pub pool: PoolIndex,
    /// Whether a split drew it, so that a request like this one may get another.
    pub is_drawn: bool,
    /// The largest body that is let through.
    pub body_max: Bytes,
    /// The upgrade token that the server is asked for.
    pub upgrade: Option<String>,
    /// The hash of the key.
    pub key: Option<u64>,
    /// The server that the client belongs to, as far as can be known here.
    pub own: Option<ServerSlot>,
    /// The head that the server gets.
    pub head: Vec<u8>,
}

/// What comes of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A server of this pool answers.
    Forward(Forward),
    /// The client is sent to where the changes' target says, with this status.
    Redirect(u16),
    /// The rule answers.
    Respond(u16),
    /// It is refused.
    Refused(Refusal),
}

/// How a request went, as far as it came.
#[derive(Debug)]
pub struct Rehearsed {
    /// The listener that it came in by.
    pub listener: ListenerIndex,
    /// What rules saw; `None`: the head was refused.
    pub seen: Option<SeenRequest>,
    /// The rule that matched.
    pub rule: Option<Arc<Rule>>,
    /// What the rule captured, by name or by number, in order.
    pub captures: Vec<(String, String)>,
    /// The redirect's location or the rewritten target, and the changes of fields.
    pub changed: Changed,
    /// What came of it.
    pub outcome: Outcome,
}

/// A configuration that requests are rehearsed on.
#[derive(Debug)]
pub struct Rehearsal {
    snapshot: Arc<Snapshot>,
    sealing: Sealing,
}

impl Rehearsal {
    /// On this configuration and its rules, as they are at a start.
    pub fn new(config: Arc<Config>, rules: Arc<RuleSet>) -> Self {
        let store = SnapshotStore::new(config, rules, Arc::new(ProcessCounters::default()));
        Self { snapshot: store.load(), sealing: Sealing::default() }
    }

    /// The same with the secret that the rule files name, or why it can't be read: cookies of a running proxy are opened by it.
    #[must_use]
    pub fn with_secret(mut self, secret: Result<Secret, SecretError>) -> Self {
        self.sealing = Sealing::of(secret);
        self
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.snapshot.config
    }

    /// What decides, as it is at a start.
    pub const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Takes a request as far as to its pool.
    pub fn decide(&self, request: &RequestDescription<'_>, trace: &mut Trace) -> Rehearsed {
        let listener = self.listener_of(request);
        let mut rehearsed = Rehearsed {
            listener,
            seen: None,
            rule: None,
            captures: Vec::new(),
            changed: Changed::default(),
            outcome: Outcome::Refused(Refusal::NoRule),
        };
        if let Some(settings) = self.config().listeners.get(listener.0 as usize) {
            let name = request.server_name().filter(|_| settings.tls.is_some());
            let (snapshot, client) = (&self.snapshot, request.client);
            let (server_name, sealing) = (name.as_deref(), &self.sealing);
            let way = Way { snapshot, sealing, listener, settings, client, server_name };
            rehearsed.outcome = way.go(&request.head(), &mut rehearsed, trace).unwrap_or_else(Outcome::Refused);
        }
        rehearsed
    }

    /// The server that the pool's scheduler chooses; `None`: none may get the request.
    pub fn choose(&self, forward: &Forward, trace: &mut Trace) -> Option<&Arc<Endpoint>> {
        let place = Place::of(&self.snapshot, forward.pool)?;
        let ask = Ask { key: forward.key, own: forward.own, tried: &Tried::NONE, now: Timestamp::ZERO };
        let index = Schedulers::from_start().choose(&place, &ask, trace)?;
        place.pool.endpoints.get(index)
    }

    /// The listener that is named, else the first that speaks the URL's scheme, else the first.
    fn listener_of(&self, request: &RequestDescription<'_>) -> ListenerIndex {
        let speaks = |listener: &Listener| listener.tls.is_some() == request.is_https();
        request.listener.unwrap_or_else(|| {
            let position = self.config().listeners.iter().position(speaks).unwrap_or(0);
            ListenerIndex(u32::try_from(position).unwrap_or(u32::MAX))
        })
    }
}

/// The way of one request that came in by a listener.
#[derive(Clone, Copy)]
struct Way<'r> {
    snapshot: &'r Snapshot,
    sealing: &'r Sealing,
    listener: ListenerIndex,
    settings: &'r Listener,
    client: IpAddr,
    server_name: Option<&'r str>,
}

impl Way<'_> {
    fn go(&self, bytes: &[u8], rehearsed: &mut Rehearsed, trace: &mut Trace) -> Result<Outcome, Refusal> {
        let Self { snapshot, sealing, listener, settings, client, server_name } = *self;
        let mut head = RequestHead::default();
        if parse_request_head(bytes, settings.limits.of_heads(), &mut head)? == Parsed::Partial {
            // A head that was written whole ends.
            return Err(RequestHeadError::Field.into());
        }
        let seen = Seen::of(&head, bytes, client, &settings.trusted_proxies);
        let noted = rehearsed.seen.insert(note(&seen, server_name));
        let mut scratch = String::new();
        let path = seen.path(settings.limits.ambiguous_paths, &mut scratch).map_err(|error| {
            trace.note("path", || error.to_string());
            Refusal::AmbiguousPath
        })?;
        let view = seen.view(listener, path, server_name);
        noted.path = Some(path.to_owned());
        noted.media_type = media_type_of(&view).map(|(text, source)| (text.into_owned(), source));
        noted.wants_learned_type = snapshot.rules.wants_learned_type(&view);

        let mut captures = Captures::new();
        let Rehearsed { rule: matched, changed, .. } = rehearsed;
        let question = Question { view: &view, scheme: settings.scheme(), rng: &mut Rng::new(0) };
        let (rule, destination) = decide(&snapshot.rules, question, &mut captures, changed, trace)?;
        *matched = Some(Arc::clone(&rule));
        rehearsed.captures = owned(&captures, path);
        let pool = match destination {
            Destination::Redirect(status) => return Ok(Outcome::Redirect(status)),
            Destination::Respond(status) => return Ok(Outcome::Respond(status)),
            Destination::Pool(pool) => pool,
        };
        let held = snapshot.pool(pool).ok_or(Refusal::NoServer)?;
        trace.note("body", || {
            let places = snapshot.config.places.listeners.get(listener.0 as usize);
            let owner = match places.and_then(|places| places.body_max.as_ref()) {
                _ if rule.body_max.is_some() => "the rule's limit".to_owned(),
                Some(place) => format!("the limit at {place}"),
                None => "the default limit".to_owned(),
            };
            format!("at most {}, {owner}", body_max(&rule, &settings.limits))
        });
        let passage = Passage::of(&rule, &held.pool, &settings.limits, &head, &view, &captures)?;
        let shown = Shown { fields: seen.fields, raw_path: seen.raw_path, client: seen.client, session: None };
        let own = persistence::own(held, &shown, sealing, trace);
        let mut sent = self.forwarded(&head, &view, &rehearsed.changed, &seen, passage.upgrade);
        let hidden = held.pool.persistence.as_ref().and_then(|found| found.cookie.as_ref()).filter(|form| form.hide);
        if let Some(form) = hidden {
            strip_cookie(&mut sent, 0, &form.name);
        }
        Ok(Outcome::Forward(Forward {
            pool,
            is_drawn: is_drawn(&rule, &view, &captures),
            body_max: passage.body_max,
            upgrade: passage.upgrade.map(text_of),
            key: passage.key,
            own,
            head: sent,
        }))
    }

    fn forwarded(
        &self,
        head: &RequestHead,
        view: &RequestView<'_>,
        changed: &Changed,
        seen: &Seen<'_>,
        upgrade: Option<&[u8]>,
    ) -> Vec<u8> {
        let settings = self.settings;
        let is_made = settings.request_id && seen.request_id().is_none();
        let mut out = Vec::new();
        let forwarded = ForwardedRequest {
            head,
            bytes: view.fields.bytes,
            target: changed.is_rewritten.then_some(changed.target.as_slice()),
            origin: Origin::of(settings, SocketAddr::new(self.client, 0), settings.address.stand_in()),
            request_id: is_made.then_some(NEW_REQUEST_ID),
            upgrade,
            edits: &changed.request,
        };
        push_request_head(&mut out, &forwarded);
        out
    }
}

fn note(seen: &Seen<'_>, server_name: Option<&str>) -> SeenRequest {
    SeenRequest {
        method: seen.method.to_owned(),
        host: seen.host.to_string(),
        raw_path: text_of(seen.raw_path),
        path: None,
        query: seen.query.map(text_of),
        client: seen.client,
        server_name: server_name.map(str::to_owned),
        media_type: None,
        wants_learned_type: false,
    }
}

fn is_drawn(rule: &Rule, view: &RequestView<'_>, captures: &Captures) -> bool {
    match &rule.action {
        Action::Split { key, arms } => {
            arms.len() > 1 && key.as_ref().and_then(|key| hash_key(key, view, captures)).is_none()
        }
        Action::Use(_) | Action::Redirect { .. } | Action::Respond { .. } => false,
    }
}

fn owned(captures: &Captures, path: &str) -> Vec<(String, String)> {
    let value = |name: &str| captures.get(path, name).unwrap_or_default().to_owned();
    captures.names().map(|name| (name.to_owned(), value(name))).collect()
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

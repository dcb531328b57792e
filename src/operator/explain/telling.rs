//! From a rehearsed request to an explanation.
//!
//! It decides nothing: what it tells was decided, or stands in the configuration.

use super::explanation::{
    Arm, Capture, Changes, Explanation, FieldChanges, ForwardTold, KeyTold, ListenerTold, MediaTypeTold, OwnAnswer,
    RequestTold, RuleTold, SeenTold, ServerTold, Step,
};
use crate::base::id::PoolIndex;
use crate::operator::rehearsal::{Forward, Outcome, Rehearsal, Rehearsed, RequestDescription, SeenRequest};
use crate::pure::config::{Config, Listener};
use crate::pure::decision::key_source;
use crate::pure::pool::{Address, Pool, Upstream, UpstreamProtocol, Verification};
use crate::pure::proxy_protocol::Version;
use crate::pure::refusal::Refusal;
use crate::pure::rule::{Action, FieldChange, Rule};
use crate::pure::trace::Trace;
use crate::shared::snapshot::Endpoint;

impl Explanation {
    /// Rehearses a request and tells of it.
    pub fn of(rehearsal: &Rehearsal, request: &RequestDescription<'_>) -> Self {
        let config = rehearsal.config();
        let mut trace = Trace::recording();
        let rehearsed = rehearsal.decide(request, &mut trace);
        let rule = rehearsed.rule.as_deref();
        let (outcome, forward, answer) = match &rehearsed.outcome {
            Outcome::Forward(forward) => {
                let server = rehearsal.choose(forward, &mut trace);
                let outcome = if server.is_some() { "forward" } else { "refuse" };
                let has_queue = config.pools.get(forward.pool.0 as usize).is_some_and(|pool| pool.queue.is_some());
                let refusal = if has_queue { Refusal::QueueTimeout } else { Refusal::NoServer };
                let refused = server.is_none().then(|| refused(refusal));
                (outcome, tell_forward(config, rule, forward, server.map(AsRef::as_ref), &trace), refused)
            }
            Outcome::Redirect(status) => {
                let location = Some(text_of(&rehearsed.changed.target));
                ("redirect", None, Some(OwnAnswer { location, ..by_rule(*status, "the rule redirects") }))
            }
            Outcome::Respond(status) => {
                let body = rule.and_then(body_of);
                ("respond", None, Some(OwnAnswer { body, ..by_rule(*status, "the rule answers") }))
            }
            Outcome::Refused(refusal) => ("refuse", None, Some(refused(*refusal))),
        };
        let captures = rehearsed.captures.iter();
        let method = case_note(request.method).map(|text| Step { step: "method", text });
        let steps = trace.notes().iter().map(|note| Step { step: note.step, text: note.text.clone() });
        Self {
            outcome,
            request: RequestTold {
                method: request.method.to_owned(),
                url: request.url.to_owned(),
                peer: request.client,
            },
            listener: tell_listener(config, request, &rehearsed),
            seen: rehearsed.seen.as_ref().map(tell_seen),
            rule: rule.map(|rule| RuleTold { name: rule.name.to_string(), place: rule.place.clone() }),
            captures: captures.map(|(name, value)| Capture { name: name.clone(), value: value.clone() }).collect(),
            changes: rule.map(|rule| tell_changes(rule, &rehearsed)),
            forward,
            answer,
            steps: method.into_iter().chain(steps).collect(),
        }
    }

    /// The notes of one step.
    pub fn notes<'e>(&'e self, step: &'e str) -> impl Iterator<Item = &'e str> {
        self.steps.iter().filter(move |note| note.step == step).map(|note| note.text.as_str())
    }
}

/// A method in lower case is another method (RFC 9110 9.1), and hardly meant.
fn case_note(method: &str) -> Option<String> {
    let upper = method.to_ascii_uppercase();
    (upper != method).then(|| format!("{method} is not {upper}: the case of a method counts, for rules and servers"))
}

fn tell_listener(config: &Config, request: &RequestDescription<'_>, rehearsed: &Rehearsed) -> ListenerTold {
    let listener = config.listeners.get(rehearsed.listener.0 as usize);
    let scheme = listener.map_or("", Listener::scheme);
    let asked = if request.is_https() { "https" } else { "http" };
    let reason = match (request.listener, asked == scheme) {
        (Some(_), true) => "it was named".to_owned(),
        (Some(_), false) => format!("it was named, and it does not speak {asked}"),
        (None, true) => format!("the first listener that speaks {asked}"),
        (None, false) => format!("no listener speaks {asked}, and this is the first"),
    };
    let address = listener.map(|listener| listener.address.to_string()).unwrap_or_default();
    ListenerTold { address, scheme, reason }
}

fn tell_seen(seen: &SeenRequest) -> SeenTold {
    let media_type = seen.media_type.as_ref();
    SeenTold {
        host: seen.host.clone(),
        path: seen.path.clone(),
        raw_path: seen.raw_path.clone(),
        query: seen.query.clone(),
        client: seen.client,
        server_name: seen.server_name.clone(),
        media_type: media_type.map(|(value, source)| MediaTypeTold { value: value.clone(), source: source.name() }),
        wants_learned_type: seen.wants_learned_type,
    }
}

fn tell_changes(rule: &Rule, rehearsed: &Rehearsed) -> Changes {
    let changed = &rehearsed.changed;
    Changes {
        target: changed.is_rewritten.then(|| text_of(&changed.target)),
        request: tell_fields(&rule.changes.request, changed.request.added()),
        answer: tell_fields(&rule.changes.response, changed.response.added()),
    }
}

fn tell_fields(changes: &[FieldChange], added: &[u8]) -> FieldChanges {
    let mut removed: Vec<String> = Vec::new();
    for change in changes {
        if let FieldChange::Set(name, _) | FieldChange::Remove(name) = change
            && !removed.iter().any(|known| known.eq_ignore_ascii_case(name))
        {
            removed.push(name.clone());
        }
    }
    FieldChanges { removed, added: text_of(added).lines().map(str::to_owned).collect() }
}

fn tell_forward(
    config: &Config,
    rule: Option<&Rule>,
    forward: &Forward,
    server: Option<&Endpoint>,
    trace: &Trace,
) -> Option<ForwardTold> {
    let (rule, pool) = (rule?, config.pools.get(forward.pool.0 as usize)?);
    let name = |index: PoolIndex| config.pools.get(index.0 as usize).map(|pool| pool.name.to_string());
    let split = match &rule.action {
        Action::Split { arms, .. } => {
            arms.iter().filter_map(|(pool, weight)| Some(Arm { pool: name(*pool)?, weight: *weight })).collect()
        }
        Action::Use(_) | Action::Redirect { .. } | Action::Respond { .. } => Vec::new(),
    };
    let reason = trace.notes().iter().find(|note| note.step == "pool").map(|note| note.text.clone());
    Some(ForwardTold {
        pool: pool.name.to_string(),
        reason: reason.unwrap_or_else(|| "the rule names it".to_owned()),
        split,
        is_drawn: forward.is_drawn,
        body_max: forward.body_max.0,
        upgrade: forward.upgrade.clone(),
        key: tell_key(rule, pool, forward),
        scheduler: pool.scheduler.method.name(),
        server: server.map(|endpoint| ServerTold {
            name: endpoint.server.id.server.to_string(),
            address: endpoint.server.address.to_string(),
        }),
        spoken: server.map(|endpoint| tell_spoken(&pool.upstream, &endpoint.server.address)),
        head: text_of(&forward.head),
    })
}

/// `HTTP/2 over TLS (h2), verified for app.internal by certs/ca.crt, with a PROXY header, version 2`.
fn tell_spoken(upstream: &Upstream, address: &Address) -> String {
    let mut text = match (upstream.protocol, &upstream.tls) {
        (UpstreamProtocol::Http1, None) => "HTTP/1.1 without TLS",
        (UpstreamProtocol::Http1, Some(_)) => "HTTP/1.1 over TLS",
        (UpstreamProtocol::Http2, None) => "HTTP/2 without TLS (h2c)",
        (UpstreamProtocol::Http2, Some(_)) => "HTTP/2 over TLS (h2)",
    }
    .to_owned();
    if let Some(tls) = &upstream.tls {
        let name = tls.server_name.clone().unwrap_or_else(|| match address {
            Address::Socket(address) => address.ip().to_canonical().to_string(),
            Address::Name(host, _) => host.clone(),
            Address::Unix(_) => "nobody, for it lacks `server-name`".to_owned(),
        });
        text += &match &tls.verification {
            Verification::System => format!(", verified for {name} by the system's authorities"),
            Verification::Authorities(file) => format!(", verified for {name} by {}", file.display()),
            Verification::Insecure => ", not verified (`insecure`)".to_owned(),
        };
    }
    match upstream.proxy_protocol {
        Some(Version::V1) => text += ", with a PROXY header, version 1",
        Some(Version::V2) => text += ", with a PROXY header, version 2",
        None => {}
    }
    text
}

fn tell_key(rule: &Rule, pool: &Pool, forward: &Forward) -> Option<KeyTold> {
    let source = key_source(rule, pool)?;
    Some(KeyTold {
        source: source.to_string(),
        named_by: if rule.key.is_some() { "rule" } else { "pool" },
        hash: forward.key.map(|hash| format!("{hash:016x}")),
    })
}

fn by_rule(status: u16, because: &str) -> OwnAnswer {
    OwnAnswer { status, reason: "rule", because: because.to_owned(), location: None, body: None }
}

fn refused(refusal: Refusal) -> OwnAnswer {
    let because = refusal.to_string();
    OwnAnswer { status: refusal.status(), reason: refusal.reason(), because, location: None, body: None }
}

fn body_of(rule: &Rule) -> Option<String> {
    match &rule.action {
        Action::Respond { body, .. } if !body.is_empty() => Some(body.clone()),
        Action::Respond { .. } | Action::Use(_) | Action::Split { .. } | Action::Redirect { .. } => None,
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

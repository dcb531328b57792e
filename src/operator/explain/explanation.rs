//! An explanation as data: what was asked, what the rules saw, what they decided, and the notes of every step. It is what
//! `--json` prints, with all its keys always there, and what the text for people is made of.

use std::net::IpAddr;

use serde::Serialize;

/// What comes of one request, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `forward`, `redirect`, `respond` or `refuse`.
    pub outcome: &'static str,
    /// What was asked.
    pub request: RequestTold,
    /// The listener that it comes in by.
    pub listener: ListenerTold,
    /// What the rules see; none where the head is refused.
    pub seen: Option<SeenTold>,
    /// The rule that matches.
    pub rule: Option<RuleTold>,
    /// What it captures.
    pub captures: Vec<Capture>,
    /// What it changes; none where no rule matches.
    pub changes: Option<Changes>,
    /// Where it goes to; none where the proxy answers before it is asked of a pool.
    pub forward: Option<ForwardTold>,
    /// The proxy's own answer, where no server answers.
    pub answer: Option<OwnAnswer>,
    /// The notes of every step in order.
    pub steps: Vec<Step>,
}

/// The request as it was described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestTold {
    /// The method.
    pub method: String,
    /// The whole URL.
    pub url: String,
    /// The address that the connection comes from.
    pub peer: IpAddr,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListenerTold {
    /// Its address as configured.
    pub address: String,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Why it is this one.
    pub reason: String,
}

/// What rules see of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeenTold {
    /// The host in lower case, without port and trailing dot.
    pub host: String,
    /// The normalized path; none where it is refused.
    pub path: Option<String>,
    /// The path as sent.
    pub raw_path: String,
    /// The query as sent, without `?`.
    pub query: Option<String>,
    /// The rightmost untrusted address.
    pub client: IpAddr,
    /// The name that the TLS client asks for.
    pub server_name: Option<String>,
    /// The type of what is asked for; none where no source speaks.
    pub media_type: Option<MediaTypeTold>,
    /// Whether rules would ask a running proxy for the type that this host and path last answered with.
    pub wants_learned_type: bool,
}

/// A media type, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MediaTypeTold {
    /// Type or range.
    pub value: String,
    /// The source.
    pub source: &'static str,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleTold {
    /// Its name.
    pub name: String,
    /// `file:line`.
    pub place: String,
}

/// What a rule captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capture {
    /// The name, or the number of a group.
    pub name: String,
    /// The part of the normalized path.
    pub value: String,
}

/// What a rule changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// The new target, where it is not the client's.
    pub target: Option<String>,
    /// Changes of the request's fields.
    pub request: FieldChanges,
    /// Changes of the answer's fields.
    pub answer: FieldChanges,
}

/// Changes of a message's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FieldChanges {
    /// The names of which all fields go.
    pub removed: Vec<String>,
    /// The lines that come, `Name: value`.
    pub added: Vec<String>,
}

/// A request on its way to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForwardTold {
    /// The pool.
    pub pool: String,
    /// Why it is this one.
    pub reason: String,
    /// The pools of a split and their weights; empty where the rule names one pool.
    pub split: Vec<Arm>,
    /// Whether another request like this one may get another pool of the split.
    pub is_drawn: bool,
    /// The largest body that is let through, in bytes.
    pub body_max: u64,
    /// The upgrade token that the server is asked for.
    pub upgrade: Option<String>,
    /// What the scheduler may hash; none where neither rule nor pool names it.
    pub key: Option<KeyTold>,
    /// The scheduler's name.
    pub scheduler: &'static str,
    /// The server; none where none may get the request.
    pub server: Option<ServerTold>,
    /// What is spoken to the server: the protocol, how it is verified, and the PROXY header.
    pub spoken: Option<String>,
    /// The head that the server gets.
    pub head: String,
}

/// A pool of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arm {
    /// The pool.
    pub pool: String,
    /// Its weight.
    pub weight: u32,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyTold {
    /// What it is made of, as the rule file says it.
    pub source: String,
    /// `rule` or `pool`.
    pub named_by: &'static str,
    /// Its hash in hexadecimal digits; none where the request does not have it.
    pub hash: Option<String>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerTold {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
}

/// An answer of the proxy's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnAnswer {
    /// The status.
    pub status: u16,
    /// The reason token of the access log.
    pub reason: &'static str,
    /// The same in words.
    pub because: String,
    /// Where a redirect leads.
    pub location: Option<String>,
    /// The body that the rule gives.
    pub body: Option<String>,
}

/// One sentence about one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Which step spoke.
    pub step: &'static str,
    /// What it saw and did.
    pub text: String,
}

//! Rules: what is asked of a request, and what happens to it. The first rule in file order whose predicates all hold wins,
//! and nothing else decides.
//!
//! This file holds the words of the rule language as types; what is done with them stands in the modules below it.

pub mod captures;
pub mod change;
pub mod compile;
pub mod cover;
mod explain;
pub mod find;
mod glob;
pub mod hash;
mod index;
pub mod key;
pub mod media;
pub(in crate::pure) mod parts;
pub mod path;
pub mod pattern;
mod predicate;
pub mod template;

use std::net::IpAddr;
use std::sync::Arc;

use crate::base::id::{ListenerIndex, PoolIndex};
use crate::base::units::Bytes;
use crate::pure::head::Fields;
use crate::pure::identity::ClientIdentity;

/// What rules see of a request. Borrowed from its head; texts are normalized once, before the first rule is asked.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The listener it came in by.
    pub listener: ListenerIndex,
    /// The method as sent.
    pub method: &'a str,
    /// The host in lower case without port and trailing dot; empty where there is none.
    pub host: &'a str,
    /// The normalized path (ASCII, begins with `/`), or `*` for `OPTIONS *`.
    pub path: &'a str,
    /// The query as sent, without the `?`.
    pub query: Option<&'a [u8]>,
    /// The fields.
    pub fields: Fields<'a>,
    /// The rightmost untrusted address.
    pub client: IpAddr,
    /// The name the TLS client asked for, in lower case.
    pub server_name: Option<&'a str>,
    /// The media type this host and path last answered with, where that is known.
    pub learned_media_type: Option<&'a str>,
    /// Who the client has shown to be by its certificate.
    pub identity: Option<&'a ClientIdentity>,
}

/// A text with `*` globs, compared without regard to case where the predicate says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob(pub String);

/// A host pattern: exact, or `*.` and a suffix (any depth).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// Any host that ends in this suffix, which begins with a dot, in lower case.
    Suffix(String),
}

/// A predicate that names a thing and, maybe, what its value must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    /// The name of the field, parameter or cookie.
    pub name: String,
    /// Its value must match one of these; empty: it must be there.
    pub values: Vec<Glob>,
}

/// An address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// Any address of the range.
    pub address: IpAddr,
    /// How many leading bits count.
    pub prefix: u8,
}

/// The predicates of a rule, or of its `not` block. An empty list asks nothing; several values of one list are
/// alternatives; different lists, and different names of `header`, `query`, `cookie`, must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predicates {
    /// Listeners.
    pub listeners: Vec<ListenerIndex>,
    /// Hosts.
    pub hosts: Vec<HostPattern>,
    /// Path patterns in matchit's syntax, validated.
    pub paths: Vec<String>,
    /// Regular expressions on the normalized path without the query, validated.
    pub path_regexes: Vec<String>,
    /// Methods, as written.
    pub methods: Vec<String>,
    /// Fields.
    pub headers: Vec<Named>,
    /// Query parameters.
    pub queries: Vec<Named>,
    /// Cookies.
    pub cookies: Vec<Named>,
    /// The request's Content-Type.
    pub content_types: Vec<Glob>,
    /// A media type that its Accept asks for.
    pub accepts: Vec<Glob>,
    /// The media type of what is asked for.
    pub media_types: Vec<Glob>,
    /// Client addresses.
    pub clients: Vec<Cidr>,
    /// TLS server names.
    pub server_names: Vec<HostPattern>,
}

/// Text with the captures of a rule in it: `/v2/{rest}`, `https://{host}/$1`. How it is written and read stands in
/// [`template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its parts in order.
    pub parts: Vec<TemplatePart>,
}

/// A part of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// Text as it is.
    Text(String),
    /// A capture by name, or by number (`$1` is `"1"`).
    Capture(String),
}

/// What a split hashes, and schedulers that choose by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The normalized path.
    Path,
    /// The normalized path and the query.
    Uri,
    /// The host.
    Host,
    /// Host and path.
    HostAndPath,
    /// The client's address.
    Client,
    /// The media type of what is asked for.
    MediaType,
    /// A field.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// A query parameter.
    Query(String),
    /// A capture of the rule: by name, or by number.
    Capture(String),
}

/// What happens to a request of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes to a pool.
    Use(PoolIndex),
    /// It goes to one of several pools, by weight: sticky by `key`, else per request.
    Split {
        /// What makes it sticky.
        key: Option<KeySource>,
        /// The pools and their weights; the sum is above zero.
        arms: Vec<(PoolIndex, u32)>,
    },
    /// The client is sent elsewhere.
    Redirect {
        /// The Location, read by [`Template::parse_location`].
        location: Template,
        /// 301, 302, 303, 307 or 308.
        status: u16,
    },
    /// Pointsman answers.
    Respond {
        /// The status.
        status: u16,
        /// The body, text/plain.
        body: String,
    },
}

/// One change of a message's fields. Values are read by [`Template::parse_value`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldChange {
    /// All fields of that name go, and this one comes; an empty value only removes.
    Set(String, Template),
    /// This one comes beside what is there.
    Add(String, Template),
    /// All fields of that name go.
    Remove(String),
}

/// What a rule changes in passing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Taken from the front of the path, a whole number of segments; as [`change::normal_prefix`] makes it.
    pub strip_prefix: Option<String>,
    /// The new path, and query where it has a `?`; without one the request's query stays. Read by [`Template::parse_target`].
    pub rewrite: Option<Template>,
    /// Changes of the request's fields, in order.
    pub request: Vec<FieldChange>,
    /// Changes of the answer's fields, in order.
    pub response: Vec<FieldChange>,
    /// Upgrade tokens that may become a tunnel, in lower case; none stands for `websocket` alone.
    pub upgrades: Vec<String>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, or `rule-N` with its position from 1.
    pub name: Arc<str>,
    /// Where it stands: `file:line`.
    pub place: String,
    /// What must hold.
    pub when: Predicates,
    /// What must not hold, none of it.
    pub unless: Predicates,
    /// What happens.
    pub action: Action,
    /// What changes.
    pub changes: Changes,
    /// What the scheduler hashes; beats the pool's. `None` in this version: rule files can name it once a scheduler hashes.
    pub key: Option<KeySource>,
    /// The largest request body; beats the listener's.
    pub body_max: Option<Bytes>,
}

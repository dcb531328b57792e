//! Rule files: KDL 2 text in, a [`Config`] or every error at once out.
//!
//! A node that is accepted is enforced; one that belongs to later work is an error that says so, never silence. The
//! language is data in [`vocabulary`] and [`limit_table`]; [`load`] reads files through [`RuleFiles`] and never the file system itself.

mod action;
mod address;
mod admin;
mod agent_check;
pub mod agent_file;
mod alert;
mod answers;
mod captures;
mod changes;
mod check;
mod detection;
mod expect;
mod feedback;
mod field;
pub mod files;
mod fit;
pub mod form;
mod identity_fields;
mod include;
mod key;
mod lexical;
pub mod limit_table;
mod limits;
mod listener;
mod load;
mod misplaced;
mod mistakes;
mod names;
mod node;
mod patterns;
mod persist;
pub mod places;
mod pool;
mod predicates;
pub mod problem;
mod recovery;
mod reporting;
mod rule;
mod scheduler;
mod shape;
pub mod source;
mod suggest;
mod syntax;
mod upstream_tls;
pub mod vocabulary;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{ListenerIndex, PoolIndex};
use crate::base::units::Bytes;
use crate::pure::alert::target::Targets;
use crate::pure::h1::request::HeadLimits;
use crate::pure::pool::Pool;
use crate::pure::recovery::plan::Machines;
use crate::pure::rule::{Action, Cidr, Rule};

pub use expect::url_trouble;
pub use field::{is_token, is_value};
pub use files::{MemoryFiles, RuleFiles};
pub use include::{FILES_MAX, INCLUDE_DEPTH_MAX};
pub use limit_table::{LIMITS, LimitEntry};
pub use load::{load, load_text};
pub use places::{Places, PoolPlaces, SecretFile, UpstreamTlsPlaces};
pub use problem::{ConfigErrors, Problem};

/// Everything that rule files say, checked: every name resolved, every pattern valid.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listeners in file order; [`crate::base::id::ListenerIndex`] counts them.
    pub listeners: Vec<Listener>,
    /// The pools in file order; [`crate::base::id::PoolIndex`] counts them.
    pub pools: Vec<Arc<Pool>>,
    /// The rules in file order.
    pub rules: Vec<Arc<Rule>>,
    /// The `expect` lines in file order.
    pub expects: Vec<Expect>,
    /// Worker threads; `None`: one per core.
    pub workers: Option<u16>,
    /// The DNS servers that names are asked of; empty: those of /etc/resolv.conf.
    pub resolvers: Vec<SocketAddr>,
    /// Whom to become once the ports are bound.
    pub user: Option<String>,
    /// The file of what nodes and restarts share: keys of cookies and tickets come from it. `None`: they are this process's alone.
    pub secret: Option<PathBuf>,
    /// Where requests are logged; `None`: nowhere.
    pub access_log: Option<AccessLog>,
    /// The unix socket at which operators ask the running proxy; `None`: nowhere.
    pub admin: Option<PathBuf>,
    /// Who is told of servers that fail.
    pub alert: Arc<Targets>,
    /// The machines of servers.
    pub machines: Arc<Machines>,
    /// Where servers' agents report; `None`: nowhere.
    pub feedback: Option<Feedback>,
    /// The limits that hold for the process and not for a listener.
    pub process: ProcessLimits,
    /// Where things stand in the files, for warnings.
    pub places: Places,
}

impl Config {
    /// Whether TLS sessions of that listener need an identity: some rule may send its requests to a pool that persists by them.
    pub fn needs_session_identity(&self, listener: ListenerIndex) -> bool {
        let persists = |pool: &PoolIndex| {
            let pool = self.pools.get(pool.0 as usize);
            pool.and_then(|pool| pool.persistence.as_ref()).is_some_and(|found| found.tls_session.is_some())
        };
        self.rules.iter().any(|rule| {
            let is_reached = rule.when.listeners.is_empty() || rule.when.listeners.contains(&listener);
            is_reached
                && match &rule.action {
                    Action::Use(pool) => persists(pool),
                    Action::Split { arms, .. } => arms.iter().any(|(pool, _)| persists(pool)),
                    Action::Redirect { .. } | Action::Respond { .. } => false,
                }
        })
    }

    /// The listener that `text` names by its address, as rules do: `*:80` and `[::]:80` are the same.
    pub fn listener_named(&self, text: &str) -> Option<ListenerIndex> {
        let position = match address::listener_named(text, |file| file.into()) {
            Some(address) => self.listeners.iter().position(|listener| listener.address == address)?,
            None => return None,
        };
        u32::try_from(position).ok().map(ListenerIndex)
    }
}

/// Where servers' agents report, and what is believed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The UDP address and port; port 0 takes any free one.
    pub address: SocketAddr,
    /// The file of the master key, from which every agent's keys come.
    pub key_file: PathBuf,
    /// The only addresses that are listened to; empty: those of the configured servers.
    pub sources: Vec<Cidr>,
}

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An IP address and a port; port 0 takes any free one. `[::]` takes IPv4 connections too.
    Socket(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl ListenAddress {
    /// The address that stands for a peer that has none: every peer of a unix socket.
    pub const fn peer() -> IpAddr {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }

    /// The IP address and port, where it has them.
    pub const fn socket(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// What fields say of it that name a port: a unix socket has none, and passes for the loopback address with that of
    /// HTTP.
    pub fn stand_in(&self) -> SocketAddr {
        self.socket().unwrap_or(SocketAddr::new(Self::peer(), 80))
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening address and what is expected there.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The address as configured.
    pub address: ListenAddress,
    /// The permissions of a unix socket.
    pub mode: u32,
    /// TLS, where it is spoken.
    pub tls: Option<Tls>,
    /// What is spoken.
    pub protocols: Protocols,
    /// Whose forwarding fields are believed. The peers of a unix socket are [`ListenAddress::peer`].
    pub trusted_proxies: Vec<Cidr>,
    /// Whether every connection begins with a PROXY header, which is taken from `trusted_proxies` alone.
    pub proxy_protocol: bool,
    /// Whether `Via` is added (RFC 9110 7.6.3).
    pub via: bool,
    /// Whether `X-Request-Id` is kept or made.
    pub request_id: bool,
    /// Whether a client that has ended its side still wants its answer.
    pub half_close: bool,
    /// Its limits, those of the top filled in.
    pub limits: Limits,
}

impl Listener {
    /// `http` or `https`, as its clients speak.
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// What a listener speaks: over TLS the client chooses (ALPN), without it the first bytes of a connection tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// HTTP/1.0 and 1.1.
    pub http1: bool,
    /// HTTP/2: `h2` over TLS, `h2c` with prior knowledge without it.
    pub http2: bool,
}

impl Protocols {
    /// What a listener speaks that does not say.
    pub const fn usual(is_tls: bool) -> Self {
        Self { http1: true, http2: is_tls }
    }
}

/// The certificates of a TLS listener; the first is the default.
#[derive(Clone, Debug)]
pub struct Tls {
    /// In file order; matching does not depend on it.
    pub certificates: Vec<SiteCertificate>,
}

/// A certificate of a TLS listener, and what it demands of the clients that get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteCertificate {
    /// Where it is.
    pub files: CertificateFiles,
    /// Whose certificates are asked for, its own word or else the listener's; `None`: nobody's.
    pub clients: Option<ClientAuthorities>,
}

/// Who vouches for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthorities {
    /// PEM, the authorities of the clients' certificates.
    pub file: PathBuf,
    /// Whether a client without such a certificate is refused.
    pub is_required: bool,
}

/// A certificate chain and its key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM, the leaf first.
    pub certificate: PathBuf,
    /// PEM.
    pub key: PathBuf,
}

/// What to do with paths that two parsers may read differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AmbiguousPaths {
    /// 400 to `\`, `%5C`, `%00`, `..;` and `%2F` beside a dot segment.
    #[default]
    RejectUnsafe,
    /// Also to all `%2F`, `%2E%2E` and `//`.
    Reject,
    /// To nothing.
    Allow,
}

/// The limits of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the first byte of a head to its last.
    pub header_timeout: Duration,
    /// Between requests, and for a client that neither sends its body nor reads its answer.
    pub idle_timeout: Duration,
    /// The largest request body.
    pub body_max: Bytes,
    /// The largest head.
    pub head_max: Bytes,
    /// The most field lines of a head.
    pub fields_max: u32,
    /// The most connections of one client address; `None`: no bound.
    pub connections_per_client_max: Option<u32>,
    /// The most requests on one connection; `None`: no bound.
    pub requests_per_connection_max: Option<u32>,
    /// The most streams that are open at once on one HTTP/2 connection.
    pub streams_max: u32,
    /// What to do with paths that two parsers may read differently.
    pub ambiguous_paths: AmbiguousPaths,
}

impl Limits {
    /// Those of a request's head.
    pub fn of_heads(&self) -> HeadLimits {
        HeadLimits { bytes: self.head_max.as_usize(), fields: self.fields_max as usize }
    }
}

/// The defaults of [`LIMITS`].
impl Default for Limits {
    fn default() -> Self {
        limit_table::Settings::default().listener
    }
}

/// The limits that hold for the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// The most client connections; `None`: what the descriptor limit leaves.
    pub connections_max: Option<u32>,
    /// The memory of all buffers of one worker.
    pub buffer_memory: Bytes,
    /// How long a drain waits for what is in flight.
    pub drain_timeout: Duration,
}

/// The defaults of [`LIMITS`].
impl Default for ProcessLimits {
    fn default() -> Self {
        limit_table::Settings::default().process
    }
}

/// Where the access log goes and how its lines look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// A file, or `None` for standard output.
    pub file: Option<PathBuf>,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a line of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object.
    #[default]
    Json,
    /// The combined format of the web servers of old.
    Combined,
}

/// A test that lives beside the rules.
#[derive(Clone, Debug)]
pub struct Expect {
    /// Where it stands: `file:line`.
    pub place: String,
    /// The method.
    pub method: String,
    /// The absolute URL.
    pub url: String,
    /// The fields it sends.
    pub headers: Vec<(String, String)>,
    /// The client's address; 127.0.0.1 where none is given.
    pub client: std::net::IpAddr,
    /// The listener; `None`: the first that speaks the URL's scheme, else the first.
    pub listen: Option<ListenerIndex>,
    /// What must come of it; all that are given.
    pub outcome: ExpectedOutcome,
}

/// What an `expect` line demands; a `None` demands nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedOutcome {
    /// The pool's name (any arm of a split will do).
    pub pool: Option<String>,
    /// The Location.
    pub redirect: Option<String>,
    /// The status of an answer of our own.
    pub respond: Option<u16>,
    /// The rule's name.
    pub rule: Option<String>,
}

#[cfg(test)]
mod tests;

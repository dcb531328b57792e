//! Active checks as configured: what is asked of a server, how often, how much a result counts, and what an answer has to be.
//! It refuses to run any, and to say what comes of a result.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::{Regex, RegexBuilder};

use crate::pure::pool::{Address, Server, Upstream};

pub mod echo;
pub mod grpc;
mod statuses;

pub use statuses::{StatusSet, StatusSetError};

/// How much of an answer's body is looked at, and how long its head may be: what a check holds of a server's bytes.
pub const ANSWER_MAX: usize = 64 * 1024;

/// The most memory of a compiled expression, in bytes.
const EXPRESSION_MAX: usize = 256 * 1024;

/// By what name we ask, unless the rule file has another.
pub const USER_AGENT: &str = "pointsman-check";

/// How the servers of a pool are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckConfig {
    /// What is asked.
    pub kind: CheckKind,
    /// The port that is asked at; `None`: that of requests.
    pub port: Option<u16>,
    /// Where servers are asked that have an address of their own for it, by their names; no host names among them.
    pub addresses: BTreeMap<Arc<str>, Address>,
    /// Whether the TLS and the PROXY header of the pool are left out, and HTTP is 1.1 whatever the pool speaks.
    pub is_plain: bool,
    /// When, and how often.
    pub times: CheckTimes,
}

/// What a check asks of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CheckKind {
    /// That it takes a connection.
    #[default]
    Tcp,
    /// That it shows a certificate which is good.
    Tls,
    /// That it answers a request as it should.
    Http(Box<HttpCheck>),
    /// That it says of itself, or of a service, that it serves (`grpc.health.v1`).
    Grpc(GrpcCheck),
    /// That its machine answers an echo request.
    Icmp,
}

/// A request, and what its answer has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// A token.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The Host field; `None`: what the server is reached by.
    pub host: Option<String>,
    /// Further fields.
    pub fields: Vec<(String, String)>,
    /// The statuses that are good.
    pub statuses: StatusSet,
    /// What has to stand in the body.
    pub body: Option<String>,
    /// What the body has to match.
    pub body_regex: Option<BodyRegex>,
}

/// A service that is asked for by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrpcCheck {
    /// The service; empty: the server as a whole.
    pub service: String,
    /// The authority; `None`: what the server is reached by.
    pub host: Option<String>,
}

/// An expression that bodies are searched for.
#[derive(Clone, Debug)]
pub struct BodyRegex {
    text: String,
    regex: Regex,
}

/// Expressions are the same if they are written alike.
impl PartialEq for BodyRegex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for BodyRegex {}

impl BodyRegex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, regex::Error> {
        let regex = RegexBuilder::new(text).size_limit(EXPRESSION_MAX).dfa_size_limit(EXPRESSION_MAX).build()?;
        Ok(Self { text: text.to_owned(), regex })
    }
}

/// When checks run and how much they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTimes {
    /// Between the beginnings of two checks of a server that is well; `None`: such a server is not checked.
    pub every: Option<Duration>,
    /// How long a check may take.
    pub timeout: Duration,
    /// So many bad checks in a row are one source's word that a server is dead.
    pub fall: u32,
    /// So many good checks in a row bring a server back.
    pub rise: u32,
}

/// Those of a pool without checks of its own: only a server that is not well is checked.
impl Default for CheckTimes {
    fn default() -> Self {
        Self { every: None, timeout: Duration::from_millis(300), fall: 3, rise: 2 }
    }
}

impl CheckTimes {
    /// Those of a pool with a `check` that says nothing else.
    pub fn configured() -> Self {
        Self { every: Some(Duration::from_millis(500)), ..Self::default() }
    }
}

/// What is wrong with what a server did, where it did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongAnswer {
    /// The TLS handshake failed.
    #[error("the TLS handshake failed")]
    Handshake,
    /// Its certificate is not one that requests would take.
    #[error("its certificate can't be verified")]
    Certificate,
    /// It does not begin an HTTP/2 connection.
    #[error("it does not speak HTTP/2")]
    NotHttp2,
    /// It ended the connection, or the stream.
    #[error("it broke off before its answer was whole")]
    Cut,
    /// What it said is no HTTP.
    #[error("its answer is no HTTP")]
    Malformed,
    /// A status that is not wanted.
    #[error("it answered {0}")]
    Status(u16),
    /// The text is not in the body.
    #[error("the body lacks the text")]
    Body,
    /// The body does not match.
    #[error("the body does not match")]
    BodyRegex,
    /// What it said is no gRPC.
    #[error("its answer is no gRPC")]
    NotGrpc,
    /// A gRPC status that is not OK, by its number.
    #[error("it answered the gRPC status {0}{name}", name = grpc::name_of(*.0))]
    GrpcStatus(u32),
    /// The service is there and does not serve.
    #[error("it says that it does not serve")]
    NotServing,
}

impl HttpCheck {
    /// A GET of that path, to which 200 to 399 are good answers.
    pub fn get(path: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            path: path.to_owned(),
            host: None,
            fields: Vec::new(),
            statuses: StatusSet::default(),
            body: None,
            body_regex: None,
        }
    }

    /// Whether the body is to be read at all.
    pub const fn wants_body(&self) -> bool {
        self.body.is_some() || self.body_regex.is_some()
    }

    /// Whether what has come of the body decides, whatever follows.
    pub fn is_satisfied(&self, begun: &[u8]) -> bool {
        // What an expression finds may depend on where the body ends.
        self.body_regex.is_none() && self.judge_body(begun).is_ok()
    }

    /// # Errors
    /// [`WrongAnswer::Status`].
    pub fn judge_status(&self, status: u16) -> Result<(), WrongAnswer> {
        if self.statuses.contains(status) { Ok(()) } else { Err(WrongAnswer::Status(status)) }
    }

    /// # Errors
    /// [`WrongAnswer::Body`], [`WrongAnswer::BodyRegex`].
    pub fn judge_body(&self, body: &[u8]) -> Result<(), WrongAnswer> {
        let lacks = |text: &String| memchr::memmem::find(body, text.as_bytes()).is_none();
        if self.body.as_ref().is_some_and(lacks) {
            return Err(WrongAnswer::Body);
        }
        match &self.body_regex {
            Some(expression) if !expression.regex.is_match(body) => Err(WrongAnswer::BodyRegex),
            Some(_) | None => Ok(()),
        }
    }

    /// The fields that are sent beside Host and what belongs to the connection.
    pub fn sent_fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_named = |name: &str| self.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        // Some servers want to be told that nothing follows, where something usually does (RFC 9110 8.6).
        let expects_content = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        let agent = (!is_named("user-agent")).then_some(("user-agent", USER_AGENT));
        let length = expects_content.then_some(("content-length", "0"));
        let own = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        agent.into_iter().chain(length).chain(own)
    }
}

impl CheckConfig {
    /// Where a server is asked, if that is not where it gets its requests.
    pub fn address_of(&self, server: &Server) -> Option<Address> {
        if let Some(own) = self.addresses.get(&server.id.server) {
            return Some(own.clone());
        }
        let port = self.port?;
        match &server.address {
            Address::Socket(address) => Some(Address::Socket(SocketAddr::new(address.ip(), port))),
            Address::Name(host, _) => Some(Address::Name(host.clone(), port)),
            Address::Unix(_) => None,
        }
    }

    /// Whom a check names as the host it asks: `host`, else whom the certificate has to be for, else what the server is
    /// reached by.
    pub fn authority(&self, upstream: &Upstream, address: &Address) -> String {
        let host = match &self.kind {
            CheckKind::Http(http) => http.host.as_ref(),
            CheckKind::Grpc(grpc) => grpc.host.as_ref(),
            CheckKind::Tcp | CheckKind::Tls | CheckKind::Icmp => None,
        };
        let tls = upstream.tls.as_ref().filter(|_| !self.is_plain);
        if let Some(name) = host.or_else(|| tls?.server_name.as_ref()) {
            return name.clone();
        }
        let usual = if tls.is_some() { 443 } else { 80 };
        match address {
            Address::Socket(address) => address.to_string(),
            Address::Name(host, port) if *port == usual => host.clone(),
            Address::Name(host, port) => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl std::fmt::Display for CheckKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Tls => f.write_str("tls"),
            Self::Http(http) => write!(f, "http {} {}", http.method, http.path),
            Self::Grpc(grpc) if grpc.service.is_empty() => f.write_str("grpc"),
            Self::Grpc(grpc) => write!(f, "grpc {}", grpc.service),
            Self::Icmp => f.write_str("icmp"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::pool::UpstreamTls;

    #[test]
    fn a_body_is_searched_for_the_text_and_the_expression() {
        let mut check = HttpCheck::get("/");
        assert!(!check.wants_body() && check.judge_body(b"").is_ok());
        check.body = Some("ok".to_owned());
        assert_eq!(check.judge_body(b"all is o k"), Err(WrongAnswer::Body));
        assert!(check.is_satisfied(b"all is ok, and"));
        check.body_regex = Some(BodyRegex::new(r"^all .* ok$").unwrap());
        assert!(!check.is_satisfied(b"all is ok"), "more may come");
        assert_eq!(check.judge_body(b"all is ok"), Ok(()));
        assert_eq!(check.judge_body(b"all is ok, and"), Err(WrongAnswer::BodyRegex));
    }

    #[test]
    fn an_expression_that_is_too_large_or_wrong_is_refused_and_the_same_text_is_the_same_expression() {
        assert!(BodyRegex::new("(").is_err());
        assert!(BodyRegex::new(r"\w{500}{500}").is_err());
        assert_eq!(BodyRegex::new("a").unwrap(), BodyRegex::new("a").unwrap());
        assert_ne!(BodyRegex::new("a").unwrap(), BodyRegex::new("b").unwrap());
    }

    #[test]
    fn a_check_says_who_asks_unless_the_file_says_otherwise_and_that_no_content_follows() {
        let mut check = HttpCheck::get("/");
        assert_eq!(check.sent_fields().collect::<Vec<_>>(), [("user-agent", USER_AGENT)]);
        check.fields = vec![("User-Agent".to_owned(), "me".to_owned())];
        check.method = "POST".to_owned();
        assert_eq!(check.sent_fields().collect::<Vec<_>>(), [("content-length", "0"), ("User-Agent", "me")]);
    }

    #[test]
    fn the_host_is_the_one_that_is_written_else_that_of_the_certificate_else_the_address() {
        let mut config = CheckConfig { kind: CheckKind::Http(Box::new(HttpCheck::get("/"))), ..CheckConfig::default() };
        let mut upstream = Upstream::default();
        let named = |port| Address::Name("a.test".to_owned(), port);
        assert_eq!(config.authority(&upstream, &named(80)), "a.test");
        assert_eq!(config.authority(&upstream, &named(443)), "a.test:443");
        assert_eq!(config.authority(&upstream, &Address::Unix("/s".into())), "localhost");
        assert_eq!(config.authority(&upstream, &Address::Socket(([127, 0, 0, 1], 80).into())), "127.0.0.1:80");
        upstream.tls = Some(UpstreamTls::default());
        assert_eq!(config.authority(&upstream, &named(443)), "a.test");
        upstream.tls = Some(UpstreamTls { server_name: Some("b.test".to_owned()), ..UpstreamTls::default() });
        assert_eq!(config.authority(&upstream, &named(443)), "b.test");
        config.is_plain = true;
        assert_eq!(config.authority(&upstream, &named(443)), "a.test:443", "without TLS there is no certificate");
        config.kind = CheckKind::Grpc(GrpcCheck { host: Some("c.test".to_owned()), ..GrpcCheck::default() });
        assert_eq!(config.authority(&upstream, &named(443)), "c.test");
    }

    #[test]
    fn what_is_wrong_reads_well() {
        let said = [
            WrongAnswer::Status(500),
            WrongAnswer::GrpcStatus(5),
            WrongAnswer::GrpcStatus(99),
            WrongAnswer::NotServing,
        ];
        let said = said.map(|wrong| wrong.to_string());
        assert_eq!(
            said,
            [
                "it answered 500",
                "it answered the gRPC status 5 (NOT_FOUND)",
                "it answered the gRPC status 99",
                "it says that it does not serve",
            ]
        );
        assert_eq!(CheckKind::Http(Box::new(HttpCheck::get("/health"))).to_string(), "http GET /health");
        let grpc = |service: &str| CheckKind::Grpc(GrpcCheck { service: service.to_owned(), host: None }).to_string();
        assert_eq!((grpc(""), grpc("app.Users")), ("grpc".to_owned(), "grpc app.Users".to_owned()));
    }
}

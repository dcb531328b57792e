//! The end of every exchange: the access log's record. What it needs of the head is copied while the head is there, and only
//! where there is a log.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::base::time::{self, Timestamp};
use crate::pure::head::Span;
use crate::pure::identity::ClientIdentity;
use crate::pure::pool::{Pool, Server};
use crate::pure::rule::Rule;
use crate::request::access_log::AccessRecord;
use crate::request::listener::Listener;
use crate::request::worker::Worker;

/// Where a request came from, as far as a log line shows it.
#[derive(Debug)]
pub struct Source<'a> {
    /// The worker whose log it is.
    pub worker: &'a Worker,
    /// The listener.
    pub listener: &'a Listener,
    /// The other end.
    pub peer: SocketAddr,
    /// The TLS version.
    pub tls: Option<&'static str>,
    /// Who the client has shown to be by a certificate.
    pub identity: Option<&'a ClientIdentity>,
    /// Whether it came over HTTP/2.
    pub is_http2: bool,
}

/// The parts of a head that a log line shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Described<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The host that the rules see.
    pub host: &'a [u8],
    /// The path as sent.
    pub path: &'a [u8],
    /// The query as sent.
    pub query: Option<&'a [u8]>,
    /// User-Agent, where the format shows it.
    pub user_agent: Option<&'a [u8]>,
    /// Referer, where the format shows it.
    pub referer: Option<&'a [u8]>,
}

/// Bytes copied one behind the other.
#[derive(Debug, Default)]
struct Copies {
    bytes: Vec<u8>,
}

impl Copies {
    fn add(&mut self, part: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(part);
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { start: place(start), end: place(self.bytes.len()) }
    }
}

/// What is known of an exchange so far.
#[derive(Debug, Default)]
pub struct Record {
    started: Timestamp,
    copies: Copies,
    method: Span,
    host: Span,
    path: Span,
    query: Option<Span>,
    user_agent: Option<Span>,
    referer: Option<Span>,
    request_id: Option<Span>,
    client: Option<IpAddr>,
    is_http10: bool,
    is_logged: bool,
    is_open: bool,
    rule: Option<Arc<Rule>>,
    pool: Option<Arc<Pool>>,
    server: Option<Arc<Server>>,
    attempts: u32,
    /// Why the answer is ours, or was broken off.
    pub reason: Option<&'static str>,
    /// The answer's status.
    pub status: u16,
    /// Whether the client has begun to get the answer.
    pub is_answer_begun: bool,
    /// Whether the answer ends with the connection, so that a cut must break it.
    pub is_until_close: bool,
    /// Bytes of an answer of our own, its head left out.
    pub own_content: u64,
    /// How long the last connection took to make; `None` where one was waiting.
    pub connect: Option<Duration>,
    /// How long it waited for places at servers; `None` where it did not.
    pub queue: Option<Duration>,
    first_byte: Option<Timestamp>,
}

impl Record {
    /// Forgets all and keeps the memory.
    pub fn clear(&mut self) {
        let mut copies = std::mem::take(&mut self.copies);
        copies.bytes.clear();
        *self = Self { copies, ..Self::default() };
    }

    /// Gives memory beyond `spare` bytes back.
    pub fn shrink_to(&mut self, spare: usize) {
        self.copies.bytes.shrink_to(spare);
    }

    /// A head begins to come.
    pub fn begin(&mut self, now: Timestamp, is_logged: bool) {
        self.started = now;
        self.is_logged = is_logged;
    }

    /// There is a request to account for.
    pub fn open(&mut self) {
        self.is_open = true;
    }

    /// Whether a request has not been accounted for yet.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether anybody will read this.
    pub fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Notes which rule matched.
    pub fn set_rule(&mut self, rule: &Arc<Rule>) {
        if self.is_logged {
            self.rule = Some(Arc::clone(rule));
        }
    }

    /// Notes which pool it named.
    pub fn set_pool(&mut self, pool: &Arc<Pool>) {
        if self.is_logged {
            self.pool = Some(Arc::clone(pool));
        }
    }

    /// Notes which server is asked.
    pub fn set_server(&mut self, server: &Arc<Server>) {
        self.attempts += 1;
        if self.is_logged {
            self.server = Some(Arc::clone(server));
        }
    }

    /// When that was.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Copies what the log shows of the head.
    pub fn describe(&mut self, client: IpAddr, is_http10: bool, described: &Described<'_>) {
        self.client = Some(client);
        self.is_http10 = is_http10;
        let copies = &mut self.copies;
        self.method = copies.add(described.method);
        self.host = copies.add(described.host);
        self.path = copies.add(described.path);
        self.query = described.query.map(|query| copies.add(query));
        self.user_agent = described.user_agent.map(|agent| copies.add(agent));
        self.referer = described.referer.map(|referer| copies.add(referer));
    }

    /// Notes the request's id.
    pub fn set_request_id(&mut self, id: &[u8]) {
        self.request_id = Some(self.copies.add(id));
    }

    /// The server's answer begins to come.
    pub fn first_byte_came(&mut self, now: Timestamp) {
        self.first_byte = Some(now);
    }

    /// The answer goes to the client from now on.
    pub fn answer_begins(&mut self, status: u16) {
        self.status = status;
        self.is_answer_begun = true;
    }

    /// From the request's head to the answer's.
    pub fn latency(&self) -> Option<Duration> {
        self.first_byte.map(|at| at.since(self.started))
    }

    /// Writes the record, where there is a log.
    pub fn settle(&mut self, source: &Source<'_>, bytes_in: u64, bytes_out: u64) {
        self.is_open = false;
        // A panic may have come from within the log.
        let Ok(mut log) = source.worker.log.try_borrow_mut() else { return };
        let Some(log) = &mut *log else { return };
        let client = self.client.unwrap_or_else(|| source.peer.ip().to_canonical());
        let bytes = self.copies.bytes.as_slice();
        log.record(&AccessRecord {
            protocol: match (source.is_http2, self.is_http10) {
                (true, _) => "HTTP/2.0",
                (false, true) => "HTTP/1.0",
                (false, false) => "HTTP/1.1",
            },
            method: self.method.of(bytes),
            host: self.host.of(bytes),
            path: self.path.of(bytes),
            query: self.query.map(|query| query.of(bytes)),
            user_agent: self.user_agent.map(|agent| agent.of(bytes)),
            referer: self.referer.map(|referer| referer.of(bytes)),
            request_id: self.request_id.map(|id| id.of(bytes)),
            status: self.status,
            bytes_in,
            bytes_out: bytes_out + self.own_content,
            total: time::now().since(self.started),
            connect: self.connect,
            queue: self.queue,
            first_byte: self.latency(),
            rule: self.rule.as_ref().map(|rule| rule.name.as_ref()),
            pool: self.pool.as_ref().map(|pool| pool.name.as_ref()),
            server: self.server.as_ref().map(|server| server.id.server.as_ref()),
            attempts: self.attempts,
            reason: self.reason,
            tls: source.tls,
            client_subject: source.identity.map(|identity| identity.subject.as_bytes()),
            ..AccessRecord::new(self.started, client, &source.listener.name)
        });
    }
}

//! What the access log knows of one request. Borrowed from wherever it lies: the log copies it into a line at once.

use std::net::IpAddr;
use std::time::Duration;

use crate::base::time::Timestamp;

/// One request, as it is logged.
///
/// Bytes that came from outside are bytes here: the line's format escapes them.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord<'a> {
    /// When the request's first byte came.
    pub time: Timestamp,
    /// The rightmost untrusted address.
    pub client: IpAddr,
    /// The listener's address as configured.
    pub listener: &'a str,
    /// The version that the client spoke: `HTTP/1.1`.
    pub protocol: &'static str,
    /// The method; empty where the head could not be read.
    pub method: &'a [u8],
    /// The host that the rules saw; empty where there was none.
    pub host: &'a [u8],
    /// The path as it was sent, without the query.
    pub path: &'a [u8],
    /// The query as it was sent, without its `?`.
    pub query: Option<&'a [u8]>,
    /// The status of the answer; 499 where the client went away before it.
    pub status: u16,
    /// Bytes of the answer's content that were sent, framing left out.
    pub bytes_out: u64,
    /// Bytes of the request's content that were read, framing left out.
    pub bytes_in: u64,
    /// From the request's first byte to the answer's last.
    pub total: Duration,
    /// How long the connection to the server took to make; `None` where one was reused, or none needed.
    pub connect: Option<Duration>,
    /// How long the request waited for a place at a server; `None` where it did not.
    pub queue: Option<Duration>,
    /// From the request's first byte to the first of the server's answer.
    pub first_byte: Option<Duration>,
    /// The rule that matched.
    pub rule: Option<&'a str>,
    /// The pool that was used.
    pub pool: Option<&'a str>,
    /// The server that answered, or was tried last.
    pub server: Option<&'a str>,
    /// How often the request was sent to a server.
    pub attempts: u32,
    /// Why Pointsman answered by itself, or broke off.
    pub reason: Option<&'static str>,
    /// `X-Request-Id`, where it is on.
    pub request_id: Option<&'a [u8]>,
    /// The TLS version: `TLSv1.3`.
    pub tls: Option<&'static str>,
    /// The subject of the client's certificate, where it has shown one.
    pub client_subject: Option<&'a [u8]>,
    /// `User-Agent`: the combined format alone writes it.
    pub user_agent: Option<&'a [u8]>,
    /// `Referer`: the combined format alone writes it.
    pub referer: Option<&'a [u8]>,
    /// The number of the decision, where decisions are kept.
    pub decision: Option<u64>,
    /// The hash that the scheduler chose by.
    pub key_hash: Option<u64>,
    /// `Cache-Status` (RFC 9211) of the server's answer.
    pub cache_status: Option<&'a [u8]>,
}

impl<'a> AccessRecord<'a> {
    /// A record of which only this is known: everything else is empty, zero or `None`.
    pub const fn new(time: Timestamp, client: IpAddr, listener: &'a str) -> Self {
        Self {
            time,
            client,
            listener,
            protocol: "HTTP/1.1",
            method: &[],
            host: &[],
            path: &[],
            query: None,
            status: 0,
            bytes_out: 0,
            bytes_in: 0,
            total: Duration::ZERO,
            connect: None,
            queue: None,
            first_byte: None,
            rule: None,
            pool: None,
            server: None,
            attempts: 0,
            reason: None,
            request_id: None,
            tls: None,
            client_subject: None,
            user_agent: None,
            referer: None,
            decision: None,
            key_hash: None,
            cache_status: None,
        }
    }
}

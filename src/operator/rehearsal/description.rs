//! A request in the words of people, and the head that a client would send for it.
//!
//! It refuses to judge them: who asks makes sure that they are one head, and the codec says what it thinks of it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;

use crate::base::id::ListenerIndex;
use crate::pure::config::Expect;
use crate::pure::rule::path::normalize_host;

/// A request as people describe it.
#[derive(Clone, Copy, Debug)]
pub struct RequestDescription<'a> {
    /// The method, a token.
    pub method: &'a str,
    /// `http://` or `https://`, a host, and what a client would send of the rest. Without spaces and fragment.
    pub url: &'a str,
    /// Fields, each of one line. One that is called Host replaces the URL's.
    pub headers: &'a [(String, String)],
    /// The address that the connection comes from.
    pub client: IpAddr,
    /// The listener; `None`: the first that speaks the URL's scheme, else the first.
    pub listener: Option<ListenerIndex>,
}

impl<'a> From<&'a Expect> for RequestDescription<'a> {
    fn from(expect: &'a Expect) -> Self {
        let Expect { method, url, headers, client, listen, .. } = expect;
        Self { method, url, headers, client: *client, listener: *listen }
    }
}

impl RequestDescription<'_> {
    /// Whether the URL asks for TLS.
    pub fn is_https(&self) -> bool {
        self.url.starts_with("https://")
    }

    /// The URL's host and port, and what stands behind them.
    fn authority_and_target(&self) -> (&str, &str) {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        rest.split_at_checked(end).unwrap_or((rest, ""))
    }

    /// The name that a TLS client asks for: the URL's host, never an address (RFC 6066 3).
    pub(super) fn server_name(&self) -> Option<Cow<'_, str>> {
        let host = normalize_host(self.authority_and_target().0.as_bytes());
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        (!is_address && !host.is_empty()).then_some(host)
    }

    /// The head as a client would send it.
    pub(super) fn head(&self) -> Vec<u8> {
        let (authority, target) = self.authority_and_target();
        let slash = if target.starts_with('/') { "" } else { "/" };
        let mut head = format!("{} {slash}{target} HTTP/1.1\r\n", self.method);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            let _ = write!(head, "Host: {authority}\r\n");
        }
        for (name, value) in self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

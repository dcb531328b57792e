//! The agent's own HTTP check, as far as it needs no socket: what is asked of the service, and whether an answer is good.
//!
//! It refuses names that would have to be looked up: the service is on this machine, or its address is known.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// The longest URL, in bytes.
pub const URL_MAX: usize = 2048;
/// So much of an answer is read: its first line is in there.
pub const ANSWER_MAX: usize = 1024;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckUrl {
    /// Whom to connect to.
    pub address: SocketAddr,
    authority: String,
    target: String,
}

/// Why a text is no URL of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckUrlError {
    /// It does not begin with `http://`.
    #[error("a check is asked for as http://ADDRESS:PORT/PATH")]
    Scheme,
    /// The host is a name.
    #[error("a check goes to an IP address or to `localhost`")]
    Host,
    /// It has blanks, control characters or letters beyond ASCII in it, or is too long.
    #[error("it has a character in it that a URL can't have, or more than {URL_MAX} bytes")]
    Character,
}

impl FromStr for CheckUrl {
    type Err = CheckUrlError;

    fn from_str(text: &str) -> Result<Self, CheckUrlError> {
        let rest = text.strip_prefix("http://").ok_or(CheckUrlError::Scheme)?;
        if text.len() > URL_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CheckUrlError::Character);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let target = target.split('#').next().unwrap_or_default();
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let address = address_of(authority).ok_or(CheckUrlError::Host)?;
        Ok(Self { address, authority: authority.to_owned(), target })
    }
}

fn address_of(authority: &str) -> Option<SocketAddr> {
    let with_port = authority.replacen("localhost", "127.0.0.1", usize::from(authority.starts_with("localhost")));
    if let Ok(address) = with_port.parse() {
        return Some(address);
    }
    let bare = with_port.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let ip = match bare {
        Some(v6) => IpAddr::V6(v6.parse().ok()?),
        None => IpAddr::V4(with_port.parse::<Ipv4Addr>().ok()?),
    };
    Some(SocketAddr::new(ip, 80))
}

impl CheckUrl {
    /// The request, whole.
    pub fn request(&self) -> String {
        let Self { authority, target, .. } = self;
        format!(
            "GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: pointsman-agent\r\nConnection: close\r\n\r\n"
        )
    }
}

/// Whether the beginning of an answer is that of a good one, a status of 200 to 399; `None`: more of it is needed.
pub fn is_good_answer(answer: &[u8]) -> Option<bool> {
    let Some(end) = answer.iter().position(|byte| *byte == b'\n') else {
        return (answer.len() >= ANSWER_MAX).then_some(false);
    };
    let line = std::str::from_utf8(answer.get(..end)?).unwrap_or_default();
    let mut words = line.split(' ');
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let status = words.next().and_then(|status| status.trim_end().parse::<u16>().ok());
    Some(is_http && status.is_some_and(|status| (200..400).contains(&status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_goes_to_an_address() {
        for (text, address, first) in [
            (
                "http://127.0.0.1:8080/health?x=1#top",
                "127.0.0.1:8080",
                "GET /health?x=1 HTTP/1.1\r\nHost: 127.0.0.1:8080",
            ),
            ("http://localhost:81", "127.0.0.1:81", "GET / HTTP/1.1\r\nHost: localhost:81"),
            ("http://10.0.0.1", "10.0.0.1:80", "GET / HTTP/1.1\r\nHost: 10.0.0.1"),
            ("http://[::1]/a", "[::1]:80", "GET /a HTTP/1.1\r\nHost: [::1]"),
            ("http://[::1]:5?q", "[::1]:5", "GET /?q HTTP/1.1\r\nHost: [::1]:5"),
        ] {
            let url: CheckUrl = text.parse().unwrap();
            assert_eq!(url.address, address.parse().unwrap(), "{text}");
            assert!(url.request().starts_with(&format!("{first}\r\n")), "{}", url.request());
        }
        for (text, error) in [
            ("https://127.0.0.1/", CheckUrlError::Scheme),
            ("http://example.com/", CheckUrlError::Host),
            ("http://user@127.0.0.1/", CheckUrlError::Host),
            ("http://127.0.0.1/a b", CheckUrlError::Character),
            ("http://127.0.0.1/a\r\nX: y", CheckUrlError::Character),
        ] {
            assert_eq!(text.parse::<CheckUrl>(), Err(error), "{text}");
        }
    }

    #[test]
    fn an_answer_is_good_by_its_first_line() {
        for (answer, is_good) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], Some(true)),
            (b"HTTP/1.0 302\r\n", Some(true)),
            (b"HTTP/1.1 503 Busy\r\n", Some(false)),
            (b"HTTP/1.1 100 Continue\r\n", Some(false)),
            (b"SSH-2.0\r\n", Some(false)),
            (b"\xff\n", Some(false)),
            (b"HTTP/1.1 200 OK", None),
            (b"", None),
            (&[b'a'; ANSWER_MAX], Some(false)),
        ] {
            assert_eq!(is_good_answer(answer), is_good, "{answer:?}");
        }
    }
}

//! An HTTP/1.1 request head, as servers get it, as the head of an HTTP/2 request (RFC 9113 8.3, RFC 8441).
//!
//! Host becomes `:authority`, names become lower case, and what concerns one connection alone stays behind; of TE only
//! `trailers` goes on. An upgrade becomes an extended CONNECT. Bytes that may not stand in a URI are escaped. Cookies and
//! credentials are marked so that HPACK never indexes them: the connection's table is shared by all clients. It refuses to
//! judge the head, which comes from our own writer, and to know whether the server takes an extended CONNECT.

use std::fmt::Write as _;

use http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version, header};

use crate::pure::h1::request::RequestHead;
use crate::pure::head::Known;

/// A request for a server.
#[derive(Debug)]
pub struct ServerRequest {
    /// Its head.
    pub request: Request<()>,
    /// The upgrade that an extended CONNECT asks for; `None` for an ordinary request.
    pub tunnel: Option<Tunnel>,
}

/// An upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The protocol, as Upgrade named it; `websocket` in lower case.
    pub protocol: String,
    /// The client's `Sec-WebSocket-Key`, which HTTP/2 does not know (RFC 8441 5).
    pub key: Option<Vec<u8>>,
}

/// A head that can't be said in HTTP/2: a target of more than 65534 bytes, or one that is no HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request can't be said in HTTP/2")]
pub struct Unmappable;

/// The request of `head`, which was parsed from `bytes`; `is_tls` says how the server is reached.
///
/// # Errors
/// [`Unmappable`].
pub fn server_request(head: &RequestHead, bytes: &[u8], is_tls: bool) -> Result<ServerRequest, Unmappable> {
    let mut fields = HeaderMap::with_capacity(head.fields.len());
    let mut key = None;
    for field in &head.fields {
        let (name, value) = (field.name.of(bytes), field.value.of(bytes));
        if field.hop_by_hop || field.known == Known::Host {
            continue;
        }
        if !head.upgrade.is_empty() && name.eq_ignore_ascii_case(b"sec-websocket-key") {
            key = Some(value.to_vec());
            continue;
        }
        let name = HeaderName::from_bytes(name).map_err(|_| Unmappable)?;
        let mut value = HeaderValue::from_bytes(value).map_err(|_| Unmappable)?;
        value.set_sensitive(matches!(name, COOKIE | header::AUTHORIZATION | header::PROXY_AUTHORIZATION));
        fields.try_append(name, value).map_err(|_| Unmappable)?;
    }
    if head.takes_trailers {
        fields.try_append(TE, HeaderValue::from_static("trailers")).map_err(|_| Unmappable)?;
    }
    let tunnel = match head.upgrade.of(bytes) {
        [] => None,
        // Its registered name; what compares it need not fold the case (RFC 8441 4).
        token if token.eq_ignore_ascii_case(b"websocket") => Some(Tunnel { protocol: "websocket".to_owned(), key }),
        token => Some(Tunnel { protocol: str::from_utf8(token).map_err(|_| Unmappable)?.to_owned(), key }),
    };
    let mut request = Request::new(());
    *request.method_mut() = match tunnel {
        Some(_) => Method::CONNECT,
        None => Method::from_bytes(head.method.of(bytes)).map_err(|_| Unmappable)?,
    };
    let uri = uri(head, bytes, is_tls)?;
    // Without an authority the target is that of an HTTP/1.1 request: what writes the frames knows it by the version.
    *request.version_mut() = if uri.authority().is_some() { Version::HTTP_2 } else { Version::HTTP_11 };
    *request.uri_mut() = uri;
    *request.headers_mut() = fields;
    Ok(ServerRequest { request, tunnel })
}

fn uri(head: &RequestHead, bytes: &[u8], is_tls: bool) -> Result<Uri, Unmappable> {
    let target = match head.path_and_query.of(bytes) {
        // An absolute target without a path; for OPTIONS `*` is meant (RFC 9113 8.3.1).
        [] if head.method.of(bytes) == b"OPTIONS" => b"*",
        [] => b"/",
        target => target,
    };
    let path = match PathAndQuery::try_from(target) {
        Ok(path) if path.as_str().len() == target.len() && matches!(target, [b'/' | b'*', ..]) => path,
        Ok(_) | Err(_) => PathAndQuery::try_from(escaped(target)).map_err(|_| Unmappable)?,
    };
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path);
    let authority = head.authority.of(bytes);
    if !authority.is_empty() {
        parts.authority = Some(Authority::try_from(authority).map_err(|_| Unmappable)?);
        parts.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    }
    Uri::from_parts(parts).map_err(|_| Unmappable)
}

/// The target with every byte escaped that may not stand in one (RFC 3986 3.3, 3.4).
fn escaped(target: &[u8]) -> String {
    let mut text = String::with_capacity(target.len() + 16);
    if target.first() == Some(&b'?') {
        text.push('/');
    }
    for byte in target {
        match byte {
            b'!' | b'$'..=b';' | b'=' | b'?'..=b'Z' | b'_' | b'a'..=b'z' | b'~' => text.push(char::from(*byte)),
            _ => _ = write!(text, "%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests;

//! Heads as they are passed on: what is taken out, what is put in (RFC 9110 7.6, RFC 7239).
//!
//! Field lines that stay are copied in runs, byte for byte, so that order, case and spacing are the sender's. It refuses to
//! decide: trust, rules and framing come in as arguments.

mod address_text;
mod chain;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use self::address_text::AddressText;
use self::chain::Hop;
use crate::pure::config::Listener;
use crate::pure::h1::authority::parse_authority;
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::encode::{push_all, push_decimal};
use crate::pure::h1::request::{RequestHead, TargetForm, Version};
use crate::pure::h1::response::ResponseHead;
use crate::pure::head::{Field, Fields, Known};
use crate::pure::rule::change::{UnsafeTarget, Values, push_field_value};
use crate::pure::rule::{FieldChange, Rule};
use crate::pure::trust::is_trusted;

/// Changes of fields that a rule makes, its templates expanded.
#[derive(Debug, Default)]
pub struct FieldEdits {
    rule: Option<Arc<Rule>>,
    is_response: bool,
    added: Vec<u8>,
}

impl FieldEdits {
    /// Forgets all changes and keeps the memory.
    pub fn clear(&mut self) {
        self.rule = None;
        self.added.clear();
    }

    /// Gives memory beyond `spare` bytes back.
    pub fn shrink_to(&mut self, spare: usize) {
        self.added.shrink_to(spare);
    }

    /// Whether nothing changes.
    pub const fn is_empty(&self) -> bool {
        self.rule.is_none()
    }

    /// Takes up the changes that `rule` makes to requests, or to answers.
    ///
    /// # Errors
    /// [`UnsafeTarget`] where Host would become something that is none: the request must be refused. Its own Host would
    /// lead elsewhere than the rule wants.
    pub fn set(&mut self, rule: &Arc<Rule>, is_response: bool, values: &Values<'_>) -> Result<(), UnsafeTarget> {
        self.is_response = is_response;
        let changes = if is_response { &rule.changes.response } else { &rule.changes.request };
        if changes.is_empty() {
            return Ok(());
        }
        self.rule = Some(Arc::clone(rule));
        for (index, change) in changes.iter().enumerate() {
            let (FieldChange::Set(name, value) | FieldChange::Add(name, value)) = change else { continue };
            // What a later change takes away does not come.
            if changes.iter().skip(index + 1).any(|later| takes_away(later, name.as_bytes())) {
                continue;
            }
            let line = self.added.len();
            self.added.extend_from_slice(name.as_bytes());
            self.added.extend_from_slice(b": ");
            let value_at = self.added.len();
            push_field_value(value, values, &mut self.added);
            let written = self.added.get(value_at..).unwrap_or_default();
            if Known::of(name.as_bytes()) == Known::Host && parse_authority(written).is_none() {
                return Err(UnsafeTarget);
            }
            if self.added.len() == value_at {
                self.added.truncate(line);
            } else {
                self.added.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }

    /// The lines that come, each with its CRLF.
    pub fn added(&self) -> &[u8] {
        &self.added
    }

    /// Whether lines of that name go.
    pub fn removes(&self, name: &[u8]) -> bool {
        let Some(rule) = &self.rule else { return false };
        let changes = if self.is_response { &rule.changes.response } else { &rule.changes.request };
        changes.iter().any(|change| takes_away(change, name))
    }

    /// The rule whose changes these are, where there are any.
    pub const fn rule(&self) -> Option<&Arc<Rule>> {
        self.rule.as_ref()
    }
}

/// Appends the trailer lines of a request that `rule` does not take away: what it sets or removes comes from no client.
pub fn push_trailers_left(out: &mut Vec<u8>, lines: &[u8], rule: &Rule) {
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        if !rule.changes.request.iter().any(|change| takes_away(change, name)) {
            out.extend_from_slice(line);
        }
    }
}

fn takes_away(change: &FieldChange, name: &[u8]) -> bool {
    match change {
        FieldChange::Set(taken, _) | FieldChange::Remove(taken) => taken.as_bytes().eq_ignore_ascii_case(name),
        FieldChange::Add(..) => false,
    }
}

/// What the exchange knows of where a request came from and what is to be said of it.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// Our end of the connection.
    pub local: SocketAddr,
    /// Whether the peer's own forwarding fields are believed.
    pub is_trusted: bool,
    /// Whether the connection is TLS.
    pub is_tls: bool,
    /// Whether it speaks HTTP/2.
    pub is_http2: bool,
    /// Whether `Via` is added.
    pub via: bool,
}

impl Origin {
    /// That of a request from `peer` that came in by `listener`, at our address `local`.
    pub fn of(listener: &Listener, peer: SocketAddr, local: SocketAddr) -> Self {
        Self {
            peer,
            local,
            is_trusted: is_trusted(peer.ip(), &listener.trusted_proxies),
            is_tls: listener.tls.is_some(),
            is_http2: false,
            via: listener.via,
        }
    }
}

/// A request head to be passed on.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedRequest<'a> {
    /// The head as parsed.
    pub head: &'a RequestHead,
    /// The bytes it was parsed from.
    pub bytes: &'a [u8],
    /// The target where a rule rewrote it.
    pub target: Option<&'a [u8]>,
    /// Where it came from.
    pub origin: Origin,
    /// A request id to add; the client sent none. The rule's own beats it.
    pub request_id: Option<&'a str>,
    /// The upgrade token to ask for.
    pub upgrade: Option<&'a [u8]>,
    /// The rule's changes.
    pub edits: &'a FieldEdits,
}

/// How far a request may still go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hops {
    /// Anywhere.
    Any,
    /// No further: it is answered here.
    Over,
    /// Through so many proxies more; this is what Max-Forwards says from here on.
    Left(u32),
}

/// Takes a hop off the Max-Forwards of an OPTIONS or TRACE request (RFC 9110 7.6.2). The client's line is left out of what
/// is passed on then. What is no number limits nothing and is passed on.
#[inline]
pub fn take_hop(head: &mut RequestHead, bytes: &[u8]) -> Hops {
    if matches!(head.method.of(bytes), b"OPTIONS" | b"TRACE") { take_limited_hop(head, bytes) } else { Hops::Any }
}

#[cold]
fn take_limited_hop(head: &mut RequestHead, bytes: &[u8]) -> Hops {
    let mut hops = Hops::Any;
    for field in head.fields.iter_mut().filter(|field| field.name.of(bytes).eq_ignore_ascii_case(MAX_FORWARDS)) {
        let Some(value) = decimal_value(field.value.of(bytes)) else { continue };
        field.hop_by_hop = true;
        hops = match (value.checked_sub(1), hops) {
            (None, _) | (_, Hops::Over) => Hops::Over,
            (Some(left), Hops::Any) => Hops::Left(left),
            (Some(left), Hops::Left(least)) => Hops::Left(left.min(least)),
        };
    }
    hops
}

const MAX_FORWARDS: &[u8] = b"Max-Forwards";

/// The number that digits make, or the largest there is.
fn decimal_value(digits: &[u8]) -> Option<u32> {
    let add = |number: u32, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// Puts Max-Forwards behind the fields of the request head that `out` ends with.
pub fn push_max_forwards(out: &mut Vec<u8>, left: u32) {
    out.truncate(out.len().saturating_sub(2));
    push_all(out, [MAX_FORWARDS, b": "]);
    push_decimal(out, u64::from(left));
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends the head that a server gets, in HTTP/1.1.
pub fn push_request_head(out: &mut Vec<u8>, request: &ForwardedRequest<'_>) {
    let ForwardedRequest { head, bytes, origin, edits, .. } = *request;
    push_request_line(out, request);
    let authority = head.authority.of(bytes);
    let is_absolute = head.form == Some(TargetForm::Absolute);
    let mut has_host = false;
    copy_fields(out, bytes, &head.fields, head.length, |field| match field.known {
        Known::Host => {
            has_host = !is_absolute;
            has_host && !edits.removes(b"host")
        }
        Known::XForwardedFor | Known::Forwarded => false,
        // An empty one, for otherwise none would be made.
        Known::XRequestId if request.request_id.is_some() => false,
        Known::XForwardedHost | Known::XForwardedPort | Known::XForwardedProto if !origin.is_trusted => false,
        _ => !field.hop_by_hop && !edits.removes(field.name.of(bytes)),
    });
    if !has_host && !edits.removes(b"host") {
        out.extend_from_slice(b"Host: ");
        if is_absolute {
            out.extend_from_slice(authority);
        } else {
            // HTTP/1.0 without Host (RFC 9112 3.2): the address that the client has called.
            let _ = write!(out, "{}", origin.local);
        }
        out.extend_from_slice(b"\r\n");
    }
    push_forwarding_fields(out, request);
    if let Some(id) = request.request_id.filter(|_| !edits.removes(b"x-request-id")) {
        push_line(out, b"X-Request-Id: ", id.as_bytes());
    }
    match request.upgrade {
        Some(token) => {
            out.extend_from_slice(b"Connection: Upgrade\r\n");
            push_line(out, b"Upgrade: ", token);
        }
        None if head.takes_trailers => out.extend_from_slice(b"TE: trailers\r\nConnection: TE\r\n"),
        None => {}
    }
    if head.body == BodyLength::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    out.extend_from_slice(edits.added());
    out.extend_from_slice(b"\r\n");
}

fn push_request_line(out: &mut Vec<u8>, request: &ForwardedRequest<'_>) {
    let ForwardedRequest { head, bytes, .. } = *request;
    out.extend_from_slice(head.method.of(bytes));
    out.push(b' ');
    match request.target {
        Some(target) => out.extend_from_slice(target),
        None => {
            let target = head.path_and_query.of(bytes);
            match target.first() {
                Some(b'/' | b'*') => {}
                // An absolute target without a path: `http://a.test` or `http://a.test?q`. For OPTIONS the first means `*`
                // (RFC 9112 3.2.4).
                None if head.method.of(bytes) == b"OPTIONS" => out.push(b'*'),
                Some(_) | None => out.push(b'/'),
            }
            out.extend_from_slice(target);
        }
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

fn push_forwarding_fields(out: &mut Vec<u8>, request: &ForwardedRequest<'_>) {
    let ForwardedRequest { head, bytes, origin, edits, .. } = *request;
    let fields = Fields { bytes, list: &head.fields };
    let host = head.authority.of(bytes);
    let proto: &[u8] = if origin.is_tls { b"https" } else { b"http" };
    let peer = AddressText::of(origin.peer.ip());

    if !origin.is_trusted && edits.is_empty() && !host.is_empty() && !peer.is_v6 {
        push_usual_fields(out, &origin, &peer, host, via_line(origin.is_http2, head.version));
        return;
    }
    let spoken = Spoken::by(&origin, &head.fields);
    push_x_forwarded(out, request, &peer, proto, spoken);
    if !edits.removes(b"forwarded") {
        let ours = Hop { peer: &peer, host, proto };
        let start = out.len();
        if spoken == Spoken::XForwarded {
            if chain::push_forwarded(out, fields, ours).is_none() {
                out.truncate(start);
            }
        } else {
            out.extend_from_slice(b"Forwarded: ");
            // Behind a quote that is not closed, ours would be a part of somebody's text.
            if origin.is_trusted && fields.known(Known::Forwarded).all(chain::is_whole) {
                push_list(out, fields.known(Known::Forwarded));
            }
            push_element(out, &ours);
            out.extend_from_slice(b"\r\n");
        }
    }
    if origin.via && !edits.removes(b"via") {
        out.extend_from_slice(via_line(origin.is_http2, head.version));
    }
}

/// The `X-Forwarded-*` fields. Where the proxy before us speaks `Forwarded` alone and no list can be made of it, there are
/// none: ours alone would contradict it.
fn push_x_forwarded(
    out: &mut Vec<u8>,
    request: &ForwardedRequest<'_>,
    peer: &AddressText,
    proto: &[u8],
    spoken: Spoken,
) {
    let ForwardedRequest { head, bytes, origin, edits, .. } = *request;
    let fields = Fields { bytes, list: &head.fields };
    let had = |known: Known| origin.is_trusted && head.fields.iter().any(|field| field.known == known);
    let (mut host, mut proto) = (head.authority.of(bytes), proto);
    let start = out.len();
    if spoken == Spoken::Forwarded {
        if chain::push_for_list(out, fields, peer).is_none() {
            out.truncate(start);
            return;
        }
        let (first_proto, first_host) = chain::first_claims(fields);
        proto = if first_proto.is_empty() { proto } else { first_proto };
        host = if first_host.is_empty() { host } else { first_host };
    } else {
        out.extend_from_slice(b"X-Forwarded-For: ");
        if origin.is_trusted {
            push_list(out, fields.known(Known::XForwardedFor));
        }
        push_line(out, b"", peer.bytes());
    }
    if edits.removes(b"x-forwarded-for") {
        out.truncate(start);
    }
    if !had(Known::XForwardedProto) && !edits.removes(b"x-forwarded-proto") {
        push_line(out, b"X-Forwarded-Proto: ", proto);
    }
    if !host.is_empty() && !had(Known::XForwardedHost) && !edits.removes(b"x-forwarded-host") {
        push_line(out, b"X-Forwarded-Host: ", host);
    }
    if !had(Known::XForwardedPort) && !edits.removes(b"x-forwarded-port") {
        out.extend_from_slice(b"X-Forwarded-Port: ");
        push_decimal(out, u64::from(origin.local.port()));
        out.extend_from_slice(b"\r\n");
    }
}

/// In which fields a proxy that is believed says where a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    /// In none, or in both: each is continued as it is.
    NoneOrBoth,
    /// In `X-Forwarded-For`, `-Host` or `-Proto` alone.
    XForwarded,
    /// In `Forwarded`, and no `X-Forwarded-For`.
    Forwarded,
}

impl Spoken {
    fn by(origin: &Origin, fields: &[Field]) -> Self {
        let has = |known: Known| origin.is_trusted && fields.iter().any(|field| field.known == known);
        let has_list = has(Known::XForwardedFor);
        match (has_list || has(Known::XForwardedProto) || has(Known::XForwardedHost), has(Known::Forwarded)) {
            (true, false) => Self::XForwarded,
            (_, true) if !has_list => Self::Forwarded,
            (false, _) | (true, true) => Self::NoneOrBoth,
        }
    }
}

/// The fields as nearly all requests get them, in few pieces: what the general way writes for a stranger with an IPv4
/// address, by a test.
fn push_usual_fields(out: &mut Vec<u8>, origin: &Origin, peer: &AddressText, host: &[u8], via: &[u8]) {
    let (before_host, end): (&[u8], &[u8]) = if origin.is_tls {
        (b"\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: ", b"\";proto=https\r\n")
    } else {
        (b"\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: ", b"\";proto=http\r\n")
    };
    let mut port = [0u8; 5];
    let port = decimal(&mut port, origin.local.port());
    let peer = peer.bytes();
    push_all(out, [b"X-Forwarded-For: ", peer, before_host, host, b"\r\nX-Forwarded-Port: ", port]);
    push_all(out, [b"\r\nForwarded: for=", peer, b";host=\"", host, end]);
    if origin.via {
        out.extend_from_slice(via);
    }
}

/// A port in decimal digits.
fn decimal(room: &mut [u8; 5], mut number: u16) -> &[u8] {
    let mut at = room.len();
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        at -= 1;
        if number == 0 {
            break;
        }
    }
    room.get(at..).unwrap_or(&[])
}

/// The Via of an answer (RFC 9110 7.6.3): by which protocol it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseVia {
    /// There is to be none.
    None,
    /// HTTP/1, whose version its head says.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The Via line of what came by that protocol.
const fn via_line(is_http2: bool, version: Version) -> &'static [u8] {
    match (is_http2, version) {
        (true, _) => b"Via: 2.0 pointsman\r\n",
        (false, Version::Http10) => b"Via: 1.0 pointsman\r\n",
        (false, Version::Http11) => b"Via: 1.1 pointsman\r\n",
    }
}

/// One element of `Forwarded` (RFC 7239 4). An IPv6 address and a host with a port are quoted.
fn push_element(out: &mut Vec<u8>, hop: &Hop<'_>) {
    let (before, after): (&[u8], &[u8]) = if hop.peer.is_v6 { (b"for=\"[", b"]\"") } else { (b"for=", b"") };
    push_all(out, [before, hop.peer.bytes(), after]);
    if !hop.host.is_empty() {
        push_all(out, [b";host=\"", hop.host, b"\""]);
    }
    if !hop.proto.is_empty() {
        push_all(out, [b";proto=", hop.proto]);
    }
}

/// How a response is framed towards a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFraming {
    /// As the server's own fields say: a length, or no body at all.
    AsSent,
    /// In chunks.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// What `Connection` says to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientConnection<'a> {
    /// Nothing: an HTTP/1.1 connection is kept.
    Keep,
    /// `keep-alive`, for an HTTP/1.0 client that asked for it.
    KeepAlive,
    /// `close`.
    Close,
    /// `upgrade`, to this protocol.
    Upgrade(&'a [u8]),
}

/// Appends the head that a client gets, in HTTP/1.1.
pub fn push_response_head(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    bytes: &[u8],
    framing: ClientFraming,
    connection: ClientConnection<'_>,
    via: ResponseVia,
    edits: &FieldEdits,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(out, u64::from(head.status));
    out.push(b' ');
    out.extend_from_slice(head.reason.of(bytes));
    out.extend_from_slice(b"\r\n");
    copy_fields(out, bytes, &head.fields, head.length, |field| {
        !field.hop_by_hop && !edits.removes(field.name.of(bytes))
    });
    if via != ResponseVia::None && !edits.removes(b"via") {
        out.extend_from_slice(via_line(via == ResponseVia::Http2, head.version));
    }
    out.extend_from_slice(edits.added());
    if framing == ClientFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    push_connection(out, connection);
    out.extend_from_slice(b"\r\n");
}

/// Appends the Connection field, and Upgrade where it names one.
pub fn push_connection(out: &mut Vec<u8>, connection: ClientConnection<'_>) {
    match connection {
        ClientConnection::Keep => {}
        ClientConnection::KeepAlive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        ClientConnection::Close => out.extend_from_slice(b"Connection: close\r\n"),
        ClientConnection::Upgrade(token) => {
            out.extend_from_slice(b"Connection: Upgrade\r\n");
            push_line(out, b"Upgrade: ", token);
        }
    }
}

/// Copies the field lines that `keeps` wants, as they were sent. `end` is the length of the whole head. Lines are known to
/// end in CRLF and to stand one behind the other, so neighbours are copied together.
fn copy_fields(out: &mut Vec<u8>, bytes: &[u8], fields: &[Field], end: usize, mut keeps: impl FnMut(&Field) -> bool) {
    let Some(first) = fields.first() else { return };
    let mut run = first.name.start as usize;
    for (index, field) in fields.iter().enumerate() {
        if keeps(field) {
            continue;
        }
        out.extend_from_slice(bytes.get(run..field.name.start as usize).unwrap_or(&[]));
        run = match fields.get(index + 1) {
            Some(next) => next.name.start as usize,
            None => return,
        };
    }
    out.extend_from_slice(bytes.get(run..end.saturating_sub(2)).unwrap_or(&[]));
}

fn push_list<'b>(out: &mut Vec<u8>, values: impl Iterator<Item = &'b [u8]>) {
    for value in values.filter(|value| !value.is_empty()) {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
}

fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    push_all(out, [name, value, b"\r\n"]);
}

#[cfg(test)]
mod tests;

//! What must hold for any head that is passed on, in the product's own writing: the next parser reads one message that says
//! the same, framed once, with the fields that go from end to end and, of those that don't, only ours.
//!
//! The first two bytes of an input say what the rest is and under which circumstances it is passed on.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use pointsman::base::id::ListenerIndex;
use pointsman::base::rng::Rng;
use pointsman::pure::config::{AmbiguousPaths, load_text};
use pointsman::pure::decision::{Changed, Question, Seen, decide};
use pointsman::pure::forwarding::{
    ClientConnection, ClientFraming, FieldEdits, ForwardedRequest, Origin, ResponseVia, push_request_head,
    push_response_head,
};
use pointsman::pure::h1::authority::parse_authority;
use pointsman::pure::h1::body::BodyLength;
use pointsman::pure::h1::request::{HeadLimits, Parsed, RequestHead, TargetForm, Version};
use pointsman::pure::h1::response::ResponseHead;
use pointsman::pure::head::{Field, Fields, Known};
use pointsman::pure::refusal::Refusal;
use pointsman::pure::rule::Cidr;
use pointsman::pure::rule::captures::Captures;
use pointsman::pure::rule::compile::RuleSet;
use pointsman::pure::trace::Trace;
use pointsman::pure::trust::client_address;

use crate::codec::{LIMITS, check_unambiguous, parse_request, parse_response};

/// For what is passed on: lines are added, and rules put parts of the request into several places, escaped.
const WIDER: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 48 };

const PEERS: [&str; 4] = ["192.0.2.7:4711", "[2001:db8::7]:4711", "[::ffff:192.0.2.7]:4711", "255.255.255.255:65535"];
const LOCALS: [&str; 2] = ["198.51.100.1:80", "[2001:db8::1]:8443"];

/// Rules that put what a client chooses into paths and fields.
const RULES: &str = r##"
listen "127.0.0.1:80"
pool "a" { server "a1" "127.0.0.1:1" }
rule path="/u/{id}/{*rest}" rewrite="/{id}/x?r={rest}" use="a" {
    set-request-header "X-Id" "{id}"
    add-request-header "X-Query" "{query}"
    remove-request-header "X-Secret"
    set-request-header "X-Request-Id" "{id}"
}
rule path="/v{x}" rewrite="/{x}" use="a" { set-request-header "Host" "{x}.test" }
rule path="/h/{name}" use="a" { set-request-header "Host" "{name}" }
rule path-regex=#"^/r/(.*)$"# rewrite="/$1" use="a" { set-request-header "Host" "{host}" }
rule path="/s/{*rest}" strip-prefix="/s" use="a" { set-request-header "Forwarded" "" }
rule method="POST" rewrite="{uri}" use="a" { set-request-header "X-Uri" "{uri}" }
rule use="a" {
    set-request-header "X-Uri" "{scheme}://{host}{uri} {client} {method}"
    set-response-header "Server" "{host}"
    add-response-header "X-Path" "{path}"
    remove-response-header "X-Secret"
}
"##;

static COMPILED: LazyLock<RuleSet> = LazyLock::new(|| RuleSet::compile(load_text(RULES).unwrap().rules).unwrap());

/// A head that is passed on: a request's, or an answer's where the lowest bit of the first byte is set.
pub fn forwarded_head(input: &[u8]) -> bool {
    match input {
        [kind, plan, head @ ..] if kind & 1 == 0 => forwarded_request(Bits(*kind), Bits(*plan), head),
        [kind, plan, head @ ..] => forwarded_response(Bits(*kind), Bits(*plan), head),
        _ => false,
    }
}

/// Circumstances, a bit each.
#[derive(Clone, Copy)]
struct Bits(u8);

impl Bits {
    fn has(self, bit: u8) -> bool {
        self.0 >> bit & 1 == 1
    }
}

fn forwarded_request(kind: Bits, plan: Bits, input: &[u8]) -> bool {
    let mut head = RequestHead::default();
    if parse_request(input, LIMITS, [input.len()], &mut head) != Ok(Parsed::Complete) {
        return false;
    }
    let peer: SocketAddr = PEERS[usize::from(kind.0 >> 1 & 3)].parse().unwrap();
    let local: SocketAddr = LOCALS[usize::from(kind.has(3))].parse().unwrap();
    let (is_trusted, is_tls, via) = (plan.has(0), plan.has(1), plan.has(2));
    let origin = Origin { peer, local, is_trusted, is_tls, is_http2: false, via };
    let mut changed = Changed::default();
    if plan.has(3) && !change(input, &head, peer.ip(), &mut changed) {
        return false;
    }
    let fields = Fields { bytes: input, list: &head.fields };
    let has_id = fields.known(Known::XRequestId).any(|id| !id.is_empty());
    let forwarded = ForwardedRequest {
        head: &head,
        bytes: input,
        target: changed.is_rewritten.then_some(changed.target.as_slice()),
        origin,
        request_id: (plan.has(4) && !has_id).then_some("0123456789abcdef"),
        upgrade: upgrade_token(head.upgrade.of(input)).filter(|_| plan.has(5) && head.body == BodyLength::None),
        edits: &changed.request,
    };
    let mut out = Vec::new();
    push_request_head(&mut out, &forwarded);
    check_request(&forwarded, &out);
    true
}

/// What the rules change of a request; `false` where they refuse it.
fn change(bytes: &[u8], head: &RequestHead, peer: IpAddr, changed: &mut Changed) -> bool {
    let seen = Seen::of(head, bytes, peer, &[]);
    let mut scratch = String::new();
    let Ok(path) = seen.path(AmbiguousPaths::RejectUnsafe, &mut scratch) else { return false };
    let view = seen.view(ListenerIndex(0), path, None);
    let question = Question { view: &view, scheme: "http", rng: &mut Rng::new(1) };
    match decide(&COMPILED, question, &mut Captures::new(), changed, &mut Trace::off()) {
        Ok(_) => true,
        Err(refusal) => {
            assert_eq!(refusal, Refusal::AmbiguousPath, "the last rule takes all");
            false
        }
    }
}

/// The first token of an offer that is one that a rule can allow.
fn upgrade_token(offer: &[u8]) -> Option<&[u8]> {
    offer.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).find(|token| token.eq_ignore_ascii_case(b"websocket"))
}

fn check_request(request: &ForwardedRequest<'_>, out: &[u8]) {
    let ForwardedRequest { head, bytes, origin, edits, .. } = *request;
    let mut again = RequestHead::default();
    assert_eq!(parse_request(out, WIDER, [out.len()], &mut again), Ok(Parsed::Complete), "{}", out.escape_ascii());
    assert_eq!(again.length, out.len(), "one request");
    check_unambiguous(out);
    let mut lines = [httparse::EMPTY_HEADER; WIDER.fields];
    let mut other = httparse::Request::new(&mut lines);
    if str::from_utf8(again.target.of(out)).is_ok() {
        assert_eq!(other.parse(out), Ok(httparse::Status::Complete(out.len())));
        assert_eq!(other.headers.len(), again.fields.len());
    }

    assert_eq!((again.version, again.keep_alive), (Version::Http11, true));
    assert_eq!((again.body, again.method.of(out)), (head.body, head.method.of(bytes)));
    assert_eq!(again.target.of(out), wanted_target(request).as_slice());
    assert_eq!(again.expects_continue, head.expects_continue);
    assert_eq!(again.takes_trailers, head.takes_trailers && request.upgrade.is_none());
    assert_eq!(again.upgrade.of(out), request.upgrade.unwrap_or_default());
    if request.target.is_some() {
        let (mut scratch, seen) = (String::new(), Seen::of(&again, out, origin.peer.ip(), &[]));
        assert!(seen.path(AmbiguousPaths::RejectUnsafe, &mut scratch).is_ok(), "a rewritten path is a clear one");
    }

    let ours: &[&[u8]] = match (request.upgrade, head.takes_trailers) {
        (Some(_), _) => &[b"Connection", b"Upgrade"],
        (None, true) => &[b"TE", b"Connection"],
        (None, false) => &[],
    };
    check_hop_by_hop(out, &again.fields, ours, again.body == BodyLength::Chunked);
    check_host(request, out, &again);
    check_forwarding_fields(request, out, &again);
    assert_eq!(end_to_end(out, &again.fields, &FieldEdits::default()), passed(bytes, &head.fields, edits));
}

fn wanted_target(request: &ForwardedRequest<'_>) -> Vec<u8> {
    let sent = request.head.path_and_query.of(request.bytes);
    match request.target {
        Some(target) => target.to_vec(),
        None if sent.is_empty() && request.head.method.of(request.bytes) == b"OPTIONS" => b"*".to_vec(),
        None if matches!(sent, [] | [b'?', ..]) => [b"/", sent].concat(),
        None => sent.to_vec(),
    }
}

/// Of the fields that concern one connection there are ours, in that order, and the coding where there is one.
fn check_hop_by_hop(out: &[u8], fields: &[Field], ours: &[&[u8]], is_chunked: bool) {
    let mut names: Vec<_> = fields.iter().filter(|field| field.hop_by_hop).map(|field| field.name.of(out)).collect();
    names.retain(|name| *name != b"Transfer-Encoding");
    assert_eq!(names, ours);
    let codings = Fields { bytes: out, list: fields }.known(Known::TransferEncoding);
    let wanted: &[&[u8]] = if is_chunked { &[b"chunked"] } else { &[] };
    assert_eq!(codings.collect::<Vec<_>>(), wanted);
}

/// One Host: the rule's where it is one, else the client's.
fn check_host(request: &ForwardedRequest<'_>, out: &[u8], again: &RequestHead) {
    let ForwardedRequest { head, bytes, origin, edits, .. } = *request;
    let hosts: Vec<_> = Fields { bytes: out, list: &again.fields }.known(Known::Host).collect();
    let [host] = hosts[..] else { panic!("one Host, not {}", hosts.len()) };
    if edits.removes(b"host") {
        assert!(parse_authority(host).is_some());
        return;
    }
    let has_own = head.form == Some(TargetForm::Absolute) || head.fields.iter().any(|field| field.known == Known::Host);
    let local = origin.local.to_string();
    assert_eq!(host, if has_own { head.authority.of(bytes) } else { local.as_bytes() });
}

/// What is said of the client: once each, and a server that trusts this proxy alone finds the peer in it, whatever the
/// client sent.
fn check_forwarding_fields(request: &ForwardedRequest<'_>, out: &[u8], again: &RequestHead) {
    let ForwardedRequest { origin, edits, .. } = *request;
    let fields = Fields { bytes: out, list: &again.fields };
    let proxy: IpAddr = [192, 0, 2, 254].into();
    let trusted = [Cidr { address: proxy, prefix: 32 }];
    let peer = origin.peer.ip().to_canonical();
    let says = |known: Known| again.fields.iter().any(|field| field.known == known);
    // A trusted proxy's list that can't be told in the other family is told in its own alone.
    assert!(says(Known::XForwardedFor) || says(Known::Forwarded) || !edits.is_empty());
    if says(Known::XForwardedFor) || says(Known::Forwarded) {
        assert_eq!(client_address(proxy, &trusted, fields), peer);
    }
    let mut others = again.fields.clone();
    others.retain(|field| field.known != Known::XForwardedFor);
    if says(Known::Forwarded) && !edits.removes(b"forwarded") {
        assert_eq!(client_address(proxy, &trusted, Fields { bytes: out, list: &others }), peer);
    }
    if !origin.is_trusted {
        let said: Vec<_> = fields.known(Known::XForwardedFor).collect();
        assert_eq!(said, [peer.to_string().as_bytes()]);
        let proto: &[u8] = if origin.is_tls { b"https" } else { b"http" };
        assert_eq!(fields.known(Known::XForwardedProto).collect::<Vec<_>>(), [proto]);
        let port = origin.local.port().to_string();
        assert_eq!(fields.known(Known::XForwardedPort).collect::<Vec<_>>(), [port.as_bytes()]);
        assert!(fields.known(Known::XForwardedHost).count() <= 1);
    }
    let vias = |fields: Fields<'_>| fields.known(Known::Via).count();
    let sent = Fields { bytes: request.bytes, list: &request.head.fields };
    assert_eq!(vias(fields), vias(sent) + usize::from(origin.via));
    if edits.removes(b"x-request-id") || request.request_id.is_some() {
        assert!(fields.known(Known::XRequestId).count() <= 1, "one request id");
    }
}

/// Whether the proxy writes fields of that kind itself; they are looked at one by one.
fn is_ours(known: Known) -> bool {
    use Known::{Forwarded, Host, Via, XForwardedFor, XForwardedHost, XForwardedPort, XForwardedProto, XRequestId};
    let ours = [Forwarded, Host, Via, XForwardedFor, XForwardedHost, XForwardedPort, XForwardedProto, XRequestId];
    ours.contains(&known)
}

type Line = (Vec<u8>, Vec<u8>);

/// The fields that go from end to end, but those that the proxy writes and those that are removed.
fn end_to_end(bytes: &[u8], fields: &[Field], edits: &FieldEdits) -> Vec<Line> {
    let kept = fields
        .iter()
        .filter(|field| !field.hop_by_hop && !is_ours(field.known) && !edits.removes(field.name.of(bytes)));
    kept.map(|field| (field.name.of(bytes).to_vec(), field.value.of(bytes).to_vec())).collect()
}

/// What must arrive of the fields: those from end to end, in their order, and what a rule adds.
fn passed(bytes: &[u8], fields: &[Field], edits: &FieldEdits) -> Vec<Line> {
    let mut lines = end_to_end(bytes, fields, edits);
    for line in edits.added().split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = line.split_at(colon);
        if !is_ours(Known::of(name)) {
            lines.push((name.to_vec(), value[1..].trim_ascii().to_vec()));
        }
    }
    lines
}

fn forwarded_response(kind: Bits, plan: Bits, input: &[u8]) -> bool {
    let (to_head, is_old_client, via) = (plan.has(0), plan.has(1), plan.has(2));
    let mut head = ResponseHead::default();
    if parse_response(input, LIMITS, to_head, [input.len()], &mut head) != Ok(Parsed::Complete) {
        return false;
    }
    let is_interim = head.status < 200;
    let framing = match head.body {
        BodyLength::None | BodyLength::Length(_) => ClientFraming::AsSent,
        BodyLength::Chunked | BodyLength::UntilClose if is_old_client => ClientFraming::UntilClose,
        BodyLength::Chunked | BodyLength::UntilClose => ClientFraming::Chunked,
    };
    let connection = match (plan.has(3), is_old_client) {
        _ if head.status == 101 => match upgrade_token(head.upgrade.of(input)) {
            Some(token) => ClientConnection::Upgrade(token),
            None => return false,
        },
        _ if is_interim => ClientConnection::Keep,
        (false, _) => ClientConnection::Close,
        _ if framing == ClientFraming::UntilClose => ClientConnection::Close,
        (true, true) => ClientConnection::KeepAlive,
        (true, false) => ClientConnection::Keep,
    };
    let mut changed = Changed::default();
    if plan.has(4) && !is_interim {
        let request: &[u8] =
            if kind.has(1) { b"GET /%0d%0a HTTP/1.0\r\n\r\n" } else { b"GET /\xff:%0A? HTTP/1.0\r\nHost: A.\r\n\r\n" };
        let mut asked = RequestHead::default();
        assert_eq!(parse_request(request, LIMITS, [request.len()], &mut asked), Ok(Parsed::Complete));
        assert!(change(request, &asked, [127, 0, 0, 1].into(), &mut changed));
    }
    let mut out = Vec::new();
    let said = if via { ResponseVia::Http1 } else { ResponseVia::None };
    push_response_head(&mut out, &head, input, framing, connection, said, &changed.response);
    check_response(&head, input, (to_head, framing, connection), &changed.response, &out);
    let vias = |bytes, list: &[Field]| Fields { bytes, list }.known(Known::Via).count();
    let mut again = ResponseHead::default();
    assert_eq!(parse_response(&out, WIDER, to_head, [out.len()], &mut again), Ok(Parsed::Complete));
    assert_eq!(vias(&out, &again.fields), vias(input, &head.fields) + usize::from(via));
    true
}

fn check_response(
    head: &ResponseHead,
    bytes: &[u8],
    (to_head, framing, connection): (bool, ClientFraming, ClientConnection<'_>),
    edits: &FieldEdits,
    out: &[u8],
) {
    let mut again = ResponseHead::default();
    let parsed = parse_response(out, WIDER, to_head, [out.len()], &mut again);
    assert_eq!(parsed, Ok(Parsed::Complete), "{}", out.escape_ascii());
    assert_eq!(again.length, out.len(), "one answer");
    check_unambiguous(out);
    let mut lines = [httparse::EMPTY_HEADER; WIDER.fields];
    let mut other = httparse::Response::new(&mut lines);
    assert_eq!(other.parse(out), Ok(httparse::Status::Complete(out.len())));
    assert_eq!(other.headers.len(), again.fields.len());

    assert_eq!((again.version, again.status), (Version::Http11, head.status));
    assert_eq!(again.reason.of(out), head.reason.of(bytes));
    let body = match framing {
        ClientFraming::AsSent => head.body,
        ClientFraming::Chunked => BodyLength::Chunked,
        ClientFraming::UntilClose => BodyLength::UntilClose,
    };
    assert_eq!(again.body, body);
    assert_eq!(again.keep_alive, connection != ClientConnection::Close);
    let (ours, token): (&[&[u8]], &[u8]) = match connection {
        ClientConnection::Keep => (&[], b""),
        ClientConnection::KeepAlive | ClientConnection::Close => (&[b"Connection"], b""),
        ClientConnection::Upgrade(token) => (&[b"Connection", b"Upgrade"], token),
    };
    assert_eq!(again.upgrade.of(out), token);
    check_hop_by_hop(out, &again.fields, ours, framing == ClientFraming::Chunked);
    assert_eq!(end_to_end(out, &again.fields, &FieldEdits::default()), passed(bytes, &head.fields, edits));
}

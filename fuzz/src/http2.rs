//! What must hold for the bytes of an HTTP/2 connection as they come by, and for heads and trailers between HTTP/2 and
//! HTTP/1.1.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};
use pointsman::pure::h1::body::BodyLength;
use pointsman::pure::h1::request::{HeadLimits, Parsed, RequestHead, Version};
use pointsman::pure::h1::response::ResponseHead;
use pointsman::pure::h2::answer::answer_head;
use pointsman::pure::h2::fields::{FieldReader, Verdict};
use pointsman::pure::h2::frames::{Fault, FrameHeader, FrameReader, PREFACE, Seen};
use pointsman::pure::h2::order::OrderGuard;
use pointsman::pure::h2::request::{IncomingHead, push_request};
use pointsman::pure::h2::trailers::{push_trailers, read_trailers};
use pointsman::pure::head::{Fields, Known};

use crate::codec::{LIMITS, check_unambiguous, parse_request, parse_response, piece_ends};

/// For heads in HTTP/1.1: lines are added.
const WIDER: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 64 };

/// Fields that concern one connection, which HTTP/2 does not have.
const CONNECTION_FIELDS: [&str; 5] = ["connection", "keep-alive", "transfer-encoding", "upgrade", "proxy-connection"];

/// What a connection's bytes have shown.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    frames: Vec<FrameHeader>,
    head_bytes: usize,
    /// The streams that are malformed, as long as it could be followed.
    malformed: Vec<u32>,
    fault: Option<Fault>,
    order_faults: Vec<Fault>,
    settings_fault: bool,
    is_head_open: bool,
}

fn show(bytes: &[u8], ends: impl IntoIterator<Item = usize>) -> Shown {
    let (mut frames, mut fields, mut shown) = (FrameReader::default(), FieldReader::default(), Shown::default());
    let mut order = OrderGuard::default();
    let mut start = 0;
    for end in ends {
        frames.read(&bytes[start..end], |seen| {
            match seen {
                Seen::Frame(frame) => {
                    shown.order_faults.extend(order.note(frame));
                    fields.begin(frame);
                    shown.frames.push(frame);
                }
                Seen::HeadPayload(payload) => {
                    shown.head_bytes += payload.len();
                    match fields.read(payload) {
                        Verdict::Fine => assert_eq!(shown.fault, None, "broken once, broken for ever"),
                        Verdict::Malformed(stream) => shown.malformed.push(stream),
                        Verdict::Broken(fault) => {
                            assert_eq!(*shown.fault.get_or_insert(fault), fault);
                        }
                    }
                }
                Seen::SettingsPayload(payload) => shown.settings_fault |= order.read_settings(payload).is_some(),
            }
            true
        });
        start = end;
    }
    shown.is_head_open = frames.is_head_open();
    shown
}

/// The frames of a connection behind its preface: pieces make no difference, and what is told of frames adds up.
pub fn h2_frames(input: &[u8]) -> bool {
    let Some((plan, input)) = input.split_first() else { return false };
    let bytes = [PREFACE, input].concat();
    let mut whole = show(&bytes, [bytes.len()]);
    let mut in_pieces = show(&bytes, piece_ends(bytes.len(), *plan));
    if whole.fault.is_some() {
        // How far it was followed before depends on the pieces.
        whole.malformed.clear();
        in_pieces.malformed.clear();
    }
    assert_eq!(in_pieces, whole, "pieces make no difference");
    let sizes: usize = whole.frames.iter().map(|frame| 9 + frame.length as usize).sum();
    let last = whole.frames.last().map_or(0, |frame| 9 + frame.length as usize);
    assert!(sizes - last <= input.len() && input.len() < sizes + 9, "frames lie one behind the other");
    let refused = whole.frames.iter().position(|frame| !frame.has_possible_length());
    let mut seen = 0;
    let passed = FrameReader::default().read(&bytes, |what| {
        let Seen::Frame(frame) = what else { return true };
        seen += 1;
        frame.has_possible_length()
    });
    assert_eq!(passed < bytes.len(), refused.is_some());
    assert_eq!(seen, refused.map_or(whole.frames.len(), |place| place + 1), "nothing is seen behind what is refused");
    whole.fault.is_none() && whole.head_bytes > 0
}

/// Heads and trailers: a request's where the first byte is even, an answer's or trailers where it is odd.
pub fn h2_head(input: &[u8]) -> bool {
    match input {
        [kind, rest @ ..] if kind & 1 == 0 => request(*kind, rest),
        [kind, rest @ ..] if kind & 2 == 0 => answer(*kind, rest),
        [_, rest @ ..] => trailers(rest),
        [] => false,
    }
}

/// Lines of an input: method, path, authority, then fields as `name: value`.
fn request(kind: u8, input: &[u8]) -> bool {
    let mut lines = input.split(|byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (Ok(method), path, authority) = (Method::from_bytes(line()), line(), line()) else { return false };
    let mut uri = Uri::builder();
    if !authority.is_empty() {
        uri = uri.scheme("https").authority(authority);
    }
    let Ok(uri) = uri.path_and_query(path).build() else { return false };
    let Some(fields) = fields_of(lines) else { return false };
    let (has_body, protocol) = (kind & 2 != 0, (kind & 4 != 0).then_some("websocket"));
    let incoming = IncomingHead { method: &method, uri: &uri, fields: &fields, protocol, has_body };
    let mut out = Vec::new();
    if push_request(&mut out, &incoming, "a2V5").is_err() {
        return false;
    }
    let mut head = RequestHead::default();
    match parse_request(&out, WIDER, [out.len()], &mut head) {
        Ok(Parsed::Complete) => {}
        Ok(Parsed::Partial) => panic!("a head ends where it is written to end"),
        Err(_) => return false,
    }
    assert_eq!(head.length, out.len(), "one request");
    check_unambiguous(&out);
    assert_eq!(head.method.of(&out), if protocol.is_some() { b"GET" } else { method.as_str().as_bytes() });
    assert_eq!(head.target.of(&out), uri.path_and_query().unwrap().as_str().as_bytes());
    assert_eq!((head.version, head.keep_alive), (Version::Http11, true));
    let read = Fields { bytes: &out, list: &head.fields };
    let hosts: Vec<_> = read.named("host").collect();
    let wanted = uri.authority().map_or_else(|| fields["host"].as_bytes(), |authority| authority.as_str().as_bytes());
    assert_eq!(hosts, [wanted], "one Host");
    let is_announced = has_body && !fields.contains_key("content-length") && protocol.is_none();
    assert_eq!(head.body == BodyLength::Chunked, is_announced);
    assert_eq!(head.upgrade.of(&out), if protocol.is_some() { &b"websocket"[..] } else { b"" });
    for name in fields.keys() {
        let came: Vec<_> = fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        let found: Vec<_> = read.named(name.as_str()).collect();
        match name.as_str() {
            "host" => {}
            "cookie" => {
                let crumbs: Vec<_> = came.into_iter().filter(|crumb| !crumb.is_empty()).collect();
                assert_eq!(found, [crumbs.join(&b"; "[..])]);
            }
            "content-length" | "sec-websocket-key" if protocol.is_some() => assert!(!found.contains(&&b"theirs"[..])),
            _ => assert_eq!(found, came, "{name}"),
        }
    }
    let crumbs = fields.get_all("cookie").iter().count().saturating_sub(1);
    assert!(read.list.len() <= fields.len() - crumbs + 4, "nothing else is made of it");
    true
}

fn fields_of<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<HeaderMap> {
    let mut fields = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let colon = line.iter().skip(1).position(|byte| *byte == b':')? + 1;
        let value = &line[colon + 1..];
        let value = value.strip_prefix(b" ").unwrap_or(value);
        fields.append(HeaderName::from_lowercase(&line[..colon]).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    Some(fields)
}

/// An answer's head in HTTP/1.1: what goes from end to end arrives, in order, and nothing of the connection.
fn answer(kind: u8, input: &[u8]) -> bool {
    let mut head = ResponseHead::default();
    if parse_response(input, LIMITS, kind & 4 != 0, [input.len()], &mut head) != Ok(Parsed::Complete) {
        return false;
    }
    let Some(answer) = answer_head(&head, input) else { return false };
    let is_upgrade = head.status == 101;
    assert_eq!(answer.status().as_u16(), if is_upgrade { 200 } else { head.status });
    for name in CONNECTION_FIELDS {
        assert!(!answer.headers().contains_key(name), "{name}");
    }
    let kept: Vec<_> = head.fields.iter().filter(|field| !field.hop_by_hop).collect();
    assert!(answer.headers().len() <= kept.len());
    for field in &kept {
        let name = String::from_utf8(field.name.of(input).to_ascii_lowercase()).unwrap();
        if is_upgrade && (field.known == Known::ContentLength || name == "sec-websocket-accept") {
            assert!(!answer.headers().contains_key(&name));
            continue;
        }
        let found: Vec<_> = answer.headers().get_all(&name).iter().map(HeaderValue::as_bytes).collect();
        let same = kept.iter().filter(|other| other.name.of(input).eq_ignore_ascii_case(name.as_bytes()));
        assert_eq!(found, same.map(|other| other.value.of(input)).collect::<Vec<_>>(), "{name}");
    }
    true
}

/// Trailers: what was written once is read as the same.
fn trailers(input: &[u8]) -> bool {
    let read = read_trailers(input);
    let mut out = Vec::new();
    push_trailers(&mut out, &read);
    assert_eq!(out.split(|byte| *byte == b'\n').count(), read.len() + 1, "a line each");
    assert_eq!(read_trailers(&out), read);
    for name in CONNECTION_FIELDS.into_iter().chain(["content-length", "host", "trailer", "te"]) {
        assert!(!read.contains_key(name), "{name}");
    }
    !read.is_empty()
}

//! What must hold for the bytes of an HTTP/2 connection, for compressed heads, and for heads and trailers between HTTP/2 and
//! HTTP/1.1.

use pointsman::base::time::Timestamp;
use pointsman::pure::h1::body::BodyLength;
use pointsman::pure::h1::request::{HeadLimits, Parsed, RequestHead, Version};
use pointsman::pure::h1::response::ResponseHead;
use pointsman::pure::h2::answer::push_answer;
use pointsman::pure::h2::frames::{Fault, PREFACE};
use pointsman::pure::h2::hpack::{Decoder, Encoder, FieldBlock};
use pointsman::pure::h2::multiplexer::{Arrival, Multiplexer, OwnSettings, Role, StreamEnd};
use pointsman::pure::h2::request::{IncomingHead, push_request};
use pointsman::pure::h2::trailers::{are_fine, has_trailers, push_chunked_end, push_trailers};
use pointsman::pure::head::{Fields, Known};

use crate::codec::{LIMITS, check_unambiguous, parse_request, parse_response, piece_ends};

/// For heads in HTTP/1.1: lines are added.
const WIDER: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 64 };

/// Fields that concern one connection, which HTTP/2 does not have.
const CONNECTION_FIELDS: [&str; 5] = ["connection", "keep-alive", "transfer-encoding", "upgrade", "proxy-connection"];

/// The largest list of fields.
const LIST_MAX: usize = 8 * 1024;

/// What a stream has shown.
#[derive(Debug, PartialEq, Eq)]
struct ShownStream {
    id: u32,
    heads: Vec<FieldBlock>,
    data: Vec<u8>,
    trailers: Option<FieldBlock>,
    end: Result<Arrival, StreamEnd>,
}

/// What a connection has shown.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    fault: Option<Fault>,
    output: Vec<u8>,
    is_head_open: bool,
    streams: Vec<ShownStream>,
}

fn show(role: Role, bytes: &[u8], ends: impl IntoIterator<Item = usize>) -> Shown {
    let own =
        OwnSettings { role, stream_window: 70_000, connection_window: 100_000, streams_max: 3, list_max: LIST_MAX };
    let mut multiplexer = Multiplexer::new(own, Timestamp::ZERO);
    if role == Role::Server {
        multiplexer.receive(PREFACE, Timestamp::ZERO);
    }
    // Settings come first.
    multiplexer.receive(&[0, 0, 0, 4, 0, 0, 0, 0, 0], Timestamp::ZERO);
    let mut keys: Vec<_> = (0..3).filter_map(|_| multiplexer.open().ok()).collect();
    for key in &keys {
        multiplexer.send_head(*key, false, |encoder, out| encoder.push(out, b":method", b"PUT")).unwrap();
    }
    let mut start = 0;
    for end in ends {
        multiplexer.receive(&bytes[start..end], Timestamp::ZERO);
        start = end;
    }
    keys.extend(std::iter::from_fn(|| multiplexer.next_opened()));
    let fault = multiplexer.fault();
    assert_eq!(multiplexer.end_if_faulty(), fault.is_some());
    let mut shown = Shown {
        fault,
        output: multiplexer.output().to_vec(),
        is_head_open: multiplexer.open_head().is_some(),
        streams: Vec::new(),
    };
    for key in keys {
        let heads: Vec<_> = std::iter::from_fn(|| multiplexer.take_head(key)).collect();
        let mut data = Vec::new();
        multiplexer.take_data(key, &mut data, usize::MAX);
        let (trailers, end) = (multiplexer.take_trailers(key), multiplexer.arrival(key));
        shown.streams.push(ShownStream { id: multiplexer.id(key), heads, data, trailers, end });
        multiplexer.release(key);
    }
    assert!(multiplexer.is_idle(), "nothing is held");
    shown
}

/// The frames of a connection, a client's behind its preface or a server's: pieces make no difference to what comes of them and
/// to what is answered, and with all streams let go nothing is held.
pub fn h2_frames(input: &[u8]) -> bool {
    let Some((plan, bytes)) = input.split_first() else { return false };
    let mut is_accepted = false;
    for role in [Role::Server, Role::Client] {
        let mut whole = show(role, bytes, [bytes.len()]);
        let mut in_pieces = show(role, bytes, piece_ends(bytes.len(), *plan));
        if whole.fault.is_some() {
            // Where the connection ends for a fault, what its last frame has brought of data depends on the pieces.
            whole.streams.iter_mut().chain(&mut in_pieces.streams).for_each(|stream| stream.data.clear());
        }
        assert_eq!(in_pieces, whole, "pieces make no difference");
        is_accepted |= whole.fault.is_none() && whole.streams.iter().any(|stream| !stream.heads.is_empty());
    }
    is_accepted
}

/// Compressed heads, one behind the other: what they say comes back when it is written anew, in a table of any size.
pub fn hpack(input: &[u8]) -> bool {
    let Some((plan, bytes)) = input.split_first() else { return false };
    let (mut decoder, mut encoder, mut again) = (Decoder::default(), Encoder::default(), Decoder::default());
    encoder.set_table_max(u32::from(*plan) * 32);
    let mut start = 0;
    let mut count = 0;
    for end in piece_ends(bytes.len(), *plan) {
        let mut fields = FieldBlock::default();
        if decoder.decode(&bytes[start..end], LIST_MAX, &mut fields).is_err() {
            return false;
        }
        start = end;
        let size: usize = fields.fields().map(|(name, value)| name.len() + value.len() + 32).sum();
        assert!(size <= LIST_MAX, "no more is kept than is allowed");
        let mut block = Vec::new();
        encoder.begin(&mut block);
        fields.fields().for_each(|(name, value)| encoder.push(&mut block, name, value));
        let mut came = FieldBlock::default();
        again.decode(&block, LIST_MAX, &mut came).unwrap();
        let lower = fields.fields().map(|(name, value)| (name.to_ascii_lowercase(), value));
        assert!(lower.eq(came.fields().map(|(name, value)| (name.to_vec(), value))), "it says the same");
        count += fields.count();
    }
    count > 0
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
    let (method, path, authority) = (line(), line(), line());
    let mut block = FieldBlock::default();
    block.push(b":method", method);
    block.push(b":scheme", b"https");
    block.push(b":path", path);
    if !authority.is_empty() {
        block.push(b":authority", authority);
    }
    let protocol = (kind & 4 != 0).then_some("websocket");
    if let Some(protocol) = protocol {
        block.push(b":protocol", protocol.as_bytes());
    }
    let Some(fields) = fields_of(lines) else { return false };
    fields.iter().for_each(|(name, value)| block.push(name, value));
    let has_body = kind & 2 != 0;
    let mut out = Vec::new();
    if push_request(&mut out, &IncomingHead::of(&block), has_body, || "a2V5".to_owned()).is_err() {
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
    assert_eq!(head.method.of(&out), if protocol.is_some() { b"GET" } else { method });
    assert_eq!(head.target.of(&out), path);
    assert_eq!((head.version, head.keep_alive), (Version::Http11, true));
    let read = Fields { bytes: &out, list: &head.fields };
    let hosts: Vec<_> = read.named("host").collect();
    let host = fields.iter().find(|(name, _)| name == b"host").map(|(_, value)| value.as_slice());
    assert_eq!(hosts, [if authority.is_empty() { host.unwrap() } else { authority }], "one Host");
    let has_length = fields.iter().any(|(name, _)| name == b"content-length");
    assert_eq!(head.body == BodyLength::Chunked, has_body && !has_length && protocol.is_none());
    assert_eq!(head.upgrade.of(&out), if protocol.is_some() { &b"websocket"[..] } else { b"" });
    for (name, _) in &fields {
        let came: Vec<_> =
            fields.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_slice()).collect();
        let name = str::from_utf8(name).unwrap();
        let found: Vec<_> = read.named(name).collect();
        match name {
            "host" => {}
            "cookie" => {
                let crumbs: Vec<_> = came.into_iter().filter(|crumb| !crumb.is_empty()).collect();
                assert_eq!(found, [crumbs.join(&b"; "[..])]);
            }
            "content-length" | "sec-websocket-key" if protocol.is_some() => assert!(!found.contains(&&b"theirs"[..])),
            _ => assert_eq!(found, came, "{name}"),
        }
    }
    let crumbs = fields.iter().filter(|(name, _)| name == b"cookie").count().saturating_sub(1);
    assert!(read.list.len() <= fields.len() - crumbs + 4, "nothing else is made of it");
    true
}

type Lines = Vec<(Vec<u8>, Vec<u8>)>;

fn fields_of<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Lines> {
    let mut fields = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let colon = line.iter().skip(1).position(|byte| *byte == b':')? + 1;
        let value = &line[colon + 1..];
        fields.push((line[..colon].to_vec(), value.strip_prefix(b" ").unwrap_or(value).to_vec()));
    }
    Some(fields)
}

/// What a head, or trailers, that were written say.
fn decoded(write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) -> FieldBlock {
    let (mut out, mut block) = (Vec::new(), FieldBlock::default());
    write(&mut Encoder::default(), &mut out);
    Decoder::default().decode(&out, usize::MAX, &mut block).unwrap();
    block
}

/// An answer's head in HTTP/1.1: what goes from end to end arrives, in order, and nothing of the connection.
fn answer(kind: u8, input: &[u8]) -> bool {
    let mut head = ResponseHead::default();
    if parse_response(input, LIMITS, kind & 4 != 0, [input.len()], &mut head) != Ok(Parsed::Complete) {
        return false;
    }
    let answer = decoded(|encoder, out| push_answer(encoder, out, &head, input, true));
    let is_upgrade = head.status == 101;
    let status = if is_upgrade { 200 } else { head.status };
    let mut wanted = vec![(b":status".to_vec(), status.to_string().into_bytes())];
    for field in head.fields.iter().filter(|field| !field.hop_by_hop) {
        let name = field.name.of(input).to_ascii_lowercase();
        let is_of_upgrade = field.known == Known::ContentLength || name == b"sec-websocket-accept";
        if !is_upgrade || !is_of_upgrade {
            wanted.push((name, field.value.of(input).to_vec()));
        }
    }
    let said: Lines = answer.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    assert_eq!(said, wanted);
    assert!(!said.iter().any(|(name, _)| CONNECTION_FIELDS.iter().any(|field| field.as_bytes() == name)));
    true
}

/// Trailers: what was written once is read as the same.
fn trailers(input: &[u8]) -> bool {
    let read = decoded(|encoder, out| push_trailers(encoder, out, input));
    assert_eq!(has_trailers(input), !read.is_empty());
    if !are_fine(&read) {
        return false;
    }
    let mut out = Vec::new();
    push_chunked_end(&mut out, Some(&read));
    assert_eq!(out.split(|byte| *byte == b'\n').count(), read.count() + 3, "a line each");
    let lines = out.strip_prefix(b"0\r\n").and_then(|out| out.strip_suffix(b"\r\n")).unwrap();
    assert_eq!(decoded(|encoder, out| push_trailers(encoder, out, lines)), read);
    for (name, _) in read.fields() {
        assert!(!CONNECTION_FIELDS.iter().any(|field| field.as_bytes() == name));
        assert!(![&b"content-length"[..], b"host", b"trailer", b"te"].contains(&name));
    }
    !read.is_empty()
}

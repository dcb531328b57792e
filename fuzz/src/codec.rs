//! What must hold for any input of the HTTP/1 codec, whoever made it up.
//!
//! The first byte of an input says how the rest is cut into pieces. Each function panics where the codec is wrong, and
//! returns whether it accepted the input, so that a corpus can be held to be of use.

use pointsman::pure::h1::authority::parse_authority;
use pointsman::pure::h1::body::{BodyDecoder, BodyError, BodyLength};
use pointsman::pure::h1::encode::{push_field, push_status_line};
use pointsman::pure::h1::request::{
    HeadLimits, Parsed, RequestHead, RequestHeadError, TargetForm, Version, parse_request_head,
};
use pointsman::pure::h1::response::{ResponseHead, ResponseHeadError, parse_response_head};
use pointsman::pure::head::{Field, Known};

pub(crate) const LIMITS: HeadLimits = HeadLimits { bytes: 2048, fields: 24 };

/// For what is passed on: a line or two may have been added.
const WIDER: HeadLimits = HeadLimits { bytes: 4096, fields: 26 };

/// Where the pieces of an input end that is cut as `plan` says: each at most 63 bytes, all alike or in turn short and long.
pub(crate) fn piece_ends(length: usize, plan: u8) -> impl Iterator<Item = usize> {
    let sizes = [usize::from(plan & 0x3F).max(1), usize::from(plan >> 6) * 5 + 1];
    let ends = sizes.into_iter().cycle().scan(0, |end, size| {
        *end += size;
        Some(*end)
    });
    ends.take_while(move |end| *end < length).chain([length])
}

/// A request head: pieces make no difference, another parser reads the same, and what would be forwarded is one request
/// that says the same.
pub fn request_head(input: &[u8]) -> bool {
    let Some((plan, input)) = input.split_first() else { return false };
    let mut head = RequestHead::default();
    let whole = parse_request(input, LIMITS, [input.len()], &mut head);
    let described = describe_request(input, &head);
    let in_pieces = parse_request(input, LIMITS, piece_ends(input.len(), *plan), &mut head);
    assert_eq!(in_pieces, whole, "pieces make no difference");
    if whole != Ok(Parsed::Complete) {
        return false;
    }
    assert_eq!(describe_request(input, &head), described, "pieces make no difference");
    check_lines(&input[..head.length], &head.fields);
    check_with_httparse(&input[..head.length], &head);

    let forwarded = forward_request(input, &head);
    check_unambiguous(&forwarded);
    assert_eq!(forwarded.split(|byte| *byte == b'\n').filter(|line| is_named(line, "host")).count(), 1);
    let mut again = RequestHead::default();
    assert_eq!(parse_request(&forwarded, WIDER, [forwarded.len()], &mut again), Ok(Parsed::Complete));
    assert_eq!(again.length, forwarded.len(), "one request");
    assert_eq!((again.body, again.method.of(&forwarded)), (head.body, head.method.of(input)));
    assert_eq!(again.authority.of(&forwarded), effective_authority(input, &head));
    assert_eq!(forward_request(&forwarded, &again), forwarded, "what was forwarded once stays the same");
    true
}

pub(crate) fn parse_request(
    input: &[u8],
    limits: HeadLimits,
    ends: impl IntoIterator<Item = usize>,
    head: &mut RequestHead,
) -> Result<Parsed, RequestHeadError> {
    head.clear();
    for end in ends {
        if parse_request_head(&input[..end], limits, head)? == Parsed::Complete {
            return Ok(Parsed::Complete);
        }
    }
    Ok(Parsed::Partial)
}

fn describe_request(input: &[u8], head: &RequestHead) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {} {} {:?} {:?}",
        head.method,
        head.target,
        head.form,
        head.authority,
        head.path_and_query,
        head.version,
        head.body,
        head.length,
        head.keep_alive,
        head.expects_continue,
        head.takes_trailers,
        head.upgrade.of(input),
        head.fields,
    )
}

/// The authority that a server is told; HTTP/1.0 without one gets a made-up one.
fn effective_authority<'b>(input: &'b [u8], head: &RequestHead) -> &'b [u8] {
    let authority = head.authority.of(input);
    assert!(authority.is_empty() || parse_authority(authority).is_some());
    let may_be_missing = head.version == Version::Http10 || head.form == Some(TargetForm::Asterisk);
    assert!(!authority.is_empty() || may_be_missing, "a request says whom it is for");
    if authority.is_empty() { b"unknown" } else { authority }
}

/// The head as a proxy passes it on.
fn forward_request(input: &[u8], head: &RequestHead) -> Vec<u8> {
    let path = head.path_and_query.of(input);
    // An absolute target may have no path, and a query all the same.
    let slash: &[u8] = if path.starts_with(b"/") || path == b"*" { b"" } else { b"/" };
    assert!(slash.is_empty() || (head.form == Some(TargetForm::Absolute) && matches!(path, [] | [b'?', ..])));
    let mut out = [head.method.of(input), b" ", slash, path, b" HTTP/1.1\r\n"].concat();
    push_field(&mut out, b"Host", effective_authority(input, head));
    if head.body == BodyLength::Chunked {
        push_field(&mut out, b"Transfer-Encoding", b"chunked");
    }
    for field in head.fields.iter().filter(|field| !field.hop_by_hop && field.known != Known::Host) {
        push_field(&mut out, field.name.of(input), field.value.of(input));
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// No byte of a head may start another line for somebody else, and each field lies where its span says.
fn check_lines(head: &[u8], fields: &[Field]) {
    for (index, byte) in head.iter().enumerate() {
        match byte {
            b'\r' => assert_eq!(head.get(index + 1), Some(&b'\n')),
            b'\n' => assert_eq!(head[index - 1], b'\r'),
            b'\t' => {}
            other => assert!(*other >= 0x20 && *other != 0x7F),
        }
    }
    assert!(fields.len() <= LIMITS.fields);
    for field in fields {
        let (name, value) = (field.name.of(head), field.value.of(head));
        assert!(!name.is_empty() && head[field.name.end as usize] == b':');
        assert_eq!(value, value.trim_ascii());
        assert!(!value.contains(&b'\r'));
        assert_eq!(field.known, Known::of(name));
    }
}

/// What is passed on says the length of its body once or not at all, in digits.
pub(crate) fn check_unambiguous(head: &[u8]) {
    let lines: Vec<_> = head.split(|byte| *byte == b'\n').collect();
    let lengths: Vec<_> = lines.iter().filter(|line| is_named(line, "content-length")).collect();
    let codings = lines.iter().filter(|line| is_named(line, "transfer-encoding")).count();
    assert!(lengths.len() + codings <= 1, "one framing");
    for length in lengths {
        let value = &length["content-length:".len()..];
        assert!(value.trim_ascii().iter().all(u8::is_ascii_digit));
    }
    let target = lines[0].split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    assert!(!target.contains(&b'#') && !target.contains(&b'\t'), "a target without a fragment");
}

fn is_named(line: &[u8], name: &str) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
    line[..colon].trim_ascii().eq_ignore_ascii_case(name.as_bytes())
}

/// Whatever is accepted here, httparse accepts and reads the same, but for targets that are not UTF-8 and minor versions.
fn check_with_httparse(input: &[u8], head: &RequestHead) {
    let mut headers = [httparse::EMPTY_HEADER; LIMITS.fields];
    let mut other = httparse::Request::new(&mut headers);
    let Ok(target) = str::from_utf8(head.target.of(input)) else { return };
    match other.parse(input) {
        Err(httparse::Error::Version) => return assert_eq!(head.version, Version::Http11),
        result => assert_eq!(result, Ok(httparse::Status::Complete(head.length))),
    }
    assert_eq!(other.method.map(str::as_bytes), Some(head.method.of(input)));
    assert_eq!((other.path, other.version), (Some(target), Some(u8::from(head.version == Version::Http11))));
    check_fields(input, &head.fields, other.headers);
}

fn check_fields(input: &[u8], fields: &[Field], others: &[httparse::Header<'_>]) {
    let others: Vec<_> = others.iter().map(|other| (other.name.as_bytes(), other.value)).collect();
    let fields: Vec<_> = fields.iter().map(|field| (field.name.of(input), field.value.of(input))).collect();
    assert_eq!(fields, others);
}

/// A response head, to HEAD or not as the top bit of the first byte says: as for a request.
pub fn response_head(input: &[u8]) -> bool {
    let Some((plan, input)) = input.split_first() else { return false };
    let to_head = plan & 0x80 != 0;
    let mut head = ResponseHead::default();
    let whole = parse_response(input, LIMITS, to_head, [input.len()], &mut head);
    let described = describe_response(input, &head);
    let in_pieces = parse_response(input, LIMITS, to_head, piece_ends(input.len(), *plan), &mut head);
    assert_eq!(in_pieces, whole, "pieces make no difference");
    if whole != Ok(Parsed::Complete) {
        return false;
    }
    assert_eq!(describe_response(input, &head), described, "pieces make no difference");
    check_lines(&input[..head.length], &head.fields);

    let mut headers = [httparse::EMPTY_HEADER; LIMITS.fields];
    let mut other = httparse::Response::new(&mut headers);
    match other.parse(input) {
        Err(httparse::Error::Version) => assert_eq!(head.version, Version::Http11),
        result => {
            assert_eq!(result, Ok(httparse::Status::Complete(head.length)));
            assert_eq!(other.code, Some(head.status));
            check_fields(input, &head.fields, other.headers);
        }
    }

    let forwarded = forward_response(input, &head);
    check_unambiguous(&forwarded);
    let mut again = ResponseHead::default();
    assert_eq!(parse_response(&forwarded, WIDER, to_head, [forwarded.len()], &mut again), Ok(Parsed::Complete));
    assert_eq!((again.length, again.status, again.body), (forwarded.len(), head.status, head.body));
    assert_eq!(forward_response(&forwarded, &again), forwarded, "what was forwarded once stays the same");
    true
}

pub(crate) fn parse_response(
    input: &[u8],
    limits: HeadLimits,
    to_head: bool,
    ends: impl IntoIterator<Item = usize>,
    head: &mut ResponseHead,
) -> Result<Parsed, ResponseHeadError> {
    head.clear();
    for end in ends {
        if parse_response_head(&input[..end], limits, to_head, head)? == Parsed::Complete {
            return Ok(Parsed::Complete);
        }
    }
    Ok(Parsed::Partial)
}

fn describe_response(input: &[u8], head: &ResponseHead) -> String {
    format!(
        "{:?} {} {:?} {:?} {} {} {:?} {:?}",
        head.version,
        head.status,
        head.reason,
        head.body,
        head.keep_alive,
        head.length,
        head.upgrade.of(input),
        head.fields,
    )
}

fn forward_response(input: &[u8], head: &ResponseHead) -> Vec<u8> {
    let mut out = Vec::new();
    push_status_line(&mut out, Version::Http11, head.status, head.reason.of(input));
    if head.body == BodyLength::Chunked {
        push_field(&mut out, b"Transfer-Encoding", b"chunked");
    }
    for field in head.fields.iter().filter(|field| !field.hop_by_hop) {
        push_field(&mut out, field.name.of(input), field.value.of(input));
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// A chunked body: decoded in pieces it is what a plain decoder makes of the whole.
pub fn chunked_body(input: &[u8]) -> bool {
    let Some((plan, input)) = input.split_first() else { return false };
    let expected = decode_plainly(input);
    let whole = decode(input, [input.len()]);
    let in_pieces = decode(input, piece_ends(input.len(), *plan));
    assert_eq!(in_pieces, whole, "pieces make no difference");
    match (&whole, expected) {
        (Body::Complete { data, rest, trailers }, Plain::Complete { data: plain, rest: plain_rest }) => {
            assert_eq!((data, *rest), (&plain, plain_rest));
            check_trailers(trailers);
        }
        (Body::Partial { data }, Plain::Partial { data: plain }) => assert_eq!(*data, plain),
        (Body::Broken(_), Plain::Broken) => {}
        // The bounds, which an input must be long enough to pass.
        (Body::Broken(BodyError::ChunkExtension), _) => assert!(input.len() > 4096),
        (Body::Broken(BodyError::TrailerTooLarge), _) => assert!(input.len() > 64 * 4),
        (whole, expected) => panic!("{whole:?} is not {expected:?}"),
    }
    matches!(whole, Body::Complete { .. })
}

/// Trailer lines are field lines, and none says how a message is framed or whom it is for.
fn check_trailers(trailers: &[u8]) {
    let head = [b"HTTP/1.1 200 OK\r\n", trailers, b"\r\n"].concat();
    let limits = HeadLimits { bytes: 16 * 1024, fields: 64 };
    let mut parsed = ResponseHead::default();
    assert_eq!(parse_response_head(&head, limits, false, &mut parsed), Ok(Parsed::Complete));
    assert_eq!((parsed.length, parsed.body), (head.len(), BodyLength::UntilClose));
    assert!(parsed.fields.iter().all(|field| !field.hop_by_hop && field.known != Known::Host));
}

#[derive(Debug, PartialEq, Eq)]
enum Body {
    Complete { data: Vec<u8>, rest: usize, trailers: Vec<u8> },
    Partial { data: Vec<u8> },
    Broken(BodyError),
}

fn decode(input: &[u8], ends: impl IntoIterator<Item = usize>) -> Body {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    let mut data = Vec::new();
    let mut consumed = 0;
    for end in ends {
        let mut piece = input[consumed..end].to_vec();
        let decoded = match decoder.decode(&mut piece) {
            Ok(decoded) => decoded,
            Err(error) => return Body::Broken(error),
        };
        assert!(decoded.data.end <= decoded.consumed);
        data.extend_from_slice(&piece[decoded.data]);
        consumed += decoded.consumed;
        if decoded.is_complete {
            return Body::Complete { data, rest: input.len() - consumed, trailers: decoder.trailers().to_vec() };
        }
        assert_eq!(consumed, end);
    }
    Body::Partial { data }
}

#[derive(Debug)]
enum Plain {
    Complete { data: Vec<u8>, rest: usize },
    Partial { data: Vec<u8> },
    Broken,
}

/// The grammar of RFC 9112 7.1 read line by line, without bounds.
fn decode_plainly(input: &[u8]) -> Plain {
    let mut data = Vec::new();
    let mut rest = input;
    loop {
        let size = match take_line(rest) {
            Line::Whole(line, behind) => {
                rest = behind;
                chunk_size(line)
            }
            Line::WithoutLf(line) if chunk_size(line).is_some() => return Plain::Partial { data },
            Line::Open(line) if is_chunk_line_start(line) => return Plain::Partial { data },
            Line::WithoutLf(_) | Line::Open(_) | Line::Broken => return Plain::Broken,
        };
        let Some(size) = size else { return Plain::Broken };
        if size == 0 {
            return skip_trailers(rest, data);
        }
        let here = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
        data.extend_from_slice(&rest[..here]);
        match &rest[here..] {
            [] | [b'\r'] => return Plain::Partial { data },
            [b'\r', b'\n', behind @ ..] => rest = behind,
            _ => return Plain::Broken,
        }
    }
}

fn skip_trailers(mut rest: &[u8], data: Vec<u8>) -> Plain {
    loop {
        match take_line(rest) {
            Line::Whole([], behind) => return Plain::Complete { data, rest: behind.len() },
            Line::Whole(line, behind) if is_field_line(line) => rest = behind,
            Line::WithoutLf(_) | Line::Open(_) => return Plain::Partial { data },
            Line::Whole(..) | Line::Broken => return Plain::Broken,
        }
    }
}

enum Line<'b> {
    /// The line, and what is behind its CRLF.
    Whole(&'b [u8], &'b [u8]),
    /// Only the LF has not come.
    WithoutLf(&'b [u8]),
    /// No end has come.
    Open(&'b [u8]),
    /// There is a bare CR.
    Broken,
}

fn take_line(input: &[u8]) -> Line<'_> {
    let Some(end) = input.iter().position(|byte| *byte == b'\r') else { return Line::Open(input) };
    match &input[end + 1..] {
        [] => Line::WithoutLf(&input[..end]),
        [b'\n', behind @ ..] => Line::Whole(&input[..end], behind),
        _ => Line::Broken,
    }
}

/// Whether a chunk line may begin so: empty, as a whole one, or with white space that waits for its semicolon.
fn is_chunk_line_start(start: &[u8]) -> bool {
    let with_semicolon = [start, b";"].concat();
    start.is_empty() || chunk_size(start).is_some() || chunk_size(&with_semicolon).is_some()
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, extension) = line.split_at(digits);
    let is_extension = extension.is_empty() || extension.trim_ascii_start().starts_with(b";");
    let is_text = extension.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t');
    if digits.len() > 16 || !is_extension || !is_text {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

fn is_field_line(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
    let is_name_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    colon > 0
        && line[..colon].iter().all(is_name_byte)
        && line[colon..].iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t')
}

//! The trailer section (RFC 9112 7.1.2): field lines behind the last chunk.
//!
//! It keeps the lines that mean the same at the end of a body as at its start. What would have changed how the message is
//! framed, routed, authenticated, cached or read (RFC 9110 6.5.1) is left out, and so are the fields by which a proxy says
//! what it saw. Both counted, a section has at most 8 KiB and 64 lines.

use crate::pure::h1::body::BodyError;
use crate::pure::h1::line::{is_control, parse_field};
use crate::pure::head::Known;

const BYTES_MAX: u16 = 8 * 1024;
const LINES_MAX: u8 = 64;

/// A trailer section as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Trailers {
    /// The lines kept, and behind them what has come of the next.
    lines: Vec<u8>,
    /// Where the line that is being read starts.
    start: usize,
    bytes: u16,
    count: u8,
}

impl Trailers {
    /// Takes in a byte of the line that is being read.
    pub fn push(&mut self, byte: u8) -> Result<(), BodyError> {
        if self.bytes == BYTES_MAX {
            return Err(BodyError::TrailerTooLarge);
        }
        self.bytes += 1;
        self.lines.push(byte);
        Ok(())
    }

    /// Judges the line that has come whole, without its CRLF, and keeps it or not.
    pub fn end_line(&mut self) -> Result<(), BodyError> {
        if self.count == LINES_MAX {
            return Err(BodyError::TrailerTooLarge);
        }
        self.count += 1;
        let line = self.lines.get(self.start..).unwrap_or_default();
        let field = parse_field(line, 0, line.len()).filter(|_| !line.iter().any(|byte| is_control(*byte)));
        let field = field.ok_or(BodyError::Trailer)?;
        if is_kept(field.known, field.name.of(line)) {
            self.lines.extend_from_slice(b"\r\n");
        } else {
            self.lines.truncate(self.start);
        }
        self.start = self.lines.len();
        Ok(())
    }

    /// The lines kept.
    pub fn lines(&self) -> &[u8] {
        self.lines.get(..self.start).unwrap_or_default()
    }
}

/// Whether a field of that name may stand in a trailer section.
pub fn may_trail(name: &[u8]) -> bool {
    is_kept(Known::of(name), name)
}

fn is_kept(known: Known, name: &[u8]) -> bool {
    match known {
        Known::Accept
        | Known::Age
        | Known::Connection
        | Known::ContentLength
        | Known::ContentType
        | Known::Cookie
        | Known::Expect
        | Known::Forwarded
        | Known::Host
        | Known::Http2Settings
        | Known::KeepAlive
        | Known::ProxyConnection
        | Known::SecFetchDest
        | Known::SetCookie
        | Known::Te
        | Known::Trailer
        | Known::TransferEncoding
        | Known::Upgrade
        | Known::Via
        | Known::XForwardedFor
        | Known::XForwardedHost
        | Known::XForwardedPort
        | Known::XForwardedProto
        | Known::XRequestId => false,
        Known::CacheStatus => true,
        Known::Other => !LEFT_OUT.iter().any(|left_out| name.eq_ignore_ascii_case(left_out)) && !is_about_content(name),
    }
}

/// Whether a field says what the content is. Digests of it are made to come behind it (RFC 9530).
fn is_about_content(name: &[u8]) -> bool {
    let has_prefix = name.split_at_checked(8).is_some_and(|(start, _)| start.eq_ignore_ascii_case(b"content-"));
    has_prefix && !name.eq_ignore_ascii_case(b"content-digest") && !name.eq_ignore_ascii_case(b"content-md5")
}

const LEFT_OUT: [&[u8]; 26] = [
    b"accept-charset",
    b"accept-encoding",
    b"accept-language",
    b"authentication-info",
    b"authorization",
    b"cache-control",
    b"date",
    b"expires",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-range",
    b"if-unmodified-since",
    b"location",
    b"max-forwards",
    b"pragma",
    b"proxy-authenticate",
    b"proxy-authentication-info",
    b"proxy-authorization",
    b"range",
    b"retry-after",
    b"set-cookie2",
    b"vary",
    b"warning",
    b"www-authenticate",
    b"x-real-ip",
];

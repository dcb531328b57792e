//! What the field lines of a head say together about the connection and the length of the body (RFC 9110 7.6.1, RFC 9112
//! 6, 9): the part that requests and responses share.
//!
//! It refuses to choose between two framings: whatever could be read in two ways is an error.

use crate::pure::h1::line::{HEAD_MAX, LineError, Lines, elements, parse_field, token_length};
use crate::pure::h1::request::Version;
use crate::pure::head::{Field, Known, Span, is_token};

/// Fields that Connection may name in one head. The work of taking them out is bounded by this times the fields.
const CONNECTION_OPTIONS_MAX: u8 = 64;

/// Why field lines are refused, in requests and responses alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A line ends in a bare LF, or holds a bare CR.
    LineEnd,
    /// Not a field line.
    Field,
    /// The length of the body can be read in two ways, or not at all.
    Framing,
    /// Another transfer coding than chunked.
    TransferCoding,
    /// Too many bytes or lines, or Connection names more fields than anybody needs.
    TooLarge,
}

/// Reads the field lines of a head one by one, as far as they have come whole, and lets `note` judge each that is
/// known before it is kept. `true` once the empty line has come.
pub(super) fn read_fields<E: From<Refusal>>(
    window: Window<'_>,
    most: usize,
    lines: &mut Lines,
    fields: &mut Vec<Field>,
    mut note: impl FnMut(&mut Field) -> Result<(), E>,
) -> Result<bool, E> {
    loop {
        let end = match lines.end(window.bytes) {
            Ok(Some(end)) => end,
            Ok(None) if window.is_full => return Err(Refusal::TooLarge.into()),
            Ok(None) => return Ok(false),
            Err(LineError::End) => return Err(Refusal::LineEnd.into()),
            Err(LineError::Control) => return Err(Refusal::Field.into()),
        };
        let start = lines.start;
        lines.advance(end);
        if start == end {
            return Ok(true);
        }
        if fields.len() >= most {
            return Err(Refusal::TooLarge.into());
        }
        let Some(mut field) = parse_field(window.bytes, start, end) else {
            return Err(Refusal::Field.into());
        };
        if field.known != Known::Other {
            note(&mut field)?;
        }
        fields.push(field);
    }
}

/// The part of a buffer in which a head must end. Nothing behind it is looked at, so that the answer is the same whether
/// or not more has come already.
#[derive(Clone, Copy)]
pub(super) struct Window<'b> {
    /// The bytes, from the buffer's first.
    pub bytes: &'b [u8],
    /// Whether the head may not go on behind them.
    pub is_full: bool,
}

impl<'b> Window<'b> {
    /// The window of a head that begins at `start` and has at most `most` bytes.
    pub fn new(buffer: &'b [u8], start: usize, most: usize) -> Self {
        let end = start + most.min(HEAD_MAX);
        match buffer.get(..end) {
            Some(bytes) => Self { bytes, is_full: true },
            None => Self { bytes: buffer, is_full: false },
        }
    }
}

/// The facts gathered so far.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The value of Content-Length.
    pub content_length: Option<u64>,
    /// Whether the body is chunked.
    pub is_chunked: bool,
    says_close: bool,
    says_keep_alive: bool,
    says_upgrade: bool,
    names_fields: bool,
    options: u8,
    upgrade: Span,
    upgrade_lines: u8,
}

impl Facts {
    /// Takes in a Content-Length line. A second one must say the same, and is told by the answer.
    pub fn add_content_length(&mut self, value: &[u8]) -> Result<bool, Refusal> {
        let length = parse_length(value).ok_or(Refusal::Framing)?;
        let is_repeated = self.content_length.is_some();
        if is_repeated && self.content_length != Some(length) {
            return Err(Refusal::Framing);
        }
        self.content_length = Some(length);
        Ok(is_repeated)
    }

    /// Takes in a Transfer-Encoding line: `chunked`, once, is all there may be.
    pub fn add_transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if value.is_empty() || self.is_chunked {
            return Err(Refusal::Framing);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::TransferCoding);
        }
        self.is_chunked = true;
        Ok(())
    }

    /// Takes in an Upgrade line. Of several none counts.
    pub fn add_upgrade(&mut self, value: Span) {
        self.upgrade = value;
        self.upgrade_lines = self.upgrade_lines.saturating_add(1);
    }

    /// Takes in a Connection line.
    pub fn add_connection(&mut self, value: &[u8]) -> Result<(), Refusal> {
        // What nearly all say, before the list is taken apart.
        if is_token(value, b"keep-alive") {
            self.says_keep_alive = true;
            return Ok(());
        }
        for option in elements(value) {
            self.options += 1;
            if self.options > CONNECTION_OPTIONS_MAX {
                return Err(Refusal::TooLarge);
            }
            if is_token(option, b"keep-alive") {
                self.says_keep_alive = true;
            } else if is_token(option, b"close") {
                self.says_close = true;
            } else if is_token(option, b"upgrade") {
                self.says_upgrade = true;
            } else if token_length(option) == option.len() {
                self.names_fields = true;
            }
        }
        Ok(())
    }

    /// Whether the sender keeps the connection (RFC 9112 9.3).
    pub const fn keep_alive(&self, version: Version) -> bool {
        match version {
            Version::Http11 => !self.says_close,
            Version::Http10 => self.says_keep_alive && !self.says_close,
        }
    }

    /// The value of Upgrade, where it may be taken up (RFC 9110 7.8).
    pub fn upgrade(&self, version: Version) -> Span {
        let is_offered = self.says_upgrade && self.upgrade_lines == 1 && version == Version::Http11;
        if is_offered { self.upgrade } else { Span::default() }
    }

    /// Marks the fields that Connection names (RFC 9110 7.6.1).
    #[inline]
    pub fn mark_named(&self, buffer: &[u8], fields: &mut [Field]) {
        if self.names_fields {
            mark_named(buffer, fields);
        }
    }
}

#[cold]
fn mark_named(buffer: &[u8], fields: &mut [Field]) {
    for index in 0..fields.len() {
        let Some(Field { known: Known::Connection, value, .. }) = fields.get(index).copied() else { continue };
        for option in elements(value.of(buffer)) {
            for field in fields.iter_mut().filter(|field| field.known.is_removable()) {
                field.hop_by_hop |= field.name.of(buffer).eq_ignore_ascii_case(option);
            }
        }
    }
}

/// Digits alone, and no more than 64 bits hold.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    // So many digits can't be too many.
    if value.len() <= 19 {
        return value.iter().try_fold(0_u64, |length, digit| {
            let digit = digit.wrapping_sub(b'0');
            (digit < 10).then(|| length * 10 + u64::from(digit))
        });
    }
    value.iter().try_fold(0_u64, |length, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        length.checked_mul(10)?.checked_add(digit)
    })
}

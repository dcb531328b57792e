//! A message head as offsets into the buffer that it was read into: nothing is copied and, with a reused [`Fields`],
//! nothing is allocated.
//!
//! It refuses to own bytes and to judge them: the codecs fill these types and vouch for what is in them.

/// A range of bytes in the buffer that a head was read into. Offsets are 32 bits: heads are at most a few MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes of this span in `buffer`; empty where the span lies outside it.
    pub fn of<'b>(&self, buffer: &'b [u8]) -> &'b [u8] {
        buffer.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }

    /// The length in bytes.
    pub const fn len(&self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Whether there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.end <= self.start
    }
}

/// The field names that Pointsman itself acts on, so that the path of a request compares numbers and not texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is the field of that name")]
pub enum Known {
    Other,
    Accept,
    Age,
    CacheStatus,
    Connection,
    ContentLength,
    ContentType,
    Cookie,
    Expect,
    Forwarded,
    Host,
    Http2Settings,
    KeepAlive,
    ProxyConnection,
    SecFetchDest,
    SetCookie,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    Via,
    XForwardedFor,
    XForwardedHost,
    XForwardedPort,
    XForwardedProto,
    XRequestId,
}

impl Known {
    /// The kind of the field with that name, a token in any case.
    pub fn of(name: &[u8]) -> Self {
        let Some(first) = name.first() else { return Self::Other };
        match (name.len(), first | 0x20) {
            (2, b't') if is_token(name, b"te") => Self::Te,
            (3, b'a') if is_token(name, b"age") => Self::Age,
            (3, b'v') if is_token(name, b"via") => Self::Via,
            (4, b'h') if is_token(name, b"host") => Self::Host,
            (6, b'a') if is_token(name, b"accept") => Self::Accept,
            (6, b'c') if is_token(name, b"cookie") => Self::Cookie,
            (6, b'e') if is_token(name, b"expect") => Self::Expect,
            (7, b't') if is_token(name, b"trailer") => Self::Trailer,
            (7, b'u') if is_token(name, b"upgrade") => Self::Upgrade,
            (9, b'f') if is_token(name, b"forwarded") => Self::Forwarded,
            (10, b'c') if is_token(name, b"connection") => Self::Connection,
            (10, b'k') if is_token(name, b"keep-alive") => Self::KeepAlive,
            (10, b's') if is_token(name, b"set-cookie") => Self::SetCookie,
            (12, b'c') if is_token(name, b"cache-status") => Self::CacheStatus,
            (12, b'c') if is_token(name, b"content-type") => Self::ContentType,
            (12, b'x') if is_token(name, b"x-request-id") => Self::XRequestId,
            (14, b'c') if is_token(name, b"content-length") => Self::ContentLength,
            (14, b'h') if is_token(name, b"http2-settings") => Self::Http2Settings,
            (14, b's') if is_token(name, b"sec-fetch-dest") => Self::SecFetchDest,
            (15, b'x') if is_token(name, b"x-forwarded-for") => Self::XForwardedFor,
            (16, b'p') if is_token(name, b"proxy-connection") => Self::ProxyConnection,
            (16, b'x') if is_token(name, b"x-forwarded-host") => Self::XForwardedHost,
            (16, b'x') if is_token(name, b"x-forwarded-port") => Self::XForwardedPort,
            (17, b't') if is_token(name, b"transfer-encoding") => Self::TransferEncoding,
            (17, b'x') if is_token(name, b"x-forwarded-proto") => Self::XForwardedProto,
            _ => Self::Other,
        }
    }

    /// Whether fields of this kind concern one connection alone, named by Connection or not.
    pub const fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::Http2Settings
                | Self::KeepAlive
                | Self::ProxyConnection
                | Self::Te
                | Self::TransferEncoding
                | Self::Upgrade
        )
    }

    /// Whether naming a field of this kind in Connection removes it. Host and the length are never removed so, nor are
    /// the fields by which a proxy says what it saw.
    pub const fn is_removable(self) -> bool {
        !matches!(
            self,
            Self::ContentLength
                | Self::Forwarded
                | Self::Host
                | Self::Via
                | Self::XForwardedFor
                | Self::XForwardedHost
                | Self::XForwardedPort
                | Self::XForwardedProto
                | Self::XRequestId
        )
    }
}

/// Whether a byte may stand in a token (RFC 9110 5.6.2): in a method, a field's name, a media type's parts.
pub(super) const fn is_token_byte(byte: u8) -> bool {
    matches!(
        byte,
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z'
            | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
    )
}

/// Whether a token is that one, which is given in lower case and consists of letters, digits and `-`.
#[inline(always)]
pub(super) fn is_token<const N: usize>(token: &[u8], lower: &[u8; N]) -> bool {
    // Setting a bit is enough to compare without regard to case: of the bytes that a token may have, only a letter in upper
    // case becomes one of those. The length is known, so that this is a few words, which may overlap.
    token.as_array::<N>().is_some_and(|token| match N {
        0..4 => token.iter().zip(lower).fold(0, |difference, (byte, lower)| difference | ((byte | 0x20) ^ lower)) == 0,
        4..8 => {
            let word = |bytes: &[u8; N], at| word_at(bytes, at).map_or(0, u32::from_le_bytes);
            let difference = |at| (word(token, at) | 0x2020_2020) ^ word(lower, at);
            difference(0) | difference(N - 4) == 0
        }
        8.. => {
            let word = |bytes: &[u8; N], at| word_at(bytes, at).map_or(0, u64::from_le_bytes);
            let difference = |at| (word(token, at) | 0x2020_2020_2020_2020) ^ word(lower, at);
            let middle = if N > 16 { 8 } else { 0 };
            const { assert!(N <= 24, "three words are compared") };
            difference(0) | difference(middle) | difference(N - 8) == 0
        }
    })
}

#[inline(always)]
fn word_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// One field line of a head.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name as it was sent, case and all.
    pub name: Span,
    /// The value without the white space around it.
    pub value: Span,
    /// Which of the names that Pointsman acts on it is.
    pub known: Known,
    /// Hop-by-hop (RFC 9110 7.6.1): Connection itself, the fields it names (never Host, the framing fields or our own),
    /// Keep-Alive, Proxy-Connection, TE, Transfer-Encoding, Upgrade, HTTP2-Settings. It is not passed on as it is.
    pub hop_by_hop: bool,
}

/// The fields of one head together with the bytes they point into.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'b> {
    /// The buffer.
    pub bytes: &'b [u8],
    /// The field lines in the order they were sent.
    pub list: &'b [Field],
}

impl<'b> Fields<'b> {
    /// The names and values of all field lines, in order.
    pub fn all(self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> {
        self.list.iter().map(move |field| (field.name.of(self.bytes), field.value.of(self.bytes)))
    }

    /// The values of the field lines with that name, in order; names are compared without regard to case.
    pub fn named(self, name: &'b str) -> impl Iterator<Item = &'b [u8]> {
        self.list
            .iter()
            .filter(move |field| field.name.of(self.bytes).eq_ignore_ascii_case(name.as_bytes()))
            .map(move |field| field.value.of(self.bytes))
    }

    /// The values of the field lines of that kind, in order.
    pub fn known(self, known: Known) -> impl Iterator<Item = &'b [u8]> {
        self.list.iter().filter(move |field| field.known == known).map(move |field| field.value.of(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: [(&str, Known); 25] = [
        ("Accept", Known::Accept),
        ("Age", Known::Age),
        ("Cache-Status", Known::CacheStatus),
        ("Connection", Known::Connection),
        ("Content-Length", Known::ContentLength),
        ("Content-Type", Known::ContentType),
        ("Cookie", Known::Cookie),
        ("Expect", Known::Expect),
        ("Forwarded", Known::Forwarded),
        ("Host", Known::Host),
        ("HTTP2-Settings", Known::Http2Settings),
        ("Keep-Alive", Known::KeepAlive),
        ("Proxy-Connection", Known::ProxyConnection),
        ("Sec-Fetch-Dest", Known::SecFetchDest),
        ("Set-Cookie", Known::SetCookie),
        ("TE", Known::Te),
        ("Trailer", Known::Trailer),
        ("Transfer-Encoding", Known::TransferEncoding),
        ("Upgrade", Known::Upgrade),
        ("Via", Known::Via),
        ("X-Forwarded-For", Known::XForwardedFor),
        ("X-Forwarded-Host", Known::XForwardedHost),
        ("X-Forwarded-Port", Known::XForwardedPort),
        ("X-Forwarded-Proto", Known::XForwardedProto),
        ("X-Request-Id", Known::XRequestId),
    ];

    #[test]
    fn names_are_known_in_any_case() {
        for (name, kind) in NAMED {
            for name in [name.to_owned(), name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
                assert_eq!(Known::of(name.as_bytes()), kind, "{name}");
            }
        }
    }

    /// Every other byte in every place of every name, and every name a byte shorter or longer.
    #[test]
    fn names_that_are_nearly_the_same_are_not_known() {
        for (name, kind) in NAMED {
            let known: Vec<_> = NAMED.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
            for place in 0..name.len() {
                for byte in
                    (0..=255_u8).filter(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte))
                {
                    let mut other = name.as_bytes().to_vec();
                    other[place] = byte;
                    if known.iter().any(|known| other.eq_ignore_ascii_case(known.as_bytes())) {
                        continue;
                    }
                    assert_eq!(Known::of(&other), Known::Other, "{}", String::from_utf8_lossy(&other));
                }
            }
            assert_eq!(Known::of(&name.as_bytes()[1..]), Known::Other);
            assert_ne!(Known::of(&name.as_bytes()[..name.len() - 1]), kind);
            assert_eq!(Known::of(format!("{name}s").as_bytes()), Known::Other);
        }
        assert_eq!(Known::of(b""), Known::Other);
    }

    #[test]
    fn a_span_outside_its_buffer_is_empty() {
        assert_eq!(Span { start: 2, end: 9 }.of(b"short"), b"");
        assert_eq!(Span { start: 3, end: 2 }.of(b"short"), b"");
        assert_eq!((Span { start: 3, end: 2 }.len(), Span { start: 3, end: 5 }.len()), (0, 2));
    }
}

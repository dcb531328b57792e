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
        let (lower, kind): (&[u8], Self) = match (name.len(), first | 0x20) {
            (2, b't') => (b"te", Self::Te),
            (3, b'a') => (b"age", Self::Age),
            (3, b'v') => (b"via", Self::Via),
            (4, b'h') => return if is_name(name, b"host") { Self::Host } else { Self::Other },
            (6, b'a') => return if is_name(name, b"accept") { Self::Accept } else { Self::Other },
            (6, b'c') => (b"cookie", Self::Cookie),
            (6, b'e') => (b"expect", Self::Expect),
            (7, b't') => (b"trailer", Self::Trailer),
            (7, b'u') => (b"upgrade", Self::Upgrade),
            (9, b'f') => (b"forwarded", Self::Forwarded),
            (10, b'c') => (b"connection", Self::Connection),
            (10, b'k') => (b"keep-alive", Self::KeepAlive),
            (10, b's') => (b"set-cookie", Self::SetCookie),
            (12, b'c') if is_name(name, b"cache-status") => return Self::CacheStatus,
            (12, b'c') => (b"content-type", Self::ContentType),
            (12, b'x') => (b"x-request-id", Self::XRequestId),
            (14, b'c') => (b"content-length", Self::ContentLength),
            (14, b'h') => (b"http2-settings", Self::Http2Settings),
            (14, b's') => (b"sec-fetch-dest", Self::SecFetchDest),
            (15, b'x') => (b"x-forwarded-for", Self::XForwardedFor),
            (16, b'p') => (b"proxy-connection", Self::ProxyConnection),
            (16, b'x') if is_name(name, b"x-forwarded-host") => return Self::XForwardedHost,
            (16, b'x') => (b"x-forwarded-port", Self::XForwardedPort),
            (17, b't') => (b"transfer-encoding", Self::TransferEncoding),
            (17, b'x') => (b"x-forwarded-proto", Self::XForwardedProto),
            _ => return Self::Other,
        };
        if is_name(name, lower) { kind } else { Self::Other }
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

/// Whether a name is that one, given in lower case, whatever its own case.
fn is_name(name: &[u8], lower: &[u8]) -> bool {
    name.eq_ignore_ascii_case(lower)
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

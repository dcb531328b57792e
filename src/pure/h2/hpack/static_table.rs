//! The fields that both sides know before anything is said (RFC 7541 Appendix A).

/// How many there are. Indexes above it are of the dynamic table.
pub(super) const COUNT: u32 = 61;

/// The field of an index, which counts from 1.
pub(super) fn field(index: u32) -> Option<(&'static [u8], &'static [u8])> {
    FIELDS.get((index as usize).wrapping_sub(1)).copied()
}

/// The index of a field whose name has that one (the first, where there are more of the name).
pub(super) fn index(name_index: u8, value: &[u8]) -> Option<u8> {
    Some(match (name_index, value) {
        (2, b"GET") => 2,
        (2, b"POST") => 3,
        (4, b"/") => 4,
        (4, b"/index.html") => 5,
        (6, b"http") => 6,
        (6, b"https") => 7,
        (8, b"200") => 8,
        (8, b"204") => 9,
        (8, b"206") => 10,
        (8, b"304") => 11,
        (8, b"400") => 12,
        (8, b"404") => 13,
        (8, b"500") => 14,
        (16, b"gzip, deflate") => 16,
        (2 | 4 | 6 | 8 | 16, _) => return None,
        (1..=61, b"") => name_index,
        _ => return None,
    })
}

#[rustfmt::skip]
static FIELDS: [(&[u8], &[u8]); COUNT as usize] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

//! The headers of HTTP/2 frames in a stream of bytes (RFC 9113 4.1), in whatever pieces it comes.
//!
//! The `h2` crate reads the frames; it has no word for a head that is not whole yet, nor for what costs a client nothing.
//! This reader sees the same bytes and tells both, and hands on what heads are made of. It refuses to judge more than the
//! lengths of frames that have but one, which the crate calls by another name than RFC 9113 4.2.

/// The client's preface (RFC 9113 3.4), which comes before the first frame.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub enum FrameKind {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// Any other: receivers pass over it.
    Unknown,
}

impl FrameKind {
    const fn of(code: u8) -> Self {
        match code {
            0 => Self::Data,
            1 => Self::Headers,
            2 => Self::Priority,
            3 => Self::RstStream,
            4 => Self::Settings,
            5 => Self::PushPromise,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::WindowUpdate,
            9 => Self::Continuation,
            _ => Self::Unknown,
        }
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The type.
    pub kind: FrameKind,
    /// Bytes behind the header.
    pub length: u32,
    /// The flags; what they mean depends on the type.
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
}

/// Why a connection can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client sends more of what costs it nothing than is borne.
    Flood,
    /// It breaks the protocol.
    Protocol,
    /// A frame has a length that its type does not have.
    FrameSize,
    /// A head can't be decompressed.
    Compression,
    /// Something comes for a stream that the client has ended.
    StreamClosed,
    /// A window would be larger than windows can be.
    FlowControl,
}

/// What has come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// A frame's header, whole.
    Frame(FrameHeader),
    /// A piece of the payload of the HEADERS or CONTINUATION frame whose header was last seen.
    HeadPayload(&'a [u8]),
    /// The same of a SETTINGS frame.
    SettingsPayload(&'a [u8]),
}

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

impl FrameHeader {
    /// Whether it ends its stream.
    pub const fn ends_stream(self) -> bool {
        matches!(self.kind, FrameKind::Data | FrameKind::Headers) && self.flags & END_STREAM != 0
    }

    /// Whether a head ends with it.
    pub(super) const fn ends_head(self) -> bool {
        self.flags & END_HEADERS != 0
    }

    /// Whether its length is one that its type can have (RFC 9113 6). The largest is the crate's to know.
    pub const fn has_possible_length(self) -> bool {
        match self.kind {
            FrameKind::Priority => self.length == 5,
            FrameKind::RstStream | FrameKind::WindowUpdate => self.length == 4,
            FrameKind::Ping => self.length == 8,
            FrameKind::Settings if self.flags & ACK != 0 => self.length == 0,
            FrameKind::Settings => self.length.is_multiple_of(6),
            FrameKind::GoAway => self.length >= 8,
            FrameKind::Data
            | FrameKind::Headers
            | FrameKind::PushPromise
            | FrameKind::Continuation
            | FrameKind::Unknown => true,
        }
    }

    /// Whether padding is around what a HEADERS frame says.
    pub(super) const fn is_padded(self) -> bool {
        self.flags & PADDED != 0
    }

    /// Whether a HEADERS frame begins with a priority (RFC 9113 6.2).
    pub(super) const fn has_priority(self) -> bool {
        self.flags & PRIORITY != 0
    }
}

/// Bytes of a frame's header.
const HEADER: usize = 9;

/// Follows a client's bytes from the first one on.
#[derive(Clone, Debug, Default)]
pub struct FrameReader {
    /// Bytes of the preface that have come.
    preface: u8,
    /// What has come of a header.
    header: [u8; HEADER],
    header_length: u8,
    /// Bytes of the present frame that are still to come.
    payload: u32,
    is_head_open: bool,
}

impl FrameReader {
    /// Follows these bytes, which come behind those of the last call, and tells `note` what comes by, as long as that says
    /// to go on. Gives back how many bytes came before it said no: what it said no to is not among them.
    pub fn read(&mut self, all: &[u8], mut note: impl FnMut(Seen<'_>) -> bool) -> usize {
        let mut bytes = all;
        let missing = PREFACE.len().saturating_sub(usize::from(self.preface)).min(bytes.len());
        self.preface += u8::try_from(missing).unwrap_or(0);
        bytes = bytes.get(missing..).unwrap_or_default();
        while !bytes.is_empty() {
            let passed = bytes.len().min(self.payload as usize);
            if passed > 0 {
                let (payload, rest) = bytes.split_at_checked(passed).unwrap_or((bytes, &[]));
                let goes_on = match self.header {
                    [_, _, _, 1 | 9, ..] => note(Seen::HeadPayload(payload)),
                    [_, _, _, 4, ..] => note(Seen::SettingsPayload(payload)),
                    _ => true,
                };
                if !goes_on {
                    return all.len() - bytes.len();
                }
                self.payload -= u32::try_from(passed).unwrap_or(self.payload);
                bytes = rest;
            }
            let Some((first, rest)) = bytes.split_first() else { break };
            if let Some(place) = self.header.get_mut(usize::from(self.header_length)) {
                *place = *first;
                self.header_length += 1;
            }
            if usize::from(self.header_length) == HEADER {
                self.header_length = 0;
                if !note(Seen::Frame(self.finish())) {
                    return all.len() - bytes.len();
                }
            }
            bytes = rest;
        }
        all.len()
    }

    /// Whether the preface has come.
    pub fn has_preface(&self) -> bool {
        usize::from(self.preface) == PREFACE.len()
    }

    /// Whether a head has begun whose last frame has not begun yet, or is still coming.
    pub fn is_head_open(&self) -> bool {
        self.is_head_open || self.header_length > 0 || (self.is_in_head() && self.payload > 0)
    }

    fn is_in_head(&self) -> bool {
        matches!(self.header, [_, _, _, 1 | 9, ..])
    }

    fn finish(&mut self) -> FrameHeader {
        let [a, b, c, kind, flags, d, e, f, g] = self.header;
        self.payload = u32::from_be_bytes([0, a, b, c]);
        // The first bit is reserved.
        let stream = u32::from_be_bytes([d & 0x7F, e, f, g]);
        let header = FrameHeader { kind: FrameKind::of(kind), length: self.payload, flags, stream };
        if matches!(header.kind, FrameKind::Headers | FrameKind::Continuation | FrameKind::PushPromise) {
            self.is_head_open = flags & END_HEADERS == 0;
        }
        header
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_head_is_open_until_its_last_frame_is_whole() {
        let mut reader = FrameReader::default();
        let mut feed = |bytes: &[u8]| {
            reader.read(bytes, |_| true);
            reader.is_head_open()
        };
        assert!(!feed(PREFACE));
        assert!(!feed(&frame(4, 0, &[])));
        assert!(feed(&frame(1, END_STREAM, b"abc")), "more is announced");
        let last = frame(9, END_HEADERS, b"def");
        assert!(feed(&last[..4]));
        assert!(feed(&last[4..11]));
        assert!(!feed(&last[11..]));
        assert!(!feed(&frame(0, 0, b"data")[..10]), "data may take its time");
    }

    #[test]
    fn what_is_refused_does_not_pass() {
        let bytes = [PREFACE, &frame(4, 0, &[])[..], &frame(6, 0, &[0; 7]), &frame(0, 0, b"data")].concat();
        for size in [1, 5, bytes.len()] {
            let mut reader = FrameReader::default();
            let mut passed = 0;
            for piece in bytes.chunks(size) {
                let count =
                    reader.read(piece, |what| !matches!(what, Seen::Frame(frame) if !frame.has_possible_length()));
                passed += count;
                if count < piece.len() {
                    break;
                }
            }
            assert_eq!(passed, PREFACE.len() + 9 + 8, "without the last byte of the header");
        }
    }

    proptest! {
        /// However the bytes are cut, the headers are those that were written.
        #[test]
        fn pieces_make_no_difference(
            frames in proptest::collection::vec((0u8..12, any::<u8>(), 0usize..40), 0..20),
            cuts in proptest::collection::vec(0usize..600, 0..20),
        ) {
            let mut bytes = PREFACE.to_vec();
            for (kind, flags, length) in &frames {
                bytes.extend(frame(*kind, *flags, &vec![7; *length]));
            }
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut reader = FrameReader::default();
            let (mut seen, mut payload) = (Vec::new(), 0);
            for pair in cuts.windows(2) {
                reader.read(&bytes[pair[0]..pair[1]], |what| {
                    match what {
                        Seen::Frame(header) => seen.push((header.kind, header.flags, header.length as usize)),
                        Seen::HeadPayload(piece) => payload += piece.len(),
                        Seen::SettingsPayload(_) => {}
                    }
                    true
                });
            }
            let wanted: Vec<_> =
                frames.iter().map(|(kind, flags, length)| (FrameKind::of(*kind), *flags, *length)).collect();
            prop_assert_eq!(seen, wanted);
            let heads = frames.iter().filter(|(kind, ..)| matches!(kind, 1 | 9));
            prop_assert_eq!(payload, heads.map(|(.., length)| length).sum::<usize>());
        }
    }
}

//! Frames of HTTP/2 (RFC 9113 4, 6): cut out of a stream of bytes, in whatever pieces it comes, and written.
//!
//! A frame's header comes whole, its payload as it came: nothing is copied. It refuses to judge more than lengths that no
//! frame of a type has.

use crate::base::h2_reset::H2Reset;

/// The client's preface (RFC 9113 3.4), which comes before the first frame.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame's header.
pub const HEADER: usize = 9;
/// The largest payload that we take, and the largest that we send: what everybody takes (RFC 9113 4.2).
pub const PAYLOAD_MAX: usize = 16_384;

/// Types of frames (RFC 9113 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    #[default]
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

    const fn code(self) -> u8 {
        self as u8
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// The other side sends more of what costs it nothing than is borne.
    Flood,
    /// It breaks the protocol.
    Protocol,
    /// A frame has a length that its type does not have.
    FrameSize,
    /// A head can't be decompressed.
    Compression,
    /// Something comes for a stream that the other side has ended.
    StreamClosed,
    /// More data than there was room for, or a window that is larger than windows can be.
    FlowControl,
}

impl Fault {
    /// By which code the other side is told.
    pub const fn code(self) -> H2Reset {
        match self {
            Self::Flood => H2Reset::ENHANCE_YOUR_CALM,
            Self::Protocol => H2Reset::PROTOCOL_ERROR,
            Self::FrameSize => H2Reset::FRAME_SIZE_ERROR,
            Self::Compression => H2Reset::COMPRESSION_ERROR,
            Self::StreamClosed => H2Reset::STREAM_CLOSED,
            Self::FlowControl => H2Reset::FLOW_CONTROL_ERROR,
        }
    }
}

/// END_STREAM, of DATA and HEADERS.
pub const END_STREAM: u8 = 0x1;
/// ACK, of SETTINGS and PING.
pub const ACK: u8 = 0x1;
/// END_HEADERS, of HEADERS and CONTINUATION.
pub const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

impl FrameHeader {
    /// Reads a header.
    pub const fn read(bytes: &[u8; HEADER]) -> Self {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes;
        // The first bit of the stream is reserved.
        let stream = u32::from_be_bytes([d & 0x7F, e, f, g]);
        Self { kind: FrameKind::of(kind), length: u32::from_be_bytes([0, a, b, c]), flags, stream }
    }

    /// The same as bytes; a type that is not known can't be written.
    pub const fn bytes(self) -> [u8; HEADER] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind.code(), self.flags, d, e, f, g]
    }

    /// Whether it ends its stream.
    pub const fn ends_stream(self) -> bool {
        matches!(self.kind, FrameKind::Data | FrameKind::Headers) && self.flags & END_STREAM != 0
    }

    /// Whether a head ends with it.
    pub const fn ends_head(self) -> bool {
        self.flags & END_HEADERS != 0
    }

    /// Whether it acknowledges what we have sent.
    pub const fn is_ack(self) -> bool {
        self.flags & ACK != 0
    }

    /// Whether its length is one that its type can have (RFC 9113 4.2, 6).
    pub const fn has_possible_length(self) -> bool {
        let is_of_its_type = match self.kind {
            FrameKind::Priority => self.length == 5,
            FrameKind::RstStream | FrameKind::WindowUpdate => self.length == 4,
            FrameKind::Ping => self.length == 8,
            FrameKind::Settings if self.is_ack() => self.length == 0,
            FrameKind::Settings => self.length.is_multiple_of(6),
            FrameKind::GoAway => self.length >= 8,
            FrameKind::Data
            | FrameKind::Headers
            | FrameKind::PushPromise
            | FrameKind::Continuation
            | FrameKind::Unknown => true,
        };
        is_of_its_type && self.length as usize <= PAYLOAD_MAX
    }

    /// Whether it is one of a stream, where its type is of one or the other (RFC 9113 6).
    pub const fn has_possible_stream(self) -> bool {
        match self.kind {
            FrameKind::Settings | FrameKind::Ping | FrameKind::GoAway => self.stream == 0,
            FrameKind::WindowUpdate | FrameKind::Unknown => true,
            FrameKind::Data
            | FrameKind::Headers
            | FrameKind::Priority
            | FrameKind::RstStream
            | FrameKind::PushPromise
            | FrameKind::Continuation => self.stream != 0,
        }
    }

    /// Whether it carries a part of a head.
    pub const fn is_of_head(self) -> bool {
        matches!(self.kind, FrameKind::Headers | FrameKind::Continuation)
    }

    /// Whether padding is around what a DATA or HEADERS frame says.
    pub const fn is_padded(self) -> bool {
        self.flags & PADDED != 0
    }

    /// Whether a HEADERS frame begins with a priority (RFC 9113 6.2).
    pub const fn has_priority(self) -> bool {
        self.flags & PRIORITY != 0
    }
}

/// Appends a frame.
pub fn push_frame(out: &mut Vec<u8>, kind: FrameKind, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.reserve(HEADER + payload.len());
    out.extend_from_slice(&FrameHeader { kind, length, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    /// A frame's header, whole.
    Header(FrameHeader),
    /// A piece of the payload of the frame whose header came last.
    Payload(&'b [u8]),
    /// The end of that payload.
    End,
    /// What came is not the preface.
    WrongPreface,
}

/// Cuts frames out of bytes.
#[derive(Clone, Debug, Default)]
pub struct FrameReader {
    /// Bytes of the preface that are still to come.
    preface: u8,
    /// What has come of a header.
    header: [u8; HEADER],
    header_length: u8,
    /// Whether the present frame's end is still to be told, and bytes of it that are still to come.
    is_in_frame: bool,
    payload: u32,
}

impl FrameReader {
    /// One for the bytes of a client, which begin with the preface.
    pub fn with_preface() -> Self {
        Self { preface: PREFACE.len() as u8, ..Self::default() }
    }

    /// What comes next in `bytes`, which lie behind those of the last call, and are left without it. `None`: they are used up.
    pub fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Option<Piece<'b>> {
        if self.preface > 0 && !self.read_preface(bytes) {
            return Some(Piece::WrongPreface);
        }
        if !self.is_in_frame {
            let header = FrameHeader::read(&self.read_header(bytes)?);
            (self.is_in_frame, self.payload) = (true, header.length);
            return Some(Piece::Header(header));
        }
        if self.payload == 0 {
            self.is_in_frame = false;
            return Some(Piece::End);
        }
        let (piece, rest) = bytes.split_at_checked(self.payload as usize).unwrap_or((bytes, &[]));
        if piece.is_empty() {
            return None;
        }
        *bytes = rest;
        self.payload -= u32::try_from(piece.len()).unwrap_or(self.payload);
        Some(Piece::Payload(piece))
    }

    /// Whether the preface has come.
    pub const fn has_preface(&self) -> bool {
        self.preface == 0
    }

    /// Whether a header has begun that is not whole.
    pub const fn is_in_header(&self) -> bool {
        self.header_length > 0
    }

    /// Whether a frame is not whole.
    pub const fn is_in_frame(&self) -> bool {
        self.is_in_frame
    }

    /// False: it is another.
    fn read_preface(&mut self, bytes: &mut &[u8]) -> bool {
        let missing = PREFACE.get(PREFACE.len() - usize::from(self.preface)..).unwrap_or_default();
        let count = missing.len().min(bytes.len());
        let (came, rest) = bytes.split_at_checked(count).unwrap_or((bytes, &[]));
        *bytes = rest;
        if !missing.starts_with(came) {
            return false;
        }
        self.preface -= u8::try_from(count).unwrap_or(0);
        true
    }

    fn read_header(&mut self, bytes: &mut &[u8]) -> Option<[u8; HEADER]> {
        if self.header_length == 0
            && let Some((header, rest)) = bytes.split_first_chunk()
        {
            *bytes = rest;
            return Some(*header);
        }
        while usize::from(self.header_length) < HEADER {
            let (first, rest) = bytes.split_first()?;
            *bytes = rest;
            if let Some(place) = self.header.get_mut(usize::from(self.header_length)) {
                *place = *first;
            }
            self.header_length += 1;
        }
        self.header_length = 0;
        Some(self.header)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0x80, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    /// Headers with their payloads, where they have come whole.
    fn cut<'a>(reader: &mut FrameReader, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(FrameHeader, Vec<u8>)> {
        let mut frames: Vec<(FrameHeader, Vec<u8>)> = Vec::new();
        let mut ends = 0;
        for mut bytes in pieces {
            while let Some(piece) = reader.next(&mut bytes) {
                match piece {
                    Piece::Header(header) => frames.push((header, Vec::new())),
                    Piece::Payload(payload) => frames.last_mut().unwrap().1.extend(payload),
                    Piece::End => ends += 1,
                    Piece::WrongPreface => panic!("a wrong preface"),
                }
            }
            assert!(bytes.is_empty());
        }
        frames.truncate(ends);
        frames
    }

    #[test]
    fn a_wrong_preface_is_told_by_its_first_wrong_byte() {
        let mut wrong = *PREFACE;
        wrong[20] = b'x';
        for size in [1, 7, 24] {
            let mut reader = FrameReader::with_preface();
            let told = wrong.chunks(size).position(|mut piece| reader.next(&mut piece) == Some(Piece::WrongPreface));
            assert_eq!(told, Some(20 / size), "pieces of {size}");
        }
    }

    proptest! {
        /// However the bytes are cut, the frames are those that were written.
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
            let mut reader = FrameReader::with_preface();
            let seen = cut(&mut reader, cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]));
            prop_assert!(!reader.is_in_header() && !reader.is_in_frame());
            let wanted: Vec<_> = frames
                .iter()
                .map(|(kind, flags, length)| {
                    let header =
                        FrameHeader { kind: FrameKind::of(*kind), length: *length as u32, flags: *flags, stream: 1 };
                    (header, vec![7; *length])
                })
                .collect();
            prop_assert_eq!(seen, wanted);
        }

        #[test]
        fn a_header_that_is_written_reads_as_it_was(code in 0u8..10, length in 0u32..1 << 24, flags: u8, stream in 0u32..1 << 31) {
            let header = FrameHeader { kind: FrameKind::of(code), length, flags, stream };
            prop_assert_eq!(FrameHeader::read(&header.bytes()), header);
        }
    }
}

//! How long a message body is (RFC 9112 6.3), and the chunked coding (RFC 9112 7.1).

use std::ops::Range;

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body.
    #[default]
    None,
    /// So many bytes, above zero.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// The end of the connection; answers only.
    UntilClose,
}

/// What [`BodyDecoder::decode`] found at the front of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Where the body's data now lies in the buffer: one run, moved together where chunk framing lay between.
    pub data: Range<usize>,
    /// How many bytes of the buffer were used up, framing and data. Bytes of an unfinished chunk line are used up too:
    /// the decoder remembers where it is.
    pub consumed: usize,
    /// Whether the body is complete. Bytes beyond `consumed` belong to the next message.
    pub is_complete: bool,
}

/// A body that breaks its own framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BodyError {
    #[error("malformed chunk size")]
    ChunkSize,
    #[error("chunk extensions are too long")]
    ChunkExtension,
    #[error("a chunk does not end in CRLF")]
    ChunkEnd,
    #[error("malformed trailer section")]
    Trailer,
    #[error("trailer section too large")]
    TrailerTooLarge,
}

/// Takes the framing off one body, in whatever pieces it comes.
#[derive(Debug)]
pub struct BodyDecoder {
    _private: (),
}

impl BodyDecoder {
    /// A decoder for a body of that length. [`BodyLength::UntilClose`] is never complete by itself.
    pub fn new(_length: BodyLength) -> Self {
        Self { _private: () }
    }

    /// Decodes the front of `buffer`, in place: one pass, as far as the bytes go.
    ///
    /// # Errors
    /// [`BodyError`] where the framing is broken; the body must then not look complete to the other side.
    pub fn decode(&mut self, _buffer: &mut [u8]) -> Result<Decoded, BodyError> {
        Ok(Decoded { data: 0..0, consumed: 0, is_complete: true })
    }

    /// Whether the body is complete (from the start for [`BodyLength::None`]).
    pub fn is_complete(&self) -> bool {
        true
    }

    /// The trailer lines that may be passed on, each `Name: value CRLF` as sent, without the empty line; empty where there
    /// were none. Fields for framing, routing, authentication and the connection are left out (RFC 9110 6.5.1).
    pub fn trailers(&self) -> &[u8] {
        &[]
    }
}

/// Appends the line that opens a chunk of `length` bytes: hex digits and CRLF.
pub fn push_chunk_line(_out: &mut Vec<u8>, _length: usize) {}

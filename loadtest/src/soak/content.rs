//! The bodies of a soak: bytes that follow from a seed and their place, so that both sides know them without keeping them, and gRPC
//! messages with trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body, Frame, SizeHint};

/// The most bytes that a body yields at once.
const PIECE: usize = 8 * 1024;

/// A body.
pub enum Content {
    /// `left` bytes of the pattern of `seed` from `at` on; the length is told beforehand or is not.
    Pattern { seed: u64, at: usize, left: usize, is_sized: bool },
    /// These bytes, then these trailers.
    Message { bytes: Option<Bytes>, trailers: Option<HeaderMap> },
}

impl Content {
    /// Nothing.
    pub fn none() -> Self {
        Self::Message { bytes: None, trailers: None }
    }

    /// Some bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Message { bytes: Some(bytes.into()), trailers: None }
    }

    /// A gRPC answer that went well.
    pub fn grpc(bytes: Bytes) -> Self {
        let mut trailers = HeaderMap::new();
        trailers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
        Self::Message { bytes: Some(bytes), trailers: Some(trailers) }
    }

    /// `size` bytes of the pattern of `seed`.
    pub fn pattern(seed: u64, size: usize, is_sized: bool) -> Self {
        Self::Pattern { seed, at: 0, left: size, is_sized }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(match self.get_mut() {
            Self::Pattern { left: 0, .. } => None,
            Self::Pattern { seed, at, left, .. } => {
                let count = PIECE.min(*left);
                let piece: Bytes = (*at..*at + count).map(|place| byte(*seed, place)).collect();
                (*at, *left) = (*at + count, *left - count);
                Some(Ok(Frame::data(piece)))
            }
            Self::Message { bytes, trailers } => match bytes.take().filter(|bytes| !bytes.is_empty()) {
                Some(bytes) => Some(Ok(Frame::data(bytes))),
                None => trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            },
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pattern { left, is_sized, .. } => *left == 0 && *is_sized,
            Self::Message { bytes, trailers } => bytes.as_ref().is_none_or(Bytes::is_empty) && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pattern { left, is_sized: true, .. } => SizeHint::with_exact(*left as u64),
            Self::Message { bytes, trailers: None } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Pattern { .. } | Self::Message { .. } => SizeHint::default(),
        }
    }
}

/// The byte of a pattern at a place. It repeats only after 64 KiB, so that pieces in the wrong order show.
#[allow(clippy::cast_possible_truncation, reason = "a mixture of the low bits is what is wanted")]
fn byte(seed: u64, place: usize) -> u8 {
    let place = place as u64;
    (seed.wrapping_add(place.wrapping_mul(31)) ^ (place >> 8)) as u8
}

/// Whether `bytes` are the pattern of `seed` from `at` on.
pub fn is_pattern(seed: u64, at: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(offset, found)| *found == byte(seed, at + offset))
}

/// The pattern as bytes.
pub fn pattern(seed: u64, size: usize) -> Vec<u8> {
    (0..size).map(|place| byte(seed, place)).collect()
}

/// A checksum that is fed piece by piece (FNV-1a, 64 bits).
#[derive(Clone, Copy)]
pub struct Checksum(u64);

impl Checksum {
    /// Of nothing.
    pub fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    /// With `bytes` behind what it has seen.
    pub fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)))
    }

    /// What an origin says of an upload.
    pub fn says(self, length: usize) -> String {
        format!("{length} {:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn a_pattern_is_itself_in_any_pieces_and_no_other() {
        let whole = pattern(7, 70_000);
        assert!(is_pattern(7, 0, &whole) && is_pattern(7, 500, &whole[500..]));
        assert!(!is_pattern(8, 0, &whole) && !is_pattern(7, 501, &whole[500..]));
        let split = Checksum::new().with(&whole[..99]).with(&whole[99..]).says(whole.len());
        assert_eq!(split, Checksum::new().with(&whole).says(whole.len()));
    }

    #[test]
    fn bodies_yield_what_they_promise() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let all = |content: Content| runtime.block_on(content.collect()).unwrap();
        assert_eq!(all(Content::pattern(3, 20_000, false)).to_bytes(), pattern(3, 20_000));
        let answer = all(Content::grpc(Bytes::from_static(b"m")));
        assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(answer.to_bytes(), "m");
    }
}

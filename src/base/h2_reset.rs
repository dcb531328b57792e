//! The end of an HTTP/2 stream by a reset, as an error that carries the code from one side of an exchange to the other.

use std::io;

/// A stream was reset, with this code (RFC 9113 7). Inside an `io::Error`, by [`io::Error::other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream was reset with code {0}")]
pub struct H2Reset(pub u32);

impl H2Reset {
    /// REFUSED_STREAM: nothing was done with the request, and it may be sent again (RFC 9113 8.7).
    pub const REFUSED_STREAM: Self = Self(7);

    /// The reset that an error carries, if it does.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_travels_in_an_error() {
        assert_eq!(H2Reset::of(&io::Error::other(H2Reset(8))), Some(H2Reset(8)));
        assert_eq!(H2Reset::of(&io::ErrorKind::BrokenPipe.into()), None);
    }
}

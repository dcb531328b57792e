//! HTTP/2 error codes (RFC 9113 7), also on their way through interfaces that know only I/O errors. It refuses to judge them.

use std::io;

/// A stream was reset, or a connection ended, with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HTTP/2 error code {0}")]
pub struct H2Reset(pub u32);

#[expect(missing_docs, reason = "the names are the RFC's")]
impl H2Reset {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION_ERROR: Self = Self(9);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

impl H2Reset {
    /// Whether the code may speak of the request alone, and not of who sent it: it is not wanted any more, or is one that makes
    /// trouble.
    pub const fn may_be_of_request(self) -> bool {
        matches!(self, Self::NO_ERROR | Self::PROTOCOL_ERROR | Self::CANCEL | Self::ENHANCE_YOUR_CALM)
    }

    /// The code that an error carries, where it carries one.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Self>().copied()
    }
}

impl From<H2Reset> for io::Error {
    fn from(reset: H2Reset) -> Self {
        Self::new(io::ErrorKind::ConnectionReset, reset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_survives_the_way_through_an_io_error() {
        let error = io::Error::from(H2Reset(8));
        assert_eq!((H2Reset::of(&error), error.kind()), (Some(H2Reset(8)), io::ErrorKind::ConnectionReset));
        assert_eq!(H2Reset::of(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
    }
}

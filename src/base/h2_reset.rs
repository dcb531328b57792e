//! The code of an HTTP/2 reset on its way through interfaces that know only I/O errors. It refuses to judge the code.

use std::io;

/// A stream was reset with this code (RFC 9113 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream was reset with HTTP/2 error code {0}")]
pub struct H2Reset(pub u32);

impl H2Reset {
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

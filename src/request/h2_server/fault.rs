//! Why a stream ended before its answer did, as an error that the exchange can read.

use std::io;

use crate::base::h2_reset::H2Reset;
use crate::pure::h2::field_rules::Malformed;
use crate::pure::h2::multiplexer::StreamEnd;

/// The end of a stream that is not the answer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The server reset the stream, with a code other than REFUSED_STREAM.
    #[error(transparent)]
    Reset(H2Reset),
    /// The server has done nothing with the request, and says so: REFUSED_STREAM, or a GOAWAY whose last stream came before
    /// this one (RFC 9113 8.7).
    #[error("the server refused the request unprocessed")]
    Unprocessed,
    /// The connection broke.
    #[error("the connection broke")]
    Broken,
    /// The server broke HTTP/2, or the rules of its messages.
    #[error("the server broke HTTP/2")]
    Malformed,
    /// The request is an upgrade, and the server takes no extended CONNECT.
    #[error("the server takes no extended CONNECT")]
    NoExtendedConnect,
    /// The request can't be said in HTTP/2.
    #[error("the request can't be said in HTTP/2")]
    Unmappable,
}

impl Fault {
    /// The fault that an error carries, if it does.
    pub fn in_error(error: &io::Error) -> Option<Self> {
        H2Reset::of(error).map(Self::Reset).or_else(|| error.get_ref()?.downcast_ref().copied())
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Reset(reset) => reset.into(),
            fault => Self::other(fault),
        }
    }
}

impl From<StreamEnd> for Fault {
    fn from(end: StreamEnd) -> Self {
        match end {
            StreamEnd::Reset(reset) => Self::Reset(reset),
            StreamEnd::Refused => Self::Unprocessed,
            StreamEnd::Malformed => Self::Malformed,
            StreamEnd::Lost => Self::Broken,
        }
    }
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

//! Why a stream ended before its answer did, as an error that the exchange can read.

use std::io;

use h2::Reason;

use crate::base::h2_reset::H2Reset;

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
    /// What an error of a stream means.
    pub fn of(error: &h2::Error) -> Self {
        match error.reason() {
            Some(Reason::REFUSED_STREAM) if error.is_reset() && error.is_remote() => Self::Unprocessed,
            // A GOAWAY ends those streams alone that the server has not looked at: the others go on.
            Some(_) if error.is_go_away() && error.is_remote() => Self::Unprocessed,
            Some(reason) if error.is_remote() => Self::Reset(H2Reset(reason.into())),
            Some(_) if error.is_library() => Self::Malformed,
            Some(_) | None => Self::Broken,
        }
    }

    /// What an error means that came before anything of the request was sent.
    pub fn of_unsent(error: &h2::Error) -> Self {
        // What else there is speaks against the request itself.
        if error.is_io() || error.is_go_away() { Self::Unprocessed } else { Self::Unmappable }
    }

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

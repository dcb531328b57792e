//! Why an exchange ends without its answer: with those of [`Refusal`], the one table of statuses and reason tokens that Pointsman
//! answers and logs by itself (the access log's `reason`).

use std::io;

use crate::base::error::{Blame, RetrySafety};
use crate::base::h2_reset::H2Reset;
use crate::pure::h1::request::RequestHeadError;
use crate::pure::h1::response::ResponseHeadError;
use crate::pure::refusal::Refusal;
use crate::request::h2_server::Fault;
use crate::transport::dial::DialError;
use crate::transport::tls::said;

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Head, rules or pool refuse it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The head did not come in time.
    #[error("the request head did not come in time")]
    HeadTimeout,
    /// The body did not come in time, or the client reads nothing.
    #[error("the client was too slow")]
    ClientTimeout,
    /// The request's body breaks its framing.
    #[error("malformed request body")]
    Body,
    /// The client went away.
    #[error("the client went away")]
    ClientGone,
    /// Too many connections of one client.
    #[error("too many connections of this client")]
    TooManyConnections,
    /// There is no memory for a larger head.
    #[error("no buffer memory")]
    NoMemory,
    /// No connection to a server.
    #[error(transparent)]
    Connect(#[from] DialError),
    /// The server broke off before its answer.
    #[error("the server closed the connection before its answer")]
    Reset {
        /// Whether anything of the request had been written.
        is_written: bool,
    },
    /// The server reset the request's stream before its answer.
    #[error("the server reset the request's HTTP/2 stream before its answer: {0}")]
    StreamReset(H2Reset),
    /// The server says that it has done nothing with the request.
    #[error("the server refused the request unprocessed")]
    Unprocessed,
    /// The server broke HTTP/2.
    #[error("the server broke HTTP/2")]
    BrokenH2,
    /// The request is an upgrade, and the server speaks HTTP/2 without extended CONNECT.
    #[error("the server takes no extended CONNECT")]
    NoExtendedConnect,
    /// The request can't be said in HTTP/2.
    #[error("the request can't be said in HTTP/2")]
    Unmappable,
    /// The server did not answer in time.
    #[error("the server did not answer in time")]
    ResponseTimeout,
    /// The whole server is silent, and control wants its requests back.
    #[error("the request was taken back from a silent server")]
    TakenBack {
        /// Whether anything of the request had been written.
        is_written: bool,
    },
    /// The server allows no streams at present, and another of its pool may.
    #[error("the server allows no HTTP/2 streams at present")]
    NoStreams,
    /// TLS of the server ended the connection, and says why, before its answer.
    #[error("the server's TLS ended the connection: {0}")]
    TlsAlert(io::Error),
    /// The process ends, and waits no longer.
    #[error("the process ends")]
    Stopped,
    /// The server's answer is not HTTP.
    #[error("the server's answer is malformed: {0}")]
    Response(#[from] ResponseHeadError),
    /// The server switched protocols unasked, or to another one.
    #[error("the server switched protocols unasked")]
    UnwantedUpgrade,
    /// The server answered without switching protocols, where the client takes any success for the switch.
    #[error("the server did not switch protocols")]
    NoUpgrade,
    /// Too many interim answers.
    #[error("too many interim answers")]
    TooManyInterim,
    /// The answer was cut short after its head was passed on.
    #[error("the server's answer was cut short")]
    Truncated,
    /// The same, by a reset of its stream.
    #[error("the server cut its answer short: {0}")]
    CutByReset(H2Reset),
}

impl From<RequestHeadError> for Failure {
    fn from(error: RequestHeadError) -> Self {
        Self::Refused(error.into())
    }
}

impl Failure {
    /// What the end of a server's connection by an error means, before its final answer; `has_begun`: something of an answer
    /// has come.
    pub fn of_server(error: &io::Error, is_written: bool, has_begun: bool) -> Self {
        match Fault::in_error(error) {
            Some(Fault::Malformed) => Self::BrokenH2,
            Some(Fault::NoExtendedConnect) => Self::NoExtendedConnect,
            Some(Fault::Unmappable) => Self::Unmappable,
            Some(Fault::Reset(reset)) if has_begun => Self::CutByReset(reset),
            _ if has_begun => Self::Truncated,
            Some(Fault::Unprocessed) => Self::Unprocessed,
            Some(Fault::Reset(reset)) if is_written => Self::StreamReset(reset),
            None if error.kind() == io::ErrorKind::InvalidData => Self::TlsAlert(io::Error::other(said(error))),
            Some(Fault::Reset(_) | Fault::Broken) | None => Self::Reset { is_written },
        }
    }

    /// The status that the client gets where nothing was sent yet; 499 is for the log alone.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Refused(refusal) => refusal.status(),
            Self::Body => 400,
            Self::HeadTimeout | Self::ClientTimeout => 408,
            Self::TooManyConnections => 429,
            Self::ClientGone => 499,
            Self::NoMemory
            | Self::Stopped
            | Self::NoStreams
            | Self::Connect(DialError::Full | DialError::Moved | DialError::Unresolved) => 503,
            Self::Connect(DialError::TimedOut) | Self::ResponseTimeout | Self::TakenBack { .. } => 504,
            Self::Connect(_)
            | Self::Reset { .. }
            | Self::StreamReset(_)
            | Self::TlsAlert(_)
            | Self::Unprocessed
            | Self::BrokenH2
            | Self::NoExtendedConnect
            | Self::Unmappable
            | Self::Response(_)
            | Self::UnwantedUpgrade
            | Self::NoUpgrade
            | Self::TooManyInterim
            | Self::Truncated
            | Self::CutByReset(_) => 502,
        }
    }

    /// The token in the access log.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.reason(),
            Self::HeadTimeout => "head-timeout",
            Self::ClientTimeout => "client-timeout",
            Self::Body => "malformed-body",
            Self::ClientGone => "client-gone",
            Self::TooManyConnections => "connections-per-client",
            Self::NoMemory => "no-memory",
            Self::Stopped => "stopped",
            Self::Connect(DialError::TimedOut) => "connect-timeout",
            Self::Connect(DialError::Refused) => "connect-refused",
            Self::Connect(DialError::Unreachable(_)) => "connect-unreachable",
            Self::Connect(DialError::Unresolved) => "name-unresolved",
            Self::Connect(DialError::Handshake(_)) | Self::TlsAlert(_) => "upstream-tls",
            Self::Connect(DialError::Exhausted(_)) => "no-descriptors",
            Self::Connect(DialError::NotHttp2 | DialError::ClosedEarly) => "connect-not-http2",
            Self::Connect(DialError::Full) | Self::NoStreams => "connections-full",
            Self::Connect(DialError::Moved) => "server-moved",
            Self::Reset { .. } | Self::StreamReset(_) => "upstream-reset",
            Self::Unprocessed => "upstream-refused",
            Self::NoExtendedConnect => "no-extended-connect",
            Self::Unmappable => "unmappable",
            // What is taken back goes on elsewhere, and ends by what becomes of it there.
            Self::ResponseTimeout | Self::TakenBack { .. } => "response-timeout",
            Self::Response(_) | Self::BrokenH2 => "malformed-response",
            Self::UnwantedUpgrade => "unwanted-upgrade",
            Self::NoUpgrade => "no-upgrade",
            Self::TooManyInterim => "too-many-interim",
            Self::Truncated | Self::CutByReset(_) => "truncated",
        }
    }

    /// Whom it speaks against.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Refused(refusal) => refusal.blame(),
            Self::HeadTimeout | Self::ClientTimeout | Self::Body | Self::ClientGone | Self::TooManyConnections => {
                Blame::Client
            }
            Self::NoMemory | Self::Stopped | Self::NoStreams | Self::NoExtendedConnect | Self::Unmappable => Blame::Us,
            Self::Connect(error) => error.blame(),
            Self::Reset { .. }
            | Self::StreamReset(_)
            | Self::TlsAlert(_)
            | Self::Unprocessed
            | Self::BrokenH2
            | Self::ResponseTimeout
            | Self::TakenBack { .. }
            | Self::Response(_)
            | Self::UnwantedUpgrade
            | Self::NoUpgrade
            | Self::TooManyInterim
            | Self::Truncated
            | Self::CutByReset(_) => Blame::Server,
        }
    }

    /// Whether the request may be sent again. A slow request is never repeated for being slow, but where the whole server is.
    pub const fn retry_safety(&self) -> RetrySafety {
        match self {
            Self::Connect(_)
            | Self::Unprocessed
            | Self::NoStreams
            | Self::Reset { is_written: false }
            | Self::TakenBack { is_written: false } => RetrySafety::NothingWritten,
            Self::Reset { is_written: true }
            | Self::StreamReset(_)
            | Self::TlsAlert(_)
            | Self::TakenBack { is_written: true } => RetrySafety::Unanswered,
            _ => RetrySafety::Never,
        }
    }
}

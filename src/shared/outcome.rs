//! How a request at a server ended. It is told by counters alone ([`crate::shared::counters`]): nothing is sent, so that no
//! burst of failures can block a request, or be lost.

use std::time::Duration;

/// How a request at a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered.
    Answered {
        /// The final status.
        status: u16,
        /// From the choice of the server to the head of its answer.
        latency: Duration,
    },
    /// The server answered with a status that its pool takes for a failure.
    Failing {
        /// The final status.
        status: u16,
        /// From the choice of the server to the head of its answer.
        latency: Duration,
    },
    /// No connection: refused, unreachable.
    ConnectError,
    /// No connection in time.
    ConnectTimeout,
    /// The connection broke before the answer was whole.
    Reset,
    /// The server's bytes did not come in time.
    ResponseTimeout,
    /// What came is no HTTP.
    Malformed,
    /// The whole server was silent, and the request was taken back to be sent elsewhere.
    Silent,
    /// The client went away. It never counts against the server.
    ClientAborted,
    /// Pointsman failed: no descriptor, no memory. It counts against nobody.
    OwnFault,
}

impl Outcome {
    /// Whether it is evidence against the server.
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Failing { .. }
            | Self::ConnectError
            | Self::ConnectTimeout
            | Self::Reset
            | Self::ResponseTimeout
            | Self::Malformed
            | Self::Silent => true,
            Self::Answered { .. } | Self::ClientAborted | Self::OwnFault => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_did_counts_against_it() {
        for outcome in
            [Outcome::Answered { status: 500, latency: Duration::ZERO }, Outcome::ClientAborted, Outcome::OwnFault]
        {
            assert!(!outcome.is_failure());
        }
        for outcome in [
            Outcome::ConnectError,
            Outcome::ConnectTimeout,
            Outcome::Reset,
            Outcome::ResponseTimeout,
            Outcome::Malformed,
            Outcome::Silent,
            Outcome::Failing { status: 503, latency: Duration::ZERO },
        ] {
            assert!(outcome.is_failure());
        }
    }
}

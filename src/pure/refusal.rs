//! Requests that are refused before a server is asked, as far as the request, the rules and the pool alone can tell: the
//! statuses and the reason tokens of such answers (the access log's `reason`).
//!
//! It refuses to know of connections, time and memory: what fails for their sake is the exchange's matter.

use crate::base::error::Blame;
use crate::pure::h1::request::RequestHeadError;

/// Why a request gets an answer of our own that no rule asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The head breaks the protocol or a limit.
    #[error(transparent)]
    Head(#[from] RequestHeadError),
    /// The path, or what a rule makes of it, reads differently in different parsers.
    #[error("ambiguous path")]
    AmbiguousPath,
    /// The authority's certificate demands other certificates of clients than the one that the connection began with.
    #[error("this authority needs a connection of its own")]
    Misdirected,
    /// No rule matches.
    #[error("no rule matches")]
    NoRule,
    /// The request's body is larger than its limit.
    #[error("the request body is larger than its limit")]
    BodyTooLarge,
    /// No server of the pool may get the request.
    #[error("no server is eligible")]
    NoServer,
    /// All places of the pool's servers are taken.
    #[error("all places of the pool's servers are taken")]
    PoolFull,
    /// As many requests wait in the pool's queue as may.
    #[error("the pool's queue is full")]
    QueueFull,
    /// The request has waited in the pool's queue as long as it may.
    #[error("no server had a place in time")]
    QueueTimeout,
}

impl Refusal {
    /// The status of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::Head(error) => error.status(),
            Self::AmbiguousPath => 400,
            Self::Misdirected => 421,
            Self::NoRule => 404,
            Self::BodyTooLarge => 413,
            Self::NoServer | Self::PoolFull | Self::QueueFull | Self::QueueTimeout => 503,
        }
    }

    /// The token in the access log.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Head(error) => match error.status() {
                414 | 431 => "head-too-large",
                417 => "expectation",
                505 => "version",
                _ => "malformed",
            },
            Self::AmbiguousPath => "ambiguous-path",
            Self::Misdirected => "misdirected",
            Self::NoRule => "no-rule",
            Self::BodyTooLarge => "body-too-large",
            Self::NoServer => "no-server",
            Self::PoolFull => "pool-full",
            Self::QueueFull => "queue-full",
            Self::QueueTimeout => "queue-timeout",
        }
    }

    /// Whom it speaks against.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Head(_) | Self::AmbiguousPath | Self::Misdirected | Self::BodyTooLarge => Blame::Client,
            Self::NoRule | Self::NoServer | Self::PoolFull | Self::QueueFull | Self::QueueTimeout => Blame::Us,
        }
    }
}

//! The signed wire form of feedback: datagrams between agents and the balancer.
//!
//! version (1 byte) ‖ length of the name (1) ‖ server name ‖ tag (32) ‖ JSON. The tag is HMAC-SHA-256 over all other bytes as
//! they were sent. The name stands outside so that the receiver finds the key before it looks at anything else; the JSON is
//! read only after the tag has been found right, in constant time.
//!
//! Every size is bounded, and whatever is wrong with a datagram is a [`WireError`]. It refuses to say whether a report is
//! new, or an order wanted: that is [`crate::pure::feedback::acceptance`]'s.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::hmac;

use crate::base::hex::from_hex;
use crate::base::id::ServerId;
use crate::base::time::UnixNanos;
use crate::pure::feedback::keys::{Key, OrderKey, ReportKey};
use crate::pure::feedback::report::Report;

mod json;

/// The form of a datagram, its first byte.
pub const VERSION: u8 = 1;
/// The longest datagram, in bytes: it fits every path without being cut.
pub const DATAGRAM_MAX: usize = 1400;
/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// The length of a tag, in bytes.
pub const TAG_LENGTH: usize = 32;
/// The furthest that a report can promise the next.
pub const PROMISE_MAX: std::time::Duration = std::time::Duration::from_secs(3600);

/// A server's name on the wire: `pool/server`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(Arc<str>);

/// Why a text is no server's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerNameError {
    /// It is not `pool/server`.
    #[error("a server is named by its pool and itself, such as `origin/o1`")]
    NoPool,
    /// It is too long.
    #[error("it has more than {NAME_MAX} bytes")]
    TooLong,
    /// It has a control character in it.
    #[error("it has a control character in it")]
    Control,
}

impl ServerName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// That of a configured server.
    ///
    /// # Errors
    /// [`ServerNameError`] where it is too long for a datagram, or has a control character in it.
    pub fn of(id: &ServerId) -> Result<Self, ServerNameError> {
        id.to_string().parse()
    }
}

impl FromStr for ServerName {
    type Err = ServerNameError;

    fn from_str(text: &str) -> Result<Self, ServerNameError> {
        match text.split_once('/') {
            Some((pool, server)) if !pool.is_empty() && !server.is_empty() => {}
            Some(_) | None => return Err(ServerNameError::NoPool),
        }
        if text.len() > NAME_MAX {
            return Err(ServerNameError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(ServerNameError::Control);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an agent puts into a report, fresh each time, and orders have to carry: it shows that an order is one for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

/// What a balancer puts into its orders for a server, and reports have to carry: it shows that a report was made since this
/// balancer began to know the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Challenge(pub [u8; 16]);

/// A report as an agent sends it.
#[derive(Clone, Debug, PartialEq)]
pub struct SignedReport {
    /// What it says.
    pub report: Report,
    /// When it was sent, by the agent's clock.
    pub sent: UnixNanos,
    /// What orders that follow from it have to carry.
    pub nonce: Nonce,
    /// What the agent last heard from the balancer that it speaks to; `None`: nothing yet.
    pub heard: Option<Challenge>,
    /// How the last order to restart went; `None`: there was none.
    pub restart: Option<RestartNews>,
}

/// How an order to restart went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartNews {
    /// The order's number.
    pub number: u64,
    /// How far it is.
    pub progress: RestartProgress,
}

/// How far a restart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartProgress {
    /// The commands run.
    Running,
    /// They are done, and the service was found well.
    Done,
    /// They failed, or the service was not well after them.
    Failed,
    /// Nothing was done: the agent has no command for it, is at it already, or its service is in maintenance.
    Refused,
}

/// An order as a balancer sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedOrder {
    /// What is wanted.
    pub kind: OrderKind,
    /// The order's number, never given twice by one balancer, and the same when it is sent again.
    pub number: u64,
    /// That of a report from the agent that the order is for.
    pub nonce: Nonce,
    /// That of the balancer.
    pub challenge: Challenge,
    /// After this, by the agent's clock, it is no order any more.
    pub expires: UnixNanos,
}

/// What a balancer can want of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKind {
    /// A report, at once.
    Question,
    /// That the service is started anew.
    Restart,
}

/// What is wrong with a datagram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It ends before the JSON begins.
    #[error("it is cut short")]
    Truncated,
    /// It is longer than any that we send.
    #[error("it has more than {DATAGRAM_MAX} bytes")]
    TooLong,
    /// Its form is another.
    #[error("its form is {0}, not {VERSION}")]
    Version(u8),
    /// It names no server.
    #[error("it names no server: {0}")]
    Name(#[from] ServerNameError),
    /// The name is not UTF-8.
    #[error("its name is not text")]
    NameNotText,
    /// It was made with another key, or changed on the way.
    #[error("its tag is not right")]
    Forged,
    /// What was signed is not JSON of this form.
    #[error("its content: {0}")]
    Content(String),
    /// A member's value can't be.
    #[error("its `{0}` can't be")]
    Member(&'static str),
}

/// A datagram whose name is known and nothing else: it may be anybody's.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    name: &'a str,
    outside: &'a [u8],
    tag: &'a [u8; TAG_LENGTH],
    content: &'a [u8],
}

/// Finds the parts of a datagram.
///
/// # Errors
/// [`WireError`] where it is none of this form.
pub fn open(datagram: &[u8]) -> Result<Sealed<'_>, WireError> {
    if datagram.len() > DATAGRAM_MAX {
        return Err(WireError::TooLong);
    }
    let (&version, rest) = datagram.split_first().ok_or(WireError::Truncated)?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let (&length, rest) = rest.split_first().ok_or(WireError::Truncated)?;
    let (name, rest) = rest.split_at_checked(usize::from(length)).ok_or(WireError::Truncated)?;
    let (tag, content) = rest.split_first_chunk().ok_or(WireError::Truncated)?;
    let outside = datagram.get(..2 + usize::from(length)).ok_or(WireError::Truncated)?;
    let name = std::str::from_utf8(name).map_err(|_| WireError::NameNotText)?;
    Ok(Sealed { name, outside, tag, content })
}

impl<'a> Sealed<'a> {
    /// Whose key to look for. Nothing proves the name until the tag was found right.
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// The report in it.
    ///
    /// # Errors
    /// [`WireError`] where it was not signed with this key, or is no report.
    pub fn report(&self, key: &ReportKey) -> Result<SignedReport, WireError> {
        json::read_report(self.content_signed_with(&key.0)?)
    }

    /// The order in it.
    ///
    /// # Errors
    /// [`WireError`] where it was not signed with this key, or is no order.
    pub fn order(&self, key: &OrderKey) -> Result<SignedOrder, WireError> {
        json::read_order(self.content_signed_with(&key.0)?)
    }

    /// The comparison of tags takes the same time wherever they differ.
    fn content_signed_with(&self, key: &Key) -> Result<&'a [u8], WireError> {
        let made = tag(key, self.outside, self.content);
        aws_lc_rs::constant_time::verify_slices_are_equal(made.as_ref(), self.tag).map_err(|_| WireError::Forged)?;
        Ok(self.content)
    }
}

fn tag(key: &Key, outside: &[u8], content: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&key.mac);
    context.update(outside);
    context.update(content);
    context.sign()
}

/// A report as a datagram.
///
/// # Errors
/// [`WireError`] where a value in it can't be sent.
pub fn seal_report(server: &ServerName, key: &ReportKey, report: &SignedReport) -> Result<Vec<u8>, WireError> {
    seal(server, &key.0, &json::write_report(report)?)
}

/// An order as a datagram.
///
/// # Errors
/// [`WireError`] where it would be too long.
pub fn seal_order(server: &ServerName, key: &OrderKey, order: &SignedOrder) -> Result<Vec<u8>, WireError> {
    seal(server, &key.0, &json::write_order(order)?)
}

fn seal(server: &ServerName, key: &Key, content: &[u8]) -> Result<Vec<u8>, WireError> {
    let name = server.as_str().as_bytes();
    let length = u8::try_from(name.len()).map_err(|_| ServerNameError::TooLong)?;
    let mut datagram = Vec::with_capacity(2 + name.len() + TAG_LENGTH + content.len());
    datagram.extend_from_slice(&[VERSION, length]);
    datagram.extend_from_slice(name);
    let tag = tag(key, &datagram, content);
    datagram.extend_from_slice(tag.as_ref());
    datagram.extend_from_slice(content);
    if datagram.len() > DATAGRAM_MAX { Err(WireError::TooLong) } else { Ok(datagram) }
}

/// The 16 bytes of a text of 32 hexadecimal digits.
fn token(text: &str, member: &'static str) -> Result<[u8; 16], WireError> {
    from_hex(text).ok_or(WireError::Member(member))
}

#[cfg(test)]
mod tests;

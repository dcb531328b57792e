//! The keys of feedback: who may speak for a server, and who may order its agent about.
//!
//! Each server has two, derived from one master by HKDF-SHA-256 over the direction and the server's name: its agent signs
//! reports with one, and the balancer signs orders with the other. An agent holds its own pair and nothing else, so that
//! whoever takes a backend can speak for that server alone, and can make no order for any other. One key never stands in for
//! the other: they are different types, and different keys.
//!
//! It refuses to show a key but in the text that [`AgentKeys::to_text`] makes for an agent's file.

use std::fmt;

use aws_lc_rs::{hkdf, hmac};

use crate::base::hex::{from_hex, hex};
use crate::pure::feedback::wire::{ServerName, ServerNameError};

/// The length of a key, in bytes.
pub const KEY_LENGTH: usize = 32;

const SALT: &[u8] = b"pointsman feedback 1";
/// The first word of an agent's key file: its form.
pub const FORM: &str = "pointsman-agent-key-1";

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From an agent to the balancer.
    Report,
    /// From the balancer to an agent.
    Order,
}

impl Direction {
    /// As derivations name it. The zero at the end keeps it apart from the name that follows.
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Report => b"report\0",
            Self::Order => b"order\0",
        }
    }
}

/// What the keys of all servers are derived from: the balancer's alone.
#[derive(Clone)]
pub struct MasterKey(hkdf::Prk);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey")
    }
}

/// The length of what is derived.
struct Length;

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        KEY_LENGTH
    }
}

impl MasterKey {
    /// A master made from these bytes, of which at least 32 should be random.
    pub fn from_bytes(secret: &[u8]) -> Self {
        Self(hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(secret))
    }

    /// The two keys of a server. `None` only if the library refuses to derive 256 bits, in which case nothing is signed.
    pub fn pair(&self, server: &ServerName) -> Option<AgentKeys> {
        Some(AgentKeys {
            server: server.clone(),
            report: ReportKey(self.derive(Direction::Report, server)?),
            order: OrderKey(self.derive(Direction::Order, server)?),
        })
    }

    fn derive(&self, direction: Direction, server: &ServerName) -> Option<Key> {
        let info = [direction.label(), server.as_str().as_bytes()];
        let mut bytes = [0; KEY_LENGTH];
        self.0.expand(&info, Length).ok()?.fill(&mut bytes).ok()?;
        Some(Key::new(bytes))
    }
}

/// A key with the bytes that it is written down as.
#[derive(Clone)]
pub(super) struct Key {
    bytes: [u8; KEY_LENGTH],
    pub(super) mac: hmac::Key,
}

impl Key {
    fn new(bytes: [u8; KEY_LENGTH]) -> Self {
        Self { bytes, mac: hmac::Key::new(hmac::HMAC_SHA256, &bytes) }
    }
}

/// The key that a server's reports are signed with.
#[derive(Clone)]
pub struct ReportKey(pub(super) Key);

/// The key that orders to a server's agent are signed with.
#[derive(Clone)]
pub struct OrderKey(pub(super) Key);

impl fmt::Debug for ReportKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReportKey")
    }
}

impl fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderKey")
    }
}

/// The two keys of one server: what its agent holds.
#[derive(Clone, Debug)]
pub struct AgentKeys {
    server: ServerName,
    report: ReportKey,
    order: OrderKey,
}

/// Why a text holds no keys of an agent. What it says is not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// It does not begin as one that `pointsman agent-key` has made.
    #[error("it is not what `pointsman agent-key` prints: it does not begin with `{FORM}`")]
    NotOurs,
    /// It has more or fewer words.
    #[error("it is cut short or has something added: four words are wanted")]
    Words,
    /// The name is none.
    #[error("the name in it: {0}")]
    Name(#[from] ServerNameError),
    /// A key is not 64 hexadecimal digits.
    #[error("a key in it does not have 64 hexadecimal digits")]
    Digits,
}

impl AgentKeys {
    /// Whose keys they are.
    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// The one that its reports are signed with.
    pub const fn report(&self) -> &ReportKey {
        &self.report
    }

    /// The one that orders to it are signed with.
    pub const fn order(&self) -> &OrderKey {
        &self.order
    }

    /// One line, without its end: what `pointsman agent-key` prints and `pointsman-agent --key-file` reads.
    pub fn to_text(&self) -> String {
        let (report, order) = (hex(&self.report.0.bytes), hex(&self.order.0.bytes));
        format!("{FORM} {report} {order} {}", self.server)
    }

    /// The keys in such a line; white space around it does not count.
    ///
    /// # Errors
    /// [`KeyTextError`] where it is none.
    pub fn from_text(text: &str) -> Result<Self, KeyTextError> {
        let rest = text.trim().strip_prefix(FORM).ok_or(KeyTextError::NotOurs)?;
        let mut words = rest.strip_prefix(' ').ok_or(KeyTextError::NotOurs)?.splitn(3, ' ');
        let (Some(report), Some(order), Some(server)) = (words.next(), words.next(), words.next()) else {
            return Err(KeyTextError::Words);
        };
        let key = |digits: &str| from_hex(digits).map(Key::new).ok_or(KeyTextError::Digits);
        Ok(Self { report: ReportKey(key(report)?), order: OrderKey(key(order)?), server: server.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(secret: &[u8], name: &str) -> AgentKeys {
        MasterKey::from_bytes(secret).pair(&name.parse().unwrap()).unwrap()
    }

    #[test]
    fn no_two_servers_and_no_two_directions_share_a_key() {
        let mut seen = std::collections::HashSet::new();
        for secret in [[1; 32], [2; 32]] {
            for name in ["origin/o1", "origin/o2", "other/o1"] {
                let keys = pair(&secret, name);
                assert!(seen.insert(keys.report.0.bytes) && seen.insert(keys.order.0.bytes), "{name}");
            }
        }
    }

    #[test]
    fn keys_come_back_from_the_line_that_they_are_written_as() {
        let keys = pair(&[7; 32], "origin/o 1");
        let text = keys.to_text();
        let again = AgentKeys::from_text(&format!("{text}\n")).unwrap();
        assert_eq!(again.to_text(), text);
        assert_eq!(again.server(), keys.server());
        assert!(!format!("{keys:?}").contains(&hex(&keys.report.0.bytes)), "a key is never shown");
    }

    #[test]
    fn what_is_no_line_of_keys_says_what_is_wrong_with_it() {
        let text = pair(&[7; 32], "origin/o1").to_text();
        let short = text.replacen("key-1 ", "key-1 0", 1);
        for (text, error) in [
            ("", KeyTextError::NotOurs),
            ("ssh-ed25519 AAAA", KeyTextError::NotOurs),
            ("pointsman-agent-key-1 00 11", KeyTextError::Words),
            (short.as_str(), KeyTextError::Digits),
            (text.strip_suffix("/o1").unwrap(), KeyTextError::Name(ServerNameError::NoPool)),
        ] {
            assert_eq!(AgentKeys::from_text(text).unwrap_err(), error, "{text}");
        }
    }
}

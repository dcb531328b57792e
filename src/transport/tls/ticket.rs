//! Session tickets (RFC 8446 section 4.6.1, RFC 5077): the sealed state by which a client resumes, so that the server
//! keeps none.
//!
//! The rule: a session never carries over to a listener with another client-certificate policy. The policy is part of
//! the key's derivation, so a ticket of another policy does not open; there is no check that could be forgotten. The
//! epoch is part of it too: keys change every [`EPOCH`], and those of the last epoch are still accepted, so a ticket lives
//! for one to two epochs. All workers, and all processes with the same secret, agree on the keys without talking.
//!
//! It refuses to tell an unknown, an expired and a forged ticket apart: each means a full handshake.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{hkdf, rand};
use rustls::server::ProducesTickets;

use crate::base::time::wall_clock;

/// How long a key seals tickets. One ends at most two epochs, 24 hours, after it was made.
pub const EPOCH: Duration = Duration::from_secs(12 * 60 * 60);

/// The form of a ticket, its first byte. The rest: epoch (4 bytes, big endian), nonce (12), sealed state, tag (16).
const VERSION: u8 = 1;
const HEADER_LENGTH: usize = 1 + 4;

/// The largest ticket that is made or opened, in bytes. A state holds a secret, a name, and the client's certificates.
const TICKET_MAX: usize = 16 * 1024;

const SALT: &[u8] = b"pointsman tls ticket 1";

/// What a listener demands of its clients' certificates: the policy that a session may not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientCertificates {
    /// None is asked for.
    None,
    /// One may come, and then has to be issued by one of the authorities.
    Optional {
        /// SHA-256 over the authorities' certificates, sorted.
        authorities: [u8; 32],
    },
    /// One has to come, issued by one of the authorities.
    Required {
        /// SHA-256 over the authorities' certificates, sorted.
        authorities: [u8; 32],
    },
}

impl ClientCertificates {
    /// The policy as bytes of one length, for a key's derivation.
    fn to_bytes(self) -> [u8; 33] {
        let (mode, authorities) = match self {
            Self::None => (0, [0; 32]),
            Self::Optional { authorities } => (1, authorities),
            Self::Required { authorities } => (2, authorities),
        };
        let mut bytes = [mode; 33];
        for (byte, of_authorities) in bytes.iter_mut().skip(1).zip(authorities) {
            *byte = of_authorities;
        }
        bytes
    }
}

/// What all ticket keys are derived from.
pub struct TicketSecret(hkdf::Prk);

impl TicketSecret {
    /// A secret that nobody else has: tickets end with the process.
    ///
    /// # Errors
    /// [`Unspecified`] where the system has no randomness to give.
    pub fn random() -> Result<Self, Unspecified> {
        let mut secret = [0; 32];
        rand::fill(&mut secret)?;
        Ok(Self::from_bytes(&secret))
    }

    /// A secret made from these bytes, of which at least 32 should be random.
    pub fn from_bytes(secret: &[u8]) -> Self {
        Self(hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(secret))
    }

    /// The tickets of listeners with this policy.
    pub fn ticketer(&self, policy: ClientCertificates) -> Arc<Ticketer> {
        Arc::new(self.ticketer_with_clock(policy, false, Box::new(wall_clock)))
    }

    /// The tickets of listeners with this policy whose sessions carry an identity.
    pub fn session_ticketer(&self, policy: ClientCertificates) -> Arc<Ticketer> {
        Arc::new(self.ticketer_with_clock(policy, true, Box::new(wall_clock)))
    }

    fn ticketer_with_clock(&self, policy: ClientCertificates, has_identity: bool, clock: Clock) -> Ticketer {
        let derivation = Derivation { secret: self.0.clone(), policy, has_identity };
        let keys = ArcSwap::from_pointee(derivation.keys(epoch_at(clock())));
        Ticketer { derivation, keys, clock }
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecret")
    }
}

type Clock = Box<dyn Fn() -> SystemTime + Send + Sync>;

/// Seals and opens the tickets of listeners with one policy. Shared by all workers; it takes no lock.
pub struct Ticketer {
    derivation: Derivation,
    keys: ArcSwap<Keys>,
    clock: Clock,
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketer").field("policy", &self.derivation.policy).finish_non_exhaustive()
    }
}

impl Ticketer {
    /// The keys of this moment. Whoever first sees a new epoch derives its keys; two who see it at once derive the same.
    fn keys_now(&self) -> arc_swap::Guard<Arc<Keys>> {
        let epoch = epoch_at((self.clock)());
        let keys = self.keys.load();
        if keys.epoch == epoch {
            return keys;
        }
        self.keys.store(Arc::new(self.derivation.keys(epoch)));
        self.keys.load()
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    /// One epoch: for so long every ticket is accepted, whenever in its epoch it was made.
    fn lifetime(&self) -> u32 {
        u32::try_from(EPOCH.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys_now().seal(plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.keys_now().open(ticket)
    }
}

/// The number of the epoch that `time` lies in.
fn epoch_at(time: SystemTime) -> u32 {
    let since_origin = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since_origin.as_secs() / EPOCH.as_secs()).unwrap_or(u32::MAX)
}

struct Derivation {
    secret: hkdf::Prk,
    policy: ClientCertificates,
    /// Whether an identity stands before the state.
    has_identity: bool,
}

impl Derivation {
    fn keys(&self, epoch: u32) -> Keys {
        Keys { epoch, current: self.key(epoch), last: epoch.checked_sub(1).and_then(|last| self.key(last)) }
    }

    /// `None` only if the library refuses a 256-bit key, in which case no ticket is made or opened.
    fn key(&self, epoch: u32) -> Option<LessSafeKey> {
        let (policy, epoch) = (self.policy.to_bytes(), epoch.to_be_bytes());
        let kind: &[u8] = if self.has_identity { b"identity" } else { b"" };
        let info = [&policy[..], &epoch[..], kind];
        let key = self.secret.expand(&info, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(key)))
    }
}

struct Keys {
    epoch: u32,
    current: Option<LessSafeKey>,
    last: Option<LessSafeKey>,
}

impl Keys {
    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let length = HEADER_LENGTH + NONCE_LEN + plain.len() + AES_256_GCM.tag_len();
        if length > TICKET_MAX {
            return None;
        }
        let key = self.current.as_ref()?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(length);
        ticket.push(VERSION);
        ticket.extend_from_slice(&self.epoch.to_be_bytes());
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let (head, state) = ticket.split_at_mut(HEADER_LENGTH + NONCE_LEN);
        let header = head.get(..HEADER_LENGTH)?;
        let tag = key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(header), state).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > TICKET_MAX {
            return None;
        }
        let (header, sealed) = ticket.split_at_checked(HEADER_LENGTH)?;
        let (version, epoch) = header.split_first()?;
        if *version != VERSION {
            return None;
        }
        let age = self.epoch.checked_sub(u32::from_be_bytes(epoch.try_into().ok()?))?;
        let key = match age {
            0 => self.current.as_ref()?,
            1 => self.last.as_ref()?,
            _ => return None,
        };
        let (nonce, state) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut state = state.to_vec();
        let length = key.open_in_place(nonce, Aad::from(header), &mut state).ok()?.len();
        state.truncate(length);
        Some(state)
    }
}

#[cfg(test)]
mod tests;

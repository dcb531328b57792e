//! The token in the cookie of `persist cookie=".."`: which server of a pool a client belongs to, sealed, so that it tells
//! nothing, and nobody else can make one.
//!
//! AES-256-GCM over the server and the time of issue; version, epoch and pool are authenticated with it. Every token has the
//! same length. The key is derived by HKDF-SHA-256 from the secret and the epoch, so that a key has an end; a token of an
//! earlier epoch is opened as long as its pool's `ttl` reaches back there. All processes with the same secret agree without
//! talking. Servers and pools go in as hashes of their names: both are the operator's own choice, and few.
//!
//! It refuses to tell a foreign, a forged, a truncated and an expired token apart: each is none.

use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;

use crate::base::time::UnixTime;
use crate::pure::rule::hash::hash;

/// How long a key seals tokens.
pub const EPOCH: Duration = Duration::from_secs(12 * 60 * 60);

/// How far the clocks of two nodes may be apart: a token from later than that is none.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// The form of a token, its first byte. The rest: epoch (3 bytes, big endian), nonce (12), sealed content, tag (16).
const VERSION: u8 = 1;
const HEADER: usize = 1 + 3;
const CONTENT: usize = 8 + 8;
const TAG: usize = 16;
const RAW: usize = HEADER + NONCE_LEN + CONTENT + TAG;
const EPOCH_MASK: u32 = 0xFF_FFFF;

/// Letters of every token.
pub const TOKEN_LENGTH: usize = RAW / 3 * 4;

const SALT: &[u8] = b"pointsman persist cookie 1";

/// A pool as tokens name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolTag(u64);

impl PoolTag {
    /// That of the pool of this name.
    pub fn of(name: &str) -> Self {
        Self(hash(name.as_bytes(), 0))
    }
}

/// A server as tokens and the table of rendezvous name it: unique in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTag(pub u64);

impl ServerTag {
    /// That of the server of this name.
    pub fn of(name: &str) -> Self {
        Self(hash(name.as_bytes(), 0))
    }
}

/// What a token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The server that the client belongs to.
    pub server: ServerTag,
    /// When the token was made.
    pub issued: UnixTime,
}

impl Content {
    /// How old it is at `now`; `None`: older than `ttl`, or from further in the future than clocks are apart.
    pub fn age(&self, now: UnixTime, ttl: Duration) -> Option<Duration> {
        let age = now.since(self.issued);
        (age < ttl && self.issued.since(now) <= CLOCK_SKEW).then_some(age)
    }
}

/// What all keys are derived from.
#[derive(Clone)]
pub struct TokenSecret(hkdf::Prk);

impl std::fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenSecret")
    }
}

impl TokenSecret {
    /// A secret made from these bytes, of which at least 32 should be random.
    pub fn from_bytes(secret: &[u8]) -> Self {
        Self(hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(secret))
    }

    /// The key of an epoch. `None` only if the library refuses a 256-bit key, in which case no token is made or opened.
    pub fn key(&self, epoch: u32) -> Option<TokenKey> {
        let info = [&epoch.to_be_bytes()[..]];
        let key = self.0.expand(&info, &AES_256_GCM).ok()?;
        Some(TokenKey { epoch, key: LessSafeKey::new(UnboundKey::from(key)) })
    }
}

/// The number of the epoch that `time` lies in.
pub fn epoch_at(time: UnixTime) -> u32 {
    u32::try_from(time.0 / EPOCH.as_secs()).unwrap_or(u32::MAX) & EPOCH_MASK
}

/// A token that a client has sent: it has the form of one, and may be anybody's.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    raw: [u8; RAW],
    epoch: u32,
}

impl Token {
    /// The token in a cookie's value; `None`: it is none.
    pub fn read(text: &[u8]) -> Option<Self> {
        let raw = decode(text)?;
        let [VERSION, high, middle, low, ..] = raw else { return None };
        Some(Self { raw, epoch: u32::from_be_bytes([0, high, middle, low]) })
    }

    /// Its epoch, as it says itself, where it can have been made in the `ttl` before `now`.
    pub fn epoch(&self, now: UnixTime, ttl: Duration) -> Option<u32> {
        let earliest = UnixTime(now.0.saturating_sub(ttl.as_secs()));
        let latest = UnixTime(now.0.saturating_add(CLOCK_SKEW.as_secs()));
        (epoch_at(earliest)..=epoch_at(latest)).contains(&self.epoch).then_some(self.epoch)
    }
}

/// The key of one epoch.
#[derive(Debug)]
pub struct TokenKey {
    epoch: u32,
    key: LessSafeKey,
}

impl TokenKey {
    /// The epoch.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// A token for `pool`. The nonce is random: a second one under this key would open both.
    pub fn seal(&self, pool: PoolTag, content: Content, nonce: [u8; NONCE_LEN]) -> Option<[u8; TOKEN_LENGTH]> {
        let mut raw = [0; RAW];
        let header = header(self.epoch);
        let (front, rest) = raw.split_at_mut(HEADER + NONCE_LEN);
        let (sealed, tag_room) = rest.split_at_mut(CONTENT);
        front.get_mut(..HEADER)?.copy_from_slice(&header);
        front.get_mut(HEADER..)?.copy_from_slice(&nonce);
        sealed.get_mut(..8)?.copy_from_slice(&content.server.0.to_be_bytes());
        sealed.get_mut(8..)?.copy_from_slice(&content.issued.0.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(bound(header, pool)), sealed).ok()?;
        tag_room.copy_from_slice(tag.as_ref());
        Some(encode(&raw))
    }

    /// What a token of this epoch for `pool` says; `None`: it is none.
    pub fn open(&self, pool: PoolTag, token: &Token) -> Option<Content> {
        if token.epoch != self.epoch {
            return None;
        }
        let mut raw = token.raw;
        let (front, sealed) = raw.split_at_mut(HEADER + NONCE_LEN);
        let (_, nonce) = front.split_at(HEADER);
        let header = header(self.epoch);
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self.key.open_in_place(nonce, Aad::from(bound(header, pool)), sealed).ok()?;
        let (server, issued) = plain.split_first_chunk::<8>()?;
        Some(Content {
            server: ServerTag(u64::from_be_bytes(*server)),
            issued: UnixTime(u64::from_be_bytes(*issued.first_chunk()?)),
        })
    }
}

const fn header(epoch: u32) -> [u8; HEADER] {
    let [_, high, middle, low] = epoch.to_be_bytes();
    [VERSION, high, middle, low]
}

/// What is authenticated beside the content.
fn bound(header: [u8; HEADER], pool: PoolTag) -> [u8; HEADER + 8] {
    let mut bytes = [0; HEADER + 8];
    for (to, from) in bytes.iter_mut().zip(header.into_iter().chain(pool.0.to_be_bytes())) {
        *to = from;
    }
    bytes
}

/// RFC 4648 section 5, which needs no quotes in a cookie. The length is a multiple of three, so that each token is written in
/// one way only.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What each letter stands for; 64: nothing.
const VALUES: [u8; 256] = {
    let mut values = [64; 256];
    let mut value = 0;
    while value < 64 {
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which refuses an index outside")]
        {
            values[ALPHABET[value] as usize] = value as u8;
        }
        value += 1;
    }
    values
};

fn encode(raw: &[u8; RAW]) -> [u8; TOKEN_LENGTH] {
    let mut text = [0; TOKEN_LENGTH];
    for (letters, bytes) in text.as_chunks_mut::<4>().0.iter_mut().zip(raw.as_chunks::<3>().0) {
        let [first, second, third] = *bytes;
        let bits = u32::from_be_bytes([0, first, second, third]);
        for (digit, letter) in letters.iter_mut().enumerate() {
            *letter = ALPHABET.get((bits >> (18 - 6 * digit) & 63) as usize).copied().unwrap_or(b'A');
        }
    }
    text
}

fn decode(token: &[u8]) -> Option<[u8; RAW]> {
    let text: &[u8; TOKEN_LENGTH] = token.try_into().ok()?;
    let mut raw = [0; RAW];
    for (bytes, letters) in raw.as_chunks_mut::<3>().0.iter_mut().zip(text.as_chunks::<4>().0) {
        let mut bits = 0;
        for letter in letters {
            let value = VALUES.get(usize::from(*letter)).copied().filter(|value| *value < 64)?;
            bits = bits << 6 | u32::from(value);
        }
        let [_, first, second, third] = bits.to_be_bytes();
        *bytes = [first, second, third];
    }
    Some(raw)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);
    const TTL: Duration = Duration::from_secs(8 * 3600);

    fn key(secret: &[u8], time: UnixTime) -> TokenKey {
        TokenSecret::from_bytes(secret).key(epoch_at(time)).unwrap()
    }

    fn open(key: &TokenKey, pool: PoolTag, text: &[u8]) -> Option<Content> {
        key.open(pool, &Token::read(text)?)
    }

    fn content(name: &str) -> Content {
        Content { server: ServerTag::of(name), issued: NOW }
    }

    #[test]
    fn a_token_opens_for_its_pool_alone_and_with_its_secret_alone() {
        let (ours, pool) = (key(&[7; 32], NOW), PoolTag::of("app"));
        let token = ours.seal(pool, content("a1"), [9; 12]).unwrap();
        assert_eq!(open(&ours, pool, &token), Some(content("a1")));
        assert_eq!(open(&key(&[7; 32], NOW), pool, &token), Some(content("a1")), "a second node");
        assert_eq!(open(&ours, PoolTag::of("api"), &token), None);
        assert_eq!(open(&key(&[8; 32], NOW), pool, &token), None);
        assert_eq!(open(&key(&[7; 32], UnixTime(NOW.0 + EPOCH.as_secs())), pool, &token), None);
    }

    #[test]
    fn a_token_ends_with_its_ttl_and_is_none_before_it_was_made() {
        let at = |offset: i64| content("a").age(UnixTime(NOW.0.checked_add_signed(offset).unwrap()), TTL);
        assert_eq!(at(0), Some(Duration::ZERO));
        assert_eq!(at(8 * 3600 - 1), Some(TTL - Duration::from_secs(1)));
        assert_eq!((at(8 * 3600), at(-300), at(-301)), (None, Some(Duration::ZERO), None));
    }

    #[test]
    fn epochs_are_opened_as_far_back_as_the_ttl_reaches() {
        let pool = PoolTag::of("app");
        let token = key(&[7; 32], NOW).seal(pool, content("a"), [1; 12]).unwrap();
        let epoch_of = |now, ttl| Token::read(&token)?.epoch(now, ttl);
        let hours = |hours: u64| UnixTime(NOW.0 + hours * 3600);
        let epoch = Some(epoch_at(NOW));
        assert_eq!(epoch_of(NOW, TTL), epoch);
        assert_eq!(epoch_of(hours(8), TTL), epoch);
        assert_eq!(epoch_of(hours(21), TTL), None);
        assert_eq!(epoch_of(hours(21), Duration::from_secs(9 * 3600 + 12 * 3600)), epoch);
        assert_eq!(epoch_of(UnixTime(NOW.0 - EPOCH.as_secs()), TTL), None);
    }

    #[test]
    fn tokens_of_one_server_have_nothing_in_common_and_all_are_as_long() {
        let (key, pool) = (key(&[7; 32], NOW), PoolTag::of("app"));
        let one = key.seal(pool, content("a"), [1; 12]).unwrap();
        let other = key.seal(pool, content("a"), [2; 12]).unwrap();
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one[22..], other[22..]);
        assert!(one.iter().all(|letter| ALPHABET.contains(letter)));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_of_a_token_is_refused(nonce: [u8; 12], server: u64, letter in 0..TOKEN_LENGTH, bit in 0..8) {
            let (key, pool) = (key(&[7; 32], NOW), PoolTag::of("app"));
            let content = Content { server: ServerTag(server), issued: NOW };
            let mut token = key.seal(pool, content, nonce).unwrap();
            prop_assert_eq!(open(&key, pool, &token), Some(content));
            token[letter] ^= 1_u8 << bit;
            prop_assert_eq!(open(&key, pool, &token), None);
        }

        #[test]
        fn any_flipped_bit_below_the_letters_is_refused(nonce: [u8; 12], place in 0..RAW, bit in 0..8) {
            let (key, pool) = (key(&[7; 32], NOW), PoolTag::of("app"));
            let mut raw = decode(&key.seal(pool, content("a"), nonce).unwrap()).unwrap();
            raw[place] ^= 1_u8 << bit;
            prop_assert_eq!(open(&key, pool, &encode(&raw)), None);
        }

        #[test]
        fn letters_and_bytes_are_the_same(raw in prop::collection::vec(any::<u8>(), RAW)) {
            let raw: [u8; RAW] = raw.try_into().unwrap();
            prop_assert_eq!(decode(&encode(&raw)), Some(raw));
        }

        #[test]
        fn what_is_no_token_is_none(text in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(open(&key(&[7; 32], NOW), PoolTag::of("app"), &text), None);
        }
    }
}

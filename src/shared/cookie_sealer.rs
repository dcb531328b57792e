//! The keys of persistence cookies, as all workers use them: those of this epoch and of the last are at hand, without a lock.
//!
//! It refuses to read a clock: the time comes with the question.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use aws_lc_rs::rand;

use crate::base::time::UnixTime;
use crate::pure::persistence::token::{
    Content, PoolTag, ServerTag, TOKEN_LENGTH, Token, TokenKey, TokenSecret, epoch_at,
};

/// Seals and opens.
#[derive(Debug)]
pub struct CookieSealer {
    secret: TokenSecret,
    keys: ArcSwap<Keys>,
}

#[derive(Debug)]
struct Keys {
    epoch: u32,
    current: Option<TokenKey>,
    last: Option<TokenKey>,
}

impl Keys {
    fn of(secret: &TokenSecret, epoch: u32) -> Self {
        Self { epoch, current: secret.key(epoch), last: epoch.checked_sub(1).and_then(|last| secret.key(last)) }
    }
}

impl CookieSealer {
    /// A sealer whose keys come from this secret, of which at least 32 bytes should be random.
    pub fn new(secret: &[u8]) -> Self {
        let secret = TokenSecret::from_bytes(secret);
        let keys = ArcSwap::from_pointee(Keys::of(&secret, 0));
        Self { secret, keys }
    }

    /// A token that says that a client of `pool` belongs to `server`. `None`: the system gives no random numbers.
    pub fn seal(&self, pool: PoolTag, server: ServerTag, now: UnixTime) -> Option<[u8; TOKEN_LENGTH]> {
        let mut nonce = [0; 12];
        rand::fill(&mut nonce).ok()?;
        self.keys_at(now).current.as_ref()?.seal(pool, Content { server, issued: now }, nonce)
    }

    /// What a token for `pool` says that can have been made in the `ttl` before `now`; `None`: it is none.
    pub fn open(&self, pool: PoolTag, token: &[u8], now: UnixTime, ttl: Duration) -> Option<Content> {
        let token = Token::read(token)?;
        let epoch = token.epoch(now, ttl)?;
        let keys = self.keys_at(now);
        let at_hand = [&keys.current, &keys.last].into_iter().flatten().find(|key| key.epoch() == epoch);
        match at_hand {
            Some(key) => key.open(pool, &token),
            // From further back, or from a node whose clock is ahead.
            None => self.secret.key(epoch)?.open(pool, &token),
        }
    }

    /// The keys of this moment. Whoever first sees a new epoch derives its keys; two who see it at once derive the same.
    fn keys_at(&self, now: UnixTime) -> Guard<Arc<Keys>> {
        let epoch = epoch_at(now);
        let keys = self.keys.load();
        if keys.epoch == epoch {
            return keys;
        }
        self.keys.store(Arc::new(Keys::of(&self.secret, epoch)));
        self.keys.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::persistence::token::EPOCH;

    #[test]
    fn tokens_are_opened_over_epochs_and_by_another_node() {
        let (sealer, other) = (CookieSealer::new(&[3; 32]), CookieSealer::new(&[3; 32]));
        let stranger = CookieSealer::new(&[4; 32]);
        let (pool, server) = (PoolTag::of("app"), ServerTag::of("a1"));
        let start = UnixTime(1_800_000_000);
        let token = sealer.seal(pool, server, start).unwrap();
        for (epochs, ttl) in [(0, 1), (1, 2), (3, 4), (30, 31)] {
            let now = UnixTime(start.0 + epochs * EPOCH.as_secs());
            let ttl = EPOCH * ttl;
            for node in [&sealer, &other] {
                assert_eq!(node.open(pool, &token, now, ttl).map(|content| content.server), Some(server), "{epochs}");
            }
            assert_eq!(stranger.open(pool, &token, now, ttl), None);
        }
        assert_eq!(other.open(pool, &token, UnixTime(start.0 + 3 * EPOCH.as_secs()), EPOCH), None);
    }
}

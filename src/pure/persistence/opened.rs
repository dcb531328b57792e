//! Tokens that were opened lately, and what they said: a client sends its token with every request, and to compare it is a
//! tenth of the work of opening it again.
//!
//! A token that is not here letter by letter is not here at all, and how long the comparison takes tells nobody how many of
//! the letters are right. It refuses to judge: whether a token still holds is asked of what it says. It belongs to one secret and
//! to one thread.

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::token::{Content, PoolTag, TOKEN_LENGTH};

/// Places, of which each token has one: 96 KiB.
const PLACES: usize = 1024;

/// Where in a token the letters of its nonce lie, which are random.
const NONCE_AT: usize = 8;

/// The tokens opened lately.
#[derive(Debug, Default)]
pub struct OpenedTokens {
    /// Empty before the first.
    places: Vec<Option<Opened>>,
}

#[derive(Clone, Copy, Debug)]
struct Opened {
    token: [u8; TOKEN_LENGTH],
    pool: PoolTag,
    content: Content,
}

impl OpenedTokens {
    /// What `token` says for `pool`: as it was opened before, or else as `open` opens it.
    pub fn get_or(&mut self, pool: PoolTag, token: &[u8], open: impl FnOnce() -> Option<Content>) -> Option<Content> {
        let token: &[u8; TOKEN_LENGTH] = token.try_into().ok()?;
        let random = token.get(NONCE_AT..)?.first_chunk::<4>()?;
        let place = u32::from_le_bytes(*random).wrapping_mul(0x9E37_79B1) as usize >> 22;
        let known = self.places.get(place).and_then(Option::as_ref);
        let is_it = |known: &&Opened| known.pool == pool && verify_slices_are_equal(&known.token, token).is_ok();
        if let Some(known) = known.filter(is_it) {
            return Some(known.content);
        }
        let content = open()?;
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
        }
        if let Some(free) = self.places.get_mut(place) {
            *free = Some(Opened { token: *token, pool, content });
        }
        Some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::UnixTime;
    use crate::pure::persistence::token::{ServerTag, TokenSecret};

    #[test]
    fn a_token_is_opened_once_and_others_are_not_taken_for_it() {
        let (pool, other_pool) = (PoolTag::of("p"), PoolTag::of("q"));
        let key = TokenSecret::from_bytes(&[1; 32]).key(0).unwrap();
        let mut opened = OpenedTokens::default();
        for number in 0..5_000_u64 {
            let content = Content { server: ServerTag(number), issued: UnixTime(number) };
            let mut nonce = [0; 12];
            nonce[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
            let token = key.seal(pool, content, nonce).unwrap();
            assert_eq!(opened.get_or(pool, &token, || Some(content)), Some(content));
            assert_eq!(opened.get_or(pool, &token, || panic!("it is known")), Some(content));
            assert_eq!(opened.get_or(other_pool, &token, || None), None);
            for place in 0..TOKEN_LENGTH {
                let mut forged = token;
                forged[place] ^= 1;
                assert_eq!(opened.get_or(pool, &forged, || None), None);
            }
        }
        assert_eq!(opened.places.len(), PLACES);
        assert_eq!(opened.get_or(pool, b"short", || panic!("it is none")), None);
    }
}

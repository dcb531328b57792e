//! Whether an answer came out of a cache, as its head says: `Cache-Status` (RFC 9211), else `X-Cache` as most caches write it,
//! else `Age` (RFC 9111 5.1).
//!
//! It refuses to guess: a head that says nothing is neither a hit nor a miss.

use crate::pure::head::{Fields, Known};
use crate::pure::rule::parts::split_unquoted;

/// Whether it was a hit; `None`: the head does not say.
pub fn is_hit(fields: Fields<'_>) -> Option<bool> {
    let (mut status, mut x_cache, mut age) = (None, None, None);
    for field in fields.list {
        let value = || field.value.of(fields.bytes);
        // By kind and length first: this looks at every answer of a pool that goes by keys.
        let (said, verdict) = match field.known {
            Known::CacheStatus => (&mut status, Some(is_status_hit(value()))),
            Known::Age => (&mut age, Some(value().iter().any(|digit| (b'1'..=b'9').contains(digit)))),
            Known::Other if field.name.len() == X_CACHE.len() && is_x_cache(field.name.of(fields.bytes)) => {
                (&mut x_cache, x_cache_verdict(value()))
            }
            _ => continue,
        };
        // Of several that say something, a hit in one of them is a hit.
        *said = match (*said, verdict) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (said, verdict) => said.or(verdict),
        };
    }
    status.or(x_cache).or(age)
}

const X_CACHE: &[u8] = b"X-Cache";

fn is_x_cache(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(X_CACHE)
}

fn is_status_hit(line: &[u8]) -> bool {
    split_unquoted(line, b',').any(|member| {
        let mut parameters = split_unquoted(member, b';').skip(1).map(<[u8]>::trim_ascii);
        parameters.any(|parameter| parameter == b"hit" || parameter == b"hit=?1")
    })
}

fn x_cache_verdict(line: &[u8]) -> Option<bool> {
    let has = |word: &[u8]| line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    match (has(b"hit"), has(b"miss")) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::rule::find::tests::Head;

    fn of(name: &str, value: &str) -> Option<bool> {
        is_hit(Head::new(&[(name, value)]).view("GET", "a.test", "/").fields)
    }

    #[test]
    fn heads_say_hit_miss_or_nothing() {
        assert_eq!(of("Cache-Status", "one; hit; ttl=30"), Some(true));
        assert_eq!(of("Cache-Status", "origin; fwd=uri-miss, edge; hit"), Some(true));
        assert_eq!(of("Cache-Status", "one; fwd=uri-miss; stored; key=\"; hit\""), Some(false));
        assert_eq!(of("X-Cache", "MISS, Hit from edge"), Some(true));
        assert_eq!(of("X-Cache", "TCP_MISS"), Some(false));
        assert_eq!((of("Age", "0"), of("Age", "12"), of("ETag", "x")), (Some(false), Some(true), None));
    }
}

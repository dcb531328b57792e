//! Whether an answer came out of a cache, as its head says: `Cache-Status` (RFC 9211), else `X-Cache` as most caches write it,
//! else `Age` (RFC 9111 5.1).
//!
//! It refuses to guess: a head that says nothing is neither a hit nor a miss.

use crate::pure::head::Fields;
use crate::pure::rule::parts::split_unquoted;

/// Whether it was a hit; `None`: the head does not say.
pub fn is_hit(fields: Fields<'_>) -> Option<bool> {
    let (mut status, mut x_cache, mut age) = (None, None, None);
    for (name, value) in fields.all() {
        // By length first: this looks at every answer of a pool that goes by keys.
        let (said, verdict) = match name.len() {
            12 if name.eq_ignore_ascii_case(b"Cache-Status") => (&mut status, Some(is_status_hit(value))),
            7 if name.eq_ignore_ascii_case(b"X-Cache") => (&mut x_cache, x_cache_verdict(value)),
            3 if name.eq_ignore_ascii_case(b"Age") => {
                (&mut age, Some(value.iter().any(|digit| (b'1'..=b'9').contains(digit))))
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

//! Whether an answer came out of a cache, as its head says: `Cache-Status` (RFC 9211), else `X-Cache` as most caches write it,
//! else `Age` (RFC 9111 5.1).
//!
//! It refuses to guess: a head that says nothing is neither a hit nor a miss.

use crate::pure::head::Fields;
use crate::pure::rule::parts::split_unquoted;

/// Whether it was a hit; `None`: the head does not say.
pub fn is_hit(fields: Fields<'_>) -> Option<bool> {
    let mut said = None;
    for member in fields.named("Cache-Status").flat_map(|line| split_unquoted(line, b',')) {
        let mut parameters = split_unquoted(member, b';').skip(1).map(<[u8]>::trim_ascii);
        if parameters.any(|parameter| parameter == b"hit" || parameter == b"hit=?1") {
            return Some(true);
        }
        said = Some(false);
    }
    if said.is_some() {
        return said;
    }
    for line in fields.named("X-Cache") {
        let has = |word: &[u8]| line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
        match (has(b"hit"), has(b"miss")) {
            (true, _) => return Some(true),
            (false, true) => said = Some(false),
            (false, false) => {}
        }
    }
    said.or_else(|| fields.named("Age").next().map(|age| age.iter().any(|digit| (b'1'..=b'9').contains(digit))))
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

//! Keys: what a scheduler or a split hashes of a request, and the choice among the arms of a split.
//!
//! Hashes are [`super::hash`]'s under seed 0, so that every run and every machine sends a key the same way. It refuses to
//! make up a key: where the request has none, there is `None`, and what then happens is the caller's matter.

use std::net::IpAddr;

use super::captures::Captures;
use super::hash::hash;
use super::media::media_type_of;
use super::parts::{cookies, parameters};
use super::{KeySource, RequestView, glob};
use crate::base::id::PoolIndex;
use crate::base::rng::Rng;
use crate::pure::pool::KeyNormalize;
use crate::pure::rendezvous::{Wait, shortest};

/// The hash of what `source` names; `None` where the request does not have it. Of several fields, cookies or parameters of
/// one name the first counts; `uri` without a query is not `uri` with an empty one.
pub fn hash_key(source: &KeySource, view: &RequestView<'_>, captures: &Captures) -> Option<u64> {
    let text = |text: &str| hash(text.as_bytes(), 0);
    Some(match source {
        KeySource::Path => text(view.path),
        KeySource::Uri => match view.query {
            Some(query) => hash(query, text(view.path)),
            None => text(view.path),
        },
        KeySource::Host => text(Some(view.host).filter(|host| !host.is_empty())?),
        KeySource::HostAndPath => hash(view.path.as_bytes(), text(view.host)),
        KeySource::Client => match view.client.to_canonical() {
            IpAddr::V4(address) => hash(&address.octets(), 0),
            IpAddr::V6(address) => hash(&address.octets(), 0),
        },
        KeySource::MediaType => text(&media_type_of(view)?.0),
        KeySource::Header(name) => hash(view.fields.named(name).next()?, 0),
        KeySource::Cookie(name) => hash(cookies(view.fields, name).next()?, 0),
        KeySource::Query(name) => hash(&parameters(view.query, name).next()?, 0),
        KeySource::Capture(name) => text(captures.get(view.path, name)?),
    })
}

/// The same, where of a URI's query only what `normalize` leaves counts.
pub fn hash_normalized(
    source: &KeySource,
    normalize: &KeyNormalize,
    view: &RequestView<'_>,
    captures: &Captures,
) -> Option<u64> {
    let (KeySource::Uri, Some(query)) = (source, view.query) else { return hash_key(source, view, captures) };
    Some(hash_query(view.path, query, normalize))
}

fn hash_query(path: &str, query: &[u8], normalize: &KeyNormalize) -> u64 {
    let counts = |pair: &&[u8]| {
        let end = memchr::memchr(b'=', pair).unwrap_or(pair.len());
        let name = pair.get(..end).unwrap_or_default();
        !pair.is_empty() && !normalize.drop.iter().any(|dropped| glob::matches(dropped, name))
    };
    let pairs = query.split(|byte| *byte == b'&').filter(counts);
    let chain = |hashed: u64, pair: &[u8]| hash(pair, hashed);
    let path = hash(path.as_bytes(), 0);
    if !normalize.sort_query {
        return pairs.fold(path, chain);
    }
    let mut pairs: Vec<&[u8]> = pairs.collect();
    pairs.sort_unstable();
    pairs.into_iter().fold(path, chain)
}

/// What is in the names of fields and parameters that carry secrets.
const SECRET_WORDS: [&str; 10] =
    ["auth", "cookie", "credential", "key", "pass", "secret", "session", "sid", "sign", "token"];

/// What `source` names, as text for people; `None` where the request does not have it, or where it may be a secret: cookies,
/// and fields that carry credentials.
pub fn key_text(source: &KeySource, view: &RequestView<'_>, captures: &Captures) -> Option<String> {
    let owned = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(match source {
        KeySource::Path => shown_path(view.path),
        KeySource::Uri => match view.query {
            Some(query) => format!("{}?{}", shown_path(view.path), shown_query(query)),
            None => shown_path(view.path),
        },
        KeySource::Host => view.host.to_owned(),
        KeySource::HostAndPath => format!("{}{}", view.host, shown_path(view.path)),
        KeySource::Client => view.client.to_canonical().to_string(),
        KeySource::MediaType => media_type_of(view)?.0.into_owned(),
        KeySource::Cookie(_) => return None,
        KeySource::Header(name) | KeySource::Query(name) if may_be_secret(name.as_bytes()) => return None,
        KeySource::Header(name) => owned(view.fields.named(name).next()?),
        KeySource::Query(name) => owned(&parameters(view.query, name).next()?),
        KeySource::Capture(name) => captures.get(view.path, name)?.to_owned(),
    })
}

/// Whether what has this name may be a secret: its owner would not like to see it in a list of keys.
fn may_be_secret(name: &[u8]) -> bool {
    let has = |word: &&str| name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()));
    SECRET_WORDS.iter().any(has)
}

/// A path without the values of its parameters, which some applications keep session ids in.
fn shown_path(path: &str) -> String {
    let mut segments = path.split('/').map(|segment| {
        let mut parts = segment.split(';');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |shown, parameter| match parameter.split_once('=') {
            Some((name, _)) => format!("{shown};{name}=*"),
            None => format!("{shown};{parameter}"),
        })
    });
    let first = segments.next().unwrap_or_default();
    segments.fold(first, |shown, segment| format!("{shown}/{segment}"))
}

/// A query without the values that may be secrets.
fn shown_query(query: &[u8]) -> String {
    let shown = |pair: &[u8]| {
        let end = memchr::memchr(b'=', pair).unwrap_or(pair.len());
        let name = pair.get(..end).unwrap_or_default();
        let is_hidden = end < pair.len() && may_be_secret(name);
        let text = String::from_utf8_lossy(if is_hidden { name } else { pair });
        if is_hidden { format!("{text}=*") } else { text.into_owned() }
    };
    query.split(|byte| *byte == b'&').map(shown).collect::<Vec<_>>().join("&")
}

/// The hash of a key that is written as [`key_text`] writes it; `None` where it is none of that kind.
pub fn hash_text(source: &KeySource, normalize: Option<&KeyNormalize>, text: &str) -> Option<u64> {
    let whole = || hash(text.as_bytes(), 0);
    Some(match source {
        KeySource::Uri => match (text.split_once('?'), normalize) {
            (Some((path, query)), Some(normalize)) => hash_query(path, query.as_bytes(), normalize),
            (Some((path, query)), None) => hash(query.as_bytes(), hash(path.as_bytes(), 0)),
            (None, _) => whole(),
        },
        KeySource::HostAndPath => {
            let (host, path) = text.split_at(text.find('/')?);
            hash(path.as_bytes(), hash(host.as_bytes(), 0))
        }
        KeySource::Client => match text.parse::<IpAddr>().ok()?.to_canonical() {
            IpAddr::V4(address) => hash(&address.octets(), 0),
            IpAddr::V6(address) => hash(&address.octets(), 0),
        },
        KeySource::Path
        | KeySource::Host
        | KeySource::MediaType
        | KeySource::Header(_)
        | KeySource::Cookie(_)
        | KeySource::Query(_)
        | KeySource::Capture(_) => whole(),
    })
}

/// As rule files write it.
impl std::fmt::Display for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path => f.write_str("path"),
            Self::Uri => f.write_str("uri"),
            Self::Host => f.write_str("host"),
            Self::HostAndPath => f.write_str("host+path"),
            Self::Client => f.write_str("client"),
            Self::MediaType => f.write_str("media-type"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Capture(name) if is_number(name) => write!(f, "${name}"),
            Self::Capture(name) => write!(f, "{{{name}}}"),
        }
    }
}

/// Whether a text is a number, in decimal digits: the name of a group of an expression, `$1`, and not of a named one, `{id}`.
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The arm of a split: by `key` where there is one, else at random, each as often as its weight says. `None` where no weight
/// is above zero.
///
/// A key stays with its arm: weighted rendezvous hashing (Schindelhauer, Schomaker 2005), where a change of weights moves
/// only the keys that the new shares demand, and to or from the arms that changed. An arm is known by its position.
pub fn choose_arm(arms: &[(PoolIndex, u32)], key: Option<u64>, rng: &mut Rng) -> Option<PoolIndex> {
    match key {
        Some(key) => arm_of_key(arms, key),
        None => arm_at(arms, rng.below(arms.iter().map(|(_, weight)| u64::from(*weight)).sum())),
    }
}

fn arm_at(arms: &[(PoolIndex, u32)], mut point: u64) -> Option<PoolIndex> {
    for (pool, weight) in arms {
        let weight = u64::from(*weight);
        if point < weight {
            return Some(*pool);
        }
        point -= weight;
    }
    None
}

fn arm_of_key(arms: &[(PoolIndex, u32)], key: u64) -> Option<PoolIndex> {
    let arms = (0_u64..).zip(arms).map(|(position, (pool, weight))| {
        let name = hash(&position.to_le_bytes(), 0);
        (*pool, Wait::of(key, name, u16::try_from(*weight).unwrap_or(u16::MAX)))
    });
    shortest(arms)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pure::rule::compile::RuleSet;
    use crate::pure::rule::find::tests::{Head, rule};
    use crate::pure::rule::{Predicates, find};
    use crate::pure::trace::Trace;

    #[test]
    fn a_hash_is_the_same_everywhere() {
        let head = Head::new(&[("X-User", "ann"), ("Cookie", "s=1")]);
        let mut view = head.view("GET", "a.test", "/u/7");
        view.query = Some(b"q=a%20b");
        let captures = Captures::new();
        let of = |source| hash_key(&source, &view, &captures);
        assert_eq!(of(KeySource::Path), Some(hash(b"/u/7", 0)));
        assert_eq!(of(KeySource::Uri), Some(hash(b"q=a%20b", hash(b"/u/7", 0))));
        assert_eq!(of(KeySource::Host), Some(hash(b"a.test", 0)));
        assert_eq!(of(KeySource::HostAndPath), Some(hash(b"/u/7", hash(b"a.test", 0))));
        assert_eq!(of(KeySource::Client), Some(hash(&[127, 0, 0, 1], 0)));
        assert_eq!(of(KeySource::Header("x-user".to_owned())), Some(hash(b"ann", 0)));
        assert_eq!(of(KeySource::Cookie("s".to_owned())), Some(hash(b"1", 0)));
        assert_eq!(of(KeySource::Query("q".to_owned())), Some(hash(b"a b", 0)));
        assert_eq!(of(KeySource::Path), Some(0x61db_af86_a182_925a));
        for absent in [KeySource::MediaType, KeySource::Header("x".to_owned()), KeySource::Capture("1".to_owned())] {
            assert_eq!(of(absent), None);
        }
    }

    #[test]
    fn a_key_that_is_written_down_hashes_as_in_a_request() {
        let head = Head::new(&[("X-User", "ann"), ("Cookie", "s=1"), ("Authorization", "Basic x")]);
        let mut view = head.view("GET", "a.test", "/u/7.png");
        let captures = Captures::new();
        let normalize = KeyNormalize { sort_query: true, drop: vec!["utm_*".to_owned()] };
        for query in [None, Some(&b"b=2&utm_x=1&a=%20"[..])] {
            view.query = query;
            for source in [
                KeySource::Path,
                KeySource::Uri,
                KeySource::Host,
                KeySource::HostAndPath,
                KeySource::Client,
                KeySource::MediaType,
                KeySource::Header("x-user".to_owned()),
                KeySource::Query("a".to_owned()),
            ] {
                let text = key_text(&source, &view, &captures);
                let of_text = |normalize| text.as_deref().and_then(|text| hash_text(&source, normalize, text));
                assert_eq!(of_text(None), hash_key(&source, &view, &captures), "{source}: {text:?}");
                let normalized = hash_normalized(&source, &normalize, &view, &captures);
                assert_eq!(of_text(Some(&normalize)), normalized, "{source}: {text:?}");
            }
        }
        for secret in [KeySource::Cookie("s".to_owned()), KeySource::Header("AUTHORIZATION".to_owned())] {
            assert_eq!(key_text(&secret, &view, &captures), None);
            assert!(hash_key(&secret, &view, &captures).is_some());
        }
    }

    #[test]
    fn a_query_counts_as_far_as_it_is_wanted() {
        let head = Head::new::<&str, &str>(&[]);
        let normalize = KeyNormalize { sort_query: true, drop: vec!["utm_*".to_owned(), "id".to_owned()] };
        let of = |query: Option<&'static [u8]>| {
            let mut view = head.view("GET", "a.test", "/p");
            view.query = query;
            hash_normalized(&KeySource::Uri, &normalize, &view, &Captures::new())
        };
        let query = |text: &'static str| of(Some(text.as_bytes()));
        assert_eq!(query("b=2&utm_source=x&a=1&id=7"), query("a=1&b=2"));
        assert_eq!(query("utm_medium=x&id"), of(None));
        assert_ne!(query("a=1&b=2"), query("a=1&b=3"));
        assert_ne!(query("idea=1"), of(None));
        assert_ne!(query("a=1"), query("a=1&a=1"));
    }

    #[test]
    fn a_list_of_keys_shows_no_secret() {
        let head = Head::new(&[("X-Api-Key", "S"), ("X-Auth-Token", "S"), ("X-Tenant", "blue")]);
        let mut view = head.view("GET", "a.test", "/x;jsessionid=S/y;v");
        view.query = Some(b"access_token=S&a=1&sid=S&b");
        let captures = Captures::new();
        let shown = |source| key_text(&source, &view, &captures);
        assert_eq!(shown(KeySource::Uri).unwrap(), "/x;jsessionid=*/y;v?access_token=*&a=1&sid=*&b");
        assert_eq!(shown(KeySource::HostAndPath).unwrap(), "a.test/x;jsessionid=*/y;v");
        for name in ["X-Api-Key", "X-Auth-Token", "Authorization"] {
            assert_eq!(shown(KeySource::Header(name.to_owned())), None);
        }
        assert_eq!(shown(KeySource::Query("access_token".to_owned())), None);
        assert_eq!(shown(KeySource::Header("X-Tenant".to_owned())).unwrap(), "blue");
    }

    #[test]
    fn a_capture_of_the_rule_is_a_key() {
        let when = Predicates { path_regexes: vec!["^/users/([^/]+)/".to_owned()], ..Predicates::default() };
        let set = RuleSet::compile(vec![Arc::new(rule("r", when))]).unwrap();
        let head = Head::new::<&str, &str>(&[]);
        let mut captures = Captures::new();
        let mut key = |path: &str| {
            let view = head.view("GET", "a.test", path);
            let found: Option<find::Found<'_>> = set.find(&view, &mut captures, &mut Trace::off());
            assert!(found.is_some());
            hash_key(&KeySource::Capture("1".to_owned()), &view, &captures)
        };
        assert_eq!(key("/users/ann/a"), Some(hash(b"ann", 0)));
        assert_eq!(key("/users/ann/b/c"), Some(hash(b"ann", 0)));
    }

    fn shares(arms: &[(PoolIndex, u32)], mut key: impl FnMut(u64) -> Option<u64>) -> Vec<f64> {
        let mut rng = Rng::new(1);
        let mut counts = vec![0.0; arms.len()];
        for number in 0..100_000 {
            let pool = choose_arm(arms, key(number), &mut rng).unwrap();
            counts[pool.0 as usize] += 1.0 / 100_000.0;
        }
        counts
    }

    #[test]
    fn arms_get_their_shares_with_and_without_a_key() {
        let arms = [(PoolIndex(0), 95), (PoolIndex(1), 0), (PoolIndex(2), 5)];
        for shares in [shares(&arms, |number| Some(hash(&number.to_le_bytes(), 0))), shares(&arms, |_| None)] {
            assert!((shares[0] - 0.95).abs() < 0.005 && shares[1] == 0.0, "{shares:?}");
        }
        assert_eq!(choose_arm(&[(PoolIndex(0), 0)], Some(1), &mut Rng::new(1)), None);
        assert_eq!(choose_arm(&[], None, &mut Rng::new(1)), None);
    }

    #[test]
    fn a_change_of_weights_moves_only_what_it_must() {
        let arms = |second| [(PoolIndex(0), 60), (PoolIndex(1), second), (PoolIndex(2), 40)];
        let mut moved = 0;
        for number in 0..100_000_u64 {
            let key = Some(hash(&number.to_le_bytes(), 0));
            let choose = |second| choose_arm(&arms(second), key, &mut Rng::new(0)).unwrap();
            let (before, after) = (choose(0), choose(25));
            if before != after {
                assert_eq!(after, PoolIndex(1), "a key moved between arms that did not change");
                moved += 1;
            }
        }
        assert!((19_500..20_500).contains(&moved), "{moved} of 100000 moved where a fifth had to");
    }
}

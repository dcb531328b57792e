//! What persistence costs a request: to open its cookie, to make one, and to look a client up in a table that is full.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench stops where it fails")]

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use pointsman::base::id::ServerSlot;
use pointsman::base::time::{Timestamp, UnixTime};
use pointsman::pure::config::load_text;
use pointsman::pure::h1::request::{HeadLimits, RequestHead, parse_request_head};
use pointsman::pure::head::Fields;
use pointsman::pure::persistence::opened::OpenedTokens;
use pointsman::pure::persistence::{Claim, Key, Shown, read_claim};
use pointsman::pure::rule::compile::RuleSet;
use pointsman::shared::choices::{CHOICES_MAX, Choices};
use pointsman::shared::cookie_sealer::CookieSealer;
use pointsman::shared::counters::ProcessCounters;
use pointsman::shared::snapshot::SnapshotStore;

const RULES: &str = r#"
listen "127.0.0.1:80"
pool "p" {
    server "a" "127.0.0.1:1"; server "b" "127.0.0.1:2"; server "c" "127.0.0.1:3"; server "d" "127.0.0.1:4"
    persist cookie="N"
    persist source mask=24
}
rule use="p"
"#;

fn cookies(criterion: &mut Criterion) {
    let config = Arc::new(load_text(RULES).unwrap());
    let rules = Arc::new(RuleSet::compile(config.rules.clone()).unwrap());
    let snapshot = SnapshotStore::new(config, rules, Arc::new(ProcessCounters::default())).load();
    let pool = &snapshot.pools[0];
    let persistence = pool.pool.persistence.as_ref().unwrap();
    let sealer = CookieSealer::new(&[7; 32]);
    let now = UnixTime(1_800_000_000);
    let token = sealer.seal(persistence.pool, persistence.servers[2], now).unwrap();
    let token = std::str::from_utf8(&token).unwrap();
    let ttl = persistence.cookie.as_ref().unwrap().ttl;
    let bytes = format!("GET / HTTP/1.1\r\nHost: a.test\r\nCookie: theme=dark; N={token}; a=b\r\n\r\n");
    let mut head = RequestHead::default();
    parse_request_head(bytes.as_bytes(), HeadLimits { bytes: 65_536, fields: 128 }, &mut head).unwrap();
    let fields = Fields { bytes: bytes.as_bytes(), list: &head.fields };
    let shown = Shown { fields, raw_path: b"/", client: [192, 0, 2, 1].into(), session: None };
    criterion.bench_function("a request's cookie and address are read", |bench| {
        bench.iter(|| {
            let open = |token: &[u8]| sealer.open(persistence.pool, token, now, ttl);
            let claim = read_claim(persistence, black_box(&shown), &pool.candidates, now, 1, open);
            assert!(claim.cookie.is_some());
            claim
        });
    });
    let opened = RefCell::new(OpenedTokens::default());
    criterion.bench_function("a cookie that came lately and an address are read", |bench| {
        bench.iter(|| {
            let open = |token: &[u8]| {
                let open = || sealer.open(persistence.pool, token, now, ttl);
                opened.borrow_mut().get_or(persistence.pool, token, open)
            };
            read_claim(persistence, black_box(&shown), &pool.candidates, now, 1, open)
        });
    });
    criterion.bench_function("a cookie is made", |bench| {
        bench.iter(|| sealer.seal(persistence.pool, black_box(persistence.servers[1]), now));
    });
}

fn tables(criterion: &mut Criterion) {
    let choices = Choices::default();
    let key = |number: u64| Key {
        hash: number.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        ttl: std::time::Duration::from_secs(300),
    };
    let now = Timestamp::from_nanos(1);
    for number in 0..CHOICES_MAX as u64 {
        choices.set(key(number), ServerSlot(number as u32 % 4), now);
    }
    let mut number = 0;
    criterion.bench_function("a client is looked up among 262144", |bench| {
        bench.iter(|| {
            number = (number + 7919) % CHOICES_MAX as u64;
            let claim = Claim { keys: [None, Some(key(number)), None, None], ..Claim::default() };
            choices.own(black_box(&claim), now)
        });
    });
    let mut next = CHOICES_MAX as u64;
    criterion.bench_function("a new client takes another's place", |bench| {
        bench.iter(|| {
            next += 1;
            choices.assign(black_box(key(next)), None, ServerSlot(1), now)
        });
    });
}

criterion_group!(benches, cookies, tables);
criterion_main!(benches);

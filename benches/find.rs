//! What it costs to find a request's rule: among ten rules, and among ten thousand on a thousand hosts, of which a hundred
//! are wildcards, with eight patterns that overlap on every path and 32 expressions on every tenth host.
//!
//! It prints how many candidates were verified and how often memory was allocated per request (never, but for expressions),
//! and how long ten thousand rules take to compile.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, reason = "a bench stops where it fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use nix::time::ClockId;
use pointsman::base::id::{ListenerIndex, PoolIndex};
use pointsman::base::rng::Rng;
use pointsman::pure::config::AmbiguousPaths;
use pointsman::pure::head::{Field, Fields, Known, Span};
use pointsman::pure::rule::captures::Captures;
use pointsman::pure::rule::compile::RuleSet;
use pointsman::pure::rule::path::read_path;
use pointsman::pure::rule::{Action, Changes, Cidr, Glob, HostPattern, Named, Predicates, RequestView, Rule};
use pointsman::pure::trace::Trace;

/// The system's allocator, with a count of what is asked of it.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FIELDS: &[(&str, &str, Known)] = &[
    ("Host", "www.example.test", Known::Host),
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", Known::Other),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Known::Accept),
    ("Accept-Language", "en-US,en;q=0.5", Known::Other),
    ("Accept-Encoding", "gzip, deflate, br, zstd", Known::Other),
    ("Cookie", "session=0123456789abcdef; theme=dark", Known::Cookie),
    ("Sec-Fetch-Dest", "document", Known::SecFetchDest),
    ("Connection", "keep-alive", Known::Connection),
];

struct Head {
    bytes: Vec<u8>,
    list: Vec<Field>,
}

fn head() -> Head {
    let mut head = Head { bytes: Vec::new(), list: Vec::new() };
    for (name, value, known) in FIELDS {
        let mut push = |text: &str| {
            let start = head.bytes.len() as u32;
            head.bytes.extend_from_slice(text.as_bytes());
            Span { start, end: head.bytes.len() as u32 }
        };
        let (name, value) = (push(name), push(value));
        head.list.push(Field { name, value, known: *known, hop_by_hop: false });
    }
    head
}

fn rule(number: usize, host: Option<&HostPattern>, when: Predicates) -> Arc<Rule> {
    let hosts = host.cloned().into_iter().collect();
    Arc::new(Rule {
        name: format!("rule-{number}").into(),
        place: format!("bench.kdl:{number}"),
        when: Predicates { hosts, ..when },
        unless: Predicates::default(),
        action: Action::Use(PoolIndex(0)),
        changes: Changes::default(),
        key: None,
        body_max: None,
    })
}

fn named(name: &str, value: &str) -> Vec<Named> {
    vec![Named { name: name.to_owned(), values: vec![Glob(value.to_owned())] }]
}

/// Eight rules of one host whose patterns all match `/api/v1/users/4…`; all but the last ask for more.
fn overlapping() -> Vec<Predicates> {
    let path = |text: &str| Predicates { paths: vec![text.to_owned()], ..Predicates::default() };
    vec![
        Predicates { headers: named("X-Canary", "1"), ..path("/api/{version}/users/{id}") },
        Predicates { methods: vec!["DELETE".to_owned()], ..path("/api/v1/{what}/{id}") },
        Predicates {
            clients: vec![Cidr { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), prefix: 8 }],
            ..path("/api/v1/users/{id}")
        },
        Predicates { queries: named("debug", "*"), ..path("/{area}/v1/users/4{rest}") },
        Predicates { cookies: named("beta", "yes"), ..path("/api/{version}/{what}/4{rest}") },
        Predicates { methods: vec!["PUT".to_owned()], ..path("/api/{*rest}") },
        Predicates { media_types: vec![Glob("image/*".to_owned())], ..path("/api/v1/{*rest}") },
        path("/{*rest}"),
    ]
}

fn expressions(host: usize) -> Vec<Predicates> {
    let text = |number: usize| match number % 4 {
        0 => format!("^/shop-{host}/item-{number}/[0-9]+$"),
        1 => format!("^/(en|de|fr)/page{number}(/.*)?$"),
        2 => format!("^/users/([^/]+)/album{number}/"),
        _ => format!("\\.php{number}$"),
    };
    (0..32).map(|number| Predicates { path_regexes: vec![text(number)], ..Predicates::default() }).collect()
}

fn hosts(count: usize) -> Vec<HostPattern> {
    let name = |number: usize| match number % 10 {
        9 => HostPattern::Suffix(format!(".wild{number}.example.test")),
        _ => HostPattern::Exact(format!("www.site{number}.example.test")),
    };
    (0..count).map(name).collect()
}

/// `count` rules: all of the expressions first, so that every request of their hosts runs them.
fn rules(count: usize, hosts: &[HostPattern]) -> Vec<Arc<Rule>> {
    let mut rules = Vec::new();
    let with_expressions = hosts.iter().enumerate().step_by(10);
    for (number, host) in with_expressions.take(count / 160) {
        for when in expressions(number) {
            rules.push(rule(rules.len(), Some(host), when));
        }
    }
    for host in hosts {
        for when in overlapping() {
            rules.push(rule(rules.len(), Some(host), when));
        }
    }
    while rules.len() < count {
        let path = format!("/status/{}", rules.len());
        rules.push(rule(rules.len(), None, Predicates { paths: vec![path], ..Predicates::default() }));
    }
    assert_eq!(rules.len(), count);
    rules
}

/// Hosts and raw paths of a thousand requests, spread evenly.
fn requests(hosts: &[HostPattern]) -> Vec<(String, String)> {
    let mut rng = Rng::new(7);
    let request = |number: usize| {
        let host = match &hosts[rng.below(hosts.len() as u64) as usize] {
            HostPattern::Exact(host) => host.clone(),
            HostPattern::Suffix(suffix) => format!("a.b{suffix}"),
        };
        let path = match number % 5 {
            0 => format!("/static/img/{number}.png"),
            1 => format!("/api/v2/orders/{number}"),
            _ => format!("/api/v1/users/4{number}"),
        };
        (host, path)
    };
    (0..1000).map(request).collect()
}

/// The time that the processor has spent on this thread: what others do on the machine hardly counts.
fn processor_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().into()
}

fn find(c: &mut Criterion) {
    let head = head();
    let mut group = c.benchmark_group("find");
    let cases = [
        ("1 rule", 1, 1, 1),
        ("10 rules", 10, 1, 1),
        ("10000 rules", 10_000, 1_000, 1),
        ("10000 rules, hosts with expressions", 10_000, 1_000, 10),
    ];
    for (name, count, host_count, every) in cases {
        let hosts = hosts(host_count);
        let rules = if count == 1 { vec![rule(0, None, Predicates::default())] } else { rules(count, &hosts) };
        let set = RuleSet::compile(rules).unwrap();
        let asked: Vec<_> =
            hosts.iter().step_by(every).take(if every == 1 { host_count } else { 62 }).cloned().collect();
        let requests = requests(&asked);
        let mut captures = Captures::new();
        let mut scratch = String::new();
        let mut ask = |number: usize| {
            let (host, path) = &requests[number % requests.len()];
            let view = RequestView {
                listener: ListenerIndex(0),
                method: "GET",
                host,
                path: read_path(path.as_bytes(), AmbiguousPaths::RejectUnsafe, &mut scratch).unwrap(),
                query: Some(b"page=2"),
                fields: Fields { bytes: &head.bytes, list: &head.list },
                client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
                server_name: None,
                learned_media_type: None,
                identity: None,
            };
            let found = set.find(&view, &mut captures, &mut Trace::off()).map(|found| found.index);
            (found, captures.verified())
        };
        assert!((0..requests.len()).all(|number| ask(number).0.is_some()), "a request without a rule");
        let before = ALLOCATIONS.load(Relaxed);
        let verified: u32 = (0..requests.len()).map(|number| ask(number).1).sum();
        let allocated = ALLOCATIONS.load(Relaxed) - before;
        let per_request = |count: f64| count / requests.len() as f64;
        println!(
            "{name}: {:.2} candidates verified and {:.3} allocations per request",
            per_request(f64::from(verified)),
            per_request(allocated as f64)
        );
        let mut number = 0;
        group.bench_function(name, |b| {
            b.iter_custom(|iterations| {
                let start = processor_time();
                for _ in 0..iterations {
                    number += 1;
                    black_box(ask(black_box(number)));
                }
                processor_time() - start
            });
        });
    }
    group.finish();
}

fn compile(c: &mut Criterion) {
    let rules = rules(10_000, &hosts(1_000));
    let mut group = c.benchmark_group("compile");
    group.sample_size(10);
    group.bench_function("10000 rules", |b| b.iter(|| RuleSet::compile(black_box(rules.clone())).unwrap()));
    group.finish();
}

criterion_group!(benches, find, compile);
criterion_main!(benches);

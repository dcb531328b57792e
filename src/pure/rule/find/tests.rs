//! The compiled search against a linear scan that is written straight from the reference of the language, on generated
//! rules that overlap as much as they can.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;
use crate::base::id::{ListenerIndex, PoolIndex};
use crate::pure::head::{Field, Fields, Known, Span};
use crate::pure::rule::path::normalize_path;
use crate::pure::rule::{Action, Changes, Cidr, Glob, HostPattern, KeySource, Named, Predicates, Rule};

/// The fields of a request, with their bytes.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    list: Vec<Field>,
}

impl Head {
    pub(crate) fn new<N: AsRef<str>, V: AsRef<str>>(fields: &[(N, V)]) -> Self {
        let mut head = Self { bytes: Vec::new(), list: Vec::new() };
        for (name, value) in fields {
            let known = Known::of(name.as_ref().as_bytes());
            let (name, value) = (head.push(name.as_ref()), head.push(value.as_ref()));
            head.list.push(Field { name, value, known, hop_by_hop: false });
        }
        head
    }

    fn push(&mut self, text: &str) -> Span {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        Span { start, end: self.bytes.len() as u32 }
    }

    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields { bytes: &self.bytes, list: &self.list }
    }

    pub(crate) fn view<'a>(&'a self, method: &'a str, host: &'a str, path: &'a str) -> RequestView<'a> {
        RequestView {
            listener: ListenerIndex(0),
            method,
            host,
            path,
            query: None,
            fields: self.fields(),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            server_name: None,
            learned_media_type: None,
            identity: None,
        }
    }
}

pub(crate) fn rule(name: &str, when: Predicates) -> Rule {
    Rule {
        name: name.into(),
        place: format!("rules.kdl:{name}"),
        when,
        unless: Predicates::default(),
        action: Action::Use(PoolIndex(0)),
        changes: Changes::default(),
        key: None,
        body_max: None,
    }
}

fn by_paths(paths: &[&str]) -> RuleSet {
    let rules = paths.iter().enumerate().map(|(position, path)| {
        let when = Predicates { paths: vec![(*path).to_owned()], ..Predicates::default() };
        Arc::new(rule(&position.to_string(), when))
    });
    RuleSet::compile(rules.collect()).unwrap()
}

fn index_of(set: &RuleSet, path: &str) -> Option<usize> {
    let head = Head::new::<&str, &str>(&[]);
    set.find(&head.view("GET", "a.test", path), &mut Captures::new(), &mut Trace::off()).map(|found| found.index)
}

#[test]
fn the_first_in_the_file_wins_and_not_the_most_specific() {
    let set = by_paths(&["/a/{x}", "/{y}/b", "/a/b", "/{*rest}", "/{x}.jpg"]);
    assert_eq!(index_of(&set, "/a/b"), Some(0));
    assert_eq!(index_of(&set, "/c/b"), Some(1));
    assert_eq!(index_of(&set, "/c.jpg"), Some(3));
    assert_eq!(index_of(&set, "*"), None);
    let set = by_paths(&["/{x}.jpg", "/{z}", "/p{x}", "/p{x}.jpg", "/{*rest}", "/p{*rest}"]);
    assert_eq!(index_of(&set, "/p1.jpg"), Some(0));
    assert_eq!(index_of(&set, "/p1"), Some(1));
    assert_eq!(index_of(&set, "/"), Some(4));
}

#[test]
fn captures_come_from_the_pattern_that_matched_and_from_the_expression() {
    let when = Predicates {
        paths: vec!["/v/{a}".to_owned(), "/{b}/{*c}".to_owned()],
        path_regexes: vec!["^/x".to_owned(), "^/([a-z]+)/(?P<n>[0-9])?".to_owned()],
        ..Predicates::default()
    };
    let set = RuleSet::compile(vec![Arc::new(rule("r", when))]).unwrap();
    let head = Head::new::<&str, &str>(&[]);
    let mut captures = Captures::new();
    let path = "/ab/7/c";
    assert!(set.find(&head.view("GET", "", path), &mut captures, &mut Trace::off()).is_some());
    let got: Vec<_> = captures.names().map(|name| (name, captures.get(path, name).unwrap())).collect();
    assert_eq!(got, [("b", "ab"), ("c", "7/c"), ("0", "/ab/7"), ("1", "ab"), ("2", "7"), ("n", "7")]);
    assert_eq!(captures.get(path, "a"), None);
}

#[test]
fn expressions_have_a_size_limit() {
    let when = Predicates { path_regexes: vec!["(a{1000}){1000}".to_owned()], ..Predicates::default() };
    let error = RuleSet::compile(vec![Arc::new(rule("big", when))]).unwrap_err();
    assert_eq!(&*error.rule, "big");
    assert!(error.to_string().contains("size limit"), "{error}");
}

#[test]
fn a_trace_counts_what_was_left_out_and_tells_what_was_not() {
    let host = |name: &str| vec![HostPattern::Exact(name.to_owned())];
    let header = Named { name: "X-Canary".to_owned(), values: vec![Glob("1".to_owned())] };
    let rules = vec![
        Arc::new(rule("other", Predicates { hosts: host("b.test"), ..Predicates::default() })),
        Arc::new(rule("path", Predicates { paths: vec!["/x".to_owned()], ..Predicates::default() })),
        Arc::new(rule("regex", Predicates { path_regexes: vec!["^/x".to_owned()], ..Predicates::default() })),
        Arc::new(rule("canary", Predicates { headers: vec![header], ..Predicates::default() })),
        Arc::new(rule("all", Predicates::default())),
    ];
    let set = RuleSet::compile(rules).unwrap();
    let mut trace = Trace::recording();
    let head = Head::new::<&str, &str>(&[]);
    set.find(&head.view("GET", "a.test", "/a"), &mut Captures::new(), &mut trace);
    let text: Vec<_> = trace.notes().iter().map(|note| note.text.as_str()).collect();
    assert_eq!(
        text,
        [
            "4 rules before: 1 of other hosts, 1 of other paths, 1 whose path-regex does not match, 1 asked for the rest",
            "rule `canary` at rules.kdl:canary: header X-Canary is absent",
            "rule `all` at rules.kdl:all matches",
        ]
    );
}

#[test]
fn a_trace_tells_of_not_blocks_and_media_types_and_counts_what_is_too_much_to_tell() {
    let mut rules = Vec::new();
    for number in 0..40 {
        let mut made = rule(&number.to_string(), Predicates::default());
        match number {
            0 => made.when.media_types = vec![Glob("image/*".to_owned())],
            1 => made.unless.methods = vec!["GET".to_owned()],
            2 => made.when.listeners = vec![ListenerIndex(7)],
            _ => made.when.cookies = vec![Named { name: "c".to_owned(), values: Vec::new() }],
        }
        rules.push(Arc::new(made));
    }
    let set = RuleSet::compile(rules).unwrap();
    let mut trace = Trace::recording();
    let head = Head::new(&[("Accept", "text/html")]);
    set.find(&head.view("GET", "a.test", "/a"), &mut Captures::new(), &mut trace);
    let text: Vec<_> = trace.notes().iter().map(|note| note.text.as_str()).collect();
    assert_eq!(text[0], "40 rules: 1 of other listeners, 39 asked for the rest");
    assert_eq!(text[1], "rule `0` at rules.kdl:0: the media type is text/html");
    assert_eq!(text[2], "rule `1` at rules.kdl:1: its `not` holds: the method is GET");
    assert_eq!(text[3], "rule `3` at rules.kdl:3: cookie c is absent");
    assert_eq!(
        text[33..],
        [
            "7 more that match by host and path do not by the rest",
            "the media type is text/html, says Accept",
            "no rule matches",
        ]
    );
}

#[test]
fn rules_by_listener_alone_cost_nothing_to_the_other_listeners() {
    let by_listener = |number: u32| Predicates { listeners: vec![ListenerIndex(number)], ..Predicates::default() };
    let rules = (0..1024).map(|number| Arc::new(rule(&number.to_string(), by_listener(number))));
    let set = RuleSet::compile(rules.collect()).unwrap();
    let head = Head::new::<&str, &str>(&[]);
    let mut captures = Captures::new();
    let view = RequestView { listener: ListenerIndex(1000), ..head.view("GET", "a.test", "/") };
    assert_eq!(set.find(&view, &mut captures, &mut Trace::off()).map(|found| found.index), Some(1000));
    assert_eq!(captures.verified(), 1);
}

#[test]
fn what_a_path_last_answered_with_is_wanted_only_where_nothing_else_tells() {
    let when = Predicates { media_types: vec![Glob("image/*".to_owned())], ..Predicates::default() };
    let set = RuleSet::compile(vec![Arc::new(rule("r", when))]).unwrap();
    let nothing = Head::new::<&str, &str>(&[]);
    let accept = Head::new(&[("Accept", "text/html")]);
    assert!(set.uses_learned_types());
    assert!(set.wants_learned_type(&nothing.view("GET", "a.test", "/a")));
    assert!(!set.wants_learned_type(&nothing.view("GET", "a.test", "/a.png")));
    assert!(!set.wants_learned_type(&accept.view("GET", "a.test", "/a")));
    let key = Some(KeySource::MediaType);
    let split =
        Rule { action: Action::Split { key, arms: vec![(PoolIndex(0), 1)] }, ..rule("r", Predicates::default()) };
    assert!(RuleSet::compile(vec![Arc::new(split)]).unwrap().wants_learned_type(&nothing.view("GET", "a.test", "/a")));
    let other = by_paths(&["/a"]);
    assert!(!other.uses_learned_types() && !other.wants_learned_type(&nothing.view("GET", "a.test", "/a")));
}

mod naive;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn compiled_rules_decide_as_a_linear_scan_does(rules in proptest::collection::vec(any_rule(), 0..12),
        requests in proptest::collection::vec(any_request(), 1..4))
    {
        let rules: Vec<_> = rules.into_iter().map(Arc::new).collect();
        let set = RuleSet::compile(rules.clone()).unwrap();
        let mut captures = Captures::new();
        for request in &requests {
            let mut scratch = String::new();
            let path = normalize_path(&request.path, &mut scratch);
            let view = request.view(path);
            let expected = naive::find(&rules, &view);
            let found = set.find(&view, &mut captures, &mut Trace::off());
            let got = found.map(|found| found.index);
            prop_assert_eq!(got, expected.as_ref().map(|(index, _)| *index), "{:?}", view);
            if let Some((_, values)) = expected {
                let got: Vec<_> = captures.names().filter(|name| !name.starts_with(|first: char| first.is_ascii_digit()))
                    .map(|name| (name.to_owned(), captures.get(path, name).unwrap().to_owned())).collect();
                prop_assert_eq!(got, values);
            }
            let mut trace = Trace::recording();
            prop_assert_eq!(set.find(&view, &mut captures, &mut trace).map(|found| found.index), got);
            prop_assert!(!trace.notes().is_empty());
        }
    }

    /// Rules by expression in several host groups at once, whose lists meet in the middle of a search.
    #[test]
    fn expressions_of_several_groups_are_merged(rules in proptest::collection::vec(any_expression_rule(), 1..10)) {
        let rules: Vec<_> = rules.into_iter().map(Arc::new).collect();
        let set = RuleSet::compile(rules.clone()).unwrap();
        let head = Head::new::<&str, &str>(&[]);
        for host in ["a.test", "b.a.test", "y.test"] {
            let view = head.view("GET", host, "/ab/b");
            let found = set.find(&view, &mut Captures::new(), &mut Trace::off()).map(|found| found.index);
            prop_assert_eq!(found, naive::find(&rules, &view).map(|(index, _)| index), "{}", host);
        }
    }

    /// Patterns alone, many of them, on paths made of the same few parts: the index's worst neighbourhood.
    #[test]
    fn overlapping_patterns_are_all_found(paths in proptest::collection::vec(any_pattern(), 1..40), raw in any_path()) {
        let mut scratch = String::new();
        let path = normalize_path(&raw, &mut scratch).to_owned();
        let set = by_paths(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        let expected = paths.iter().position(|pattern| naive::path(pattern, &path).is_some());
        prop_assert_eq!(index_of(&set, &path), expected, "{}", path);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: String,
    host: String,
    pub(crate) path: Vec<u8>,
    query: Option<String>,
    head: Head,
    listener: u32,
    client: IpAddr,
    server_name: Option<String>,
    learned: Option<String>,
}

impl Request {
    pub(crate) fn view<'a>(&'a self, path: &'a str) -> RequestView<'a> {
        RequestView {
            query: self.query.as_deref().map(str::as_bytes),
            listener: ListenerIndex(self.listener),
            client: self.client,
            server_name: self.server_name.as_deref(),
            learned_media_type: self.learned.as_deref(),
            identity: None,
            ..self.head.view(&self.method, &self.host, path)
        }
    }
}

fn any_pattern() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "ab", "", "a.jpg", "café", "caf%c3%a9", "%61", "{{b}}", "a%2Fb"])
            .prop_map(str::to_owned),
        4 => prop::sample::select(vec!["{N}", "{N}.jpg", "a{N}", "{N}b", "a{N}b", "{N}g", "b{N}.jpg"]).prop_map(str::to_owned),
    ];
    let last = prop::sample::select(vec!["", "", "", "/{*all}", "/a{*all}", "/{*tail}", "/ca{*all}"]);
    let names = prop::sample::select(vec!["x", "y", "id"]);
    (proptest::collection::vec(segment, 0..4), last, names).prop_map(|(segments, last, name)| {
        let mut text = String::new();
        for (position, segment) in segments.iter().enumerate() {
            text.push('/');
            text.push_str(&segment.replace('N', &format!("{name}{position}")));
        }
        text.push_str(last);
        if text.is_empty() { "/".to_owned() } else { text }
    })
}

fn any_path() -> impl Strategy<Value = Vec<u8>> {
    let segment = prop::sample::select(vec![
        b"a".as_slice(),
        b"b",
        b"ab",
        b"",
        b"aab",
        b"a.jpg",
        b"b.jpg",
        b"ba.jpg",
        b"caf\xc3\xa9",
        b"caf%C3%a9",
        b"%61",
        b"{b}",
        b"a%2fb",
        b"\xff",
        b"..",
        b".",
        b"ag",
        b"b1.png",
        b"x.CSS",
    ]);
    prop_oneof![
        1 => Just(b"*".to_vec()),
        30 => proptest::collection::vec(segment, 1..5).prop_map(|segments| {
            let mut path = Vec::new();
            for segment in segments {
                path.push(b'/');
                path.extend_from_slice(segment);
            }
            path
        }),
    ]
}

fn few<S: Strategy + Clone>(of: S, weight: u32) -> impl Strategy<Value = Vec<S::Value>> + use<S>
where
    S::Value: Clone,
{
    prop_oneof![
        10 => Just(Vec::new()),
        weight => proptest::collection::vec(of, 1..3),
    ]
}

fn globs(list: &'static [&'static str]) -> impl Strategy<Value = Glob> + Clone {
    prop::sample::select(list).prop_map(|text| Glob(text.to_owned()))
}

fn things(names: &'static [&'static str]) -> impl Strategy<Value = Named> + Clone {
    let values = globs(&["1", "*", "a*", "*b", "a*b", "x y"]);
    let values = prop_oneof![1 => Just(Vec::new()), 2 => proptest::collection::vec(values, 1..3)];
    (prop::sample::select(names), values).prop_map(|(name, values)| Named { name: name.to_owned(), values })
}

fn any_host_pattern() -> impl Strategy<Value = HostPattern> + Clone {
    prop::sample::select(vec!["a.test", "b.a.test", "c.b.a.test", "*.a.test", "*.test", "*.b.a.test"]).prop_map(
        |text| match text.strip_prefix('*') {
            Some(suffix) => HostPattern::Suffix(suffix.to_owned()),
            None => HostPattern::Exact(text.to_owned()),
        },
    )
}

/// `weight` out of `weight` + 10 lists of each predicate ask for something.
fn any_predicates(weight: u32) -> impl Strategy<Value = Predicates> {
    let regexes = prop::sample::select(vec!["^/a", "b$", "^/(?P<n>[a-c]+)/", "jpg|png", "^/[^/]*$", ".*", "C3"])
        .prop_map(str::to_owned);
    let methods = prop::sample::select(vec!["GET", "POST", "get"]).prop_map(str::to_owned);
    let listeners = (0_u32..3).prop_map(ListenerIndex);
    let cidrs = prop::sample::select(vec!["10.0.0.0/8", "10.1.2.3/32", "0.0.0.0/0", "2001:db8::/32", "::/0"]).prop_map(
        |text| {
            let (address, prefix) = text.split_once('/').unwrap();
            Cidr { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
        },
    );
    let media = globs(&["image/*", "image/png", "Text/HTML", "*/*", "text/css;q=1", "application/*"]);
    let where_from = (
        few(listeners, weight),
        few(any_host_pattern(), 3 * weight),
        few(cidrs, weight),
        few(any_host_pattern(), weight),
    );
    let what = (few(any_pattern().boxed(), 6 * weight), few(regexes, 2 * weight), few(methods, weight));
    let names = (
        few(things(&["X-A", "x-a", "X-B"]), weight),
        few(things(&["q", "r"]), weight),
        few(things(&["c", "d"]), weight),
    );
    let types = (few(media.clone(), weight), few(media.clone(), weight), few(media, weight));
    (where_from, what, names, types).prop_map(|(where_from, what, names, types)| Predicates {
        listeners: where_from.0,
        hosts: where_from.1,
        clients: where_from.2,
        server_names: where_from.3,
        paths: what.0,
        path_regexes: what.1,
        methods: what.2,
        headers: names.0,
        queries: names.1,
        cookies: names.2,
        content_types: types.0,
        accepts: types.1,
        media_types: types.2,
    })
}

fn any_expression_rule() -> impl Strategy<Value = Rule> {
    let regexes = prop::sample::select(vec!["^/a", "b$", "^/b"]).prop_map(str::to_owned);
    let method = prop_oneof![3 => Just("POST"), 1 => Just("GET")];
    let hosts = proptest::collection::vec(any_host_pattern(), 0..3);
    (hosts, proptest::collection::vec(regexes, 1..3), method).prop_map(|(hosts, path_regexes, method)| {
        rule("r", Predicates { hosts, path_regexes, methods: vec![method.to_owned()], ..Predicates::default() })
    })
}

pub(crate) fn any_rule() -> impl Strategy<Value = Rule> {
    (any_predicates(1), prop_oneof![2 => Just(Predicates::default()), 1 => any_predicates(1)]).prop_map(
        |(when, unless)| {
            let mut made = rule("r", when);
            made.unless = unless;
            made
        },
    )
}

pub(crate) fn any_request() -> impl Strategy<Value = Request> {
    let host =
        prop::sample::select(vec!["a.test", "b.a.test", "c.b.a.test", "x.c.b.a.test", "y.test", "test", "", ".a.test"]);
    let field = prop_oneof![
        (prop::sample::select(vec!["x-a", "X-A", "x-b"]), prop::sample::select(vec!["1", "ab", "axb", "", "2"])),
        Just(("Cookie", "c=1; d=\"ab\"")),
        Just(("Cookie", "c=2")),
        Just(("Content-Type", "image/png;x=1")),
        Just(("Content-Type", "TEXT/html")),
        Just(("Accept", "image/png;q=0, text/html")),
        Just(("Accept", "*/*;q=0.1, image/*;q=0.5")),
        Just(("Sec-Fetch-Dest", "style")),
        Just(("Sec-Fetch-Dest", "empty")),
    ];
    let query = prop::sample::select(vec![
        None,
        Some("q=1"),
        Some("q"),
        Some("r=a%62&q=2"),
        Some("q=x+y&&r="),
        Some("%71=axb"),
    ]);
    let client = prop::sample::select(vec!["10.1.2.3", "10.9.9.9", "192.0.2.1", "2001:db8::1", "::ffff:10.1.2.3"]);
    (
        (prop::sample::select(vec!["GET", "POST"]), host, any_path(), query),
        proptest::collection::vec(field, 0..4),
        (0_u32..3, client, prop::option::of(prop::sample::select(vec!["a.test", "b.a.test"]))),
        prop::option::of(prop::sample::select(vec!["image/png", "Text/html"])),
    )
        .prop_map(|((method, host, path, query), fields, (listener, client, server_name), learned)| Request {
            method: method.to_owned(),
            host: host.to_owned(),
            path,
            query: query.map(str::to_owned),
            head: Head::new(&fields),
            listener,
            client: client.parse().unwrap(),
            server_name: server_name.map(str::to_owned),
            learned: learned.map(str::to_owned),
        })
}

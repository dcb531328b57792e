//! Tests of the warnings, and of the claim under them: what is said to be covered never matches by itself.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::pure::rule::find::tests::{any_request, any_rule, rule};
use crate::pure::rule::path::normalize_path;
use crate::pure::trace::Trace;

fn on(host: &str, path: &str) -> Predicates {
    let host = match host.strip_prefix('*') {
        Some(suffix) => HostPattern::Suffix(suffix.to_owned()),
        None => HostPattern::Exact(host.to_owned()),
    };
    Predicates { hosts: vec![host], paths: vec![path.to_owned()], ..Predicates::default() }
}

fn shadows(rules: Vec<Predicates>) -> Vec<(usize, usize, bool, Option<String>)> {
    let rules = rules.into_iter().enumerate().map(|(number, when)| Arc::new(rule(&number.to_string(), when)));
    let set = RuleSet::compile(rules.collect()).unwrap();
    set.shadows().into_iter().map(|shadow| (shadow.later, shadow.earlier, shadow.is_whole, shadow.host)).collect()
}

#[test]
fn a_rule_behind_a_wider_one_is_found() {
    let method = |method: &str| Predicates { methods: vec![method.to_owned()], ..on("a.test", "/x") };
    assert_eq!(shadows(vec![on("a.test", "/{*rest}"), on("a.test", "/x")]), [(1, 0, true, None)]);
    assert_eq!(shadows(vec![on("a.test", "/x"), on("a.test", "/{*rest}")]), []);
    assert_eq!(shadows(vec![method("GET"), method("POST"), method("GET")]), [(2, 0, true, None)]);
    assert_eq!(shadows(vec![Predicates::default(), on("a.test", "/x")]), [(1, 0, true, None)]);
    assert_eq!(shadows(vec![on("b.test", "/{*rest}"), on("a.test", "/x")]), []);
}

#[test]
fn an_exact_host_behind_a_wildcard_is_found() {
    let hidden = Some("w.a.test".to_owned());
    assert_eq!(shadows(vec![on("*.a.test", "/{*rest}"), on("w.a.test", "/x")]), [(1, 0, true, hidden.clone())]);
    let mut two = on("b.test", "/x");
    two.hosts.push(HostPattern::Exact("w.a.test".to_owned()));
    assert_eq!(shadows(vec![on("*.a.test", "/{*rest}"), two.clone()]), [(1, 0, false, hidden)]);
    assert_eq!(shadows(vec![on("*.a.test", "/y"), two]), []);
    assert_eq!(shadows(vec![on("*.a.test", "/x"), on("a.test", "/x")]), []);
}

#[test]
fn a_not_block_counts() {
    let with = |not: &[&str]| {
        let mut made = rule("r", on("a.test", "/x"));
        made.unless.methods = not.iter().map(|&method| method.to_owned()).collect();
        made
    };
    assert!(covers(&with(&[]), &with(&["PUT"])));
    assert!(!covers(&with(&["PUT"]), &with(&[])));
    assert!(covers(&with(&["PUT"]), &with(&["GET", "PUT"])));
}

#[test]
fn expressions_that_are_prefixes_are_told_from_those_that_are_not() {
    for (text, expected) in [
        ("^/img/", Some("/img/{*rest}")),
        ("^/img/.*", Some("/img/{*rest}")),
        ("^/img/.*$", Some("/img/{*rest}")),
        ("^/img", Some("/img{*rest}")),
        ("^/", Some("/{*rest}")),
        ("^/about$", Some("/about")),
        ("^/v1\\.2/", Some("/v1.2/{*rest}")),
        ("^/a\\-b$", Some("/a-b")),
        ("/img/", None),
        ("^img", None),
        ("^/img/.+", None),
        ("^/v1.2/", None),
        ("^/(a|b)/", None),
        ("^/\\d", None),
        ("^/a\\{2\\}", None),
        ("^/café", None),
        ("^/a/../b", None),
        ("^/a/\\.\\./b", None),
        ("^/a|b", None),
        ("^/a?", None),
        ("^/a b", None),
        ("^", None),
        ("", None),
        ("^/\\", None),
    ] {
        assert_eq!(regex_is_prefix(text).as_deref(), expected, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_said_to_be_hidden_never_wins(rules in proptest::collection::vec(any_rule(), 2..8),
        requests in proptest::collection::vec(any_request(), 1..6))
    {
        let set = RuleSet::compile(rules.iter().cloned().map(Arc::new).collect()).unwrap();
        let shadows = set.shadows();
        let mut captures = crate::pure::rule::captures::Captures::new();
        for request in &requests {
            let mut scratch = String::new();
            let view = request.view(normalize_path(&request.path, &mut scratch));
            let found = set.find(&view, &mut captures, &mut Trace::off()).map(|found| found.index);
            for shadow in &shadows {
                let applies = shadow.is_whole || shadow.host.as_deref() == Some(view.host);
                prop_assert!(!applies || found != Some(shadow.later), "{:?} on {:?}", shadow, view);
            }
        }
    }

    /// Nothing is missed for being looked up instead of compared with every other rule.
    #[test]
    fn all_pairs_would_find_the_same(rules in proptest::collection::vec(any_rule(), 2..8)) {
        let set = RuleSet::compile(rules.iter().cloned().map(Arc::new).collect()).unwrap();
        let pairs: Vec<_> = (0..rules.len())
            .filter_map(|later| (0..later).find(|&earlier| covers(&rules[earlier], &rules[later])).map(|earlier| (later, earlier)))
            .collect();
        let found: Vec<_> =
            set.shadows().into_iter().filter(|shadow| shadow.is_whole).map(|shadow| (shadow.later, shadow.earlier)).collect();
        prop_assert_eq!(found, pairs);
    }

    #[test]
    fn a_prefix_expression_and_its_pattern_match_alike(text in "\\^/[a-b]{0,2}/?(\\.\\*)?\\$?", path in "(/[ab]{0,3}){1,3}") {
        if let Some(pattern) = regex_is_prefix(&text) {
            let expression = crate::pure::rule::compile::path_regex(&text).unwrap();
            prop_assert_eq!(PathPattern::parse(&pattern).unwrap().matches(&path), expression.is_match(path.as_bytes()));
        }
    }
}

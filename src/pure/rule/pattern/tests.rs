//! Tests of single patterns: what is refused and where, what matches, and matchit's opinion of both.

use proptest::prelude::*;

use super::*;

fn captured(pattern: &str, path: &str) -> Option<Vec<(String, String)>> {
    let pattern = PathPattern::parse(pattern).unwrap();
    let mut captures = Captures::new();
    let matched = pattern.capture(path, &mut captures);
    assert_eq!(matched, pattern.matches(path));
    matched
        .then(|| captures.names().map(|name| (name.to_owned(), captures.get(path, name).unwrap().to_owned())).collect())
}

fn check(pattern: &str, path: &str, expected: Option<&[(&str, &str)]>) {
    let expected = expected
        .map(|list| list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>());
    assert_eq!(captured(pattern, path), expected, "{pattern} on {path}");
}

#[test]
fn patterns_match_whole_paths_and_capture_parts() {
    check("/", "/", Some(&[]));
    check("/a", "/a/", None);
    check("/a/", "/a", None);
    check("/u/{id}", "/u/7", Some(&[("id", "7")]));
    check("/u/{id}", "/u/", None);
    check("/u/{id}", "/u/7/x", None);
    check("/{x}.jpg", "/a.b.jpg", Some(&[("x", "a.b")]));
    check("/{x}.jpg", "/.jpg", None);
    check("/img-{n}.png/t", "/img-1.png/t", Some(&[("n", "1")]));
    check("/aa{x}aa", "/aaa", None);
    check("/{a}/b/{c}", "/1/b/2", Some(&[("a", "1"), ("c", "2")]));
    check("/{{a}}", "/%7Ba%7D", Some(&[]));
}

#[test]
fn a_catch_all_may_be_empty_but_wants_its_slash() {
    check("/img/{*rest}", "/img/", Some(&[("rest", "")]));
    check("/img/{*rest}", "/img/a/b", Some(&[("rest", "a/b")]));
    check("/img/{*rest}", "/img", None);
    check("/{*rest}", "/", Some(&[("rest", "")]));
    check("/img{*rest}", "/img", Some(&[("rest", "")]));
    check("/img{*rest}", "/imgs/a", Some(&[("rest", "s/a")]));
    check("/{a}/{*rest}", "//x", None);
}

#[test]
fn patterns_are_normalized_like_paths() {
    for text in ["/café/{x}", "/caf%c3%a9/{x}", "/%63afé/{x}", "/a/../café/./{x}", "/x/%2e%2e/café/{x}"] {
        check(text, "/caf%C3%A9/1", Some(&[("x", "1")]));
    }
    check("/a/b/..", "/a/", Some(&[]));
    check("/a/.", "/a/", Some(&[]));
}

#[test]
fn mistakes_are_found_where_they_are() {
    use PatternProblem::*;
    for (text, at, length, problem) in [
        ("", 0, 0, NoSlash),
        ("a", 0, 1, NoSlash),
        ("/a{", 2, 1, Unclosed),
        ("/a}b", 2, 1, Unopened),
        ("/{}", 1, 2, Name),
        ("/{*}", 1, 3, Name),
        ("/{a/b}", 1, 5, Name),
        ("/{1}", 1, 3, Name),
        ("/{a}/{a}", 5, 3, NameTaken("a".to_owned())),
        ("/{a}/{*a}", 5, 4, NameTaken("a".to_owned())),
        ("/{a}{b}", 4, 3, TwoCaptures),
        ("/{a}-{*b}", 5, 4, TwoCaptures),
        ("/{*a}/b", 1, 4, RestNotLast),
        ("/a?b=1", 2, 1, Query),
        ("/a#b", 2, 1, Query),
        ("/a%4", 2, 1, Escape),
        ("/a%zz", 2, 1, Escape),
        ("/{a}/../b", 5, 2, DotsOverCapture),
    ] {
        assert_eq!(PathPattern::parse(text), Err(PatternError { at, length, problem }), "{text}");
    }
}

#[test]
fn one_pattern_covers_another_only_where_it_is_certain() {
    for (earlier, later, expected) in [
        ("/{*rest}", "/a", true),
        ("/{*rest}", "/", true),
        ("/a/{*rest}", "/a", false),
        ("/a/{*rest}", "/a/", true),
        ("/a/{*rest}", "/a/{x}/b", true),
        ("/a{*rest}", "/ab/{x}", true),
        ("/a{*rest}", "/a{*other}", true),
        ("/ab{*rest}", "/a{*other}", false),
        ("/{x}", "/a", true),
        ("/{x}", "/", false),
        ("/{x}", "/{*rest}", false),
        ("/{x}.jpg", "/a{y}.jpg", true),
        ("/a{x}.jpg", "/{y}.jpg", false),
        ("/a", "/a", true),
    ] {
        let pattern = |text| PathPattern::parse(text).unwrap();
        assert_eq!(pattern(earlier).covers(&pattern(later)), expected, "{earlier} over {later}");
    }
}

fn pattern_text() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        3 => "[a-c]{0,2}",
        2 => "[ab]{0,1}".prop_map(|text| format!("{text}{{N}}")),
        1 => "[ab]{0,1}".prop_map(|text| format!("{{N}}{text}")),
        1 => Just("a{N}b".to_owned()),
    ];
    let last = prop_oneof![3 => Just(None), 1 => Just(Some("{*rest}")), 1 => Just(Some("a{*rest}"))];
    (proptest::collection::vec(segment, 0..4), last).prop_map(|(segments, last)| {
        let mut text = String::new();
        for (position, segment) in segments.iter().enumerate() {
            text.push('/');
            text.push_str(&segment.replace('N', &format!("n{position}")));
        }
        if let Some(last) = last {
            text.push('/');
            text.push_str(last);
        }
        if text.is_empty() { "/".to_owned() } else { text }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// The syntax is matchit's: so is the meaning, but for the empty catch-all.
    #[test]
    fn single_patterns_mean_what_matchit_says(text in pattern_text(), path in "(/[a-c]{0,3}){1,5}") {
        let pattern = PathPattern::parse(&text).unwrap();
        let mut router = matchit::Router::new();
        router.insert(text.clone(), ()).unwrap();
        let mut captures = Captures::new();
        let ours = pattern.capture(&path, &mut captures);
        let empty_rest = ours && captures.get(&path, "rest") == Some("");
        match router.at(&path) {
            Ok(matched) => {
                prop_assert!(ours, "{} on {}", text, path);
                let theirs: Vec<_> = matched.params.iter().collect();
                let names: Vec<_> = captures.names().map(|name| (name, captures.get(&path, name).unwrap())).collect();
                prop_assert_eq!(names, theirs);
            }
            Err(_) => prop_assert!(!ours || empty_rest, "{} on {}", text, path),
        }
    }

    #[test]
    fn a_pattern_matches_its_example_and_what_covers_it_does_too(one in pattern_text(), other in pattern_text(),
        path in "(/[a-c]{0,3}){1,5}")
    {
        let (one, other) = (PathPattern::parse(&one).unwrap(), PathPattern::parse(&other).unwrap());
        prop_assert!(one.matches(&one.example()));
        if one.covers(&other) {
            prop_assert!(one.matches(&other.example()));
            prop_assert!(!other.matches(&path) || one.matches(&path));
        }
        prop_assert!(one.covers(&one));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[/{}*%.a?é]{0,12}") {
        if let Err(error) = PathPattern::parse(&text) {
            prop_assert!(error.at + error.length <= text.len());
        }
    }
}

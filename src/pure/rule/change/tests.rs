//! Tests of targets, Locations and field values, and of what no request may bring into them.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::pure::rule::Predicates;
use crate::pure::rule::compile::RuleSet;
use crate::pure::rule::find::tests::{Head, rule};
use crate::pure::rule::path::normalize_path;
use crate::pure::trace::Trace;

/// What `write` makes of a request that a rule with this pattern matched.
fn written<T>(
    pattern: &str,
    path: &str,
    query: Option<&str>,
    write: impl FnOnce(&Values<'_>, &mut Vec<u8>) -> T,
) -> (T, String) {
    let when = Predicates { paths: vec![pattern.to_owned()], ..Predicates::default() };
    let set = RuleSet::compile(vec![Arc::new(rule("r", when))]).unwrap();
    let head = Head::new::<&str, &str>(&[]);
    let mut scratch = String::new();
    let mut view = head.view("GET", "a.test", normalize_path(path.as_bytes(), &mut scratch));
    view.query = query.map(str::as_bytes);
    let mut captures = Captures::new();
    assert!(set.find(&view, &mut captures, &mut Trace::off()).is_some(), "{pattern} on {path}");
    let mut out = b"old".to_vec();
    let result = write(&Values { request: &view, captures: &captures, scheme: "https" }, &mut out);
    (result, String::from_utf8(out).unwrap())
}

fn target(
    pattern: &str,
    path: &str,
    query: Option<&str>,
    strip: Option<&str>,
    rewrite: Option<&str>,
) -> Option<String> {
    let changes = Changes {
        strip_prefix: strip.map(|prefix| normal_prefix(prefix).unwrap()),
        rewrite: rewrite.map(|text| Template::parse_target(text).unwrap()),
        ..Changes::default()
    };
    match written(pattern, path, query, |values, out| rewritten_target(&changes, values, out)) {
        (Ok(changed), out) => changed.then_some(out),
        (Err(UnsafeTarget), out) => {
            assert_eq!(out, "");
            Some("refused".to_owned())
        }
    }
}

#[test]
fn a_prefix_is_stripped_in_whole_segments() {
    let strip = |path, prefix| target("/{*rest}", path, Some("q=1"), Some(prefix), None);
    assert_eq!(strip("/api/x", "/api").as_deref(), Some("/x?q=1"));
    assert_eq!(strip("/api/x", "/api/").as_deref(), Some("/x?q=1"));
    assert_eq!(strip("/api", "/api").as_deref(), Some("/?q=1"));
    assert_eq!(strip("/api/", "/api").as_deref(), Some("/?q=1"));
    assert_eq!(strip("/%61pi/x", "/api").as_deref(), Some("/x?q=1"));
    assert_eq!(strip("/café/x", "/caf%c3%A9").as_deref(), Some("/x?q=1"));
    assert_eq!(strip("/apis/x", "/api"), None);
    assert_eq!(strip("/x", "/api"), None);
    assert_eq!(strip("/x", "/"), None);
    assert_eq!(normal_prefix("api"), None);
}

#[test]
fn a_rewrite_keeps_the_query_unless_it_brings_its_own() {
    let rewrite = |text| target("/old/{id}/{*rest}", "/old/7/a/b", Some("q=1&r"), None, Some(text)).unwrap();
    assert_eq!(rewrite("/v2/{rest}"), "/v2/a/b?q=1&r");
    assert_eq!(rewrite("/v2/{rest}?id={id}"), "/v2/a/b?id=7");
    assert_eq!(rewrite("/v2?id={id}&{query}"), "/v2?id=7&q=1&r");
    assert_eq!(rewrite("/x{path}"), "/x/old/7/a/b?q=1&r");
    assert_eq!(rewrite("/x{uri}"), "/x/old/7/a/b?q=1&r");
    assert_eq!(rewrite("/é b/{scheme}/{host}/{method}/{client}"), "/%C3%A9%20b/https/a.test/GET/127.0.0.1?q=1&r");
    assert_eq!(target("/{*r}", "/a", None, None, Some("/b/{r}")).as_deref(), Some("/b/a"));
    assert_eq!(target("/{*r}", "/api/a", None, Some("/api"), Some("/v2{path}")).as_deref(), Some("/v2/a"));
    assert_eq!(target("/{*r}", "/a", None, None, None), None);
}

#[test]
fn a_capture_stays_inside_the_part_that_it_was_put_in() {
    let rewrite = |path, text| target("/{x}/{*rest}", path, None, None, Some(text)).unwrap();
    assert_eq!(rewrite("/a&admin=1;b/", "/s?user={x}"), "/s?user=a%26admin%3D1%3Bb");
    assert_eq!(rewrite("/a%3Fb%23/", "/s/{x}"), "/s/a%3Fb%23");
    let dots = |path, text| target("/v{x}/{*rest}", path, None, None, Some(text)).unwrap();
    assert_eq!(dots("/v../etc", "/files/{x}/{rest}"), "refused");
    assert_eq!(dots("/v.%2e/etc", "/files/{x}/{rest}"), "refused");
    assert_eq!(dots("/v.../etc", "/files/{x}/{rest}"), "/files/.../etc");
    assert_eq!(dots("/v../etc", "/files?x={x}"), "/files?x=..");
    assert_eq!(target("/v{*rest}", "/v../etc", None, None, Some("/files/{rest}")).as_deref(), Some("refused"));
}

/// Servers that cut `..;a` to `..`, or decode `%2F` before they look for dots, would leave the folder.
#[test]
fn a_rewrite_makes_nothing_that_a_server_takes_for_a_dot_segment() {
    let rewrite = |path| target("/v{*rest}", path, None, None, Some("/files/{rest}")).unwrap();
    assert_eq!(rewrite("/v..;a"), "refused");
    assert_eq!(rewrite("/v..;a/etc"), "refused");
    assert_eq!(rewrite("/v..%2Fetc"), "refused");
    assert_eq!(rewrite("/v.%2Fetc"), "refused");
    assert_eq!(rewrite("/v...;a"), "/files/...;a");
    assert_eq!(rewrite("/va%2Fb"), "/files/a%2Fb");
    // Let in by the listener's policy, and not made here.
    assert_eq!(rewrite("/va%5Cb"), "/files/a%5Cb");
}

fn redirect(pattern: &str, path: &str, query: Option<&str>, text: &str) -> String {
    let template = Template::parse_location(text).unwrap();
    written(pattern, path, query, |values, out| location(&template, values, out)).1
}

#[test]
fn a_location_is_escaped_for_the_part_that_each_value_stands_in() {
    let to = |text| redirect("/{x}/{*rest}", "/a%20b&c/d", Some("q=é \" |"), text);
    assert_eq!(to("https://{host}{uri}"), "https://a.test/a%20b&c/d?q=%C3%A9%20%22%20|");
    assert_eq!(to("https://b.test/{x}?y={x}"), "https://b.test/a%20b&c?y=a%20b%26c");
    assert_eq!(to("/n/{rest}#{x}"), "/n/d#a%20b%26c");
    assert_eq!(to("{scheme}://{host}:8443{path}"), "https://a.test:8443/a%20b&c/d");
    assert_eq!(to("/login?next={uri}"), "/login?next=/a%20b%26c/d?q%3D%C3%A9%20%22%20|");
    assert_eq!(to("/login?next=https://b.test/{x}"), "/login?next=https://b.test/a%20b%26c");
    assert_eq!(to("https://b.test?x={x}"), "https://b.test?x=a%20b%26c");
    let host = |x: &str| redirect("/{x}", x, None, "https://{x}.b.test/");
    assert_eq!(host("/shop"), "https://shop.b.test/");
    assert_eq!(host("/u@evil:1"), "https://u%40evil%3A1.b.test/");
}

#[test]
fn a_path_never_becomes_a_host() {
    assert_eq!(redirect("/{*rest}", "//evil.test/x", None, "{path}"), "/.//evil.test/x");
    assert_eq!(redirect("/go/{*rest}", "/go//evil.test/x", None, "/{rest}"), "/.//evil.test/x");
    assert_eq!(redirect("/go/{*rest}", "/go/%5Cevil.test", None, "/{rest}"), "/%5Cevil.test");
    assert_eq!(redirect("/{*rest}", "/x", None, "//cdn.test/{rest}"), "//cdn.test/x");
    assert_eq!(redirect("/{*rest}", "//x", None, "https://b.test{path}"), "https://b.test//x");
}

#[test]
fn a_field_value_takes_its_values_as_they_are() {
    let template = Template::parse_value("{x}; $$1 {query} é").unwrap();
    let (_, value) = written("/{x}", "/a%0D%0Ab", Some("q=\r\n\0"), |values, out| {
        out.clear();
        push_field_value(&template, values, out)
    });
    assert_eq!(value, "a%0D%0Ab; $1 q=%0D%0A%00 é");
    // A template that did not come by `parse_value`.
    let template = Template { parts: vec![TemplatePart::Text("a\r\nX: y".to_owned())] };
    let (_, value) = written("/{x}", "/a", None, |values, out| {
        out.clear();
        push_field_value(&template, values, out)
    });
    assert_eq!(value, "a%0D%0AX: y");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn nothing_that_is_sent_breaks_a_line_or_leaves_its_part(raw in proptest::collection::vec(any::<u8>(), 0..12),
        query in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..8)),
        text in "(/[{]x[}]|[?&]a=|[{]query[}]|[{]uri[}]|[{]path[}]|\r|\u{0}|é| |#){0,6}")
    {
        let path = [b"/x".as_slice(), &raw, b"/y"].concat();
        let mut scratch = String::new();
        let path = normalize_path(&path, &mut scratch);
        let head = Head::new::<&str, &str>(&[]);
        let mut view = head.view("GET", "a.test", path);
        view.query = query.as_deref();
        let mut captures = Captures::new();
        captures.push("x", 1, path.len().min(3));
        let values = Values { request: &view, captures: &captures, scheme: "http" };
        let mut out = Vec::new();
        let template = Template::parse(&text).unwrap();
        push_field_value(&template, &values, &mut out);
        prop_assert!(out.iter().all(|&byte| byte == b'\t' || byte >= b' ' && byte != 0x7F));
        location(&template, &values, &mut out);
        prop_assert!(out.iter().all(u8::is_ascii_graphic) && !out.starts_with(b"//"));
        let changes = Changes { rewrite: Some(template), ..Changes::default() };
        if rewritten_target(&changes, &values, &mut out) == Ok(true) {
            prop_assert!(out.iter().all(u8::is_ascii_graphic) && out.starts_with(b"/"));
            let (path, _) = super::super::path::split_query(&out);
            let mut scratch = String::new();
            let normal = normalize_path(path, &mut scratch);
            prop_assert_eq!(normal.matches('/').count(), path.iter().filter(|&&byte| byte == b'/').count());
        }
    }
}

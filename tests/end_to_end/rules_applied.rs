//! What a rule says becomes what is done: answers by rule, redirects, rewritten targets, changed fields, splits.

use std::collections::HashMap;

use crate::pools::{pool, pools_of_one};
use crate::support::{Origin, Proxy};

const RULES: &str = r#"
workers 1
listen "127.0.0.1:0"
rule "old" path="/old/{*rest}" redirect="http://new.a.test/{rest}" status=301
rule "closed" path="/closed" respond=403 body="Not for you." {
    set-response-header "Cache-Control" "no-store"
}
rule "gone" path="/gone" respond=204
"#;

#[test]
fn a_redirect_and_an_answer_by_rule_say_what_the_rule_says() {
    let proxy = Proxy::start(RULES);
    let mut client = proxy.client();
    let answer = client.get("/old/a%20b?q=1");
    assert_eq!((answer.status(), answer.field("location")), (301, Some("http://new.a.test/a%20b")));
    let answer = client.request("HEAD /closed HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((answer.status(), answer.field("content-length"), answer.body.len()), (403, Some("12"), 0));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    let answer = client.get("/gone");
    assert_eq!((answer.status(), answer.field("content-length"), answer.body.len()), (204, None, 0));
}

#[test]
fn an_origin_is_asked_as_its_rule_rewrites() {
    let origin = Origin::new("one");
    let rules = format!(
        r#"
workers 1
listen "127.0.0.1:0" {{ via "off" }}
{}
rule path="/api/{{*rest}}" strip-prefix="/api" use="p" {{
    set-request-header "Host" "api.internal"
    set-request-header "X-Set" "new"
    add-request-header "X-Added" "{{rest}}"
    remove-request-header "X-Removed"
    set-response-header "X-Origin" "hidden"
    add-response-header "X-Added" "too"
    remove-response-header "X-Powered-By"
}}
rule path="/v1/users/{{id}}" rewrite="/v2/users?id={{id}}" use="p"
rule path="/r/{{*rest}}" rewrite="/s/{{rest}}" use="p"
"#,
        pool([&origin], "")
    );
    let proxy = Proxy::start(&rules);
    let mut client = proxy.client();
    let answer = client.request(
        "GET /api/x/y?q=%41 HTTP/1.1\r\nHost: a.test\r\nX-Set: a\r\nX-set: b\r\nX-Added: old\r\nx-removed: c\r\n\r\n",
    );
    assert_eq!(answer.head.all("x-origin"), ["hidden"]);
    assert_eq!(answer.field("x-added"), Some("too"));
    client.get("/v1/users/7?q=1");
    client.get("/r/a/b?q=1");
    let requests = origin.requests();
    let head = &requests[0].head;
    assert_eq!(head.target(), "/x/y?q=%41");
    assert_eq!((head.field("host"), head.field("x-set")), (Some("api.internal"), Some("new")));
    assert_eq!((head.all("x-added"), head.all("x-removed")), (vec!["old", "x/y"], vec![]));
    assert_eq!(requests[1].head.target(), "/v2/users?id=7");
    assert_eq!(requests[2].head.target(), "/s/a/b?q=1");
}

#[test]
fn a_split_deals_by_weight_and_sticks_to_its_key() {
    let (one, two) = (Origin::new("stable"), Origin::new("canary"));
    let pools = pools_of_one(&[("stable", &one), ("canary", &two)]);
    let rules = format!(
        r#"
workers 1
listen "127.0.0.1:0"
{pools}
rule path="/keyed" {{ split key="cookie:user" {{ use "stable" weight=3; use "canary" weight=1 }} }}
rule {{ split {{ use "stable" weight=3; use "canary" weight=1 }} }}
"#
    );
    let proxy = Proxy::start(&rules);
    let mut client = proxy.client();
    let stable = (0..800).filter(|_| client.get("/").text() == "stable").count();
    // 600 are expected; five deviations are 61.
    assert!((540..=660).contains(&stable), "{stable} of 800");
    let mut owners: HashMap<usize, String> = HashMap::new();
    for round in 0..3 {
        for user in 0..200 {
            let head = format!("GET /keyed HTTP/1.1\r\nHost: a.test\r\nCookie: x=y; user=u{user}\r\n\r\n");
            let answer = client.request(head).text();
            assert_eq!(*owners.entry(user).or_insert_with(|| answer.clone()), answer, "user {user}, round {round}");
        }
    }
    let stable = owners.values().filter(|owner| *owner == "stable").count();
    assert!((120..=180).contains(&stable), "{stable} of 200");
}

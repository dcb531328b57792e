//! What Pointsman answers by itself must end exactly where it ends, and leave the connection where the next request begins.

use crate::support::Proxy;

const RULES: &str = r#"
workers 1
listen "127.0.0.1:0"
pool "p" { server "o1" "127.0.0.1:1" }
rule "closed" path="/closed" respond=403 body="Not for you."
rule "gone" path="/gone" respond=204
rule "known" path="/known" use="p"
"#;

/// Nothing but this one answer comes: the next one on the connection is the next request's.
fn is_followed_by_its_own_answer(proxy: &Proxy, target: &str, status: u16) {
    let mut client = proxy.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\nGET /closed HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    client.finish_writing();
    assert_eq!((target, client.response().status()), (target, status));
    assert_eq!(client.response().text(), "Not for you.");
    client.end();
}

#[test]
fn a_request_without_a_rule_or_with_an_ambiguous_path_is_answered_once_and_the_connection_goes_on() {
    let proxy = Proxy::start(RULES);
    is_followed_by_its_own_answer(&proxy, "/nowhere", 404);
    is_followed_by_its_own_answer(&proxy, "/a%00b", 400);
    is_followed_by_its_own_answer(&proxy, "/gone", 204);
}

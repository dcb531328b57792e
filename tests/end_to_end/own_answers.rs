//! What Pointsman answers by itself must end exactly where it ends, and leave the connection where the next request begins.

use crate::pools::all_to;
use crate::support::{Proxy, refused_address};

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

/// A body that has come with its head, for a server that can't be reached, is not taken for a request, whatever its length
/// and however its end is found; what stands behind it is.
#[test]
fn the_body_of_a_request_that_fails_is_never_read_as_the_next_request() {
    let (_keeper, refused) = refused_address();
    let inner = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
    for retry in ["retry count=0", "retry count=1"] {
        let proxy = Proxy::start(&all_to([refused], retry));
        let lengths = [inner.len(), 3000, 5000, 9000, 15_000];
        for length in lengths {
            let body = inner.repeat(length.div_ceil(inner.len()));
            let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            let lengthy = format!("Content-Length: {}\r\n\r\n{body}", body.len());
            for rest in [lengthy, format!("Transfer-Encoding: chunked\r\n\r\n{chunk}")] {
                let mut client = proxy.client();
                client.send(format!(
                    "POST / HTTP/1.1\r\nHost: a.test\r\n{rest}GET /last HTTP/1.1\r\nHost: a.test\r\n\r\n"
                ));
                assert_eq!((length, client.response().status()), (length, 502));
                assert_eq!((length, client.response().status()), (length, 502));
            }
        }
        // One of them would stand between the two of each round.
        let records = proxy.wait_for_records("access.log", 4 * lengths.len());
        let paths: Vec<_> = records.iter().map(|record| record["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/", "/last"].repeat(2 * lengths.len()));
    }
}

#[test]
fn a_rules_own_answer_has_no_field_twice_that_the_rule_sets_and_none_that_it_removes() {
    let proxy = Proxy::start(
        r#"
workers 1
listen "127.0.0.1:0"
pool "p" { server "o1" "127.0.0.1:1" }
rule path="/busy" respond=503 body="{}" {
    set-response-header "Content-Type" "application/json"
    set-response-header "Retry-After" "9"
}
rule path="/bare" respond=503 { remove-response-header "Content-Type"; remove-response-header "Date" }
rule path="/moved" redirect="http://a.test/new" { set-response-header "Location" "http://b.test/" }
"#,
    );
    let mut client = proxy.client();
    let answer = client.get("/busy");
    assert_eq!(answer.head.all("content-type"), ["application/json"]);
    assert_eq!(answer.head.all("retry-after"), ["9"]);
    assert_eq!((answer.status(), answer.text().as_str()), (503, "{}"));
    let answer = client.get("/bare");
    assert_eq!((answer.head.all("content-type"), answer.head.all("date")), (vec![], vec![]));
    assert_eq!((answer.field("retry-after"), answer.text().as_str()), (None, "503 Service Unavailable\n"));
    assert_eq!(client.get("/moved").head.all("location"), ["http://b.test/"]);
}

#[test]
fn a_205_has_no_content_and_says_so() {
    let rules = r#"
workers 1
listen "127.0.0.1:0"
rule "reset" path="/reset" respond=205
rule "closed" path="/closed" respond=403 body="Not for you."
"#;
    let proxy = Proxy::start(rules);
    let answer = proxy.client().get("/reset");
    assert_eq!((answer.field("content-length"), answer.body.len()), (Some("0"), 0));
    assert_eq!(answer.field("content-type"), None);
    is_followed_by_its_own_answer(&proxy, "/reset", 205);
}

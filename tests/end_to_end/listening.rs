//! Listening: families, ports, workers and descriptors; and what a connection gets before any server is asked.

use crate::support::{End, Origin, Proxy};

/// Rules that send host `a.test` to `origin`.
fn rules(listen: &str, origin: &Origin) -> String {
    format!(
        "{listen}\npool \"o\" {{ server \"o1\" \"{}\"; }}\nrule host=\"a.test\" use=\"o\"\naccess-log \"access.log\"\n",
        origin.address
    )
}

#[test]
fn a_request_without_a_rule_is_answered_once_and_the_next_one_as_well() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("listen \"127.0.0.1:0\"", &origin));
    let mut client = proxy.client();
    client.send("GET /x HTTP/1.1\r\nHost: b.test\r\n\r\nGET /..;/ HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.send("GET /y HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let none = client.response();
    assert_eq!((none.status(), none.field("content-type")), (404, Some("text/plain; charset=utf-8")));
    assert_eq!(none.text(), "404 Not Found\n");
    assert_eq!(client.response().status(), 400);
    assert_eq!(client.response().text(), "one");
    client.finish_writing();
    assert_eq!(client.end(), End::Closed);
    let records = proxy.wait_for_records("access.log", 3);
    assert_eq!(records.iter().map(|record| record["status"].as_u64()).collect::<Vec<_>>(), [404, 400, 200].map(Some));
}

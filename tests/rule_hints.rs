//! What people are told who write TLS, HTTP/2 or addresses as other proxies have them: where it belongs, or what it is called.

use std::path::Path;
use std::time::SystemTime;

use pointsman::operator::check::{Style, check_files, render};
use pointsman::pure::config::{MemoryFiles, load};

/// What is said of a file that is right, but for `lines`.
fn said_of(lines: &str) -> String {
    let text = format!("listen \"127.0.0.1:8080\"\npool \"origin\" {{ server \"o1\" \"127.0.0.1:9000\" }}\n{lines}\n");
    match load(&MemoryFiles::one("site.kdl", &text), Path::new("site.kdl")) {
        Ok(_) => "no error".to_owned(),
        Err(errors) => render(&errors.problems, Style::Plain),
    }
}

/// The same of a pool with a server, but for `lines` in its block.
fn said_of_pool(lines: &str) -> String {
    said_of(&format!("pool \"b\" {{ server \"s\" \"127.0.0.1:1\"; {lines}; }}"))
}

/// The same of a server's address.
fn said_of_server(address: &str) -> String {
    said_of(&format!("pool \"b\" {{ server \"s\" \"{address}\"; }}"))
}

/// The same of a listener with `lines` in its block.
fn said_of_listener(lines: &str) -> String {
    said_of(&format!("listen \"127.0.0.1:81\" {{ {lines}; }}"))
}

/// What is said of each of them, one below the other.
fn said_of_each(say: impl Fn(&str) -> String, all: &[&str]) -> String {
    all.iter().map(|lines| say(lines)).collect()
}

#[test]
fn server_addresses() {
    insta::assert_snapshot!(said_of_each(
        said_of_server,
        &[
            r##"https://h:8443"##,
            r##"https://h"##,
            r##"http://app.internal:80/x"##,
            r##"app.internal"##,
            r##"/run/x.sock"##,
            r##"app..x:1"##,
        ]
    ));
}

#[test]
fn listener_addresses() {
    insta::assert_snapshot!(said_of_each(
        said_of,
        &[r##"listen "https://127.0.0.1:443""##, r##"listen "/run/x.sock""##, r##"listen "app.internal""##,]
    ));
}

#[test]
fn protocols() {
    insta::assert_snapshot!(said_of_each(
        said_of_listener,
        &[r##"protocols "h2""##, r##"protocols "H2C""##, r##"http2 #true"##, r##"h2"##, r##"alpn "h2""##,]
    ));
}

#[test]
fn tls_of_a_pool() {
    insta::assert_snapshot!(said_of_each(
        said_of_pool,
        &[
            r##"tls"##,
            r##"ssl #true"##,
            r##"ca "a.crt""##,
            r##"client-ca "a.crt""##,
            r##"http2"##,
            r##"send-proxy"##,
            r##"verify "none""##,
            r##"certificate "a.crt" key="a.key""##,
            r##"server-name "a.test""##,
        ]
    ));
}

#[test]
fn tls_of_a_server() {
    insta::assert_snapshot!(said_of_each(
        said_of,
        &[
            r##"pool "b" { server "s" "127.0.0.1:1" tls=#true; }"##,
            r##"pool "b" { server "s" "127.0.0.1:1" ssl=#true verify="none"; }"##,
            r##"pool "b" { server "s" "127.0.0.1:1" { tls; }; }"##,
            r##"pool "b" { server "s" "127.0.0.1:1" send-proxy=#true; }"##,
        ]
    ));
}

#[test]
fn upstream_protocols() {
    insta::assert_snapshot!(said_of_each(
        said_of_pool,
        &[
            r##"upstream "https""##,
            r##"upstream "http2""##,
            r##"upstream "HTTP/2""##,
            r##"upstream "http""##,
            r##"upstream "H2C""##,
        ]
    ));
}

#[test]
fn tls_of_an_upstream() {
    insta::assert_snapshot!(said_of_each(
        said_of_pool,
        &[
            r##"upstream "http/1.1" { ca "a.crt"; }"##,
            r##"upstream "http/1.1" { tls { client-ca "a.crt"; }; }"##,
            r##"upstream "http/1.1" { tls { verify #false; }; }"##,
            r##"upstream "http/1.1" { tls { alpn "h2"; }; }"##,
        ]
    ));
}

#[test]
fn several_authorities() {
    insta::assert_snapshot!(said_of_each(
        said_of_pool,
        &[
            r##"upstream "http/1.1" { tls { ca "a.crt" "b.crt"; }; }"##,
            r##"upstream "http/1.1" { tls { ca "a.crt"; ca "b.crt"; }; }"##,
        ]
    ));
}

#[test]
fn several_authorities_of_clients() {
    insta::assert_snapshot!(said_of_each(
        said_of_listener,
        &[r##"tls { certificate "a.crt" key="a.key"; client-ca "a.crt" "b.crt"; }"##,]
    ));
}

#[test]
fn tls_of_a_listener() {
    insta::assert_snapshot!(said_of_each(
        said_of_listener,
        &[
            r##"client-ca "a.crt""##,
            r##"ca "a.crt""##,
            r##"certificate "a.crt" key="a.key""##,
            r##"ssl"##,
            r##"accept-proxy"##,
            r##"verify "required""##,
            r##"tls { certificate "a.crt" key="a.key"; ca "b.crt"; }"##,
        ]
    ));
}

#[test]
fn at_the_top() {
    insta::assert_snapshot!(said_of_each(
        said_of,
        &[r##"tls"##, r##"client-ca "a.crt""##, r##"ssl #true"##, r##"h2c"##, r##"proxy-protocol"##,]
    ));
}

#[test]
fn in_a_rule() {
    insta::assert_snapshot!(said_of_each(
        said_of,
        &[r##"rule use="origin" { client-ca "a.crt"; }"##, r##"rule use="origin" tls=#true"##,]
    ));
}

#[test]
fn hosts() {
    insta::assert_snapshot!(said_of_each(
        said_of,
        &[r##"rule host="http://a.test" use="origin""##, r##"rule host="https://a.test:8443/x" use="origin""##,]
    ));
}

#[test]
fn trusted_proxies() {
    insta::assert_snapshot!(said_of_each(
        said_of_listener,
        &[
            r##"trusted-proxies "10.0.0.1:80""##,
            r##"trusted-proxies "lb.internal""##,
            r##"trusted-proxies "lb.internal:80""##,
            r##"trusted-proxies "[::1]:80""##,
        ]
    ));
}

/// `run` refuses it, so `check` must, whether TLS is written or follows from the protocol.
#[test]
fn a_unix_socket_has_no_name_that_a_certificate_could_be_for() {
    let check = |upstream: &str| {
        let text = format!(
            "listen \"127.0.0.1:8080\"\npool \"p\" {{ server \"a\" \"unix:/o.sock\"; {upstream} }}\nrule use=\"p\"\n"
        );
        let files = MemoryFiles::one("site.kdl", &text);
        let report = check_files(&files, Path::new("site.kdl"), SystemTime::UNIX_EPOCH);
        (report.errors.len(), render(&report.errors, Style::Plain))
    };
    let explicit = check("upstream \"h2\" { tls { insecure #true; }; }");
    assert_eq!(explicit.0, 1, "{}", explicit.1);
    assert_eq!(check("upstream \"h2c\"").0, 0);
    // A system without authorities is told of first, in the same place.
    let (count, text) = check("upstream \"h2\"");
    assert_eq!(count, 1, "{text}");
    assert!(text.contains("the servers' certificates can't be verified") && text.contains("site.kdl:2:"), "{text}");
}

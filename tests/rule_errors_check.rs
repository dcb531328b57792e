//! What people are told of their mistakes with `check`: what is wrong, where, and what to do.

#[path = "support/said.rs"]
mod said;

use said::said_of;

#[test]
fn check_of_no_kind() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; check "/health" }"##));
}

#[test]
fn check_twice() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; check "tcp"; check "icmp"; }"##));
}

#[test]
fn check_with_what_belongs_elsewhere() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; check path="/health" { header "A" "b" } }
pool "c" { server "s" "127.0.0.1:1"; check "http" service="app.Users" }
pool "d" { server "s" "127.0.0.1:1"; check "icmp" port=80 plain=#true }"##
    ));
}

#[test]
fn check_that_the_protocol_does_not_allow() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; check "tls" }
pool "c" { server "s" "127.0.0.1:1"; check "grpc" }"##
    ));
}

#[test]
fn check_of_a_unix_socket() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "unix:/run/app.sock"; check "icmp" }
pool "c" { server "s" "unix:/run/app.sock"; check "http" port=8080 }"##
    ));
}

#[test]
fn check_with_values_that_nobody_could_send() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" {
    server "s" "127.0.0.1:1"
    check "http" path="health" method="GET /" host="http://a.test" status="200-199"
}
pool "c" {
    server "s" "127.0.0.1:1"
    check "http" path="/a b" method="CONNECT" status="2000"
}
pool "d" {
    server "s" "127.0.0.1:1"
    check "http" {
        header "Host" "a.test"
        header "Content-Length" "1"
        header "a b" "1"
    }
}
pool "e" { server "s" "127.0.0.1:1"; upstream "h2c"; check "grpc" service="" }"##
    ));
}

#[test]
fn check_for_what_no_body_has() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; check "http" body="" body-regex="(" }
pool "c" { server "s" "127.0.0.1:1"; check "http" method="HEAD" body="ok" }
pool "d" { server "s" "127.0.0.1:1"; check "http" body-regex=#"\w{500}{500}"# }"##
    ));
}

#[test]
fn check_with_numbers_out_of_range() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; check "http" every="1ms" timeout=300 fall=0 rise=5000 port=0 status=200 }"##
    ));
}

#[test]
fn check_in_the_words_of_other_proxies() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; check "http" interval="1s" fails=3 { uri "/"; expect_status 200 } }
pool "c" { server "s" "127.0.0.1:1"; check "https" }"##
    ));
}

#[test]
fn check_address_that_nobody_would_ask_at() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1" check-address="127.0.0.1:2" }
pool "c" { server "s" "127.0.0.1:1" check-address="a.test:2"; check "tcp" }
pool "d" { server "s" "127.0.0.1:1" check-address="unix:/run/app.sock"; check "icmp" }
pool "e" { server "s" "unix:/run/app.sock" check-address="127.0.0.1"; check "http" addr="127.0.0.1:2" }"##
    ));
}

//! What people are told of their mistakes with `persist` and `secret`: what is wrong, where, and what to do.

#[path = "support/said.rs"]
mod said;

use said::said_of;

#[test]
fn persist_by_nothing() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; persist ttl="5m" }"##));
}

#[test]
fn persist_by_two() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; persist cookie="S" learn="T" }"##));
}

#[test]
fn persist_twice() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; persist cookie="S"; persist cookie="T"; }"##
    ));
}

#[test]
fn persist_with_what_belongs_elsewhere() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; persist source hide=#true }"##));
}

#[test]
fn persist_by_no_name() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; persist cookie="a b" }"##));
}

#[test]
fn persist_cookie_that_browsers_refuse() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; persist cookie="__Host-S" path="/app" same-site="none" secure=#false }"##
    ));
}

#[test]
fn secret_without_file() {
    insta::assert_snapshot!(said_of(r##"secret"##));
}

#[test]
fn secret_as_a_value() {
    insta::assert_snapshot!(said_of(r##"secret "/etc/pointsman/secret""##));
}

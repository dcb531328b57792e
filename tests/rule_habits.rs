//! What people are told who write a rule file as they would for another program.

#[path = "support/said.rs"]
mod said;

use said::said_of;

#[test]
fn single_quotes() {
    insta::assert_snapshot!(said_of(r##"pool 'b' { server "s" "127.0.0.1:1" }"##));
}

#[test]
fn another_programs_file() {
    insta::assert_snapshot!(said_of(
        r##"server {
    listen 80;
    location / {
        proxy_pass http://127.0.0.1:9000;
    }
}"##
    ));
}

#[test]
fn another_programs_file_that_parses() {
    insta::assert_snapshot!(said_of(
        r##"http {
    server_name a.test;
}"##
    ));
}

#[test]
fn another_programs_scheduler() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; scheduler "least_conn" }
pool "c" { server "s" "127.0.0.1:1"; scheduler "ip_hash" }"##
    ));
}

#[test]
fn property_without_equals_behind_a_name() {
    insta::assert_snapshot!(said_of(r##"rule "x" method "GET" use="origin""##));
}

#[test]
fn single_quotes_of_a_path() {
    insta::assert_snapshot!(said_of(r##"rule path='/a b' use="origin""##));
}

#[test]
fn single_quotes_of_an_address() {
    insta::assert_snapshot!(said_of(r##"listen '127.0.0.1:81'"##));
}

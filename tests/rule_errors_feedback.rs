//! What people are told of their mistakes with `feedback`, `agent-check` and `run-queue`: what is wrong, where, and what to do.

#[path = "support/said.rs"]
mod said;

use said::said_of;

#[test]
fn feedback_without_a_key() {
    insta::assert_snapshot!(said_of(r##"feedback "127.0.0.1:9787""##));
}

#[test]
fn feedback_twice() {
    insta::assert_snapshot!(said_of(
        r##"feedback "127.0.0.1:9787" { key-file "k" }
feedback "127.0.0.1:9788" { key-file "k" }"##
    ));
}

#[test]
fn feedback_at_a_unix_socket() {
    insta::assert_snapshot!(said_of(r##"feedback "unix:/run/f.sock" { key-file "k" }"##));
}

#[test]
fn feedback_from_a_name() {
    insta::assert_snapshot!(said_of(r##"feedback "127.0.0.1:9787" { key-file "k"; sources "backend.test" }"##));
}

#[test]
fn agent_check_without_a_port() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; agent-check every="2s" }"##));
}

#[test]
fn agent_check_slower_than_its_questions() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1"; agent-check port=9 every="1s" timeout="2s" }"##
    ));
}

#[test]
fn agent_check_of_a_unix_socket() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "unix:/run/s.sock"; agent-check port=9 }"##));
}

#[test]
fn agent_address_that_is_a_name() {
    insta::assert_snapshot!(said_of(
        r##"pool "b" { server "s" "127.0.0.1:1" agent-address="agent.test"; agent-check port=9 }"##
    ));
}

#[test]
fn agent_port_without_an_agent_check() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1" agent-port=9 }"##));
}

#[test]
fn reports_of_another_scheduler() {
    insta::assert_snapshot!(said_of(r##"pool "b" { server "s" "127.0.0.1:1"; scheduler "wlc" reports="pull" }"##));
}

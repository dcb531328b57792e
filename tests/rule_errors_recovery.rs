//! What people are told of their mistakes with `recovery`, `machine` and `alert`: what is wrong, where, and what to do.

#[path = "support/said.rs"]
mod said;

use said::said_of;

/// What is said of a pool of one server with these details.
fn said_of_pool(server: &str, pool: &str) -> String {
    said_of(&format!("pool \"b\" {{ server \"s\" \"127.0.0.1:1\" {{ {server} }}; {pool} }}"))
}

#[test]
fn a_machine_that_nothing_is_done_with() {
    insta::assert_snapshot!(said_of_pool(r#"machine mac="00:1b:21:aa:bb:cc""#, ""));
}

#[test]
fn a_recovery_that_does_nothing() {
    insta::assert_snapshot!(said_of_pool("", "recovery { restart #false }"));
}

#[test]
fn steps_without_a_machine() {
    insta::assert_snapshot!(said_of_pool("", "recovery { wake-on-lan; ipmi }"));
}

#[test]
fn a_machine_without_a_step() {
    insta::assert_snapshot!(said_of_pool(r#"machine mac="00:1b:21:aa:bb:cc" ipmi="10.0.9.1""#, "recovery"));
}

#[test]
fn an_interface_of_many_and_a_board_that_is_an_option() {
    insta::assert_snapshot!(said_of_pool(
        r#"machine mac="ff:ff:ff:ff:ff:ff" ipmi="-x""#,
        r#"recovery { wake-on-lan broadcast="everybody"; ipmi }"#
    ));
}

#[test]
fn a_password_for_nothing() {
    insta::assert_snapshot!(said_of_pool(
        r#"machine mac="00:1b:21:aa:bb:cc" user="admin" password-file="p""#,
        "recovery { wake-on-lan }"
    ));
}

#[test]
fn two_words_on_one_machine() {
    insta::assert_snapshot!(said_of(
        r#"pool "b" {
    server "s" "10.0.0.1:1" { machine mac="00:1b:21:aa:bb:cc" }
    server "t" "10.0.0.1:2" { machine mac="00:1b:21:aa:bb:cd" }
    recovery { wake-on-lan }
}"#
    ));
}

#[test]
fn an_alert_that_tells_nobody() {
    insta::assert_snapshot!(said_of("alert"));
}

#[test]
fn alerts_that_could_not_arrive() {
    insta::assert_snapshot!(said_of(
        r#"alert {
    webhook "hooks.a.test/x"
    webhook "http://a.test/" ca="ca.crt"
    mail to="Ops <ops@a.test>" from="pointsman" smtp="mail a.test"
    mail
    mail to="ops@a.test" from="p@a.test" smtp="a.test" user="me"
    mail to="ops@a.test" from="p@a.test" smtp="a.test" password-file="p"
    mail to="ops@a.test" from="p@a.test" smtp="a.test" tls="none" user="me" password-file="p"
}"#
    ));
}

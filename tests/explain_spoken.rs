//! `pointsman explain`: what it says of the way to the server: the protocol, how it is verified, and the PROXY header; and that a
//! backup had to help.

use std::net::Ipv4Addr;
use std::path::Path;

use pointsman::operator::check::Style;
use pointsman::operator::explain::{Explanation, rehearsal_of};
use pointsman::operator::rehearsal::RequestDescription;
use pointsman::pure::config::MemoryFiles;

#[test]
fn it_says_what_is_spoken_to_the_server() {
    for (server, upstream, expected) in [
        ("127.0.0.1:1", r#"upstream "http/1.1""#, "HTTP/1.1 without TLS"),
        ("127.0.0.1:1", r#"upstream "h2c""#, "HTTP/2 without TLS (h2c)"),
        (
            "[::1]:1",
            r#"upstream "http/1.1" proxy-protocol="v2" { tls; }"#,
            "HTTP/1.1 over TLS, verified for ::1 by the system's authorities, with a PROXY header, version 2",
        ),
        (
            "App.internal:1",
            r#"upstream "h2""#,
            "HTTP/2 over TLS (h2), verified for app.internal by the system's authorities",
        ),
        (
            "127.0.0.1:1",
            r#"upstream "h2" { tls { ca "certs/ca.crt"; server-name "a.test"; }; }"#,
            "HTTP/2 over TLS (h2), verified for a.test by certs/ca.crt",
        ),
        (
            "127.0.0.1:1",
            r#"upstream proxy-protocol="v1" { tls { insecure #true; }; }"#,
            "HTTP/1.1 over TLS, not verified (`insecure`), with a PROXY header, version 1",
        ),
    ] {
        let text =
            format!("listen \"*:80\"\npool \"a\" {{ server \"s\" \"{server}\"; {upstream}; }}\nrule use=\"a\"\n");
        let rehearsal = rehearsal_of(&MemoryFiles::one("rules.kdl", &text), Path::new("rules.kdl")).unwrap();
        let client = Ipv4Addr::LOCALHOST.into();
        let request = RequestDescription { method: "GET", url: "http://a.test/", headers: &[], client, listener: None };
        let told = Explanation::of(&rehearsal, &request);
        assert_eq!(told.forward.as_ref().unwrap().spoken.as_deref(), Some(expected));
        assert!(told.text(Style::Plain).contains(&format!("\nspoken     {expected}\n")));
    }
}

/// What is explained of a GET by this text of a rule file.
fn told(text: &str) -> String {
    let rehearsal = rehearsal_of(&MemoryFiles::one("rules.kdl", text), Path::new("rules.kdl")).unwrap();
    let client = Ipv4Addr::LOCALHOST.into();
    let request = RequestDescription { method: "GET", url: "http://a.test/", headers: &[], client, listener: None };
    Explanation::of(&rehearsal, &request).text(Style::Plain)
}

#[test]
fn a_backup_that_has_to_help_is_told() {
    let servers = "server \"spare\" \"127.0.0.1:2\" backup=#true; server \"s\" \"127.0.0.1:1\" weight=0";
    let text = format!("listen \"127.0.0.1:80\"\npool \"p\" {{ {servers}; }}\nrule \"r\" use=\"p\"\n");
    let said = told(&text);
    for part in [
        "goes to the server `spare` at 127.0.0.1:2",
        "spare at 127.0.0.1:2: backup, weight 1, 0 in flight, eligible",
        "no server but the backups may get this request",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    let said = told(&text.replace("weight=0", ""));
    assert!(said.contains("goes to the server `s`") && !said.contains("but the backups"), "{said}");
}

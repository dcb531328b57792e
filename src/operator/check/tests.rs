//! What a check finds in whole files, right ones and wrong ones.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::*;
use crate::pure::config::MemoryFiles;

const BASE: &str = "listen \"127.0.0.1:8080\"\npool \"a\" { server \"s\" \"127.0.0.1:9000\" }\n";

fn checked(text: &str) -> CheckReport {
    check_files(&MemoryFiles::one("site.kdl", text), Path::new("site.kdl"), SystemTime::UNIX_EPOCH)
}

/// The messages of the warnings of a file without errors.
fn warnings_of(text: &str) -> Vec<String> {
    let report = checked(text);
    assert!(report.is_good(), "{}", report.render(Style::Plain));
    report.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_good_file_has_neither_errors_nor_warnings() {
    let report = checked(&format!("{BASE}rule use=\"a\"\nexpect \"GET http://x.test/\" use=\"a\"\n"));
    assert!(report.is_good() && report.warnings.is_empty(), "{}", report.render(Style::Plain));
    assert_eq!(report.render(Style::Plain), "1 listener, 1 pool, 1 rule, 1 of 1 expect lines met\n");
}

#[test]
fn expect_lines_go_through_the_rules() {
    let lines = r##"
pool "b" { server "s" "127.0.0.1:9001" }
rule "old" host="old.test" path="/d/{*rest}" redirect="https://new.test/{rest}" status=301
rule "no" path="/admin/{*rest}" respond=403 { not { client "10.0.0.0/8" } }
rule "canary" { header "X-Canary" "1"; split { use "a"; use "b" } }
rule "types" media-type="image/*" use="b"
rule "user" path-regex=#"^/users/(\d+)$"# use="b"
rule "rest" host="*.test" use="a"
expect "GET http://old.test/d/x%2Ey?q=1" redirect="https://new.test/x.y" rule="old"
expect "GET http://x.test/admin/" respond=403
expect "GET http://x.test/admin/" use="a" client="10.1.2.3"
expect "GET http://x.test/" rule="canary" use="b" { header "X-Canary" "1" }
expect "GET http://x.test/a/../logo.png" use="b"
expect "GET http://X.Test:8080/users/17?x" rule="user"
expect "GET http://x.test" rule="rest"
expect "GET http://nobody.example/" respond=404
expect "GET http://x.test/..%5Cetc" respond=400
"##;
    let report = checked(&format!("{BASE}{lines}"));
    assert!(report.is_good(), "{}", report.render(Style::Plain));
    assert_eq!((report.expects_run, report.expects_failed), (9, 0));
}

#[test]
fn an_expect_line_that_fails_says_what_happened_instead() {
    let lines = "rule \"images\" path=\"/img/{*rest}\" method=\"GET\" use=\"a\"\nrule \"rest\" respond=404\n\
                 expect \"POST http://x.test/img/x.png\" use=\"a\"\nexpect \"GET http://x.test/img/\" use=\"a\"\n";
    let report = checked(&format!("{BASE}{lines}"));
    assert_eq!((report.expects_run, report.expects_failed, report.errors.len()), (2, 1, 1));
    let text = report.render(Style::Plain);
    for part in [
        "this is not so: use=\"a\"",
        "rule `rest` at site.kdl:4 decides: respond=404",
        "the method is POST",
        "site.kdl:5",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn rules_and_hosts_that_others_hide_are_warned_of() {
    let rules = r##"
rule "wild" host="*.a.test" path="/x/{*rest}" use="a"
rule "exact" host="b.a.test" path="/x/{id}" use="a"
rule "half" path="/x/y" use="a" { host "c.a.test" "other.test" }
rule "open" path="/x/{*rest}" host="b.a.test" use="a" { not { method "GET" } }
rule "regex" path-regex=#"^/images/.*"# use="a"
rule "rest" use="a"
rule "late" path="/z" respond=404
"##;
    assert_eq!(
        warnings_of(&format!("{BASE}{rules}")),
        [
            "the rule `exact` can never match",
            "the rule `half` never sees the host c.a.test",
            "the rule `open` can never match",
            "this expression is a path pattern in disguise",
            "the rule `late` can never match",
        ]
    );
}

#[test]
fn redirects_and_rewrites_are_filled_in_as_for_requests() {
    let lines = r##"
rule "secure" host="old.test" redirect="https://{host}:8443{uri}"
rule "group" path-regex=#"^/u/(?<name>[a-z]+)/(\d+)$"# redirect="/users/$2/{name}" status=302
rule "dots" path="/v{x}" rewrite="/{x}" use="a"
expect "GET http://old.test/a/b?c=d" redirect="https://old.test:8443/a/b?c=d"
expect "GET http://x.test/u/ann/7" redirect="/users/7/ann"
expect "GET http://x.test/v2" use="a"
expect "GET http://x.test/v.." respond=400
"##;
    let report = checked(&format!("{BASE}{lines}"));
    assert!(report.is_good(), "{}", report.render(Style::Plain));
}

#[test]
fn pools_that_get_nothing_are_warned_of() {
    let text = format!("{BASE}pool \"b\" {{ server \"s\" \"127.0.0.1:9000\" weight=0 }}\nrule use=\"a\"\n");
    assert_eq!(warnings_of(&text), ["no rule uses the pool `b`", "all servers of `b` have weight 0"]);
}

#[test]
fn a_pool_of_backups_alone_is_warned_of() {
    let pool = |backup: &str| {
        format!(
            "{BASE}pool \"b\" {{ server \"s\" \"127.0.0.1:9000\" backup=#true; server \"t\" \"127.0.0.1:9001\" {backup}; }}\nrule use=\"b\"\n"
        )
    };
    let unused = "no rule uses the pool `a`";
    assert_eq!(warnings_of(&pool("backup=#true")), [unused, "all servers of `b` are backups"]);
    assert_eq!(warnings_of(&pool("")), [unused]);
}

#[test]
fn listeners_that_share_an_address_or_get_no_rule_are_warned_of() {
    let text = "listen \"*:80\"\nlisten \"127.0.0.1:80\"\nlisten \"0.0.0.0:81\"\nlisten \"[::1]:81\"\n\
                rule listen=\"*:80\" respond=404\nrule respond=404 { listen \"0.0.0.0:81\" \"[::1]:81\" }\n";
    assert_eq!(
        warnings_of(text),
        ["127.0.0.1:80 is an address of [::]:80 too", "no rule serves this listener: each names another"]
    );
    assert_eq!(warnings_of("listen \"127.0.0.1:80\"\n"), ["there is no rule"]);
}

#[test]
fn certificates_are_read_and_their_end_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    write("a.crt", &cert.pem());
    write("a.key", &signing_key.serialize_pem());
    write("b.key", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    let file = |key: &str| {
        format!("listen \"127.0.0.1:0\" {{ tls {{ certificate \"a.crt\" key=\"{key}\" }} }}\nrule respond=404\n")
    };
    write("good.kdl", &file("a.key"));
    write("mixed.kdl", &file("b.key"));
    write("missing.kdl", &file("c.key"));
    let entry = |name: &str| folder.path().join(name);
    let good = check(&entry("good.kdl"));
    assert!(good.is_good() && good.warnings.is_empty(), "{}", good.render(Style::Plain));
    let mixed = check(&entry("mixed.kdl")).render(Style::Plain);
    assert!(mixed.contains("b.key does not belong to the certificate"), "{mixed}");
    let missing = check(&entry("missing.kdl")).render(Style::Plain);
    assert!(missing.contains("c.key") && missing.contains("can't read"), "{missing}");

    // rcgen's certificates end with the year 4095.
    let valid = crate::transport::tls::validity(
        &crate::transport::tls::load_certificate(&crate::pure::config::CertificateFiles {
            certificate: entry("a.crt"),
            key: entry("a.key"),
        })
        .unwrap(),
    )
    .unwrap();
    let days = |count: u64| Duration::from_secs(count * 86_400);
    let end = valid.end;
    for (now, expected) in [
        (valid.start - days(2), Some("is not valid for 2 days yet")),
        (valid.start, None),
        (end - days(15), None),
        (end - days(3), Some("expires in 3 days")),
        (end + days(2), Some("expired 2 days ago")),
    ] {
        let report = check_files(&DiskFiles, &entry("good.kdl"), now);
        let said = report.warnings.first().map(ToString::to_string);
        assert_eq!(said.is_some(), expected.is_some(), "{said:?}");
        assert!(said.unwrap_or_default().contains(expected.unwrap_or_default()));
    }
}

#[test]
fn authorities_that_are_none_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
    let authority = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let itself = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap().cert;
    write("a.crt", &leaf.pem());
    write("a.key", &key.serialize_pem());
    for (authorities, is_none) in [(authority.pem(), false), (itself.pem(), false), (leaf.pem(), true)] {
        write("ca.crt", &authorities);
        write(
            "site.kdl",
            "listen \"127.0.0.1:0\" { tls { certificate \"a.crt\" key=\"a.key\"; client-ca \"ca.crt\" } }\n\
             pool \"p\" { server \"s\" \"127.0.0.1:9\"; upstream \"http/1.1\" { tls { ca \"ca.crt\" } } }\nrule use=\"p\"\n",
        );
        let report = check(&folder.path().join("site.kdl"));
        let said: Vec<String> = report.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said.iter().filter(|line| line.contains("holds no authority's")).count(), 2 * usize::from(is_none));
        assert!(report.is_good(), "{}", report.render(Style::Plain));
    }
}

#[test]
fn expressions_of_one_host_that_are_too_large_together_are_an_error() {
    let rule = |number| format!("rule path-regex=\"^/{number}/[a-z]{{1000}}[0-9]{{1000}}$\" respond=404\n");
    let rules: String = (0..120).map(rule).collect();
    let report = checked(&format!("listen \"127.0.0.1:80\"\n{rules}"));
    let text = report.render(Style::Plain);
    assert!(text.contains("too large together") && text.contains("site.kdl:"), "{text}");
}

#[test]
fn a_user_or_a_log_folder_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let errors_of = |lines: &str| {
        let report = checked(&format!("{BASE}rule use=\"a\"\n{lines}"));
        report.errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let log = |file: &str| format!("access-log {:?}\n", folder.path().join(file).display().to_string());
    assert_eq!(errors_of("user \"nobody-of-that-name\"\n"), ["there is no user `nobody-of-that-name` on this machine"]);
    assert_eq!(errors_of("user \"root\"\naccess-log \"-\"\n"), Vec::<String>::new());
    assert_eq!(errors_of(&log("access.log")), Vec::<String>::new());
    let missing = folder.path().join("missing");
    assert_eq!(errors_of(&log("missing/access.log")), [format!("there is no folder {}", missing.display())]);
    assert_eq!(errors_of(&log("")).len(), 1);
}

#[test]
fn values_that_are_surely_meant_otherwise_are_warned_of() {
    let rules = r##"
listen "127.0.0.1:81" { trusted-proxies "10.0.0.0/8" "0.0.0.0/0" "::/0" }
pool "twice" { server "s" "127.0.0.1:9000"; server "t" "127.0.0.1:9001"; server "u" "127.0.0.1:9000" }
rule path="/img/*" use="a"
rule path="/{*rest}" host="b.test" use="a" strip-prefix="/any"
rule path="/c/{id}/x" use="a" strip-prefix="/c/1"
rule path="/d/{*rest}" use="a" strip-prefix="/e"
rule path="/f" use="twice" strip-prefix="/f/g"
"##;
    assert_eq!(
        warnings_of(&format!("{BASE}{rules}")),
        [
            "every address is a trusted proxy",
            "every address is a trusted proxy",
            "two servers of `twice` have the address 127.0.0.1:9000",
            "this `*` is a letter of the path and stands for nothing else",
            "no path of this rule begins with /e",
            "no path of this rule begins with /f/g",
        ]
    );
    let text = checked(&format!("{BASE}rule path=\"/img/*\" use=\"a\"\n")).render(Style::Plain);
    assert!(text.contains("write \"/img/{*rest}\""), "{text}");
}

#[test]
fn a_rule_that_tells_of_clients_whom_nobody_asks_is_warned_of() {
    let tell = "rule use=\"a\" { set-request-header \"X-Who\" \"{client-subject}\"; }";
    assert_eq!(warnings_of(&format!("{BASE}{tell}")), ["no listener asks clients for a certificate"]);
}

#[test]
fn choices_that_end_with_the_process_and_cookies_of_two_pools_are_warned_of() {
    let pool = |name: &str, lines: &str| format!("pool \"{name}\" {{\nserver \"s\" \"127.0.0.1:9000\"\n{lines}\n}}\n");
    let file = |first: &str, second: &str| {
        let pools = pool("b", first) + &pool("c", second);
        format!("{BASE}{pools}rule path=\"/b\" use=\"b\"\nrule path=\"/c\" use=\"c\"\nrule use=\"a\"\n")
    };
    let no_secret = "the pool `b` persists, and there is no `secret`";
    for (form, is_warned) in [("cookie=\"N\"", true), ("tls-session", true), ("learn=\"N\"", false), ("source", false)]
    {
        let said = warnings_of(&file(&format!("persist {form}"), ""));
        assert_eq!(said.iter().any(|warning| warning.contains(no_secret)), is_warned, "{form}: {said:?}");
        assert_eq!(said.len(), usize::from(is_warned), "{said:?}");
    }
    let same = "the pools `b` and `c` give the same cookie";
    for (second, is_warned) in [("cookie=\"N\"", true), ("cookie=\"M\"", false), ("cookie=\"N\" path=\"/c\"", false)] {
        let said = warnings_of(&file("persist cookie=\"N\"", &format!("persist {second}")));
        assert_eq!(said.iter().any(|warning| warning.contains(same)), is_warned, "{second}: {said:?}");
    }
}

#[test]
fn a_secret_that_everybody_can_read_is_warned_of_and_a_bad_one_an_error() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    let text = format!("{BASE}rule use=\"a\"\nsecret file={:?}\n", secret.display().to_string());
    assert!(!checked(&text).is_good(), "there is none");
    for (content, mode, is_good, warnings) in [
        ("x", 0o600, false, 0),
        ("a secret of at least 32 bytes....", 0o644, true, 1),
        ("a secret of at least 32 bytes....", 0o600, true, 0),
    ] {
        std::fs::write(&secret, content).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        let report = checked(&text);
        assert_eq!((report.is_good(), report.warnings.len()), (is_good, warnings), "{}", report.render(Style::Plain));
    }
}

#[test]
fn checks_that_would_not_do_what_they_are_there_for_are_warned_of() {
    let file = |servers: usize, check: &str| {
        let servers: String =
            (1..=servers).map(|at| format!("server \"s{at}\" \"127.0.0.1:{}\"\n", 9000 + at)).collect();
        warnings_of(&format!("listen \"127.0.0.1:8080\"\npool \"a\" {{\n{servers}check {check}\n}}\nrule use=\"a\"\n"))
    };
    let none: [&str; 0] = [];
    assert_eq!(file(3, "\"http\" every=\"300ms\" timeout=\"300ms\" status=\"200-499\""), none);
    assert_eq!(
        file(1, "\"tcp\" every=\"200ms\" timeout=\"1s\""),
        ["a check may take longer (1s) than to the next (200ms)"]
    );
    assert_eq!(file(1, "\"http\" status=\"200-599\""), ["every answer to this check is a good one"]);
    assert_eq!(file(1, "\"http\" status=\"200-599\" body=\"ok\""), none);
    assert_eq!(
        file(500, "\"tcp\" every=\"500ms\" timeout=\"300ms\""),
        ["300 checks would run at once if no server answered, and 256 may"]
    );
}

#[test]
fn pools_that_go_by_reports_which_nobody_sends_are_told() {
    let with = |settings: &str, top: &str| {
        let text = format!(
            "{top}listen \"127.0.0.1:8080\"\npool \"a\" {{ server \"s\" \"127.0.0.1:9000\"; server \"t\" \"127.0.0.1:9001\"\n{settings} }}\nrule use=\"a\"\n"
        );
        let report = checked(&text);
        report.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let count = |settings: &str| with(settings, "").iter().filter(|warning| warning.contains("nobody reports")).count();
    assert_eq!(count("detect \"classic\""), 1);
    assert_eq!(count("feedback \"capacity\""), 1);
    assert_eq!(count("feedback \"capacity\"; orca"), 0);
    assert_eq!(count("feedback \"classic\"; agent-check port=9"), 0);
    assert_eq!(count("scheduler \"fb-wlc\""), 0);
    let never = with("detect \"classic\"; check", "");
    assert!(never.iter().any(|warning| warning.contains("is never run")), "{never:?}");
}

#[test]
fn a_recovery_that_restarts_without_a_way_to_any_agent_is_warned_of() {
    let file = |recovery: &str, top: &str| {
        let server = "server \"s\" \"127.0.0.1:9001\" { machine ipmi=\"10.0.9.1\" }";
        let pool = format!("pool \"a\" {{\n{server}\nrecovery {{ ipmi; {recovery} }}\n}}\n");
        // That there is no such key is an error of its own.
        checked(&format!("listen \"127.0.0.1:8080\"\n{top}\n{pool}rule use=\"a\"\n")).warnings
    };
    let said = "no agent can be told to restart the services of `a`";
    let none: [&str; 0] = [];
    for (recovery, top, expected) in [
        ("", "", &[said][..]),
        ("restart #true", "", &[said]),
        ("restart #false", "", &none),
        ("", "feedback \"127.0.0.1:7700\" { key-file \"agents.key\" }", &none),
    ] {
        let warnings = file(recovery, top).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(warnings, expected, "{recovery} {top}");
    }
}

#[test]
fn a_user_of_a_board_who_has_no_password_is_told_once_for_each_machine() {
    let count = |machine: &str, recovery: &str| {
        let servers = format!("server \"s\" \"10.0.0.1:9000\" {{ {machine} }}; server \"t\" \"10.0.0.1:9001\"");
        let text = format!("listen \"127.0.0.1:8080\"\npool \"a\" {{ {servers}; {recovery} }}\nrule use=\"a\"\n");
        let report = checked(&text);
        report.warnings.iter().filter(|warning| warning.to_string().contains("has no password")).count()
    };
    assert_eq!(count("machine ipmi=\"10.0.9.1\" user=\"me\"", "recovery { ipmi }"), 1);
    assert_eq!(count("machine ipmi=\"10.0.9.1\"", "recovery { ipmi }"), 0);
    assert_eq!(count("machine ipmi=\"10.0.9.1\" user=\"me\" password-file=\"p\"", "recovery { ipmi }"), 0);
}

//! `pointsman check` and the command line as a script sees them: exit codes, and which stream says what.

use std::process::Output;

use crate::support::tls::Certificate;
use crate::support::{Setup, pointsman};

const GOOD: &str = "listen \"127.0.0.1:80\"\npool \"o\" { server \"o1\" \"127.0.0.1:1\"; }\nrule \"all\" use=\"o\"\n";

fn said(output: &Output) -> String {
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn good_rules_are_summed_up_and_end_with_0() {
    let expects = "expect \"GET http://a.test/x\" use=\"o\" rule=\"all\"\n";
    let output = Setup::new(&format!("{GOOD}{expects}{expects}")).run_to_end(&["check"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("1 listener, 1 pool, 1 rule, 2 of 2 expect lines met"), "{said}");
}

#[test]
fn an_expectation_that_is_not_met_ends_with_1_and_is_shown() {
    let expect = "expect \"GET http://a.test/x\" respond=404\n";
    let output = Setup::new(&format!("{GOOD}{expect}")).run_to_end(&["check"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("rules.kdl:4") && said.contains("expect \"GET http://a.test/x\""), "{said}");
}

#[test]
fn all_errors_of_all_files_are_shown_and_end_with_1() {
    let rules = format!("{GOOD}include \"more/*.kdl\"\nlimit {{ header-timeout \"3s\" }}\n");
    let setup =
        Setup::new(&rules).file("more/a.kdl", "rule use=\"p\"\n").file("more/b.kdl", "rule path=\"x\" use=\"o\"\n");
    let output = setup.run_to_end(&["check"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["rules.kdl:5", "`limits`", "more/a.kdl:1", "`p`", "more/b.kdl:1", "3 errors"] {
        assert!(said.contains(part), "no {part} in\n{said}");
    }
}

#[test]
fn warnings_alone_end_with_0() {
    let soon = {
        let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        Certificate::from_params(params)
    };
    let rules = format!(
        "{GOOD}rule \"late\" respond=404\npool \"unused\" {{ server \"u\" \"127.0.0.1:1\"; }}\n\
         listen \"127.0.0.1:443\" {{ tls {{ certificate \"site.crt\" key=\"site.key\"; }} }}\n"
    );
    let output = Setup::new(&rules).certificate("site", &soon).run_to_end(&["check"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in ["late", "unused", "site.crt", "3 warnings"] {
        assert!(said.contains(part), "no {part} in\n{said}");
    }
}

#[test]
fn a_folder_is_all_its_rule_files_and_rules_is_the_default() {
    let setup = Setup::new("")
        .file("rules/10-listen.kdl", "listen \"127.0.0.1:80\"\n")
        .file("rules/20.kdl", "rule respond=200\n");
    let setup = setup.file("rules/notes.txt", "no rule file {");
    for arguments in [&["check"][..], &["check", "rules"]] {
        let output = pointsman(setup.folder(), arguments);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("1 listener") && said.contains("1 rule"), "{said}");
    }
    let elsewhere = tempfile::tempdir().unwrap();
    for command in ["check", "run"] {
        let output = pointsman(elsewhere.path(), &[command]);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains("rules"));
    }
}

#[test]
fn wrong_usage_ends_with_2_and_help_with_0() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["chekc"], &["check", "a", "b"], &["run", "--fast"]] {
        let output = pointsman(folder.path(), arguments);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("Usage"), "{arguments:?}: {said}");
    }
    for (argument, part) in [("--help", "check"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output = pointsman(folder.path(), &[argument]);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty() && String::from_utf8_lossy(&output.stdout).contains(part));
    }
}

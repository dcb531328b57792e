//! `pointsman explain`: the reasoning of every scheduler, as people read it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::Ipv4Addr;
use std::path::Path;

use pointsman::operator::check::Style;
use pointsman::operator::explain::{Explanation, rehearsal_of};
use pointsman::operator::rehearsal::RequestDescription;
use pointsman::pure::config::MemoryFiles;

const THREE: &str = r#"server "a" "10.0.0.1:80" weight=2; server "b" "10.0.0.2:80"; server "c" "10.0.0.3:80""#;

fn explained(servers: &str, scheduler: &str) -> Explanation {
    let text = format!("listen \"*:80\"\npool \"p\" {{ {servers}; scheduler {scheduler} }}\nrule use=\"p\"\n");
    let rehearsal = rehearsal_of(&MemoryFiles::one("rules.kdl", &text), Path::new("rules.kdl")).unwrap();
    let client = Ipv4Addr::LOCALHOST.into();
    let url = "http://a.test/img/x.png";
    let told =
        Explanation::of(&rehearsal, &RequestDescription { method: "GET", url, headers: &[], client, listener: None });
    // Everything that a scheduler says is shown to people too.
    let page = told.text(Style::Plain);
    for step in told.steps.iter().filter(|step| step.step == "scheduler") {
        assert!(page.contains(&step.text), "{} in\n{page}", step.text);
    }
    told
}

/// What the scheduler says, and the server.
fn reasons(servers: &str, scheduler: &str) -> String {
    let told = explained(servers, scheduler);
    let notes = told.steps.iter().filter(|step| step.step == "scheduler").map(|step| step.text.as_str());
    let server = told.forward.and_then(|forward| forward.server).map_or("nobody".to_owned(), |server| server.name);
    format!("{}\n-> {server}\n", notes.collect::<Vec<_>>().join("\n"))
}

#[test]
fn every_scheduler_says_why() {
    let names = [
        "rr",
        "wrr",
        "lc",
        "wlc",
        "sed",
        "nq",
        "fb-wlc",
        "p2c",
        "peak-ewma",
        "fo",
        "ovf",
        "dh",
        "sh",
        "mh",
        "rendezvous",
        "ch-bl",
        "lblc",
        "lblcr",
        "cbr",
    ];
    let told: String = names.iter().map(|name| reasons(THREE, &format!("\"{name}\""))).collect();
    insta::assert_snapshot!(told, @"");
    // The kernel's ways.
    let told = ["\"wrr\" mode=\"ipvs\"", "\"dh\" mode=\"ipvs\"", "\"cbr\" choices=2"]
        .map(|scheduler| reasons(THREE, scheduler));
    insta::assert_snapshot!(told.concat(), @"");
}

#[test]
fn a_request_without_a_key_goes_by_the_fallback() {
    let told = [
        "\"mh\" key=\"header:X-User\"",
        "\"cbr\" key=\"header:X-User\" fallback=\"sed\"",
        "\"dh\" key=\"header:X-User\" fallback=\"none\"",
    ]
    .map(|scheduler| reasons(THREE, scheduler));
    insta::assert_snapshot!(told.concat(), @"");
}

#[test]
fn servers_that_may_not_get_it_are_passed_over_with_the_reason() {
    let servers = r#"server "a" "10.0.0.1:80" weight=0; server "b" "10.0.0.2:80" weight=0"#;
    let told = [
        "\"mh\"",
        "\"dh\" mode=\"ipvs\" fallback=\"none\"",
        "\"wlc\"",
        "\"cbr\"",
        "\"lblc\"",
        "\"ch-bl\"",
        "\"rendezvous\"",
    ]
    .map(|scheduler| reasons(servers, scheduler));
    insta::assert_snapshot!(told.concat(), @"");
    let many: Vec<String> = (1..=100).map(|number| format!("server \"s{number}\" \"10.0.1.{number}:80\"")).collect();
    let told = ["\"wlc\"", "\"rendezvous\""].map(|scheduler| reasons(&many.join("; "), scheduler));
    insta::assert_snapshot!(told.concat(), @"");
}

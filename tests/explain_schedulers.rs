//! `pointsman explain`: the reasoning of every scheduler, as people read it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::Ipv4Addr;
use std::path::Path;

use pointsman::operator::check::Style;
use pointsman::operator::explain::{Explanation, rehearsal_of};
use pointsman::operator::rehearsal::RequestDescription;
use pointsman::pure::config::MemoryFiles;
use pointsman::pure::config::vocabulary::SCHEDULERS;

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
    let told: String = SCHEDULERS.iter().map(|name| reasons(THREE, &format!("\"{name}\""))).collect();
    insta::assert_snapshot!(told, @r#"
    rr: a (0 in flight, weight 2) is next in turn
    -> a
    wrr: a (0 in flight, weight 2) is next in turn
    -> a
    lc: a (0 in flight, weight 2) has the fewest requests in flight
    -> a
    wlc: a (0 in flight, weight 2) has the least load for its weight
    -> a
    sed: a (0 in flight, weight 2) has the shortest expected delay
    -> a
    nq: a (0 in flight, weight 2) has nothing to do, or the shortest expected delay
    -> a
    fb-wlc: a (0 in flight, weight 2) has the shortest expected delay by weight: not every server was seen to work yet
    -> a
    p2c: c (0 in flight, weight 1) and b (0 in flight, weight 1) are drawn by weight, and c has the least load for its weight
    -> c
    peak-ewma: c (0 in flight, weight 1) and b (0 in flight, weight 1) are drawn by weight, and c has the shortest wait by what it was seen to take
    -> c
    fo: a (0 in flight, weight 2) has the highest weight
    -> a
    ovf: a (0 in flight, weight 2) has the highest weight of those that are not over it
    -> a
    dh: the key belongs to c (0 in flight, weight 1), which gets it
    -> c
    sh: the key belongs to b (0 in flight, weight 1), which gets it
    -> b
    mh: the key belongs to a (0 in flight, weight 2), which gets it
    -> a
    rendezvous: by score for this key: b, a, c
    rendezvous: b (0 in flight, weight 1) is the first that may get it
    -> b
    ch-bl: the key belongs to a (0 in flight, weight 2), which is within its bound and gets it
    -> a
    lblc: the key has no server yet
    lblc: a (0 in flight, weight 2) has the least load for its weight and gets the key
    -> a
    lblcr: the key has no server yet
    lblcr: a (0 in flight, weight 2) has the least load for its weight and is added to the key's servers
    -> a
    cbr: by score for this key: b, a, c
    cbr: the key has no home yet: a (0 in flight, weight 2) has the least load for its weight, and of equals the highest score
    -> a
    run-queue: a (0 in flight, weight 2) has the least load for its weight: no server that may get it has told its run queue
    -> a
    "#);
    // The kernel's ways.
    let told = ["\"wrr\" mode=\"ipvs\"", "\"dh\" mode=\"ipvs\"", "\"cbr\" choices=2"]
        .map(|scheduler| reasons(THREE, scheduler));
    insta::assert_snapshot!(told.concat(), @r#"
    wrr (ipvs): a (0 in flight, weight 2) is next in turn
    -> a
    dh: the key belongs to b (0 in flight, weight 1), which gets it
    -> b
    cbr: by score for this key: b, a, c
    cbr: the key has no home yet: a (0 in flight, weight 2) has the least load for its weight of the first 2
    -> a
    "#);
}

#[test]
fn a_request_without_a_key_goes_by_the_fallback() {
    let told = [
        "\"mh\" key=\"header:X-User\"",
        "\"cbr\" key=\"header:X-User\" fallback=\"sed\"",
        "\"dh\" key=\"header:X-User\" fallback=\"none\"",
    ]
    .map(|scheduler| reasons(THREE, scheduler));
    insta::assert_snapshot!(told.concat(), @r#"
    mh: the request has no key, so wlc decides
    wlc: a (0 in flight, weight 2) has the least load for its weight
    -> a
    cbr: the request has no key, so sed decides
    sed: a (0 in flight, weight 2) has the shortest expected delay
    -> a
    dh: the request has no key, so wlc decides
    wlc: a (0 in flight, weight 2) has the least load for its weight
    -> a
    "#);
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
    insta::assert_snapshot!(told.concat(), @r#"
    mh: the key gives no answer, so the fallback wlc decides
    no server may get this request
    -> nobody
    dh: the key gives no answer, and the fallback is "none"
    no server may get this request
    -> nobody
    no server may get this request
    -> nobody
    cbr: the key gives no answer, so the fallback wlc decides
    no server may get this request
    -> nobody
    lblc: the key has no server yet
    lblc: the key gives no answer, so the fallback wlc decides
    no server may get this request
    -> nobody
    ch-bl: the key gives no answer, so the fallback wlc decides
    no server may get this request
    -> nobody
    rendezvous: the key gives no answer, so the fallback wlc decides
    no server may get this request
    -> nobody
    "#);
    let many: Vec<String> = (1..=100).map(|number| format!("server \"s{number}\" \"10.0.1.{number}:80\"")).collect();
    let told = ["\"wlc\"", "\"rendezvous\""].map(|scheduler| reasons(&many.join("; "), scheduler));
    insta::assert_snapshot!(told.concat(), @r#"
    wlc: s89 (0 in flight, weight 1) and s44 (0 in flight, weight 1) are drawn by weight, and s89 has the least load for its weight
    -> s89
    rendezvous: by score for this key: s77, s74, s85, s46, s40, s70, s24, s52 and 92 more
    rendezvous: s77 (0 in flight, weight 1) is the first that may get it
    -> s77
    "#);
}

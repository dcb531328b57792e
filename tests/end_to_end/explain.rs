//! `explain` against the running product: for the same requests the same rule, pool and answer, and the very head that the
//! server gets.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use pointsman::base::id::ListenerIndex;
use pointsman::operator::explain::{Explanation, rehearsal_of};
use pointsman::operator::rehearsal::{NEW_REQUEST_ID, Rehearsal, RequestDescription};
use pointsman::pure::config::MemoryFiles;

use crate::support::client::Options;
use crate::support::message::latin1;
use crate::support::random_rules::{self, Draw, Request};
use crate::support::tls::{self, Certificate};
use crate::support::{Origin, Proxy, Response, Setup, pointsman};

const POOLS: [&str; 4] = ["p0", "p1", "p2", "p3"];
/// Addresses of their own, so that rules can name listeners whose ports are the kernel's choice.
const LISTENERS: [&str; 3] = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"];
/// The listener that speaks TLS.
const TLS: usize = 2;

fn file(origins: &[Origin], rules: &str) -> String {
    let [plain, strict, tls] = LISTENERS;
    let mut text = format!(
        "listen \"{plain}\" {{ trusted-proxies \"127.0.0.2\" \"10.0.0.0/8\"; request-id #true }}\n\
         listen \"{strict}\" {{ limits {{ ambiguous-paths \"reject\"; body-max \"2KiB\" }}; via \"off\" }}\n\
         listen \"{tls}\" {{ tls {{ certificate \"site.crt\" key=\"site.key\" }} }}\n\
         workers 1\naccess-log \"access.log\"\n"
    );
    for (pool, origin) in POOLS.iter().zip(origins) {
        text.push_str(&format!("pool \"{pool}\" {{ server \"{pool}-s\" \"{}\" }}\n", origin.address));
    }
    text + rules
}

/// A proxy with random rules, and the rehearsal of the same rules.
struct Trial {
    seed: u64,
    text: String,
    origins: Vec<Origin>,
    proxy: Proxy,
    rehearsal: Rehearsal,
}

impl Trial {
    fn new(seed: u64, draw: &mut Draw) -> Self {
        let origins: Vec<Origin> = POOLS.iter().map(|name| Origin::new(name)).collect();
        let text = file(&origins, &random_rules::rules(draw, 20, &POOLS, &LISTENERS));
        let certificate = Certificate::for_names(&["a.test", "*.a.test"]);
        let proxy = Setup::new(&text).certificate("site", &certificate).start();
        // Servers are told the port that a request came to, so the rehearsal has to know it.
        let text = LISTENERS
            .iter()
            .zip(&proxy.addresses)
            .fold(text, |text, (asked, given)| text.replace(&format!("\"{asked}\""), &format!("\"{given}\"")));
        let rehearsal = rehearsal_of(&MemoryFiles::one("rules.kdl", &text), Path::new("rules.kdl")).unwrap();
        Self { seed, text, origins, proxy, rehearsal }
    }

    fn explain(&self, listener: usize, request: &Request) -> Explanation {
        let description = RequestDescription {
            method: request.method,
            url: &request.url(if listener == TLS { "https" } else { "http" }),
            headers: &request.fields,
            client: client(request),
            listener: Some(ListenerIndex(listener as u32)),
        };
        Explanation::of(&self.rehearsal, &description)
    }

    fn send(&self, listener: usize, request: &Request) -> Response {
        let tls = (listener == TLS).then(|| (request.host().to_owned(), tls::default_config()));
        let options = Options { from: Some(client(request)), tls, ..Options::default() };
        options.connect(self.proxy.addresses[listener]).request(request.bytes())
    }

    /// Sends a request and holds what comes of it against what is said of it. Gives back what is said.
    fn compare(&self, listener: usize, request: &Request) -> Explanation {
        let explanation = self.explain(listener, request);
        let answer = self.send(listener, request);
        let Self { seed, text, .. } = self;
        let context = || format!("seed {seed}: {request:?} at {listener}\n{explanation:#?}\n{answer:?}\n{text}");
        assert!(are_changes_made(&explanation, &answer), "{}", context());
        if let Some(own) = &explanation.answer {
            assert_eq!(answer.status(), own.status, "{}", context());
            assert_eq!(answer.field("location"), own.location.as_deref(), "{}", context());
            return explanation;
        }
        let forward = explanation.forward.as_ref().unwrap();
        assert_eq!(answer.status(), 200, "{}", context());
        let pool = answer.field("x-origin").unwrap();
        let may = forward.split.iter().any(|arm| forward.is_drawn && arm.weight > 0 && arm.pool == pool);
        assert!(may || pool == forward.pool, "{}", context());
        let origin = &self.origins[POOLS.iter().position(|name| *name == pool).unwrap()];
        let got = origin.requests().pop().unwrap();
        assert!(is_foretold(&got.head.raw, &forward.head), "{}\n{}", context(), latin1(&got.head.raw));
        explanation
    }

    /// Holds a record of the access log against what is said of its request.
    fn compare_record(&self, record: &serde_json::Value, explanation: &Explanation) {
        let text = |key: &str| record[key].as_str();
        let context = || format!("seed {}: {record}\n{explanation:#?}\n{}", self.seed, self.text);
        assert_eq!(text("rule"), explanation.rule.as_ref().map(|rule| rule.name.as_str()), "{}", context());
        assert_eq!(text("reason"), explanation.answer.as_ref().map(|answer| answer.reason), "{}", context());
        let client = explanation.seen.as_ref().map(|seen| seen.client.to_string());
        assert_eq!(text("client"), client.as_deref(), "{}", context());
        if let Some(forward) = explanation.forward.as_ref().filter(|forward| !forward.is_drawn) {
            let server = forward.server.as_ref().map(|server| server.name.as_str());
            assert_eq!((text("pool"), text("server")), (Some(forward.pool.as_str()), server), "{}", context());
        }
    }
}

fn client(request: &Request) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, request.client).into()
}

/// Whether the server got the head that was foretold; only an id that is made anew may differ.
fn is_foretold(got: &[u8], foretold: &str) -> bool {
    let (got, made) = (latin1(got), format!("X-Request-Id: {NEW_REQUEST_ID}"));
    let is_id = |line: &str| line.strip_prefix("X-Request-Id: ").is_some_and(|id| id.len() == 32);
    let is_same = |(got, foretold): (&str, &str)| got == foretold || (foretold == made && is_id(got));
    got.split("\r\n").count() == foretold.split("\r\n").count()
        && got.split("\r\n").zip(foretold.split("\r\n")).all(is_same)
}

/// Whether the answer's fields were changed as it was said.
fn are_changes_made(explanation: &Explanation, answer: &Response) -> bool {
    let Some(changes) = &explanation.changes else { return true };
    let has = |line: &String| {
        let (name, value) = line.split_once(": ").unwrap();
        answer.head.all(name).contains(&value)
    };
    let comes = |name: &String| changes.answer.added.iter().filter(|line| line.starts_with(name.as_str())).count();
    changes.answer.added.iter().all(has)
        && changes.answer.removed.iter().all(|name| answer.head.all(name).len() == comes(name))
}

#[test]
fn random_requests_go_where_explain_says() {
    let mut forwarded = 0;
    for seed in 1000..1006 {
        let mut draw = Draw::new(seed);
        let trial = Trial::new(seed, &mut draw);
        let mut explanations = Vec::new();
        for number in 0..70 {
            let listener = draw.below(LISTENERS.len());
            let mut request = random_rules::request(&mut draw);
            let joint = if request.target.contains('?') { '&' } else { '?' };
            request.target.push_str(&format!("{joint}n={number}"));
            let explanation = trial.compare(listener, &request);
            forwarded += usize::from(explanation.answer.is_none());
            explanations.push(explanation);
        }
        let records = trial.proxy.wait_for_records("access.log", explanations.len());
        for (number, explanation) in explanations.iter().enumerate() {
            let is_its = |record: &&serde_json::Value| {
                record["query"].as_str().and_then(|query| query.rsplit("n=").next()) == Some(&number.to_string())
            };
            let record = records.iter().find(is_its).unwrap_or_else(|| panic!("no record of {number}: {records:?}"));
            trial.compare_record(record, explanation);
        }
    }
    // Otherwise nothing would have been shown.
    assert!(forwarded > 100, "{forwarded}");
}

/// One listener, one pool, one rule.
const SMALL: &str = "listen \"127.0.0.1:8080\"\npool \"p\" { server \"s\" \"127.0.0.1:9000\" }\n\
                     rule \"r\" host=\"a.test\" use=\"p\"\n";

#[test]
fn the_command_prints_and_its_code_says_how_it_went() {
    let setup = Setup::new("").file("good.kdl", SMALL).file("bad.kdl", format!("{SMALL}rul use=\"p\"\n"));
    let run = |arguments: &[&str]| {
        let output = pointsman(setup.folder(), &[&["explain"], arguments].concat());
        (output.status.code(), latin1(&output.stdout), latin1(&output.stderr))
    };
    let (code, said, errors) = run(&["good.kdl", "GET", "http://a.test/", "-H", "X-A: 1", "--client", "192.0.2.1"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(said.contains("goes to the server `s` at 127.0.0.1:9000 of the pool `p`, by the rule `r`"), "{said}");
    assert!(said.contains("X-A: 1\n") && said.contains("X-Forwarded-For: 192.0.2.1\n") && !said.contains('\u{1b}'));

    let (code, said, errors) = run(&["good.kdl", "GET", "http://b.test/", "--json"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let object: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&object["outcome"], &object["answer"]["status"]), (&"refuse".into(), &404.into()));

    let (code, said, errors) = run(&["bad.kdl", "GET", "http://b.test/"]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(errors.contains("did you mean `rule`?") && errors.contains("bad.kdl:4"), "{errors}");
    for wrong in [
        &["missing.kdl", "GET", "http://a.test/"][..],
        &["good.kdl", "GET", "a.test"],
        &["good.kdl", "G T", "http://a.test/"],
        &["good.kdl", "GET", "http://a.test/", "-H", "X"],
        &["good.kdl", "GET", "http://a.test/", "--client", "a.test"],
        &["good.kdl", "GET", "http://a.test/", "--listen", "127.0.0.1:8081"],
    ] {
        let (code, said, errors) = run(wrong);
        assert_eq!((code, said.as_str(), errors.is_empty()), (Some(1), "", false), "{wrong:?}");
    }
    for misused in [&["good.kdl", "GET"][..], &["good.kdl", "GET", "http://a.test/", "--lisen", "x"]] {
        assert_eq!(run(misused).0, Some(2), "{misused:?}");
    }
}

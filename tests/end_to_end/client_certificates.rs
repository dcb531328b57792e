//! Client certificates, with curl and OpenSSL as clients: who is let in, what servers are told, which connection will do for
//! which name, and that no session leaves the demand that it was made under.

use std::process::{Command, Output, Stdio};

use crate::support::proxy::output_of;
use crate::support::tls::{Authority, Certificate};
use crate::support::{Origin, Proxy, Setup};

/// What the rules tell servers.
const TELL: &str = "{ set-request-header \"X-Client-Subject\" \"{client-subject}\"\n\
                    set-request-header \"X-Client-Fingerprint\" \"{client-fingerprint}\"\n }";

/// Authorities, and a client's certificate of each.
struct World {
    ours: Authority,
    origin: Origin,
    robot: Certificate,
    stranger: Certificate,
}

fn named(name: &str) -> impl FnOnce(&mut rcgen::CertificateParams) {
    let name = name.to_owned();
    |params| params.distinguished_name.push(rcgen::DnType::CommonName, name)
}

impl World {
    fn new() -> Self {
        let (ours, others) = (Authority::new("ours"), Authority::new("others"));
        let robot = ours.issue_with(&[], named("robot"));
        let stranger = others.issue_with(&[], named("stranger"));
        // The origin answers with what it was told of the client.
        let origin = Origin::with(|exchange| {
            exchange.read_body();
            let told = |name: &str| exchange.head.field(name).unwrap_or("nobody").to_owned();
            let text = format!("{} {}", told("X-Client-Subject"), told("X-Client-Fingerprint"));
            exchange.respond(200, &[], text.as_bytes());
        });
        Self { ours, origin, robot, stranger }
    }

    /// A proxy with these listeners, whose certificates are `public` for a.test and `admin` for admin.test.
    fn proxy(&self, listeners: &str, rules: &str) -> Proxy {
        let text = format!(
            "workers 1\n{listeners}\npool \"o\" {{ server \"o1\" \"{}\"; }}\n{rules}\naccess-log \"access.log\"\n",
            self.origin.address
        );
        self.setup(&text).start()
    }

    fn setup(&self, rules: &str) -> Setup {
        Setup::new(rules)
            .certificate("public", &Certificate::for_names(&["a.test"]))
            .certificate("admin", &Certificate::for_names(&["admin.test"]))
            .certificate("robot", &self.robot)
            .certificate("stranger", &self.stranger)
            .file("clients.crt", &self.ours.certificate)
    }
}

/// A listener with `public` and `admin` that says `inside` of its TLS, and `of_admin` of the latter.
fn listener(inside: &str, of_admin: &str) -> String {
    format!(
        "listen \"127.0.0.1:0\" {{ tls {{ {inside}\ncertificate \"public.crt\" key=\"public.key\"\n\
         certificate \"admin.crt\" key=\"admin.key\" {of_admin}\n }} }}"
    )
}

fn tell() -> String {
    format!("rule use=\"o\" {TELL}")
}

/// What curl gets from the listener at `index`: status, or 0 where there is no connection, and body.
fn curl(proxy: &Proxy, index: usize, host: &str, certificate: Option<&str>, more: &[&str]) -> (u16, String) {
    let port = proxy.addresses[index].port();
    let mut command = Command::new("curl");
    command.args(["-sk", "--max-time", "10", "--resolve", &format!("{host}:{port}:127.0.0.1")]);
    command.args(["-w", "\n%{http_code}", "-H", "X-Client-Subject: CN=forged", "-H", "x-client-fingerprint: 00"]);
    if let Some(stem) = certificate {
        command.arg("--cert").arg(proxy.path(&format!("{stem}.crt")));
        command.arg("--key").arg(proxy.path(&format!("{stem}.key")));
    }
    let output = command.args(more).arg(format!("https://{host}:{port}/")).output().expect("curl runs");
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

fn fingerprint(certificate: &Certificate) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &certificate.der);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn where_one_is_required_only_its_holders_get_in() {
    let world = World::new();
    let proxy = world.proxy(&listener("client-ca \"clients.crt\" mode=\"required\"", ""), &tell());
    for more in [&["--tls-max", "1.2"][..], &["--tlsv1.3"], &["--http1.1"], &["--http2"]] {
        let got = curl(&proxy, 0, "a.test", Some("robot"), more);
        assert_eq!(got, (200, format!("CN=robot {}", fingerprint(&world.robot))));
        assert_eq!(curl(&proxy, 0, "a.test", None, more).0, 0, "without one");
        assert_eq!(curl(&proxy, 0, "a.test", Some("stranger"), more).0, 0, "with a stranger's");
    }
    let records = proxy.wait_for_records("access.log", 2);
    assert!(records.iter().all(|record| record["client_subject"] == "CN=robot"), "{records:?}");
    // The same is the default.
    let proxy = world.proxy(&listener("client-ca \"clients.crt\"", ""), &tell());
    assert_eq!(curl(&proxy, 0, "a.test", None, &[]).0, 0);
}

#[test]
fn where_one_is_optional_it_has_to_be_good_and_nobody_can_forge_what_is_told_of_it() {
    let world = World::new();
    let rules = format!("rule path=\"/\" use=\"o\" {TELL}\nrule use=\"o\"");
    let proxy = world.proxy(&listener("client-ca \"clients.crt\" mode=\"optional\"", ""), &rules);
    assert_eq!(curl(&proxy, 0, "a.test", Some("robot"), &[]).1.split(' ').next(), Some("CN=robot"));
    assert_eq!(curl(&proxy, 0, "a.test", None, &[]), (200, "nobody nobody".to_owned()));
    assert_eq!(curl(&proxy, 0, "a.test", Some("stranger"), &[]).0, 0);
    // A rule that tells nothing takes the fields away all the same: the server believes them.
    let other = curl(&proxy, 0, "a.test", None, &["--request-target", "/other"]);
    assert_eq!(other, (200, "nobody nobody".to_owned()));
    let expired = world.ours.issue_with(&[], |params| {
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    std::fs::write(proxy.path("expired.crt"), &expired.certificate).unwrap();
    std::fs::write(proxy.path("expired.key"), &expired.key).unwrap();
    assert_eq!(curl(&proxy, 0, "a.test", Some("expired"), &[]).0, 0);
}

#[test]
fn a_plain_listener_takes_the_fields_away_too() {
    let world = World::new();
    let proxy = world.proxy("listen \"127.0.0.1:0\"", &tell());
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\nX-CLIENT-SUBJECT: CN=forged\r\nX-Client-Fingerprint: 00\r\n\r\n";
    assert_eq!(proxy.client().request(request).text(), "nobody nobody");
}

/// Servers read trailers as fields.
#[test]
fn trailers_can_not_say_who_the_client_is() {
    let world = World::new();
    let proxy = world.proxy("listen \"127.0.0.1:0\"", &tell());
    let request = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\
                   X-Client-Subject: CN=forged\r\nX-CLIENT-FINGERPRINT: 00\r\nX-Other: 1\r\n\r\n";
    assert_eq!(proxy.client().request(request).text(), "nobody nobody");
    let recorded = world.origin.requests();
    let names: Vec<&str> = recorded[0].trailers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["X-Other"]);
}

#[test]
fn what_a_subject_holds_can_not_become_another_field() {
    let world = World::new();
    let proxy = world.proxy(&listener("client-ca \"clients.crt\"", ""), &tell());
    let evil = world.ours.issue_with(&[], named("x\r\nX-Evil: 1\r\n\r\nGET /evil HTTP/1.1"));
    std::fs::write(proxy.path("evil.crt"), &evil.certificate).unwrap();
    std::fs::write(proxy.path("evil.key"), &evil.key).unwrap();
    let (status, body) = curl(&proxy, 0, "a.test", Some("evil"), &[]);
    let subject = "CN=x\\0D\\0AX-Evil: 1\\0D\\0A\\0D\\0AGET /evil HTTP/1.1";
    assert_eq!((status, body), (200, format!("{subject} {}", fingerprint(&evil))));
    assert_eq!(world.origin.requests().len(), 1);
}

#[test]
fn the_name_that_is_asked_for_decides_what_has_to_be_shown() {
    let world = World::new();
    let proxy = world.proxy(&listener("", "{ client-ca \"clients.crt\" mode=\"required\"; }"), &tell());
    assert_eq!(curl(&proxy, 0, "a.test", None, &[]), (200, "nobody nobody".to_owned()));
    assert_eq!(curl(&proxy, 0, "admin.test", None, &[]).0, 0);
    assert_eq!(curl(&proxy, 0, "admin.test", Some("robot"), &[]).0, 200);
    // A certificate's own word beats the listener's.
    let optional = "{ client-ca \"clients.crt\" mode=\"optional\"; }";
    let proxy = world.proxy(&listener("client-ca \"clients.crt\" mode=\"required\"", optional), &tell());
    assert_eq!(curl(&proxy, 0, "a.test", None, &[]).0, 0);
    assert_eq!(curl(&proxy, 0, "admin.test", None, &[]), (200, "nobody nobody".to_owned()));
    assert_eq!(curl(&proxy, 0, "other.test", None, &[]).0, 0, "the first certificate's demand holds for other names");
}

#[test]
fn a_connection_is_no_way_around_the_demand_of_another_name() {
    let world = World::new();
    let proxy = world.proxy(&listener("", "{ client-ca \"clients.crt\" mode=\"required\"; }"), &tell());
    let port = proxy.address().port();
    // One connection, made for a.test, and three requests.
    let mut client = crate::support::Client::connect_tls(proxy.address(), "a.test");
    for (host, status) in [
        ("admin.test", 421),
        (&format!("ADMIN.test:{port}"), 421),
        ("admin.test.", 421),
        ("a.test", 200),
        ("other.test", 200),
    ] {
        let answer = client.request(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(answer.status(), status, "{host}");
    }
    let answer = client.request(format!("GET https://admin.test:{port}/ HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    assert_eq!(answer.status(), 421, "an absolute target names the authority");
    let records = proxy.wait_for_records("access.log", 6);
    assert_eq!(records[0]["reason"], "misdirected");
    // Nor the other way round: what admin.test demands is not what a.test does.
    for version in ["--http1.1", "--http2"] {
        let (status, _) = curl(&proxy, 0, "admin.test", Some("robot"), &[version, "-H", "Host: a.test"]);
        assert_eq!(status, 421, "{version}");
        let (status, _) = curl(&proxy, 0, "a.test", None, &[version, "-H", "Host: admin.test"]);
        assert_eq!(status, 421, "{version}");
    }
    assert_eq!(world.origin.requests().len(), 2);
}

/// One request by `openssl s_client` to the listener at `index`.
fn s_client(proxy: &Proxy, index: usize, name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-ign_eof", "-connect", &proxy.addresses[index].to_string(), "-servername", name]);
    command.args(arguments).current_dir(proxy.folder());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("openssl runs");
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    // Where the handshake fails it may be gone already.
    let _ = std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), request.as_bytes());
    String::from_utf8_lossy(&output_of(child, "openssl s_client").stdout).into_owned()
}

#[test]
fn a_session_carries_its_certificate_and_never_leaves_its_demand() {
    sessions_keep_to_their_demand("");
}

#[test]
fn nor_does_a_session_that_carries_an_identity() {
    sessions_keep_to_their_demand("persist tls-session");
}

fn sessions_keep_to_their_demand(persist: &str) {
    let world = World::new();
    let with = |inside: &str| listener(inside, "");
    let (required, optional) =
        ("client-ca \"clients.crt\" mode=\"required\"", "client-ca \"clients.crt\" mode=\"optional\"");
    let others = "client-ca \"others.crt\" mode=\"optional\"";
    let listeners = [with(required), with(required), with(optional), with(""), with(others)].join("\n");
    let pool = format!("pool \"o\" {{ server \"o1\" \"{}\"; {persist} }}", world.origin.address);
    let text = format!("workers 1\n{listeners}\n{pool}\n{}\n", tell());
    let proxy = world.setup(&text).file("others.crt", &Authority::new("another").certificate).start();
    let told = format!("CN=robot {}", fingerprint(&world.robot));
    for version in ["-tls1_3", "-tls1_2"] {
        let first = [version, "-sess_out", "s", "-cert", "robot.crt", "-key", "robot.key"];
        let again = [version, "-sess_in", "s"];
        // The certificate is in the session: it need not be shown again.
        assert!(s_client(&proxy, 0, "a.test", &first).contains(&told));
        for index in [0, 1] {
            let resumed = s_client(&proxy, index, "a.test", &again);
            assert!(resumed.contains("Reused, ") && resumed.contains(&told), "{index}: {resumed}");
        }
        // Elsewhere it is no session, whoever it was made for.
        for (index, answer) in [(2, "nobody nobody"), (3, "nobody nobody"), (4, "nobody nobody")] {
            let full = s_client(&proxy, index, "a.test", &again);
            assert!(full.contains("New, ") && full.contains(answer), "{index}: {full}");
        }
        // One made without a certificate opens no door that wants one.
        for from in [2, 3, 4] {
            assert!(s_client(&proxy, from, "a.test", &[version, "-sess_out", "s"]).contains("nobody nobody"));
            let resumed = s_client(&proxy, from, "a.test", &again);
            assert!(resumed.contains("Reused, ") && resumed.contains("nobody nobody"), "{from}: {resumed}");
            let refused = s_client(&proxy, 0, "a.test", &again);
            assert!(!refused.contains("Reused, ") && !refused.contains("200 Made Up"), "{from}: {refused}");
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn check(world: &World, listener: &str) -> (Option<i32>, String) {
    let text = format!("{listener}\nrule respond=404\n").replace(":0\"", ":8443\"");
    let output = world.setup(&text).run_to_end(&["check"]);
    (output.status.code(), said(&output))
}

#[test]
fn what_can_not_hold_is_an_error_of_check_that_says_where() {
    let world = World::new();
    let (code, said) = check(&world, &listener("", "{ client-ca \"missing.crt\"; }"));
    assert!(code == Some(1) && said.contains("missing.crt") && said.contains("rules.kdl:3"), "{said}");
    let (code, said) = check(&world, &listener("client-ca \"public.key\"", ""));
    assert!(code == Some(1) && said.contains("public.key holds no certificate of an authority"), "{said}");
    assert_eq!(said.matches("can't be used").count(), 1, "{said}");
    let same = listener("certificate \"public.crt\" key=\"public.key\" { client-ca \"clients.crt\"; }", "");
    let (code, said) = check(&world, &same);
    assert!(code == Some(1) && said.contains("two certificates are for a.test"), "{said}");
    let (code, said) = check(&world, &listener("client-ca \"clients.crt\" mode=\"sometimes\"", ""));
    assert!(code == Some(1) && said.contains("sometimes"), "{said}");
}

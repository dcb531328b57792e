//! Servers that die while somebody has to be told and something has to be done: alerts by webhook and mail, and recovery up to
//! the machine's power, by a real proxy.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::{Receiver, channel};

use aws_lc_rs::hmac;
use serde_json::Value;

use crate::support::message::latin1;
use crate::support::{DEADLINE, Origin, Proxy, Setup, pointsman, wait_for};

/// A server of the proxy's pool dies, and requests find out.
fn kill(proxy: &Proxy, origin: &Origin, name: &str) {
    origin.stop();
    proxy.ask_until_it_says("/", &format!("{name} was suspect and is down"));
}

fn head(more: &str) -> String {
    format!("workers 1\nlisten \"127.0.0.1:0\"\nadmin \"unix:admin.sock\"\n{more}\nrule use=\"p\"\n")
}

#[test]
fn a_webhook_is_told_that_a_server_is_down_and_back_with_a_signature_that_fits() {
    let (one, other, hook) = (Origin::new("one"), Origin::new("other"), Origin::new("hook"));
    let rules = head(&format!(
        "alert {{ webhook \"http://{}/hook\" secret-file=\"secret\" }}\n\
         pool \"p\" {{ server \"s0\" \"{}\"; server \"s1\" \"{}\"; retry count=3 }}",
        hook.address, one.address, other.address
    ));
    let proxy = Setup::new(&rules).file("secret", "a secret\n").start();
    kill(&proxy, &other, "p/s1");
    let down = hook.wait_for_requests(1).remove(0);
    other.start();
    proxy.wait_for_error("p/s1 was down and is recovering");
    let back = hook.wait_for_requests(2).remove(1);
    for (request, event) in [(&down, "down"), (&back, "recovered")] {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!((&body["event"], &body["pool"], &body["server"]), (&event.into(), &"p".into(), &"s1".into()));
        let field = |name| request.head.field(name).unwrap().to_owned();
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"a secret");
        let tag = hmac::sign(&key, &[field("x-pointsman-timestamp").as_bytes(), b".", &request.body].concat());
        let digits: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(field("x-pointsman-signature"), format!("sha256={digits}"));
    }
    let status = wait_for("the figures", DEADLINE, || {
        let status = proxy.status();
        (status["process"]["alerts"]["sent"] == 2).then_some(status)
    });
    let [well, failed] = [0, 1].map(|index| status["pools"][0]["servers"][index]["availability"].clone());
    assert_eq!((&well["failures"], &well["uptime"]), (&0.into(), &1.0.into()));
    assert_eq!(failed["failures"], 1);
    let [mtbf, mttr, uptime] = ["mtbf_seconds", "mttr_seconds", "uptime"].map(|name| failed[name].as_f64().unwrap());
    assert!(mttr > 0.0 && (uptime - mtbf / (mtbf + mttr)).abs() < 0.05, "{failed}");
    assert_eq!(status["pools"][0]["availability"]["failures"], 0, "the other server was there");
    let text = pointsman(proxy.folder(), &["status", "rules.kdl"]);
    assert!(latin1(&text.stdout).contains("s1 available: "), "{}", latin1(&text.stdout));
}

/// A mail server that takes mails and tells their lines.
fn mail_server() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (told, heard) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let mut out = stream.try_clone().unwrap();
            let mut is_data = false;
            let _ = out.write_all(b"220 mail.test\r\n");
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { break };
                let answer = match line.as_str() {
                    "." => {
                        is_data = false;
                        "250 taken\r\n"
                    }
                    _ if is_data => "",
                    "DATA" => {
                        is_data = true;
                        "354 go on\r\n"
                    }
                    "QUIT" => "221 bye\r\n",
                    _ => "250 fine\r\n",
                };
                if told.send(line).is_err() || out.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    (port, heard)
}

#[test]
fn a_mail_tells_that_a_server_is_down() {
    let (one, other) = (Origin::new("one"), Origin::new("other"));
    let (port, heard) = mail_server();
    let rules = head(&format!(
        "alert {{ mail to=\"ops@a.test\" from=\"pointsman@a.test\" smtp=\"127.0.0.1:{port}\" tls=\"none\" }}\n\
         pool \"p\" {{ server \"s0\" \"{}\"; server \"s1\" \"{}\"; retry count=3 }}",
        one.address, other.address
    ));
    let proxy = Proxy::start(&rules);
    kill(&proxy, &other, "p/s1");
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line == ".") {
        lines.push(heard.recv_timeout(DEADLINE).expect("a mail"));
    }
    let mail = lines.join("\n");
    for expected in ["RCPT TO:<ops@a.test>", "Subject: pointsman: p/s1 is down", "server p/s1 is down: "] {
        assert!(mail.contains(expected), "{mail}");
    }
}

/// The steps that were taken for the second server of a pool.
fn steps(proxy: &Proxy, pool: usize) -> Vec<(String, String)> {
    let status = proxy.status();
    let steps = status["pools"][pool]["servers"][1]["recovery"]["steps"].as_array().unwrap().clone();
    let text = |step: &Value, name: &str| step[name].as_str().unwrap().to_owned();
    steps.iter().map(|step| (text(step, "step"), text(step, "outcome"))).collect()
}

#[test]
fn a_machine_whose_agent_is_silent_is_power_cycled_in_the_end_and_in_a_dry_run_only_on_paper() {
    let (one, other) = (Origin::new("one"), Origin::new("other"));
    let recorder = |name: &str| format!("#!/bin/sh\necho \"$* password=$IPMI_PASSWORD\" >> \"${{0%/*}}/{name}\"\n");
    let pool = |name: &str, more: &str| {
        format!(
            "pool \"{name}\" {{\n server \"s0\" \"{}\"\n server \"s1\" \"{}\" {{\n\
             machine \"{name}\" ipmi=\"10.0.9.1\" user=\"admin\" password-file=\"password\" }}\n\
             retry count=3\n recovery {{ ipmi program=\"./ipmi-{name}\"; {more} }}\n}}\n",
            one.address, other.address
        )
    };
    let rules = format!("{}{}rule path=\"/d\" use=\"d\"", pool("p", ""), pool("d", "dry-run #true"));
    let setup = Setup::new(&head(&rules)).file("password", "pass word\n");
    let setup = setup.file("ipmi-p", recorder("real")).file("ipmi-d", recorder("dry"));
    for name in ["ipmi-p", "ipmi-d"] {
        let program = setup.folder().join(name);
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let proxy = setup.start();
    other.stop();
    for (path, name) in [("/", "p/s1"), ("/d", "d/s1")] {
        proxy.ask_until_it_says(path, &format!("{name} was suspect and is down"));
    }
    // No agent speaks: two attempts are in vain, and then it is the machine's turn.
    for line in ["p/s1: power cycle: done", "d/s1: power cycle: not done: dry run"] {
        // Two waits of 5 and 10 seconds, each up to a fifth longer.
        wait_for(line, DEADLINE * 3, || proxy.has_said(&[line]).then_some(()));
    }
    let calls = std::fs::read_to_string(proxy.path("real")).unwrap();
    let call = |action| format!("-I lanplus -H 10.0.9.1 -U admin -E chassis power {action} password=pass word\n");
    assert_eq!(calls, call("status") + &call("cycle"));
    assert!(!proxy.path("dry").exists(), "a dry run does nothing");
    let told = steps(&proxy, 0);
    let silent = ("restart by its agent".to_owned(), "failed: its agent does not speak".to_owned());
    assert_eq!(told.iter().filter(|step| **step == silent).count(), 2, "{told:?}");
    let on_paper = ("power cycle".to_owned(), "not done: dry run".to_owned());
    wait_for("the step in status", DEADLINE, || steps(&proxy, 1).contains(&on_paper).then_some(()));
    // The server is back: nothing more is done.
    other.start();
    proxy.wait_for_error("p/s1 was down and is recovering");
    assert!(!proxy.has_said(&["pass word"]), "the password is in the log");
}

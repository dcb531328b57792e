//! Alerts delivered to real servers: a web server whose requests are looked at, a mail server that is played line by line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use aws_lc_rs::hmac;

use super::*;
use crate::base::id::ServerId;
use crate::pure::alert::Occasion;
use crate::pure::alert::target::{Mail, MailTls, Webhook};
use crate::pure::config::{SecretFile, load_text};

const PATIENCE: Duration = Duration::from_secs(30);

fn alert(occasion: Occasion) -> Alert {
    let server = ServerId { pool: "app".into(), server: "a1".into() };
    Alert { occasion, server, because: "a check failed: connection refused".to_owned(), held_back: 0 }
}

/// Passwords of a file that says `secret words`.
fn passwords(folder: &std::path::Path) -> (PathBuf, Passwords) {
    let file = folder.join("secret");
    std::fs::write(&file, "secret words\n").unwrap();
    let mut config = load_text("listen \"127.0.0.1:1\"\nrule respond=404\n").unwrap();
    let place = config.places.rules[0].node.clone();
    config.places.secret_files.push(SecretFile { file: file.clone(), place });
    (file, Passwords::read(&config).unwrap())
}

/// A request as a web server sees it.
#[derive(Debug)]
struct Posted {
    head: String,
    body: String,
}

impl Posted {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A web server that answers with these statuses, one after the other.
fn web_server(statuses: &'static [u16]) -> (std::net::SocketAddr, Receiver<Posted>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (told, posted) = channel();
    std::thread::spawn(move || {
        for status in statuses {
            let (mut stream, _) = listener.accept().unwrap();
            told.send(read_request(&stream)).unwrap();
            write!(stream, "HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    (address, posted)
}

fn read_request(stream: &TcpStream) -> Posted {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head:?}");
    }
    let mut posted = Posted { head, body: String::new() };
    let length = posted.field("content-length").unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    posted.body = String::from_utf8(body).unwrap();
    posted
}

fn webhook(address: std::net::SocketAddr, secret_file: Option<PathBuf>) -> Targets {
    let webhook = Webhook {
        is_tls: false,
        host: address.ip().to_string(),
        port: address.port(),
        authority: address.to_string(),
        path: "/hook?a=b".to_owned(),
        secret_file,
        ca: None,
    };
    Targets { webhooks: vec![webhook], mails: Vec::new() }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = time::now() + PATIENCE;
    while !is_so() {
        assert!(time::now() < deadline, "in vain: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_webhook_gets_json_with_a_signature_that_fits() {
    let folder = tempfile::tempdir().unwrap();
    let (file, passwords) = passwords(folder.path());
    let (address, posted) = web_server(&[204]);
    let alerter = Alerter::start(&webhook(address, Some(file)), &passwords).unwrap();
    alerter.send(&alert(Occasion::Down));
    let posted = posted.recv_timeout(PATIENCE).unwrap();
    assert!(posted.head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{}", posted.head);
    assert_eq!(posted.field("host"), Some(address.to_string().as_str()));
    assert_eq!(posted.field("content-type"), Some("application/json"));
    let body: serde_json::Value = serde_json::from_str(&posted.body).unwrap();
    for (name, value) in [("event", "down"), ("pool", "app"), ("server", "a1")] {
        assert_eq!(body[name], value, "{body}");
    }
    assert_eq!(body["text"], "server app/a1 is down: a check failed: connection refused");
    let at = posted.field("x-pointsman-timestamp").unwrap();
    assert_eq!(body["at"].as_u64(), at.parse().ok());
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret words");
    let tag = hmac::sign(&key, format!("{at}.{}", posted.body).as_bytes());
    assert_eq!(posted.field("x-pointsman-signature"), Some(format!("sha256={}", hex(tag.as_ref())).as_str()));
    wait_for("the count", || alerter.counts().sent == 1);
}

#[test]
fn a_webhook_without_a_secret_gets_no_signature() {
    let (address, posted) = web_server(&[200]);
    let alerter = Alerter::start(&webhook(address, None), &Passwords::default()).unwrap();
    alerter.send(&alert(Occasion::Recovered));
    assert_eq!(posted.recv_timeout(PATIENCE).unwrap().field("x-pointsman-signature"), None);
}

#[test]
fn a_server_that_is_in_trouble_is_tried_again_with_the_same_alert_and_a_refusal_is_final() {
    let (address, posted) = web_server(&[503, 200, 404]);
    let alerter = Alerter::start(&webhook(address, None), &Passwords::default()).unwrap();
    alerter.send(&alert(Occasion::Down));
    let [first, second] = [0; 2].map(|_| posted.recv_timeout(PATIENCE).unwrap().body);
    assert_eq!(first, second);
    alerter.send(&alert(Occasion::GivenUp));
    posted.recv_timeout(PATIENCE).unwrap();
    wait_for("the counts", || (alerter.counts().sent, alerter.counts().failed) == (1, 1));
}

#[test]
fn alerts_that_find_their_queue_full_are_dropped_and_counted() {
    // Nobody ever answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let alerter = Alerter::start(&webhook(listener.local_addr().unwrap(), None), &Passwords::default()).unwrap();
    for _ in 0..QUEUE_MAX + 5 {
        alerter.send(&alert(Occasion::Down));
    }
    // One is under way, if its thread has been that quick.
    assert!((4..=5).contains(&alerter.counts().dropped), "{:?}", alerter.counts());
}

/// A mail server that takes one mail and tells what it was told.
fn mail_server() -> (u16, Receiver<Vec<String>>) {
    mail_server_that(|mut stream| {
        stream.write_all(b"220 mail.test ESMTP\r\n").unwrap();
        play(&mut stream, "")
    })
}

fn mail_server_that(serves: impl FnOnce(TcpStream) -> Vec<String> + Send + 'static) -> (u16, Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (told, heard) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        told.send(serves(stream)).unwrap();
    });
    (port, heard)
}

/// Plays a mail server behind its greeting, with one more extension, to the end or to STARTTLS; gives back what it was told.
fn play(stream: &mut (impl std::io::Read + std::io::Write), extension: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut is_data = false;
    while let Some(line) = read_line(stream) {
        let command = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
        let answer = match command.as_str() {
            "." if is_data => {
                is_data = false;
                "250 taken\r\n"
            }
            _ if is_data => "",
            "EHLO" => &format!("250-mail.test\r\n{extension}250-AUTH PLAIN\r\n250 8BITMIME\r\n"),
            "AUTH" => "235 welcome\r\n",
            "DATA" => {
                is_data = true;
                "354 go on\r\n"
            }
            "QUIT" => "221 bye\r\n",
            "STARTTLS" => "220 begin\r\n",
            _ => "250 fine\r\n",
        };
        lines.push(line);
        stream.write_all(answer.as_bytes()).unwrap();
        if matches!(command.as_str(), "QUIT" | "STARTTLS") {
            break;
        }
    }
    lines
}

/// A line without its end, read byte by byte: what follows may be TLS.
fn read_line(stream: &mut impl std::io::Read) -> Option<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    Some(String::from_utf8(line).unwrap())
}

fn mail(port: u16, tls: MailTls, login: Option<(String, PathBuf)>) -> Targets {
    let to = vec!["ops@a.test".to_owned(), "more@b.test".to_owned()];
    let (from, host) = ("pointsman@a.test".to_owned(), "127.0.0.1".to_owned());
    Targets { webhooks: Vec::new(), mails: vec![Mail { to, from, host, port, tls, login, ca: None }] }
}

#[test]
fn a_mail_reaches_its_server_with_login_sender_receivers_and_text() {
    let folder = tempfile::tempdir().unwrap();
    let (file, passwords) = passwords(folder.path());
    let (port, heard) = mail_server();
    let alerter = Alerter::start(&mail(port, MailTls::Off, Some(("me".to_owned(), file))), &passwords).unwrap();
    alerter.send(&alert(Occasion::Down));
    wait_for("the count", || alerter.counts().sent == 1);
    let lines = heard.recv_timeout(PATIENCE).unwrap();
    let text = lines.join("\n");
    // \0me\0secret words
    for expected in [
        "AUTH PLAIN AG1lAHNlY3JldCB3b3Jkcw==",
        "MAIL FROM:<pointsman@a.test>",
        "RCPT TO:<ops@a.test>",
        "RCPT TO:<more@b.test>",
        "From: pointsman@a.test",
        "Subject: pointsman: app/a1 is down",
        "Message-ID: <",
        "Date: ",
        "server app/a1 is down: a check failed: connection refused",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[test]
fn a_server_without_starttls_gets_no_mail_where_tls_is_demanded() {
    let (port, heard) = mail_server();
    let targets = mail(port, MailTls::StartTls, None);
    let mailer =
        mail::Mailer::new(&targets.mails[0], &Passwords::default(), &mut SystemAuthorities::default()).unwrap();
    assert!(mailer.send(&message()).is_err());
    let lines = heard.recv_timeout(PATIENCE).unwrap();
    assert!(!lines.iter().any(|line| line.starts_with("MAIL") || line.starts_with("DATA")), "{lines:?}");
}

fn message() -> Message {
    Message { alert: alert(Occasion::Down), at: time::wall_clock(), id: random_id() }
}

/// What comes of one try at a mail server that goes on with these bytes for ever, one piece every so often, and how many it
/// could say.
fn try_at(greeting: &'static [u8], piece: &'static [u8], every: Duration, tls: MailTls) -> (Failure, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (goes_on, over) = channel::<()>();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = 0;
        let mut say = |bytes: &[u8]| stream.write_all(bytes).map(|()| said += bytes.len());
        let mut is_heard = say(greeting);
        while is_heard.is_ok() && over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            is_heard = say(piece);
        }
        said
    });
    let targets = mail(port, tls, None);
    let mailer =
        mail::Mailer::new(&targets.mails[0], &Passwords::default(), &mut SystemAuthorities::default()).unwrap();
    let failure = mailer.send(&message()).unwrap_err();
    drop(goes_on);
    (failure, server.join().unwrap())
}

#[test]
fn an_endless_line_of_a_mail_server_ends_the_try_and_is_not_gathered() {
    static PIECE: [u8; 64 * 1024] = [b'x'; 64 * 1024];
    for (greeting, tls) in [(&b"220 "[..], MailTls::Off), (b"220 hello\r\n250 ", MailTls::StartTls)] {
        let (failure, said) = try_at(greeting, &PIECE, Duration::ZERO, tls);
        assert!(failure.why.contains("more than 64 KiB") && failure.may_pass, "{failure:?}");
        // What the kernel has room for is said and not read.
        assert!(said < 64 << 20, "{said}");
    }
    // No TLS begins so, and little is read to see it.
    assert!(try_at(b"220 ", &PIECE, Duration::ZERO, MailTls::Implicit).0.may_pass);
}

#[test]
fn a_mail_server_that_drips_holds_a_try_no_longer_than_a_try_may_take() {
    let (failure, _) = try_at(b"220-wait\r\n", b"220-x\r\n", Duration::from_millis(100), MailTls::Off);
    assert!(failure.why.contains("took too long") && failure.may_pass, "{failure:?}");
}

#[test]
fn a_mail_goes_by_tls_from_the_first_byte_or_after_starttls_and_only_to_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let ca = folder.path().join("ca");
    std::fs::write(&ca, certificate.pem()).unwrap();
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private).unwrap();
    let config = Arc::new(config);
    for (tls, is_known) in
        [MailTls::Implicit, MailTls::StartTls].into_iter().flat_map(|tls| [(tls, true), (tls, false)])
    {
        let config = Arc::clone(&config);
        let (port, heard) = mail_server_that(move |mut stream| {
            if tls == MailTls::StartTls {
                stream.write_all(b"220 mail.test ESMTP\r\n").unwrap();
                assert_eq!(play(&mut stream, "250-STARTTLS\r\n").pop().as_deref(), Some("STARTTLS"));
            }
            let mut encrypted = rustls::StreamOwned::new(rustls::ServerConnection::new(config).unwrap(), stream);
            if tls == MailTls::Implicit && encrypted.write_all(b"220 mail.test ESMTP\r\n").is_err() {
                return Vec::new();
            }
            play(&mut encrypted, "")
        });
        let mut targets = mail(port, tls, None);
        targets.mails[0].ca = is_known.then(|| ca.clone());
        let target = &targets.mails[0];
        let mailer = mail::Mailer::new(target, &Passwords::default(), &mut SystemAuthorities::default()).unwrap();
        let sent = mailer.send(&message());
        let lines = heard.recv_timeout(PATIENCE).unwrap();
        assert_eq!(sent.is_ok(), is_known, "{tls:?} {sent:?}");
        assert_eq!(lines.iter().any(|line| line.starts_with("MAIL FROM")), is_known, "{lines:?}");
    }
}

#[test]
fn the_counts_of_alerts_outlive_those_who_deliver_them() {
    let mut former = Alerter::default();
    let (told, delivered) = channel();
    let deliver = move |_: &Message| told.send(()).map_err(|_| Failure { why: "nobody".to_owned(), may_pass: false });
    former.add("former".to_owned(), deliver).unwrap();
    former.send(&alert(Occasion::Down));
    delivered.recv_timeout(PATIENCE).unwrap();
    let next = Alerter::start_counting(&Targets::default(), &Passwords::default(), former.counters()).unwrap();
    // What the former still delivers counts too.
    former.send(&alert(Occasion::Recovered));
    drop(former);
    delivered.recv_timeout(PATIENCE).unwrap();
    let deadline = time::now() + PATIENCE;
    while next.counts().sent < 2 {
        assert!(time::now() < deadline, "{:?}", next.counts());
        std::thread::yield_now();
    }
}

//! The PROXY protocol on a listener: the client that a trusted proxy names is the client of everything, what others say
//! is not even read, and no byte behind the header is lost.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::client::Options;
use crate::support::deadline::{between_looks, now};
use crate::support::proxy::output_of;
use crate::support::{Client, DEADLINE, End, Origin, Proxy, Setup, refused_address, tls, wait_for};

/// A plain and a TLS listener that take PROXY headers from 127.0.0.1 and 10.0.0.0/8, in front of `origin`.
fn rules(limits: &str, origin: &Origin) -> String {
    let settings = format!(
        "proxy-protocol; trusted-proxies \"127.0.0.1\" \"10.0.0.0/8\"; limits {{ header-timeout \"20s\"; {limits} }}"
    );
    format!(
        "listen \"127.0.0.1:0\" {{ {settings} }}\n\
         listen \"127.0.0.1:0\" {{ {settings}; tls {{ certificate \"site.crt\" key=\"site.key\" }} }}\n\
         workers 1\npool \"o\" {{ server \"o1\" \"{}\" }}\nrule client=\"203.0.113.0/24\" respond=403\nrule use=\"o\"\n\
         access-log \"access.log\"\n",
        origin.address
    )
}

fn proxy(origin: &Origin) -> Proxy {
    Proxy::start(&rules("", origin))
}

/// A header of version 2: command, family, what follows.
fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[command, family], &length, block].concat()
}

/// A header of version 2 for a client with this IPv4 address.
fn named(client: [u8; 4]) -> Vec<u8> {
    let ports = [0x12, 0x34, 0, 80];
    binary(0x21, 0x11, &[client.as_slice(), &[192, 0, 2, 254], &ports].concat())
}

/// A connection that begins with these bytes.
fn connect(proxy: &Proxy, first: impl Into<Vec<u8>>) -> Client {
    Options { first: first.into(), ..Options::default() }.connect(proxy.address())
}

/// The X-Forwarded-For that the server got with its last request.
fn told(origin: &Origin) -> String {
    origin.requests().last().unwrap().head.all("x-forwarded-for").join(" | ")
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

#[test]
fn the_client_that_a_header_names_is_the_client_of_rules_fields_and_logs() {
    let origin = Origin::new("one");
    let proxy = proxy(&origin);
    let mut v6 = [0; 36];
    v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    v6[15] = 1;
    let fields = [198, 51, 100, 3, 1, 1, 1, 1, 0, 1, 0, 2, 0x02, 0, 6, b'a', b'.', b't', b'e', b's', b't'];
    let cases: [(Vec<u8>, u16, &str); 8] = [
        (b"PROXY TCP4 198.51.100.1 192.0.2.254 4660 80\r\n".to_vec(), 200, "198.51.100.1"),
        (b"PROXY TCP4 203.0.113.9 192.0.2.254 4660 80\r\n".to_vec(), 403, "203.0.113.9"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::8 4660 80\r\n".to_vec(), 200, "2001:db8::7"),
        (b"PROXY TCP6 ::ffff:203.0.113.9 ::1 4660 80\r\n".to_vec(), 403, "203.0.113.9"),
        (named([198, 51, 100, 2]), 200, "198.51.100.2"),
        (named([203, 0, 113, 9]), 403, "203.0.113.9"),
        (binary(0x21, 0x21, &v6), 200, "2001:db8::1"),
        (binary(0x21, 0x11, &fields), 200, "198.51.100.3"),
    ];
    for (header, status, client) in &cases {
        // Header and requests in one segment.
        let mut connection = connect(&proxy, [header, GET, GET].concat());
        for _ in 0..2 {
            assert_eq!(connection.response().status(), *status, "{client}");
            if *status == 200 {
                assert_eq!(told(&origin), *client);
            }
        }
    }
    let records = proxy.wait_for_records("access.log", 2 * cases.len());
    for (record, (_, status, client)) in records.chunks(2).map(|two| &two[1]).zip(&cases) {
        assert_eq!((record["client"].as_str(), record["status"].as_u64()), (Some(*client), Some(u64::from(*status))));
    }
}

#[test]
fn tls_begins_behind_the_header() {
    let origin = Origin::new("one");
    let proxy = proxy(&origin);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let tls = Some(("a.test".to_owned(), tls::client_config(&[version], &["http/1.1"])));
        let mut client =
            Options { first: named([198, 51, 100, 4]), tls, ..Options::default() }.connect(proxy.addresses[1]);
        assert_eq!(client.get("/").text(), "one");
        assert_eq!(told(&origin), "198.51.100.4");
    }
    // Both in one segment.
    let mut hello = named([198, 51, 100, 5]);
    let name = rustls::pki_types::ServerName::try_from("a.test").unwrap();
    let mut session = rustls::ClientConnection::new(tls::default_config(), name).unwrap();
    session.write_tls(&mut hello).unwrap();
    let mut socket = TcpStream::connect(proxy.addresses[1]).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.write_all(&hello).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut socket).unwrap();
    }
}

#[test]
fn a_header_before_tls_that_the_listener_does_not_know_is_told_as_that() {
    let origin = Origin::new("one");
    let rules = rules("", &origin).replace("proxy-protocol; trusted-proxies", "trusted-proxies");
    for header in [b"PROXY TCP4 198.51.100.7 10.0.0.1 1 443\r\n".to_vec(), named([198, 51, 100, 7])] {
        let proxy = Proxy::start(&rules);
        let mut socket = TcpStream::connect(proxy.addresses[1]).unwrap();
        socket.write_all(&header).unwrap();
        proxy.wait_for_error("begins with a PROXY header");
    }
}

#[test]
fn a_handshake_that_fails_behind_the_header_is_told_of_the_client_that_it_names() {
    let origin = Origin::new("one");
    let proxy = proxy(&origin);
    let mut socket = TcpStream::connect(proxy.addresses[1]).unwrap();
    socket.write_all(&[named([198, 51, 100, 7]), b"no TLS at all\r\n\r\n".to_vec()].concat()).unwrap();
    let parts = ["the TLS handshake of 198.51.100.7:", " failed: "];
    wait_for("the reason", DEADLINE, || proxy.has_said(&parts).then_some(()));
}

#[test]
fn a_header_may_come_in_pieces_and_costs_nothing_while_it_does_not_go_on() {
    let origin = Origin::new("one");
    let proxy = proxy(&origin);
    let long = binary(0x21, 0x11, &[&named([198, 51, 100, 6])[16..], &[4; 3000]].concat());
    for header in [b"PROXY TCP4 198.51.100.6 192.0.2.254 4660 80\r\n".to_vec(), named([198, 51, 100, 6]), long] {
        for size in [1, 7, 1500] {
            let mut client = proxy.client();
            for piece in header.chunks(size.max(header.len() / 60)) {
                client.send(piece);
                between_looks();
            }
            client.send(&GET[..3]);
            between_looks();
            client.send(&GET[3..]);
            assert_eq!(client.response().text(), "one");
            assert_eq!(told(&origin), "198.51.100.6");
        }
    }
    let _waiting: Vec<Client> = [1, 5, 12, 16, 27].map(|cut| connect(&proxy, &named([1; 4])[..cut])).into();
    let _lines: Vec<Client> = [1, 6, 20].map(|cut| connect(&proxy, &b"PROXY TCP4 198.51.100.6 192"[..cut])).into();
    let (started, ticks) = (now(), proxy.processor_ticks());
    while started.elapsed() < Duration::from_millis(500) {
        between_looks();
    }
    let spent = proxy.processor_ticks() - ticks;
    assert!(spent <= 10, "{spent} hundredths of a second of processor time in half a second of waiting");
    assert_eq!(connect(&proxy, named([198, 51, 100, 6])).get("/").text(), "one");
}

/// Shows that the connection ends and nothing comes back.
fn assert_closed(mut client: Client, what: &str) {
    let (bytes, end) = client.rest();
    assert!(bytes.is_empty() && matches!(end, End::Closed | End::Reset), "{what}: {end:?} after {bytes:?}");
}

#[test]
fn who_is_no_trusted_proxy_is_closed_whatever_it_sends() {
    let origin = Origin::new("one");
    let proxy = proxy(&origin);
    for first in [named([198, 51, 100, 7]), GET.to_vec(), Vec::new()] {
        let from = Some(IpAddr::from([127, 0, 0, 9]));
        assert_closed(Options { from, first, ..Options::default() }.connect(proxy.address()), "a stranger");
    }
    let said = proxy.wait_for_error("a connection from 127.0.0.9:");
    assert!(said.contains("was closed: it is none of the `trusted-proxies`"), "{said}");
    // What goes on all the time is not said every time.
    assert_eq!(proxy.errors().iter().filter(|line| line.contains("was closed")).count(), 1);
    assert_eq!(connect(&proxy, named([198, 51, 100, 7])).get("/").text(), "one");
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_connection_without_a_right_header_is_closed() {
    let origin = Origin::new("one");
    for (first, said) in [
        (GET.to_vec(), "it does not begin with a PROXY header"),
        (b"\x16\x03\x01\x02\0\x01".to_vec(), "it does not begin with a PROXY header"),
        (b"PROXY TCP4 198.51.100.8 192.0.2.254 4660\r\n".to_vec(), "its PROXY line is malformed"),
        (b"PROXY TCP4 198.51.100.8 192.0.2.254 4660 80\n".to_vec(), "its PROXY line is malformed"),
        ([b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat(), "its PROXY header is too long"),
        (binary(0x21, 0x11, &[0; 4081]), "its PROXY header is too long"),
        (binary(0x21, 0x11, &[0; 11]), "the addresses of its PROXY header are cut short"),
        (binary(0x21, 0x51, &[0; 12]), "the address family of its PROXY header is unknown"),
        (binary(0x22, 0x11, &[0; 12]), "the version or command of its PROXY header is unknown"),
    ] {
        let proxy = proxy(&origin);
        assert_closed(connect(&proxy, [first.as_slice(), GET].concat()), said);
        assert!(proxy.wait_for_error("was closed").ends_with(said), "{said}: {:?}", proxy.errors());
    }
    let proxy = proxy(&origin);
    let mut client = connect(&proxy, &named([1; 4])[..20]);
    client.finish_writing();
    assert_closed(client, "cut");
    assert!(proxy.wait_for_error("was closed").ends_with("its PROXY header was cut short"));
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn a_check_that_only_connects_is_nothing_to_speak_of() {
    let origin = Origin::new("one");
    let proxy = proxy(&origin);
    for _ in 0..10 {
        let mut client = proxy.client();
        client.finish_writing();
        assert_eq!(client.end(), End::Closed);
    }
    assert_eq!(connect(&proxy, named([198, 51, 100, 7])).get("/").text(), "one");
    assert!(!proxy.errors().iter().any(|line| line.contains("was closed")), "{:?}", proxy.errors());
}

#[test]
fn limit_header_timeout_covers_the_header_too() {
    let origin = Origin::new("one");
    for first in [Vec::new(), named([1; 4])[..20].to_vec()] {
        let proxy = Proxy::start(&rules("", &origin).replace("20s", "300ms"));
        let started = now();
        assert_closed(connect(&proxy, first), "late");
        assert!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
        assert!(proxy.wait_for_error("was closed").ends_with("its PROXY header did not come in time"));
    }
    // What is left of the time after the header is all that the handshake has.
    let proxy = Proxy::start(&rules("", &origin).replace("20s", "300ms"));
    let first = named([1; 4]);
    assert_closed(Options { first, ..Options::default() }.connect(proxy.addresses[1]), "no handshake");
}

const FROM: &str =
    "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 198.51.100.9\r\nForwarded: for=198.51.100.9\r\n\r\n";

#[test]
fn fields_are_believed_from_a_named_client_that_is_a_trusted_proxy_and_from_nobody_unnamed() {
    let origin = Origin::new("one");
    let proxy = proxy(&origin);
    let socket = binary(0x21, 0x31, &[b'/'; 216]);
    for (header, chain, client) in [
        // The proxy speaks for itself.
        (binary(0x20, 0, b""), "198.51.100.9, 127.0.0.1", "198.51.100.9"),
        // A proxy behind the proxy.
        (named([10, 1, 2, 3]), "198.51.100.9, 10.1.2.3", "198.51.100.9"),
        (named([198, 51, 100, 1]), "198.51.100.1", "198.51.100.1"),
        // Whose fields these are is not known.
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1", "127.0.0.1"),
        (binary(0x21, 0, b""), "127.0.0.1", "127.0.0.1"),
        (socket, "127.0.0.1", "127.0.0.1"),
    ] {
        let before = proxy.path("access.log").metadata().map_or(0, |file| file.len());
        assert_eq!(connect(&proxy, header).request(FROM).text(), "one");
        assert_eq!(told(&origin), chain);
        let logged = wait_for("a line in the log", DEADLINE, || {
            let text = std::fs::read_to_string(proxy.path("access.log")).ok()?;
            text.get(usize::try_from(before).ok()?..).filter(|line| line.ends_with('\n')).map(str::to_owned)
        });
        assert!(logged.contains(&format!("\"client\":\"{client}\"")), "{client}: {logged}");
    }
}

#[test]
fn limit_connections_per_client_max_counts_the_clients_that_headers_name() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("connections-per-client-max 1", &origin));
    let mut first = connect(&proxy, named([198, 51, 100, 1]));
    assert_eq!(first.get("/").status(), 200);
    let mut other = connect(&proxy, named([198, 51, 100, 2]));
    assert_eq!(other.get("/").status(), 200);
    assert_eq!(connect(&proxy, named([198, 51, 100, 1])).get("/").status(), 429);
    // Those of the proxy itself, and of another proxy behind it, are those of all their clients.
    for header in [binary(0x20, 0, b""), named([10, 0, 0, 1])] {
        let many: Vec<Client> = (0..3).map(|_| connect(&proxy, header.as_slice())).collect();
        many.into_iter().for_each(|mut client| assert_eq!(client.get("/").status(), 200));
    }
    drop(first);
    wait_for("the first connection to end", DEADLINE, || {
        (connect(&proxy, named([198, 51, 100, 1])).get("/").status() == 200).then_some(())
    });
}

/// Runs curl to its end, and gives back what it wrote.
fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--http1.1", "--max-time", "20"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = output_of(command.spawn().expect("curl is there"), "curl");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn curl_is_a_proxy_for_itself() {
    let origin = Origin::new("one");
    let proxy = proxy(&origin);
    for (scheme, address) in [("http", proxy.addresses[0]), ("https", proxy.addresses[1])] {
        let url = format!("{scheme}://{address}/");
        assert_eq!(curl(&["--insecure", "--haproxy-protocol", &url, &url]), "oneone");
        assert_eq!(told(&origin), "127.0.0.1");
        assert_ne!(curl(&["--insecure", &url]), "one");
    }
    assert_eq!(origin.requests().len(), 4);
}

/// An haproxy that runs until this is dropped.
pub struct Haproxy {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Haproxy {
    /// One whose configuration goes on with `text`, in which `LISTEN` is the address where it is to listen.
    #[track_caller]
    pub fn start(text: &str) -> Self {
        // The port stays ours until haproxy has it.
        let (_keeper, address) = refused_address();
        let text = text.replace("LISTEN", &address.to_string());
        let config = format!(
            "global\n  maxconn 100\ndefaults\n  timeout connect 20s\n  timeout client 20s\n  timeout server 20s\n{text}\n"
        );
        let setup = Setup::new("").file("haproxy.cfg", config);
        let mut command = Command::new("haproxy");
        command.args(["-db", "-q", "-f", "haproxy.cfg"]).current_dir(setup.folder());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("haproxy is there");
        let haproxy = Self { child, address };
        wait_for("haproxy to listen", DEADLINE, || TcpStream::connect(address).ok());
        haproxy
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        // Both fail only where it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "it needs haproxy; .ci/run has it"]
fn haproxy_in_front_names_its_clients() {
    let origin = Origin::new("one");
    let proxy = proxy(&origin);
    for (word, is_tls) in [("send-proxy", false), ("send-proxy-v2", false), ("send-proxy-v2", true)] {
        let to = proxy.addresses[usize::from(is_tls)];
        let options = "proxy-v2-options unique-id,authority";
        let extra = if word == "send-proxy-v2" { options } else { "" };
        let haproxy = Haproxy::start(&format!(
            "listen l\n  mode tcp\n  bind LISTEN\n  unique-id-format %ci-%cp\n  server s {to} {word} {extra}"
        ));
        for last in [5, 6] {
            let from = Some(IpAddr::from([127, 0, 0, last]));
            let tls = is_tls.then(|| ("a.test".to_owned(), Arc::clone(&tls::default_config())));
            let mut client = Options { from, tls, ..Options::default() }.connect(haproxy.address);
            assert_eq!(client.request(FROM).text(), "one");
            assert_eq!(told(&origin), format!("127.0.0.{last}"), "{word}");
        }
    }
}

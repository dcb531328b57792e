//! The demo with a test in the proxy's place: its files, its servers over real sockets, its guide, and what it leaves behind.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::*;
use crate::operator::check::{CheckReport, Style, check};
use crate::pure::pool::Address;
use crate::transport::tls::{CertificateName, certificate_names, expiry, load_certificate};

const ANY_PORTS: DemoOptions = DemoOptions { http: 0, https: 0 };

/// Starts the demo with `run` in the proxy's place; the guide that it printed.
fn start(run: impl FnOnce(&Path)) -> String {
    let mut out = Vec::new();
    demo(ANY_PORTS, &mut out, |rule_file| {
        run(rule_file);
        Ok::<_, Infallible>(())
    })
    .unwrap();
    String::from_utf8(out).unwrap()
}

/// The addresses of a pool's servers.
fn addresses(report: &CheckReport, pool: &str) -> Vec<(String, SocketAddr)> {
    let pools = &report.config.as_ref().unwrap().pools;
    let pool = pools.iter().find(|candidate| &*candidate.name == pool).unwrap();
    let address = |address: &Address| match address {
        Address::Socket(address) => *address,
        Address::Name(..) | Address::Unix(_) => panic!("the demo's servers have addresses"),
    };
    pool.servers.iter().map(|server| (server.id.server.to_string(), address(&server.address))).collect()
}

fn connect(server: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Sends a request and reads the answer to the connection's end, in lower case up to its body.
fn ask(server: SocketAddr, method: &str, path: &str, body: &str) -> (String, String) {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: {length}\r\nX-Mine: 1\r\n\r\n{body}"
    );
    let mut answer = String::new();
    connect(server, &request).read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

#[test]
fn its_rule_file_passes_its_own_check_without_a_warning() {
    start(|rule_file| {
        let report = check(rule_file);
        assert!(report.is_good() && report.warnings.is_empty(), "{}", report.render(Style::Plain));
        assert_eq!(report.expects_run, 9);
        let config = report.config.unwrap();
        assert_eq!(config.pools.iter().map(|pool| pool.servers.len()).collect::<Vec<_>>(), [3, 2, 3]);
        assert!(config.access_log.is_some());
        assert!(config.listeners.iter().all(|listener| listener.address.stand_in().ip().is_loopback()));
    });
}

#[test]
fn every_server_says_its_name_in_each_answer() {
    start(|rule_file| {
        let report = check(rule_file);
        for (pool, path, media_type) in [
            ("pages", "/", "text/html"),
            ("pages", "/about", "text/html"),
            ("images", "/img/one.svg", "image/svg+xml"),
            ("images", "/two", "image/svg+xml"),
            ("api", "/api/hello?a=1", "application/json"),
            ("api", "/api/slow?ms=1", "application/json"),
        ] {
            for (name, address) in addresses(&report, pool) {
                let (head, body) = ask(address, "GET", path, "");
                assert!(head.starts_with("http/1.1 200 "), "{head}");
                assert!(head.contains(&format!("x-served-by: {name}\r\n")), "{head}");
                assert!(head.contains(&format!("content-type: {media_type}")), "{head}");
                assert!(body.contains(&name), "{body}");
            }
        }
    });
}

#[test]
fn the_api_shows_requests_gives_bodies_back_and_fails_when_asked_to() {
    start(|rule_file| {
        let (_, api) = addresses(&check(rule_file), "api").remove(0);
        let (_, body) = ask(api, "PUT", "/api/hello?a=1", "");
        let seen: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (&seen["method"], &seen["query"], &seen["fields"]["x-mine"]),
            (&"PUT".into(), &"a=1".into(), &"1".into())
        );
        assert_eq!(ask(api, "POST", "/api/echo", "hello").1, "hello");
        assert!(ask(api, "GET", "/api/status/503", "").0.starts_with("http/1.1 503 "));
        assert!(ask(api, "GET", "/api/status/100", "").0.starts_with("http/1.1 400 "));
        assert!(ask(api, "GET", "/api/nothing", "").0.starts_with("http/1.1 404 "));
    });
}

#[test]
fn markup_in_a_path_stays_text() {
    start(|rule_file| {
        let report = check(rule_file);
        for pool in ["pages", "images"] {
            let (_, body) = ask(addresses(&report, pool)[0].1, "GET", "/a&amp;b", "");
            assert!(body.contains("/a&amp;amp;b"), "{body}");
        }
    });
    assert_eq!(answers::escaped("<a b=\"&\">"), "&lt;a b=&quot;&amp;&quot;&gt;");
}

#[test]
fn events_come_while_the_answer_goes_on() {
    start(|rule_file| {
        let (name, api) = addresses(&check(rule_file), "api").remove(1);
        let mut lines = BufReader::new(connect(api, "GET /events HTTP/1.1\r\nHost: a.test\r\n\r\n")).lines();
        let event = lines.find_map(|line| line.unwrap().strip_prefix("data: ").map(str::to_owned)).unwrap();
        assert_eq!(event, format!("{{\"server\":\"{name}\",\"number\":1}}"));
    });
}

#[test]
fn a_websocket_opens_greets_and_gives_back() {
    start(|rule_file| {
        let (name, api) = addresses(&check(rule_file), "api").remove(2);
        let request = "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let mut stream = BufReader::new(connect(api, request));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.to_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        let mut frame = vec![0; 2 + "hello from ".len() + name.len()];
        stream.read_exact(&mut frame).unwrap();
        assert_eq!(frame[2..], *format!("hello from {name}").as_bytes());
        // "hi" under a mask of zeros, and the same without a mask back.
        stream.get_mut().write_all(&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i']).unwrap();
        let mut echo = [0; 4];
        stream.read_exact(&mut echo).unwrap();
        assert_eq!(echo, [0x81, 2, b'h', b'i']);
        assert!(ask(api, "GET", "/ws", "").0.starts_with("http/1.1 426 "));
    });
}

#[test]
fn the_guide_names_ports_servers_and_files() {
    let mut path = PathBuf::new();
    let guide = start(|rule_file| path = rule_file.to_owned());
    let lines = guide.lines().count();
    assert!(lines < 40, "it fits on a screen");
    for text in ["8 servers in 3 pools", "page-1 127.0.0.1:", "curl -N http://127.0.0.1:", "/events", "--cacert"] {
        assert!(guide.contains(text), "{text:?} in {guide}");
    }
    assert!(guide.contains(&format!("pointsman explain {} GET http://127.0.0.1:", path.display())), "{guide}");
}

#[test]
fn the_certificate_is_for_this_machine_and_for_a_month() {
    start(|rule_file| {
        let config = check(rule_file).config.unwrap();
        let files = &config.listeners[1].tls.as_ref().unwrap().certificates[0].files;
        let loaded = load_certificate(files).unwrap();
        let names = certificate_names(&loaded.cert[0]);
        assert!(names.contains(&CertificateName::Host("localhost".into())), "{names:?}");
        assert!(names.contains(&CertificateName::Address(Ipv4Addr::LOCALHOST.into())), "{names:?}");
        let left = expiry(&loaded).unwrap().duration_since(crate::base::time::wall_clock()).unwrap();
        assert!((28..30).contains(&(left.as_secs() / 86_400)), "{left:?}");
    });
}

#[test]
fn nothing_is_left_when_it_ends() {
    let mut left = None;
    start(|rule_file| {
        let (_, api) = addresses(&check(rule_file), "api").remove(0);
        let mut events = connect(api, "GET /events HTTP/1.1\r\nHost: a.test\r\n\r\n");
        events.read_exact(&mut [0; 12]).unwrap();
        left = Some((rule_file.to_owned(), events));
    });
    let (rule_file, mut events) = left.unwrap();
    assert!(!rule_file.parent().unwrap().exists());
    // The server is gone: its answer, which has no end, breaks off.
    events.read_to_end(&mut Vec::new()).ok();
}

#[test]
fn the_key_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new().unwrap();
    let file = folder.write("key", "secret").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(folder.path()), mode(&file)), (0o700, 0o600));
    assert!(folder.write("key", "another").is_err(), "a file that is there is not written over");
}

#[test]
fn a_port_in_use_is_said_with_the_option_that_changes_it() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    for (options, option) in
        [(DemoOptions { http: port, https: 0 }, "http"), (DemoOptions { http: 0, https: port }, "https")]
    {
        let error = demo(options, &mut Vec::new(), |_| Ok::<_, Infallible>(())).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "can't listen on 127.0.0.1:{port}: Address already in use (os error 98) (another program listens there); \
                 `pointsman demo --{option} {}` takes another port",
                other_port(port)
            )
        );
    }
    let error = choose_ports::<Infallible>(DemoOptions { http: 8080, https: 8080 }).unwrap_err();
    assert_eq!(error.to_string(), "HTTP and HTTPS can't both have port 8080: `--http` and `--https` must differ");
    assert_eq!((other_port(80), other_port(443), other_port(8080), other_port(65_535)), (8080, 8443, 8081, 8000));
}

#[test]
fn an_error_of_the_proxy_comes_through_as_it_is() {
    let error = demo(ANY_PORTS, &mut Vec::new(), |_| Err(io::Error::other("the proxy said no"))).unwrap_err();
    assert_eq!(error.to_string(), "the proxy said no");
}

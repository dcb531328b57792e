//! Unix sockets, on both sides: curl at a listener, Python's server behind a pool.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use crate::support::proxy::output_of;
use crate::support::{DEADLINE, End, Origin, Proxy, Setup, wait_for};

/// Runs curl through a unix socket; what it got, the status behind it.
fn curl(socket: &Path, arguments: &[&str]) -> String {
    let child = Command::new("curl")
        .args(["-sS", "--max-time", "20", "-w", "\n%{http_code}", "--unix-socket"])
        .arg(socket)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl is there");
    let output = output_of(child, "curl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn listener(settings: &str, origin: &Origin) -> String {
    format!(
        "workers 2\nlisten \"unix:run/p.sock\" {{ via \"off\"; {settings} }}\nlisten \"127.0.0.1:0\"\n\
         pool \"p\" {{ server \"o\" \"{}\" }}\nrule client=\"192.0.2.7\" respond=403 body=\"you\"\n\
         rule listen=\"unix:run/p.sock\" use=\"p\"\nrule respond=404\naccess-log \"access.log\"\n",
        origin.address
    )
}

fn start(rules: &str) -> Proxy {
    let setup = Setup::new(rules).file("run/here", "");
    let socket = setup.folder().join("run/p.sock");
    let proxy = setup.start();
    wait_for("the unix socket to be served", DEADLINE, || {
        (proxy.errors().iter().any(|line| line.contains("listening on unix:")) && socket.exists()).then_some(())
    });
    proxy
}

#[test]
fn curl_is_served_through_a_unix_socket_that_goes_with_the_process() {
    let origin = Origin::with(|exchange| {
        let mut body = Vec::new();
        while let Some(piece) = exchange.piece() {
            body.extend_from_slice(&piece);
        }
        exchange.respond(200, &[], &body);
    });
    let mut proxy = start(&listener("", &origin));
    let socket = proxy.path("run/p.sock");
    assert_eq!(mode_of(&socket), 0o660);
    assert_eq!(curl(&socket, &["http://a.test/x"]), "\n200");
    assert_eq!(curl(&socket, &["http://a.test/1", "http://a.test/2"]), "\n200\n200");
    std::fs::write(proxy.path("body"), vec![b'x'; 3_000_000]).unwrap();
    let file = format!("@{}", proxy.path("body").display());
    let answer = curl(&socket, &["--data-binary", &file, "http://a.test/"]);
    assert_eq!((answer.len(), answer.ends_with("x\n200")), (3_000_004, true));
    let seen = &origin.requests()[0].head;
    assert_eq!((seen.field("x-forwarded-for"), seen.field("x-forwarded-port")), (Some("127.0.0.1"), Some("80")));
    // Nobody at a unix socket is believed unasked.
    assert_eq!(curl(&socket, &["-H", "X-Forwarded-For: 192.0.2.7", "http://a.test/"]), "\n200");
    assert_eq!(proxy.client().get("/").status(), 404, "by the other listener");
    let record = &proxy.wait_for_records("access.log", 5)[0];
    assert!(record["listener"].as_str().unwrap().ends_with("run/p.sock"), "{record}");
    assert_eq!((record["client"].as_str(), record["status"].as_u64()), (Some("127.0.0.1"), Some(200)));
    proxy.signal(Signal::SIGTERM);
    assert!(proxy.wait_for_exit().success());
    assert!(!socket.exists());
}

#[test]
fn fields_of_a_trusted_unix_peer_are_believed() {
    let origin = Origin::new("one");
    let proxy = start(&listener("trusted-proxies \"unix\" \"10.0.0.0/8\"; mode \"0666\"", &origin));
    let socket = proxy.path("run/p.sock");
    assert_eq!(mode_of(&socket), 0o666);
    for list in ["192.0.2.7", "203.0.113.1, 192.0.2.7", "192.0.2.7, 10.0.0.1"] {
        assert_eq!(curl(&socket, &["-H", &format!("X-Forwarded-For: {list}"), "http://a.test/"]), "you\n403");
    }
    assert_eq!(curl(&socket, &["-H", "X-Forwarded-For: 192.0.2.8", "http://a.test/"]), "one\n200");
    let seen = &origin.requests()[0].head;
    assert_eq!(seen.field("x-forwarded-for"), Some("192.0.2.8, 127.0.0.1"));
}

#[test]
fn the_socket_of_a_dead_process_is_replaced_and_that_of_a_living_one_is_not() {
    let origin = Origin::new("one");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("p.sock");
    let rules = listener("", &origin).replace("run/p.sock", &socket.display().to_string());
    let mut first = Setup::new(&rules).start();
    wait_for("the socket", DEADLINE, || socket.exists().then_some(()));
    let second = Setup::new(&rules).run_to_end(&["run"]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(3), "{said}");
    assert!(said.contains("p.sock") && said.contains("somebody listens there already"), "{said}");
    assert_eq!(curl(&socket, &["http://a.test/"]), "one\n200", "the first is unharmed");
    first.signal(Signal::SIGKILL);
    first.wait_for_exit();
    assert!(socket.exists(), "nobody was left to remove it");
    let _third = Setup::new(&rules).start();
    wait_for("the socket to be served again", DEADLINE, || UnixStream::connect(&socket).ok());
    assert_eq!(curl(&socket, &["http://a.test/"]), "one\n200");
}

/// HTTP/1.0 without a Host, a request cut short, and a client that goes away: as over TCP.
#[test]
fn raw_clients_of_a_unix_socket_get_what_those_of_tcp_get() {
    let origin = Origin::new("one");
    let proxy = start(&listener("", &origin));
    let socket = proxy.path("run/p.sock");
    let ask = |bytes: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("GET / HTTP/1.0\r\n\r\n").ends_with("\r\n\r\none"));
    assert_eq!(origin.requests()[0].head.field("host"), Some("127.0.0.1:80"));
    assert!(ask("NONSENSE\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let mut gone = UnixStream::connect(&socket).unwrap();
    gone.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nshort").unwrap();
    origin.wait_for_requests(2);
    drop(gone);
    wait_for("the client's end to be logged", DEADLINE, || {
        let records = proxy.wait_for_records("access.log", 3);
        records.iter().any(|record| record["reason"] == "client-gone").then_some(())
    });
}

/// Python's own HTTP server on a unix socket; it answers with the path, or with the body that it got.
const PYTHON: &str = r#"
import http.server, socketserver, sys
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    def get_request(self):
        connection, _ = super().get_request()
        return connection, ("unix", 0)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(self.path.encode())
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))
    def log_message(self, *rest):
        pass
Server(sys.argv[1], Handler).serve_forever()
"#;

/// A server that is killed with this.
struct Python(Child);

impl Python {
    fn start(socket: &Path) -> Self {
        let _ = std::fs::remove_file(socket);
        let child = Command::new("python3").args(["-c", PYTHON]).arg(socket).spawn().expect("python3 is there");
        let server = Self(child);
        wait_for("Python's server", DEADLINE, || UnixStream::connect(socket).ok());
        server
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A unix socket tells at once that its other side is closed: what it has sent is still to be read.
#[test]
fn a_tunnel_of_a_server_that_closes_its_unix_socket_loses_nothing_of_what_it_has_said() {
    const SIZE: usize = 200_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let mut is_first = true;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
            let answer = if std::mem::take(&mut is_first) {
                format!("{switch}{}", "a".repeat(SIZE))
            } else {
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\none".to_owned()
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let proxy = Proxy::start(&format!(
        "workers 1\nlisten \"127.0.0.1:0\"\n\
         pool \"p\" {{ server \"o\" \"unix:{}\" max=1; queue max=1 timeout=\"20s\" }}\nrule use=\"p\"\n",
        path.display()
    ));
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.head().status(), 101);
    // The tunnel is over, for its place is free; the client has not read what came of it.
    assert_eq!(proxy.client().get("/").text(), "one");
    let (said, end) = client.rest();
    assert_eq!((said.len(), end), (SIZE, End::Closed));
}

#[test]
fn a_server_at_a_unix_socket_is_asked_given_up_and_taken_back() {
    let setup = Setup::new(
        "workers 1\nlisten \"127.0.0.1:0\"\npool \"p\" { server \"o\" \"unix:app.sock\" }\nrule use=\"p\"\n\
         access-log \"access.log\"\n",
    );
    let socket = setup.folder().join("app.sock");
    let server = Python::start(&socket);
    let proxy = setup.start();
    let mut client = proxy.client();
    for path in ["/a", "/b?c"] {
        assert_eq!(client.get(path).text(), path);
    }
    let body = "y".repeat(2_000_000);
    let post = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(client.request(post).text(), body);
    let records = proxy.wait_for_records("access.log", 3);
    assert!(
        records[0]["connect_us"].is_u64() && records[1]["connect_us"].is_null(),
        "a connection was kept: {records:?}"
    );
    drop(server);
    wait_for("suspicion", DEADLINE, || {
        assert_eq!(client.get("/").status(), 502);
        proxy.errors().iter().any(|line| line.contains("is suspect")).then_some(())
    });
    let refused = proxy.wait_for_records("access.log", 4);
    assert!(refused.iter().any(|record| record["reason"] == "connect-refused"), "{refused:?}");
    let _again = Python::start(&socket);
    proxy.wait_for_error("is up");
    assert_eq!(client.get("/again").text(), "/again");
}

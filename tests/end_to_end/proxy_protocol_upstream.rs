//! The PROXY protocol towards servers: every connection begins with a header that names the client's connection, and is
//! used for no other.

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::pools::all_to;
use crate::proxy_protocol::Haproxy;
use crate::support::client::Options;
use crate::support::deadline::Deadline;
use crate::support::wire::Wire;
use crate::support::{Client, DEADLINE, End, Proxy, wait_for};

/// A connection to [`Server`]: the header that it began with, and the targets that were asked for on it.
#[derive(Clone, Debug)]
struct Seen {
    header: Vec<u8>,
    targets: Vec<String>,
    has_ended: bool,
}

/// A server that waits for a PROXY header on each connection and then answers requests.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// Reads a header of either version, and nothing behind it.
fn header(wire: &mut Wire, deadline: Deadline) -> Result<Vec<u8>, End> {
    let mut header = wire.exactly(8, deadline)?;
    if header == b"\r\n\r\n\0\r\nQ" {
        header.extend(wire.exactly(8, deadline)?);
        let length = usize::from(u16::from_be_bytes([header[14], header[15]]));
        header.extend(wire.exactly(length, deadline)?);
    }
    while header.starts_with(b"PROXY") && !header.ends_with(b"\r\n") {
        header.extend(wire.exactly(1, deadline)?);
    }
    Ok(header)
}

impl Server {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let all = Arc::clone(&seen);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (socket, all) = (socket.unwrap(), Arc::clone(&all));
                thread::spawn(move || Self::serve(&mut Wire::new(Box::new(socket)), &all));
            }
        });
        Self { address, seen }
    }

    fn serve(wire: &mut Wire, all: &Mutex<Vec<Seen>>) {
        let deadline = Deadline::after(15 * DEADLINE);
        let Ok(header) = header(wire, deadline) else { return };
        let number = {
            let mut all = all.lock().unwrap();
            all.push(Seen { header, targets: Vec::new(), has_ended: false });
            all.len() - 1
        };
        while let Ok(head) = wire.head(deadline) {
            all.lock().unwrap()[number].targets.push(head.target().to_owned());
            if wire.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", deadline).is_err() {
                break;
            }
        }
        all.lock().unwrap()[number].has_ended = true;
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn line(client: &Client, proxy: &Proxy) -> Vec<u8> {
    let (from, to) = (client.local, proxy.address());
    format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port()).into_bytes()
}

fn binary(client: &Client, proxy: &Proxy) -> Vec<u8> {
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => panic!("{address}"),
    };
    let (from, to) = (client.local, proxy.address());
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".as_slice(), &octets(from), &octets(to), &ports].concat()
}

#[test]
fn every_connection_names_its_clients_connection_and_is_used_for_no_other() {
    for version in ["v1", "v2"] {
        let server = Server::new();
        let upstream = format!("upstream \"http/1.1\" proxy-protocol=\"{version}\" idle-timeout=\"1m\"");
        let proxy = Proxy::start(&all_to([server.address], upstream));
        let mut clients: Vec<Client> = [1, 1, 7]
            .map(|last| {
                let from = Some(IpAddr::from([127, 0, 0, last]));
                Options { from, ..Options::default() }.connect(proxy.address())
            })
            .into();
        for round in 0..5 {
            for (number, client) in clients.iter_mut().enumerate() {
                assert_eq!(client.get(&format!("/{number}/{round}")).text(), "ok");
            }
        }
        let seen = server.seen();
        assert_eq!(seen.len(), clients.len(), "a connection for each client, used again: {seen:?}");
        for ((number, client), seen) in clients.iter().enumerate().zip(&seen) {
            let expected = if version == "v1" { line(client, &proxy) } else { binary(client, &proxy) };
            assert_eq!(seen.header, expected);
            assert_eq!(seen.targets, (0..5).map(|round| format!("/{number}/{round}")).collect::<Vec<_>>());
        }
        // They end with their client's connection.
        clients.remove(1);
        let ended = || server.seen().iter().map(|seen| seen.has_ended).collect::<Vec<_>>();
        wait_for("the second connection to end", DEADLINE, || (ended() == [false, true, false]).then_some(()));
        clients.clear();
        wait_for("all connections to end", DEADLINE, || (ended() == [true; 3]).then_some(()));
    }
}

#[test]
fn a_client_that_a_proxy_in_front_names_is_passed_on_and_one_that_it_does_not_name_is_not_made_up() {
    let server = Server::new();
    let rules = all_to([server.address], "upstream proxy-protocol=\"v2\"");
    let proxy = Proxy::start(&rules.replace("via \"off\"", "proxy-protocol; trusted-proxies \"127.0.0.1\""));
    let (high, low) = (proxy.address().port().to_be_bytes()[0], proxy.address().port().to_be_bytes()[1]);
    let signature = b"\r\n\r\n\0\r\nQUIT\n".as_slice();
    let v4 = [signature, b"\x21\x11\0\x0c", &[198, 51, 100, 1, 127, 0, 0, 1, 0, 9, high, low]].concat();
    let mut v6 = [0; 36];
    (v6[0], v6[1], v6[15], v6[33]) = (0x20, 0x01, 1, 9);
    v6[26..32].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    (v6[34], v6[35]) = (high, low);
    for (first, header) in [
        (b"PROXY TCP4 198.51.100.1 192.0.2.254 9 80\r\n".to_vec(), v4),
        (b"PROXY TCP6 2001::1 2001::2 9 80\r\n".to_vec(), [signature, b"\x21\x21\0\x24", &v6].concat()),
        (b"PROXY UNKNOWN\r\n".to_vec(), [signature, b"\x21\0\0\0"].concat()),
    ] {
        let mut client = Options { first, ..Options::default() }.connect(proxy.address());
        assert_eq!(client.get("/").text(), "ok");
        assert_eq!(server.seen().last().unwrap().header, header);
    }
}

/// A server that is tried again tells its log nothing of broken headers.
#[test]
fn checks_say_that_they_are_for_nobody() {
    for version in ["v1", "v2"] {
        let (keeper, address) = crate::support::refused_address();
        let proxy = Proxy::start(&all_to([address], format!("upstream proxy-protocol=\"{version}\"")));
        for _ in 0..3 {
            assert_eq!(proxy.client().get("/").status(), 502);
        }
        proxy.wait_for_error("is suspect");
        keeper.listen(16).unwrap();
        let listener = TcpListener::from(keeper);
        let (socket, peer) = listener.accept().unwrap();
        let header = header(&mut Wire::new(Box::new(socket)), Deadline::after(DEADLINE)).unwrap();
        let (from, to) = ((peer.ip(), peer.port()), (address.ip(), address.port()));
        let expected = match version {
            "v1" => format!("PROXY TCP4 {} {} {} {}\r\n", from.0, to.0, from.1, to.1).into_bytes(),
            _ => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec(),
        };
        assert_eq!(header, expected);
    }
}

/// Waits for a header of version 2 on each connection, and answers with the addresses in it.
const PYTHON: &str = r#"
import socket, socketserver, struct

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        head = self.rfile.read(16)
        if len(head) < 16:
            return
        assert head[:12] == b"\r\n\r\n\0\r\nQUIT\n" and head[12] == 0x21 and head[13] == 0x11, head
        block = self.rfile.read(struct.unpack("!H", head[14:])[0])
        source, target, source_port, target_port = struct.unpack("!4s4sHH", block[:12])
        body = f"{socket.inet_ntoa(source)}:{source_port} {socket.inet_ntoa(target)}:{target_port}".encode()
        while True:
            lines = []
            while not lines or lines[-1] not in (b"\r\n", b""):
                lines.append(self.rfile.readline())
            if lines[-1] == b"":
                return
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

socketserver.ThreadingTCPServer.daemon_threads = True
server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

/// A child process that is killed when the test is over.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only where it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a server says of each client must be what the client is.
fn assert_tells_clients(server: SocketAddr, upstream: &str) {
    let proxy = Proxy::start(&all_to([server], upstream));
    for last in [1, 2, 3] {
        let from = Some(IpAddr::from([127, 0, 0, last]));
        let mut client = Options { from, ..Options::default() }.connect(proxy.address());
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), format!("{} {}", client.local, proxy.address()));
        }
    }
}

#[test]
fn a_server_in_python_learns_who_the_client_is() {
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = Killed(command.spawn().expect("python3 is there"));
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let address = format!("127.0.0.1:{}", port.trim()).parse().unwrap();
    assert_tells_clients(address, "upstream \"http/1.1\" proxy-protocol=\"v2\"");
}

#[test]
#[ignore = "it needs haproxy; .ci/run has it"]
fn haproxy_as_a_server_learns_who_the_client_is() {
    let answer = "lf-string \"%[src]:%[src_port] %[dst]:%[dst_port]\"";
    let haproxy = Haproxy::start(&format!(
        "frontend f\n  mode http\n  bind LISTEN accept-proxy\n  http-request return status 200 content-type text/plain {answer}"
    ));
    for version in ["v1", "v2"] {
        assert_tells_clients(haproxy.address, &format!("upstream \"http/1.1\" proxy-protocol=\"{version}\""));
    }
}

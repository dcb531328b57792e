//! Checks over real sockets, each kind against servers that are well and servers that fail in each way.

use std::path::Path;

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};

use super::*;
use crate::pure::config::{MemoryFiles, load};
use crate::shared::endpoint::tests::endpoint;

mod http2;
mod ping;
mod tls;

const TIMEOUT: Duration = Duration::from_secs(20);
/// For servers that never answer.
const SHORT: Duration = Duration::from_millis(60);

fn run<T>(work: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap().block_on(work)
}

/// A pool with these lines, of one server at that address.
fn pool_at(address: &str, lines: &str) -> Arc<Pool> {
    let text =
        format!("listen \"127.0.0.1:1\"\npool \"p\" {{\nserver \"s\" \"{address}\"\n{lines}\n}}\nrule use=\"p\"\n");
    let config = load(&MemoryFiles::one("p.kdl", &text), Path::new("p.kdl"));
    Arc::clone(&config.unwrap_or_else(|errors| panic!("{lines}: {:?}", errors.problems)).pools[0])
}

/// What comes of the check of a pool with these lines at its server; a name has the addresses `named`.
async fn check_at(address: &Address, named: &[SocketAddr], lines: &str, timeout: Duration) -> Result<(), CheckFailure> {
    let pool = pool_at(&address.to_string(), lines);
    check(&endpoint(address.clone(), named), &pool, None, timeout).await.map(|_| ()).map_err(|error| error.as_failure())
}

/// Reads a request's head.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { break };
        head.push(byte);
    }
    String::from_utf8(head).unwrap()
}

/// Answers a request with these bytes and closes, or waits for the other side to do so.
async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8], closes: bool) -> String {
    let request = read_request(stream).await;
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    if !closes {
        while stream.read_u8().await.is_ok() {}
    }
    let _ = stream.shutdown().await;
    request
}

/// What comes of a check with these settings at a server that answers with these bytes, and what the server was sent.
fn asked(settings: &str, bytes: &[u8], closes: bool, timeout: Duration) -> (Result<(), CheckFailure>, String) {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Socket(listener.local_addr().unwrap());
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            answer(&mut stream, bytes, closes).await
        };
        tokio::join!(check_at(&address, &[], settings, timeout), server)
    })
}

fn answered(settings: &str, bytes: &[u8]) -> Result<(), CheckFailure> {
    asked(settings, bytes, false, TIMEOUT).0
}

fn wrong(wrong: WrongAnswer) -> Result<(), CheckFailure> {
    Err(CheckFailure::Answer(wrong))
}

fn bound() -> (Socket, Address) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = Address::Socket(socket.local_addr().unwrap().as_socket().unwrap());
    (socket, address)
}

/// What comes of the check of a pool without a `check`.
fn connected(address: &Address, timeout: Duration) -> Result<(), CheckFailure> {
    run(check_at(address, &[], "", timeout))
}

#[test]
fn a_server_that_listens_passes_and_one_that_does_not_is_refused() {
    let (socket, address) = bound();
    for lines in ["", "check", "check \"tcp\"", "check \"http\"", "upstream \"h2c\"; check \"grpc\""] {
        assert_eq!(run(check_at(&address, &[], lines, TIMEOUT)), Err(CheckFailure::Refused), "{lines}");
    }
    socket.listen(16).unwrap();
    assert_eq!(connected(&address, TIMEOUT), Ok(()));
}

#[test]
fn a_server_whose_queue_is_full_times_out() {
    let (socket, address) = bound();
    socket.listen(0).unwrap();
    let Address::Socket(target) = &address else { panic!("an address") };
    // Nobody accepts: once the queue is full, further connects get no answer.
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            let _ = client.connect(&(*target).into());
            client
        })
        .collect();
    assert_eq!(connected(&address, Duration::from_millis(100)), Err(CheckFailure::TimedOut));
    drop(waiting);
}

#[test]
fn a_missing_unix_socket_is_unreachable_and_a_name_that_is_not_resolved_says_nothing_of_its_server() {
    for (address, failure) in [
        (Address::Name("a.test".to_owned(), 80), CheckFailure::NotRun),
        (Address::Unix("/nowhere/at/all".into()), CheckFailure::Absent),
    ] {
        for lines in ["", "check \"http\""] {
            assert_eq!(run(check_at(&address, &[], lines, TIMEOUT)), Err(failure));
        }
    }
}

#[test]
fn a_proxy_header_that_finds_no_room_on_our_side_is_not_the_servers_fault() {
    for (kind, failure) in [
        (std::io::ErrorKind::WouldBlock, CheckFailure::NotRun),
        (std::io::ErrorKind::WriteZero, CheckFailure::NotRun),
        (std::io::ErrorKind::ConnectionReset, CheckFailure::Unreachable),
        (std::io::ErrorKind::BrokenPipe, CheckFailure::Unreachable),
    ] {
        assert_eq!(not_announced(kind.into()).as_failure(), failure, "{kind}");
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nall is well";

#[test]
fn a_check_asks_for_its_path_with_its_fields_and_closes() {
    let (result, request) = asked("check \"http\"", OK, false, TIMEOUT);
    assert_eq!(result, Ok(()));
    assert!(request.starts_with("GET / HTTP/1.1\r\nhost: 127.0.0.1:"), "{request}");
    assert!(request.ends_with("\r\nuser-agent: pointsman-check\r\nconnection: close\r\n\r\n"), "{request}");
    let settings = r#"check "http" path="/health?full=1" method="POST" host="a.test" { header "X-Check" "yes"; header "User-Agent" "me" }"#;
    let (result, request) = asked(settings, OK, false, TIMEOUT);
    assert_eq!(result, Ok(()));
    let expected = "POST /health?full=1 HTTP/1.1\r\nhost: a.test\r\ncontent-length: 0\r\nX-Check: yes\r\nUser-Agent: me\r\nconnection: close\r\n\r\n";
    assert_eq!(request, expected);
}

#[test]
fn the_status_decides() {
    let with = |status: u16| format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
    let result = |settings: &str, status: u16| answered(&format!("check \"http\" {settings}"), with(status).as_bytes());
    for (settings, status, is_good) in [
        ("", 200, true),
        ("", 302, true),
        ("", 404, false),
        ("", 500, false),
        ("status=\"200-299,404\"", 404, true),
        ("status=\"200-299,404\"", 302, false),
        ("status=\"5xx\"", 503, true),
    ] {
        let expected = if is_good { Ok(()) } else { wrong(WrongAnswer::Status(status)) };
        assert_eq!(result(settings, status), expected, "{settings} {status}");
    }
}

#[test]
fn the_body_is_looked_through_however_it_is_framed_and_cut_into_pieces() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nall i\r\n6\r\ns well\r\n0\r\n\r\n";
    for bytes in [OK, &chunked[..]] {
        assert_eq!(answered(r#"check "http" body="is well""#, bytes), Ok(()));
        assert_eq!(answered(r##"check "http" body-regex=#"^all \w+ well$"#"##, bytes), Ok(()));
        assert_eq!(answered(r#"check "http" body="is ill""#, bytes), wrong(WrongAnswer::Body));
        assert_eq!(answered(r##"check "http" body="well" body-regex="ill$""##, bytes), wrong(WrongAnswer::BodyRegex));
    }
    let until_close = b"HTTP/1.1 200 OK\r\n\r\nall is well";
    assert_eq!(asked(r#"check "http" body-regex="well$""#, until_close, true, TIMEOUT).0, Ok(()));
    assert_eq!(answered(r#"check "http" body="well""#, until_close), Ok(()), "what follows does not matter");
    assert_eq!(answered(r#"check "http" body="x" status="204""#, b"HTTP/1.1 204 N\r\n\r\n"), wrong(WrongAnswer::Body));
}

#[test]
fn no_more_of_an_answer_is_held_than_its_bound() {
    let endless = |text: &str| {
        let mut bytes = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        bytes.resize(bytes.len() + ANSWER_MAX, b'x');
        bytes.extend_from_slice(text.as_bytes());
        bytes
    };
    let result = answered(r#"check "http" body="well""#, &endless("well"));
    assert_eq!(result, wrong(WrongAnswer::Body), "what is beyond it is not looked at");
    let mut head = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    head.resize(2 * ANSWER_MAX, b'x');
    assert_eq!(answered(r#"check "http""#, &head), wrong(WrongAnswer::Malformed));
    let interim = b"HTTP/1.1 103 E\r\nX: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n\r\n".repeat(2_000);
    assert_eq!(answered(r#"check "http""#, &interim), wrong(WrongAnswer::Malformed));
}

#[test]
fn interim_answers_are_passed_over() {
    let bytes = [b"HTTP/1.1 103 Early\r\nLink: <x>\r\n\r\n".as_slice(), OK].concat();
    assert_eq!(answered(r#"check "http" body="well""#, &bytes), Ok(()));
    assert_eq!(
        answered(r#"check "http""#, b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
        wrong(WrongAnswer::Malformed)
    );
}

#[test]
fn what_is_no_answer_fails_with_its_reason() {
    for (bytes, expected) in [
        (&b"SSH-2.0-x\r\n"[..], WrongAnswer::Malformed),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", WrongAnswer::Malformed),
        (b"HTTP/1.1 200 OK\r\nContent-Le", WrongAnswer::Cut),
        (b"", WrongAnswer::Cut),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nall is well", WrongAnswer::Cut),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", WrongAnswer::Malformed),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nall\r\n", WrongAnswer::Cut),
    ] {
        let result = asked(r#"check "http" body="nowhere""#, bytes, true, TIMEOUT).0;
        assert_eq!(result, wrong(expected), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn a_server_that_accepts_and_does_not_finish_its_answer_times_out() {
    for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nall"] {
        let result = asked(r#"check "http" body="nowhere""#, bytes, false, SHORT).0;
        assert_eq!(result, Err(CheckFailure::TimedOut), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn a_head_alone_is_asked_for_by_its_method() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    assert_eq!(answered(r#"check "http" method="HEAD""#, bytes), Ok(()));
}

#[test]
fn the_proxy_header_comes_first_where_the_pool_has_one_and_the_check_is_not_plain() {
    for (version, begins) in [("v1", "PROXY TCP4 127.0.0.1 127.0.0.1 "), ("v2", "\r\n\r\n\0\r\nQUIT\n ")] {
        let begun = |settings: &str| {
            run(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = Address::Socket(listener.local_addr().unwrap());
                let lines = format!("upstream \"http/1.1\" proxy-protocol=\"{version}\"; {settings}");
                let server = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut begun = Vec::new();
                    while !begun.ends_with(b"close\r\n\r\n") {
                        let Ok(byte) = stream.read_u8().await else { break };
                        begun.push(byte);
                    }
                    let _ = stream.write_all(OK).await;
                    String::from_utf8_lossy(&begun).into_owned()
                };
                let (result, begun) = tokio::join!(check_at(&address, &[], &lines, TIMEOUT), server);
                assert_eq!(result, Ok(()));
                begun
            })
        };
        for settings in ["", "check \"tcp\"", "check \"http\""] {
            assert!(begun(settings).starts_with(begins), "{version} {settings}: {:?}", begun(settings));
        }
        assert_eq!(begun("check \"tcp\" plain=#true"), "");
        assert!(begun("check \"http\" plain=#true").starts_with("GET / "));
    }
}

#[test]
fn a_check_asks_at_its_own_port_and_tries_each_address_of_a_name() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Nobody listens at the port of requests, and nobody at the first address.
        let (_closed, address) = bound();
        let name = Address::Name("a.test".to_owned(), 1);
        let named: [SocketAddr; 2] = [([127, 0, 0, 2], 1).into(), ([127, 0, 0, 1], 1).into()];
        for (address, named) in [(address, &named[..0]), (name, &named[..])] {
            let settings = format!("check \"http\" port={port}");
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                answer(&mut stream, OK, false).await
            };
            let (result, request) = tokio::join!(check_at(&address, named, &settings, TIMEOUT), server);
            assert_eq!(result, Ok(()), "{address}");
            assert!(request.contains(&format!(":{port}\r\n")), "{request}");
        }
    });
}

#[test]
fn a_unix_socket_is_asked_like_any_other_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    run(async {
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            answer(&mut stream, OK, false).await
        };
        let address = Address::Unix(path.clone());
        let (result, request) = tokio::join!(check_at(&address, &[], "check \"http\"", TIMEOUT), server);
        assert_eq!(result, Ok(()));
        assert!(request.contains("host: localhost\r\n"), "{request}");
    });
}

#[test]
fn a_server_with_an_address_of_its_own_for_checks_is_asked_there() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        // Nobody listens where requests go, and nobody at the port that the others are asked at.
        let (_closed, address) = bound();
        let mut pool = Arc::unwrap_or_clone(pool_at(&address.to_string(), "check \"http\" port=1"));
        let mut config = CheckConfig::clone(pool.check.as_deref().unwrap());
        let endpoint = endpoint(address, &[]);
        config.addresses.insert(Arc::clone(&endpoint.server.id.server), Address::Socket(own));
        pool.check = Some(Arc::new(config));
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            answer(&mut stream, OK, false).await
        };
        let (result, request) = tokio::join!(check(&endpoint, &pool, None, TIMEOUT), server);
        assert!(result.is_ok(), "{result:?}");
        assert!(request.contains(&format!("host: {own}\r\n")), "{request}");
    });
}

//! HTTP/2 towards clients: what requests and answers become on their way, with the `h2` crate and raw frames as clients.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};

use crate::pools::all_to;
use crate::support::client::Options;
use crate::support::frames::{FrameClient, StreamEnd, kind, request};
use crate::support::tls::{Certificate, client_config};
use crate::support::{DEADLINE, Origin, Proxy, Setup};

/// Rules for a plain listener that speaks HTTP/2 alone.
pub fn h2c(origin: &Origin, settings: &str) -> String {
    all_to([origin], "").replacen("via \"off\"", &format!("via \"off\"; protocols \"h2c\"\n{settings}\n"), 1)
}

/// Runs a client to its end, within the deadline of all tests.
pub fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async { tokio::time::timeout(DEADLINE, client).await.expect("the client ends in time") })
}

/// A connection with prior knowledge, driven in the background.
pub async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    client
}

/// An answer's head, body and trailers.
pub type Answer = (Response<()>, Vec<u8>, Option<HeaderMap>);

/// Sends a request with a body, or none where it is empty, and trailers.
pub async fn send(
    client: &mut SendRequest<Bytes>,
    request: Request<()>,
    body: &[&[u8]],
    trailers: Option<HeaderMap>,
) -> Result<Answer, h2::Error> {
    *client = client.clone().ready().await?;
    let (response, mut stream) = client.send_request(request, body.is_empty() && trailers.is_none())?;
    for (place, piece) in body.iter().enumerate() {
        let is_last = place + 1 == body.len() && trailers.is_none();
        stream.send_data(Bytes::copy_from_slice(piece), is_last)?;
    }
    if let Some(trailers) = trailers {
        stream.send_trailers(trailers)?;
    }
    let (head, mut body) = response.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        bytes.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len())?;
    }
    Ok((Response::from_parts(head, ()), bytes, body.trailers().await?))
}

/// Asks for a path.
pub async fn get(client: &mut SendRequest<Bytes>, path: &str) -> Result<(Response<()>, Vec<u8>), h2::Error> {
    let request = Request::get(format!("http://a.test{path}")).body(()).unwrap();
    send(client, request, &[], None).await.map(|(head, body, _)| (head, body))
}

fn post(path: &str) -> http::request::Builder {
    Request::post(format!("http://a.test{path}"))
}

#[test]
fn requests_over_http2_reach_http1_servers() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    run(async {
        let mut client = connect(proxy.address()).await;
        for _ in 0..3 {
            let (head, body) = get(&mut client, "/a?b").await.unwrap();
            assert_eq!((head.status().as_u16(), body.as_slice()), (200, &b"one"[..]));
        }
    });
    let requests = origin.wait_for_requests(3);
    assert_eq!(requests[0].head.target(), "/a?b");
    assert_eq!(origin.accepted(), 1);
}

#[test]
fn over_tls_the_protocol_is_agreed_on_and_each_is_served() {
    let origin = Origin::new("one");
    let tls = "listen \"127.0.0.1:0\" {\n    tls { certificate \"a.crt\" key=\"a.key\" }\n";
    let rules = all_to([&origin], "").replacen("listen \"127.0.0.1:0\" {", tls, 1);
    let proxy = Setup::new(&rules).certificate("a", &Certificate::for_names(&["a.test"])).start();
    let offers: [(&[&str], Option<&str>); 4] =
        [(&["h2", "http/1.1"], Some("h2")), (&["h2"], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)];
    for (offered, agreed) in offers {
        let config = client_config(rustls::ALL_VERSIONS, offered);
        let tls = Some(("a.test".to_owned(), config));
        let mut client = Options { tls, ..Options::default() }.connect(proxy.address());
        assert_eq!(client.handshake.as_ref().unwrap().protocol.as_deref(), agreed);
        if agreed == Some("h2") {
            let mut client = FrameClient::with(client, &[]);
            client.get(1, "/");
            assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"one".to_vec()));
        } else {
            assert_eq!(client.get("/").text(), "one");
        }
    }
    let told: Vec<_> = origin.requests().iter().map(|r| r.head.field("x-forwarded-proto").map(str::to_owned)).collect();
    assert!(told.iter().all(|told| told.as_deref() == Some("https")), "{told:?}");
}

#[test]
fn a_plain_listener_tells_both_protocols_by_their_first_bytes() {
    let origin = Origin::new("one");
    let rules = all_to([&origin], "").replacen("via \"off\"", "via \"off\"; protocols \"http/1.1\" \"h2c\"", 1);
    let proxy = Proxy::start(&rules);
    assert_eq!(proxy.client().get("/").text(), "one");
    let mut client = proxy.client();
    client.send("P");
    client.send("UT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().text(), "one");
    let mut client = FrameClient::connect(proxy.address());
    client.get(1, "/");
    assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"one".to_vec()));
    // Where it is not asked for, the preface is a request that is malformed.
    let other = Proxy::start(&all_to([&origin], ""));
    let mut client = other.client();
    client.send(crate::support::frames::PREFACE);
    assert_eq!(client.response().status(), 505);
}

#[test]
fn cookie_crumbs_reach_an_http1_server_as_one_field_in_order() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::connect(proxy.address());
    let crumbs = [("cookie", "a=1"), ("x-between", "y"), ("cookie", "b=2; c=3"), ("cookie", "d=4")];
    client.head(1, &request("GET", "/", &crumbs), true);
    assert!(matches!(client.end_of(1), StreamEnd::Answered(200, _)));
    assert_eq!(origin.requests()[0].head.all("cookie"), ["a=1; b=2; c=3; d=4"]);
    assert_eq!(origin.requests()[0].head.all("host"), ["a.test"]);
}

#[test]
fn interim_answers_pass_and_the_final_one_comes_behind_them() {
    let origin = Origin::with(|exchange| {
        exchange.write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        exchange.write("HTTP/1.1 102 Processing\r\n\r\n");
        exchange.read_body();
        exchange.respond(201, &[], b"made");
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::connect(proxy.address());
    client.get(1, "/");
    assert!(matches!(client.end_of(1), StreamEnd::Answered(..)));
    let heads = client.seen.iter().filter(|frame| frame.kind == kind::HEADERS);
    let heads: Vec<_> = heads.map(|frame| (frame.status(), frame.ends_stream())).collect();
    assert_eq!(heads, [(Some(103), false), (Some(102), false), (Some(201), false)]);
}

#[test]
fn a_client_that_expects_100_over_http2_gets_exactly_one() {
    for leaves in [1, 2] {
        let origin = Origin::with(move |exchange| {
            exchange.write("HTTP/1.1 100 Continue\r\n\r\n".repeat(leaves));
            exchange.read_body();
            exchange.respond(200, &[], b"two");
        });
        let proxy = Proxy::start(&h2c(&origin, ""));
        let mut client = FrameClient::connect(proxy.address());
        client.post(1, "/", &[("expect", "100-continue"), ("content-length", "4")]);
        let first = client.next_that(|frame| frame.kind == kind::HEADERS).unwrap();
        assert_eq!((first.status(), first.ends_stream()), (Some(100), false));
        client.data(1, b"body", true);
        assert_eq!(client.end_of(1), StreamEnd::Answered(200, b"two".to_vec()));
        let interim = client.seen.iter().filter(|frame| frame.kind == kind::HEADERS && !frame.ends_stream());
        assert_eq!(interim.count(), 2, "one 100 and the head of the answer");
        let request = origin.requests().pop().unwrap();
        assert_eq!((request.body.as_slice(), request.is_complete), (&b"body"[..], true));
    }
}

#[test]
fn trailers_pass_both_ways() {
    let origin = Origin::with(|exchange| {
        exchange.read_body();
        exchange
            .write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nGrpc-Status: 5\r\n\r\n");
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    run(async {
        let mut client = connect(proxy.address()).await;
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "7".parse().unwrap());
        let request = post("/").header("te", "trailers").body(()).unwrap();
        let (head, body, trailers) = send(&mut client, request, &[b"up"], Some(trailers)).await.unwrap();
        assert_eq!((head.status().as_u16(), body.as_slice()), (200, &b"hello"[..]));
        assert_eq!(trailers.unwrap()["grpc-status"], "5");
    });
    let request = &origin.requests()[0];
    assert_eq!((request.body.as_slice(), request.is_complete), (&b"up"[..], true));
    assert_eq!(request.trailers, [("x-sum".to_owned(), "7".to_owned())]);
}

/// A head whose server says that nothing follows, or that something would if it were no HEAD, ends the stream by itself.
#[test]
fn answers_without_a_body_end_their_stream_with_their_head() {
    let origin = Origin::with(|exchange| {
        let head = match exchange.head.target() {
            "/204" => "204 No Content\r\n",
            "/304" => "304 Not Modified\r\nContent-Length: 1000\r\n",
            "/0" => "200 OK\r\nContent-Length: 0\r\n",
            _ => "200 OK\r\nContent-Length: 1000\r\n",
        };
        exchange.write(format!("HTTP/1.1 {head}\r\n"));
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    for (method, path, status) in [("GET", "/204", 204), ("GET", "/304", 304), ("GET", "/0", 200), ("HEAD", "/", 200)] {
        let mut client = FrameClient::connect(proxy.address());
        client.head(1, &request(method, path, &[]), true);
        assert_eq!(client.end_of(1), StreamEnd::Answered(status, Vec::new()));
        assert!(client.seen.iter().any(|frame| frame.kind == kind::HEADERS && frame.ends_stream()), "{path}");
    }
    run(async {
        let mut client = connect(proxy.address()).await;
        let head = Request::head("http://a.test/").body(()).unwrap();
        let (head, _, _) = send(&mut client, head, &[], None).await.unwrap();
        assert_eq!(head.headers()["content-length"], "1000");
    });
}

#[test]
fn fields_of_a_servers_connection_stay_behind() {
    let origin = Origin::with(|exchange| {
        exchange.write(
            "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Mixed: 1\r\n\
             Set-Cookie: a\r\nSet-Cookie: b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        );
    });
    let proxy = Proxy::start(&h2c(&origin, ""));
    run(async {
        let mut client = connect(proxy.address()).await;
        let (head, body) = get(&mut client, "/").await.unwrap();
        assert_eq!(body, b"ok");
        assert_eq!(head.headers()["x-mixed"], "1");
        assert_eq!(head.headers().get_all("set-cookie").iter().collect::<Vec<_>>(), ["a", "b"]);
        for name in ["connection", "x-hop", "keep-alive", "transfer-encoding"] {
            assert!(!head.headers().contains_key(name), "{name}");
        }
    });
}

/// The last chunk goes out once, though the stream ends by a frame without data: what follows on the server's connection
/// is the next request and nothing else.
#[test]
fn the_last_chunk_is_written_once_after_an_empty_http2_frame() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    let mut client = FrameClient::connect(proxy.address());
    for stream in [1, 5, 9, 13] {
        client.post(stream, "/", &[]);
        client.data(stream, b"hello", false);
        client.data(stream, b"", true);
        assert_eq!(client.end_of(stream), StreamEnd::Answered(200, b"one".to_vec()));
        client.get(stream + 2, "/next");
        assert_eq!(client.end_of(stream + 2), StreamEnd::Answered(200, b"one".to_vec()));
    }
    let requests = origin.requests();
    assert_eq!((requests.len(), origin.accepted()), (8, 1));
    for pair in requests.chunks(2) {
        assert_eq!((pair[0].body.as_slice(), pair[0].is_complete), (&b"hello"[..], true));
        assert_eq!((pair[1].head.target(), pair[1].is_complete), ("/next", true));
    }
}

#[test]
fn limit_streams_max_is_the_number_of_requests_at_once() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { streams-max 7 }"));
    run(async {
        let mut client = connect(proxy.address()).await;
        get(&mut client, "/").await.unwrap();
        assert_eq!(client.current_max_send_streams(), 7);
    });
}

//! Checks over HTTP/2, of HTTP and of gRPC, at a server made of the `h2` crate.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};

use super::*;
use crate::pure::check::grpc;

/// An answer: status, fields, body, trailers.
pub(super) struct Answer {
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    body: Option<&'static [u8]>,
    trailers: &'static [(&'static str, &'static str)],
}

pub(super) const PLAIN: Answer = Answer { status: 200, fields: &[], body: Some(b"all is well"), trailers: &[] };

fn fields(list: &[(&'static str, &'static str)]) -> HeaderMap {
    list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

/// What a server was asked: the head, and the body.
pub(super) type Seen = Rc<RefCell<Option<(Request<()>, Vec<u8>)>>>;

/// Serves one request on a connection, until the other side ends it. `None`: it resets the stream.
pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, answer: Option<Answer>, seen: Seen) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut answer = Some(answer);
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let Some(answer) = answer.take() else { return };
        let seen = Rc::clone(&seen);
        tokio::task::spawn_local(async move {
            let (parts, mut body) = request.into_parts();
            let mut bytes = Vec::new();
            while let Some(Ok(data)) = body.data().await {
                bytes.extend_from_slice(&data);
            }
            *seen.borrow_mut() = Some((Request::from_parts(parts, ()), bytes));
            let Some(answer) = answer else { return respond.send_reset(h2::Reason::INTERNAL_ERROR) };
            let mut head = Response::builder().status(answer.status).body(()).unwrap();
            *head.headers_mut() = fields(answer.fields);
            let is_head_only = answer.body.is_none() && answer.trailers.is_empty();
            let Ok(mut stream) = respond.send_response(head, is_head_only) else { return };
            if let Some(body) = answer.body {
                let _ = stream.send_data(Bytes::from_static(body), answer.trailers.is_empty());
            }
            if !answer.trailers.is_empty() {
                let _ = stream.send_trailers(fields(answer.trailers));
            }
        });
    }
}

fn asked(settings: &str, answer: Option<Answer>) -> (Result<(), CheckFailure>, Option<(Request<()>, Vec<u8>)>) {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Socket(listener.local_addr().unwrap());
        let seen = Seen::default();
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream, answer, Rc::clone(&seen)).await;
        };
        let lines = format!("upstream \"h2c\"; {settings}");
        let (result, ()) = tokio::join!(check_at(&address, &[], &lines, TIMEOUT), server);
        (result, seen.take())
    })
}

#[test]
fn a_pool_of_http2_is_asked_over_http2() {
    let settings = r#"check "http" path="/health" host="a.test" body="well" { header "X-Check" "yes" }"#;
    let (result, seen) = asked(settings, Some(PLAIN));
    assert_eq!(result, Ok(()));
    let (head, _) = seen.unwrap();
    assert_eq!((head.method().as_str(), head.uri().to_string()), ("GET", "http://a.test/health".to_owned()));
    assert_eq!(
        (&head.headers()["user-agent"], &head.headers()["x-check"]),
        (&"pointsman-check".parse().unwrap(), &"yes".parse().unwrap())
    );
}

#[test]
fn what_a_server_of_http2_does_wrong_is_told() {
    let result = |settings: &str, answer| asked(&format!("check \"http\" {settings}"), answer).0;
    assert_eq!(result("", Some(Answer { status: 500, ..PLAIN })), wrong(WrongAnswer::Status(500)));
    assert_eq!(result("body=\"ill\"", Some(PLAIN)), wrong(WrongAnswer::Body));
    assert_eq!(result("body-regex=\"ill$\"", Some(PLAIN)), wrong(WrongAnswer::BodyRegex));
    assert_eq!(result("", None), wrong(WrongAnswer::Cut));
    let empty = Answer { status: 204, body: None, ..PLAIN };
    assert_eq!(result("", Some(empty)), Ok(()));
}

#[test]
fn a_server_that_speaks_no_http2_is_told_from_one_that_says_nothing() {
    for check in ["check \"http\"", "check \"grpc\""] {
        let lines = format!("upstream \"h2c\"; {check}");
        let result = super::asked(&lines, b"HTTP/1.1 400 Bad Request\r\n\r\n", true, TIMEOUT).0;
        assert_eq!(result, wrong(WrongAnswer::NotHttp2));
        let result = run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            check_at(&Address::Socket(listener.local_addr().unwrap()), &[], &lines, SHORT).await
        });
        assert_eq!(result, Err(CheckFailure::TimedOut));
    }
}

#[test]
fn a_plain_check_of_a_pool_of_http2_is_http1() {
    let (result, request) = super::asked("upstream \"h2c\"; check \"http\" plain=#true", super::OK, false, TIMEOUT);
    assert_eq!(result, Ok(()));
    assert!(request.starts_with("GET / HTTP/1.1\r\n"), "{request}");
}

const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc+proto")];
const SERVES: Answer =
    Answer { status: 200, fields: GRPC, body: Some(&[0, 0, 0, 0, 2, 8, 1]), trailers: &[("grpc-status", "0")] };

#[test]
fn grpc_is_asked_for_a_service_or_for_the_whole_server() {
    for (settings, service) in [("check \"grpc\"", ""), ("check \"grpc\" service=\"app.v1.Users\"", "app.v1.Users")] {
        let (result, seen) = asked(settings, Some(SERVES));
        assert_eq!(result, Ok(()));
        let (head, body) = seen.unwrap();
        assert_eq!((head.method().as_str(), head.uri().path()), ("POST", "/grpc.health.v1.Health/Check"));
        let field = |name: &str| head.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(
            (field("te"), field("content-type"), field("grpc-timeout")),
            ("trailers".into(), "application/grpc".into(), "20000m".into())
        );
        assert_eq!(body, grpc::request(service));
    }
    let (result, _) = asked("check \"grpc\" plain=#true", Some(SERVES));
    assert_eq!(result, Ok(()));
}

#[test]
fn what_a_grpc_server_says_otherwise_is_told() {
    let result = |answer| asked("check \"grpc\"", Some(answer)).0;
    let not_serving = Answer { body: Some(&[0, 0, 0, 0, 2, 8, 2]), ..SERVES };
    assert_eq!(result(not_serving), wrong(WrongAnswer::NotServing));
    // A service that is not known: the status comes alone.
    const UNKNOWN: &[(&str, &str)] = &[("content-type", "application/grpc"), ("grpc-status", "5")];
    let unknown = Answer { body: None, trailers: &[], fields: UNKNOWN, ..SERVES };
    assert_eq!(result(unknown), wrong(WrongAnswer::GrpcStatus(5)));
    let unimplemented = Answer { trailers: &[("grpc-status", "12")], ..SERVES };
    assert_eq!(result(unimplemented), wrong(WrongAnswer::GrpcStatus(12)));
    assert_eq!(result(Answer { status: 503, ..SERVES }), wrong(WrongAnswer::Status(503)));
    for answer in [
        PLAIN,
        Answer { trailers: &[], ..SERVES },
        Answer { trailers: &[("grpc-status", "x")], ..SERVES },
        Answer { body: Some(&[1, 0, 0, 0, 2, 8, 1]), ..SERVES },
        Answer { body: Some(&[0, 0, 0, 0, 9, 8, 1]), ..SERVES },
        Answer { body: None, ..SERVES },
    ] {
        assert_eq!(result(answer), wrong(WrongAnswer::NotGrpc));
    }
}

//! A check's request over HTTP/2, of HTTP and of gRPC, on a connection of its own, which ends with it.

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};

use super::{ANSWER_MAX, ProbeError};
use crate::pure::check::grpc::{self, Serving};
use crate::pure::check::{HttpCheck, USER_AGENT, WrongAnswer};
use crate::transport::h2::Link;

/// Asks, and judges the answer.
pub(super) async fn ask(link: &Link, check: &HttpCheck, scheme: &str, authority: &str) -> Result<(), ProbeError> {
    let head = head(&check.method, scheme, authority, &check.path, check.sent_fields())?;
    let (answer, _request) = link.send(head, true).map_err(cut)?;
    let answer = answer.await.map_err(cut)?;
    check.judge_status(answer.status().as_u16())?;
    if check.wants_body() {
        let (body, _) = read_body(answer.into_body(), |begun| check.is_satisfied(begun)).await?;
        check.judge_body(&body)?;
    }
    Ok(())
}

/// Asks `grpc.health.v1` for a service.
pub(super) async fn ask_health(
    link: &Link,
    service: &str,
    scheme: &str,
    authority: &str,
    timeout: Duration,
) -> Result<(), ProbeError> {
    // At most eight digits (grpc/doc/PROTOCOL-HTTP2.md).
    let deadline = format!("{}m", timeout.as_millis().min(99_999_999));
    let fields = [
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", &deadline),
        ("user-agent", USER_AGENT),
    ];
    let head = head("POST", scheme, authority, grpc::PATH, fields)?;
    let (answer, mut request) = link.send(head, false).map_err(cut)?;
    request.send_data(Bytes::from(grpc::request(service)), true).map_err(cut)?;
    let answer = answer.await.map_err(cut)?;
    if answer.status().as_u16() != 200 {
        return Err(WrongAnswer::Status(answer.status().as_u16()).into());
    }
    let is_grpc =
        answer.headers().get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc {
        return Err(WrongAnswer::NotGrpc.into());
    }
    // Where there is nothing but a status, it comes with the head.
    judge_status(answer.headers())?;
    let had_status = answer.headers().contains_key("grpc-status");
    let (body, trailers) = read_body(answer.into_body(), |_| false).await?;
    judge_status(&trailers)?;
    if !had_status && !trailers.contains_key("grpc-status") {
        return Err(WrongAnswer::NotGrpc.into());
    }
    match grpc::read_answer(&body).ok_or(WrongAnswer::NotGrpc)? {
        Serving::Yes => Ok(()),
        Serving::No => Err(WrongAnswer::NotServing.into()),
    }
}

/// A gRPC status, where there is one, has to be OK.
fn judge_status(fields: &HeaderMap) -> Result<(), WrongAnswer> {
    let Some(status) = fields.get("grpc-status") else { return Ok(()) };
    match status.to_str().ok().and_then(|digits| digits.parse().ok()) {
        Some(0) => Ok(()),
        Some(code) => Err(WrongAnswer::GrpcStatus(code)),
        None => Err(WrongAnswer::NotGrpc),
    }
}

fn head<'a>(
    method: &str,
    scheme: &str,
    authority: &str,
    path: &str,
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Request<()>, ProbeError> {
    // The rule file was read with the same types: nothing here fails.
    let made = || {
        let mut request = Request::new(());
        *request.method_mut() = method.parse().ok()?;
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(Scheme::try_from(scheme).ok()?);
        uri.authority = Some(Authority::try_from(authority).ok()?);
        uri.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
        *request.uri_mut() = Uri::from_parts(uri).ok()?;
        for (name, value) in fields {
            let (name, value) = (name.parse::<HeaderName>().ok()?, HeaderValue::from_bytes(value.as_bytes()).ok()?);
            request.headers_mut().append(name, value);
        }
        Some(request)
    };
    made().ok_or_else(|| WrongAnswer::Malformed.into())
}

/// The body, and the trailers behind it, until it decides: to its end, or to [`ANSWER_MAX`].
async fn read_body(
    mut stream: RecvStream,
    is_enough: impl Fn(&[u8]) -> bool,
) -> Result<(Vec<u8>, HeaderMap), ProbeError> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data.map_err(cut)?;
        body.extend_from_slice(&data);
        if body.len() >= ANSWER_MAX || is_enough(&body) {
            body.truncate(ANSWER_MAX);
            return Ok((body, HeaderMap::new()));
        }
        // It can only fail where the stream has ended, which the next read tells.
        let _ = stream.flow_control().release_capacity(data.len());
    }
    let trailers = stream.trailers().await.map_err(cut)?;
    Ok((body, trailers.unwrap_or_default()))
}

fn cut(_ended: h2::Error) -> WrongAnswer {
    WrongAnswer::Cut
}

//! A check's request over HTTP/2, of HTTP and of gRPC, on a connection of its own, which ends with it.

use std::future::poll_fn;
use std::time::Duration;

use super::{ANSWER_MAX, ProbeError};
use crate::pure::check::grpc::{self, Serving};
use crate::pure::check::{HttpCheck, USER_AGENT, WrongAnswer};
use crate::pure::h2::field_rules::Malformed;
use crate::pure::h2::hpack::FieldBlock;
use crate::pure::h2::multiplexer::{Arrival, StreamEnd};
use crate::pure::h2::server_answer::status_of;
use crate::transport::h2::{Handle, Link};

/// Where a check goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) scheme: &'a str,
    pub(super) authority: &'a str,
}

/// Asks, and judges the answer.
pub(super) async fn ask(link: &Link, check: &HttpCheck, target: Target<'_>) -> Result<(), ProbeError> {
    let stream = send_head(link, true, &check.method, target, &check.path, check.sent_fields())?;
    let (status, _) = answer_head(&stream).await?;
    check.judge_status(status)?;
    if check.wants_body() {
        let (body, _) = read_body(&stream, |begun| check.is_satisfied(begun)).await?;
        check.judge_body(&body)?;
    }
    Ok(())
}

/// Asks `grpc.health.v1` for a service.
pub(super) async fn ask_health(
    link: &Link,
    service: &str,
    target: Target<'_>,
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
    let stream = send_head(link, false, "POST", target, grpc::PATH, fields)?;
    let request = grpc::request(service);
    let mut sent = 0;
    while sent < request.len() {
        let left = request.get(sent..).unwrap_or_default();
        let count = poll_fn(|context| stream.poll_room(context, left.len())).await?;
        sent += count;
        stream.send_data([left], count, sent == request.len())?;
    }
    let (status, head) = answer_head(&stream).await?;
    if status != 200 {
        return Err(WrongAnswer::Status(status).into());
    }
    if !value_of(&head, b"content-type").is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        return Err(WrongAnswer::NotGrpc.into());
    }
    // Where there is nothing but a status, it comes with the head.
    judge_status(&head)?;
    let had_status = value_of(&head, b"grpc-status").is_some();
    let (body, trailers) = read_body(&stream, |_| false).await?;
    judge_status(&trailers)?;
    if !had_status && value_of(&trailers, b"grpc-status").is_none() {
        return Err(WrongAnswer::NotGrpc.into());
    }
    match grpc::read_answer(&body).ok_or(WrongAnswer::NotGrpc)? {
        Serving::Yes => Ok(()),
        Serving::No => Err(WrongAnswer::NotServing.into()),
    }
}

/// A gRPC status, where there is one, has to be OK.
fn judge_status(fields: &FieldBlock) -> Result<(), WrongAnswer> {
    let Some(status) = value_of(fields, b"grpc-status") else { return Ok(()) };
    match str::from_utf8(status).ok().and_then(|digits| digits.parse().ok()) {
        Some(0) => Ok(()),
        Some(code) => Err(WrongAnswer::GrpcStatus(code)),
        None => Err(WrongAnswer::NotGrpc),
    }
}

fn value_of<'f>(fields: &'f FieldBlock, name: &[u8]) -> Option<&'f [u8]> {
    fields.fields().find(|(other, _)| *other == name).map(|(_, value)| value)
}

/// Opens a stream with that head; `is_whole`: no body follows.
fn send_head<'a>(
    link: &Link,
    is_whole: bool,
    method: &'a str,
    target: Target<'a>,
    path: &'a str,
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Handle, StreamEnd> {
    let stream = link.open_stream()?;
    stream.send_head(is_whole, |encoder, out| {
        let Target { scheme, authority } = target;
        let pseudo = [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)];
        for (name, value) in pseudo.into_iter().chain(fields) {
            encoder.push(out, name.as_bytes(), value.as_bytes());
        }
    })?;
    Ok(stream)
}

/// The head of the answer, behind those that are interim ones.
async fn answer_head(stream: &Handle) -> Result<(u16, FieldBlock), ProbeError> {
    loop {
        match poll_fn(|context| stream.poll_arrival(context)).await? {
            Arrival::Head => {}
            Arrival::Data(_) | Arrival::End | Arrival::Nothing => return Err(WrongAnswer::Malformed.into()),
        }
        let Some(fields) = stream.take_head() else { return Err(WrongAnswer::Malformed.into()) };
        let status = status_of(&fields)?;
        if status >= 200 {
            return Ok((status, fields));
        }
    }
}

/// The body, and the trailers behind it, until it decides: to its end, or to [`ANSWER_MAX`].
async fn read_body(stream: &Handle, is_enough: impl Fn(&[u8]) -> bool) -> Result<(Vec<u8>, FieldBlock), ProbeError> {
    let mut body = Vec::new();
    while let Arrival::Data(count) = poll_fn(|context| stream.poll_arrival(context)).await? {
        stream.take_data(&mut body, count);
        if body.len() >= ANSWER_MAX || is_enough(&body) {
            body.truncate(ANSWER_MAX);
            return Ok((body, FieldBlock::default()));
        }
    }
    Ok((body, stream.take_trailers().unwrap_or_default()))
}

impl From<StreamEnd> for ProbeError {
    fn from(_: StreamEnd) -> Self {
        WrongAnswer::Cut.into()
    }
}

impl From<Malformed> for ProbeError {
    fn from(_: Malformed) -> Self {
        WrongAnswer::Malformed.into()
    }
}

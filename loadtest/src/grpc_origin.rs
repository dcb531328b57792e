//! The origin of gRPC calls, over HTTP/2 without TLS: a call is answered, once all of it has come, with the message that it carried, and
//! with its status in the trailers.
//!
//! nginx can send trailers too, but it never waits for the body of a request that it answers itself: it resets the stream, and to a
//! proxy in front that may be an error.

use std::io;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use crate::failure::{Outcome, While};

/// More than any proxy opens on one connection.
const STREAMS_MAX: u32 = 1_000;

/// Serves on `port` until the process is ended.
pub fn serve(port: u16) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.doing(|| "starting a runtime".to_owned())?;
    LocalSet::new().block_on(&runtime, accept(port)).doing(|| format!("serving on {port}"))
}

async fn accept(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::task::spawn_local(async move {
            // A proxy that goes away is the end, not an error.
            let _ = connection(stream).await;
        });
    }
}

async fn connection(stream: TcpStream) -> Result<(), h2::Error> {
    let mut builder = h2::server::Builder::new();
    let mut connection = builder.max_concurrent_streams(STREAMS_MAX).handshake(stream).await?;
    while let Some(request) = connection.accept().await {
        let (request, respond) = request?;
        tokio::task::spawn_local(async move {
            // A call that was reset needs no answer.
            let _ = answer(request, respond).await;
        });
    }
    Ok(())
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let mut message = Bytes::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        message = if message.is_empty() { piece } else { [message, piece].concat().into() };
    }
    let (mut answer, mut trailers) = (Response::new(()), None);
    match head.uri.path() {
        "/128" => message = Bytes::from_static(&[b'x'; 128]),
        "/fields" => message = fields(&head.headers).into(),
        _ => {
            answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            trailers = Some(HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                HeaderValue::from_static("0"),
            )]));
        }
    }
    let mut sender = respond.send_response(answer, false)?;
    sender.send_data(message, trailers.is_none())?;
    trailers.map_or(Ok(()), |trailers| sender.send_trailers(trailers))
}

/// What a proxy is meant to add, by line, as the other origin says it.
fn fields(fields: &HeaderMap) -> String {
    let line = |name: &str| {
        let value = fields.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
        format!("{name}: {}\n", String::from_utf8_lossy(value))
    };
    ["x-forwarded-for", "x-forwarded-proto", "via"].map(line).concat()
}

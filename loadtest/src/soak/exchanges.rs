//! The exchanges of a soak: each sends a request and checks every byte that comes back.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::content::{self, Checksum, Content};
use super::link::{Sender, request};
use super::websocket;
use crate::failure::{Failure, Outcome, While};
use crate::load::Protocol;
use crate::statistics::Numbers;

/// The largest body that is read at leisure.
const SLOW_MAX: usize = 1024 * 1024;
const MESSAGE_MAX: usize = 4 * 1024;
const MESSAGES_MAX: usize = 6;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A download over a connection that is kept.
    Get,
    /// The same, and the connection is to end behind it.
    Close,
    /// A download whose reader takes its time.
    Slow,
    /// A body towards the server, with a length or in chunks.
    Upload,
    /// WebSocket messages, echoed.
    WebSocket,
    /// A gRPC call, or one to a method that does not exist.
    Grpc,
}

impl Kind {
    /// Those that clients of `protocol` make: HTTP/2 has no `Connection: close`, HTTP/1.1 no gRPC.
    pub fn of(protocol: Protocol) -> &'static [Self] {
        match protocol {
            Protocol::H1 => &[Self::Get, Self::Get, Self::Get, Self::Close, Self::Slow, Self::Upload, Self::WebSocket],
            Protocol::H2 => {
                &[Self::Get, Self::Get, Self::Get, Self::Grpc, Self::Grpc, Self::Slow, Self::Upload, Self::WebSocket]
            }
        }
    }

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "download",
            Self::Close => "download, close",
            Self::Slow => "slow reader",
            Self::Upload => "upload",
            Self::WebSocket => "WebSocket",
            Self::Grpc => "gRPC unary",
        }
    }

    /// Whether an HTTP/1.1 connection can be used again afterwards.
    pub fn keeps_connection(self) -> bool {
        !matches!(self, Self::Close | Self::WebSocket)
    }
}

/// One exchange of `kind` by way of `route`, the first part of the path. All that is drawn by lot comes from `numbers`.
pub async fn exchange(
    kind: Kind,
    protocol: Protocol,
    sender: &mut Sender,
    route: &str,
    numbers: &mut Numbers,
) -> Outcome<()> {
    match kind {
        Kind::Get => download(protocol, sender, route, numbers, 64 * 1024, false).await,
        Kind::Close => download(protocol, sender, route, numbers, 16 * 1024, true).await,
        Kind::Slow => slow(protocol, sender, route, numbers).await,
        Kind::Upload => upload(protocol, sender, route, numbers).await,
        Kind::WebSocket => messages(protocol, sender, route, numbers).await,
        Kind::Grpc => grpc(protocol, sender, numbers).await,
    }
}

fn demand_status(answer: &Response<Incoming>, status: StatusCode) -> Outcome<()> {
    if answer.status() == status {
        return Ok(());
    }
    Err(Failure::new(format!("status {} with {:?}", answer.status(), answer.headers())))
}

async fn download(
    protocol: Protocol,
    sender: &mut Sender,
    route: &str,
    numbers: &mut Numbers,
    size_max: usize,
    closes: bool,
) -> Outcome<()> {
    let (size, seed) = (numbers.below(size_max), numbers.below(1_000_000) as u64);
    let mut head = request(protocol, Method::GET, &format!("/{route}/bytes/{size}/{seed}"));
    if closes {
        head = head.header("connection", "close");
    }
    let answer = sender.send(head.body(Content::none()).doing(|| "a request".to_owned())?).await?;
    demand_status(&answer, StatusCode::OK)?;
    let body = answer.into_body().collect().await.doing(|| "reading a body".to_owned())?.to_bytes();
    demand_pattern(seed, 0, &body)?;
    demand_length(body.len(), size)
}

fn demand_pattern(seed: u64, at: usize, bytes: &[u8]) -> Outcome<()> {
    if content::is_pattern(seed, at, bytes) { Ok(()) } else { Err(Failure::new(format!("other bytes behind {at}"))) }
}

fn demand_length(found: usize, wanted: usize) -> Outcome<()> {
    if found == wanted { Ok(()) } else { Err(Failure::new(format!("{found} bytes instead of {wanted}"))) }
}

async fn slow(protocol: Protocol, sender: &mut Sender, route: &str, numbers: &mut Numbers) -> Outcome<()> {
    let (size, seed) = (SLOW_MAX / 4 + numbers.below(SLOW_MAX * 3 / 4), numbers.below(1_000_000) as u64);
    let head = request(protocol, Method::GET, &format!("/{route}/bytes/{size}/{seed}"));
    let answer = sender.send(head.body(Content::none()).doing(|| "a request".to_owned())?).await?;
    demand_status(&answer, StatusCode::OK)?;
    let (mut body, mut seen) = (answer.into_body(), 0);
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame.doing(|| "reading a body slowly".to_owned())?.into_data() {
            demand_pattern(seed, seen, &piece)?;
            seen += piece.len();
        }
        tokio::time::sleep(Duration::from_micros(numbers.below(6_000) as u64)).await;
    }
    demand_length(seen, size)
}

async fn upload(protocol: Protocol, sender: &mut Sender, route: &str, numbers: &mut Numbers) -> Outcome<()> {
    let (size, seed) = (numbers.below(512 * 1024), numbers.below(1_000_000) as u64);
    let body = Content::pattern(seed, size, numbers.below(2) == 0);
    let head = request(protocol, Method::POST, &format!("/{route}/sum"));
    let answer = sender.send(head.body(body).doing(|| "a request".to_owned())?).await?;
    demand_status(&answer, StatusCode::OK)?;
    let said = answer.into_body().collect().await.doing(|| "reading a checksum".to_owned())?.to_bytes();
    let wanted = Checksum::new().with(&content::pattern(seed, size)).says(size);
    if said == wanted.as_bytes() { Ok(()) } else { Err(Failure::new(format!("got {said:?} for {wanted}"))) }
}

async fn grpc(protocol: Protocol, sender: &mut Sender, numbers: &mut Numbers) -> Outcome<()> {
    let exists = numbers.below(4) > 0;
    let message = content::pattern(1, numbers.below(MESSAGE_MAX));
    let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
    let framed = Bytes::from([&[0], length.as_slice(), &message].concat());
    let path = if exists { "/h2c/soak.Soak/Unary" } else { "/h2c/soak.Soak/Missing" };
    let head = request(protocol, Method::POST, path).header("content-type", "application/grpc");
    let head = head.header("te", "trailers").header("grpc-timeout", "10S");
    let answer = sender.send(head.body(Content::bytes(framed.clone())).doing(|| "a request".to_owned())?).await?;
    demand_status(&answer, StatusCode::OK)?;
    let early = answer.headers().get("grpc-status").cloned();
    let body = answer.into_body().collect().await.doing(|| "reading a message".to_owned())?;
    let late = body.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
    let (wanted_early, wanted_late, wanted) =
        if exists { (None, Some("0"), framed) } else { (Some("12"), None, Bytes::new()) };
    if early.as_ref().map(http::HeaderValue::as_bytes) != wanted_early.map(str::as_bytes)
        || late.as_ref().map(http::HeaderValue::as_bytes) != wanted_late.map(str::as_bytes)
    {
        return Err(Failure::new(format!("grpc-status {early:?} in the head and {late:?} in the trailers of {path}")));
    }
    if body.to_bytes() == wanted { Ok(()) } else { Err(Failure::new("another message")) }
}

async fn messages(protocol: Protocol, sender: &mut Sender, route: &str, numbers: &mut Numbers) -> Outcome<()> {
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    let path = format!("/{route}/echo");
    let (head, status) = match protocol {
        Protocol::H1 => {
            let head = request(protocol, Method::GET, &path).header("connection", "upgrade");
            (head.header("upgrade", "websocket").header("sec-websocket-key", KEY), StatusCode::SWITCHING_PROTOCOLS)
        }
        Protocol::H2 => {
            let head = request(protocol, Method::CONNECT, &path);
            (head.extension(hyper::ext::Protocol::from_static("websocket")), StatusCode::OK)
        }
    };
    let head = head.header("sec-websocket-version", "13");
    let mut answer = sender.send(head.body(Content::none()).doing(|| "a request".to_owned())?).await?;
    demand_status(&answer, status)?;
    let accept = answer.headers().get("sec-websocket-accept").map(http::HeaderValue::as_bytes);
    if protocol == Protocol::H1 && accept != Some(websocket::accept(KEY.as_bytes()).as_bytes()) {
        return Err(Failure::new(format!("Sec-WebSocket-Accept {accept:?}")));
    }
    let stream = hyper::upgrade::on(&mut answer).await.doing(|| "upgrading".to_owned())?;
    let mut stream = TokioIo::new(stream);
    for _ in 0..numbers.below(MESSAGES_MAX) {
        let payload = content::pattern(2, numbers.below(MESSAGE_MAX));
        echoed(&mut stream, websocket::BINARY, payload).await?;
    }
    echoed(&mut stream, websocket::CLOSE, vec![3, 232]).await?;
    let rest = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1]).await;
    match rest.doing(|| "waiting for the end of a tunnel".to_owned())? {
        0 => Ok(()),
        _ => Err(Failure::new("bytes behind the last message")),
    }
}

async fn echoed<S>(stream: &mut S, kind: u8, payload: Vec<u8>) -> Outcome<()>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    websocket::write(stream, kind, &payload, true).await.doing(|| "sending a message".to_owned())?;
    let found = websocket::read(stream).await.doing(|| "waiting for an echo".to_owned())?;
    if found == (kind, payload) { Ok(()) } else { Err(Failure::new("another message came back")) }
}

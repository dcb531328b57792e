//! The servers of a soak, in a thread of this program: one that speaks HTTP/1.1 and one that speaks HTTP/2 without TLS. Both answer with
//! patterns, say what an upload was, echo WebSocket messages, and take gRPC calls.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::content::{Checksum, Content};
use super::websocket;
use crate::failure::{Failure, Outcome, While};
use crate::load::Protocol;

/// Running origins; dropping them ends their thread.
pub struct Origins {
    /// Where HTTP/1.1 is spoken.
    pub port: u16,
    /// Where HTTP/2 is spoken.
    pub h2c_port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Origins {
    /// Starts both.
    pub fn start() -> Outcome<Self> {
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            // Nobody is told only if whoever started this is gone.
            let _ = tell.send(serve(stopped, &tell));
        });
        let ports = told.recv().doing(|| "starting the origins".to_owned())?;
        let Some((port, h2c_port)) = ports? else { return Err(Failure::new("the origins ended early")) };
        Ok(Self { port, h2c_port, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Origins {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there shows as answers that were missing.
            let _ = thread.join();
        }
    }
}

type Ports = Option<(u16, u16)>;

/// Serves until `stopped`; tells the ports as soon as they are known.
fn serve(stopped: oneshot::Receiver<()>, tell: &mpsc::Sender<Outcome<Ports>>) -> Outcome<Ports> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.doing(|| "starting a runtime".to_owned())?.block_on(async {
        let listen = async || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.doing(|| "listening".to_owned());
        let (h1, h2) = (listen().await?, listen().await?);
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let ports = (port(&h1).doing(|| "a port".to_owned())?, port(&h2).doing(|| "a port".to_owned())?);
        let _ = tell.send(Ok(Some(ports)));
        tokio::spawn(accept(h1, Protocol::H1));
        tokio::spawn(accept(h2, Protocol::H2));
        // It is never sent to: its other end is dropped.
        let _ = stopped.await;
        Ok(None)
    })
}

async fn accept(listener: TcpListener, protocol: Protocol) {
    while let Ok((stream, _)) = listener.accept().await {
        // Only a delay would follow from a failure.
        let _ = stream.set_nodelay(true);
        tokio::spawn(connection(stream, protocol));
    }
}

/// Errors are the other side's: clients abort, and the proxy passes that on.
async fn connection(stream: TcpStream, protocol: Protocol) {
    let service = service_fn(move |request| async move { Ok::<_, Infallible>(answer(protocol, request).await) });
    let stream = TokioIo::new(stream);
    match protocol {
        Protocol::H1 => drop(http1::Builder::new().serve_connection(stream, service).with_upgrades().await),
        Protocol::H2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            drop(builder.enable_connect_protocol().serve_connection(stream, service).await);
        }
    }
}

async fn answer(protocol: Protocol, request: Request<Incoming>) -> Response<Content> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let own = match protocol {
        Protocol::H1 => "h1",
        Protocol::H2 => "h2c",
    };
    match parts.as_slice() {
        [route, ..] if *route != own => refusal("this is another server"),
        [_, "bytes", size, seed] => match (size.parse(), seed.parse()) {
            (Ok(size), Ok(seed)) => Response::new(Content::pattern(seed, size, seed % 2 == 0)),
            _ => refusal("not numbers"),
        },
        [_, "sum"] => sum(request.into_body()).await,
        [_, "echo"] => echo(request),
        [_, "soak.Soak", "Unary"] => match request.into_body().collect().await {
            Ok(body) => grpc(Content::grpc(body.to_bytes())),
            Err(_) => refusal("a call was cut"),
        },
        [_, "soak.Soak", ..] => {
            let mut answer = grpc(Content::none());
            answer.headers_mut().insert("grpc-status", http::HeaderValue::from_static("12"));
            answer
        }
        _ => refusal("no such path"),
    }
}

fn refusal(why: &'static str) -> Response<Content> {
    let mut answer = Response::new(Content::bytes(why));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    answer
}

fn grpc(content: Content) -> Response<Content> {
    let mut answer = Response::new(content);
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    answer
}

async fn sum(mut body: Incoming) -> Response<Content> {
    let (mut sum, mut length) = (Checksum::new(), 0);
    while let Some(frame) = body.frame().await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(bytes)) => (sum, length) = (sum.with(&bytes), length + bytes.len()),
            Ok(Err(_)) => {}
            Err(_) => return refusal("an upload was cut"),
        }
    }
    Response::new(Content::bytes(Bytes::from(sum.says(length))))
}

/// Echoes messages over an upgrade (RFC 6455) or an extended CONNECT (RFC 8441).
fn echo(mut request: Request<Incoming>) -> Response<Content> {
    let mut answer = Response::new(Content::none());
    if request.method() == Method::CONNECT {
        if request.extensions().get::<hyper::ext::Protocol>().is_none_or(|protocol| protocol.as_str() != "websocket") {
            return refusal("not WebSocket");
        }
    } else {
        let Some(key) = request.headers().get("sec-websocket-key") else { return refusal("no key") };
        let accept = websocket::accept(key.as_bytes());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let fields = answer.headers_mut();
        fields.insert("connection", http::HeaderValue::from_static("upgrade"));
        fields.insert("upgrade", http::HeaderValue::from_static("websocket"));
        match accept.parse() {
            Ok(accept) => fields.insert("sec-websocket-accept", accept),
            Err(_) => return refusal("no accept value"),
        };
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(stream) = upgrade.await else { return };
        let mut stream = TokioIo::new(stream);
        // A client that breaks off is one of those that are meant to.
        while let Ok((kind, payload)) = websocket::read(&mut stream).await {
            if websocket::write(&mut stream, kind, &payload, false).await.is_err() || kind == websocket::CLOSE {
                break;
            }
        }
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
    });
    answer
}

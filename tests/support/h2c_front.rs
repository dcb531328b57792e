//! An HTTP/2 server (on the `h2` crate) in front of a raw HTTP/1.1 origin: each stream becomes a connection of its own to
//! the origin, so that what a test's origin does with its bytes happens on a stream.
//!
//! An origin that breaks off before its answer resets the stream with INTERNAL_ERROR, as one does that breaks off in the
//! middle of it. What a peer resets closes the origin's connection.

use std::net::SocketAddr;
use std::thread;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::message::{Framing, Head};

/// A front. Dropping it closes everything.
pub struct H2cFront {
    /// Where it listens.
    pub address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl H2cFront {
    /// A front of the origin at `origin`.
    pub fn of(origin: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("a bound socket's address");
        let (stop, stopped) = oneshot::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a socket");
                tokio::select! {
                    () = accept(listener, origin) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, _stop: stop }
    }
}

async fn accept(listener: TcpListener, origin: SocketAddr) {
    while let Ok((tcp, _)) = listener.accept().await {
        let _ = tcp.set_nodelay(true);
        tokio::spawn(async move {
            let Ok(mut connection) =
                h2::server::Builder::new().initial_window_size(1 << 20).enable_connect_protocol().handshake(tcp).await
            else {
                return;
            };
            while let Some(Ok((request, answer))) = connection.accept().await {
                tokio::spawn(exchange(request, answer, origin));
            }
        });
    }
}

/// One stream. Any break is a reset.
async fn exchange(request: Request<RecvStream>, mut answer: SendResponse<Bytes>, origin: SocketAddr) {
    let Ok(tcp) = TcpStream::connect(origin).await else {
        return answer.send_reset(Reason::REFUSED_STREAM);
    };
    let _ = tcp.set_nodelay(true);
    let (reader, mut writer) = tcp.into_split();
    let (parts, body) = request.into_parts();
    let method = parts.method.to_string();
    let head = head_of(&parts, &body);
    if writer.write_all(&head).await.is_err() {
        return answer.send_reset(Reason::INTERNAL_ERROR);
    }
    let is_chunked = !body.is_end_stream() && !parts.headers.contains_key("content-length");
    let is_tunnel = parts.extensions.get::<h2::ext::Protocol>().is_some();
    let mut upload = tokio::spawn(upload(body, writer, is_chunked && !is_tunnel, is_tunnel));
    let mut reader = Reader { reader, buffer: Vec::new() };
    if let Err(reason) = download(&mut reader, &mut answer, &method).await {
        // A reset takes with it what has not been sent: the connection's task gets its turns first.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        upload.abort();
        answer.send_reset(reason);
    } else {
        // Until the body has ended, or the origin takes no more of it: then the end of the stream's last handle says so
        // (RFC 9113 8.1).
        let _ = (&mut upload).await;
    }
}

fn head_of(parts: &http::request::Parts, body: &RecvStream) -> Vec<u8> {
    let protocol = parts.extensions.get::<h2::ext::Protocol>();
    let method = if protocol.is_some() { "GET" } else { parts.method.as_str() };
    let target = parts.uri.path_and_query().map_or("*", |path| path.as_str());
    let mut head = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
    if let Some(authority) = parts.uri.authority() {
        head.extend_from_slice(format!("host: {authority}\r\n").as_bytes());
    }
    for (name, value) in &parts.headers {
        head.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    if let Some(protocol) = protocol {
        head.extend_from_slice(format!("connection: upgrade\r\nupgrade: {}\r\n", protocol.as_str()).as_bytes());
        head.extend_from_slice(b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
    } else if !body.is_end_stream() && !parts.headers.contains_key("content-length") {
        head.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// The half is given back where the body has ended: to drop it would end the connection in the middle of the answer.
async fn upload(
    mut body: RecvStream,
    mut writer: OwnedWriteHalf,
    is_chunked: bool,
    is_tunnel: bool,
) -> Option<OwnedWriteHalf> {
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        if data.is_empty() {
            continue;
        }
        let framed = match is_chunked {
            true => [format!("{:x}\r\n", data.len()).as_bytes(), &data, b"\r\n"].concat(),
            false => data.to_vec(),
        };
        writer.write_all(&framed).await.ok()?;
        let _ = body.flow_control().release_capacity(data.len());
    }
    if is_chunked {
        let trailers = body.trailers().await.ok()?;
        let mut end = b"0\r\n".to_vec();
        for (name, value) in trailers.iter().flatten() {
            end.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        end.extend_from_slice(b"\r\n");
        writer.write_all(&end).await.ok()?;
    }
    (!is_tunnel).then_some(writer)
}

struct Reader {
    reader: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Reader {
    /// Reads more; false: the end.
    async fn more(&mut self) -> Result<bool, Reason> {
        let count = self.reader.read_buf(&mut self.buffer).await.map_err(|_| Reason::INTERNAL_ERROR)?;
        Ok(count > 0)
    }

    async fn line(&mut self) -> Result<Vec<u8>, Reason> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let mut line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                line.truncate(at);
                return Ok(line);
            }
            if !self.more().await? {
                return Err(Reason::INTERNAL_ERROR);
            }
        }
    }

    async fn head(&mut self) -> Result<Head, Reason> {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..at + 4).collect();
                return Head::parse(&head).map_err(|_| Reason::PROTOCOL_ERROR);
            }
            if !self.more().await? {
                return Err(Reason::INTERNAL_ERROR);
            }
        }
    }
}

fn map_of(fields: &[(String, String)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let is_hop =
            ["connection", "transfer-encoding", "keep-alive", "upgrade", "proxy-connection", "sec-websocket-accept"];
        let value: Vec<u8> = value.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap_or(b'?')).collect();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(&value))
            && !is_hop.contains(&name.as_str())
        {
            map.append(name, value);
        }
    }
    map
}

async fn download(reader: &mut Reader, answer: &mut SendResponse<Bytes>, method: &str) -> Result<(), Reason> {
    let head = loop {
        let head = tokio::select! {
            head = reader.head() => head?,
            _ = std::future::poll_fn(|context| answer.poll_reset(context)) => return Err(Reason::CANCEL),
        };
        let status = head.status();
        if status >= 200 || status == 101 {
            break head;
        }
        let mut interim = Response::builder().status(status).body(()).expect("a status");
        *interim.headers_mut() = map_of(&head.fields);
        answer.send_informational(interim).map_err(|_| Reason::INTERNAL_ERROR)?;
    };
    let is_tunnel = head.status() == 101;
    let framing = match is_tunnel {
        true => Framing::UntilClose,
        false => head.response_framing(method).map_err(|_| Reason::PROTOCOL_ERROR)?,
    };
    let status = if is_tunnel { 200 } else { head.status() };
    let mut response = Response::builder().status(status).body(()).expect("a status");
    *response.headers_mut() = map_of(&head.fields);
    let is_empty = framing == Framing::None;
    let mut stream = answer.send_response(response, is_empty).map_err(|_| Reason::INTERNAL_ERROR)?;
    match framing {
        Framing::None => Ok(()),
        Framing::Length(length) => raw(reader, &mut stream, Some(length)).await,
        Framing::UntilClose => raw(reader, &mut stream, None).await,
        Framing::Chunked => chunked(reader, &mut stream).await,
    }
}

async fn raw(reader: &mut Reader, stream: &mut SendStream<Bytes>, length: Option<u64>) -> Result<(), Reason> {
    let mut left = length.unwrap_or(u64::MAX);
    loop {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(reader.buffer.len());
        let data: Vec<u8> = reader.buffer.drain(..count).collect();
        left -= data.len() as u64;
        send(stream, data.into(), left == 0).await?;
        if left == 0 {
            return Ok(());
        }
        let is_more = tokio::select! {
            more = reader.more() => more?,
            _ = std::future::poll_fn(|context| stream.poll_reset(context)) => return Err(Reason::CANCEL),
        };
        if !is_more {
            return match length {
                Some(_) => Err(Reason::INTERNAL_ERROR),
                None => send(stream, Bytes::new(), true).await,
            };
        }
    }
}

async fn chunked(reader: &mut Reader, stream: &mut SendStream<Bytes>) -> Result<(), Reason> {
    loop {
        let line = tokio::select! {
            line = reader.line() => line?,
            _ = std::future::poll_fn(|context| stream.poll_reset(context)) => return Err(Reason::CANCEL),
        };
        let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = std::str::from_utf8(size).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let mut size = size.ok_or(Reason::PROTOCOL_ERROR)?;
        if size == 0 {
            break;
        }
        while size > 0 {
            if reader.buffer.is_empty() && !reader.more().await? {
                return Err(Reason::INTERNAL_ERROR);
            }
            let count = size.min(reader.buffer.len());
            let data: Vec<u8> = reader.buffer.drain(..count).collect();
            size -= count;
            send(stream, data.into(), false).await?;
        }
        if !reader.line().await?.is_empty() {
            return Err(Reason::PROTOCOL_ERROR);
        }
    }
    let mut trailers = Vec::new();
    loop {
        let line = reader.line().await?;
        if line.is_empty() {
            break;
        }
        trailers.push(super::message::field_line(&super::message::latin1(&line)).map_err(|_| Reason::PROTOCOL_ERROR)?);
    }
    if trailers.is_empty() {
        return send(stream, Bytes::new(), true).await;
    }
    stream.send_trailers(map_of(&trailers)).map_err(|_| Reason::INTERNAL_ERROR)
}

/// Sends as much as the peer allows, piece by piece.
async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes, is_last: bool) -> Result<(), Reason> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let capacity = match stream.capacity() {
            0 => match std::future::poll_fn(|context| stream.poll_capacity(context)).await {
                Some(Ok(capacity)) => capacity,
                Some(Err(_)) | None => return Err(Reason::CANCEL),
            },
            capacity => capacity,
        };
        let piece = data.split_to(capacity.min(data.len()));
        let is_end = is_last && data.is_empty();
        stream.send_data(piece, is_end).map_err(|_| Reason::CANCEL)?;
        if is_end {
            return Ok(());
        }
    }
    if is_last { stream.send_data(Bytes::new(), true).map_err(|_| Reason::CANCEL) } else { Ok(()) }
}

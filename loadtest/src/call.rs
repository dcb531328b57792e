//! One request over HTTP/2 and everything of its answer, trailers included: for checks before a measurement, never for load.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::failure::{Failure, Outcome, While};

const PATIENCE: Duration = Duration::from_secs(10);

/// An answer, as text that can be searched by line.
pub struct Answer {
    /// The status and the fields.
    pub head: String,
    /// The content.
    pub body: Vec<u8>,
    /// The fields behind the content.
    pub trailers: String,
}

/// Sends `request` with `body` to 127.0.0.1:`port`, over TLS where there are settings for it.
pub fn call(port: u16, tls: Option<Arc<ClientConfig>>, request: Request<()>, body: &'static str) -> Outcome<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing(|| "starting a runtime".to_owned())?;
    runtime.block_on(async {
        let answer = tokio::time::timeout(PATIENCE, connect(port, tls, request, body)).await;
        answer.unwrap_or_else(|_| Err(Failure::new(format!("no answer over HTTP/2 within {PATIENCE:?}"))))
    })
}

async fn connect(
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    request: Request<()>,
    body: &'static str,
) -> Outcome<Answer> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect(address).await.doing(|| format!("connecting to {address}"))?;
    let Some(config) = tls else { return exchange(stream, request, body).await };
    let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
    let stream = TlsConnector::from(config).connect(name, stream).await.doing(|| "shaking hands".to_owned())?;
    exchange(stream, request, body).await
}

async fn exchange<S>(stream: S, request: Request<()>, body: &'static str) -> Outcome<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = h2::client::handshake(stream).await.doing(|| "starting HTTP/2".to_owned())?;
    // It ends with the runtime, and what breaks it breaks the answer as well.
    tokio::spawn(async move { drop(connection.await) });
    let mut sender = sender.ready().await.doing(|| "waiting for the server".to_owned())?;
    let (answer, mut upload) = sender.send_request(request, body.is_empty()).doing(|| "sending".to_owned())?;
    if !body.is_empty() {
        upload.send_data(Bytes::from_static(body.as_bytes()), true).doing(|| "sending a body".to_owned())?;
    }
    let answer = answer.await.doing(|| "waiting for an answer".to_owned())?;
    let head = format!("status: {}\n{}", answer.status().as_u16(), lines(answer.headers()));
    let (mut stream, mut body) = (answer.into_body(), Vec::new());
    while let Some(piece) = stream.data().await {
        let piece = piece.doing(|| "reading a body".to_owned())?;
        let _ = stream.flow_control().release_capacity(piece.len());
        body.extend_from_slice(&piece);
    }
    let trailers = stream.trailers().await.doing(|| "waiting for trailers".to_owned())?;
    Ok(Answer { head, body, trailers: trailers.as_ref().map(lines).unwrap_or_default() })
}

fn lines(fields: &HeaderMap) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()))).collect()
}

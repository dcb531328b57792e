//! An alert by HTTP: a POST with a JSON body and, where there is a secret, its signature.
//!
//! `X-Pointsman-Signature` is `sha256=` and HMAC-SHA-256, in hexadecimal digits, over the bytes of `X-Pointsman-Timestamp`, a
//! full stop and the body: whoever has the secret knows that the alert is ours and how old it is. Redirections are not
//! followed: a signed alert goes where the rule file says.

use std::pin::pin;
use std::sync::Arc;

use aws_lc_rs::hmac;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

use super::{AlertError, Failure, Message, TRY_TIMEOUT};
use crate::base::hex::hex;
use crate::base::time::UnixTime;
use crate::pure::alert::target::Webhook;
use crate::pure::pool::Verification;
use crate::transport::tls::{HTTP1, SystemAuthorities, client_config};

/// Posts alerts to one place.
pub(super) struct Poster {
    target: Webhook,
    key: Option<hmac::Key>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    runtime: Runtime,
}

impl Poster {
    pub(super) fn new(
        target: &Webhook,
        secret: Option<&str>,
        system: &mut SystemAuthorities,
    ) -> Result<Self, AlertError> {
        let tls = if target.is_tls { Some(tls_of(target, system)?) } else { None };
        let key = secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { target: target.clone(), key, tls, runtime })
    }

    /// Posts an alert; it takes no longer than a try may.
    pub(super) fn post(&self, message: &Message) -> Result<(), Failure> {
        let posting = async { tokio::time::timeout(TRY_TIMEOUT, self.try_to_post(message)).await };
        match self.runtime.block_on(posting) {
            Ok(result) => result,
            Err(_elapsed) => Err(Failure { why: "no answer in time".to_owned(), may_pass: true }),
        }
    }

    async fn try_to_post(&self, message: &Message) -> Result<(), Failure> {
        let request = self.request(message)?;
        let stream = TcpStream::connect((self.target.host.as_str(), self.target.port)).await.map_err(passing)?;
        let status = match &self.tls {
            Some((connector, name)) => {
                exchange(connector.connect(name.clone(), stream).await.map_err(passing)?, request).await?
            }
            None => exchange(stream, request).await?,
        };
        if status.is_success() {
            return Ok(());
        }
        let may_pass =
            status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        Err(Failure { why: format!("it answers {}", status.as_u16()), may_pass })
    }

    fn request(&self, message: &Message) -> Result<Request<Full<Bytes>>, Failure> {
        let at = UnixTime::of(message.at).0.to_string();
        let body = body(message);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.target.path)
            .header(HOST, &self.target.authority)
            .header(USER_AGENT, concat!("pointsman/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header("X-Pointsman-Timestamp", &at);
        if let Some(key) = &self.key {
            let tag = hmac::sign(key, format!("{at}.{body}").as_bytes());
            request = request.header("X-Pointsman-Signature", format!("sha256={}", hex(tag.as_ref())));
        }
        let body = Full::new(Bytes::from(body));
        request.body(body).map_err(|error| Failure { why: error.to_string(), may_pass: false })
    }
}

/// What is posted: one JSON object.
fn body(message: &Message) -> String {
    let Message { alert, at, id } = message;
    serde_json::json!({
        "id": id,
        "event": alert.occasion.name(),
        "pool": &*alert.server.pool,
        "server": &*alert.server.server,
        "because": alert.because,
        "held_back": alert.held_back,
        "at": UnixTime::of(*at).0,
        "text": alert.to_string(),
    })
    .to_string()
}

fn tls_of(target: &Webhook, system: &mut SystemAuthorities) -> Result<(TlsConnector, ServerName<'static>), AlertError> {
    let verification = target.ca.clone().map_or(Verification::System, Verification::Authorities);
    let wrap = |cause| AlertError::Tls { target: target.to_string(), cause };
    let config = client_config(&verification, system, &[HTTP1]).map_err(wrap)?;
    let name = ServerName::try_from(target.host.clone());
    let name = name.map_err(|_| wrap(crate::transport::tls::UpstreamTlsError::Name(target.host.clone())))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<StatusCode, Failure> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(passing)?;
    let mut answer = pin!(sender.send_request(request));
    // The connection ends with this try, whatever comes of it.
    let answer = tokio::select! {
        answer = &mut answer => answer,
        // Its last act may have been to hand the answer over.
        ended = connection => match ended {
            Ok(()) => answer.await,
            Err(error) => return Err(passing(error)),
        },
    };
    Ok(answer.map_err(passing)?.status())
}

/// A failure that another try may not meet.
fn passing(why: impl std::fmt::Display) -> Failure {
    Failure { why: why.to_string(), may_pass: true }
}

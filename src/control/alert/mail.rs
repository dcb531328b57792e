//! An alert by mail, through lettre: one message for each, on a connection of its own.
//!
//! STARTTLS is demanded where it is configured: a server that does not offer it gets neither password nor mail. What a server
//! may say in one try is bounded, and so is the time of the try, whatever it says and however slowly.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, AsyncTokioStream, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, transport::smtp::Error as SmtpError};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{AlertError, Failure, Message, TRY_TIMEOUT};
use crate::control::passwords::Passwords;
use crate::pure::alert::Occasion;
use crate::pure::alert::target::{Mail, MailTls};
use crate::pure::pool::Verification;
use crate::transport::tls::{SystemAuthorities, UpstreamTlsError, client_config};

/// The most bytes that a server may send in one try, its certificates among them.
const ANSWERS_MAX: usize = 64 * 1024;

/// Sends alerts to some people through one server.
pub(super) struct Mailer {
    from: Mailbox,
    to: Vec<Mailbox>,
    host: String,
    port: u16,
    tls: Encryption,
    login: Option<Credentials>,
    runtime: Runtime,
}

/// When TLS is begun, and with what.
enum Encryption {
    Off,
    StartTls(TlsParameters),
    Implicit(TlsConnector, ServerName<'static>),
}

impl Mailer {
    pub(super) fn new(
        target: &Mail,
        passwords: &Passwords,
        system: &mut SystemAuthorities,
    ) -> Result<Self, AlertError> {
        let wrap = |why: String| AlertError::Mail { target: target.to_string(), why };
        let mailbox = |text: &String| {
            let address = text.parse::<Address>().map_err(|error| wrap(format!("{text}: {error}")))?;
            Ok(Mailbox::new(None, address))
        };
        let to = target.to.iter().map(mailbox).collect::<Result<Vec<_>, AlertError>>()?;
        let tls = match target.tls {
            MailTls::Off => Encryption::Off,
            MailTls::StartTls => Encryption::StartTls(starttls_of(target)?),
            MailTls::Implicit => implicit_of(target, system)?,
        };
        let login = match &target.login {
            Some((user, file)) => {
                let password = passwords.get(file).ok_or_else(|| wrap("its password was not read".to_owned()))?;
                Some(Credentials::new(user.clone(), password.to_owned()))
            }
            None => None,
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (host, port) = (target.host.clone(), target.port);
        Ok(Self { from: mailbox(&target.from)?, to, host, port, tls, login, runtime })
    }

    /// Sends an alert; it takes no longer than a try may.
    pub(super) fn send(&self, message: &Message) -> Result<(), Failure> {
        let broken = |error: lettre::error::Error| Failure { why: error.to_string(), may_pass: false };
        let mail = self.mail(message).map_err(broken)?;
        self.runtime.block_on(async {
            let end = Instant::now() + TRY_TIMEOUT;
            let late = |_elapsed| Failure { why: "the mail server took too long".to_owned(), may_pass: true };
            let mut connection = timeout_at(end, self.deliver(&mail)).await.map_err(late)??;
            // The mail is taken: how the goodbye goes changes nothing.
            let _ = timeout_at(end, connection.quit()).await;
            Ok(())
        })
    }

    async fn deliver(&self, mail: &lettre::Message) -> Result<AsyncSmtpConnection, Failure> {
        let failed = |error: SmtpError| Failure { why: told_with_causes(&error), may_pass: !error.is_permanent() };
        let cut = |error: io::Error| Failure { why: error.to_string(), may_pass: true };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(cut)?;
        let stream = Bounded { stream, left: ANSWERS_MAX };
        let stream: Box<dyn AsyncTokioStream> = match &self.tls {
            Encryption::Implicit(connector, name) => {
                Box::new(Encrypted(connector.connect(name.clone(), stream).await.map_err(cut)?))
            }
            Encryption::Off | Encryption::StartTls(_) => Box::new(stream),
        };
        let hello = ClientId::default();
        let mut connection = AsyncSmtpConnection::connect_with_transport(stream, &hello).await.map_err(failed)?;
        if let Encryption::StartTls(parameters) = &self.tls {
            connection.starttls(parameters.clone(), &hello).await.map_err(failed)?;
        }
        if let Some(login) = &self.login {
            connection.auth(DEFAULT_MECHANISMS, login).await.map_err(failed)?;
        }
        connection.send(mail.envelope(), &mail.formatted()).await.map_err(failed)?;
        Ok(connection)
    }

    fn mail(&self, message: &Message) -> Result<lettre::Message, lettre::error::Error> {
        let Message { alert, at, id } = message;
        let what = match alert.occasion {
            Occasion::Down => "is down",
            Occasion::Recovered => "is back",
            Occasion::GivenUp => "is given up",
        };
        let domain = self.from.email.domain();
        let mut builder = lettre::Message::builder()
            .from(self.from.clone())
            .subject(format!("pointsman: {} {what}", alert.server))
            .date(*at)
            .message_id(Some(format!("<{id}@{domain}>")));
        for to in &self.to {
            builder = builder.to(to.clone());
        }
        builder.body(format!("{alert}\n"))
    }
}

fn starttls_of(target: &Mail) -> Result<TlsParameters, AlertError> {
    let wrap = |why: String| AlertError::Mail { target: target.to_string(), why };
    let mut builder = TlsParameters::builder(target.host.clone());
    if let Some(file) = &target.ca {
        let read = |cause| AlertError::File { target: target.to_string(), file: file.clone(), cause };
        let pem = std::fs::read(file).map_err(read)?;
        let certificate = Certificate::from_pem(&pem).map_err(|error| wrap(told_with_causes(&error)))?;
        builder = builder.certificate_store(CertificateStore::None).add_root_certificate(certificate);
    }
    builder.build_rustls().map_err(|error| wrap(told_with_causes(&error)))
}

fn implicit_of(target: &Mail, system: &mut SystemAuthorities) -> Result<Encryption, AlertError> {
    let wrap = |cause| AlertError::Tls { target: target.to_string(), cause };
    let verification = target.ca.clone().map_or(Verification::System, Verification::Authorities);
    let config = client_config(&verification, system, &[]).map_err(wrap)?;
    let name = ServerName::try_from(target.host.clone());
    let name = name.map_err(|_| wrap(UpstreamTlsError::Name(target.host.clone())))?;
    Ok(Encryption::Implicit(TlsConnector::from(Arc::new(config)), name))
}

/// A connection from which no more is read than a server may send: lettre gathers a line for as long as it has no end.
#[derive(Debug)]
struct Bounded {
    stream: TcpStream,
    left: usize,
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            let why = format!("the mail server sent more than {} KiB", ANSWERS_MAX / 1024);
            return Poll::Ready(Err(io::Error::other(why)));
        }
        let room = self.left.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        let polled = Pin::new(&mut self.stream).poll_read(context, &mut part);
        let read = part.filled().len();
        buffer.advance(read);
        self.left -= read;
        polled
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncTokioStream for Bounded {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

/// A connection that is encrypted from its first byte, bounded below its encryption.
#[derive(Debug)]
struct Encrypted(TlsStream<Bounded>);

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl AsyncTokioStream for Encrypted {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().0.peer_addr()
    }
}

/// An error with what caused it, in one line.
fn told_with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

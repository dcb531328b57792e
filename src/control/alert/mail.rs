//! An alert by mail, through lettre: one message for each, on a connection of its own.
//!
//! STARTTLS is demanded where it is configured: a server that does not offer it gets neither password nor mail.

use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Address, SmtpTransport, Transport as _};

use super::{AlertError, Failure, Message, TRY_TIMEOUT};
use crate::control::passwords::Passwords;
use crate::pure::alert::Occasion;
use crate::pure::alert::target::{Mail, MailTls};

/// Sends alerts to some people through one server.
pub(super) struct Mailer {
    from: Mailbox,
    to: Vec<Mailbox>,
    transport: SmtpTransport,
}

impl Mailer {
    pub(super) fn new(target: &Mail, passwords: &Passwords) -> Result<Self, AlertError> {
        let wrap = |why: String| AlertError::Mail { target: target.to_string(), why };
        let mailbox = |text: &String| {
            let address = text.parse::<Address>().map_err(|error| wrap(format!("{text}: {error}")))?;
            Ok(Mailbox::new(None, address))
        };
        let to = target.to.iter().map(mailbox).collect::<Result<Vec<_>, AlertError>>()?;
        let tls = match target.tls {
            MailTls::Off => Tls::None,
            MailTls::StartTls => Tls::Required(tls_of(target)?),
            MailTls::Implicit => Tls::Wrapper(tls_of(target)?),
        };
        let mut builder =
            SmtpTransport::builder_dangerous(&target.host).port(target.port).tls(tls).timeout(Some(TRY_TIMEOUT));
        if let Some((user, file)) = &target.login {
            let password = passwords.get(file).ok_or_else(|| wrap("its password was not read".to_owned()))?;
            builder = builder.credentials(Credentials::new(user.clone(), password.to_owned()));
        }
        Ok(Self { from: mailbox(&target.from)?, to, transport: builder.build() })
    }

    /// Sends an alert.
    pub(super) fn send(&self, message: &Message) -> Result<(), Failure> {
        let broken = |error: lettre::error::Error| Failure { why: error.to_string(), may_pass: false };
        let mail = self.mail(message).map_err(broken)?;
        let sent = self.transport.send(&mail);
        sent.map(drop).map_err(|error| Failure { why: told_with_causes(&error), may_pass: !error.is_permanent() })
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

fn tls_of(target: &Mail) -> Result<TlsParameters, AlertError> {
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

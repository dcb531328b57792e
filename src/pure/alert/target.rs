//! Who is alerted, as the rule files have it: webhooks and mail. Passwords and secrets are never in here, only the names of
//! their files.

use std::path::PathBuf;

/// Everybody who is alerted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// By HTTP.
    pub webhooks: Vec<Webhook>,
    /// By mail.
    pub mails: Vec<Mail>,
}

/// Where alerts are posted as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Whether TLS is spoken.
    pub is_tls: bool,
    /// The host's name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What the `Host` field says.
    pub authority: String,
    /// The path with its query.
    pub path: String,
    /// The file with what signatures are made with; `None`: there are none.
    pub secret_file: Option<PathBuf>,
    /// PEM, the authorities that its certificate is held against; `None`: the system's.
    pub ca: Option<PathBuf>,
}

impl std::fmt::Display for Webhook {
    /// Without its path, which may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.is_tls { "https" } else { "http" }, self.authority)
    }
}

/// To whom alerts are sent by mail, and through which server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Who gets them.
    pub to: Vec<String>,
    /// From whom they come.
    pub from: String,
    /// The mail server's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How TLS is spoken with it.
    pub tls: MailTls,
    /// The user there and the file with the password; `None`: nobody in particular.
    pub login: Option<(String, PathBuf)>,
    /// PEM, the authorities that its certificate is held against; `None`: the system's.
    pub ca: Option<PathBuf>,
}

impl std::fmt::Display for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mail to {} by {}:{}", self.to.join(", "), self.host, self.port)
    }
}

/// How TLS is spoken with a mail server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailTls {
    /// From the first byte (RFC 8314).
    Implicit,
    /// After STARTTLS (RFC 3207), and not without it.
    StartTls,
    /// Not at all.
    Off,
}

impl Targets {
    /// Whether nobody is alerted.
    pub const fn is_empty(&self) -> bool {
        self.webhooks.is_empty() && self.mails.is_empty()
    }
}

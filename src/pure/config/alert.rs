//! `alert { webhook ..; mail .. }`: who is told that a server is down, is back, or is given up. It refuses what could never
//! arrive, and passwords in the clear.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::address::is_host_name;
use super::node::{Node, Value};
use super::places::SecretFile;
use super::problem::{Problem, Problems};
use crate::pure::alert::target::{Mail, MailTls, Targets, Webhook};

/// The most that are told, of each kind: each has a thread.
pub(super) const TARGETS_MAX: usize = 8;

/// The port of mail servers, and of those that speak TLS from the first byte (RFC 5321 4.5.4.2, RFC 8314 3.3).
const SMTP_PORT: u16 = 25;
const SUBMISSIONS_PORT: u16 = 465;

/// Who is alerted; the files with secrets are added to `secrets`.
pub(super) fn read(node: Node<'_>, secrets: &mut Vec<SecretFile>, problems: &mut Problems) -> Targets {
    let mut targets = Targets::default();
    for child in node.children("webhook") {
        targets.webhooks.extend(read_webhook(child, secrets, problems));
    }
    for child in node.children("mail") {
        targets.mails.extend(read_mail(child, secrets, problems));
    }
    for name in ["webhook", "mail"] {
        if let Some(extra) = node.children(name).nth(TARGETS_MAX) {
            let problem = Problem::at(&extra.place(), format!("these are more than {TARGETS_MAX} of `{name}`"));
            problems.add(problem.label("one too many").help("one that passes alerts on can reach many"));
        }
    }
    if node.children("webhook").next().is_none() && node.children("mail").next().is_none() {
        let problem = Problem::at(&node.place(), "this `alert` tells nobody").label("whom?");
        problems.add(problem.help(
            r#"write: alert { mail to="ops@a.test" from="pointsman@a.test" smtp="mail.a.test" }, or a `webhook`"#,
        ));
    }
    targets
}

fn read_webhook(node: Node<'_>, secrets: &mut Vec<SecretFile>, problems: &mut Problems) -> Option<Webhook> {
    let secret_file = node.setting("secret-file").and_then(|value| secret(value, secrets));
    let ca = node.setting("ca").and_then(|value| Some(value.beside(value.text()?)));
    let value = node.argument(0)?;
    let text = value.text()?;
    let Some(parts) = url(text) else {
        let problem = Problem::at(&value.place(), "this is no URL that alerts can be posted to").label("not this");
        problems.add(problem.help(r#"such as "https://hooks.a.test/pointsman", without a user and without `#`"#));
        return None;
    };
    let webhook = Webhook { secret_file, ca, ..parts };
    if let Some(ca) = node.setting("ca").filter(|_| !webhook.is_tls) {
        let problem = Problem::at(&ca.place(), "there are no certificates without TLS").label("not used");
        problems.add(problem.also(&value.place(), "this speaks plain HTTP").help("write https://, or leave `ca` out"));
    }
    Some(webhook)
}

fn url(text: &str) -> Option<Webhook> {
    // The type passes over what follows a `#`.
    let uri: http::Uri = text.parse().ok().filter(|_| !text.contains('#'))?;
    let is_tls = match uri.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let authority = uri.authority()?;
    let name = authority.host();
    let host = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_host = is_host_name(host) || host.parse::<IpAddr>().is_ok();
    let has_port = authority.as_str() != name;
    let port = match authority.port_u16() {
        Some(0) => return None,
        Some(port) => port,
        None if has_port => return None,
        None if is_tls => 443,
        None => 80,
    };
    (is_host && !authority.as_str().contains('@')).then(|| Webhook {
        is_tls,
        host: host.to_owned(),
        port,
        authority: authority.as_str().to_owned(),
        path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        secret_file: None,
        ca: None,
    })
}

fn read_mail(node: Node<'_>, secrets: &mut Vec<SecretFile>, problems: &mut Problems) -> Option<Mail> {
    let to: Vec<String> = node.settings("to").filter_map(|value| mailbox(value, problems)).collect();
    let from = node.setting("from").and_then(|value| mailbox(value, problems));
    let tls = match node.setting("tls").and_then(|value| value.text()) {
        Some("implicit") => MailTls::Implicit,
        Some("none") => MailTls::Off,
        // Other words have been reported.
        _ => MailTls::StartTls,
    };
    let default_port = if tls == MailTls::Implicit { SUBMISSIONS_PORT } else { SMTP_PORT };
    let smtp = node.setting("smtp");
    let server = smtp.and_then(|value| server(value, default_port, problems));
    for name in ["to", "from", "smtp"] {
        if node.setting(name).is_none() {
            let problem = Problem::at(&node.place(), format!("this `mail` has no `{name}`")).label("missing");
            problems.add(problem.help(r#"write: mail to="ops@a.test" from="pointsman@a.test" smtp="mail.a.test""#));
        }
    }
    let ca = node.setting("ca").and_then(|value| Some(value.beside(value.text()?)));
    if let Some(ca) = node.setting("ca").filter(|_| tls == MailTls::Off) {
        problems.add(Problem::at(&ca.place(), "there are no certificates without TLS").label("not used"));
    }
    let (host, port) = server?;
    let login = login(node, secrets, problems);
    let is_near = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if let Some(user) = node.setting("user").filter(|_| tls == MailTls::Off && !is_near) {
        let problem = Problem::at(&user.place(), "without TLS the password would travel in the clear");
        problems.add(problem.label("everybody on the way could read it").help(r#"tls="starttls", or "implicit""#));
    }
    Some(Mail { to, from: from?, host, port, tls, login, ca })
}

/// The user and the password's file, where there are both.
fn login(node: Node<'_>, secrets: &mut Vec<SecretFile>, problems: &mut Problems) -> Option<(String, PathBuf)> {
    let (user, file) = (node.setting("user"), node.setting("password-file"));
    let file = file.and_then(|value| Some((value, secret(value, secrets)?)));
    match (user, file) {
        (Some(user), Some((_, file))) => Some((user.text()?.to_owned(), file)),
        (Some(user), None) => {
            let problem = Problem::at(&user.place(), "a `user` needs a password").label("of this one");
            problems.add(problem.help("name a file that has it: password-file=\"secrets/mail\""));
            None
        }
        (None, Some((file, _))) => {
            let problem = Problem::at(&file.place(), "whose password is it?").label("`user` is missing");
            problems.add(problem.help("write user=\"..\" beside it"));
            None
        }
        (None, None) => None,
    }
}

/// The file with a secret that a value names.
pub(super) fn secret(value: Value<'_>, secrets: &mut Vec<SecretFile>) -> Option<PathBuf> {
    let file = value.beside(value.text()?);
    secrets.push(SecretFile { file: file.clone(), place: value.place() });
    Some(file)
}

/// An address of mail such as `ops@a.test`, without a name before it.
fn mailbox(value: Value<'_>, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    let is_atom = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+/=?^_`{|}~-.".contains(&byte);
    let is_good = text.rsplit_once('@').is_some_and(|(local, domain)| {
        let is_dotted = local.split('.').all(|part| !part.is_empty());
        local.len() <= 64 && local.bytes().all(is_atom) && is_dotted && is_host_name(domain)
    });
    if !is_good {
        let problem = Problem::at(&value.place(), format!("`{text}` is no address of mail")).label("not this");
        problems.add(problem.help("such as \"ops@a.test\", without a name before it"));
        return None;
    }
    Some(text.to_owned())
}

fn server(value: Value<'_>, default_port: u16, problems: &mut Problems) -> Option<(String, u16)> {
    let text = value.text()?;
    let found = host_and_port(text, default_port);
    if found.is_none() {
        let problem = Problem::at(&value.place(), format!("`{text}` is no mail server")).label("not this");
        problems.add(problem.help("a host, or an IP address, with or without a port: \"mail.a.test:587\""));
    }
    found
}

/// A host and its port, in whatever way they are written.
pub(super) fn host_and_port(text: &str, default_port: u16) -> Option<(String, u16)> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Some((address.to_string(), default_port));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() > 0).then(|| (address.ip().to_string(), address.port()));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
        None => (text, default_port),
    };
    is_host_name(host).then(|| (host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parts = |text: &str| {
            url(text).map(|it| (it.is_tls, it.host.clone(), it.port, it.authority.clone(), it.path.clone()))
        };
        let expected = |is_tls, host: &str, port, authority: &str, path: &str| {
            Some((is_tls, host.to_owned(), port, authority.to_owned(), path.to_owned()))
        };
        assert_eq!(parts("https://a.test/x?y=z"), expected(true, "a.test", 443, "a.test", "/x?y=z"));
        assert_eq!(parts("http://[::1]:8080"), expected(false, "::1", 8080, "[::1]:8080", "/"));
        for bad in ["a.test/x", "ftp://a.test/", "https://u@a.test/", "https:///x", "https://a.test/#x", "http://a:0/"]
        {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }

    #[test]
    fn hosts_have_the_usual_port_or_their_own() {
        let of = |text: &str| host_and_port(text, 25);
        assert_eq!(of("mail.a.test"), Some(("mail.a.test".to_owned(), 25)));
        assert_eq!(of("[::1]:2525"), Some(("::1".to_owned(), 2525)));
        assert_eq!(of("[::1]"), Some(("::1".to_owned(), 25)));
        assert_eq!(of("::1"), Some(("::1".to_owned(), 25)));
        assert_eq!(of("10.0.0.1:587"), Some(("10.0.0.1".to_owned(), 587)));
        for bad in ["", "a b", "mail:", "mail:0", "mail:x", "-x", "mail:25:25"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}

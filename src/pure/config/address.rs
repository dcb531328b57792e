//! Addresses as rule files write them: of listeners, of servers, and ranges of clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::node::Value;
use super::problem::{Problem, Problems};
use crate::pure::pool::Address;
use crate::pure::rule::Cidr;

/// The address of a listener. `*:80` and `[::]:80` are the same: all addresses, of IPv4 and IPv6.
pub(super) fn listener(value: Value<'_>, problems: &mut Problems) -> Option<SocketAddr> {
    match read_listener(value.text()?) {
        Ok(address) => Some(address),
        Err(trouble) => {
            problems.add(trouble.at(value));
            None
        }
    }
}

/// The address that a text names a listener by, where it is one.
pub(super) fn listener_named(text: &str) -> Option<SocketAddr> {
    read_listener(text).ok()
}

/// The address of a server.
pub(super) fn server(value: Value<'_>, problems: &mut Problems) -> Option<Address> {
    let text = value.text()?;
    let found = read(text, "10.0.0.1:9000").and_then(|address| match address {
        address if address.port() == 0 => Err(Trouble::new("a server has no port 0", "which port?")),
        address if address.ip().is_unspecified() => {
            let trouble = Trouble::new(format!("{} is no address of a server", address.ip()), "which machine?");
            Err(trouble.help(format!("this machine: \"127.0.0.1:{}\"", address.port())))
        }
        address => Ok(Address::Socket(address)),
    });
    found.map_err(|trouble| problems.add(trouble.at(value))).ok()
}

/// An address, or a range of addresses such as `10.0.0.0/8`.
pub(super) fn range(value: Value<'_>, problems: &mut Problems) -> Option<Cidr> {
    read_range(value.text()?).map_err(|trouble| problems.add(trouble.at(value))).ok()
}

/// A single address.
pub(super) fn client(value: Value<'_>, problems: &mut Problems) -> Option<IpAddr> {
    let text = value.text()?;
    let trouble = |_| problems.add(Trouble::new(format!("`{text}` is no IP address"), "such as 192.0.2.1").at(value));
    text.parse().map_err(trouble).ok()
}

/// What is wrong with an address.
struct Trouble {
    message: String,
    label: String,
    help: Option<String>,
}

impl Trouble {
    fn new(message: impl Into<String>, label: impl Into<String>) -> Self {
        Self { message: message.into(), label: label.into(), help: None }
    }

    fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    fn at(self, value: Value<'_>) -> Problem {
        let problem = Problem::at(&value.place(), self.message).label(self.label);
        match self.help {
            Some(text) => problem.help(text),
            None => problem,
        }
    }
}

fn read_listener(text: &str) -> Result<SocketAddr, Trouble> {
    if let Some(port) = text.strip_prefix("*:") {
        return Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), read_port(text, port)?));
    }
    if let Some(port) = text.strip_prefix(':').filter(|port| port.parse::<u16>().is_ok()) {
        let trouble = Trouble::new("an address is missing before the port", format!("write \"*:{port}\""));
        return Err(trouble.help("`*` is every address of this machine"));
    }
    if text.parse::<u16>().is_ok() {
        let trouble = Trouble::new("a port alone is no address", format!("write \"*:{text}\""));
        return Err(trouble.help("`*` is every address of this machine"));
    }
    read(text, "0.0.0.0:80")
}

/// Reads ip:port; what else could be meant gets an error of its own.
fn read(text: &str, example: &'static str) -> Result<SocketAddr, Trouble> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if text.starts_with("unix:") {
        let trouble = Trouble::new("`unix:` addresses are not supported yet", "not in this version");
        return Err(trouble.help(format!("use an IP address and a port: \"{example}\"")));
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        let rest = rest.split('/').next().unwrap_or_default();
        let trouble = Trouble::new(format!("`{scheme}://` does not belong here"), format!("write \"{rest}\""));
        return Err(trouble.help("an address is an IP address and a port"));
    }
    let bare_v6 = text
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host.parse::<Ipv6Addr>().ok()?, port.parse::<u16>().ok()?)));
    if let Some((ip, port)) = bare_v6 {
        return Err(Trouble::new("an IPv6 address stands in brackets", format!("write \"[{ip}]:{port}\"")));
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Err(Trouble::new("the port is missing", format!("write \"{}\"", SocketAddr::new(ip, 80))));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        let trouble = Trouble::new(format!("`{text}` is no address with a port"), "no port");
        return Err(trouble.help(format!("such as \"{example}\"")));
    };
    let port = read_port(text, port)?;
    if host.is_empty() || host.parse::<Ipv4Addr>().is_ok() || !is_host_name(host) {
        return Err(Trouble::new(format!("`{host}` is no IP address"), format!("such as \"{example}\"")));
    }
    if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(Trouble::new(format!("`{host}` is no IP address"), "four numbers from 0 to 255"));
    }
    let trouble = Trouble::new("host names are not supported here yet", "not in this version");
    Err(if host.eq_ignore_ascii_case("localhost") {
        trouble.help(format!("write \"127.0.0.1:{port}\""))
    } else {
        trouble.help(format!("write the IP address of {host}"))
    })
}

fn read_port(text: &str, port: &str) -> Result<u16, Trouble> {
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(Trouble::new(format!("`{port}` is no port"), format!("in \"{text}\"")));
    }
    port.parse().map_err(|_| Trouble::new(format!("there is no port {port}"), "ports end at 65535"))
}

/// Whether it could be the name of a host (RFC 1123 2.1, and `_`, which is met in practice).
pub(super) fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

fn read_range(text: &str) -> Result<Cidr, Trouble> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let Ok(ip) = address.parse::<IpAddr>() else {
        return Err(Trouble::new(format!("`{address}` is no IP address"), "such as \"10.0.0.0/8\""));
    };
    let bits = if ip.is_ipv4() { 32 } else { 128 };
    let Some(prefix) = prefix else { return Ok(Cidr { address: ip, prefix: bits }) };
    match prefix.parse::<u8>() {
        Ok(prefix) if prefix <= bits => Ok(Cidr { address: ip, prefix }),
        Ok(_) | Err(_) => {
            let trouble = Trouble::new(format!("`/{prefix}` is no length of a prefix"), format!("from /0 to /{bits}"));
            Err(trouble.help("how many leading bits of the address count"))
        }
    }
}

//! Addresses as rule files write them: of listeners, of servers, and ranges of clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::ListenAddress;
use super::node::Value;
use super::problem::{Problem, Problems};
use crate::pure::pool::Address;
use crate::pure::rule::Cidr;

/// The port that DNS servers listen on (RFC 1035 4.2).
const DNS_PORT: u16 = 53;

/// The longest path of a unix socket: `sun_path` has 108 bytes, the last of them zero (unix(7)).
const UNIX_PATH_MAX: usize = 107;

/// The address of a listener. `*:80` and `[::]:80` are the same: all addresses, of IPv4 and IPv6.
pub(super) fn listener(value: Value<'_>, problems: &mut Problems) -> Option<ListenAddress> {
    let found = read_listener(value.text()?, |file| value.beside(file));
    found.map_err(|trouble| problems.add(trouble.at(value))).ok()
}

/// The address that a text names a listener by, where it is one; `beside` finds the file of a relative name.
pub(super) fn listener_named(text: &str, beside: impl FnOnce(&str) -> PathBuf) -> Option<ListenAddress> {
    read_listener(text, beside).ok()
}

/// The address of a server.
pub(super) fn server(value: Value<'_>, problems: &mut Problems) -> Option<Address> {
    let text = value.text()?;
    let found = read(text, Whose::Server).and_then(|found| match found {
        Found::Unix(path) => unix(path, |file| value.beside(file)).map(Address::Unix),
        Found::Socket(address) if address.ip().is_unspecified() => {
            let trouble = Trouble::new(format!("{} is no address of a server", address.ip()), "which machine?");
            Err(trouble.help(format!("this machine: \"127.0.0.1:{}\"", address.port())))
        }
        Found::Socket(address) if address.port() == 0 => no_port(),
        Found::Name(_, 0) => no_port(),
        Found::Socket(address) => Ok(Address::Socket(address)),
        Found::Name(host, port) => Ok(Address::Name(host.to_ascii_lowercase(), port)),
    });
    found.map_err(|trouble| problems.add(trouble.at(value))).ok()
}

fn no_port() -> Result<Address, Trouble> {
    Err(Trouble::new("a server has no port 0", "which port?"))
}

/// The address of a DNS server; its port is 53 where none is given.
pub(super) fn resolver(value: Value<'_>, problems: &mut Problems) -> Option<SocketAddr> {
    let text = value.text()?;
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT)).or_else(|_| text.parse());
    let address = address.ok().filter(|address| address.port() != 0 && !address.ip().is_unspecified());
    if address.is_none() {
        let trouble = Trouble::new(format!("`{text}` is no address of a DNS server"), "an IP address");
        problems.add(trouble.help("such as \"10.0.0.53\" or \"10.0.0.53:5353\"").at(value));
    }
    address
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

fn read_listener(text: &str, beside: impl FnOnce(&str) -> PathBuf) -> Result<ListenAddress, Trouble> {
    if let Some(port) = text.strip_prefix("*:") {
        let port = read_port(text, port)?;
        return Ok(ListenAddress::Socket(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)));
    }
    if let Some(port) = text.strip_prefix(':').filter(|port| port.parse::<u16>().is_ok()) {
        let trouble = Trouble::new("an address is missing before the port", format!("write \"*:{port}\""));
        return Err(trouble.help("`*` is every address of this machine"));
    }
    if text.parse::<u16>().is_ok() {
        let trouble = Trouble::new("a port alone is no address", format!("write \"*:{text}\""));
        return Err(trouble.help("`*` is every address of this machine"));
    }
    match read(text, Whose::Listener)? {
        Found::Socket(address) => Ok(ListenAddress::Socket(address)),
        Found::Unix(path) => unix(path, beside).map(ListenAddress::Unix),
        Found::Name(host, port) => {
            let trouble = Trouble::new(format!("a listener has no name, and `{host}` is one"), "an IP address");
            Err(if host.eq_ignore_ascii_case("localhost") {
                trouble.help(format!("write \"127.0.0.1:{port}\""))
            } else {
                trouble.help(format!("write an IP address of this machine, or \"*:{port}\" for all of them"))
            })
        }
    }
}

/// The file of a unix socket.
fn unix(path: &str, beside: impl FnOnce(&str) -> PathBuf) -> Result<PathBuf, Trouble> {
    if path.is_empty() || path.contains('\0') {
        let trouble = Trouble::new("a unix socket has a file", "which file?");
        return Err(trouble.help("such as \"unix:/run/app.sock\""));
    }
    let path = beside(path);
    if path.as_os_str().len() > UNIX_PATH_MAX {
        let trouble = Trouble::new("this path is too long for a unix socket", "shorten it");
        return Err(trouble.help(format!("the system takes at most {UNIX_PATH_MAX} bytes")));
    }
    Ok(path)
}

/// An address as it is written.
enum Found<'t> {
    Socket(SocketAddr),
    Name(&'t str, u16),
    Unix(&'t str),
}

/// Whose address is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Listener,
    Server,
}

impl Whose {
    const fn example(self) -> &'static str {
        match self {
            Self::Listener => "0.0.0.0:80",
            Self::Server => "10.0.0.1:9000",
        }
    }
}

/// Reads ip:port, name:port or unix:path; what else could be meant gets an error of its own.
fn read(text: &str, whose: Whose) -> Result<Found<'_>, Trouble> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Found::Socket(address));
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Found::Unix(path));
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        return Err(with_scheme(scheme, rest, whose));
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
    let Some((host, port)) = text.rsplit_once(':') else { return Err(without_port(text, whose)) };
    let port = read_port(text, port)?;
    if host.is_empty() || host.parse::<Ipv4Addr>().is_ok() || !is_host_name(host.strip_suffix('.').unwrap_or(host)) {
        let is_name = host.contains(|letter: char| letter.is_alphabetic()) && !host.contains([':', '[']);
        return Err(if is_name {
            Trouble::new(format!("`{host}` is no host name"), "letters, digits and `-`, with single dots between")
        } else {
            Trouble::new(format!("`{host}` is no IP address"), format!("such as \"{}\"", whose.example()))
        });
    }
    if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(Trouble::new(format!("`{host}` is no IP address"), "four numbers from 0 to 255"));
    }
    Ok(Found::Name(host, port))
}

/// What to say of an URL.
fn with_scheme(scheme: &str, rest: &str, whose: Whose) -> Trouble {
    let is_tls = ["https", "grpcs", "wss", "h2"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let authority = rest.split('/').next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = match (has_port, is_tls) {
        (true, _) => "",
        (false, true) => ":443",
        (false, false) => ":80",
    };
    let trouble = Trouble::new(format!("`{scheme}://` does not belong here"), format!("write \"{authority}{port}\""));
    trouble.help(match (whose, is_tls) {
        (Whose::Server, true) => r#"TLS to servers is said in the pool: upstream "http/1.1" { tls }"#,
        (Whose::Listener, true) => {
            r#"TLS to clients is said in the block: tls { certificate "certs/site.crt" key="certs/site.key" }"#
        }
        (_, false) => "an address is a host and a port",
    })
}

/// What to say where nothing is a port.
fn without_port(text: &str, whose: Whose) -> Trouble {
    if text.starts_with(['/', '.']) {
        let trouble = Trouble::new(format!("`{text}` is no address with a port"), format!("write \"unix:{text}\""));
        return trouble.help("the address of a unix socket begins with `unix:`");
    }
    if whose == Whose::Server && is_host_name(text) && text.contains(|letter: char| letter.is_ascii_alphabetic()) {
        return Trouble::new("the port is missing", format!("write \"{text}:80\"")).help("or another port");
    }
    let trouble = Trouble::new(format!("`{text}` is no address with a port"), "no port");
    trouble.help(format!("such as \"{}\"", whose.example()))
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
        if let Ok(socket) = address.parse::<SocketAddr>() {
            return Err(Trouble::new("an address has no port here", format!("write \"{}\"", socket.ip())));
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        if is_host_name(host) && host.contains(|letter: char| letter.is_ascii_alphabetic()) {
            let trouble =
                Trouble::new(format!("`{host}` is a name, and no IP address"), "names are not looked up here");
            return Err(trouble.help("write the address, or the range that it is in, such as \"10.0.0.0/8\""));
        }
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

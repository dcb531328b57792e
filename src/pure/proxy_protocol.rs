//! The PROXY protocol, versions 1 and 2: the header that a proxy sends first on a connection, to name the client that it
//! relays (HAProxy's proxy-protocol.txt, of which the sections are cited).
//!
//! Bytes in, a header and its length out, and the reverse. Any piece of a header is [`Parsed::Partial`] or what the whole
//! is, and what follows the header makes no difference. The additional fields of version 2 (TLVs) are passed over unread. It
//! refuses to say whom to believe.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest header that is read, in bytes: the longest addresses (unix sockets) with the usual fields behind them take
/// less than a fourth of it.
pub const HEADER_MAX: usize = 4096;

/// The longest line of version 1 with its end, in bytes (section 2.1).
const LINE_MAX: usize = 107;

/// What version 1 begins with.
const LINE_START: &[u8] = b"PROXY ";

/// What version 2 begins with (section 2.2).
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, command, family and length of version 2, in bytes.
const FIXED: usize = 16;

/// Which version is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Both ends of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The client's address.
    pub client: SocketAddr,
    /// The address that the client has called.
    pub called: SocketAddr,
}

/// For whom a proxy has made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// For itself: `LOCAL`, as with health checks. Both ends are those of the connection.
    Proxy,
    /// For a client that the header does not name: `UNKNOWN`, an unspecified family, a unix socket.
    Unnamed,
    /// For this client.
    Client(Endpoints),
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// For whom the connection was made.
    pub source: Source,
    /// How many bytes it takes.
    pub length: usize,
}

/// What bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A part of a header, as far as can be told.
    Partial,
    /// A whole header.
    Complete(Header),
}

/// Why bytes begin with no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Neither version begins so.
    #[error("it does not begin with a PROXY header")]
    Missing,
    /// A line that breaks version 1.
    #[error("its PROXY line is malformed")]
    Line,
    /// Another version than 2 behind the signature, or a command that there is not.
    #[error("the version or command of its PROXY header is unknown")]
    Command,
    /// A family or transport that there is not.
    #[error("the address family of its PROXY header is unknown")]
    Family,
    /// Less room than the addresses of the family take.
    #[error("the addresses of its PROXY header are cut short")]
    Addresses,
    /// A line of more than 107 bytes, or a header of more than [`HEADER_MAX`].
    #[error("its PROXY header is too long")]
    TooLong,
}

/// Whether bytes begin as a header does.
pub fn begins(bytes: &[u8]) -> bool {
    bytes.starts_with(LINE_START) || bytes.starts_with(SIGNATURE)
}

/// Reads the header that `bytes` begin with.
///
/// # Errors
/// [`HeaderError`], as soon as it can be told.
pub fn parse(bytes: &[u8]) -> Result<Parsed, HeaderError> {
    if is_start(bytes, SIGNATURE) && !bytes.is_empty() {
        return parse_binary(bytes);
    }
    if is_start(bytes, LINE_START) { parse_line(bytes) } else { Err(HeaderError::Missing) }
}

/// Whether `bytes` begin with `start`, as far as they go.
fn is_start(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(byte, wanted)| byte == wanted)
}

fn parse_line(bytes: &[u8]) -> Result<Parsed, HeaderError> {
    let window = bytes.get(..LINE_MAX).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if window.len() < LINE_MAX { Ok(Parsed::Partial) } else { Err(HeaderError::TooLong) };
    };
    let line = window.get(LINE_START.len()..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(HeaderError::Line)?;
    let line = std::str::from_utf8(line).ok().filter(|line| !line.contains('\r')).ok_or(HeaderError::Line)?;
    let (protocol, rest) = line.split_once(' ').unwrap_or((line, ""));
    let source = match protocol {
        "TCP4" => Source::Client(parse_endpoints::<Ipv4Addr>(rest).ok_or(HeaderError::Line)?),
        "TCP6" => Source::Client(parse_endpoints::<Ipv6Addr>(rest).ok_or(HeaderError::Line)?),
        // What follows is not looked at (section 2.1).
        "UNKNOWN" => Source::Unnamed,
        _ => return Err(HeaderError::Line),
    };
    Ok(Parsed::Complete(Header { source, length: end + 1 }))
}

/// Two addresses and two ports, with one space between each.
fn parse_endpoints<A: std::str::FromStr + Into<IpAddr>>(text: &str) -> Option<Endpoints> {
    let mut parts = text.split(' ');
    let mut next = || parts.next();
    let (client, called) = (next()?.parse::<A>().ok()?, next()?.parse::<A>().ok()?);
    let (client_port, called_port) = (parse_port(next()?)?, parse_port(next()?)?);
    let is_end = next().is_none();
    is_end.then(|| Endpoints {
        client: SocketAddr::new(client.into(), client_port),
        called: SocketAddr::new(called.into(), called_port),
    })
}

/// A decimal number without a sign or a leading zero.
fn parse_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

/// The addresses that a header of version 2 is read for.
#[derive(Clone, Copy)]
enum Family {
    Inet,
    Inet6,
    /// No IP addresses; they take that many bytes.
    Other(usize),
}

fn parse_binary(bytes: &[u8]) -> Result<Parsed, HeaderError> {
    let Some(command) = bytes.get(SIGNATURE.len()) else { return Ok(Parsed::Partial) };
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(HeaderError::Command),
    };
    let Some(family) = bytes.get(SIGNATURE.len() + 1) else { return Ok(Parsed::Partial) };
    let family = if is_local { Family::Other(0) } else { parse_family(*family)? };
    let Some([high, low]) = bytes.get(FIXED - 2..FIXED) else { return Ok(Parsed::Partial) };
    let length = FIXED + usize::from(u16::from_be_bytes([*high, *low]));
    if length > HEADER_MAX {
        return Err(HeaderError::TooLong);
    }
    let least = match family {
        Family::Inet => 12,
        Family::Inet6 => 36,
        Family::Other(length) => length,
    };
    if length < FIXED + least {
        return Err(HeaderError::Addresses);
    }
    let Some(block) = bytes.get(FIXED..length) else { return Ok(Parsed::Partial) };
    let endpoints = match family {
        Family::Inet => binary_endpoints::<4>(block),
        Family::Inet6 => binary_endpoints::<16>(block),
        Family::Other(_) => None,
    };
    let unnamed = if is_local { Source::Proxy } else { Source::Unnamed };
    Ok(Parsed::Complete(Header { source: endpoints.map_or(unnamed, Source::Client), length }))
}

/// The byte of address family and transport. Datagrams are named like streams: who relays them here has the same to say.
fn parse_family(byte: u8) -> Result<Family, HeaderError> {
    match byte {
        0x11 | 0x12 => Ok(Family::Inet),
        0x21 | 0x22 => Ok(Family::Inet6),
        0x31 | 0x32 => Ok(Family::Other(216)),
        // Nothing is said of the family, or of the transport and so of what the addresses look like.
        0x00..=0x02 | 0x10 | 0x20 | 0x30 => Ok(Family::Other(0)),
        _ => Err(HeaderError::Family),
    }
}

/// Addresses of `N` bytes, then ports. `None`: there is no room for them.
fn binary_endpoints<const N: usize>(block: &[u8]) -> Option<Endpoints>
where
    IpAddr: From<[u8; N]>,
{
    let (client, rest) = block.split_first_chunk::<N>()?;
    let (called, rest) = rest.split_first_chunk::<N>()?;
    let (client_port, rest) = rest.split_first_chunk::<2>()?;
    let called_port = rest.first_chunk::<2>()?;
    let address = |bytes: &[u8; N], port: &[u8; 2]| SocketAddr::new(IpAddr::from(*bytes), u16::from_be_bytes(*port));
    Some(Endpoints { client: address(client, client_port), called: address(called, called_port) })
}

/// Appends the header that names `source`. Addresses of two families are written as two of IPv6; version 1 has no other word
/// for [`Source::Proxy`] than for [`Source::Unnamed`].
pub fn push(out: &mut Vec<u8>, version: Version, source: Source) {
    match version {
        Version::V1 => push_line(out, source),
        Version::V2 => push_binary(out, source),
    }
}

/// Two addresses of one family.
enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

fn pair(endpoints: &Endpoints) -> Pair {
    match (endpoints.client.ip().to_canonical(), endpoints.called.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(called)) => Pair::V4(client, called),
        (client, called) => Pair::V6(as_v6(client), as_v6(called)),
    }
}

const fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn push_line(out: &mut Vec<u8>, source: Source) {
    let Source::Client(endpoints) = source else {
        out.extend_from_slice(b"PROXY UNKNOWN\r\n");
        return;
    };
    let ports = (endpoints.client.port(), endpoints.called.port());
    // Into memory, writing can't fail.
    let _ = match pair(&endpoints) {
        Pair::V4(client, called) => write!(out, "PROXY TCP4 {client} {called} {} {}\r\n", ports.0, ports.1),
        Pair::V6(client, called) => write!(out, "PROXY TCP6 {client} {called} {} {}\r\n", ports.0, ports.1),
    };
}

fn push_binary(out: &mut Vec<u8>, source: Source) {
    out.extend_from_slice(SIGNATURE);
    let endpoints = match source {
        Source::Proxy => return out.extend_from_slice(&[0x20, 0x00, 0, 0]),
        Source::Unnamed => return out.extend_from_slice(&[0x21, 0x00, 0, 0]),
        Source::Client(endpoints) => endpoints,
    };
    match pair(&endpoints) {
        Pair::V4(client, called) => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            out.extend_from_slice(&client.octets());
            out.extend_from_slice(&called.octets());
        }
        Pair::V6(client, called) => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            out.extend_from_slice(&client.octets());
            out.extend_from_slice(&called.octets());
        }
    }
    out.extend_from_slice(&endpoints.client.port().to_be_bytes());
    out.extend_from_slice(&endpoints.called.port().to_be_bytes());
}

#[cfg(test)]
mod tests;

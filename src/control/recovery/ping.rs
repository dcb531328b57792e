//! An ICMP echo (RFC 792, RFC 4443 4.1): whether a machine answers.
//!
//! It takes the socket that needs no privilege where the system allows it (`net.ipv4.ping_group_range`), else a raw one, which
//! needs CAP_NET_RAW. Where it may have neither it has not asked: that says nothing of the machine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::pure::recovery::StepFailure;

/// How often is asked before the machine is taken for dead, and how long each answer has.
const TIMES: u16 = 3;
const PATIENCE: Duration = Duration::from_millis(500);

/// The length of our own mark in each echo.
const MARK: usize = 16;

/// The types of an echo and of its answer.
const ECHO_V4: (u8, u8) = (8, 0);
const ECHO_V6: (u8, u8) = (128, 129);

/// Asks a machine.
///
/// # Errors
/// [`StepFailure::No`] where it does not answer, [`StepFailure::NotDone`] where it could not be asked.
pub(super) async fn ping(address: IpAddr) -> Result<(), StepFailure> {
    let not_done = |error: io::Error| StepFailure::NotDone(format!("it can't be asked: {error}"));
    let address = address.to_canonical();
    let (socket, is_raw) = open(address).map_err(not_done)?;
    // No UDP is spoken: it is a socket for datagrams like any other.
    let socket = UdpSocket::from_std(socket.into()).map_err(not_done)?;
    let mut mark = [0; MARK];
    aws_lc_rs::rand::fill(&mut mark).map_err(|_| StepFailure::NotDone("no random numbers".to_owned()))?;
    let to = SocketAddr::new(address, 0);
    for sequence in 1..=TIMES {
        let packet = echo(address, sequence, &mark);
        match socket.send_to(&packet, to).await {
            Ok(_) => {}
            // Its neighbours say that it is not there.
            Err(error) if error.kind() == io::ErrorKind::HostUnreachable => continue,
            // Where we have no way to its network the fault may be ours.
            Err(error) => return Err(not_done(error)),
        }
        let answer = answer(&socket, address, is_raw && address.is_ipv4(), &mark);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(result) => return result.map_err(not_done),
            Err(_elapsed) => {}
        }
    }
    Err(StepFailure::No("no answer".to_owned()))
}

/// A socket, and whether it is raw.
fn open(address: IpAddr) -> io::Result<(Socket, bool)> {
    let (domain, protocol) = match address {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let make = |kind: Type| Socket::new(domain, kind.nonblocking().cloexec(), Some(protocol));
    match make(Type::DGRAM) {
        Ok(socket) => Ok((socket, false)),
        Err(_) => make(Type::RAW).map(|socket| (socket, true)),
    }
}

/// Waits for the answer with our mark; others come by too.
async fn answer(socket: &UdpSocket, address: IpAddr, has_ip_header: bool, mark: &[u8; MARK]) -> io::Result<()> {
    let mut buffer = [0; 512];
    loop {
        let length = match socket.recv(&mut buffer).await {
            Ok(length) => length,
            // Somebody on the way says that it is not there: more may come.
            Err(error) if is_from_afar(&error) => continue,
            Err(error) => return Err(error),
        };
        if is_answer(buffer.get(..length).unwrap_or_default(), address, has_ip_header, mark) {
            return Ok(());
        }
    }
}

fn is_from_afar(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | ConnectionRefused)
}

/// Whether these bytes are the answer to an echo with that mark. Raw sockets of IPv4 see the IP header too.
fn is_answer(bytes: &[u8], address: IpAddr, has_ip_header: bool, mark: &[u8; MARK]) -> bool {
    let header = match bytes.first() {
        Some(first) if has_ip_header => usize::from(first & 0x0F) * 4,
        Some(_) => 0,
        None => return false,
    };
    let Some(message) = bytes.get(header..) else { return false };
    let (_, wanted) = if address.is_ipv4() { ECHO_V4 } else { ECHO_V6 };
    message.first() == Some(&wanted) && message.get(8..8 + MARK) == Some(mark.as_slice())
}

/// An echo. The kernel fills the checksum of IPv6 in, and the identifier of sockets that are not raw.
fn echo(address: IpAddr, sequence: u16, mark: &[u8; MARK]) -> Vec<u8> {
    let (kind, _) = if address.is_ipv4() { ECHO_V4 } else { ECHO_V6 };
    let [high, low] = sequence.to_be_bytes();
    let [mark_high, mark_low, ..] = *mark;
    let mut packet = vec![kind, 0, 0, 0, mark_high, mark_low, high, low];
    packet.extend(mark);
    let [sum_high, sum_low] = checksum(&packet).to_be_bytes();
    if let Some(place) = packet.get_mut(2..4) {
        place.copy_from_slice(&[sum_high, sum_low]);
    }
    packet
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let high = pair.first().copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([high, pair.get(1).copied().unwrap_or(0)]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        let packet = echo(IpAddr::from([10, 0, 0, 1]), 7, &[3; MARK]);
        assert_eq!(checksum(&packet), 0, "a packet with its checksum sums up to nothing");
    }

    #[test]
    fn only_the_answer_with_our_mark_counts() {
        let (four, six): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into());
        let mark = [5; MARK];
        let with_kind = |kind: u8, address| {
            let mut packet = echo(address, 1, &mark);
            packet[0] = kind;
            packet
        };
        assert!(is_answer(&with_kind(0, four), four, false, &mark));
        assert!(is_answer(&with_kind(129, six), six, false, &mark));
        assert!(!is_answer(&with_kind(8, four), four, false, &mark), "our own echo on loopback");
        assert!(!is_answer(&with_kind(0, four), four, false, &[6; MARK]));
        let raw = [&[0x45; 1][..], &[0; 19], &with_kind(0, four)].concat();
        assert!(is_answer(&raw, four, true, &mark) && !is_answer(&raw, four, false, &mark));
        for length in 0..raw.len() {
            is_answer(&raw[..length], four, true, &mark);
        }
    }

    #[test]
    fn this_machine_answers() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for address in ["127.0.0.1", "::1"] {
            match runtime.block_on(ping(address.parse().unwrap())) {
                Ok(()) => {}
                // Where we may not ask, or there is no IPv6.
                Err(StepFailure::NotDone(why)) => assert!(!why.is_empty()),
                Err(StepFailure::No(why)) => panic!("{address}: {why}"),
            }
        }
    }
}

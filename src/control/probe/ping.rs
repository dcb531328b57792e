//! An echo request to a server's machine: over a ping socket, which needs no right where the system grants it to our group
//! (icmp(7), `ping_group_range`), else over a raw socket.
//!
//! It says that the machine lives, and nothing of what runs on it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::{NotRun, ProbeError};
use crate::pure::check::echo::{self, Family, Nonce, REPLY_MAX};
use crate::pure::control::CheckFailure;
use crate::pure::pool::Address;
use crate::shared::endpoint::Endpoint;

/// The sockets that can send an echo request, most modest first.
const SOCKETS: [Type; 2] = [Type::DGRAM, Type::RAW];

/// Asks the machine of a server. The addresses of a name are tried in turn, each with its share of the time that is left.
pub(in crate::control) async fn ping(endpoint: &Endpoint, timeout: Duration) -> Result<(), ProbeError> {
    let deadline = Instant::now() + timeout;
    let addresses: Vec<SocketAddr> = match &endpoint.server.address {
        Address::Socket(address) => vec![*address],
        Address::Name(..) => endpoint.named_from_last_good().map(|(_, address)| address).collect(),
        // The rule file was refused.
        Address::Unix(_) => Vec::new(),
    };
    // What one that was asked says goes before what kept us from asking another.
    let (mut last, mut has_failed) = (ProbeError::NotRun(NotRun::Unresolved), false);
    for (position, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - position).unwrap_or(u32::MAX);
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / left;
        match timeout_at(now + share, ping_address(*address, &SOCKETS)).await {
            Ok(Ok(())) => return Ok(()),
            // To another address there may be a way.
            Ok(Err(error @ ProbeError::NotRun(NotRun::NoWay(_)))) => {
                if !has_failed {
                    last = error;
                }
            }
            Ok(Err(error @ ProbeError::NotRun(_))) => return Err(error),
            Ok(Err(error)) => (last, has_failed) = (error, true),
            Err(_elapsed) => (last, has_failed) = (ProbeError::Failed(CheckFailure::TimedOut), true),
        }
    }
    Err(last)
}

/// Asks one address over the first of `sockets` that the system grants.
pub(super) async fn ping_address(mut address: SocketAddr, sockets: &[Type]) -> Result<(), ProbeError> {
    address.set_ip(address.ip().to_canonical());
    address.set_port(0);
    let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
    let socket = open(family, sockets)?;
    // Then the system takes messages of this address alone. It asks nobody: where it knows no way, the fault may be ours.
    socket.connect(&address.into()).map_err(|error| ProbeError::NotRun(NotRun::NoWay(error)))?;
    // The runtime reads and writes it like one of UDP: in messages.
    let socket = UdpSocket::from_std(socket.into()).map_err(|error| ProbeError::NotRun(NotRun::Exhausted(error)))?;
    let mut nonce = Nonce::default();
    aws_lc_rs::rand::fill(&mut nonce)
        .map_err(|error| ProbeError::NotRun(NotRun::Exhausted(io::Error::other(error))))?;
    let request = echo::request(family, &nonce);
    socket.send(&request).await.map_err(classify)?;
    loop {
        let mut packet = [0; REPLY_MAX];
        let count = socket.recv(&mut packet).await.map_err(classify)?;
        if packet.get(..count).is_some_and(|packet| echo::is_reply(packet, family, &nonce)) {
            return Ok(());
        }
    }
}

fn open(family: Family, sockets: &[Type]) -> Result<Socket, ProbeError> {
    let (domain, protocol) = match family {
        Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
        Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
    };
    let mut forbidden = io::Error::from_raw_os_error(Errno::EPERM as i32);
    for kind in sockets {
        match Socket::new(domain, kind.nonblocking().cloexec(), Some(protocol)) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => forbidden = error,
            Err(error) => return Err(classify(error)),
        }
    }
    Err(ProbeError::NotRun(NotRun::PingForbidden(forbidden)))
}

pub(super) fn classify(error: io::Error) -> ProbeError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::EAGAIN) => {
            ProbeError::NotRun(NotRun::Exhausted(error))
        }
        // A firewall, an interface or a route of ours: nothing was asked, and nothing is known of the machine.
        Some(Errno::EPERM | Errno::EACCES | Errno::EADDRNOTAVAIL | Errno::ENETUNREACH | Errno::ENETDOWN) => {
            ProbeError::NotRun(NotRun::NoWay(error))
        }
        _ => ProbeError::Failed(CheckFailure::Unreachable),
    }
}

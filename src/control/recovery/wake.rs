//! Wake-on-LAN: the magic packet, sent as a UDP datagram. Whether anybody woke is not to be known here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::UdpSocket;

use crate::pure::recovery::StepFailure;
use crate::pure::recovery::plan::MacAddress;

/// How often the packet is sent: nobody confirms a datagram.
const TIMES: usize = 3;

/// Sends the magic packet of `mac` to `to`, a broadcast address as a rule.
pub(super) async fn wake(mac: MacAddress, to: SocketAddr) -> Result<(), StepFailure> {
    let wrap = |error: std::io::Error| StepFailure::NotDone(format!("the packet can't be sent: {error}"));
    let any = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(wrap)?;
    socket.set_broadcast(true).map_err(wrap)?;
    let packet = mac.magic_packet();
    for _ in 0..TIMES {
        socket.send_to(&packet, to).await.map_err(wrap)?;
    }
    Ok(())
}

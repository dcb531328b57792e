//! The feedback socket: bound before anything runs, with a large buffer, a filter in the kernel and the kernel's count of what
//! it had no room for. It refuses to look into a datagram.

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd as _, AsRawFd as _};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, setsockopt, sockopt};
use socket2::{Domain, SockFilter, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::pure::config::Feedback;
use crate::pure::feedback::filter::program;
use crate::pure::feedback::wire::DATAGRAM_MAX;
use crate::pure::rule::Cidr;

/// The socket's buffer, in bytes: some thousand datagrams.
pub const RECEIVE_BUFFER: usize = 4 << 20;

/// Where the kernel counts datagrams for which sockets of this network namespace had no room.
const KERNEL_COUNTS: [&str; 2] = ["/proc/thread-self/net/snmp", "/proc/thread-self/net/snmp6"];

/// Why the socket can't be made.
#[derive(Debug, thiserror::Error)]
#[error("can't listen for reports on {address}: {cause}")]
pub struct OpenError {
    /// Where.
    pub address: SocketAddr,
    /// Why.
    pub cause: io::Error,
}

/// The bound socket, not yet part of a runtime.
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    /// Where it is bound: with its port, also where any would do.
    pub local: SocketAddr,
}

impl BoundSocket {
    /// Binds it. It is not shared: a second process on the same port is an error.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: &Feedback) -> Result<Self, OpenError> {
        let wrap = |cause| OpenError { address: config.address, cause };
        Self::bind(config.address).map_err(wrap)
    }

    fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM.cloexec().nonblocking(), None)?;
        if address.ip() == Ipv6Addr::UNSPECIFIED {
            socket.set_only_v6(false)?;
        }
        grow_buffer(&socket)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        socket.bind(&address.into())?;
        let local = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self { socket, local })
    }

    /// Hands it to the runtime of the thread.
    ///
    /// # Errors
    /// Where the runtime can't take it.
    pub fn into_live(self) -> io::Result<LiveSocket> {
        let socket = UdpSocket::from_std(self.socket.into())?;
        Ok(LiveSocket { socket, control: nix::cmsg_space!(u32), drops: 0, no_room: no_room() })
    }
}

/// Grows the buffer past the system's bound where that is allowed, else up to it.
fn grow_buffer(socket: &Socket) -> io::Result<()> {
    if setsockopt(socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_ok() {
        return Ok(());
    }
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    // The kernel counts twice what was asked for.
    let granted = getsockopt(&socket.as_fd(), sockopt::RcvBuf)? / 2;
    if granted < RECEIVE_BUFFER {
        tracing::warn!(
            "the buffer for reports has {granted} bytes and not {RECEIVE_BUFFER}: raise net.core.rmem_max, or some may be lost"
        );
    }
    Ok(())
}

/// The socket at work.
#[derive(Debug)]
pub struct LiveSocket {
    socket: UdpSocket,
    control: Vec<u8>,
    /// The kernel's count of what this socket did not get, as of the last datagram: what the filter refused is in it.
    drops: u32,
    /// The kernel's count of datagrams for which there was no room, as of the last look.
    no_room: u64,
}

/// A datagram that came.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Its length; of one that is longer than the buffer, no more than the buffer's.
    pub length: usize,
    /// Who sent it, as far as it says.
    pub from: SocketAddr,
    /// Whether the kernel has not delivered others since the one before.
    pub after_drops: bool,
}

/// Room for a datagram and a byte more, by which one that is too long is known.
pub type Buffer = [u8; DATAGRAM_MAX + 1];

impl LiveSocket {
    /// Lets the kernel drop all but the datagrams of these sources. Where there are too many for a filter, all come through.
    pub fn filter(&self, sources: &[Cidr]) {
        let socket = socket2::SockRef::from(&self.socket);
        let filtered = match program(sources) {
            Some(program) => {
                let step = |step: &crate::pure::feedback::filter::Instruction| {
                    SockFilter::new(step.code, step.if_true, step.if_false, step.operand)
                };
                socket.attach_filter(&program.iter().map(step).collect::<Vec<_>>())
            }
            None => socket.detach_filter().or_else(|error| {
                // There was none.
                if error.raw_os_error() == Some(nix::errno::Errno::ENOENT as i32) { Ok(()) } else { Err(error) }
            }),
        };
        if let Err(error) = filtered {
            tracing::warn!("the kernel does not filter reports, and each is looked at: {error}");
        }
    }

    /// Waits until there is something to receive.
    ///
    /// # Errors
    /// Where the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Takes the next datagram; `None`: there is none now.
    ///
    /// # Errors
    /// Those of the socket. None of them ends it.
    pub fn receive(&mut self, buffer: &mut Buffer) -> io::Result<Option<Datagram>> {
        let Self { socket, control, drops, .. } = self;
        let descriptor = socket.as_raw_fd();
        let received = socket.try_io(Interest::READABLE, || {
            let mut parts = [IoSliceMut::new(buffer)];
            let message = recvmsg::<SockaddrStorage>(descriptor, &mut parts, Some(control), MsgFlags::MSG_DONTWAIT)?;
            let from = message.address.as_ref().and_then(address_of);
            let counted = message.cmsgs()?.find_map(|item| match item {
                ControlMessageOwned::RxqOvfl(count) => Some(count),
                _ => None,
            });
            Ok((message.bytes, from, counted))
        });
        let (length, from, counted) = match received {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let after_drops = counted.is_some_and(|counted| counted != *drops);
        *drops = counted.unwrap_or(*drops);
        let from = from.ok_or_else(|| io::Error::other("a datagram from no address"))?;
        Ok(Some(Datagram { length, from, after_drops }))
    }

    /// How many datagrams found no room since the last time, in this network namespace: what a filter refuses is not among them,
    /// while the socket's own count has both.
    pub fn new_without_room(&mut self) -> u64 {
        let now = no_room();
        let new = now.saturating_sub(self.no_room);
        self.no_room = now;
        new
    }

    /// Sends a datagram, or loses it: nothing waits for it.
    ///
    /// # Errors
    /// Where the network refuses, or its queue is full.
    pub fn send(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        self.socket.try_send_to(datagram, to).map(|_| ())
    }
}

fn address_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddrV4::from(*v4).into());
    }
    address.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into())
}

/// The datagrams for which there was no room so far: sockets of IPv4 and of IPv6 together.
fn no_room() -> u64 {
    let [v4, v6] = KERNEL_COUNTS.map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let mut udp = v4.lines().filter(|line| line.starts_with("Udp:"));
    let (names, counts) = (udp.next().unwrap_or_default(), udp.next().unwrap_or_default());
    let mut columns = names.split_whitespace().zip(counts.split_whitespace());
    let of_v4 = columns.find(|(name, _)| *name == "RcvbufErrors").map(|(_, count)| count);
    let of_v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    [of_v4, of_v6].into_iter().flatten().filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn live(test: impl AsyncFnOnce(LiveSocket, SocketAddr)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bound = BoundSocket::bind(([127, 0, 0, 1], 0).into()).unwrap();
            let local = bound.local;
            test(bound.into_live().unwrap(), local).await;
        });
    }

    fn sender(last: u8) -> std::net::UdpSocket {
        std::net::UdpSocket::bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap()
    }

    fn only(last: u8) -> Cidr {
        Cidr { address: [127, 0, 0, last].into(), prefix: 32 }
    }

    async fn next(socket: &mut LiveSocket) -> (Datagram, Vec<u8>) {
        let mut buffer = [0; DATAGRAM_MAX + 1];
        let waited = tokio::time::timeout(Duration::from_secs(10), async {
            loop {
                if let Some(datagram) = socket.receive(&mut buffer).unwrap() {
                    return datagram;
                }
                socket.readable().await.unwrap();
            }
        });
        let datagram = waited.await.unwrap();
        (datagram, buffer[..datagram.length].to_vec())
    }

    #[test]
    fn datagrams_come_with_their_senders_and_those_of_others_do_not_come() {
        live(async |mut socket, local| {
            socket.filter(&[only(2)]);
            let (good, bad) = (sender(2), sender(3));
            for _ in 0..100 {
                bad.send_to(b"foreign", local).unwrap();
            }
            good.send_to(b"mine", local).unwrap();
            let (datagram, bytes) = next(&mut socket).await;
            assert_eq!((datagram.from, bytes.as_slice()), (good.local_addr().unwrap(), &b"mine"[..]));
            // Another filter takes the place of the first.
            socket.filter(&[only(3)]);
            good.send_to(b"mine", local).unwrap();
            bad.send_to(b"foreign", local).unwrap();
            assert_eq!(next(&mut socket).await.1, b"foreign");
        });
    }

    #[test]
    fn what_finds_no_room_is_told_apart_from_what_the_filter_drops() {
        live(async |mut socket, local| {
            socket.filter(&[only(2)]);
            let (good, bad) = (sender(2), sender(3));
            good.send_to(b"first", local).unwrap();
            assert!(!next(&mut socket).await.0.after_drops);
            socket.new_without_room();
            for _ in 0..100 {
                bad.send_to(b"foreign", local).unwrap();
            }
            good.send_to(b"second", local).unwrap();
            // Whether the socket's own count has them or not, there was room for all that should come.
            next(&mut socket).await;
            let small = socket2::SockRef::from(&socket.socket);
            small.set_recv_buffer_size(4_096).unwrap();
            let before = socket.no_room;
            for _ in 0..200 {
                good.send_to(&[0; 1_000], local).unwrap();
            }
            let mut buffer = [0; DATAGRAM_MAX + 1];
            while socket.receive(&mut buffer).unwrap().is_some() {}
            good.send_to(b"last", local).unwrap();
            assert!(next(&mut socket).await.0.after_drops);
            assert!(socket.new_without_room() > 0 && socket.no_room > before);
        });
    }

    #[test]
    fn a_datagram_that_is_too_long_is_known_by_its_length() {
        live(async |mut socket, local| {
            sender(2).send_to(&[1; 5_000], local).unwrap();
            assert_eq!(next(&mut socket).await.0.length, DATAGRAM_MAX + 1);
        });
    }

    #[test]
    fn the_buffer_is_as_large_as_the_system_lets_it_be() {
        let bound = BoundSocket::bind(([127, 0, 0, 1], 0).into()).unwrap();
        assert!(bound.socket.recv_buffer_size().unwrap() > 100_000);
        assert!(BoundSocket::bind(bound.local).is_err(), "nobody else gets the port");
    }
}

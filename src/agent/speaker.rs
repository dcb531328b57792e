//! The agent's side of the wire: one connected UDP socket for each balancer, so that the kernel passes on nobody else's
//! datagrams; reports out, orders in.
//!
//! It refuses orders that are forged, expired, seen before or for another, and says so in the log, once a second at most.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tracing::warn;

use crate::base::time::UnixNanos;
use crate::pure::feedback::acceptance::Obedience;
use crate::pure::feedback::keys::AgentKeys;
use crate::pure::feedback::report::Report;
use crate::pure::feedback::wire::{DATAGRAM_MAX, Nonce, RestartNews, SignedOrder, SignedReport, open, seal_report};

/// The most balancers that an agent speaks to.
pub const PEERS_MAX: usize = 8;
/// Datagrams that wait to be looked at; more wait in the kernel.
const WAITING_MAX: usize = 32;

/// A balancer.
#[derive(Debug)]
struct Peer {
    socket: Arc<UdpSocket>,
    obedience: Obedience,
    restart: Option<RestartNews>,
}

/// A datagram from a balancer, by its place.
pub type Arrival = (usize, Vec<u8>);

/// Speaks to all balancers.
#[derive(Debug)]
pub struct Speaker {
    keys: AgentKeys,
    boot: u64,
    sequence: u64,
    peers: Vec<Peer>,
    refused: Refusals,
}

/// Orders that were not obeyed since the last line of the log.
#[derive(Debug, Default)]
struct Refusals {
    count: u64,
    told: Option<UnixNanos>,
}

impl Speaker {
    /// Opens the sockets; what arrives comes out of the other end. `boot` is the time.
    ///
    /// # Errors
    /// Where a socket can't be had.
    pub async fn open(
        keys: AgentKeys,
        balancers: &[SocketAddr],
        boot: UnixNanos,
    ) -> io::Result<(Self, mpsc::Receiver<Arrival>)> {
        let (arrivals, receiver) = mpsc::channel(WAITING_MAX);
        let mut peers = Vec::new();
        for (at, balancer) in balancers.iter().enumerate() {
            let any: SocketAddr =
                if balancer.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(balancer).await?;
            let socket = Arc::new(socket);
            tokio::spawn(listen(at, Arc::clone(&socket), arrivals.clone()));
            peers.push(Peer { socket, obedience: Obedience::default(), restart: None });
        }
        Ok((Self { keys, boot: boot.0, sequence: 0, peers, refused: Refusals::default() }, receiver))
    }

    /// Sends a report to everybody; one that can't be sent is as if it had been lost on the way.
    pub fn say(&mut self, report: &Report, now: UnixNanos) {
        self.sequence += 1;
        let report = Report { boot: self.boot, sequence: self.sequence, ..report.clone() };
        for peer in &mut self.peers {
            let mut nonce = Nonce([0; 16]);
            if aws_lc_rs::rand::fill(&mut nonce.0).is_err() {
                continue;
            }
            let message = SignedReport {
                report: report.clone(),
                sent: now,
                nonce,
                heard: peer.obedience.heard(),
                restart: peer.restart,
            };
            match seal_report(self.keys.server(), self.keys.report(), &message) {
                Ok(datagram) => {
                    peer.obedience.sends(nonce, now);
                    // Refused connections of a balancer that is not there come back here: it will be.
                    let _ = peer.socket.try_send(&datagram);
                }
                Err(cause) => warn!("a report can't be sent: {cause}"),
            }
        }
    }

    /// The order in a datagram, if it is one to obey.
    pub fn hear(&mut self, (at, datagram): &Arrival, now: UnixNanos) -> Option<SignedOrder> {
        let result = self.read(*at, datagram, now);
        if let Err(why) = &result {
            self.refused.count += 1;
            if self.refused.told.is_none_or(|told| now.since(told).as_secs() >= 1) {
                warn!("{} orders were not obeyed; the last: {why}", self.refused.count);
                self.refused = Refusals { count: 0, told: Some(now) };
            }
        }
        result.ok()
    }

    fn read(&mut self, at: usize, datagram: &[u8], now: UnixNanos) -> Result<SignedOrder, String> {
        let sealed = open(datagram).map_err(|cause| cause.to_string())?;
        if sealed.name() != self.keys.server().as_str() {
            return Err("it is for another server".to_owned());
        }
        let order = sealed.order(self.keys.order()).map_err(|cause| cause.to_string())?;
        let peer = self.peers.get_mut(at).ok_or_else(|| "nobody sent it".to_owned())?;
        peer.obedience.obey(&order, now).map_err(|cause| cause.to_string())?;
        Ok(order)
    }

    /// Notes how an order of that balancer's goes: its reports say so from now on.
    pub fn note_restart(&mut self, balancer: usize, news: RestartNews) {
        if let Some(peer) = self.peers.get_mut(balancer) {
            peer.restart = Some(news);
        }
    }
}

async fn listen(at: usize, socket: Arc<UdpSocket>, arrivals: mpsc::Sender<Arrival>) {
    let mut buffer = [0; DATAGRAM_MAX + 1];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(length) => {
                let datagram = buffer.get(..length).unwrap_or_default().to_vec();
                if arrivals.send((at, datagram)).await.is_err() {
                    return;
                }
            }
            // The balancer was not there for the last report. Each such word is taken once, so that this does not spin.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

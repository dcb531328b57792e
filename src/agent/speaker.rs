//! The agent's side of the wire: one connected UDP socket for each balancer, so that the kernel passes on nobody else's
//! datagrams; reports out, orders in.
//!
//! It refuses orders that are forged, expired, seen before or for another, and says so in the log, once a second at most. Of a
//! balancer that does not answer it says so now and then.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{self, RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::agent::contact::Contact;
use crate::agent::readiness::watch;
use crate::base::time::{self, UnixNanos};
use crate::pure::feedback::acceptance::Obedience;
use crate::pure::feedback::keys::AgentKeys;
use crate::pure::feedback::report::Report;
use crate::pure::feedback::wire::{DATAGRAM_MAX, Nonce, RestartNews, SignedOrder, SignedReport, open, seal_report};

/// The most balancers that an agent speaks to.
pub const PEERS_MAX: usize = 8;
/// Datagrams that wait to be looked at; more wait in the kernel.
const WAITING_MAX: usize = 32;

/// After an error of a socket: each of them is told once, and one that is told for ever must not keep a core busy.
const ERROR_PAUSE: Duration = Duration::from_millis(10);
/// A socket that can't be used is opened anew this often at most: the machine's address may have changed, or come only now.
const REOPEN: Duration = Duration::from_secs(1);

/// A balancer.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    /// `None`: there is no way to it, or was none at the last try.
    line: Option<Line>,
    tried: Option<UnixNanos>,
    contact: Contact,
    obedience: Obedience,
    restart: Option<RestartNews>,
}

/// An open socket, and the task that listens at it.
#[derive(Debug)]
struct Line {
    socket: Arc<AsyncFd<OwnedFd>>,
    /// Whether the system has said that a report did not reach the balancer; who sees it is a matter of chance.
    is_refused: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
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
    arrivals: mpsc::Sender<Arrival>,
    refused: Refusals,
}

/// Orders that were not obeyed since the last line of the log.
#[derive(Debug, Default)]
struct Refusals {
    count: u64,
    told: Option<UnixNanos>,
}

impl Speaker {
    /// Speaks to these balancers; what arrives comes out of the other end. `boot` is the time. Needs a runtime around it.
    pub fn new(keys: AgentKeys, balancers: &[SocketAddr], boot: UnixNanos) -> (Self, mpsc::Receiver<Arrival>) {
        let (arrivals, receiver) = mpsc::channel(WAITING_MAX);
        let peer = |address: &SocketAddr| Peer {
            address: *address,
            line: None,
            tried: None,
            contact: Contact::default(),
            obedience: Obedience::default(),
            restart: None,
        };
        let peers = balancers.iter().map(peer).collect();
        (Self { keys, boot: boot.0, sequence: 0, peers, arrivals, refused: Refusals::default() }, receiver)
    }

    /// Sends a report to everybody; one that can't be sent is as if it had been lost on the way.
    pub fn say(&mut self, report: &Report, now: UnixNanos) {
        self.sequence += 1;
        let report = Report { boot: self.boot, sequence: self.sequence, ..report.clone() };
        for (at, peer) in self.peers.iter_mut().enumerate() {
            peer.keep_open(at, now, &self.arrivals);
            peer.keep_told();
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
                    peer.send(&datagram);
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
        if peer.contact.answers() {
            info!("the balancer {} answers", peer.address);
        }
        Ok(order)
    }

    /// Notes how an order of that balancer's goes: its reports say so from now on.
    pub fn note_restart(&mut self, balancer: usize, news: RestartNews) {
        if let Some(peer) = self.peers.get_mut(balancer) {
            peer.restart = Some(news);
        }
    }
}

impl Peer {
    fn keep_open(&mut self, at: usize, now: UnixNanos, arrivals: &mpsc::Sender<Arrival>) {
        if self.line.is_some() || self.tried.is_some_and(|tried| now.apart(tried) < REOPEN) {
            return;
        }
        self.tried = Some(now);
        match connect(self.address) {
            Ok(socket) => {
                let (socket, is_refused) = (Arc::new(socket), Arc::default());
                let task = tokio::spawn(listen(at, Arc::clone(&socket), Arc::clone(&is_refused), arrivals.clone()));
                self.line = Some(Line { socket, is_refused, task });
            }
            Err(cause) => warn!("there is no way to the balancer {}: {cause}", self.address),
        }
    }

    /// Says, now and then, that nobody answers.
    fn keep_told(&mut self) {
        let now = time::now();
        if self.line.as_ref().is_none_or(|line| line.is_refused.swap(false, Ordering::Relaxed)) {
            self.contact.refuses(now);
        }
        if let Some(silent) = self.contact.speaks(now) {
            warn!(
                "the balancer {} has not answered for {} s: does it run, listen there with `feedback`, know this server, \
                 and is the key of its making?",
                self.address,
                silent.as_secs()
            );
        }
    }

    fn send(&mut self, datagram: &[u8]) {
        let Some(line) = &self.line else { return };
        match net::send(line.socket.get_ref(), datagram, SendFlags::empty()).map_err(io::Error::from) {
            Ok(_) => {}
            // Nobody listened there for the last report, or the buffer is full: as if this one had been lost.
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            Err(cause) if cause.kind() == ErrorKind::ConnectionRefused => {
                line.is_refused.store(true, Ordering::Relaxed)
            }
            Err(cause) => {
                warn!("no report reaches the balancer {}: {cause}", self.address);
                self.line = None;
            }
        }
    }
}

fn connect(balancer: SocketAddr) -> io::Result<AsyncFd<OwnedFd>> {
    let any: SocketAddr =
        if balancer.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(balancer)?;
    socket.set_nonblocking(true)?;
    watch(socket.into())
}

async fn listen(
    at: usize,
    socket: Arc<AsyncFd<OwnedFd>>,
    is_refused: Arc<AtomicBool>,
    arrivals: mpsc::Sender<Arrival>,
) {
    let mut buffer = [0; DATAGRAM_MAX + 1];
    loop {
        match socket.async_io(Interest::READABLE, |socket| receive(socket, &mut buffer)).await {
            Ok(length) => {
                let datagram = buffer.get(..length).unwrap_or_default().to_vec();
                if arrivals.send((at, datagram)).await.is_err() {
                    return;
                }
            }
            // The balancer was not there for the last report.
            Err(_) => {
                is_refused.store(true, Ordering::Relaxed);
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (length, _) = net::recv(socket, buffer, RecvFlags::empty())?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::feedback::keys::MasterKey;

    #[test]
    fn the_first_report_arrives() {
        let balancer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        balancer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let keys = MasterKey::from_bytes(&[7; 32]).pair(&"origin/o1".parse().unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut speaker, _arrivals) = Speaker::new(keys.clone(), &[balancer.local_addr().unwrap()], UnixNanos(1));
            speaker.say(&Report::default(), UnixNanos(2));
        });
        let mut buffer = [0; DATAGRAM_MAX];
        let length = balancer.recv(&mut buffer).unwrap();
        let message = open(&buffer[..length]).unwrap().report(keys.report()).unwrap();
        assert_eq!(message.report.sequence, 1);
    }
}

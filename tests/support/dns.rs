//! A stub DNS server on UDP: it answers for the names that a test gives it, as the test says, and counts what it is asked.
//!
//! It speaks as much of RFC 1035 as one question and its addresses take. Names that it does not know do not exist.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// What is said of a name.
#[derive(Clone, Debug)]
pub enum Reply {
    /// It has these addresses, for so many seconds.
    Addresses(Vec<Ipv4Addr>, u32),
    /// There is no such name.
    NoSuchName,
    /// The server has failed.
    Failure,
    /// Nothing at all.
    Silence,
}

#[derive(Default)]
struct State {
    replies: HashMap<String, Reply>,
    asked: HashMap<String, usize>,
    is_over: bool,
}

/// A DNS server on a port of its own. Dropping it ends it.
pub struct Dns {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Dns {
    /// A server that knows no name.
    pub fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
        let address = socket.local_addr().expect("a bound socket's address");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || serve(&socket, &shared));
        Self { address, state }
    }

    /// Says this of a name from now on.
    pub fn say(&self, name: &str, reply: Reply) {
        self.state().replies.insert(name.to_owned(), reply);
    }

    /// The name has this address, for a second.
    pub fn move_to(&self, name: &str, address: IpAddr) {
        let IpAddr::V4(address) = address else { panic!("an IPv4 address") };
        self.say(name, Reply::Addresses(vec![address], 1));
    }

    /// How often a name's IPv4 addresses were asked for.
    pub fn asked(&self, name: &str) -> usize {
        self.state().asked.get(name).copied().unwrap_or(0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the stub's lock")
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.state().is_over = true;
        // Wakes the thread.
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
        let _ = socket.send_to(&[], self.address);
    }
}

const TYPE_A: [u8; 2] = [0, 1];

fn serve(socket: &UdpSocket, state: &Mutex<State>) {
    let mut bytes = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut bytes) {
        let mut state = state.lock().expect("the stub's lock");
        if state.is_over {
            return;
        }
        let Some((name, question)) = question(&bytes[..length]) else { continue };
        let is_v4 = question[question.len() - 4..question.len() - 2] == TYPE_A;
        if is_v4 {
            *state.asked.entry(name.clone()).or_default() += 1;
        }
        let reply = state.replies.get(&name).cloned().unwrap_or(Reply::NoSuchName);
        let (code, addresses, ttl) = match reply {
            Reply::Addresses(addresses, ttl) if is_v4 => (0, addresses, ttl),
            Reply::Addresses(..) => (0, Vec::new(), 0),
            Reply::NoSuchName => (3, Vec::new(), 0),
            Reply::Failure => (2, Vec::new(), 0),
            Reply::Silence => continue,
        };
        let count = u8::try_from(addresses.len()).expect("a few addresses");
        // An answer, to a question that wanted recursion, which there is.
        let mut answer = vec![bytes[0], bytes[1], 0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0];
        answer.extend_from_slice(question);
        for address in addresses {
            // The name is that of the question; type A, class IN.
            answer.extend_from_slice(&[0xC0, 12, 0, 1, 0, 1]);
            answer.extend_from_slice(&ttl.to_be_bytes());
            answer.extend_from_slice(&[0, 4]);
            answer.extend_from_slice(&address.octets());
        }
        socket.send_to(&answer, from).expect("loopback takes a datagram");
    }
}

/// The name that is asked for, without its last dot, and the bytes of the question.
fn question(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(bytes.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    Some((labels.join("."), bytes.get(12..at + 4)?))
}

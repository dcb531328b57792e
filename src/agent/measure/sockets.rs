//! The sockets of a port: how many connections are established there, and whether somebody listens. Asked of the kernel by
//! netlink (sock_diag(7)); from /proc/net/tcp and tcp6 where it does not answer, which costs more.
//!
//! Counting takes a walk through all connections of the machine, so it is not done where a cheaper look says enough:
//! [`Sockets::bound`] is a number that the connections can't exceed, and while [`Sockets::turnover`] stays the same so do they. Who
//! listens takes such a walk only where the listener that was seen last does not tell it.
//!
//! Each question has a number, which its answers carry: what is left of another that broke off is passed over. After a refusal the
//! next question goes through a new netlink socket.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use super::proc_file::ProcFile;

const ESTABLISHED: u32 = 1;
const LISTENING: u32 = 10;

/// Asks for TCP sockets of both families: `TCPDIAG_GETSOCK`, the older form, whose family is a filter only.
const GET_SOCKETS: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// On an answer that is one of many, of which the last is [`NLMSG_DONE`].
const NLM_F_MULTI: u16 = 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The attribute of the filter, and its instructions: continue where the local port is at least, at most.
const BYTECODE: u16 = 1;
const PORT_AT_LEAST: u8 = 2;
const PORT_AT_MOST: u8 = 3;

const HEADER: usize = 16;
const REQUEST: usize = 60;
const FILTER: usize = 4 + 16;
/// What stands before the identity of a socket, in a request and in an answer; the identity; and its last part, the number of the
/// one socket that is meant.
const FAMILY: usize = 4;
const IDENTITY: usize = 48;
const COOKIE: usize = 8;
/// The offsets in an answer, behind its header.
const STATE_AT: usize = 1;
const PORT_AT: usize = 4;
const QUEUED_AT: usize = 56;
const BACKLOG_AT: usize = 60;
const ANSWER_BUFFER: usize = 32 * 1024;

/// What listens on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Whether the connections that wait to be accepted are as many as may wait.
    pub is_full: bool,
}

/// The family and the identity of a socket that listens, as the kernel told them.
type Listener = [u8; FAMILY + IDENTITY];

/// What rises with each connection that is opened, either way, and the connections that are open: as long as these are the same, no
/// connection of any port has come or gone, but that a client may have closed one that the service has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turnover {
    opened: u64,
    accepted: u64,
    open: u64,
}

/// Neither the kernel nor /proc says which sockets there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotTell;

/// The sockets of one network namespace.
#[derive(Debug)]
pub struct Sockets {
    netlink: Option<OwnedFd>,
    /// The number of the last question.
    asked: u32,
    /// Its /proc/PID/net.
    folder: PathBuf,
    /// Which one it is, as /proc writes it.
    namespace: Option<PathBuf>,
    in_use: Vec<ProcFile>,
    counters: Option<ProcFile>,
    /// Of each port the listener that was seen last.
    listeners: BTreeMap<u16, Listener>,
    buffer: Vec<u8>,
}

impl Sockets {
    /// Those of the namespace of a process, or of the agent's own. Where the agent may not enter it, it reads /proc.
    pub fn of(process: Option<i32>) -> Self {
        let folder = process.map_or_else(|| "/proc/self".to_owned(), |process| format!("/proc/{process}"));
        let folder = Path::new(&folder);
        let in_use =
            ["sockstat", "sockstat6"].iter().filter_map(|name| ProcFile::open(folder.join("net").join(name)).ok());
        Self {
            namespace: std::fs::read_link(folder.join("ns/net")).ok(),
            netlink: netlink_in(&folder.join("ns/net")),
            asked: 0,
            in_use: in_use.collect(),
            counters: ProcFile::open(folder.join("net/snmp")).ok(),
            listeners: BTreeMap::new(),
            folder: folder.join("net"),
            buffer: vec![0; ANSWER_BUFFER],
        }
    }

    /// Whether their process is in another namespace by now: one that has just begun may go there yet.
    pub fn have_been_left(&self) -> bool {
        let now = self.folder.parent().and_then(|process| std::fs::read_link(process.join("ns/net")).ok());
        now.is_some() && now != self.namespace
    }

    /// The folder of the namespace's other figures.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A number that no port has more connections than: all TCP sockets in use. `None`: not known.
    pub fn bound(&mut self) -> Option<u32> {
        let mut sum = None::<u32>;
        for file in &mut self.in_use {
            let count = sockets_in_use(file.read().ok()?)?;
            sum = Some(sum.unwrap_or(0).saturating_add(count));
        }
        sum
    }

    /// How connections have come and gone; `None`: not known.
    pub fn turnover(&mut self) -> Option<Turnover> {
        turnover(self.counters.as_mut()?.read().ok()?)
    }

    /// The established connections of a local port; `None`: it can't be said.
    pub fn connections(&mut self, port: u16) -> Option<u32> {
        let mut count = 0u32;
        if self.ask(port, ESTABLISHED, |_| count = count.saturating_add(1)) {
            return Some(count);
        }
        self.listed(port, ESTABLISHED)
    }

    /// What listens on a local port; `None`: nothing does.
    ///
    /// # Errors
    /// [`CannotTell`] where neither the kernel nor /proc answers.
    pub fn listening(&mut self, port: u16) -> Result<Option<Listening>, CannotTell> {
        if self.has_room_at_last(port) {
            return Ok(Some(Listening { is_full: false }));
        }
        let (mut found, mut is_full) = (false, true);
        let mut last = None;
        let was_told = self.ask(port, LISTENING, |answer| {
            found = true;
            is_full &= has_no_room(answer);
            last = answer.first_chunk().copied();
        });
        match last {
            Some(listener) => self.listeners.insert(port, listener),
            None => self.listeners.remove(&port),
        };
        if !was_told {
            found = self.listed(port, LISTENING).ok_or(CannotTell)? > 0;
            is_full = false;
        }
        Ok(found.then_some(Listening { is_full }))
    }

    /// Whether the listener that was seen last listens still, or another in its place, and lets more wait: then the port is not
    /// full, whoever else listens there. Takes the kernel no walk.
    fn has_room_at_last(&mut self, port: u16) -> bool {
        let Some(listener) = self.listeners.get(&port).copied() else { return false };
        let mut has_room = false;
        self.converse(port, LISTENING, Some(listener), |answer| has_room = !has_no_room(answer)) && has_room
    }

    /// The sockets of a port in one state, from the lists of /proc: line by line, for they may have a million.
    fn listed(&self, port: u16, state: u32) -> Option<u32> {
        let count =
            |name: &str| File::open(self.folder.join(name)).map(|list| count_in(BufReader::new(list), port, state));
        Some(count("tcp").ok()?.saturating_add(count("tcp6").unwrap_or(0)))
    }

    /// Asks for the sockets of a port in one state; each answer goes to `each`. Gives back whether all came.
    fn ask(&mut self, port: u16, state: u32, each: impl FnMut(&[u8])) -> bool {
        let has_all = self.converse(port, state, None, each);
        if !has_all {
            self.netlink = self.folder.parent().and_then(|process| netlink_in(&process.join("ns/net")));
        }
        has_all
    }

    /// Asks for these sockets, or for the one `listener` alone.
    fn converse(&mut self, port: u16, state: u32, listener: Option<Listener>, mut each: impl FnMut(&[u8])) -> bool {
        let Some(netlink) = &self.netlink else { return false };
        self.asked = self.asked.wrapping_add(1);
        let question = Question { port, state, number: self.asked };
        let request = listener.map_or_else(|| question.request(), |listener| question.request_of_one(&listener));
        if send(netlink.as_raw_fd(), &request, MsgFlags::empty()) != Ok(request.len()) {
            return false;
        }
        loop {
            let Ok(length) = recv(netlink.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) else { return false };
            match question.answers(self.buffer.get(..length).unwrap_or_default(), &mut each) {
                Told::More => {}
                Told::Done => return true,
                Told::Refused => return false,
            }
        }
    }
}

/// A netlink socket that sees the namespace of that file. The agent has one thread, so that no other is moved.
fn netlink_in(namespace: &Path) -> Option<OwnedFd> {
    let open = || {
        socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag).ok()
    };
    let own = Path::new("/proc/self/ns/net");
    if std::fs::read_link(namespace).ok()? == std::fs::read_link(own).ok()? {
        return open();
    }
    let (there, here) = (std::fs::File::open(namespace).ok()?, std::fs::File::open(own).ok()?);
    setns(there, CloneFlags::CLONE_NEWNET).ok()?;
    let found = open();
    // Where there is no way back, everything else would be of the wrong namespace.
    setns(here, CloneFlags::CLONE_NEWNET).ok().and(found)
}

/// How an answer goes on.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    More,
    Done,
    Refused,
}

/// What is asked: the sockets of a local port in one state.
#[derive(Clone, Copy, Debug)]
struct Question {
    port: u16,
    state: u32,
    number: u32,
}

impl Question {
    /// The request: header, what is asked for, and the filter.
    fn request(self) -> Vec<u8> {
        let length = HEADER + REQUEST + FILTER;
        let mut bytes = self.header(length, NLM_F_REQUEST | NLM_F_DUMP);
        // Family, address lengths, extensions; no socket in particular; states; the last word is not used.
        bytes.extend([0; FAMILY + IDENTITY]);
        bytes.extend((1u32 << self.state).to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend((FILTER as u16).to_ne_bytes());
        bytes.extend(BYTECODE.to_ne_bytes());
        // Each instruction is followed by its port; a jump four bytes behind the end means no.
        for (code, rest) in [(PORT_AT_LEAST, 16u16), (PORT_AT_MOST, 8)] {
            bytes.extend([code, 8]);
            bytes.extend((rest + 4).to_ne_bytes());
            bytes.extend([0, 0]);
            bytes.extend(self.port.to_ne_bytes());
        }
        bytes
    }

    /// The request for one listener, or for whichever has its address by now.
    fn request_of_one(self, listener: &Listener) -> Vec<u8> {
        let mut bytes = self.header(HEADER + REQUEST, NLM_F_REQUEST);
        let [family, ..] = *listener;
        bytes.extend([family, 0, 0, 0]);
        bytes.extend(listener.iter().skip(FAMILY).take(IDENTITY - COOKIE));
        bytes.extend([u8::MAX; COOKIE]);
        // States and the last word are not used.
        bytes.extend([0; 8]);
        bytes
    }

    /// The header of a request, with room for the rest.
    fn header(self, length: usize, flags: u16) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        bytes.extend((length as u32).to_ne_bytes());
        bytes.extend(GET_SOCKETS.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(self.number.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    /// Takes one packet of answers apart. Those to other questions are passed over, and what the filter should have left out is
    /// left out again.
    fn answers(self, packet: &[u8], each: &mut impl FnMut(&[u8])) -> Told {
        let mut rest = packet;
        while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
            let [a, b, c, d, low, high, first, second, e, f, g, h, ..] = *header;
            let length = u32::from_ne_bytes([a, b, c, d]) as usize;
            let Some(message) = rest.get(HEADER..length) else { return Told::Refused };
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if u32::from_ne_bytes([e, f, g, h]) != self.number {
                continue;
            }
            match u16::from_ne_bytes([low, high]) {
                NLMSG_DONE => return Told::Done,
                NLMSG_ERROR => return Told::Refused,
                _ if self.is_of(message) => each(message),
                _ => {}
            }
            if u16::from_ne_bytes([first, second]) & NLM_F_MULTI == 0 {
                return Told::Done;
            }
        }
        Told::More
    }

    fn is_of(self, message: &[u8]) -> bool {
        let port = message.get(PORT_AT..).and_then(|bytes| bytes.first_chunk());
        port.is_some_and(|bytes| u16::from_be_bytes(*bytes) == self.port)
            && message.get(STATE_AT).is_some_and(|found| u32::from(*found) == self.state)
    }
}

/// Whether as many connections wait at a listener as may.
fn has_no_room(answer: &[u8]) -> bool {
    let number = |at: usize| answer.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let (queued, backlog) = (number(QUEUED_AT).unwrap_or(0), number(BACKLOG_AT).unwrap_or(u32::MAX));
    queued > 0 && queued >= backlog
}

/// What /proc/net/snmp says of TCP: a line of names, and a line of numbers.
fn turnover(text: &str) -> Option<Turnover> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, numbers) = (lines.next()?.split(' '), lines.next()?.split(' '));
    let (mut opened, mut accepted, mut open) = (None, None, None);
    for (name, number) in names.zip(numbers) {
        match name {
            "ActiveOpens" => opened = number.parse().ok(),
            "PassiveOpens" => accepted = number.parse().ok(),
            "CurrEstab" => open = number.parse().ok(),
            _ => {}
        }
    }
    Some(Turnover { opened: opened?, accepted: accepted?, open: open? })
}

/// The sockets in use, from /proc/net/sockstat: `TCP: inuse 5 orphan 0 ..`, or `TCP6: inuse 3`.
fn sockets_in_use(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP: inuse ").or(line.strip_prefix("TCP6: inuse ")))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How many lines of /proc/net/tcp have that local port and state.
fn count_in(list: impl BufRead, port: u16, state: u32) -> u32 {
    let wanted = format!(":{port:04X}");
    let is_one = |line: &String| {
        let mut words = line.split_whitespace();
        let (local, found) = (words.nth(1), words.nth(1));
        local.is_some_and(|local| local.ends_with(&wanted))
            && found.and_then(|found| u32::from_str_radix(found, 16).ok()) == Some(state)
    };
    u32::try_from(list.lines().skip(1).map_while(Result::ok).filter(is_one).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_to_a_port_and_its_listener_are_counted_in_both_families() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let clients: Vec<_> = (0..7).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
            let served: Vec<_> = (0..7).map(|_| listener.accept().unwrap()).collect();
            let mut netlink = Sockets::of(None);
            let mut by_text = Sockets::of(Some(i32::try_from(std::process::id()).unwrap()));
            by_text.netlink = None;
            for sockets in [&mut netlink, &mut by_text] {
                // Other tests may have that port for a moment, as one of their clients' or at another address.
                let mut count = None;
                let is_seen = (0..1000).any(|_| {
                    count = sockets.connections(port);
                    count == Some(7)
                });
                assert!(is_seen, "{address}: {count:?}");
                for _ in 0..2 {
                    assert_eq!(sockets.listening(port), Ok(Some(Listening { is_full: false })));
                }
                assert!(sockets.bound().unwrap() >= 7);
            }
            drop((clients, served, listener));
            assert_eq!(netlink.listening(port), Ok(None));
            assert_eq!(by_text.listening(port), Ok(None));
        }
    }

    #[test]
    fn a_listener_whose_connections_wait_in_vain_is_full() {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        listener.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        listener.listen(2).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut before = Sockets::of(None);
        assert_eq!(before.listening(address.port()), Ok(Some(Listening { is_full: false })));
        let _clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        for mut sockets in [before, Sockets::of(None)] {
            assert_eq!(sockets.listening(address.port()), Ok(Some(Listening { is_full: true })));
        }
    }

    #[test]
    fn the_listener_that_was_seen_last_is_asked_for_alone_and_by_its_address() {
        for address in ["127.0.0.1:0", "127.0.0.9:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let mut sockets = Sockets::of(None);
            assert!(!sockets.has_room_at_last(port), "{address}: none was seen");
            assert!(sockets.listening(port).unwrap().is_some());
            assert!(sockets.has_room_at_last(port), "{address}");
            drop(listener);
            assert!(!sockets.has_room_at_last(port), "{address}");
            assert!(sockets.ask(port, LISTENING, |_| {}), "{address}: the same netlink socket is of use still");
        }
    }

    #[test]
    fn a_connection_that_comes_and_one_that_goes_is_a_turnover() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sockets = Sockets::of(None);
        let before = sockets.turnover().unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let with = sockets.turnover().unwrap();
        drop(client);
        let after = sockets.turnover().unwrap();
        assert!(before != with && with != after, "{before:?} {with:?} {after:?}");
        let text = "Ip: Forwarding\nIp: 1\nTcp: MaxConn ActiveOpens PassiveOpens CurrEstab InSegs\nTcp: -1 3 4 5 6\n";
        assert_eq!(turnover(text), Some(Turnover { opened: 3, accepted: 4, open: 5 }));
        assert_eq!(turnover("Tcp: ActiveOpens\nTcp: 3\n"), None);
    }

    /// Answers to a question about a port: one socket, and the end.
    fn answered(question: Question) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut message = [0; 72];
        message[STATE_AT] = question.state as u8;
        message[PORT_AT..PORT_AT + 2].copy_from_slice(&question.port.to_be_bytes());
        for (kind, content) in [(20u16, &message[..]), (NLMSG_DONE, &[0; 4])] {
            bytes.extend(((HEADER + content.len()) as u32).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(NLM_F_MULTI.to_ne_bytes());
            bytes.extend(question.number.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(content);
        }
        bytes
    }

    #[test]
    fn what_is_left_of_a_question_that_broke_off_answers_no_later_one() {
        let (before, question) = (Question { port: 1, state: 1, number: 6 }, Question { port: 1, state: 1, number: 7 });
        let mut count = 0;
        assert_eq!(question.answers(&answered(before), &mut |_| count += 1), Told::More);
        assert_eq!(count, 0);
        let both = [answered(before), answered(question)].concat();
        assert_eq!(question.answers(&both, &mut |_| count += 1), Told::Done);
        assert_eq!(count, 1);

        // The same of the kernel: an answer that nobody has read.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut sockets = Sockets::of(None);
        let unread = Question { port, state: LISTENING, number: u32::MAX }.request();
        send(sockets.netlink.as_ref().unwrap().as_raw_fd(), &unread, MsgFlags::empty()).unwrap();
        drop(listener);
        for _ in 0..3 {
            assert_eq!(sockets.listening(port), Ok(None));
        }
    }

    #[test]
    fn after_a_refusal_the_kernel_is_asked_through_another_socket() {
        let mut sockets = Sockets::of(None);
        let other = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
        sockets.netlink = Some(other.unwrap());
        assert!(!sockets.ask(1, LISTENING, |_| {}), "the kernel is not at its other end");
        assert!(sockets.ask(1, LISTENING, |_| {}));
    }

    #[test]
    fn nonsense_is_refused() {
        let mut count = 0;
        let mut each = |_: &[u8]| count += 1;
        let question = Question { port: 1, state: 1, number: 0 };
        assert_eq!(question.answers(&[0; 15], &mut each), Told::More);
        assert_eq!(question.answers(&[0; 16], &mut each), Told::Refused, "a length below that of its header");
        assert_eq!(question.answers(&[255; 64], &mut each), Told::Refused);
        assert_eq!(count, 0);
        let list = "sl local rem st\n0: 0100007F:1F90 00000000:0000 0A 0\n1: 0100007F:1F90 0100007F:AAAA 01 0\n";
        assert_eq!([LISTENING, ESTABLISHED, 6].map(|state| count_in(list.as_bytes(), 8080, state)), [1, 1, 0]);
        assert_eq!(count_in(list.as_bytes(), 0xAAAA, ESTABLISHED), 0, "the other end's port");
        assert_eq!(sockets_in_use("sockets: used 9\nTCP: inuse 5 orphan 0\n"), Some(5));
        assert_eq!(sockets_in_use("sockets: used 9\n"), None);
    }
}

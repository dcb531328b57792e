//! A recording origin: a raw HTTP/1.x server whose every byte a test decides, and that keeps what it was sent.
//!
//! It can die (its port then refuses) and live again on the same port, which nobody else can take meanwhile. It refuses to
//! be clever: each connection is a thread, each request one call of the handler.

mod exchange;

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

pub use exchange::{Exchange, Recorded};

use super::deadline::{DEADLINE, Deadline, Gate, wait_for};
use super::wire::Wire;

type Handler = Arc<dyn Fn(&mut Exchange<'_>) + Send + Sync>;

/// What all threads of an origin share.
struct Shared {
    handler: Mutex<Handler>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listener: Option<TcpListener>,
    /// The connections that are open, by number.
    open: Vec<(usize, TcpStream)>,
    accepted: usize,
    requests: Vec<Recorded>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A handler that panics fails its own test by its missing answer; the record stays readable.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A server on a port of its own. Dropping it closes everything.
pub struct Origin {
    /// Where it listens.
    pub address: SocketAddr,
    /// Bound and never listening: keeps the port ours while the origin is down.
    _keeper: Socket,
    shared: Arc<Shared>,
}

fn bound(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    socket.set_reuse_address(true).expect("SO_REUSEADDR");
    socket.bind(&address.into()).unwrap_or_else(|error| panic!("can't bind {address}: {error}"));
    socket
}

fn keeper(at: SocketAddr) -> (Socket, SocketAddr) {
    let keeper = bound(at);
    let address = keeper.local_addr().expect("a bound socket's address").as_socket().expect("an IP address");
    (keeper, address)
}

/// An address that refuses connections for as long as the socket lives.
pub fn refused_address() -> (Socket, SocketAddr) {
    keeper(ANY)
}

/// Any free port.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Origin {
    /// An origin that answers every request with 200, `X-Origin: name` and its name as the body.
    pub fn new(name: &str) -> Self {
        Self::new_at(ANY, name)
    }

    /// An origin whose every request is handled by `handler`.
    pub fn with(handler: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) -> Self {
        Self::with_at(ANY, handler)
    }

    /// An origin that answers `late` once its gate is open.
    pub fn gated() -> (Self, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        let opened = Arc::clone(&gate);
        let origin = Self::with(move |exchange| {
            exchange.read_body();
            opened.wait();
            exchange.respond(200, &[], b"late");
        });
        (origin, gate)
    }

    /// An origin like [`Self::new`] at this address.
    pub fn new_at(address: SocketAddr, name: &str) -> Self {
        let name = name.to_owned();
        Self::with_at(address, move |exchange| {
            exchange.read_body();
            exchange.respond(200, &[("X-Origin", &name)], name.as_bytes());
        })
    }

    fn with_at(address: SocketAddr, handler: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) -> Self {
        let (keeper, address) = keeper(address);
        let handler: Handler = Arc::new(handler);
        let shared = Arc::new(Shared { handler: Mutex::new(handler), state: Mutex::default() });
        let origin = Self { address, _keeper: keeper, shared };
        origin.start();
        origin
    }

    /// Handles requests by `handler` from now on.
    pub fn handle(&self, handler: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) {
        *self.shared.handler.lock().expect("the handler's lock") = Arc::new(handler);
    }

    /// Listens again after [`Self::stop`].
    pub fn start(&self) {
        let socket = bound(self.address);
        socket.listen(1024).expect("a bound socket listens");
        let listener = TcpListener::from(socket);
        self.shared.state().listener = Some(listener.try_clone().expect("a listener's copy"));
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || accept(&listener, &shared));
    }

    /// Stops accepting: connects are refused, open connections go on.
    pub fn stop_accepting(&self) {
        if let Some(listener) = self.shared.state().listener.take() {
            // Wakes the thread that accepts, which then drops the last descriptor.
            SockRef::from(&listener).shutdown(Shutdown::Both).expect("a listening socket can be shut down");
        }
    }

    /// Dies: connects are refused and open connections end.
    pub fn stop(&self) {
        self.stop_accepting();
        self.close_connections();
    }

    /// Ends every open connection.
    pub fn close_connections(&self) {
        for (_, socket) in &self.shared.state().open {
            // One that its peer has closed has ended already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Everything it was sent so far, in the order of the heads.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.state().requests.clone()
    }

    /// The requests, once there are at least `count`.
    #[track_caller]
    pub fn wait_for_requests(&self, count: usize) -> Vec<Recorded> {
        self.wait_for_that(&format!("{count} requests"), |requests| requests.len() >= count)
    }

    /// The requests, once `fact` holds of them.
    #[track_caller]
    pub fn wait_for_that(&self, what: &str, fact: impl Fn(&[Recorded]) -> bool) -> Vec<Recorded> {
        wait_for(what, DEADLINE, || Some(self.requests()).filter(|requests| fact(requests)))
    }

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.state().accepted
    }

    /// How many connections are open and have a thread.
    pub fn open_connections(&self) -> usize {
        self.shared.state().open.len()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept() {
        let number = {
            let mut state = shared.state();
            if state.listener.is_none() {
                return;
            }
            state.accepted += 1;
            let number = state.accepted;
            state.open.push((number, socket.try_clone().expect("a socket's copy")));
            number
        };
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _open = Open { number, shared: Arc::clone(&shared) };
            serve(socket, number, &shared);
        });
    }
}

/// Takes a connection off the list of open ones, also when its handler panics.
struct Open {
    number: usize,
    shared: Arc<Shared>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.state().open.retain(|(number, _)| *number != self.number);
    }
}

fn serve(socket: TcpStream, connection: usize, shared: &Arc<Shared>) {
    // A socket that the peer has reset already ends with its first read.
    let _ = socket.set_nodelay(true);
    let mut wire = Wire::new(Box::new(socket));
    // An idle connection is its client's to close: the deadline only keeps a forgotten thread from living for ever.
    while let Ok(head) = wire.head(Deadline::after(15 * DEADLINE)) {
        let index = {
            let mut state = shared.state();
            state.requests.push(Recorded::new(connection, head.clone()));
            state.requests.len() - 1
        };
        let handler = Arc::clone(&shared.handler.lock().expect("the handler's lock"));
        let record = |change: &mut dyn FnMut(&mut Recorded)| change(&mut shared.state().requests[index]);
        let mut exchange = Exchange::new(&mut wire, head, &record);
        handler(&mut exchange);
        if !exchange.is_kept() {
            break;
        }
    }
}

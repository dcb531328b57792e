//! A worker: one thread, one runtime, its own listeners, buffers, deadlines and idle connections. On a request's path it
//! takes no lock and wakes no other thread.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use slab::Slab;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::Receiver;
use tokio::task::{JoinError, JoinSet};

use crate::base::id::{ListenerIndex, ServerSlot};
use crate::base::rng::{Rng, derive_seed};
use crate::base::time::{Timestamp, UnixTime};
use crate::pure::persistence::opened::OpenedTokens;
use crate::pure::trust::is_trusted;
use crate::request::access_log::WorkerLog;
use crate::request::buffers::BufferPool;
use crate::request::clock;
use crate::request::date::HttpDate;
use crate::request::deadlines::{Deadline, Deadlines};
use crate::request::exchange::scratch::Scratch;
use crate::request::h2_server::H2Connections;
use crate::request::listener::{self, Closing, Listener};
use crate::request::process::{ClientPlace, Process};
use crate::request::spares::Spares;
use crate::request::upstream::{IdleConnections, Owner};
use crate::shared::inbox::{ListeningSocket, Order};
use crate::shared::lease::Admission;
use crate::shared::snapshot::SnapshotStore;
use crate::shared::thread;
use crate::transport::tls::{Connectors, with_own_sessions};

/// How often logs are handed over and idle connections looked through.
const SWEEP: Duration = Duration::from_millis(250);
/// Connections that keep their memory between two requests: 2.5 MiB of buffers.
const WARM_MAX: usize = 128;
/// How long the exchanges that are ended have to say so.
const STOPPING: Duration = Duration::from_millis(200);
/// Exchanges whose scratch memory is kept for others for a while.
const SCRATCH_MAX: usize = 512;
/// Exchanges whose scratch memory is kept though nobody has needed it lately.
const SCRATCH_SPARE: usize = 16;

/// What a worker is made of.
#[derive(Debug)]
pub struct Worker {
    /// What all workers share.
    pub shared: Arc<Process>,
    /// The way to the rules, pools and states of now, and to a place at a server.
    pub admission: Admission,
    /// Buffer memory.
    pub buffers: Rc<BufferPool>,
    /// Idle connections to servers.
    pub idle: IdleConnections,
    /// Connections to servers that speak HTTP/2.
    pub h2: Rc<H2Connections>,
    /// TLS towards the servers, with the sessions of this worker.
    pub connectors: Connectors,
    /// Random numbers for choices; never for what is to be unique or secret.
    pub rng: RefCell<Rng>,
    /// Persistence cookies that clients sent lately.
    pub opened: RefCell<OpenedTokens>,
    /// The access log.
    pub log: RefCell<Option<WorkerLog>>,
    deadlines: Rc<Deadlines>,
    is_draining: Cell<bool>,
    is_stopping: Cell<bool>,
    warm: Cell<usize>,
    date: RefCell<HttpDate>,
    scratch: RefCell<Spares<Box<Scratch>>>,
    connections: RefCell<Slab<Rc<Deadline>>>,
}

impl Worker {
    /// The time, good enough for deadlines.
    pub fn now(&self) -> Timestamp {
        clock::now()
    }

    /// Calls `use_date` with the time as HTTP writes it (RFC 9110 5.6.7).
    pub fn with_date<T>(&self, use_date: impl FnOnce(&str) -> T) -> T {
        let mut date = self.date.borrow_mut();
        date.follow(self.now());
        use_date(date.text())
    }

    /// The time by the wall clock, as of the last second or so.
    pub fn unix_time(&self) -> UnixTime {
        let mut date = self.date.borrow_mut();
        date.follow(self.now());
        date.time()
    }

    /// Whether requests are logged.
    pub fn is_logging(&self) -> bool {
        self.log.borrow().is_some()
    }

    /// A place among the connections that keep their memory between two requests; `None`: enough of them do, or the memory
    /// is needed.
    pub fn warm_place(&self) -> Option<WarmPlace<'_>> {
        let taken = self.warm.get();
        (taken < WARM_MAX && self.buffers.is_plentiful()).then(|| {
            self.warm.set(taken + 1);
            WarmPlace { worker: self }
        })
    }

    /// Whether no further request is to be taken.
    pub fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// Whether what is in flight is to end now, accounted for.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// Scratch memory for an exchange.
    pub fn take_scratch(&self) -> Box<Scratch> {
        self.scratch.borrow_mut().take().unwrap_or_default()
    }

    /// Keeps scratch memory for the next exchange.
    pub fn put_scratch(&self, mut scratch: Box<Scratch>) {
        scratch.clear();
        scratch.request.clear();
        scratch.shrink();
        self.scratch.borrow_mut().put(scratch, SCRATCH_MAX);
    }

    /// Takes a connection that has entered the count of connections into the worker's list. Trusted proxies may have any
    /// number: theirs are those of all their clients.
    pub fn register(self: &Rc<Self>, peer: IpAddr, listener: &Listener) -> ConnectionTicket {
        let (number, deadline) = self.enlist();
        let place = place_of(&self.shared, peer, listener);
        let counted = Some(Arc::clone(&self.shared));
        ConnectionTicket { worker: Rc::downgrade(self), number, deadline, counted, place, owns_idle: Cell::new(false) }
    }

    /// Takes a stream of an HTTP/2 connection into the list: it is reached like a connection and counts as none.
    pub fn register_stream(self: &Rc<Self>) -> ConnectionTicket {
        let (number, deadline) = self.enlist();
        let owns_idle = Cell::new(false);
        ConnectionTicket { worker: Rc::downgrade(self), number, deadline, counted: None, place: None, owns_idle }
    }

    fn enlist(&self) -> (usize, Rc<Deadline>) {
        let deadline = self.deadlines.deadline();
        let number = self.connections.borrow_mut().insert(Rc::clone(&deadline));
        (number, deadline)
    }

    /// A worker on the runtime of this thread, with the tasks that keep its time: without them it has no deadlines, so that
    /// their end must be its end.
    pub(in crate::request) fn begin(
        number: usize,
        shared: Arc<Process>,
        store: &SnapshotStore,
        log: Option<WorkerLog>,
        support: &mut JoinSet<()>,
    ) -> Rc<Self> {
        let seed = |purpose| derive_seed(shared.seed, purpose, number as u64);
        let worker = Rc::new(Self {
            buffers: BufferPool::new(shared.limits.buffer_memory),
            idle: IdleConnections::default(),
            h2: Rc::default(),
            connectors: with_own_sessions(&shared.connectors),
            rng: RefCell::new(Rng::new(seed("choices"))),
            admission: Admission::new(store, seed("schedulers")),
            date: RefCell::default(),
            opened: RefCell::default(),
            log: RefCell::new(log),
            deadlines: Rc::default(),
            is_draining: Cell::new(false),
            is_stopping: Cell::new(false),
            warm: Cell::default(),
            scratch: RefCell::default(),
            connections: RefCell::default(),
            shared,
        });
        support.spawn_local(Rc::clone(&worker.deadlines).drive());
        support.spawn_local(Rc::clone(&worker).sweep());
        worker
    }

    fn stop(&self) {
        self.is_stopping.set(true);
        for (_, deadline) in self.connections.borrow().iter() {
            deadline.nudge();
        }
    }

    fn drain(&self) {
        self.is_draining.set(true);
        for (_, deadline) in self.connections.borrow().iter() {
            deadline.nudge();
        }
    }

    /// Tells the exchanges that wait for an answer of that server to look whether they can do without it.
    pub(in crate::request) fn take_back(&self, server: ServerSlot) {
        for (_, deadline) in self.connections.borrow().iter() {
            deadline.take_back(server);
        }
    }

    async fn sweep(self: Rc<Self>) {
        let mut whereabouts = 0;
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = clock::refresh();
            self.admission.snapshot(|snapshot| {
                if snapshot.whereabouts != whereabouts {
                    whereabouts = snapshot.whereabouts;
                    for server in snapshot.pools.iter().flat_map(|pool| &pool.endpoints) {
                        self.idle.follow(server);
                        self.h2.follow(server);
                    }
                }
            });
            self.idle.sweep(now);
            self.h2.sweep(now);
            self.buffers.trim();
            self.scratch.borrow_mut().trim(SCRATCH_SPARE);
            if let Some(log) = &mut *self.log.borrow_mut() {
                log.flush(now);
            }
        }
    }
}

/// A place among the warm connections; it is free again with the end of this.
#[derive(Debug)]
pub struct WarmPlace<'w> {
    worker: &'w Worker,
}

impl Drop for WarmPlace<'_> {
    fn drop(&mut self) {
        self.worker.warm.set(self.worker.warm.get() - 1);
    }
}

/// A place among the connections of that client, where the listener bounds them.
fn place_of(shared: &Process, client: IpAddr, listener: &Listener) -> Option<ClientPlace> {
    let max = listener.config.limits.connections_per_client_max?;
    let is_proxy = is_trusted(client.to_canonical(), &listener.config.trusted_proxies);
    (!is_proxy).then(|| shared.clients.enter(listener.index, client, max))
}

/// A connection's entry in the worker's list; it leaves with this.
#[derive(Debug)]
pub struct ConnectionTicket {
    worker: Weak<Worker>,
    number: usize,
    deadline: Rc<Deadline>,
    /// Where it counts as a connection.
    counted: Option<Arc<Process>>,
    place: Option<ClientPlace>,
    /// Whether connections to servers may be idle that are for this connection alone.
    owns_idle: Cell<bool>,
}

impl ConnectionTicket {
    /// The connection's deadline.
    pub fn deadline(&self) -> Rc<Deadline> {
        Rc::clone(&self.deadline)
    }

    /// Counts the connection as one of that client, for which the peer has made it.
    pub fn belongs_to(&mut self, client: IpAddr, listener: &Listener) {
        self.place = self.counted.as_ref().and_then(|process| place_of(process, client, listener));
    }

    /// The mark of idle connections to servers that are for this connection alone; they end with it.
    pub fn owner(&self) -> Owner {
        self.owns_idle.set(true);
        Owner(self.number)
    }

    /// Whether the client has more connections than it may.
    pub fn is_over_limit(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_over_limit)
    }
}

impl Drop for ConnectionTicket {
    fn drop(&mut self) {
        if let Some(process) = &self.counted {
            process.connections.leave();
        }
        if let Some(worker) = self.worker.upgrade() {
            if self.owns_idle.get() {
                worker.idle.forget(Owner(self.number));
            }
            // The number may come again only now.
            worker.connections.borrow_mut().try_remove(self.number);
        }
        self.deadline.retire();
    }
}

/// What a worker is started with.
#[derive(Debug)]
pub struct Start {
    /// Its number, from 0.
    pub number: usize,
    /// What all workers share.
    pub shared: Arc<Process>,
    /// Where the snapshot is.
    pub store: Arc<SnapshotStore>,
    /// Its part of the access log.
    pub log: Option<WorkerLog>,
    /// Its orders.
    pub inbox: Receiver<Order>,
    /// The listeners that sockets may be added for.
    pub listeners: Vec<Arc<Listener>>,
}

/// A runtime on which a worker's clock goes.
///
/// # Errors
/// Where the system gives no event queue.
pub(crate) fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_unpark(clock::has_slept)
        .build_local(LocalOptions::default())
}

/// Starts a worker's thread; it ends when it has drained or is told to stop.
///
/// # Errors
/// Where the thread or its runtime can't be made.
pub fn start(start: Start) -> io::Result<JoinHandle<()>> {
    let name = format!("worker-{}", start.number);
    thread::start(&name, runtime, |runtime| runtime.block_on(run(start)))
}

async fn run(start: Start) {
    let Start { number, shared, store, log, inbox, listeners } = start;
    let mut support = JoinSet::new();
    let worker = Worker::begin(number, shared, &store, log, &mut support);
    let end = Duty { worker: Rc::clone(&worker), support, inbox, listeners, open: Vec::new() }.go_on().await;
    if let Some(log) = &mut *worker.log.borrow_mut() {
        log.flush(worker.now());
    }
    if let Err(error) = end {
        tracing::error!("a task that worker {number} can't do without has died");
        // The thread dies of what the task died of, and the process ends with the thread.
        if let Ok(cause) = error.try_into_panic() {
            std::panic::resume_unwind(cause);
        }
    }
}

/// A worker under orders.
struct Duty {
    worker: Rc<Worker>,
    /// The tasks that it can't do without.
    support: JoinSet<()>,
    inbox: Receiver<Order>,
    listeners: Vec<Arc<Listener>>,
    open: Vec<(ListenerIndex, Rc<Closing>)>,
}

impl Duty {
    /// Does as ordered until it has drained or is to stop.
    ///
    /// # Errors
    /// Where a supporting task has died.
    async fn go_on(mut self) -> Result<(), JoinError> {
        loop {
            let order = tokio::select! {
                order = self.inbox.recv() => order,
                Some(ended) = self.support.join_next() => {
                    ended?;
                    continue;
                }
            };
            match order {
                Some(Order::Add { listener, socket }) => self.add(listener, socket),
                Some(Order::Remove(listener)) => self.open.retain(|(index, closing)| {
                    let stays = *index != listener;
                    if !stays {
                        closing.close();
                    }
                    stays
                }),
                Some(Order::TakeBack(server)) => self.worker.take_back(server),
                Some(Order::Drain) | None => return self.drain().await,
                Some(Order::Stop) => return Ok(()),
            }
        }
    }

    fn add(&mut self, listener: ListenerIndex, socket: ListeningSocket) {
        let plan = self.listeners.iter().find(|plan| plan.index == listener);
        match (plan, listener::Socket::new(socket)) {
            (Some(plan), Ok(socket)) => {
                let closing = Rc::<Closing>::default();
                let task = listener::accept(Rc::clone(&self.worker), Arc::clone(plan), socket, Rc::clone(&closing));
                self.support.spawn_local(task);
                self.open.push((listener, closing));
            }
            (None, _) => tracing::error!("a socket was added for a listener that is not configured"),
            (_, Err(error)) => tracing::error!("a listening socket could not be used: {error}"),
        }
    }

    /// Takes no more, and waits until the last connection has ended, or for the order to stop.
    async fn drain(mut self) -> Result<(), JoinError> {
        self.open.iter().for_each(|(_, closing)| closing.close());
        self.worker.drain();
        while self.is_busy() {
            tokio::select! {
                order = self.inbox.recv() => match order {
                    Some(Order::TakeBack(server)) => self.worker.take_back(server),
                    Some(Order::Stop) | None => {
                        self.worker.stop();
                        // What is cut off here is still logged, and answered where it can be.
                        return tokio::time::timeout(STOPPING, self.ended()).await.unwrap_or(Ok(()));
                    }
                    Some(Order::Add { .. } | Order::Remove(_) | Order::Drain) => {}
                },
                Some(ended) = self.support.join_next() => ended?,
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
        Ok(())
    }

    async fn ended(&mut self) -> Result<(), JoinError> {
        while !self.worker.connections.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        !self.worker.connections.borrow().is_empty() || self.open.iter().any(|(_, closing)| !closing.is_closed())
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::pure::config::{Config, load_text};
    use crate::pure::rule::compile::RuleSet;
    use crate::shared::counters::ProcessCounters;
    use crate::shared::inbox::Inbox;

    fn plan(config: &Config) -> Listener {
        let local = "127.0.0.1:80".parse().unwrap();
        Listener {
            index: ListenerIndex(0),
            name: String::new(),
            config: config.listeners[0].clone(),
            local,
            tls: None,
            said: listener::Said::default(),
        }
    }

    /// A task that panics when it is woken.
    struct Fatal;

    impl Wake for Fatal {
        fn wake(self: Arc<Self>) {
            panic!("injected");
        }
    }

    /// A worker and its supporting tasks, on the runtime of this thread.
    fn worker(config: &Arc<Config>) -> (Rc<Worker>, JoinSet<()>) {
        let counters = Arc::new(ProcessCounters::default());
        let rules = Arc::new(RuleSet::compile(config.rules.clone()).unwrap());
        let store = SnapshotStore::new(Arc::clone(config), rules, Arc::clone(&counters));
        let shared = Arc::new(Process::new(config.process, 10, 7, counters));
        let mut support = JoinSet::new();
        (Worker::begin(0, shared, &store, None, &mut support), support)
    }

    fn connection(worker: &Rc<Worker>, peer: &str, listener: &Listener) -> ConnectionTicket {
        worker.shared.connections.enter();
        worker.register(peer.parse().unwrap(), listener)
    }

    fn load(text: &str) -> Arc<Config> {
        Arc::new(load_text(text).unwrap())
    }

    #[test]
    fn a_worker_whose_deadlines_died_ends() {
        let config = load("listen \"127.0.0.1:0\"\nrule respond=204\n");
        let (orders, inbox) = Inbox::new();
        runtime().unwrap().block_on(async {
            let (worker, support) = worker(&config);
            let ticket = connection(&worker, "192.0.2.1", &plan(&config));
            let deadline = ticket.deadline();
            deadline.poll_expired(&Context::from_waker(&Waker::from(Arc::new(Fatal))));
            deadline.set(worker.now());
            let duty = Duty { worker, support, inbox, listeners: Vec::new(), open: Vec::new() };
            assert!(duty.go_on().await.unwrap_err().is_panic());
        });
        drop(orders);
    }

    #[test]
    fn users_behind_a_trusted_proxy_are_not_one_client() {
        let config = load(
            "listen \"127.0.0.1:0\" { trusted-proxies \"10.0.0.0/8\"; limits { connections-per-client-max 1; }; }\nrule respond=204\n",
        );
        runtime().unwrap().block_on(async {
            let (worker, _support) = worker(&config);
            let listener = plan(&config);
            for (peer, is_over_limit) in [("10.0.0.1", false), ("::ffff:10.0.0.1", false), ("192.0.2.1", true)] {
                let _first = connection(&worker, peer, &listener);
                assert_eq!(connection(&worker, peer, &listener).is_over_limit(), is_over_limit, "{peer}");
            }
        });
    }
}

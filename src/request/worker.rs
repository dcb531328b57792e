//! A worker: one thread, one runtime, its own listeners, buffers, deadlines and idle connections. On a request's path it
//! takes no lock and wakes no other thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::Receiver;

use crate::base::id::ListenerIndex;
use crate::base::rng::{Rng, derive_seed};
use crate::base::time::Timestamp;
use crate::request::access_log::WorkerLog;
use crate::request::buffers::BufferPool;
use crate::request::clock;
use crate::request::date::HttpDate;
use crate::request::deadlines::{Deadline, Deadlines};
use crate::request::exchange::scratch::Scratch;
use crate::request::listener::{self, Closing, Listener};
use crate::request::process::{ClientPlace, Process};
use crate::request::upstream::IdleConnections;
use crate::shared::inbox::Order;
use crate::shared::lease::Admission;
use crate::shared::outcome::OutcomeSender;
use crate::shared::snapshot::SnapshotStore;

/// How often logs are handed over and idle connections looked through.
const SWEEP: Duration = Duration::from_millis(250);
/// Connections that keep their memory between two requests: 2 MiB of buffers.
const WARM_MAX: usize = 128;
/// Exchanges whose scratch memory is kept for the next.
const SCRATCH_MAX: usize = 256;

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
    /// Random numbers for choices; never for what is to be unique or secret.
    pub rng: RefCell<Rng>,
    /// The access log.
    pub log: RefCell<Option<WorkerLog>>,
    deadlines: Rc<Deadlines>,
    is_draining: Cell<bool>,
    warm: Cell<usize>,
    date: RefCell<HttpDate>,
    #[expect(clippy::vec_box, reason = "it changes hands with every exchange, and is far larger than a pointer")]
    scratch: RefCell<Vec<Box<Scratch>>>,
    connections: RefCell<HashMap<u64, Rc<Deadline>>>,
    next_connection: Cell<u64>,
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

    /// Scratch memory for an exchange.
    pub fn take_scratch(&self) -> Box<Scratch> {
        self.scratch.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps scratch memory for the next exchange.
    pub fn put_scratch(&self, mut scratch: Box<Scratch>) {
        let mut kept = self.scratch.borrow_mut();
        if kept.len() < SCRATCH_MAX {
            scratch.clear();
            scratch.request.clear();
            kept.push(scratch);
        }
    }

    /// Takes a connection that has entered the count of connections into the worker's list.
    pub fn register(self: &Rc<Self>, client: IpAddr, per_client_max: Option<u32>) -> ConnectionTicket {
        let number = self.next_connection.get();
        self.next_connection.set(number + 1);
        self.connections.borrow_mut().insert(number, self.deadlines.deadline());
        let place = per_client_max.map(|max| self.shared.clients.enter(client, max));
        ConnectionTicket { worker: Rc::downgrade(self), number, shared: Arc::clone(&self.shared), place }
    }

    /// A worker on the runtime of this thread, with the tasks that keep its time.
    pub(in crate::request) fn begin(
        number: usize,
        shared: Arc<Process>,
        store: &SnapshotStore,
        outcomes: OutcomeSender,
        log: Option<WorkerLog>,
    ) -> Rc<Self> {
        let seed = |purpose| derive_seed(shared.seed, purpose, number as u64);
        let worker = Rc::new(Self {
            buffers: BufferPool::new(shared.limits.buffer_memory),
            idle: IdleConnections::default(),
            rng: RefCell::new(Rng::new(seed("choices"))),
            admission: Admission::new(store, outcomes, seed("schedulers")),
            date: RefCell::default(),
            log: RefCell::new(log),
            deadlines: Rc::default(),
            is_draining: Cell::new(false),
            warm: Cell::default(),
            scratch: RefCell::default(),
            connections: RefCell::default(),
            next_connection: Cell::default(),
            shared,
        });
        tokio::task::spawn_local(Rc::clone(&worker.deadlines).drive());
        tokio::task::spawn_local(Rc::clone(&worker).sweep());
        worker
    }

    fn drain(&self) {
        self.is_draining.set(true);
        for deadline in self.connections.borrow().values() {
            deadline.nudge();
        }
    }

    async fn sweep(self: Rc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = clock::refresh();
            self.idle.sweep(now);
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

/// A connection's entry in the worker's list; it leaves with this.
#[derive(Debug)]
pub struct ConnectionTicket {
    worker: Weak<Worker>,
    number: u64,
    shared: Arc<Process>,
    place: Option<ClientPlace>,
}

impl ConnectionTicket {
    /// The connection's deadline.
    pub fn deadline(&self) -> Rc<Deadline> {
        let worker = self.worker.upgrade();
        let known = worker.as_ref().and_then(|worker| worker.connections.borrow().get(&self.number).cloned());
        known.unwrap_or_else(|| Rc::<Deadlines>::default().deadline())
    }

    /// Whether the client has more connections than it may.
    pub fn is_over_limit(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_over_limit)
    }
}

impl Drop for ConnectionTicket {
    fn drop(&mut self) {
        self.shared.connections.leave();
        if let Some(worker) = self.worker.upgrade() {
            let deadline = worker.connections.borrow_mut().remove(&self.number);
            if let Some(deadline) = deadline {
                deadline.retire();
            }
        }
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
    /// The way to tell control how requests ended.
    pub outcomes: OutcomeSender,
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
    std::thread::Builder::new().name(format!("worker-{}", start.number)).spawn(move || match runtime() {
        Ok(runtime) => runtime.block_on(run(start)),
        Err(error) => tracing::error!("a worker has no runtime: {error}"),
    })
}

async fn run(start: Start) {
    let Start { number, shared, store, outcomes, log, mut inbox, listeners } = start;
    let worker = Worker::begin(number, shared, &store, outcomes, log);
    let mut open: Vec<(ListenerIndex, Rc<Closing>)> = Vec::new();
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Add { listener, socket } => {
                let plan = listeners.iter().find(|plan| plan.index == listener);
                match (plan, tokio::net::TcpListener::from_std(socket)) {
                    (Some(plan), Ok(socket)) => {
                        let closing = Rc::<Closing>::default();
                        let task = listener::accept(Rc::clone(&worker), Arc::clone(plan), socket, Rc::clone(&closing));
                        tokio::task::spawn_local(task);
                        open.push((listener, closing));
                    }
                    (None, _) => tracing::error!("a socket was added for a listener that is not configured"),
                    (_, Err(error)) => tracing::error!("a listening socket could not be used: {error}"),
                }
            }
            Order::Remove(listener) => open.retain(|(index, closing)| {
                let stays = *index != listener;
                if !stays {
                    closing.close();
                }
                stays
            }),
            Order::Drain => break,
            Order::Stop => return,
        }
    }
    open.iter().for_each(|(_, closing)| closing.close());
    worker.drain();
    drained(&worker, &open, &mut inbox).await;
    if let Some(log) = &mut *worker.log.borrow_mut() {
        log.flush(worker.now());
    }
}

/// Waits until the last connection has ended, or for the order to stop.
async fn drained(worker: &Worker, open: &[(ListenerIndex, Rc<Closing>)], inbox: &mut Receiver<Order>) {
    let is_busy = || !worker.connections.borrow().is_empty() || open.iter().any(|(_, closing)| !closing.is_closed());
    while is_busy() {
        tokio::select! {
            order = inbox.recv() => if matches!(order, Some(Order::Stop) | None) { return },
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
    }
}

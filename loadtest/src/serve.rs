//! A server of an experiment in a process of its own, so that an agent beside it measures it and nothing else, and so that it can be
//! killed like any process.
//!
//! It has so many slots: a request for work holds one for as long as the work takes. So many more requests may wait, in turn; what comes
//! above is answered with 503 at once. Work is waiting, or (`--computes`) arithmetic on a thread for each slot. It goes on when its client
//! has gone, as work does. A path of `/become/..` has it hang, fail or be well again, and is always obeyed. It refuses to know who asks.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use nix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_local};

use crate::alarm::Alarm;
use crate::catalogue::{Ask, Source};
use crate::failure::{Outcome, While};
use crate::farm;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4_096;

/// How it is to be.
#[derive(Clone, Debug, clap::Args)]
pub struct Serve {
    /// Where it listens
    pub address: SocketAddr,
    /// Its number in its answers, counted from 0
    #[arg(long, default_value_t = 0)]
    pub number: usize,
    /// Requests that it works on at a time
    #[arg(long, default_value_t = 1)]
    pub slots: usize,
    /// Requests that may wait
    #[arg(long, default_value_t = 10_000)]
    pub waiting_max: usize,
    /// Its work is arithmetic
    #[arg(long)]
    pub computes: bool,
    /// It tells HAProxy's agent-check there whether it can take more
    #[arg(long)]
    pub verdict: Option<SocketAddr>,
}

/// What a server is told to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// It answers.
    Well,
    /// It accepts and does not answer.
    Hanging,
    /// It answers with 500.
    Failing,
}

impl Mood {
    /// The path that has a server be so.
    pub fn path(self) -> &'static str {
        match self {
            Self::Well => "/become/well",
            Self::Hanging => "/become/hanging",
            Self::Failing => "/become/failing",
        }
    }

    fn parse(path: &str) -> Option<Self> {
        [Self::Well, Self::Hanging, Self::Failing].into_iter().find(|mood| mood.path() == path)
    }
}

/// Serves until the process is ended.
pub fn run(options: &Serve) -> Outcome<()> {
    crate::machine::raise_descriptors()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing(|| "starting a runtime".to_owned())?;
    LocalSet::new().block_on(&runtime, serve(options))
}

async fn serve(options: &Serve) -> Outcome<()> {
    let workers = if options.computes { (0..options.slots).map(|_| Worker::start()).collect() } else { Vec::new() };
    let state = Rc::new(State {
        number: options.number,
        mood: Cell::new(Mood::Well),
        is_well: Notify::new(),
        slots: Arc::new(Semaphore::new(options.slots)),
        waiting: Cell::new(0),
        waiting_max: options.waiting_max,
        workers: options.computes.then(|| RefCell::new(workers)),
        alarm: Alarm::start()?,
    });
    if let Some(verdict) = options.verdict {
        spawn_local(tell_verdicts(listen(verdict)?, state.clone()));
    }
    let listener = listen(options.address)?;
    loop {
        // What fails is one connection, or descriptors are short for a moment.
        let Ok((stream, _)) = listener.accept().await else { continue };
        spawn_local(connection(stream, state.clone()));
    }
}

fn listen(address: SocketAddr) -> Outcome<TcpListener> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        // A server that was killed comes back at once.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    open().doing(|| format!("listening on {address}"))
}

/// One full state for each who asks, as HAProxy wants it.
async fn tell_verdicts(listener: TcpListener, state: Rc<State>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let verdict: &[u8] = if state.is_full() { b"drain\n" } else { b"ready up\n" };
        // Who asks and goes away need not be told.
        let _ = stream.write_all(verdict).await;
    }
}

/// What all connections share.
struct State {
    number: usize,
    mood: Cell<Mood>,
    is_well: Notify,
    slots: Arc<Semaphore>,
    waiting: Cell<usize>,
    waiting_max: usize,
    /// The idle ones; `None` where work is waiting.
    workers: Option<RefCell<Vec<Worker>>>,
    alarm: Alarm,
}

/// A request that waits, or no longer.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn begin(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

async fn connection(stream: TcpStream, state: Rc<State>) {
    farm::converse(stream, async |path: &str| answer(&state, path).await).await;
}

async fn answer(state: &Rc<State>, path: &str) -> Response<Full<Bytes>> {
    if let Some(mood) = Mood::parse(path) {
        state.mood.set(mood);
        state.is_well.notify_waiters();
        return ended(state, StatusCode::OK);
    }
    while state.mood.get() == Mood::Hanging {
        state.is_well.notified().await;
    }
    if state.mood.get() == Mood::Failing {
        return ended(state, StatusCode::INTERNAL_SERVER_ERROR);
    }
    match Ask::parse(path) {
        Some(Ask::Ping) => ended(state, StatusCode::OK),
        Some(Ask::Work(work)) => ended(state, do_work(state, work).await),
        Some(Ask::Item { .. }) | None => ended(state, StatusCode::NOT_FOUND),
    }
}

fn ended(state: &State, status: StatusCode) -> Response<Full<Bytes>> {
    let answer = Response::builder().status(status).header("cache-status", Source::Made.says(state.number));
    answer.body(Full::new(Bytes::from_static(&[b'x'; 128]))).unwrap_or_default()
}

/// Returns when the work has been done, or at once where too many wait.
async fn do_work(state: &Rc<State>, work: Duration) -> StatusCode {
    if state.slots.available_permits() == 0 && state.waiting.get() >= state.waiting_max {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let waits = Waiting::begin(&state.waiting);
    let slot = state.slots.clone().acquire_owned().await;
    drop(waits);
    // The slots are never closed.
    let Ok(slot) = slot else { return StatusCode::SERVICE_UNAVAILABLE };
    match spawn_local(hold(state.clone(), slot, work)).await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Holds a slot while its work is done.
async fn hold(state: Rc<State>, slot: OwnedSemaphorePermit, work: Duration) {
    match &state.workers {
        None => state.alarm.sleep(work).await,
        Some(workers) => {
            // There are as many as slots.
            let worker = workers.borrow_mut().pop();
            if let Some(worker) = worker {
                worker.compute(work).await;
                workers.borrow_mut().push(worker);
            }
        }
    }
    drop(slot);
}

impl State {
    fn is_full(&self) -> bool {
        self.slots.available_permits() == 0 && self.waiting.get() > 0
    }
}

/// A thread that computes.
struct Worker(mpsc::Sender<(Duration, oneshot::Sender<()>)>);

impl Worker {
    fn start() -> Self {
        let (sender, jobs) = mpsc::channel::<(Duration, oneshot::Sender<()>)>();
        thread::spawn(move || {
            while let Ok((work, done)) = jobs.recv() {
                burn(work);
                // A server that ends need not know.
                let _ = done.send(());
            }
        });
        Self(sender)
    }

    async fn compute(&self, work: Duration) {
        let (done, end) = oneshot::channel();
        if self.0.send((work, done)).is_ok() {
            // The thread ends with the process alone.
            let _ = end.await;
        }
    }
}

/// Uses so much processor time.
fn burn(work: Duration) {
    let used = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let Ok(begin) = used() else { return };
    let mut state = 1_u64;
    while used().is_ok_and(|now| now.saturating_sub(begin) < work) {
        for _ in 0..2_000 {
            state = std::hint::black_box(state.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (state >> 29));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moods_are_read_from_their_paths() {
        for mood in [Mood::Well, Mood::Hanging, Mood::Failing] {
            assert_eq!(Mood::parse(mood.path()), Some(mood));
        }
        assert_eq!(Mood::parse("/become/rich"), None);
    }

    #[test]
    fn computing_uses_the_processor_for_as_long_as_asked() {
        let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let before = used();
        burn(Duration::from_millis(20));
        let took = used() - before;
        assert!((Duration::from_millis(20)..Duration::from_millis(30)).contains(&took), "{took:?}");
    }

    fn state(slots: usize, waiting_max: usize) -> Rc<State> {
        Rc::new(State {
            number: 2,
            mood: Cell::new(Mood::Well),
            is_well: Notify::new(),
            slots: Arc::new(Semaphore::new(slots)),
            waiting: Cell::new(0),
            waiting_max,
            workers: None,
            alarm: Alarm::start().unwrap(),
        })
    }

    #[test]
    fn what_finds_no_slot_waits_and_what_finds_no_place_to_wait_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let state = state(2, 1);
            let path = Ask::Work(Duration::from_millis(30)).path();
            let asks: Vec<_> = (0..4)
                .map(|_| {
                    let (state, path) = (state.clone(), path.clone());
                    spawn_local(async move { answer(&state, &path).await.status() })
                })
                .collect();
            let mut seen = Vec::new();
            for ask in asks {
                seen.push(ask.await.unwrap().as_u16());
            }
            seen.sort_unstable();
            assert_eq!(seen, [200, 200, 200, 503]);
            assert!(!state.is_full() && state.slots.available_permits() == 2 && state.waiting.get() == 0);
        });
    }

    #[test]
    fn who_hangs_answers_once_it_is_well_and_who_fails_says_so() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let state = state(1, 1);
            answer(&state, Mood::Hanging.path()).await;
            let asked = state.clone();
            let ask = spawn_local(async move { answer(&asked, "/ping").await.status() });
            tokio::task::yield_now().await;
            assert!(!ask.is_finished());
            answer(&state, Mood::Failing.path()).await;
            assert_eq!(ask.await.unwrap(), StatusCode::INTERNAL_SERVER_ERROR);
            answer(&state, Mood::Well.path()).await;
            assert_eq!(answer(&state, "/ping").await.status(), StatusCode::OK);
        });
    }
}

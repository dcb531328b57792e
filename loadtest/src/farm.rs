//! The servers of an experiment, in this program: each listens on a port of its own, works as its model says, and can be killed and
//! brought back.
//!
//! An answer says who gave it and whether it was in the cache, by Cache-Status (RFC 9211).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet, spawn_local};

use crate::alarm::Alarm;
use crate::catalogue::{Ask, Kind, Source};
use crate::failure::{Outcome, While};
use crate::station::{Caching, Sharing};

/// How a server works.
pub enum Station {
    /// With a cache.
    Caching(Caching),
    /// By computing.
    Sharing(Sharing),
}

/// Makes the station of a server, new at each of its starts.
pub type Stations = Box<dyn Fn(usize) -> Station>;

/// Running servers; they end with the local set that they were started on, or when this is dropped.
pub struct Farm {
    servers: Vec<Server>,
    stations: Stations,
    alarm: Alarm,
}

struct Server {
    port: u16,
    /// It accepts, and all its connections are its own.
    task: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Farm {
    /// One server on each of `ports`.
    pub async fn start(ports: &[u16], stations: Stations, alarm: &Alarm) -> Outcome<Self> {
        let servers = ports.iter().map(|port| Server { port: *port, task: None }).collect();
        let mut farm = Self { servers, stations, alarm: alarm.clone() };
        for number in 0..ports.len() {
            farm.revive(number).await?;
        }
        Ok(farm)
    }

    /// Ends a server as the end of its process would: nobody listens any more, its connections break, and its cache is gone.
    pub async fn kill(&mut self, number: usize) {
        if let Some(task) = self.servers.get_mut(number).and_then(|server| server.task.take()) {
            task.abort();
            // It says that it was aborted.
            let _ = task.await;
        }
    }

    /// Starts a server anew, with an empty cache.
    pub async fn revive(&mut self, number: usize) -> Outcome<()> {
        let Some(server) = self.servers.get_mut(number) else { return Ok(()) };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, server.port)).await;
        let listener = listener.doing(|| format!("listening on {}", server.port))?;
        let station = RefCell::new((self.stations)(number));
        let state = State { number, station, alarm: self.alarm.clone(), jobs: RefCell::default() };
        server.task = Some(spawn_local(accept(listener, Rc::new(state))));
        Ok(())
    }
}

/// What all connections of a server share.
struct State {
    number: usize,
    station: RefCell<Station>,
    alarm: Alarm,
    /// Who waits for the end of a job.
    jobs: RefCell<BTreeMap<u64, oneshot::Sender<()>>>,
}

async fn accept(listener: TcpListener, state: Rc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn_local(connection(stream, state.clone()));
        // Those that have ended are forgotten.
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, state: Rc<State>) {
    converse(stream, async |path: &str| answer(&state, path).await).await;
}

/// Answers what is asked for on a connection, one path after the other, until its client goes away.
pub async fn converse(stream: TcpStream, answer: impl AsyncFn(&str) -> Response<Full<Bytes>>) {
    // Only a delay would follow from a failure.
    let _ = stream.set_nodelay(true);
    let answer = &answer;
    let service =
        service_fn(async |request: Request<Incoming>| Ok::<_, Infallible>(answer(request.uri().path()).await));
    // A client that goes away is the end, not an error.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(state: &Rc<State>, path: &str) -> Response<Full<Bytes>> {
    let how = match Ask::parse(path) {
        Some(Ask::Item { kind, number, .. }) => look_up(state, kind, number).await,
        Some(Ask::Work(work)) => compute(state, work).await,
        Some(Ask::Ping) => Some(Source::Made),
        None => None,
    };
    let Some(source) = how else { return refusal() };
    let answer = Response::builder().header("cache-status", source.says(state.number));
    answer.body(Full::new(Bytes::from_static(&[b'x'; 128]))).unwrap_or_else(|_| refusal())
}

/// This is not what such a server is asked for.
fn refusal() -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::NOT_FOUND;
    answer
}

/// Returns when the content is there; `None` where the server has no cache and no storage.
async fn look_up(state: &State, kind: Kind, number: u32) -> Option<Source> {
    let served = match &mut *state.station.borrow_mut() {
        Station::Caching(caching) => caching.serve(state.alarm.now(), kind, number),
        Station::Sharing(_) => return None,
    };
    state.alarm.until(served.until).await;
    Some(match (kind.is_cached(), served.is_hit) {
        (false, _) => Source::Made,
        (true, true) => Source::Cache,
        (true, false) => Source::Storage,
    })
}

/// Returns when `work` has been done; `None` where the server does not compute.
async fn compute(state: &Rc<State>, work: Duration) -> Option<Source> {
    let now = state.alarm.now();
    let job = match &mut *state.station.borrow_mut() {
        Station::Sharing(sharing) => sharing.begin(now, work),
        Station::Caching(_) => return None,
    };
    let (sender, receiver) = oneshot::channel();
    state.jobs.borrow_mut().insert(job, sender);
    settle(state);
    receiver.await.ok().map(|()| Source::Made)
}

/// Tells the jobs that have ended, and comes back when the next one does.
///
/// Each beginning and each end calls this, so that whatever comes first is always waited for; a call that comes for nothing tells nobody.
fn settle(state: &Rc<State>) {
    let now = state.alarm.now();
    let (ended, next) = match &mut *state.station.borrow_mut() {
        Station::Sharing(sharing) => (sharing.take_ended(now), sharing.next_end()),
        Station::Caching(_) => return,
    };
    for job in ended {
        if let Some(waiter) = state.jobs.borrow_mut().remove(&job) {
            // A client that has gone need not know.
            let _ = waiter.send(());
        }
    }
    let Some(next) = next else { return };
    let weak = Rc::downgrade(state);
    let alarm = state.alarm.clone();
    spawn_local(async move {
        alarm.until(next).await;
        if let Some(state) = weak.upgrade().filter(|state| state.is_due()) {
            settle(&state);
        }
    });
}

impl State {
    /// Whether a job has ended that was not told.
    fn is_due(&self) -> bool {
        match &*self.station.borrow() {
            Station::Sharing(sharing) => sharing.next_end().is_some_and(|next| next <= self.alarm.now()),
            Station::Caching(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_loop::{self, Arrival, End};

    fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, work)
    }

    fn free_port() -> u16 {
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
    }

    /// The ends of requests that are sent all at once.
    async fn ends(port: u16, asks: &[Ask], alarm: &Alarm) -> Vec<End> {
        let arrivals: Vec<Arrival> = asks.iter().map(|ask| Arrival { at: Duration::ZERO, ask: *ask }).collect();
        let exchanges = open_loop::offer(port, &arrivals, alarm.now(), alarm).await.unwrap();
        exchanges.into_iter().map(|exchange| exchange.end).collect()
    }

    #[test]
    fn a_killed_server_does_not_answer_and_comes_back_with_an_empty_cache() {
        on_a_runtime(async {
            let (alarm, port) = (Alarm::start().unwrap(), free_port());
            let caching: Stations = Box::new(|_| Station::Caching(Caching::new(1, 10)));
            let mut farm = Farm::start(&[port], caching, &alarm).await.unwrap();
            let ask = [Ask::Item { kind: Kind::Image, number: 7, salt: 1 }];
            let source = |ends: Vec<End>| match ends[..] {
                [End::Answered { server: 0, source, .. }] => Some(source),
                _ => None,
            };
            assert_eq!(source(ends(port, &ask, &alarm).await), Some(Source::Storage));
            assert_eq!(source(ends(port, &ask, &alarm).await), Some(Source::Cache));
            farm.kill(0).await;
            assert_eq!(ends(port, &ask, &alarm).await, [End::Failed]);
            farm.revive(0).await.unwrap();
            assert_eq!(source(ends(port, &ask, &alarm).await), Some(Source::Storage));
        });
    }

    #[test]
    fn jobs_that_share_a_processor_end_no_sooner_than_its_speed_allows() {
        on_a_runtime(async {
            let (alarm, port) = (Alarm::start().unwrap(), free_port());
            let computing: Stations = Box::new(|_| Station::Sharing(Sharing::new(2.0)));
            let _farm = Farm::start(&[port], computing, &alarm).await.unwrap();
            let begin = alarm.now();
            let ends = ends(port, &[20, 20, 20].map(|work| Ask::Work(Duration::from_millis(work))), &alarm).await;
            assert!(alarm.now() - begin >= Duration::from_millis(30), "60 ms of work at twice the speed");
            assert!(ends.iter().all(|end| matches!(end, End::Answered { source: Source::Made, .. })), "{ends:?}");
        });
    }

    #[test]
    fn what_a_server_is_not_made_for_fails() {
        on_a_runtime(async {
            let (alarm, port) = (Alarm::start().unwrap(), free_port());
            let caching: Stations = Box::new(|_| Station::Caching(Caching::new(1, 10)));
            let _farm = Farm::start(&[port], caching, &alarm).await.unwrap();
            assert_eq!(ends(port, &[Ask::Work(Duration::from_millis(1))], &alarm).await, [End::Failed]);
        });
    }
}

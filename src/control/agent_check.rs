//! The agent-check thread: asks servers over TCP what they say of themselves, and tells control.
//!
//! Each server has a task that asks one question at a time, every so often with some jitter; so many questions are under way at
//! once, each with an end, and no more of a reply is read than a reply may have. A server that does not answer, or with
//! something that can't be read, is counted and nothing else: to notice that a server has failed is for checks. It refuses to
//! judge what is said.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::base::id::ServerSlot;
use crate::base::rng::Rng;
use crate::base::time;
use crate::control::inputs::{Heard, ReportSender};
use crate::pure::feedback::agent_check::{AgentCheck, AskedAt, REPLY_MAX, Reply, ReplyError, parse};
use crate::pure::feedback::report::{Report, Source};
use crate::pure::pool::Address;
use crate::shared::counters::ProcessCounters;
use crate::shared::snapshot::{Endpoint, SnapshotStore};
use crate::shared::spaced::Spaced;
use crate::shared::thread;

/// The most questions that are under way at once.
pub const QUESTIONS_MAX: usize = 64;

/// How often the thread looks whether other servers are configured.
const LOOK: Duration = Duration::from_millis(250);

/// A first question comes within this, or within `every` where that is shorter.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

/// Why a question brought nothing.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("it does not answer in time")]
    TimedOut,
    #[error(transparent)]
    Network(#[from] io::Error),
    #[error(transparent)]
    Reply(#[from] ReplyError),
}

/// Starts the thread; it ends when `stop` is dropped at its other end.
///
/// # Errors
/// Where the thread or its runtime can't be made.
pub(super) fn start(
    store: Arc<SnapshotStore>,
    reports: ReportSender,
    stop: oneshot::Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    let make = || Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    thread::start("agent-check", make, move |runtime| {
        runtime.block_on(Asking::new(store, reports).serve(stop));
    })
}

/// Whom a task asks, and how: another means another task.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    check: Arc<AgentCheck>,
    address: SocketAddr,
}

struct Asking {
    store: Arc<SnapshotStore>,
    reports: ReportSender,
    tasks: HashMap<ServerSlot, (Target, AbortHandle)>,
    whereabouts: Option<u64>,
    places: Rc<Semaphore>,
    rng: Rng,
}

impl Asking {
    fn new(store: Arc<SnapshotStore>, reports: ReportSender) -> Self {
        // For jitter only.
        let seed = time::wall_clock().duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()));
        let places = Rc::new(Semaphore::new(QUESTIONS_MAX));
        Self { store, reports, tasks: HashMap::new(), whereabouts: None, places, rng: Rng::new(seed) }
    }

    async fn serve(mut self, mut stop: oneshot::Receiver<()>) {
        loop {
            self.follow();
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = &mut stop => return,
            }
        }
    }

    /// Begins to ask servers that are new or have moved, and leaves the others be.
    fn follow(&mut self) {
        let snapshot = self.store.load();
        if self.whereabouts == Some(snapshot.whereabouts) {
            return;
        }
        self.whereabouts = Some(snapshot.whereabouts);
        let mut before = std::mem::take(&mut self.tasks);
        for pool in &snapshot.pools {
            let Some(check) = &pool.pool.agent_check else { continue };
            for endpoint in &pool.endpoints {
                let place = check.places.get(&endpoint.server.id.server);
                let Some(address) = place.and_then(|place| address_of(*place, endpoint)) else { continue };
                let (slot, target) = (endpoint.record.slot, Target { check: Arc::clone(check), address });
                let task = match before.remove(&slot) {
                    Some((known, task)) if known == target && !task.is_finished() => task,
                    other => {
                        if let Some((_, task)) = other {
                            task.abort();
                        }
                        self.begin(endpoint, target.clone())
                    }
                };
                self.tasks.insert(slot, (target, task));
            }
        }
        before.values().for_each(|(_, task)| task.abort());
    }

    fn begin(&mut self, endpoint: &Arc<Endpoint>, target: Target) -> AbortHandle {
        let task = Task {
            endpoint: Arc::clone(endpoint),
            target,
            reports: self.reports.clone(),
            process: Arc::clone(self.store.process()),
            places: Rc::clone(&self.places),
            rng: Rng::new(self.rng.next_u64()),
            said: Spaced::default(),
            reasons: Reasons::default(),
        };
        tokio::task::spawn_local(task.run()).abort_handle()
    }
}

/// Where a server is asked; `None`: its name is not resolved.
fn address_of(place: AskedAt, endpoint: &Endpoint) -> Option<SocketAddr> {
    let own = || match &endpoint.server.address {
        Address::Socket(address) => Some(address.ip()),
        Address::Name(..) => endpoint.named_from_last_good().next().map(|(_, address)| address.ip()),
        Address::Unix(_) => None,
    };
    place.address.or_else(own).map(|ip| SocketAddr::new(ip, place.port))
}

struct Task {
    endpoint: Arc<Endpoint>,
    target: Target,
    reports: ReportSender,
    process: Arc<ProcessCounters>,
    places: Rc<Semaphore>,
    rng: Rng,
    said: Spaced,
    reasons: Reasons,
}

/// The reasons that a server gives, as far as they are said: now and then, however often it changes its mind.
#[derive(Default)]
struct Reasons {
    /// The last that was said; `None`: it has given none since.
    last: Option<String>,
    said: Spaced,
}

impl Reasons {
    /// The reason that is to be said now.
    fn news(&mut self, reason: Option<String>) -> Option<&str> {
        let Some(reason) = reason else {
            self.last = None;
            return None;
        };
        if self.last.as_ref() == Some(&reason) || !self.said.is_due() {
            return None;
        }
        self.last.insert(reason).as_str().into()
    }
}

impl Task {
    async fn run(mut self) {
        let every = self.target.check.every;
        tokio::time::sleep(part(every.min(FIRST_WITHIN), self.rng.below(1_000))).await;
        loop {
            // A tenth more or less, so that many servers are not asked at one moment.
            let gap = part(every, 900 + self.rng.below(201));
            let begun = time::now();
            let places = Rc::clone(&self.places);
            // It is never closed.
            if let Ok(_place) = places.acquire().await {
                self.ask().await;
            }
            tokio::time::sleep(gap.saturating_sub(time::now().since(begun))).await;
        }
    }

    async fn ask(&mut self) {
        let Target { check, address } = &self.target;
        let asked = timeout(check.timeout, converse(*address, &check.send)).await;
        let replied = asked.unwrap_or(Err(AskError::TimedOut)).and_then(|bytes| Ok(parse(&bytes)?));
        match replied {
            Ok(Reply { report, reason }) => self.tell(promising(report, check.every), reason),
            Err(error) => {
                self.process.feedback.agent_checks_failed.add(1);
                if self.said.is_due() {
                    tracing::warn!("the agent-check of {} at {address}: {error}", self.endpoint.server.id);
                }
            }
        }
    }

    fn tell(&mut self, report: Report, reason: Option<String>) {
        self.process.feedback.agent_checks.add(1);
        if let Some(reason) = self.reasons.news(reason) {
            tracing::info!("{} says of itself: {reason}", self.endpoint.server.id);
        }
        let slot = self.endpoint.record.slot;
        self.reports.send(Heard { slot, source: Source::AgentCheck, report, restart: None });
    }
}

/// A report that holds until the server has been asked again, however seldom that is.
fn promising(report: Report, every: Duration) -> Report {
    Report { promised_next: Some(every), ..report }
}

/// So many thousandths.
fn part(span: Duration, thousandths: u64) -> Duration {
    span.mul_f64(thousandths as f64 / 1_000.0)
}

/// What a server replies: its first line, or all until it closes, and no more than [`REPLY_MAX`] bytes.
async fn converse(address: SocketAddr, send: &[u8]) -> Result<Vec<u8>, AskError> {
    let mut stream = TcpStream::connect(address).await?;
    if !send.is_empty() {
        stream.write_all(send).await?;
    }
    let mut reply = Vec::with_capacity(128);
    let mut rest = stream.take(REPLY_MAX as u64);
    loop {
        let has_line = reply.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
        if has_line || rest.read_buf(&mut reply).await? == 0 {
            return Ok(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Asks a server that reads so much and writes this, and closes or waits for the end.
    fn asked(send: &'static str, reply: &'static [u8], closes: bool) -> Result<Vec<u8>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut seen = vec![0; send.len()];
            stream.read_exact(&mut seen).unwrap();
            assert_eq!(seen, send.as_bytes());
            let _ = stream.write_all(reply);
            if !closes {
                let _ = stream.read(&mut [0; 1]);
            }
        });
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(async {
            let wait = timeout(Duration::from_secs(10), converse(address, send.as_bytes()));
            wait.await.unwrap().map_err(|error| error.to_string())
        });
        server.join().unwrap();
        answer
    }

    #[test]
    fn a_reply_ends_with_its_line_or_its_connection_or_its_bound() {
        assert_eq!(asked("", b"75%\nmore", false).unwrap()[..4], *b"75%\n");
        assert_eq!(asked("app/a\n", b"up", true).unwrap(), b"up");
        assert_eq!(asked("", b"", true).unwrap(), b"");
        static LONG: [u8; 1 << 20] = [b'x'; 1 << 20];
        assert_eq!(asked("", &LONG, false).unwrap().len(), REPLY_MAX);
    }

    #[test]
    fn a_server_that_gives_another_reason_each_time_does_not_fill_the_log() {
        let mut reasons = Reasons::default();
        assert_eq!(reasons.news(Some("disk 91% full".to_owned())), Some("disk 91% full"));
        for number in 0..100 {
            assert_eq!(reasons.news(Some(format!("disk {number}% full"))), None);
            assert_eq!(reasons.news(None), None);
        }
    }

    #[test]
    fn what_a_seldom_asked_server_says_is_not_forgotten_before_it_is_asked_again() {
        let every = Duration::from_secs(60);
        let reply = parse(b"down\n").unwrap();
        let told = promising(reply.report.clone(), every);
        assert_eq!((told.promised_next, told.service), (Some(every), reply.report.service));
    }

    #[test]
    fn parts_are_thousandths() {
        assert_eq!(part(Duration::from_secs(2), 900), Duration::from_millis(1_800));
        assert_eq!(part(Duration::from_secs(2), 0), Duration::ZERO);
    }
}

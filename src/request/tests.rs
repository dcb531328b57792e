//! Connections that end at every step of their lives: by a client that vanishes, by a panic, by being dropped. Whatever they
//! held is given back, the connection beside them goes on, and nothing is counted that did not happen.
//!
//! A worker, its clients and its servers live on the thread of the test, so that a step can be chosen exactly.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::base::id::{ListenerIndex, PoolIndex};
use crate::pure::config::load_text;
use crate::pure::pool::Tried;
use crate::pure::rule::compile::RuleSet;
use crate::pure::trace::Trace;
use crate::request::buffers::SMALL;
use crate::request::connection;
use crate::request::listener::{Listener, Said};
use crate::request::process::Process;
use crate::request::stream::ClientStream;
use crate::request::worker::Worker;
use crate::shared::choose::Ask;
use crate::shared::counters::ProcessCounters;
use crate::shared::lease::{Admitted, PoolRef};
use crate::shared::snapshot::SnapshotStore;

pub mod faults;
mod h2;
mod load;
mod take_back;

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Panics,
    Dropped,
    VanishesByFin,
    VanishesByReset,
}

/// A client's requests, piece by piece, and how it knows that it has all of the answers.
struct Script {
    sent: Vec<String>,
    expects: &'static str,
}

/// From a plain request to a tunnel: together they come through every place at which a connection waits.
fn scripts() -> Vec<Script> {
    let script =
        |sent: &[&str], expects| Script { sent: sent.iter().map(|&piece| piece.to_owned()).collect(), expects };
    let large = format!("X: {}\r\n", "x".repeat(7000)).repeat(4);
    vec![
        script(&["GET /plain HTTP/1.1\r\nHost: a\r\n\r\n"], "plain"),
        script(
            &[
                "GET /plain HTTP/1.1\r\n",
                "Host: a\r\n\r\nGET /plain HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET /none/ HTTP/1.1\r\nHost: a\r\n\r\n",
            ],
            "404 Not Found\n",
        ),
        script(&[&format!("GET /plain HTTP/1.1\r\nHost: a\r\n{large}"), "\r\n"], "plain"),
        script(&["GET /large-head HTTP/1.1\r\nHost: a\r\n\r\n"], "\r\n\r\n"),
        script(&["GET /large HTTP/1.1\r\nHost: a\r\n\r\n"], "\r\n0\r\n\r\n"),
        script(&["GET /plain HTTP/1.0\r\nHost: a\r\n\r\n"], "plain"),
        script(&["GET /interim HTTP/1.1\r\nHost: a\r\n\r\n"], "interim"),
        script(&["POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n012", "34567", "89"], "uploaded"),
        script(
            &[
                "PUT /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n",
                "5\r\n56789\r\n",
                "0\r\n\r\n",
            ],
            "uploaded",
        ),
        script(&["GET /plain HTTP/1.1\r\nHost: retry\r\n\r\n"], "plain"),
        script(&["GET /plain HTTP/1.1\r\nHost: refused\r\n\r\n"], "plain"),
        script(&["GET /plain HTTP/1.1\r\nHost: queued\r\n\r\n"], "plain"),
        script(
            &[
                "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                "one",
                "two",
                "end",
            ],
            "onetwoend",
        ),
    ]
}

/// A server that answers by the target.
async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::task::spawn_local(async move {
            // Whatever breaks it off is the test's doing.
            let _ = answer(stream).await;
        });
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut seen = Vec::new();
    loop {
        while !seen.windows(4).any(|window| window == b"\r\n\r\n") {
            if stream.read_buf(&mut seen).await? == 0 {
                return Ok(());
            }
        }
        let text = String::from_utf8_lossy(&seen).into_owned();
        let target = text.split(' ').nth(1).unwrap_or_default();
        match target {
            "/large" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
                for _ in 0..10 {
                    stream.write_all(b"7530\r\n").await?;
                    stream.write_all(&[b'x'; 30_000]).await?;
                    stream.write_all(b"\r\n").await?;
                }
                stream.write_all(b"0\r\n\r\n").await?;
            }
            "/interim" => {
                stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n").await?;
                tokio::task::yield_now().await;
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nint").await?;
                tokio::task::yield_now().await;
                stream.write_all(b"erim").await?;
            }
            "/large-head" => {
                let fields = format!("X: {}\r\n", "x".repeat(7000)).repeat(4);
                stream.write_all(format!("HTTP/1.1 204 No Content\r\n{fields}\r\n").as_bytes()).await?;
            }
            "/upload" => {
                let is_whole =
                    |seen: &[u8]| seen.ends_with(b"9") || seen.ends_with(b"9.") || seen.ends_with(b"0\r\n\r\n");
                while !is_whole(&seen) {
                    if stream.read_buf(&mut seen).await? == 0 {
                        return Ok(());
                    }
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nuploaded").await?;
            }
            "/tunnel" => {
                let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
                stream.write_all(head).await?;
                let mut piece = [0; 1024];
                loop {
                    let count = stream.read(&mut piece).await?;
                    if count == 0 {
                        return Ok(());
                    }
                    stream.write_all(&piece[..count]).await?;
                }
            }
            "/broken" => stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size").await?,
            _ => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain").await?,
        }
        seen.clear();
    }
}

/// A server that reads a request and closes.
async fn break_off(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::task::spawn_local(async move {
            let _ = stream.read(&mut [0; 1024]).await;
        });
    }
}

/// One worker and what it needs.
struct Bench {
    worker: Rc<Worker>,
    listener: Arc<Listener>,
    store: Arc<SnapshotStore>,
    door: TcpListener,
}

async fn bound() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl Bench {
    async fn new() -> Self {
        Self::speaking("").await
    }

    /// With these settings of its listener.
    async fn speaking(settings: &str) -> Self {
        let (good, good_address) = bound().await;
        let (bad, bad_address) = bound().await;
        // Bound and never listening: it refuses.
        let refusing = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        refusing.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let refused_address = refusing.local_addr().unwrap().as_socket().unwrap();
        tokio::task::spawn_local(serve(good));
        tokio::task::spawn_local(break_off(bad));
        tokio::task::spawn_local(async move {
            let _keeps = refusing;
            std::future::pending::<()>().await;
        });
        let pools = format!(
            r#"
pool "a" {{ server "good" "{good_address}" max=1000 }}
pool "retry" {{ server "bad" "{bad_address}"; server "good" "{good_address}"; scheduler "wlc" ties="first" }}
pool "refused" {{ server "bad" "{refused_address}"; server "good" "{good_address}"; scheduler "wlc" ties="first" }}
pool "queued" {{ server "good" "{good_address}" max=1; queue }}
rule path="/none/{{*rest}}" respond=404
rule host="queued" use="queued"
rule host="retry" use="retry"
rule host="refused" use="refused"
rule use="a"
"#
        );
        Self::of(settings, &pools).await
    }

    /// With these settings of its listener, and these pools and rules.
    async fn of(settings: &str, rest: &str) -> Self {
        let (door, local) = bound().await;
        let text = format!("listen \"{local}\" {settings}\n{rest}");
        let config = load_text(&text).unwrap_or_else(|errors| panic!("{errors}"));
        let config = Arc::new(config);
        let counters = Arc::new(ProcessCounters::default());
        let rules = Arc::new(RuleSet::compile(config.rules.clone()).unwrap());
        let store = Arc::new(SnapshotStore::new(Arc::clone(&config), rules, Arc::clone(&counters)));
        let process = Arc::new(Process::new(config.process, 1000, 7, counters));
        let listener = Arc::new(Listener {
            index: ListenerIndex(0),
            name: local.to_string(),
            config: config.listeners[0].clone(),
            local,
            tls: None,
            said: Said::default(),
        });
        let mut support = tokio::task::JoinSet::new();
        let worker = Worker::begin(0, process, &store, None, &mut support);
        support.detach_all();
        Self { worker, listener, store, door }
    }

    /// A client's end of a new connection, and the life of ours.
    async fn connect(&self) -> (TcpStream, impl Future<Output = ()> + use<>) {
        let client = TcpStream::connect(self.listener.local).await.unwrap();
        let (stream, peer) = self.door.accept().await.unwrap();
        self.worker.shared.connections.enter();
        (client, connection::life(&self.worker, &self.listener, ClientStream::Plain(stream.into()), peer))
    }

    fn active(&self) -> u32 {
        let snapshot = self.store.load();
        let endpoints = snapshot.pools.iter().flat_map(|pool| &pool.endpoints);
        endpoints.map(|endpoint| endpoint.record.load.active()).sum()
    }

    /// The failures of the servers that do not fail by design.
    fn failures(&self) -> u64 {
        let snapshot = self.store.load();
        let endpoints = snapshot.pools.iter().flat_map(|pool| &pool.endpoints);
        let good = endpoints.filter(|endpoint| &*endpoint.server.id.server != "bad");
        good.map(|endpoint| endpoint.record.ended().failed).sum()
    }

    /// Takes the only place of the pool `queued` for a while that a request has to wait for.
    fn occupy(&self) {
        let snapshot = self.store.load();
        let pool = PoolRef { index: PoolIndex(3), name: &snapshot.pools[3].pool.name };
        let ask = Ask { key: None, own: None, tried: &Tried::NONE, now: self.worker.now() };
        let Ok(Admitted::Place(lease)) = self.worker.admission.admit(pool, &ask, &mut Trace::off()) else {
            panic!("the place is free");
        };
        tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            drop(lease);
        });
    }

    fn panics(&self) -> u64 {
        self.worker.shared.counters.panics.get()
    }

    /// Waits until nothing is left of any connection but `connections` idle ones, which may still be warm.
    async fn settle(&self, connections: u32, what: &str) {
        let warm = usize::try_from(connections).unwrap() * 2 * SMALL;
        for _ in 0..2_000 {
            let worker = &self.worker;
            let is_given_back = worker.buffers.granted() <= warm;
            if worker.shared.connections.count() == connections && self.active() == 0 && is_given_back {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let (active, granted) = (self.active(), self.worker.buffers.granted());
        panic!("{what}: {} connections, {active} in flight, {granted} bytes", self.worker.shared.connections.count());
    }
}

/// A client that can be made to vanish by a fault.
struct Client {
    stream: Rc<RefCell<Option<TcpStream>>>,
    vanished: Rc<Notify>,
}

impl Client {
    fn vanish(stream: &Rc<RefCell<Option<TcpStream>>>, vanished: &Notify, by_reset: bool) {
        if let Some(stream) = stream.take()
            && by_reset
        {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        vanished.notify_one();
    }

    /// Plays a script until all has come that is expected, or the connection has ended.
    async fn play(self, script: &Script) -> String {
        let mut seen = Vec::new();
        let Self { stream, vanished } = self;
        let exchange = async {
            let mut pieces = script.sent.iter();
            loop {
                if let Some(piece) = pieces.next() {
                    // A socket's send buffer takes any of them at once.
                    let wrote = std::future::poll_fn(|context| match &*stream.borrow() {
                        Some(stream) => stream.poll_write_ready(context).map(|_| stream.try_write(piece.as_bytes())),
                        None => std::task::Poll::Ready(Ok(0)),
                    });
                    match wrote.await {
                        Ok(count) => assert!(count == 0 || count == piece.len()),
                        Err(_) => return,
                    }
                    tokio::task::yield_now().await;
                    continue;
                }
                let read = std::future::poll_fn(|context| match &*stream.borrow() {
                    Some(stream) => stream.poll_read_ready(context).map(|_| stream.try_read_buf(&mut seen)),
                    None => std::task::Poll::Ready(Ok(0)),
                });
                match read.await {
                    Ok(0) => return,
                    Ok(_) if seen.ends_with(script.expects.as_bytes()) => return,
                    Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
                    Ok(_) | Err(_) => {}
                }
            }
        };
        tokio::select! {
            () = exchange => {}
            () = vanished.notified() => {}
        }
        stream.take();
        String::from_utf8_lossy(&seen).into_owned()
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = crate::request::worker::runtime().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await.expect("it takes too long") })
}

/// Plays one script on a connection with this fate at this step, beside another connection. False: it did not come to it.
async fn play_with_fate(script: &Script, fate: Fate, step: usize) -> bool {
    let what = format!("{} {fate:?} at step {step}", script.sent[0]);
    let bench = Bench::new().await;
    let (mut beside, life) = bench.connect().await;
    tokio::task::spawn_local(life);
    ask_beside(&mut beside).await;
    bench.settle(1, &what).await;

    bench.occupy();
    let (stream, life) = bench.connect().await;
    let client = Client { stream: Rc::new(RefCell::new(Some(stream))), vanished: Rc::default() };
    let has_dropped = Rc::new(Cell::new(false));
    match fate {
        Fate::Dropped => {
            let life = faults::Dropped::after(step, life, Rc::clone(&has_dropped));
            drop(tokio::task::spawn_local(life));
        }
        Fate::Panics => {
            faults::order(step, faults::panic);
            drop(tokio::task::spawn_local(life));
        }
        Fate::VanishesByFin | Fate::VanishesByReset => {
            let (stream, vanished) = (Rc::clone(&client.stream), Rc::clone(&client.vanished));
            let by_reset = fate == Fate::VanishesByReset;
            faults::order(step, move || Client::vanish(&stream, &vanished, by_reset));
            drop(tokio::task::spawn_local(life));
        }
    }
    let answer = client.play(script).await;
    let has_come = if fate == Fate::Dropped { has_dropped.get() } else { faults::was_carried_out() };
    if !has_come {
        assert!(answer.ends_with(script.expects), "{what}: {answer}");
    }
    bench.settle(1, &what).await;
    assert_eq!(bench.panics(), u64::from(has_come && fate == Fate::Panics), "{what}");
    ask_beside(&mut beside).await;
    drop(beside);
    bench.settle(0, &what).await;
    // What the client did is never held against a server. The two bad servers fail as they should.
    assert_eq!(bench.failures(), 0, "{what}");
    has_come
}

/// A request of the other connection is answered as always.
async fn ask_beside(beside: &mut TcpStream) {
    beside.write_all(b"GET /plain HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\nplain") {
        assert_ne!(beside.read_buf(&mut seen).await.unwrap(), 0, "the other connection ended too");
    }
}

fn at_every_step(fate: Fate) {
    for script in &scripts() {
        let steps = (0..200).take_while(|step| run(play_with_fate(script, fate, *step))).count();
        println!("{} {fate:?}: {steps} steps", script.sent[0].lines().next().unwrap_or_default());
        assert!((2..200).contains(&steps), "{} {fate:?}: {steps} steps", script.sent[0]);
    }
}

#[test]
fn a_panic_at_any_step_costs_that_connection_only_and_is_counted_once() {
    at_every_step(Fate::Panics);
}

#[test]
fn a_connection_that_is_dropped_at_any_wait_gives_everything_back() {
    at_every_step(Fate::Dropped);
}

#[test]
fn a_client_that_vanishes_by_fin_at_any_step_leaves_nothing_behind() {
    at_every_step(Fate::VanishesByFin);
}

#[test]
fn a_client_that_vanishes_by_reset_at_any_step_leaves_nothing_behind() {
    at_every_step(Fate::VanishesByReset);
}

#[test]
fn an_idle_plain_connection_is_a_future_of_at_most_400_bytes() {
    run(async {
        let bench = Bench::new().await;
        let (_client, life) = bench.connect().await;
        let size = std::mem::size_of_val(&life);
        println!("{size} bytes");
        assert!(size <= 400, "{size} bytes");
    });
}

/// A request by itself, and the answer to its end.
async fn ask(bench: &Bench, host: &str, target: &str) -> String {
    let (mut client, life) = bench.connect().await;
    tokio::task::spawn_local(life);
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[test]
fn what_servers_do_is_counted_where_it_happened() {
    run(async {
        let bench = Bench::new().await;
        assert!(ask(&bench, "a", "/plain").await.ends_with("plain"));
        assert!(ask(&bench, "retry", "/plain").await.ends_with("plain"));
        assert!(ask(&bench, "refused", "/plain").await.ends_with("plain"));
        assert!(ask(&bench, "a", "/broken").await.starts_with("HTTP/1.1 502 "));
        bench.settle(0, "all").await;
        let snapshot = bench.store.load();
        let counted = snapshot.pools.iter().map(|pool| {
            let figures = pool.endpoints.iter().map(|endpoint| endpoint.record.figures());
            figures.map(|f| (f.requests, f.retries, f.answers[1], f.resets, f.connect_errors)).collect::<Vec<_>>()
        });
        let expected = [
            vec![(2, 0, 1, 1, 0)],
            vec![(1, 0, 0, 1, 0), (1, 1, 1, 0, 0)],
            vec![(1, 0, 0, 0, 1), (1, 1, 1, 0, 0)],
            vec![(0, 0, 0, 0, 0)],
        ];
        assert_eq!(counted.collect::<Vec<_>>(), expected);
    });
}

/// Statuses that count against a server: those for which requests are sent again, and those that the pool names.
#[test]
fn answers_that_the_pool_takes_for_failures_count_as_such() {
    run(async {
        let failed = async |settings: &str, status: u16| {
            let (listener, address) = bound().await;
            tokio::task::spawn_local(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let mut request = [0; 1024];
                    assert!(stream.read(&mut request).await.unwrap() > 0);
                    let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
            let rest = format!("pool \"p\" {{ server \"s\" \"{address}\"; {settings} }}\nrule use=\"p\"\n");
            let bench = Bench::of("", &rest).await;
            assert!(ask(&bench, "a", "/").await.starts_with(&format!("HTTP/1.1 {status} ")));
            bench.settle(0, settings).await;
            let record = Arc::clone(&bench.store.load().pools[0].endpoints[0].record);
            (record.ended().failed, record.ended().all)
        };
        assert_eq!(failed("", 500).await, (0, 1));
        assert_eq!(failed("passive status=\"5xx 404\"", 500).await, (1, 1));
        assert_eq!(failed("passive status=\"5xx 404\"", 404).await, (1, 1));
        assert_eq!(failed("passive status=\"503\"", 500).await, (0, 1));
        assert_eq!(failed("retry count=0 on=\"500\"", 500).await, (1, 1));
        // Asked twice, as the only server of its pool.
        assert_eq!(failed("retry count=1 on=\"500\"", 500).await, (2, 2));
    });
}

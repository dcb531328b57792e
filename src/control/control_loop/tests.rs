//! The control loop over real sockets: servers that refuse, come back, are ordered about and reloaded.

use socket2::{Domain, Socket, Type};

use super::*;
use crate::pure::feedback::orca::Utilization;
use crate::pure::pool::SchedulerConfig;
use crate::shared::lease::Lease;
use crate::shared::outcome::Outcome;
use crate::shared::snapshot::tests::{SUSPECT, config_of, no_rules, pool_of, store_of};

/// A server that is bound from the start, so that nobody else gets its port, and refuses until it listens.
fn refusing() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    (socket, port)
}

struct Bench {
    store: Arc<SnapshotStore>,
    reports: Arc<ControlReportStore>,
    handle: Handle,
}

impl Bench {
    fn new(ports: &[u16]) -> Self {
        let store = Arc::new(store_of(vec![pool(ports)]));
        let reports = Arc::<ControlReportStore>::default();
        let handle = start(Start {
            store: Arc::clone(&store),
            workers: Vec::new(),
            connectors: &Connectors::default(),
            reports: Arc::clone(&reports),
            equipment: Equipment::default(),
            inputs: Inputs::none(store.process()),
        })
        .unwrap();
        Self { store, reports, handle }
    }

    fn request(&self, index: usize, outcome: Outcome) {
        Lease::take(&self.store.load().pools[0].endpoints[index], None).unwrap().outcome(outcome);
    }

    fn state(&self, index: usize) -> State {
        self.store.load().pools[0].candidates[index].state
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = time::now() + Duration::from_secs(20);
        while !is_so(self) {
            assert!(time::now() < deadline, "in vain: {what}");
            std::thread::yield_now();
        }
    }
}

fn pool(ports: &[u16]) -> Arc<crate::pure::pool::Pool> {
    let names: Vec<String> = (0..ports.len()).map(|number| format!("s{number}")).collect();
    let servers: Vec<_> = names.iter().zip(ports).map(|(name, port)| (name.as_str(), *port, 1, None)).collect();
    pool_of("p", SchedulerConfig::default(), &servers)
}

fn server(number: u32) -> ServerId {
    ServerId { pool: "p".into(), server: format!("s{number}").into() }
}

#[test]
fn a_server_that_refuses_is_suspected_and_comes_back_when_it_listens() {
    let (socket, port) = refusing();
    let (other, other_port) = refusing();
    other.listen(8).unwrap();
    let bench = Bench::new(&[port, other_port]);
    for _ in 0..3 {
        bench.request(0, Outcome::ConnectError);
        bench.request(1, Outcome::Reset);
    }
    bench.wait_for("the server is suspect", |bench| bench.state(0) == SUSPECT);
    assert_eq!(bench.state(1), State::Up);
    socket.listen(8).unwrap();
    bench.wait_for("the server is up", |bench| bench.state(0) == State::Up);
    let record = Arc::clone(&bench.store.load().pools[0].endpoints[0].record);
    bench.wait_for("its failures are forgotten", |_| record.connect_failures_in_a_row() == 0);
    bench.handle.stop();
}

#[test]
fn a_pool_of_one_suspected_server_is_in_panic_until_the_server_is_back() {
    let (socket, port) = refusing();
    let bench = Bench::new(&[port]);
    for _ in 0..3 {
        bench.request(0, Outcome::ConnectTimeout);
    }
    bench.wait_for("the pool is in panic", |bench| bench.store.load().pools[0].in_panic);
    assert_eq!(bench.state(0), SUSPECT);
    socket.listen(8).unwrap();
    bench.wait_for("the panic is over", |bench| !bench.store.load().pools[0].in_panic);
    assert_eq!(bench.state(0), State::Up);
    bench.handle.stop();
}

#[test]
fn what_answers_say_of_a_servers_load_is_seen_without_any_other_event() {
    let bench = Bench::new(&[1]);
    let endpoint = Arc::clone(&bench.store.load().pools[0].endpoints[0]);
    let is_known = |bench: &Bench| {
        let report = bench.reports.load();
        report.servers.get(&endpoint.record.slot).map(|server| server.feedback.is_some())
    };
    bench.wait_for("nothing is known", |bench| is_known(bench) == Some(false));
    endpoint.record.load_said.say(Utilization { cpu: Some(0.5), memory: None }, time::now());
    bench.wait_for("its load is known", |bench| is_known(bench) == Some(true));
    bench.handle.stop();
}

#[test]
fn orders_reach_the_snapshot() {
    let bench = Bench::new(&[1, 2]);
    bench.handle.order(server(7), Order::Drain).unwrap();
    bench.handle.order(server(1), Order::Drain).unwrap();
    bench.wait_for("the server is drained", |bench| bench.state(1) == State::Drained);
    assert_eq!(bench.state(0), State::Up);
    bench.handle.order(server(1), Order::Enable).unwrap();
    bench.wait_for("the server is back", |bench| bench.state(1) == State::Up);
    bench.handle.stop();
}

#[test]
fn a_reload_brings_other_servers_and_keeps_the_states_of_those_that_stay() {
    let (_socket, port) = refusing();
    let bench = Bench::new(&[port, 9]);
    for _ in 0..3 {
        bench.request(0, Outcome::ConnectError);
    }
    bench.wait_for("the server is suspect", |bench| bench.state(0) == SUSPECT);
    bench.handle.reload(config_of(vec![pool(&[port])]), no_rules()).unwrap();
    bench.wait_for("one server is left", |bench| bench.store.load().pools[0].candidates.len() == 1);
    assert_eq!(bench.state(0), SUSPECT);
    // At another address it is another server, and begins anew.
    bench.handle.reload(config_of(vec![pool(&[9])]), no_rules()).unwrap();
    bench.wait_for("the server is up", |bench| bench.state(0) == State::Up);
    bench.handle.stop();
}

#[test]
fn a_thread_that_ends_is_noticed_and_takes_no_orders() {
    let bench = Bench::new(&[1]);
    assert!(!bench.handle.is_finished());
    bench.handle.stop();
    let (commands, _) = mpsc::channel(1);
    let (_, names_tried) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::spawn(|| panic!("injected"));
    let handle = Handle { commands, thread, equipped: Mutex::default(), names_tried };
    let deadline = time::now() + Duration::from_secs(20);
    while !handle.is_finished() {
        assert!(time::now() < deadline, "the thread does not end");
        std::thread::yield_now();
    }
    assert_eq!(handle.order(server(0), Order::Drain), Err(Unavailable));
    handle.stop();
}

#[test]
fn it_can_be_stopped_from_within_a_runtime() {
    let bench = Bench::new(&[1]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { bench.handle.stop() });
}

#[test]
fn what_is_to_be_taken_back_is_told_to_every_worker_behind_the_states() {
    let (first, mut first_orders) = Inbox::new();
    let (second, mut second_orders) = Inbox::new();
    let store = Arc::new(store_of(vec![pool(&[1, 2])]));
    let (tried, _) = std::sync::mpsc::sync_channel(1);
    let start = Start {
        store: Arc::clone(&store),
        workers: vec![first, second],
        connectors: &Connectors::default(),
        reports: Arc::default(),
        equipment: Equipment::default(),
        inputs: Inputs::none(store.process()),
    };
    let mut control = ControlLoop::new(start, tried);
    let slot = ServerSlot(1);
    control.effects = vec![Effect::TakeBack(slot), Effect::SetState(slot, State::Down)];
    control.carry_out();
    for orders in [&mut first_orders, &mut second_orders] {
        assert!(matches!(orders.try_recv(), Ok(WorkerOrder::TakeBack(taken)) if taken == slot));
        assert!(orders.try_recv().is_err());
    }
    assert_eq!(store.load().pools[0].candidates[1].state, State::Down);
}

//! What servers say of themselves, in the whole product: signed reports over UDP and everything that is refused of them,
//! HAProxy's agent-check, run queues that are reported and asked for, and the keys of agents.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pointsman::base::time::UnixNanos;
use pointsman::pure::feedback::acceptance::Obedience;
use pointsman::pure::feedback::keys::{AgentKeys, MasterKey};
use pointsman::pure::feedback::report::{Figures, Report, Service};
use pointsman::pure::feedback::wire::{
    self, Nonce, OrderKind, RestartNews, RestartProgress, SignedOrder, SignedReport, seal_report,
};
use serde_json::Value;

use crate::support::agent::{self, wall_clock};
use crate::support::message::latin1;
use crate::support::{DEADLINE, Origin, Proxy, Setup, pointsman, wait_for};

const MASTER: &[u8] = b"a master key that only this test knows, and not a secret one";

/// A proxy that agents may report to, with the key beside its rules.
fn start(feedback: &str, pools: &str) -> Proxy {
    let rules = format!(
        "workers 2\nlisten \"127.0.0.1:0\"\nadmin \"unix:admin.sock\"\n\
         feedback \"127.0.0.1:0\" {{ key-file \"agents.key\"; {feedback} }}\n{pools}rule use=\"app\"\n"
    );
    let setup = Setup::new(&rules).file("agents.key", MASTER);
    let key = setup.folder().join("agents.key");
    std::fs::set_permissions(key, PermissionsExt::from_mode(0o600)).unwrap();
    setup.start()
}

fn app(origins: &[Origin], lines: &str) -> String {
    let server = |(number, origin): (usize, &Origin)| format!("server \"a{number}\" \"{}\"\n", origin.address);
    format!("pool \"app\" {{ {lines}\n{} }}\n", origins.iter().enumerate().map(server).collect::<String>())
}

/// Where the proxy listens for reports.
fn feedback_address(proxy: &Proxy) -> SocketAddr {
    let line = proxy.wait_for_error("agents may report to ");
    line.split("agents may report to ").nth(1).unwrap().trim().parse().unwrap()
}

/// Waits until a count of `feedback` in the status is at least this.
#[track_caller]
fn wait_for_count(proxy: &Proxy, path: &str, least: u64) -> Value {
    wait_for(&format!("{path} to reach {least}"), DEADLINE, || {
        let status = proxy.status();
        (status["process"].pointer(path)?.as_u64()? >= least).then_some(status)
    })
}

fn run_queues(status: &Value) -> Vec<Option<u64>> {
    let servers = status["pools"][0]["servers"].as_array().unwrap();
    servers.iter().map(|server| server["run_queue"].as_u64()).collect()
}

/// An agent that does what a test tells it to.
struct Agent {
    keys: AgentKeys,
    socket: UdpSocket,
    to: SocketAddr,
    obedience: Obedience,
    boot: u64,
    sequence: u64,
    run_queue: u32,
    service: Service,
    restart: Option<RestartNews>,
}

impl Agent {
    fn new(server: &str, to: SocketAddr) -> Self {
        let keys = MasterKey::from_bytes(MASTER).pair(&server.parse().unwrap()).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self {
            keys,
            socket,
            to,
            obedience: Obedience::default(),
            boot: wall_clock().0,
            sequence: 0,
            run_queue: 0,
            service: Service::Up,
            restart: None,
        }
    }

    fn report_sent(&mut self, sent: UnixNanos) -> Vec<u8> {
        self.sequence += 1;
        let nonce = Nonce((u128::from(self.boot) << 64 | u128::from(self.sequence)).to_be_bytes());
        self.obedience.sends(nonce, wall_clock());
        let figures = Figures { run_queue: Some(self.run_queue), ..Figures::default() };
        let promised_next = Some(Duration::from_secs(1));
        let (boot, sequence, service) = (self.boot, self.sequence, self.service);
        let report = Report { boot, sequence, promised_next, figures, service, ..Report::default() };
        let heard = self.obedience.heard();
        let restart = self.restart;
        seal_report(self.keys.server(), self.keys.report(), &SignedReport { report, sent, nonce, heard, restart })
            .unwrap()
    }

    fn report(&mut self) -> Vec<u8> {
        self.report_sent(wall_clock())
    }

    fn send(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.to).unwrap();
    }

    fn next_order(&self) -> SignedOrder {
        let mut buffer = [0; 2_048];
        let (length, from) = self.socket.recv_from(&mut buffer).expect("an order");
        assert_eq!(from, self.to);
        wire::open(&buffer[..length]).unwrap().order(self.keys.order()).unwrap()
    }

    /// Takes the next order that is one.
    fn take_order(&mut self) -> OrderKind {
        loop {
            let order = self.next_order();
            if self.obedience.obey(&order, wall_clock()).is_ok() {
                return order.kind;
            }
        }
    }

    /// Waits for an order to restart, which is lost before it is obeyed. Returns its number.
    fn lose_restart(&self) -> u64 {
        loop {
            let order = self.next_order();
            if order.kind == OrderKind::Restart {
                return order.number;
            }
        }
    }

    /// Reports, is introduced, and reports again, which counts.
    fn meet(&mut self) {
        let first = self.report();
        self.send(&first);
        assert_eq!(self.take_order(), OrderKind::Question);
        let second = self.report();
        self.send(&second);
    }
}

#[test]
fn a_signed_report_counts_and_is_seen() {
    let origins = [Origin::new("a")];
    let proxy = start("", &app(&origins, ""));
    let mut agent = Agent::new("app/a0", feedback_address(&proxy));
    agent.run_queue = 17;
    agent.meet();
    let status = wait_for_count(&proxy, "/feedback/accepted", 1);
    assert_eq!(run_queues(&status), [Some(17)]);
    assert_eq!(status["process"]["feedback"]["refused"]["unheard"], 1);
    proxy.wait_for_error("the agent of app/a0 reports from 127.0.0.1:");
    let text = latin1(&pointsman(proxy.folder(), &["status", "rules.kdl"]).stdout);
    assert!(text.contains("1 reports of agents counted") && text.contains("run queue"), "{text}");
}

#[test]
fn a_dead_service_is_restarted_by_its_agent_also_where_the_first_order_is_lost() {
    let origins = [Origin::new("a"), Origin::new("b")];
    let proxy = start("", &app(&origins, "retry count=3; recovery"));
    let mut agent = Agent::new("app/a1", feedback_address(&proxy));
    agent.meet();
    wait_for_count(&proxy, "/feedback/accepted", 1);
    origins[1].stop();
    let mut client = proxy.client();
    let mut report_until = |agent: &mut Agent, service: Service, line: &str| {
        agent.service = service;
        wait_for(line, DEADLINE, || {
            client.get("/");
            let report = agent.report();
            agent.send(&report);
            proxy.has_said(&[line]).then_some(())
        });
    };
    report_until(&mut agent, Service::Down, "recovery of server app/a1: restart by its agent begins");
    let number = agent.lose_restart();
    assert_eq!(agent.lose_restart(), number, "the same order again");
    agent.restart = Some(RestartNews { number, progress: RestartProgress::Done });
    report_until(&mut agent, Service::Down, "recovery of server app/a1: restart by its agent: done");
    origins[1].start();
    report_until(&mut agent, Service::Up, "server app/a1 was down and is recovering");
    let status = proxy.status();
    let server = &status["pools"][0]["servers"][1];
    let steps = server["recovery"]["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[0]["step"]), (1, &"restart by its agent".into()), "{server}");
    assert_eq!(server["availability"]["failures"], 1);
}

#[test]
fn what_is_forged_replayed_late_or_unknown_is_refused_and_counted() {
    let origins = [Origin::new("a"), Origin::new("b")];
    let proxy = start("", &app(&origins, ""));
    let mut agent = Agent::new("app/a0", feedback_address(&proxy));
    agent.run_queue = 5;
    agent.meet();
    wait_for_count(&proxy, "/feedback/accepted", 1);
    agent.run_queue = 99;
    // Of another's key, under the server's name.
    let mut forged = agent.report();
    *forged.last_mut().unwrap() ^= 1;
    agent.send(&forged);
    let mut others = agent.report();
    let name = others.windows(6).position(|bytes| bytes == b"app/a0").unwrap();
    others[name + 5] = b'1';
    agent.send(&others);
    others[name + 5] = b'7';
    agent.send(&others);
    let late = agent.report_sent(UnixNanos(wall_clock().0 - 40_000_000_000));
    agent.send(&late);
    agent.send(b"\x01garbage");
    for (path, count) in [("forged", 2), ("unknown", 1), ("late", 1), ("malformed", 1)] {
        wait_for_count(&proxy, &format!("/feedback/refused/{path}"), count);
    }
    let before = agent.report();
    agent.run_queue = 6;
    let good = agent.report();
    agent.send(&good);
    wait_for_count(&proxy, "/feedback/accepted", 2);
    agent.send(&good);
    agent.send(&before);
    let status = wait_for_count(&proxy, "/feedback/refused/replayed", 2);
    assert_eq!(status["process"]["feedback"]["accepted"], 2);
    assert_eq!(run_queues(&status), [Some(6), None], "nothing of it has changed anything");
}

#[test]
fn who_is_not_named_as_a_source_is_not_heard() {
    let origins = [Origin::new("a")];
    let proxy = start("sources \"127.0.0.77\" \"192.0.2.0/24\"", &app(&origins, ""));
    let mut agent = Agent::new("app/a0", feedback_address(&proxy));
    for _ in 0..100 {
        let report = agent.report();
        agent.send(&report);
    }
    agent.socket = UdpSocket::bind("127.0.0.77:0").unwrap();
    agent.socket.set_read_timeout(Some(DEADLINE)).unwrap();
    agent.meet();
    let status = wait_for_count(&proxy, "/feedback/accepted", 1);
    let feedback = &status["process"]["feedback"];
    // The kernel has kept them away, and nobody takes what it filters for a loss.
    assert_eq!((&feedback["refused"]["foreign"], &feedback["refused"]["unheard"]), (&0.into(), &1.into()));
    assert_eq!((&feedback["dropped_by_kernel"], &feedback["dropped"]), (&0.into(), &0.into()));
}

#[test]
fn a_restart_of_the_balancer_makes_old_datagrams_worthless() {
    let origins = [Origin::new("a")];
    let pools = app(&origins, "");
    let first = start("", &pools);
    let mut agent = Agent::new("app/a0", feedback_address(&first));
    agent.meet();
    wait_for_count(&first, "/feedback/accepted", 1);
    // One that has not been used is worth no more than one that has.
    let unused = agent.report();
    drop(first);
    let second = start("", &pools);
    agent.to = feedback_address(&second);
    agent.send(&unused);
    assert_eq!(agent.take_order(), OrderKind::Question);
    agent.send(&unused);
    let status = wait_for_count(&second, "/feedback/refused/unheard", 2);
    assert_eq!(status["process"]["feedback"]["accepted"], 0);
    // The agent itself goes on at once.
    let report = agent.report();
    agent.send(&report);
    wait_for_count(&second, "/feedback/accepted", 1);
}

#[test]
fn a_flood_of_forgeries_changes_nothing_and_stops_neither_agents_nor_requests() {
    let origins = [Origin::new("a")];
    let proxy = start("", &app(&origins, ""));
    let mut agent = Agent::new("app/a0", feedback_address(&proxy));
    agent.run_queue = 3;
    agent.meet();
    wait_for_count(&proxy, "/feedback/accepted", 1);
    let mut forged = agent.report();
    *forged.last_mut().unwrap() ^= 1;
    let (is_over, to) = (Arc::new(AtomicBool::new(false)), agent.to);
    let flood = {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut sent = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                socket.send_to(&forged, to).unwrap();
                sent += 1;
            }
            sent
        })
    };
    for count in 2..6 {
        wait_for("a report to count", DEADLINE, || {
            // One or the other may find no room in the socket's buffer.
            let report = agent.report();
            agent.send(&report);
            (proxy.status()["process"]["feedback"]["accepted"].as_u64()? >= count).then_some(())
        });
        assert_eq!(proxy.client().get("/").status(), 200);
    }
    is_over.store(true, Ordering::Relaxed);
    let sent = flood.join().unwrap();
    let status = wait_for("the flood to be counted", DEADLINE, || {
        let status = proxy.status();
        let feedback = &status["process"]["feedback"];
        let of = |name: &str| feedback["refused"][name].as_u64().unwrap();
        let lost = feedback["dropped_by_kernel"].as_u64().unwrap();
        (of("forged") + of("limited") + lost >= sent).then_some(status)
    });
    let limited = status["process"]["feedback"]["refused"]["limited"].as_u64().unwrap();
    assert!(limited > 0, "the work for one sender is bounded");
    assert_eq!(run_queues(&status), [Some(3)]);
    assert_eq!(status["pools"][0]["servers"][0]["state"], "up");
}

/// Answers each question with a text; tells what it was sent.
fn agent_check(reply: &'static str) -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, questions) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let mut question = [0; 7];
            let read = stream.read_exact(&mut question);
            let _ = stream.write_all(reply.as_bytes());
            if asked.send(read.map(|()| latin1(&question)).unwrap_or_default()).is_err() {
                return;
            }
        }
    });
    (port, questions)
}

#[test]
fn servers_are_asked_what_they_say_of_themselves() {
    let origins = [Origin::new("a"), Origin::new("b")];
    let (first, questions) = agent_check("up 75% maxconn:30 # warming up\n");
    let (second, nonsense) = agent_check("sideways\n");
    let pools = format!(
        "pool \"app\" {{\n agent-check port={first} every=\"100ms\" send=\"app/a0\\n\"\n\
         server \"a0\" \"{}\"\n server \"a1\" \"{}\" agent-port={second} agent-address=\"127.0.0.1\"\n }}\n",
        origins[0].address, origins[1].address
    );
    let rules = format!("listen \"127.0.0.1:0\"\nadmin \"unix:admin.sock\"\n{pools}rule use=\"app\"\n");
    let proxy = Setup::new(&rules).start();
    for _ in 0..3 {
        assert_eq!(questions.recv_timeout(DEADLINE).unwrap(), "app/a0\n");
        nonsense.recv_timeout(DEADLINE).unwrap();
    }
    wait_for_count(&proxy, "/agent_checks/replies", 3);
    let status = wait_for_count(&proxy, "/agent_checks/failed", 3);
    assert_eq!(status["process"]["feedback"], Value::Null);
    proxy.wait_for_error("app/a0 says of itself: warming up");
    proxy.wait_for_error("the agent-check of app/a1 at 127.0.0.1:");
    assert!(proxy.threads().contains(&"agent-check".to_owned()));
}

/// How many of so many requests each origin has answered.
fn shares(proxy: &Proxy, names: &[&str], requests: usize) -> Vec<usize> {
    let answers: Vec<String> = (0..requests).map(|_| proxy.client().get("/").text()).collect();
    names.iter().map(|name| answers.iter().filter(|answer| *answer == name).count()).collect()
}

#[test]
fn requests_go_where_the_reported_run_queue_is_shortest() {
    let origins = [Origin::new("a"), Origin::new("b")];
    let proxy = start("", &app(&origins, "scheduler \"run-queue\""));
    let to = feedback_address(&proxy);
    let mut agents = [Agent::new("app/a0", to), Agent::new("app/a1", to)];
    agents[0].run_queue = 1_000;
    agents.iter_mut().for_each(Agent::meet);
    wait_for_count(&proxy, "/feedback/accepted", 2);
    assert_eq!(shares(&proxy, &["a", "b"], 40), [0, 40]);
    // Forty have been sent there since.
    agents[0].run_queue = 20;
    let report = agents[0].report();
    agents[0].send(&report);
    wait_for_count(&proxy, "/feedback/accepted", 3);
    assert_eq!(shares(&proxy, &["a", "b"], 20), [20, 0]);
}

/// Has an agent answer every question until the end; tells how many there were.
fn answer_questions(mut agent: Agent, is_over: &Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
    let is_over = Arc::clone(is_over);
    std::thread::spawn(move || {
        let mut answers = 0;
        while !is_over.load(Ordering::Relaxed) {
            agent.take_order();
            let report = agent.report();
            agent.send(&report);
            answers += 1;
        }
        answers
    })
}

#[test]
fn an_agent_that_does_not_answer_gets_nothing_until_it_does() {
    let origins = [Origin::new("a"), Origin::new("b")];
    let proxy = start("", &app(&origins, "scheduler \"run-queue\" reports=\"pull\""));
    let to = feedback_address(&proxy);
    let mut silent = Agent::new("app/a0", to);
    silent.meet();
    wait_for_count(&proxy, "/feedback/accepted", 1);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut busy = Agent::new("app/a1", to);
    busy.run_queue = 500;
    busy.meet();
    let mut answering = vec![answer_questions(busy, &is_over)];
    // Asked, and not answering: it is passed over, however long the other's queue is.
    let queues = |expected: fn(&[Option<u64>]) -> bool| {
        wait_for("the run queues to be known", DEADLINE, || {
            let queues = run_queues(&proxy.status());
            expected(&queues).then_some(queues)
        })
    };
    queues(|queues| queues[0].is_none() && queues[1].is_some_and(|length| length >= 500));
    let [first, _] = shares(&proxy, &["a", "b"], 20)[..] else { panic!("two") };
    // The other may be late with an answer now and then, on a machine that is busy; then nobody is known.
    assert!(first < 10, "{first} of 20");
    let report = silent.report();
    silent.send(&report);
    answering.push(answer_questions(silent, &is_over));
    queues(|queues| queues[0].is_some_and(|length| length < 100));
    is_over.store(true, Ordering::Relaxed);
    for answering in answering {
        assert!(answering.join().unwrap() >= 1);
    }
}

#[test]
fn keys_are_made_and_given_out_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| pointsman(folder.path(), &[&["agent-key"], arguments].concat());
    assert_eq!(run(&["--new", "agents.key"]).status.code(), Some(0));
    let mode = std::fs::metadata(folder.path().join("agents.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(run(&["--new", "agents.key"]).status.code(), Some(3), "it is not written over");
    let output = run(&["app/a0", "--key-file", "agents.key"]);
    assert_eq!(AgentKeys::from_text(&latin1(&output.stdout)).unwrap().server().as_str(), "app/a0");
    let output = run(&["app/a0", "--key-file", "agents.key", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(AgentKeys::from_text(json["keys"].as_str().unwrap()).is_ok());
    assert_eq!(run(&["a0", "--key-file", "agents.key"]).status.code(), Some(1));
    assert_eq!(run(&["app/a0"]).status.code(), Some(2));
}

#[test]
fn the_real_agent_is_heard_and_answers_with_keys_from_the_command_line() {
    let origins = [Origin::new("a")];
    let proxy = start("", &app(&origins, "scheduler \"run-queue\" reports=\"pull\""));
    let key = pointsman(proxy.folder(), &["agent-key", "app/a0", "--key-file", "agents.key"]);
    std::fs::write(proxy.path("a0.key"), key.stdout).unwrap();
    let to = feedback_address(&proxy).to_string();
    let port = origins[0].address.port().to_string();
    let named = ["--report-to", &to, "--key-file", "a0.key", "--server", "app/a0", "--service-port", &port];
    let _agent = agent::Agent::run(proxy.folder(), &named);
    wait_for_count(&proxy, "/feedback/accepted", 5);
    wait_for_count(&proxy, "/feedback/orders", 3);
    wait_for("an answer in time", DEADLINE, || run_queues(&proxy.status())[0]);
    assert_eq!(shares(&proxy, &["a"], 5), [5]);
    let refused = &proxy.status()["process"]["feedback"]["refused"];
    assert_eq!((&refused["forged"], &refused["replayed"], &refused["late"]), (&0.into(), &0.into(), &0.into()));
}

#[test]
fn a_master_key_that_everybody_can_read_is_an_error_of_the_start() {
    let rules = "listen \"127.0.0.1:0\"\nfeedback \"127.0.0.1:0\" { key-file \"agents.key\" }\nrule respond=404\n";
    let setup = Setup::new(rules).file("agents.key", MASTER);
    std::fs::set_permissions(setup.folder().join("agents.key"), PermissionsExt::from_mode(0o644)).unwrap();
    let output = setup.run_to_end(&["run"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(latin1(&output.stderr).contains("everybody on this machine can read it"));
}

//! A balancer for agents, and agents to speak to it: the real binary on one side, a UDP socket of the test on the other.
//!
//! The services that agents watch are a small program of Python's, which daemonizes, answers HTTP, and writes down when it was
//! started and stopped.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pointsman::base::time::UnixNanos;
use pointsman::pure::feedback::acceptance::{Acceptance, Refusal};
use pointsman::pure::feedback::keys::{AgentKeys, MasterKey};
use pointsman::pure::feedback::wire::{Challenge, SignedOrder, SignedReport, open, seal_order};

use super::deadline::{DEADLINE, Deadline};
use super::proxy::{exit_status, kill_and_wait};

/// The agent under test.
pub const AGENT: &str = env!("CARGO_BIN_EXE_pointsman-agent");

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "a balancer has a clock")]
pub fn wall_clock() -> UnixNanos {
    UnixNanos::of(std::time::SystemTime::now())
}

/// A balancer that one agent speaks to.
pub struct Balancer {
    socket: UdpSocket,
    keys: AgentKeys,
    acceptance: Acceptance,
    agent: Option<SocketAddr>,
    number: u64,
}

impl Balancer {
    /// One that nobody has spoken to yet.
    pub fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let keys = keys_of("origin/o1");
        Self { socket, keys, acceptance: Acceptance::new(Challenge([9; 16])), agent: None, number: 0 }
    }

    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("an address")
    }

    /// The next report, whether it counts or not, and whether it does.
    #[track_caller]
    pub fn next(&mut self) -> (SignedReport, Result<(), Refusal>) {
        let deadline = Deadline::after(DEADLINE);
        let mut buffer = [0; 2048];
        let (length, from) = loop {
            match self.socket.recv_from(&mut buffer) {
                Ok(found) => break found,
                Err(_) => assert!(deadline.left().is_some(), "waited in vain for a report"),
            }
        };
        self.agent = Some(from);
        let sealed = open(&buffer[..length]).expect("a datagram of feedback");
        assert_eq!(sealed.name(), "origin/o1");
        let message = sealed.report(self.keys.report()).expect("a report that is signed with this key");
        let counts = self.acceptance.accept(&message, wall_clock());
        if counts == Err(Refusal::Unheard) {
            self.number += 1;
            self.send(&self.acceptance.introduction(&message, self.number));
        }
        (message, counts)
    }

    /// The next report that counts and of which something holds.
    #[track_caller]
    pub fn wait(&mut self, what: &str, holds: impl Fn(&SignedReport) -> bool) -> SignedReport {
        let deadline = Deadline::after(DEADLINE);
        loop {
            let (message, counts) = self.next();
            if counts.is_ok() && holds(&message) {
                return message;
            }
            assert!(deadline.left().is_some(), "waited in vain for a report that {what}; the last: {message:?}");
        }
    }

    /// An order that would be obeyed.
    pub fn order(&mut self, kind: pointsman::pure::feedback::wire::OrderKind) -> SignedOrder {
        self.number += 1;
        self.acceptance.order(kind, self.number, wall_clock()).expect("an agent that has been heard")
    }

    pub fn send(&self, order: &SignedOrder) {
        let datagram = seal_order(self.keys.server(), self.keys.order(), order).expect("an order fits");
        self.send_raw(&datagram);
    }

    pub fn send_raw(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.agent.expect("an agent has spoken")).expect("it can be sent");
    }
}

/// The keys of a server.
pub fn keys_of(server: &str) -> AgentKeys {
    MasterKey::from_bytes(&[3; 32]).pair(&server.parse().expect("a name")).expect("keys")
}

/// An agent that runs until it is dropped.
pub struct Agent {
    child: Child,
}

impl Agent {
    /// Starts one in `folder`, with its key.
    pub fn start(folder: &Path, balancer: &Balancer, arguments: &[&str]) -> Self {
        std::fs::write(folder.join("key"), keys_of("origin/o1").to_text() + "\n").expect("a file can be written");
        let address = balancer.address().to_string();
        let own = ["--report-to", &address, "--key-file", "key", "--server", "origin/o1"];
        Self::run(folder, &[&own, arguments].concat())
    }

    /// Starts one in `folder` with these arguments and no others.
    pub fn run(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(AGENT);
        command.args(arguments).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the agent starts");
        let errors = child.stderr.take().expect("a pipe");
        thread::spawn(move || {
            BufReader::new(errors).lines().map_while(Result::ok).for_each(|line| println!("agent: {line}"))
        });
        Self { child }
    }

    /// Sends it SIGTERM.
    pub fn terminate(&self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a number")), Signal::SIGTERM).expect("it is there");
    }

    /// How it ends.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        exit_status(&mut self.child, DEADLINE).expect("the agent does not end")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        kill_and_wait(&mut self.child);
    }
}

/// The program of services: `service.py start|stop NAME PORT`. It writes `NAME.pid` and adds a line to `log`.
const SERVICE: &str = r#"
import http.server, os, signal, sys, time
action, name, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open("log", "a") as log: log.write(f"{action} {name}\n")
if action == "stop":
    try: os.kill(int(open(name + ".pid").read()), signal.SIGKILL)
    except (OSError, ValueError): pass
    sys.exit(0)
if os.path.exists(name + ".broken"): sys.exit(1)
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500 if os.path.exists(name + ".sick") else 200); self.end_headers()
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer.request_queue_size = 64
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answers)
if os.fork(): os._exit(0)
os.setsid()
with open(name + ".new", "w") as file: file.write(str(os.getpid()))
os.rename(name + ".new", name + ".pid")
null = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2): os.dup2(null, stream)
server.serve_forever()
"#;

/// A folder with services, which are ended when it is dropped.
pub struct Services {
    pub folder: tempfile::TempDir,
    names: Vec<(String, u16)>,
}

impl Services {
    /// Services of these names, each on a free port.
    pub fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("service.py"), SERVICE).expect("a file");
        let held: Vec<_> = names.iter().map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let port = |held: &std::net::TcpListener| held.local_addr().expect("an address").port();
        let names = names.iter().zip(&held).map(|(name, held)| ((*name).to_owned(), port(held))).collect();
        Self { folder, names }
    }

    pub fn port(&self, name: &str) -> u16 {
        self.names.iter().find(|(found, _)| found == name).expect("a service").1
    }

    pub fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join(file)
    }

    /// Starts or stops a service as its operator would, and waits until that is done.
    pub fn run(&self, action: &str, name: &str) {
        let port = self.port(name).to_string();
        let mut command = Command::new("python3");
        command.args(["service.py", action, name, &port]).current_dir(self.folder.path());
        let status = command.status().expect("python3 is there");
        assert!(status.success(), "{action} {name}");
        if action == "start" {
            self.number(name);
        }
    }

    /// The number of its process.
    #[track_caller]
    pub fn number(&self, name: &str) -> i32 {
        super::deadline::wait_for(&format!("{name}.pid"), DEADLINE, || {
            std::fs::read_to_string(self.path(&format!("{name}.pid"))).ok()?.parse().ok()
        })
    }

    /// Kills its process.
    pub fn kill(&self, name: &str) {
        kill(Pid::from_raw(self.number(name)), Signal::SIGKILL).expect("it is there");
    }

    /// What was started and stopped, in order.
    pub fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The agent's lines of a service.
    pub fn lines(&self, name: &str, more: &str) -> String {
        let port = self.port(name);
        format!(
            "service \"{name}\" {{ pid-file \"{name}.pid\"; port {port}; {more}\n\
             start \"python3\" \"service.py\" \"start\" \"{name}\" \"{port}\"\n\
             stop \"python3\" \"service.py\" \"stop\" \"{name}\" \"{port}\"\n}}\n"
        )
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        for (name, _) in &self.names {
            let number = std::fs::read_to_string(self.path(&format!("{name}.pid"))).ok();
            if let Some(number) = number.and_then(|text| text.parse().ok()) {
                let _ = kill(Pid::from_raw(number), Signal::SIGKILL);
            }
        }
    }
}

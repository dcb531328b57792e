//! The real binary: started on a rule file in a folder of its own, watched through its standard error and /proc, and
//! killed when the test is over.
//!
//! Its ports are learned from what it says (`listening on http://127.0.0.1:PORT`), one line for each listener in file
//! order, so that rule files can ask for port 0. What it said is shown where a test fails.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::client::Client;
use super::deadline::{DEADLINE, wait_for};
use super::message::latin1;
use super::tls::Certificate;

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_pointsman");

/// The rule file's name in the proxy's folder.
pub const RULES: &str = "rules.kdl";

/// Runs `pointsman ARGUMENTS` in `folder` to its end.
///
/// # Panics
/// Where it is still running after the deadline.
#[track_caller]
pub fn pointsman(folder: &Path, arguments: &[&str]) -> Output {
    let child = command(folder, arguments).spawn().expect("the binary starts");
    output_of(child, &format!("pointsman {}", arguments.join(" ")))
}

/// What a child says until its end.
///
/// # Panics
/// Where it is still running after the deadline.
#[track_caller]
pub fn output_of(mut child: Child, name: &str) -> Output {
    let (mut out, mut err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let read = |stream: &mut dyn Read| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes).expect("a pipe can be read")
    };
    let errors = thread::spawn(move || read(&mut err));
    let outputs = thread::spawn(move || read(&mut out));
    let status = exit_status(&mut child, DEADLINE).unwrap_or_else(|| {
        kill_and_wait(&mut child);
        panic!("`{name}` does not end");
    });
    Output { status, stdout: outputs.join().expect("a reader"), stderr: errors.join().expect("a reader") }
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(super) fn exit_status(child: &mut Child, span: Duration) -> Option<ExitStatus> {
    let deadline = super::deadline::Deadline::after(span);
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        deadline.left()?;
        super::deadline::between_looks();
    }
}

pub(super) fn kill_and_wait(child: &mut Child) {
    // Both fail only where it has ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// A proxy that is about to be started.
pub struct Setup {
    rules: String,
    folder: TempDir,
    descriptors: Option<(u32, u32)>,
    reads_output: bool,
    environment: Vec<(String, String)>,
}

impl Setup {
    /// A proxy with these rules.
    pub fn new(rules: &str) -> Self {
        let folder = TempDir::with_prefix("pointsman-test-").expect("a temporary folder");
        Self { rules: rules.to_owned(), folder, descriptors: None, reads_output: true, environment: Vec::new() }
    }

    /// The folder of the rule file, to which its file names are relative.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a file beside the rules; folders in its name are made.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder can be made");
        fs::write(path, content).expect("a file can be written");
        self
    }

    /// Puts `STEM.crt` and `STEM.key` beside the rules.
    pub fn certificate(self, stem: &str, certificate: &Certificate) -> Self {
        self.file(&format!("{stem}.crt"), &certificate.certificate).file(&format!("{stem}.key"), &certificate.key)
    }

    /// Sets the soft and the hard limit of its file descriptors.
    pub fn descriptors(mut self, soft: u32, hard: u32) -> Self {
        self.descriptors = Some((soft, hard));
        self
    }

    /// Leaves its standard output unread until [`Proxy::read_output`].
    pub fn unread_output(mut self) -> Self {
        self.reads_output = false;
        self
    }

    /// Sets a variable of its environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes the rules and runs `pointsman ARGUMENTS rules.kdl` to its end.
    #[track_caller]
    pub fn run_to_end(&self, arguments: &[&str]) -> Output {
        fs::write(self.folder.path().join(RULES), &self.rules).expect("the rules can be written");
        pointsman(self.folder.path(), &[arguments, &[RULES]].concat())
    }

    /// Writes the rules and starts the proxy with nobody watching it: whoever gets the child ends it.
    pub fn spawn(&self) -> Child {
        fs::write(self.folder.path().join(RULES), &self.rules).expect("the rules can be written");
        let mut command = command(self.folder.path(), &["run", RULES]);
        if let Some((soft, hard)) = self.descriptors {
            // The shell sets the limits and becomes the proxy: the process id stays.
            let run = command;
            command = Command::new("/bin/sh");
            command
                .arg("-c")
                .arg(format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\""))
                .arg(BINARY)
                .args(run.get_args());
            command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        command.envs(self.environment.iter().cloned());
        command.spawn().expect("the binary starts")
    }

    /// Starts the proxy and waits until it listens.
    ///
    /// # Panics
    /// With all it said, where it ends or stays silent instead.
    #[track_caller]
    pub fn start(self) -> Proxy {
        let has_port = |line: &&str| line.trim_start().starts_with("listen ") && !line.contains("\"unix:");
        let listeners = self.rules.lines().filter(has_port).count();
        let mut child = self.spawn();
        let said = [Lines::default(), Lines::default()];
        collect(child.stderr.take(), &said[1]);
        let mut proxy = Proxy { child, folder: self.folder, said, addresses: Vec::new() };
        if self.reads_output {
            proxy.read_output();
        }
        proxy.addresses = wait_for("the proxy to listen, or to end", DEADLINE, || {
            let addresses = listening(&proxy.errors());
            if addresses.len() == listeners {
                return Some(Some(addresses));
            }
            proxy.child.try_wait().expect("a child can be waited for").map(|_| None)
        })
        .unwrap_or_else(|| panic!("the proxy ended instead of listening"));
        proxy
    }
}

/// The addresses of the lines that say what is listened on.
fn listening(lines: &[String]) -> Vec<SocketAddr> {
    let address = |line: &String| {
        let (_, url) = line.split_once("listening on ")?;
        let (_, rest) = url.split_once("://")?;
        let end = rest.find(|c: char| c.is_whitespace() || c == '/' || c == '"').unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    lines.iter().filter_map(address).collect()
}

type Lines = Arc<Mutex<Vec<String>>>;

/// Keeps the lines of a stream as they come.
fn collect(stream: Option<impl Read + Send + 'static>, lines: &Lines) {
    let kept = Arc::clone(lines);
    let stream = BufReader::new(stream.expect("a pipe"));
    thread::spawn(move || {
        for line in stream.split(b'\n').map_while(Result::ok) {
            kept.lock().expect("the lines' lock").push(String::from_utf8_lossy(&line).into_owned());
        }
    });
}

/// A proxy that runs. Dropping it kills it.
pub struct Proxy {
    child: Child,
    folder: TempDir,
    /// Standard output and standard error.
    said: [Lines; 2],
    /// Where it listens, in the order of the rule file.
    pub addresses: Vec<SocketAddr>,
}

impl Proxy {
    /// Starts a proxy with these rules; where they speak of `site.crt`, that is made for `a.test` and `*.a.test`.
    #[track_caller]
    pub fn start(rules: &str) -> Self {
        let setup = Setup::new(rules);
        if !rules.contains("site.crt") {
            return setup.start();
        }
        setup.certificate("site", &Certificate::for_names(&["a.test", "*.a.test"])).start()
    }

    /// Begins to read a standard output that was left unread.
    pub fn read_output(&mut self) {
        collect(self.child.stdout.take(), &self.said[0]);
    }

    /// Closes our end of a standard output that was left unread.
    pub fn close_output(&mut self) {
        drop(self.child.stdout.take());
    }

    /// Where the first listener listens.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// A plain connection to the first listener.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// The folder of the rule file.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A file beside the rules.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("our own child takes signals");
    }

    /// The lines of its standard output so far.
    pub fn outputs(&self) -> Vec<String> {
        self.said[0].lock().expect("the lines' lock").clone()
    }

    /// The lines of its standard error so far.
    pub fn errors(&self) -> Vec<String> {
        self.said[1].lock().expect("the lines' lock").clone()
    }

    /// Waits for a line of its standard error that contains `text`.
    #[track_caller]
    pub fn wait_for_error(&self, text: &str) -> String {
        wait_for(&format!("`{text}` on standard error"), DEADLINE, || {
            self.errors().into_iter().find(|line| line.contains(text))
        })
    }

    /// Whether a line of its standard error contains all of `parts`.
    pub fn has_said(&self, parts: &[&str]) -> bool {
        self.errors().iter().any(|line| parts.iter().all(|part| line.contains(part)))
    }

    /// Asks for `target` again and again until its standard error says `text`.
    #[track_caller]
    pub fn ask_until_it_says(&self, target: &str, text: &str) {
        let mut client = self.client();
        wait_for(&format!("`{text}` on standard error"), DEADLINE, || {
            client.get(target);
            self.has_said(&[text]).then_some(())
        });
    }

    /// What `pointsman status --json` says of it.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        let output = pointsman(self.folder(), &["status", RULES, "--json"]);
        assert!(output.status.success(), "{}", latin1(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("the status is JSON")
    }

    /// The records of a JSON access log beside the rules, once there are at least `count`.
    #[track_caller]
    pub fn wait_for_records(&self, log: &str, count: usize) -> Vec<serde_json::Value> {
        wait_for(&format!("{count} records in {log}"), DEADLINE, || {
            let text = fs::read_to_string(self.path(log)).ok()?;
            // A last line without its end is still being written.
            let lines: Vec<&str> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
            let parse = |line: &&str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
            (lines.len() >= count).then(|| lines.iter().map(parse).collect())
        })
    }

    /// How it ended, once it has.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        exit_status(&mut self.child, DEADLINE).unwrap_or_else(|| panic!("the proxy does not end"))
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    fn proc_file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.pid())).expect("a running process has /proc files")
    }

    /// Its memory, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a running process has memory");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        kib * 1024
    }

    /// Its open file descriptors.
    pub fn open_descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("a running process has descriptors").count()
    }

    /// The names of its threads, sorted.
    pub fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("a running process has threads");
        let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
        let mut names: Vec<String> = tasks.filter_map(name).map(|name| name.trim().to_owned()).collect();
        names.sort();
        names
    }

    /// How many descriptors each of its event loops looks at.
    pub fn polled_descriptors(&self) -> Vec<usize> {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("a running process has descriptors");
        let polled = |descriptor: std::io::Result<fs::DirEntry>| {
            let descriptor = descriptor.ok()?;
            let target = fs::read_link(descriptor.path()).ok()?;
            let is_loop = target.to_string_lossy().contains("[eventpoll]");
            let info = format!("fdinfo/{}", descriptor.file_name().to_string_lossy());
            is_loop.then(|| self.proc_file(&info))
        };
        // A loop may have several descriptors, which say the same.
        let loops: BTreeSet<String> = descriptors.filter_map(polled).collect();
        loops.iter().map(|polled| polled.matches("tfd:").count()).collect()
    }

    /// Its soft limit of file descriptors, as the system knows it.
    pub fn descriptor_limit(&self) -> u64 {
        let limits = self.proc_file("limits");
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit of descriptors");
        line.split_whitespace().next().and_then(|limit| limit.parse().ok()).expect("a number of descriptors")
    }

    /// The signals that it catches, a bit for each, the first for signal 1.
    pub fn caught_signals(&self) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a running process has signals");
        u64::from_str_radix(line.trim(), 16).expect("a mask of signals")
    }

    /// The groups that it is in besides its own.
    pub fn groups(&self) -> Vec<u32> {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).expect("a running process has groups");
        line.split_whitespace().map(|group| group.parse().expect("a group's number")).collect()
    }

    /// The processor time it has used, user and system, in clock ticks (a hundredth of a second).
    pub fn processor_ticks(&self) -> u64 {
        let stat = self.proc_file("stat");
        let (_, fields) = stat.rsplit_once(')').expect("the command's name is in brackets");
        let ticks = fields.split_whitespace().skip(11).take(2);
        ticks.map(|ticks| ticks.parse::<u64>().expect("a number of ticks")).sum()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        kill_and_wait(&mut self.child);
        if thread::panicking() {
            println!("the proxy said on standard error:\n{}", self.errors().join("\n"));
        }
    }
}
